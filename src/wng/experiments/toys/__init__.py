"""The Gaussian study (Figure 1)."""
