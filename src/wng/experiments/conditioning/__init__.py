"""Hessian spectra of trained policies (Figure 3)."""

PLACE = 10  # the ratio |λ₁|/|λ₁₀| measures a task's conditioning
