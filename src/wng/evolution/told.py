"""What a strategy is told about a generation, checked."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float


def check_candidates(candidates: Any, params: Any, population: int) -> None:
    """Raise a ValueError unless `candidates` are as many as the population, each like `params`."""
    expected = jax.tree.map(lambda leaf: (population, *jnp.shape(leaf)), params)
    if jax.tree.map(jnp.shape, candidates) != expected:
        raise ValueError(
            "candidates must be the parameters of all members as ask() returned them: the "
            f"same pytree, with a leading axis of {population}."
        )


def read_returns(returns: ArrayLike, population: int) -> Float[Array, " N"]:
    """Return the returns as an array, one for each member."""
    if jnp.shape(returns) != (population,):
        raise ValueError(
            f"returns must have shape [{population}], one for each member, got shape "
            f"{list(jnp.shape(returns))}."
        )
    return jnp.asarray(returns, float)


def read_behaviors(behaviors: ArrayLike | None, population: int) -> Float[Array, "N d"]:
    """Return the behaviors as an array, a vector for each member."""
    if behaviors is None:
        raise ValueError(
            "this strategy compares behaviors: pass tell() behaviors, a vector for each member."
        )
    size = jnp.shape(behaviors)
    if len(size) not in (1, 2) or size[0] != population or 0 in size:
        raise ValueError(
            f"behaviors must have shape [{population}, d], a vector for each member, got "
            f"shape {list(size)}."
        )
    return jnp.asarray(behaviors, float).reshape(population, -1)
