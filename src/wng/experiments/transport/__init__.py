"""The behavioral transport function (Figure 6)."""
