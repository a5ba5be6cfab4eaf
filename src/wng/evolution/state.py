"""The state of a strategy between generations."""

from typing import Any, NamedTuple, Self

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


class Restarts(NamedTuple):
    """What decides when the search starts over."""

    start: Float[Array, " p"]  # θ at the start
    best_return: Float[Array, ""]  # since the last restart
    stalled: Int[Array, ""]  # generations in a row without a member better than that
    number: Int[Array, ""]  # restarts so far

    @classmethod
    def none_yet(cls, start: Float[Array, " p"]) -> Self:
        """Return the state before the first generation."""
        zero = jnp.zeros((), int)
        return cls(start, jnp.asarray(-jnp.inf, float), zero, zero)

    def after(self, highest: Float[Array, ""]) -> Self:
        """Return the state after a generation whose highest return is `highest`, −∞ if none is."""
        better, counts = highest > self.best_return, jnp.isfinite(highest)
        return self._replace(
            best_return=jnp.maximum(self.best_return, highest),
            stalled=jnp.where(better, 0, self.stalled + counts),
        )


class State(NamedTuple):
    """All that a strategy remembers: a pytree that can be scanned, vmapped or saved."""

    center: Float[Array, " p"]  # θ, flat
    sigma: Float[Array, " p"] | None  # σ of each parameter; None if it is fixed
    optimizer: Any
    generation: Int[Array, ""]
    key: PRNGKeyArray
    past: Any  # what the proximity remembers; None also before the first `tell`
    skipped: Int[Array, ""]  # generations without a step because the gradient was not finite
    best: Float[Array, " p"]  # member with the highest return so far; θ before the first `tell`
    best_return: Float[Array, ""]
    restarts: Restarts | None  # None if the search never starts over
