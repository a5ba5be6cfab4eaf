"""Reward per minute (Figure 5)."""
