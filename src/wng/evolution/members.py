"""Members of a generation: each follows from (key, generation, number) alone.

Whoever knows the center θ can make any member, so only numbers need to travel.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from wng.evolution.config import StrategyConfig

MEMBERS, FRESH, FIXED, BASIS = range(4)  # purposes of the keys of a strategy


def key_for(key: PRNGKeyArray, purpose: int, generation: int | Array) -> PRNGKeyArray:
    """Derive the key of a generation for one purpose."""
    return jax.random.fold_in(jax.random.fold_in(key, purpose), generation)


def member(
    config: StrategyConfig,
    key: PRNGKeyArray,
    generation: int | Array,
    center: Float[Array, " p"],
    number: int | Array,
) -> Float[Array, " p"]:
    """Make θ̃_n = θ + σε_n; θ is the `center`, n the `number`, `key` that of the strategy."""
    pair = number // 2 if config.antithetic else number
    key = jax.random.fold_in(key_for(key, MEMBERS, generation), pair)
    noise = jax.random.normal(key, center.shape, center.dtype)
    if config.antithetic:
        noise = jnp.where(number % 2 == 0, noise, -noise)
    return center + config.sigma * noise
