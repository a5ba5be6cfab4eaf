"""Environments that are odd in one way each. Registered on import, as a user's would be."""

import os

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete


class Plain(gymnasium.Env):
    observation_space = Box(-10, 10, (1,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def observe(self):
        return np.zeros(self.observation_space.shape, np.float32)

    def step(self, action):
        self.steps += 1
        return self.observe(), 1.0, False, False, {}


class DictObservations(Plain):
    observation_space = Dict({"a": Box(-1, 1, (2,)), "b": Discrete(3)})


class ManyActions(Plain):
    action_space = MultiDiscrete([2, 3])


class Shaped(Plain):
    """Observation [2, 2] holds the action [2, 1] as received, and what type it had."""

    observation_space = Box(-10, 10, (2, 2), np.float64)
    action_space = Box(np.array([[-0.1], [-5]]), np.array([[0.1], [5]]), dtype=np.float64)

    def step(self, action):
        assert action.shape == (2, 1)
        assert action.dtype == np.float64
        assert self.action_space.contains(action)
        _, *rest = super().step(action)
        return np.concatenate([action, action], axis=1), *rest


class StartsAtFive(Plain):
    action_space = Discrete(3, start=5)

    def step(self, action):
        assert self.action_space.contains(action)
        observation, _, *rest = super().step(action)
        return observation, float(action), *rest


class Fails(Plain):
    def step(self, action):
        if self.steps == 2 and action[0] > 0.5:
            raise ArithmeticError("bad luck")
        return super().step(action)


class Exits(Plain):
    def step(self, action):
        if action[0] > 0.5:
            os._exit(3)
        return super().step(action)


class Unrepeatable(Plain):
    def observe(self):
        return np.frombuffer(os.urandom(2), np.uint16).astype(np.float32)[:1]


class NotFinite(Plain):
    observation_space = Box(-np.inf, np.inf, (2,), np.float64)

    def observe(self):
        return np.array([np.nan, 1e300])

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, np.inf, *rest


class EndsBothWays(Plain):
    def step(self, action):
        self.steps += 1
        return np.ones(1, np.float32), 2.0, self.steps == 3, self.steps == 3, {}


for env in (
    DictObservations, ManyActions, Shaped, StartsAtFive, Fails, Exits, NotFinite, EndsBothWays,
    Unrepeatable,
):  # fmt: skip
    gymnasium.register(f"{env.__name__}-v0", entry_point=f"custom_envs:{env.__name__}")
gymnasium.register("Class-v0", entry_point=EndsBothWays)
gymnasium.register("Lambda-v0", entry_point=lambda: EndsBothWays())
gymnasium.register("Admitted-v0", entry_point=Unrepeatable, nondeterministic=True)
gymnasium.register("Broken-v0", entry_point="custom_envs:NoSuchClass")
