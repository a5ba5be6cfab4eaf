"""What a policy does, as vectors: embeddings Φ(τ) of trajectories, and distances between them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
