r"""From returns to a gradient.

    ĝ = 1/(Nσ²) Σ_n F_n (θ̃_n − θ)      (eq. `ES_gradient`)

is an unbiased estimate of ∇_θ E[F(θ + σε)] for any F that does not depend on the sample; σ is a
standard deviation (the paper calls it a variance in one place, and divides by Nσ). F is a return
on a scale of its own: standardized, or replaced by its rank.

Members whose return is not finite are left out everywhere: `kept` is False for them.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from wng.evolution.config import Shaping


class Sample(NamedTuple):
    """The members of a generation and how they behaved, as proximities and geometries see them."""

    returns: Float[Array, " N"]  # shaped; 0 for members that are left out
    noise: Float[Array, "N p"]  # θ̃_n − θ; 0 for members that are left out
    behaviors: Float[Array, "N d"]  # those left out repeat another's; d = 0 if nobody needs them
    kept: Bool[Array, " N"]


def standardized(values: Float[Array, " N"], kept: Bool[Array, " N"]) -> Float[Array, " N"]:
    """Scale kept members to mean 0 and standard deviation 1; others, and equal ones, get 0."""
    count = jnp.maximum(kept.sum(), 1)
    values = jnp.where(kept, values, 0)
    centered = jnp.where(kept, values - values.sum() / count, 0)
    spread = jnp.sqrt(jnp.sum(centered**2) / count)
    # Differences at the level of rounding are no differences.
    rounding = 8 * jnp.finfo(values.dtype).eps * jnp.abs(values).max()
    return jnp.where(spread > rounding, centered / jnp.where(spread > 0, spread, 1), 0)


def centered_ranks(values: Float[Array, " N"], kept: Bool[Array, " N"]) -> Float[Array, " N"]:
    """Rank from −½ (lowest) to ½ (highest), ties shared; 0 for members left out."""
    pairs = kept[:, None] & kept[None, :]
    below = jnp.where(pairs, values[:, None] > values[None, :], False).sum(axis=1)
    above = jnp.where(pairs, values[:, None] < values[None, :], False).sum(axis=1)
    return 0.5 * (below - above) / jnp.maximum(kept.sum() - 1, 1)


SHAPINGS: dict[Shaping, Callable[[Array, Array], Array]] = {
    "standardize": standardized,
    "ranks": centered_ranks,
}


def es_gradient(sample: Sample, fitness: Float[Array, " N"], sigma: float) -> Float[Array, " p"]:
    """Estimate ĝ, the gradient in θ of the expected fitness under N(θ, σ²I)  (eq. `ES_gradient`).

    `fitness` is F_n, 0 for members that are left out.
    """
    return fitness @ sample.noise / (jnp.maximum(sample.kept.sum(), 1) * sigma**2)
