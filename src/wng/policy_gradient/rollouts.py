"""Iterations in environments outside JAX: one policy call and one vector step at a time."""

import time
from typing import Any, NamedTuple

import numpy as np

from wng import envs
from wng.policy_gradient.batch import Rollout
from wng.policy_gradient.learner import Learner, TrainState
from wng.runs.training import NonFiniteError
from wng.runs.trees import check_kinds

LARGEST = float(np.finfo(np.float32).max)


class Ended(NamedTuple):
    """Returns and lengths of the episodes that ended in a rollout."""

    returns: list[float]
    lengths: list[int]


class Iteration(NamedTuple):
    """What one iteration leaves behind."""

    state: TrainState
    env: Any  # where the environments stand
    metrics: dict[str, Any]
    ended: Ended
    seconds_env: float  # NaN where it cannot be told from the rest
    seconds_policy: float


class SteppedRollouts:
    """A vector environment, stepped from Python. Where it stands is an `EnvState`."""

    def __init__(self, env: envs.VectorEnv, learner: Learner):
        self.env, self._learner = env, learner
        self.backend = env.spec.backend
        self._observations = env.reset()
        # The environments stand there; None while, or after, a rollout was interrupted.
        self._at: envs.EnvState | None = env.state()

    def start(self) -> envs.EnvState:
        """Where the environments stand before the first iteration."""
        return self.env.state() if self._at is None else self._at

    def iterate(
        self, state: TrainState, at: envs.EnvState, keys: tuple[Any, Any], start: int
    ) -> Iteration:
        """A rollout and an update, with a key for each. Errors count steps from `start`."""
        key_actions, key_update = keys
        began = time.perf_counter()
        state, at, _ = self.go_to(state, at)
        rollout, after, ended, seconds = self._collect(state, key_actions, start)
        collected = time.perf_counter()
        state, metrics = self._learner.update(state, rollout, key_update)
        return Iteration(state, after, metrics, ended, seconds, collected - began - seconds)

    def collect(
        self, state: TrainState, at: envs.EnvState, key: Any, start: int
    ) -> tuple[Rollout, envs.EnvState]:
        """A rollout without learning, and where the environments stand after it."""
        state, at, _ = self.go_to(state, at)
        rollout, after, *_ = self._collect(state, key, start)
        return rollout, after

    def go_to(
        self, state: TrainState, at: envs.EnvState
    ) -> tuple[TrainState, envs.EnvState, str | None]:
        """Take the environments to where they stood; a sentence if episodes had to start over."""
        if at is self._at:
            return state, at, None
        env, self._at = self.env, None
        why = f"{env.spec.id} on {env.spec.backend} cannot be replayed."
        fresh = not env.spec.replayable
        try:
            self._observations = env.restore(at)
        except envs.ReplayError as error:
            self._observations, fresh, why = env.reset(), True, str(error)
        self._at = at = env.state()
        if not fresh:
            return state, at, None
        note = (
            f"{why} Unfinished episodes start over: the run will differ from an uninterrupted one."
        )
        return state._replace(discounted=state.discounted * 0), at, note

    def save(self, at: envs.EnvState) -> dict[str, np.ndarray]:
        """Where the environments stand, as named arrays."""
        return at._asdict()

    def load(self, arrays: dict[str, np.ndarray]) -> envs.EnvState:
        """The inverse of `save`; names and types must match, lengths may differ."""
        check_kinds(arrays, self.start()._asdict())
        return envs.EnvState(**arrays)

    def close(self) -> None:
        """Stop the environments."""
        self.env.close()

    def _collect(
        self, state: TrainState, key: Any, start: int
    ) -> tuple[Rollout, envs.EnvState, Ended, float]:
        env, learner, self._at = self.env, self._learner, None
        spec, number, observations = env.spec, env.num_envs, self._observations
        steps = learner.config.rollout // number
        act, noise = learner.actor(state), np.asarray(learner.noise(key))
        shape = (steps, number, spec.observation_size)
        seen, successors = np.empty(shape, np.float32), np.empty(shape, np.float32)
        if spec.discrete:
            actions = np.empty((steps, number), np.int32)
        else:
            actions = np.empty((steps, number, spec.action_size), np.float32)
        rewards = np.empty((steps, number), np.float32)
        terminated, truncated = np.empty((2, steps, number), bool)
        ended = Ended([], [])
        seconds = 0.0
        _check_finite(spec.id, start, np.zeros(number), observations)
        for t in range(steps):
            seen[t] = observations
            actions[t] = act(observations, noise[t])
            before = time.perf_counter()
            result = env.step(actions[t])
            seconds += time.perf_counter() - before
            seen_now = result.observations, result.final_observations
            _check_finite(spec.id, start + t * number, result.rewards, *seen_now)
            rewards[t], terminated[t], truncated[t] = (
                result.rewards,
                result.terminated,
                result.truncated,
            )
            successors[t], observations = result.final_observations, result.observations
            over = result.terminated | result.truncated
            if over.any():
                ended.returns.extend(result.episode_returns[over].tolist())
                ended.lengths.extend(result.episode_lengths[over].tolist())
        rollout = Rollout(seen, actions, rewards, terminated, truncated, successors)
        after = env.state()
        # One statement without a call: an interrupt cannot come between its parts.
        self._observations, self._at = observations, after
        return rollout, after, ended, seconds


def not_finite(env_id: str, index: int, what: str, step: int) -> NonFiniteError:
    """What to raise before the policy acts on, or learns from, what is not finite in float32."""
    return NonFiniteError(
        f"environment {index} of {env_id} returned {what} that is not finite at step {step}: "
        "training stopped before learning from it; fix the environment and resume from the last "
        "checkpoint."
    )


def _check_finite(env_id: str, start: int, rewards: np.ndarray, *seen: np.ndarray) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        total = sum(x.sum() for x in seen)
    # A sum is finite only if all terms are; if it is not, look closer.
    if np.isfinite(total) and np.abs(rewards).max() <= LARGEST:
        return
    bad_reward = ~(np.abs(rewards) <= LARGEST)
    bad = bad_reward | ~np.isfinite(seen).all(axis=(0, 2))
    if bad.any():
        index = int(np.argmax(bad))
        what = "a reward" if bad_reward[index] else "an observation"
        raise not_finite(env_id, index, what, start + index)
