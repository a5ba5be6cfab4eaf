"""What a policy does, as vectors: embeddings Φ(τ) of trajectories, and distances between them."""

from wng.behavior.distance import dual_ascent, dual_value, random_features
from wng.behavior.embedding import EMBEDDINGS, Embedding, Trajectory, find_embedding

__all__ = [
    "EMBEDDINGS",
    "Embedding",
    "Trajectory",
    "dual_ascent",
    "dual_value",
    "find_embedding",
    "random_features",
]
