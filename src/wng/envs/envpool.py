"""Vector environments on EnvPool, which steps them in C++ threads."""

import os
import warnings
from operator import attrgetter
from typing import Any

import gymnasium
import numpy as np

from wng.envs.base import EnvSpec
from wng.envs.lookup import describe, nearest
from wng.envs.worker import Buffers
from wng.envs.workers import available_cores


def known_to_envpool(env_id: str) -> bool:
    """Tell whether EnvPool is installed and has the environment."""
    try:
        return env_id in _module().list_all_envs()
    except ImportError:
        return False


def describe_envpool(env_id: str) -> EnvSpec:
    """Describe an EnvPool environment, with Gymnasium's time limit if it has one."""
    try:
        pool = _module()
    except ImportError:
        raise ValueError(
            "EnvPool is not installed: pip install 'wng[envpool]', or use backend='auto'."
        ) from None
    if env_id not in pool.list_all_envs():
        near = nearest(env_id, pool.list_all_envs())
        hint = f"did you mean {near!r}" if near else "use backend='gymnasium'"
        raise ValueError(f"EnvPool has no environment {env_id!r}: {hint}?")
    with warnings.catch_warnings(action="ignore"):  # about bounds rounded to float32
        spec = pool.make_spec(env_id)
        gym_spec = gymnasium.registry.get(env_id)
        limit = gym_spec.max_episode_steps if gym_spec is not None else None
        return describe(
            env_id,
            "envpool",
            spec.gymnasium_observation_space,
            spec.gymnasium_action_space,
            replayable=False,
            max_episode_steps=limit or int(spec.config.max_episode_steps),
        )


def same_in_envpool(spec: EnvSpec) -> bool:
    """Tell whether EnvPool has this task: the same observations, actions and time limit."""
    if not known_to_envpool(spec.id):
        return False
    pooled = describe_envpool(spec.id)
    exact = attrgetter("observation_size", "discrete", "action_size", "max_episode_steps")
    bounds = (spec.action_low, pooled.action_low), (spec.action_high, pooled.action_high)
    return exact(spec) == exact(pooled) and all(np.allclose(*pair) for pair in bounds)


class EnvPoolRunner:
    """Runs the environments in EnvPool's threads.

    EnvPool seeds each environment once, not each episode, so an episode cannot be repeated.
    'restore' starts new episodes from a seed that the run has not used before.
    """

    def __init__(
        self,
        spec: EnvSpec,
        gym_spec: Any,
        num_envs: int,
        seed: int,
        offset: int = 0,
        once: bool = False,
    ) -> None:
        self.buffers = Buffers.local(spec, num_envs)
        self._id, self._num_envs, self._seed = spec.id, num_envs, seed
        self._limit = _limit(spec)
        self._steps = np.zeros(num_envs, np.int64)
        self._whole = True  # no step has been interrupted
        self._pool = self._make(0)

    def _make(self, episodes: int) -> Any:
        # EnvPool seeds environment i with `seed + i`: adjacent seeds would share most
        # environments, so hash them first.
        seed = np.random.SeedSequence([self._seed, episodes]).generate_state(1)[0] >> 2
        return _pool(self._id, self._num_envs, int(seed), self._limit)

    def run(self, command: str, *arrays: np.ndarray) -> None:
        """Run 'reset', 'step' or 'restore'; 'restore' does not replay but starts new episodes."""
        if command == "step":
            self._step()
            return
        if command == "restore" or not self._whole:  # some environments may still be stepping
            self._pool.close()
            self._pool = self._make(int(self.buffers.episodes.sum()))
        self.buffers.observations[:] = _flat(self._pool.reset()[0])
        self._steps[:], self._whole = 0, True

    def _step(self) -> None:
        b, self._whole = self.buffers, False
        found, b.rewards[:], b.terminated[:], _, _ = self._pool.step(b.actions)
        b.observations[:] = b.final_observations[:] = _flat(found)
        self._steps += 1
        np.greater_equal(self._steps, self._limit, out=b.truncated)
        ended = np.flatnonzero(b.terminated | b.truncated).astype(np.int32)
        if ended.size:  # EnvPool would reset them one step later
            found, info = self._pool.reset(ended)
            b.observations[info["env_id"]] = _flat(found)
        self._steps[ended], self._whole = 0, True

    def close(self) -> None:
        """Free the threads."""
        self._pool.close()


class EnvPoolEpisodes:
    """One episode in each environment, with its own seed; then the environment waits.

    EnvPool seeds an environment when it is made, so `reset` recreates all of them. That takes a
    few milliseconds for each, or a few percent of an episode of a thousand MuJoCo steps.
    """

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        self._spec, self._limit, self._pool = spec, _limit(spec), None
        self._observations = np.zeros((num_envs, spec.observation_size), np.float32)

    def reset(self, seeds: list[int]) -> np.ndarray:
        """Start the episodes."""
        self.close()
        number = len(self._observations)
        self._pool = _pool(self._spec.id, number, [seed >> 2 for seed in seeds], self._limit)
        found, info = self._pool.reset()
        self._observations[info["env_id"]] = _flat(found)
        self._steps, self._going = 0, np.ones(number, bool)
        return self._observations.copy()

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Apply actions [n, a] (or [n]). Returns observations, rewards, and which are over."""
        assert self._pool is not None
        going = np.flatnonzero(self._going).astype(np.int32)
        rewards = np.zeros(len(self._going))
        self._steps += 1
        if going.size:
            found = self._pool.step(self._spec.as_taken(actions)[going], going)
            observations, reward, terminated, _, info = found
            moved = info["env_id"]
            self._observations[moved], rewards[moved] = _flat(observations), reward
            self._going[moved] = ~terminated & (self._steps < self._limit)
        return self._observations.copy(), rewards, ~self._going

    def close(self) -> None:
        """Free the threads."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None


def _limit(spec: EnvSpec) -> int:
    return spec.max_episode_steps or np.iinfo(np.int32).max - 1


def _pool(env_id: str, num_envs: int, seed: int | list[int], limit: int) -> Any:
    with warnings.catch_warnings(action="ignore"):
        pool = _module().make_gymnasium(
            env_id,
            num_envs=num_envs,
            seed=seed,
            # Runs of several seeds in parallel set WNG_THREADS; results do not depend on it.
            num_threads=int(os.environ.get("WNG_THREADS", available_cores())),
            # EnvPool reports a termination at the time limit as a truncation. So give it one
            # step more; the callers apply the limit.
            max_episode_steps=limit + 1,
        )
        _ = pool.observation_space  # created on first access, with warnings
    return pool


def _flat(observations: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return observations.reshape(len(observations), -1).astype(np.float32)


def _module() -> Any:
    with warnings.catch_warnings(action="ignore"):
        import envpool
    return envpool
