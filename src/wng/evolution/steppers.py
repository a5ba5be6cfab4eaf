"""Evaluators of environments outside JAX, stepped together by one call of the policies."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wng import envs
from wng.envs.envpool import EnvPoolEpisodes
from wng.envs.moments import Moments
from wng.envs.mujoco_batch import MujocoBatch
from wng.envs.resolve import ResolvedEnv
from wng.envs.worker import episode_seed
from wng.evolution.episodes import Episodes, Rollout, Rows, Setup, episodes_key, summarize
from wng.evolution.members import LANES, map_rows

Stepped = tuple[np.ndarray, np.ndarray, np.ndarray]  # next observations, rewards, episode is over


class Stepper(NamedTuple):
    """Environments of a population that take a step together."""

    reset: Callable[[int], np.ndarray]  # starts the episodes of a generation
    step: Callable[[np.ndarray], Stepped]
    close: Callable[[], None]


class SteppedEvaluator:
    """Runs episodes in a `Stepper`."""

    def __init__(self, backend: str, stepper: Stepper, rows: Rows, setup: Setup, seed: int):
        self.backend, self._stepper, self._rows, self._setup = backend, stepper, rows, setup
        self._key = episodes_key(seed)
        (self._layers, self._choose, self._act, self._noise, self._summarize) = _compiled(
            setup.shape
        )

    def __call__(self, members: Any, moments: Moments | None, generation: int) -> Episodes:
        """Run one episode of each member; leaves of `members` have a leading axis."""
        rows, horizon = self._rows, self._setup.horizon
        layers = self._layers(members)
        drawn = self._noise(jax.random.fold_in(self._key, generation), rows)
        noise = np.asarray(drawn) * np.float32(self._setup.action_noise)
        if rows.center in rows.members:
            noise[rows.center - rows.first] = 0
        noise = np.ascontiguousarray(noise.swapaxes(0, 1))
        observations = self._stepper.reset(generation)
        shape = (horizon, rows.number)
        wide = shape if self._setup.policy.discrete else (*shape, noise.shape[2])
        seen = np.zeros((*shape, observations.shape[1]), np.float32)
        actions, rewards = np.zeros(wide, np.float32), np.zeros(shape, np.float32)
        mask, alive = np.zeros(shape, bool), np.ones(rows.number, bool)
        broken = ~np.isfinite(observations).all(axis=1)
        acting, policies = np.arange(rows.number), layers  # the members that take actions
        for t in range(horizon):
            if (fewer := halved(len(acting), int(alive.sum()))) < len(acting):
                acting = np.resize(np.flatnonzero(alive), fewer)
                policies = self._choose(layers, acting)
            # A non-finite observation ends the episode and makes its return non-finite; no
            # policy sees it.
            known = np.where(np.isfinite(observations), observations, 0)
            taken = self._act(moments, policies, known[acting], noise[t][acting])
            action = np.zeros((rows.number, *taken.shape[1:]), taken.dtype)
            action[acting] = taken
            observations, reward, over = self._stepper.step(action)
            broken |= ~np.isfinite(observations).all(axis=1)
            with np.errstate(over="ignore"):  # a reward beyond float32 becomes infinite
                rewards[t] = np.where(broken, np.nan, reward)
            mask[t], seen[t], actions[t] = alive, observations, action
            alive &= ~over & ~broken
            if not alive.any():
                break
        columns = (jnp.asarray(x.swapaxes(0, 1)) for x in (seen, actions, rewards, mask))
        found = Episodes(*jax.device_get(self._summarize(Rollout(*columns))), path=seen[:, -1])
        return found._replace(path=found.path[: found.lengths[-1]])

    def close(self) -> None:
        """Stop the environments."""
        self._stepper.close()


def halved(width: int, going: int) -> int:
    """Halve a number of members while those whose episodes go on fit in, to not less than `LANES`.

    Programs are compiled for each width, so there are only a few.
    """
    while going <= width // 2 and width // 2 >= LANES:
        width //= 2
    return width


@lru_cache(maxsize=8)
def _compiled(setup: Setup) -> tuple[Any, ...]:
    def act(moments: Moments | None, *rows: Any) -> Any:
        return map_rows(lambda layers, *more: setup.act(layers, moments, *more))(*rows)

    return (
        jax.jit(map_rows(setup.policy.layers)),
        jax.jit(lambda layers, chosen: jax.tree.map(lambda x: x[chosen], layers)),
        jax.jit(act),
        jax.jit(lambda key, rows: map_rows(setup.draw_noise)(rows.keys(key)), static_argnums=1),
        jax.jit(partial(summarize, setup)),
    )


def gym_stepper(found: ResolvedEnv, rows: Rows, seed: int, backend: Any) -> Stepper:
    """Make a copy of a Gymnasium environment for each member; it waits once its episode is over."""
    env: Any = envs.make(found, rows.number, seed, backend, offset=rows.first, once=True)

    def step(actions: np.ndarray) -> Stepped:
        after = env.step(actions)
        return after.final_observations, after.rewards, after.terminated | after.truncated

    return Stepper(env.reset, step, env.close)


def batch_stepper(batch: MujocoBatch | EnvPoolEpisodes, rows: Rows, seed: int) -> Stepper:
    """Step a batch of environments, which takes a seed for each episode, on all cores."""

    def reset(generation: int) -> np.ndarray:
        return batch.reset([episode_seed(seed, member, generation) for member in rows.members])

    return Stepper(reset, batch.step, batch.close)
