"""The policy-gradient study (Figure 2, Table 1)."""
