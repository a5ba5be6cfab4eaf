"""JAX environments of one's own, named as `jax_tasks:name`."""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete


class Walk:
    """Steps of ±1 from 0 that miss at random; reward 1 at 3, where it terminates. Draws itself."""

    observation_space = Box(-10, 10, (2, 1), np.float32)
    action_space = Discrete(2, start=1)  # 1 is left, 2 is right
    max_episode_steps = 7

    def reset(self, key):
        return {"x": 0, "key": key, "moved": 0.0}, jnp.zeros((2, 1))

    def step(self, key, state, action):
        x = state["x"] + jnp.where(jax.random.uniform(key) < 0.1, 0, 2 * action - 3)
        seen = jnp.full((2, 1), x, float)
        state.update(x=x, key=key, moved=1.0)  # in place, as environments of brax do
        return state, seen, x == 3, x == 3, False

    def render(self, state):
        return np.full((16, 16, 3), 20 * int(state["x"]) + 100, np.uint8)


class Push:
    """The reward is the action as it arrives, which must be clipped; faulty from step `bad` on."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Box(np.array([[-1.0, -0.5]]), np.array([[1.0, 0.5]]), dtype=np.float64)
    max_episode_steps = None

    def __init__(self, bad=2**30):
        self.bad = bad

    def reset(self, key):
        return jnp.zeros((), int), jnp.zeros(1)

    def step(self, key, state, action):
        state = state + 1
        reward = jnp.where(state == self.bad, jnp.nan, action.sum())
        return state, jnp.ones(1), reward, False, state % 8 == 0


broken = Push(bad=5)


class NoSpaces:
    def reset(self, key): ...

    def step(self, key, state, action): ...


class WithArguments(Push):
    def __init__(self, bad): ...


class FourResults(Push):
    def step(self, key, state, action):
        return super().step(key, state, action)[:4]


class OtherObservation(Push):
    def step(self, key, state, action):
        state, _, *rest = super().step(key, state, action)
        return state, jnp.zeros(3), *rest


class OtherState(Push):
    def step(self, key, state, action):
        state, *rest = super().step(key, state, action)
        return jnp.stack([state, state]), *rest


class TwoRewards(Push):
    def step(self, key, state, action):
        state, seen, reward, *rest = super().step(key, state, action)
        return state, seen, jnp.stack([reward, reward]), *rest


class Branching(Push):
    def step(self, key, state, action):
        return super().step(key, state, action if action.sum() > 0 else -action)


class NumberOfActions(Push):
    action_space = 3


class ShapeOfObservations(Push):
    observation_space = (1,)


class Gray(Push):
    def render(self, state):
        return np.zeros((16, 16), np.uint8)


class Unhashable(Push):
    __hash__ = None  # type: ignore[assignment]
