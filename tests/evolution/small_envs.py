"""A walk on a line with known returns. Registered on import, as a user's would be.

An action a in [−1, 1] moves x, which starts at 0; the reward is x after the step, and the episode
ends at x ≥ 2. Observations are [x, steps]. No JAX here, so that worker processes start at once.
"""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

HORIZON = 10


class Line(gymnasium.Env):
    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def __init__(self, fault: str = "", value: float = np.nan):
        self.fault, self.value = fault, value  # what is wrong beyond x = −1, or from the start

    @property
    def jax_env(self):
        from evolution.line_task import LineTask

        return LineTask(self.fault)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = 0.0, 0
        first = self.value if self.fault == "start" else 0.0
        return np.array([first, 0], np.float32), {}

    def step(self, action):
        assert np.isfinite(action).all()  # a policy never acts on what is not a number
        self.x += float(action[0])
        self.steps += 1
        bad = self.x < -1
        seen = self.value if bad and self.fault == "observation" else self.x
        reward = self.value if bad and self.fault == "reward" else self.x
        return np.array([seen, self.steps], np.float32), reward, self.x >= 2, False, {}


class Endless(gymnasium.Env):
    """Discrete actions 3 and 4, observations [2, 1], neither end nor time limit."""

    observation_space = Box(-1, 1, (2, 1), np.float32)
    action_space = Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones((2, 1), np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.ones((2, 1), np.float32), float(action), False, False, {}


def register(env_id: str, limit: int | None = HORIZON, env: type = Line, **settings) -> None:
    entry_point = f"evolution.small_envs:{env.__name__}"
    gymnasium.register(env_id, entry_point, max_episode_steps=limit, kwargs=settings)


register("Line-v0")
register("Line-reward-v0", fault="reward")
register("Line-observation-v0", fault="observation")
register("Line-start-v0", fault="start")
register("Line-huge-v0", fault="reward", value=1e300)
register("Endless-v0", None, Endless)


def first_state(trajectory):
    """An embedding of one's own: where the first step led."""
    return trajectory.observations[0]


def mean_state(trajectory):
    """One that looks at every step of the padded episode."""
    return trajectory.observations.mean(axis=0)


NOT_A_FUNCTION = 3
