"""A run on disk: configuration, metrics, checkpoints, resume. Knows nothing of what is trained."""
