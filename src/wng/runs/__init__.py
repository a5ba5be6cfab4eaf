"""A run on disk: configuration, metrics, checkpoints, resume. Independent of what is trained."""
