"""Hessian spectra of trained policies (Figure `fig:cond_number`)."""

PLACE = 10  # the ratio |λ₁|/|λ₁₀| measures a task's conditioning
