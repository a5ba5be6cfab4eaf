"""Hessian spectra of trained policies (Figure `fig:cond_number`)."""
