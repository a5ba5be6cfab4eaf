"""Members of a generation: each follows from (key, generation, number) alone.

Whoever knows the center θ and, if it learns, σ can make any member, so only numbers need to travel.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from wng.evolution.config import StrategyConfig

MEMBERS, FRESH, FIXED, BASIS = range(4)  # purposes of the keys of a strategy
LANES = 16  # float32 numbers in the widest vector register


def key_for(key: PRNGKeyArray, purpose: int, generation: int | Array) -> PRNGKeyArray:
    """Derive the key of a generation for one purpose."""
    return jax.random.fold_in(jax.random.fold_in(key, purpose), generation)


def member(
    config: StrategyConfig,
    key: PRNGKeyArray,
    generation: int | Array,
    center: Float[Array, " p"],
    sigma: Float[Array, " p"] | None,
    number: int | Array,
) -> Float[Array, " p"]:
    """Make θ̃_n = θ + σε_n; θ is the `center`, n the `number`, `key` that of the strategy.

    `sigma` is None if the search distribution is fixed: σ is then that of the settings.
    """
    pair = number // 2 if config.antithetic else number
    key = jax.random.fold_in(key_for(key, MEMBERS, generation), pair)
    noise = jax.random.normal(key, center.shape, center.dtype)
    if config.antithetic:
        noise = jnp.where(number % 2 == 0, noise, -noise)
    return center + (config.sigma if sigma is None else sigma) * noise


def map_rows(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.vmap(fn)` in which a row's result does not depend on how many other rows there are.

    XLA computes the rows that are left over from whole vector registers with other instructions,
    which may round differently. So rows are filled up to whole registers, and cut off again.
    """

    def run(*arguments: Any) -> Any:
        number = jax.tree.leaves(arguments)[0].shape[0]
        filled = jnp.minimum(jnp.arange(-(-number // LANES) * LANES), number - 1)
        wide = jax.tree.map(lambda x: x[filled], arguments)
        return jax.tree.map(lambda x: x[:number], jax.vmap(fn)(*wide))

    return run
