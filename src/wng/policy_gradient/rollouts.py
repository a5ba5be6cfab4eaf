"""Collecting rollouts: one policy call and one vector step at a time."""

import time
from typing import NamedTuple

import jax
import numpy as np

from wng import envs
from wng.policy_gradient.batch import Rollout
from wng.policy_gradient.learner import Learner, TrainState
from wng.runs.training import NonFiniteError

LARGEST = float(np.finfo(np.float32).max)


class Collected(NamedTuple):
    """A rollout, the episodes that ended in it, and the time that environments took."""

    rollout: Rollout
    observations: np.ndarray  # to act on next
    returns: list[float]
    lengths: list[int]
    env_seconds: float


def collect(
    env: envs.VectorEnv,
    learner: Learner,
    state: TrainState,
    observations: np.ndarray,
    key: jax.Array,
    start: int,
) -> Collected:
    """One rollout with the policy of `state`, from the present `observations` of the environments.

    Errors count steps from `start`.
    """
    spec, number = env.spec, env.num_envs
    steps = learner.config.rollout // number
    noise = np.asarray(learner.noise(key))
    shape = (steps, number, spec.observation_size)
    seen, successors = np.empty(shape, np.float32), np.empty(shape, np.float32)
    if spec.discrete:
        actions = np.empty((steps, number), np.int32)
    else:
        actions = np.empty((steps, number, spec.action_size), np.float32)
    rewards = np.empty((steps, number), np.float32)
    terminated, truncated = np.empty((2, steps, number), bool)
    returns: list[float] = []
    lengths: list[int] = []
    env_seconds = 0.0
    _check_finite(spec.id, start, np.zeros(number), observations)
    for t in range(steps):
        seen[t] = observations
        actions[t] = learner.act(state.networks, state.observation_moments, observations, noise[t])
        before = time.perf_counter()
        result = env.step(actions[t])
        env_seconds += time.perf_counter() - before
        seen_now = result.observations, result.final_observations
        _check_finite(spec.id, start + t * number, result.rewards, *seen_now)
        rewards[t], terminated[t], truncated[t] = (
            result.rewards,
            result.terminated,
            result.truncated,
        )
        successors[t], observations = result.final_observations, result.observations
        ended = result.terminated | result.truncated
        if ended.any():
            returns += result.episode_returns[ended].tolist()
            lengths += result.episode_lengths[ended].tolist()
    rollout = Rollout(seen, actions, rewards, terminated, truncated, successors)
    return Collected(rollout, observations, returns, lengths, env_seconds)


def _check_finite(env_id: str, start: int, rewards: np.ndarray, *seen: np.ndarray) -> None:
    """Stop before the policy acts on, or learns from, what is not finite in float32."""
    bad_reward = ~(np.abs(rewards) <= LARGEST)
    bad = bad_reward | ~np.isfinite(seen).all(axis=(0, 2))
    if bad.any():
        index = int(np.argmax(bad))
        what = "a reward" if bad_reward[index] else "an observation"
        raise NonFiniteError(
            f"environment {index} of {env_id} returned {what} that is not finite at step "
            f"{start + index}: training stopped before learning from it; fix the environment and "
            "resume from the last checkpoint."
        )
