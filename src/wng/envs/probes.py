"""Tiny environments with known values, for testing agents and backends.

Importing `wng.envs` registers them with Gymnasium, under the ids in `PROBES`.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


class _Probe(gymnasium.Env):
    """One step with a zero observation, reward 1 and an action without effect."""

    size, bound, discrete = 1, 1.0, False

    def __init__(self) -> None:
        self.observation_space = Box(-self.bound, self.bound, (self.size,), np.float32)
        self.action_space = Discrete(2) if self.discrete else Box(-1.0, 1.0, (1,), np.float32)
        self.observation, self.steps = np.zeros(self.size, np.float32), 0

    def _begin(self) -> np.ndarray:
        return np.zeros(self.size, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self.observation, self.steps = self._begin(), 0
        return self.observation, {}

    def step(self, action: Any) -> Step:
        """Take one step."""
        self.steps += 1
        reward = self._reward(float(np.reshape(action, ())))
        return self.observation, reward, True, False, {}

    def _reward(self, action: float) -> float:
        return 1.0


class _RandomSign(_Probe):
    """A probe whose observation is −1 or 1, at random."""

    def _begin(self) -> np.ndarray:
        return np.array([self.np_random.choice([-1.0, 1.0])], np.float32)


class ProbeConstant(_Probe):
    """One step with reward 1. Value 1. Tests that the value function learns at all."""


class ProbeObservation(_RandomSign):
    """One step with reward s = ±1. V(s) = s. Tests that the value depends on the state."""

    def _reward(self, action: float) -> float:
        return float(self.observation[0])


class ProbeDiscount(_Probe):
    """Two steps, s = 0 then 1, reward 1 at the end. V(0) = γ, V(1) = 1. Tests discounting."""

    def step(self, action: Any) -> Step:
        """Move from 0 to 1, then terminate."""
        self.steps += 1
        self.observation = np.ones(1, np.float32)
        last = self.steps == 2
        return self.observation, float(last), last, False, {}


class ProbeAction(_Probe):
    """One step with reward −(a − 0.5)². Best action 0.5, value 0."""

    def _reward(self, action: float) -> float:
        return -((action - 0.5) ** 2)


class ProbeContextual(_RandomSign):
    """One step with reward −(a − s/2)², s = ±1. Best action s/2, value 0; −0.25 if blind to s."""

    def _reward(self, action: float) -> float:
        return -((action - float(self.observation[0]) / 2) ** 2)


class ProbeDiscreteAction(_Probe):
    """One step, reward 1 for action 1 and 0 for action 0. Best action 1, value 1."""

    discrete = True

    def _reward(self, action: float) -> float:
        return action


class ProbeDiscreteContextual(_RandomSign):
    """One step, reward 1 for action 1 if s = 1, for action 0 if s = −1. Value 1; 0.5 if blind."""

    discrete = True

    def _reward(self, action: float) -> float:
        return float((action == 1) == (self.observation[0] > 0))


class ProbeTruncation(_Probe):
    """Reward 1 at every step, truncated after 5. V = 1/(1 − γ). Tests bootstrapping."""

    def step(self, action: Any) -> Step:
        """Take one step."""
        self.steps += 1
        return self.observation, 1.0, False, self.steps >= 5, {}


class ProbeCounter(_Probe):
    """Reward 1 at every step, observation [steps so far, length of the episode].

    The length is drawn from 1 to 6. Episodes of odd length terminate, those of even length are
    truncated; the last observation is [length, length]. V = Σ_{t < remaining} γᵗ for odd lengths;
    even lengths add γ^remaining times the agent's value of the last observation, which it never
    acts on. Tests final observations.
    """

    size, bound = 2, 6.0

    def _begin(self) -> np.ndarray:
        return np.array([0, self.np_random.integers(1, 7)], np.float32)

    def step(self, action: Any) -> Step:
        """Count the step."""
        self.steps += 1
        length = int(self.observation[1])
        self.observation = np.array([self.steps, length], np.float32)
        last = self.steps == length
        return self.observation, 1.0, last and length % 2 == 1, last and length % 2 == 0, {}


PROBES = {
    f"wng/{probe.__name__}-v0": probe
    for probe in (
        ProbeConstant,
        ProbeObservation,
        ProbeDiscount,
        ProbeAction,
        ProbeContextual,
        ProbeDiscreteAction,
        ProbeDiscreteContextual,
        ProbeTruncation,
        ProbeCounter,
    )
}


def register_probes() -> None:
    """Register the probe environments with Gymnasium, once."""
    for env_id, probe in PROBES.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=f"{__name__}:{probe.__name__}")
