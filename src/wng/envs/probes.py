"""Tiny environments with known values, for testing agents and backends.

Importing `wng.envs` registers them with Gymnasium, under the ids in `PROBES`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Rules(NamedTuple):
    """Rules of a probe, as functions of the observation s, the action a and the step t ≥ 1."""

    reward: Callable[[Any, float, int], float] = lambda s, a, t: 1.0  # s is before the step
    begin: Callable[[np.random.Generator], list[Any]] = lambda rng: [0.0]  # first observation
    move: Callable[[Any, int], Any] = lambda s, t: s  # next observation
    terminated: Callable[[Any, int], bool] = lambda s, t: True
    truncated: Callable[[Any, int], bool] = lambda s, t: False
    discrete: bool = False
    bound: float = 1.0  # of observations


def _sign(rng: np.random.Generator) -> list[Any]:
    return [rng.choice([-1.0, 1.0])]


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
    "wng/ProbeContextual-v0": Rules(lambda s, a, t: -((a - float(s[0]) / 2) ** 2), _sign),
    # One step, reward 1 for action 1 and 0 for action 0. Best action 1, value 1.
    "wng/ProbeDiscreteAction-v0": Rules(lambda s, a, t: a, discrete=True),
    # One step, reward 1 for action 1 if s = 1, for action 0 if s = −1. Value 1; 0.5 if blind.
    "wng/ProbeDiscreteContextual-v0": Rules(
        lambda s, a, t: (a == 1) == (s[0] > 0), _sign, discrete=True
    ),
    # Reward 1 at every step, truncated after 5. V = 1/(1 − γ). Tests bootstrapping.
    "wng/ProbeTruncation-v0": Rules(terminated=lambda s, t: False, truncated=lambda s, t: t >= 5),
    # Reward 1 at every step, s = [steps so far, length of the episode], drawn from 1 to 6. Odd
    # lengths terminate, even ones are truncated; the last s is [length, length]. With n steps to
    # go, V = Σ_{t < n} γᵗ for odd lengths; even ones add γⁿ times the agent's value of the last s,
    # which it never acts on. Tests final observations.
    "wng/ProbeCounter-v0": Rules(
        begin=lambda rng: [0, rng.integers(1, 7)],
        move=lambda s, t: [t, s[1]],
        terminated=lambda s, t: bool(t == s[1] and s[1] % 2 == 1),
        truncated=lambda s, t: bool(t == s[1] and s[1] % 2 == 0),
        bound=6.0,
    ),
}


class Probe(gymnasium.Env):
    """The environment of `PROBES[name]`."""

    def __init__(self, name: str) -> None:
        self.rules = rules = PROBES[name]
        size = len(rules.begin(np.random.default_rng(0)))
        self.observation_space = Box(-rules.bound, rules.bound, (size,), np.float32)
        self.action_space = Discrete(2) if rules.discrete else Box(-1.0, 1.0, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self.observation, self.steps = np.array(self.rules.begin(self.np_random), np.float32), 0
        return self.observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        rules, s, self.steps = self.rules, self.observation, self.steps + 1
        reward = float(rules.reward(s, float(np.reshape(action, ())), self.steps))
        self.observation = s = np.array(rules.move(s, self.steps), np.float32)
        ended = rules.terminated(s, self.steps), rules.truncated(s, self.steps)
        return s, reward, *ended, {}
