"""Interface of environments as pure JAX functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # an environment is looked up without importing JAX
    from gymnasium.spaces import Box, Discrete
    from jaxtyping import Array, Bool, Float, PRNGKeyArray

State = Any  # any pytree of arrays


class JaxEnv(Protocol):
    """An environment as pure functions, which become part of a compiled program.

    `reset` and `step` can be compiled, vmapped and scanned. The object itself holds no arrays and
    is hashable, so it can be a static argument. `module:name` names your own; a Gymnasium
    environment provides it as an attribute `jax_env`.
    """

    max_episode_steps: int | None  # episodes are truncated after this many steps

    def __hash__(self) -> int: ...

    @property
    def observation_space(self) -> Box:
        """Shape and bounds of an observation."""

    @property
    def action_space(self) -> Box | Discrete:
        """Shape and bounds of an action, or the number of actions."""

    def reset(self, key: PRNGKeyArray) -> tuple[State, Float[Array, ...]]:
        """Start an episode. Returns its state and first observation."""

    def step(
        self, key: PRNGKeyArray, state: State, action: Array
    ) -> tuple[State, Float[Array, ...], Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Take one step with an action from the action space.

        Returns state, observation, reward, and whether the episode terminated or was truncated.
        Nothing is reset: the observation at the end of an episode is the last one of it.
        """
