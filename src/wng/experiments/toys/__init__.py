"""The Gaussian study (Figure `toys`)."""
