r"""From returns to a gradient.

    ĝ = 1/(Nσ²) Σ_n F_n (θ̃_n − θ)      (eq. 13)

is an unbiased estimate of ∇_θ E[F(θ + σε)] for any F that does not depend on the sample; σ is a
standard deviation (the paper calls it a variance in one place, and divides by Nσ). F is a return
on a fixed scale: standardized, or replaced by its rank.

Members whose return is not finite are left out everywhere: `kept` is False for them.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from wng.evolution.config import Shaping
from wng.evolution.members import Noise, Sigma


class Sample(NamedTuple):
    """The members of a generation and how they behaved, as proximities and geometries see them."""

    returns: Float[Array, " N"]  # shaped; 0 for members that are left out
    noise: Noise  # θ̃_n − θ, whose weighted sums make gradients
    behaviors: Float[Array, "N d"]  # those left out repeat another's; d = 0 if nobody needs them
    kept: Bool[Array, " N"]
    sigma: Sigma  # σ of the noise


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


def utilities(values: Float[Array, " N"], kept: Bool[Array, " N"]) -> Float[Array, " N"]:
    """Compute the utilities of Wierstra et al. (2014, section 3.1), times N; 0 for those left out.

    max(0, ln(N/2 + 1) − ln k) for the k-th best of N, scaled to mean 1, minus 1. Ties share.
    """
    count = jnp.maximum(kept.sum(), 1)
    places = 1 + (count - 1) * (0.5 - centered_ranks(values, kept))
    weights = jnp.where(kept, jnp.maximum(0, jnp.log(count / 2 + 1) - jnp.log(places)), 0)
    mean = weights.sum() / count
    return jnp.where(kept & (mean > 0), weights / jnp.where(mean > 0, mean, 1) - 1, 0)


SHAPINGS: dict[Shaping, Callable[[Array, Array], Array]] = {
    "standardize": standardized,
    "ranks": centered_ranks,
    "utilities": utilities,
}


def es_gradient(sample: Sample, fitness: Float[Array, " N"]) -> Float[Array, " p"]:
    """Estimate ĝ, the gradient in θ of the expected fitness under N(θ, σ²I)  (eq. 13).

    `fitness` is F_n, 0 for members that are left out.
    """
    return sample.noise.sums(fitness[None])[0] / (_count(sample) * sample.sigma**2)


def es_gradients(
    sample: Sample, fitness: Float[Array, " N"]
) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
    """Estimate ĝ and ĝ_σ = 1/N Σ_n F_n (ε_n² − 1)/σ, the gradient of the expected fitness in σ.

    ε_n = (θ̃_n − θ)/σ. Both are unbiased, with antithetic pairs too.
    """

    def powers(noise: Float[Array, "B p"]) -> Float[Array, "B 2p"]:
        eps = noise / sample.sigma
        return jnp.concatenate([eps, eps**2], axis=1)

    of_mean, squares = jnp.split(sample.noise.sums(fitness[None], powers)[0], 2)
    scale = _count(sample) * sample.sigma
    return of_mean / scale, (squares - fitness.sum()) / scale


def _count(sample: Sample) -> Array:
    return jnp.maximum(sample.kept.sum(), 1)
