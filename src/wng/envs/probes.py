"""Tiny environments with known values, for testing agents and backends.

Importing `wng.envs` registers them with Gymnasium, under the ids in `PROBES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

if TYPE_CHECKING:
    from jaxtyping import Array, PRNGKeyArray


class Rules(NamedTuple):
    """Rules of a probe, as functions of the observation s, the action a and the step t ≥ 1.

    They are arithmetic alone, so that NumPy and JAX environments share them.
    """

    reward: Callable[[Any, Any, Any], Any] = lambda s, a, t: 1.0  # s is before the step
    begin: Callable[[Any], list[Any]] = lambda u: [0.0 * u]  # first s, from u uniform in [0, 1)
    move: Callable[[Any, Any], list[Any]] = lambda s, t: [s[0]]  # next s
    terminated: Callable[[Any, Any], Any] = lambda s, t: t > 0
    truncated: Callable[[Any, Any], Any] = lambda s, t: t < 0
    discrete: bool = False
    bound: float = 1.0  # of observations


def _sign(u: Any) -> list[Any]:
    return [2.0 * (u < 0.5) - 1.0]


PROBES = {
    # One step with reward 1. Value 1. Tests that the value function learns at all.
    "wng/ProbeConstant-v0": Rules(),
    # One step with reward s = ±1. V(s) = s. Tests that the value depends on the state.
    "wng/ProbeObservation-v0": Rules(lambda s, a, t: s[0], _sign),
    # Two steps, s = 0 then 1, reward 1 at the end. V(0) = γ, V(1) = 1. Tests discounting.
    "wng/ProbeDiscount-v0": Rules(
        lambda s, a, t: t == 2, move=lambda s, t: [1.0], terminated=lambda s, t: t == 2
    ),
    # One step with reward −(a − 0.5)². Best action 0.5, value 0.
    "wng/ProbeAction-v0": Rules(lambda s, a, t: -((a - 0.5) ** 2)),
    # One step with reward −(a − s/2)², s = ±1. Best action s/2, value 0; −0.25 if blind to s.
    "wng/ProbeContextual-v0": Rules(lambda s, a, t: -((a - s[0] / 2) ** 2), _sign),
    # One step, reward 1 for action 1 and 0 for action 0. Best action 1, value 1.
    "wng/ProbeDiscreteAction-v0": Rules(lambda s, a, t: a, discrete=True),
    # One step, reward 1 for action 1 if s = 1, for action 0 if s = −1. Value 1; 0.5 if blind.
    "wng/ProbeDiscreteContextual-v0": Rules(
        lambda s, a, t: (a == 1) == (s[0] > 0), _sign, discrete=True
    ),
    # Reward 1 at every step, truncated after 5. V = 1/(1 − γ). Tests bootstrapping.
    "wng/ProbeTruncation-v0": Rules(terminated=lambda s, t: t < 0, truncated=lambda s, t: t >= 5),
    # Reward 1 at every step, s = [steps so far, length of the episode], drawn from 1 to 6. Odd
    # lengths terminate, even ones are truncated; the last s is [length, length]. With n steps to
    # go, V = Σ_{t < n} γᵗ for odd lengths; even ones add γⁿ times the agent's value of the last s,
    # which it never acts on. Tests final observations.
    "wng/ProbeCounter-v0": Rules(
        begin=lambda u: [0.0 * u, 1 + 6 * u // 1],
        move=lambda s, t: [t, s[1]],
        terminated=lambda s, t: (t == s[1]) & (s[1] % 2 == 1),
        truncated=lambda s, t: (t == s[1]) & (s[1] % 2 == 0),
        bound=6.0,
    ),
}


@dataclass(frozen=True)
class ProbeTask:
    """The probe `PROBES[name]` as a `wng.envs.jax_env.JaxEnv`; a state is (s, t)."""

    name: str
    max_episode_steps = None

    @property
    def observation_space(self) -> Box:
        """Every number within the bound."""
        rules = PROBES[self.name]
        size = len(rules.begin(0.0))
        return Box(-rules.bound, rules.bound, (size,), np.float32)

    @property
    def action_space(self) -> Box | Discrete:
        """Two actions, or one number."""
        discrete = PROBES[self.name].discrete
        return Discrete(2) if discrete else Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Array]:
        """Start an episode."""
        import jax
        import jax.numpy as jnp

        s = jnp.stack(PROBES[self.name].begin(jax.random.uniform(key)))
        return (s, jnp.zeros((), jnp.int32)), s

    def step(self, key: PRNGKeyArray, state: Any, action: Array) -> tuple[Any, ...]:
        """Take one step."""
        import jax.numpy as jnp

        rules, (before, steps) = PROBES[self.name], state
        t = steps + 1
        reward = rules.reward(before, action.reshape(()), t)
        s = jnp.stack([jnp.asarray(x, jnp.float32) for x in rules.move(before, t)])
        return (s, t), s, reward, rules.terminated(s, t), rules.truncated(s, t)


class Probe(gymnasium.Env):
    """The environment of `PROBES[name]` for Gymnasium, without JAX."""

    def __init__(self, name: str) -> None:
        self.rules, self.jax_env = PROBES[name], ProbeTask(name)
        self.observation_space = self.jax_env.observation_space
        self.action_space = self.jax_env.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        first = self.rules.begin(self.np_random.random())
        self.observation, self.steps = np.array(first, np.float32), 0
        return self.observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        rules, s, self.steps = self.rules, self.observation, self.steps + 1
        reward = float(rules.reward(s, float(np.reshape(action, ())), self.steps))
        self.observation = s = np.array(rules.move(s, self.steps), np.float32)
        terminated, truncated = rules.terminated(s, self.steps), rules.truncated(s, self.steps)
        return s, reward, bool(terminated), bool(truncated), {}
