"""Fault drills: what a run survives. `pytest tests/drills`, and in full as docs/faults.md says."""
