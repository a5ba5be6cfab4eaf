"""Reward per minute (Figure `fig:rpm`)."""
