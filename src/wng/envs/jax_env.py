"""Environments as pure functions, for whole populations in one compiled call."""

from typing import Any, Protocol

from jaxtyping import Array, Bool, Float, PRNGKeyArray

State = Any  # a pytree of arrays, the environment's own


class JaxEnv(Protocol):
    """An environment as pure functions: whole populations in one compiled call.

    `reset` and `step` can be compiled, vmapped and scanned. The object itself holds no arrays and
    is hashable, so that it can be a static argument. A Gymnasium environment shows that it has this
    form by an attribute `jax_env`.
    """

    @property
    def observation_size(self) -> int:
        """Length of an observation."""

    @property
    def action_size(self) -> int:
        """Length of an action."""

    @property
    def action_low(self) -> tuple[float, ...]:
        """Lowest action, one number for each entry."""

    @property
    def action_high(self) -> tuple[float, ...]:
        """Highest action, one number for each entry."""

    @property
    def horizon(self) -> int:
        """Steps after which an episode is truncated."""

    def __hash__(self) -> int: ...

    def reset(self, key: PRNGKeyArray) -> tuple[State, Float[Array, " d"]]:
        """Begin an episode: its state and first observation."""

    def step(
        self, state: State, action: Float[Array, " a"]
    ) -> tuple[State, Float[Array, " d"], Float[Array, ""], Bool[Array, ""]]:
        """Take one step: the new state and observation, the reward, whether the episode is over."""
