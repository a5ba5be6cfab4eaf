"""`evolution.small_envs.Line` as pure functions."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box


@dataclass(frozen=True)
class LineTask:
    fault: str

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)
    max_episode_steps = 10

    def reset(self, key):
        first = jnp.nan if self.fault == "start" else 0.0
        return jnp.zeros(2), jnp.array([first, 0.0])

    def step(self, key, state, action):
        x, steps = state[0] + jnp.clip(action[0], -1, 1), state[1] + 1
        bad = x < -1
        reward = jnp.where(bad & (self.fault == "reward"), jnp.nan, x)
        reward = jnp.where(state[0] >= 2, jnp.nan, reward)  # nobody should look after the end
        seen = jnp.where(bad & (self.fault == "observation"), jnp.nan, x)
        return jnp.stack([x, steps]), jnp.stack([seen, steps]), reward, x >= 2, False
