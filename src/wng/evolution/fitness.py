r"""From returns to a gradient.

    ĝ = 1/(Nσ²) Σ_n F_n (θ̃_n − θ)      (eq. `ES_gradient`)

estimates ∇_θ E[F(θ + σε)] without bias for any F that does not depend on the sample; σ is a
standard deviation (the paper calls it a variance in one place, and divides by Nσ). F is a return
that has been given a scale of its own: standardised, or replaced by its rank.

Members whose return is not finite are left out everywhere: `kept` is False for them.
"""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Shaping = Literal["standardize", "ranks"]


def standardized(values: Float[Array, " N"], kept: Bool[Array, " N"]) -> Float[Array, " N"]:
    """Mean 0 and standard deviation 1 over the kept members; 0 for the others, and if all agree."""
    count = jnp.maximum(kept.sum(), 1)
    values = jnp.where(kept, values, 0)
    centered = jnp.where(kept, values - values.sum() / count, 0)
    spread = jnp.sqrt(jnp.sum(centered**2) / count)
    # Differences at the level of rounding are no differences.
    rounding = 8 * jnp.finfo(values.dtype).eps * jnp.abs(values).max()
    return jnp.where(spread > rounding, centered / jnp.where(spread > 0, spread, 1), 0)


def centered_ranks(values: Float[Array, " N"], kept: Bool[Array, " N"]) -> Float[Array, " N"]:
    """Ranks from −½ (lowest) to ½ (highest), equal ones shared; 0 for members left out."""
    pairs = kept[:, None] & kept[None, :]
    below = jnp.where(pairs, values[:, None] > values[None, :], False).sum(axis=1)
    above = jnp.where(pairs, values[:, None] < values[None, :], False).sum(axis=1)
    return 0.5 * (below - above) / jnp.maximum(kept.sum() - 1, 1)


SHAPINGS = {"standardize": standardized, "ranks": centered_ranks}


def es_gradient(
    noise: Float[Array, "N p"],
    fitness: Float[Array, " N"],
    sigma: float | Array,
    kept: Bool[Array, " N"] | None = None,
) -> Float[Array, " p"]:
    """ĝ, the gradient of the expected fitness under N(θ, σ²I) in θ   (eq. `ES_gradient`).

    Args:
      noise: θ̃_n − θ.
      fitness: F_n; members that are left out have 0.
      sigma: standard deviation of the noise.
      kept: members that count; all by default.
    """
    count = noise.shape[0] if kept is None else jnp.maximum(kept.sum(), 1)
    return fitness @ noise / (count * sigma**2)
