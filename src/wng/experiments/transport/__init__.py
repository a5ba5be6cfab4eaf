"""The behavioral transport function (Figure `wasserstein`)."""
