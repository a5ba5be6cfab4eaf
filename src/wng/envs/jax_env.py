"""Interface of environments as pure JAX functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # an environment is looked up without importing JAX
    from jaxtyping import Array, Bool, Float, PRNGKeyArray

State = Any  # any pytree of arrays


class JaxEnv(Protocol):
    """An environment as pure functions, which run a whole population in one compiled call.

    `reset` and `step` can be compiled, vmapped and scanned. The object itself holds no arrays and
    is hashable, so it can be a static argument. A Gymnasium environment provides it as an attribute
    `jax_env`.
    """

    def __hash__(self) -> int: ...

    def reset(self, key: PRNGKeyArray) -> tuple[State, Float[Array, " d"]]:
        """Start an episode. Returns its state and first observation."""

    def step(
        self, state: State, action: Float[Array, " a"]
    ) -> tuple[State, Float[Array, " d"], Float[Array, ""], Bool[Array, ""]]:
        """Take one step. Returns state, observation, reward, and whether the episode terminated."""
