"""Agents of both families: the registry of methods, `learn` and `predict`, loading, video."""
