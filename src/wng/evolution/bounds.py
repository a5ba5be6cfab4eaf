"""Bounds of parameters."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray


class Bounds(NamedTuple):
    """Lowest and highest parameters, flat; infinite where there are none."""

    low: Float[Array, " p"]
    high: Float[Array, " p"]

    def clip(self, flat: Float[Array, "... p"]) -> Float[Array, "... p"]:
        """Move parameters to the nearest ones within the bounds."""
        return jnp.clip(flat, self.low, self.high)

    def draw(self, key: PRNGKeyArray, center: Float[Array, " p"]) -> Float[Array, " p"]:
        """Draw a point between the bounds; parameters without both stay as in `center`."""
        share = jax.random.uniform(key, center.shape, center.dtype)
        drawn = self.low + share * (self.high - self.low)
        return self.clip(jnp.where(jnp.isfinite(drawn), drawn, center))


def read_bounds(params: Any, bounds: Any) -> Bounds:
    """Check a pair of bounds, each a number or a pytree like `params`, and flatten them."""
    center = ravel_pytree(params)[0]

    def flat(bound: Any) -> Float[Array, " p"]:
        if jax.tree.structure(bound) != jax.tree.structure(params):
            bound = jax.tree.map(lambda _: bound, params)
        full = jax.tree.map(lambda x, b: jnp.broadcast_to(b, jnp.shape(x)), params, bound)
        return ravel_pytree(full)[0].astype(center.dtype)

    try:
        low, high = map(flat, bounds)
    except (TypeError, ValueError):
        raise ValueError(
            "bounds must be a pair, the lowest and the highest parameters, each a number or a "
            "pytree like params."
        ) from None
    if not bool((low < high).all()):
        raise ValueError("bounds: each lower bound must be below the upper one.")
    if not bool(((low <= center) & (center <= high)).all()):
        raise ValueError("params must be within the bounds.")
    return Bounds(low, high)
