"""The state of a strategy between generations."""

from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int, PRNGKeyArray


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
    stalled: Int[Array, ""]  # generations in a row without a better member, or since a restart
    restarts: Int[Array, ""]
    start: Float[Array, " p"] | None  # θ at the start; None if the search never starts over
