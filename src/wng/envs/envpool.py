"""Environments of EnvPool, which steps them in C++ threads."""

import os
import warnings
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float32
from numpy.typing import ArrayLike

from wng.envs.base import EnvSpec, EnvState, Ledger, Transition, check_whole
from wng.envs.lookup import describe, nearest
from wng.envs.workers import available_cores


def known_to_envpool(env_id: str) -> bool:
    """Whether EnvPool is installed and has the environment."""
    try:
        return env_id in _module().list_all_envs()
    except ImportError:
        return False


def describe_envpool(env_id: str) -> EnvSpec:
    """The `EnvSpec` of an environment of EnvPool, with Gymnasium's time limit where it has one."""
    try:
        pool = _module()
    except ImportError:
        raise ValueError(
            "EnvPool is not installed: pip install 'wng[envpool]', or leave the backend 'auto'."
        ) from None
    if env_id not in pool.list_all_envs():
        near = nearest(env_id, pool.list_all_envs())
        hint = f"did you mean {near!r}" if near else "use backend='gymnasium'"
        raise ValueError(f"EnvPool has no environment {env_id!r}: {hint}?")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bounds rounded to float32
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


def same_task(a: EnvSpec, b: EnvSpec) -> bool:
    """Whether two specs agree in what an agent sees and does, and for how long."""
    return (
        a.observation_size == b.observation_size
        and a.discrete == b.discrete
        and a.action_size == b.action_size
        and a.max_episode_steps == b.max_episode_steps
        and np.allclose(a.action_low, b.action_low)
        and np.allclose(a.action_high, b.action_high)
    )


class EnvPoolVectorEnv:
    """A `VectorEnv` on EnvPool.

    EnvPool goes on drawing from one random stream in each environment: an episode cannot be begun
    again, so `restore` starts fresh ones, in streams that no part of the run has used.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, seed: int) -> None:
        self.spec, self.num_envs = spec, num_envs
        self._seed, self._ledger = seed, Ledger(spec, num_envs)
        self._limit = spec.max_episode_steps or np.iinfo(np.int32).max - 1
        self._whole = True  # no step has been interrupted
        self._make(0)

    def _make(self, episodes: int) -> None:
        # EnvPool gives environment i the seed `seed + i`: neighbouring seeds would share most
        # environments, so they are scattered first.
        seed = np.random.SeedSequence([self._seed, episodes]).generate_state(1)[0] >> 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._pool: Any = _module().make_gymnasium(
                self.spec.id,
                num_envs=self.num_envs,
                seed=int(seed),
                # One of several seeds at once is told to keep to one; results are the same.
                num_threads=int(os.environ.get("WNG_THREADS", available_cores())),
                # EnvPool reports an episode that terminates at its last step as truncated. With
                # one step to spare it does not, and the limit is applied here.
                max_episode_steps=self._limit + 1,
            )
            _ = self._pool.observation_space  # made, and warned about, when first asked for

    def _renew(self) -> None:
        self._pool.close()
        self._make(int(self._ledger.episodes.sum()) + self.num_envs)
        self._whole = True

    def reset(self) -> Float32[np.ndarray, "n d"]:
        """Begin the next episode everywhere (the first one at the first call)."""
        self._check_open()
        if not self._whole:  # some environments may be under way
            self._renew()
        observations = self._flat(self._pool.reset()[0])
        self._ledger.begin(self._ledger.episodes + 1, observations)
        return observations.copy()

    def step(self, actions: ArrayLike) -> Transition:
        """Step all environments; where an episode ends, begin the next one in the same call."""
        self._check_open()
        taken = self._ledger.read(actions)
        if not self._whole:
            check_whole(self.spec)
        self._whole = False
        found, rewards, terminated, _, _ = self._pool.step(self._ledger.to_env(taken))
        final = self._flat(found)
        truncated = self._ledger.steps + 1 >= self._limit
        observations = final.copy()
        ended = np.flatnonzero(terminated | truncated).astype(np.int32)
        if ended.size:  # EnvPool would begin the next episode a step later
            found, info = self._pool.reset(ended)
            observations[info["env_id"]] = self._flat(found)
        rewards = rewards.astype(np.float64)
        transition = self._ledger.record(
            taken, observations, final, rewards, np.array(terminated), truncated
        )
        self._whole = True
        return transition

    def state(self) -> EnvState:
        """Numbers, lengths and returns of the unfinished episodes; no actions."""
        return self._ledger.state()

    def restore(self, state: EnvState) -> Float32[np.ndarray, "n d"]:
        """Begin fresh episodes, which follow those of `state`."""
        self._check_open()
        self._ledger.restore(state)
        self._renew()
        return self.reset()

    def close(self) -> None:
        """Free the threads; harmless when repeated."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None

    def _check_open(self) -> None:
        if self._pool is None:
            raise RuntimeError(f"the environments of {self.spec.id!r} have been closed.")

    @staticmethod
    def _flat(observations: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return observations.reshape(len(observations), -1).astype(np.float32)


def _module() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import envpool
    return envpool
