"""Runs whole episodes of a policy."""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np

from wng.envs.make import make
from wng.envs.resolve import ResolvedEnv
from wng.envs.vector import VectorEnv

LONGEST_EPISODE = 30_000  # limit on the steps of an episode if the environment has none
BATCH = 10  # episodes that run at once

Act = Callable[[np.ndarray], np.ndarray]  # observations [n, d] to actions of `VectorEnv.step`


def episode_returns(
    env: str | ResolvedEnv,
    make_act: Callable[[int], Act],
    episodes: int,
    seed: int,
    limit: int | None = None,
) -> np.ndarray:
    """Run whole episodes and return the return of each.

    They run in batches; `make_act` makes the policy of a batch from the batch's seed. The `limit`
    on steps defaults to the environment's time limit, or `LONGEST_EPISODE` if it has none.
    """
    returns: list[float] = []
    for vector_env in episode_envs(env, episodes, seed):
        with contextlib.closing(vector_env):
            returns += first_returns(vector_env, make_act(seed + len(returns)), limit)
    return np.array(returns)


def episode_envs(env: str | ResolvedEnv, episodes: int, seed: int) -> Iterator[VectorEnv]:
    """Make the environments of `episodes` episodes, a batch at a time; the caller closes them."""
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}.")
    made = 0
    while made < episodes:
        number = min(BATCH, episodes - made)
        yield make(env, number, seed + made, "gymnasium")
        made += number


def first_returns(env: VectorEnv, act: Act, limit: int | None = None) -> list[float]:
    """Run the first episode of each environment, the same in every call; returns the returns."""
    observations = env.reset(0)
    returns, running = np.zeros(env.num_envs), np.ones(env.num_envs, bool)
    for _ in range(limit or env.spec.max_episode_steps or LONGEST_EPISODE):
        step = env.step(act(observations))
        observations = step.observations
        if not (np.isfinite(step.rewards).all() and np.isfinite(observations).all()):
            raise ValueError(f"{env.spec.id} returned a reward or observation that is not finite.")
        returns[running] += step.rewards[running]
        running &= step.episode_lengths == 0
        if not running.any():
            break
    return returns.tolist()


def read_observations(observation: object, env_id: str, size: int) -> tuple[np.ndarray, bool]:
    """Convert one observation or a batch, flat or in the environment's shape, to rows [n, size].

    Returns the rows, and whether the input was a batch; [1, size] is a batch of one.
    """
    x = np.asarray(observation, np.float32)
    batch = x.ndim > 1 and int(np.prod(x.shape[1:])) == size
    if not batch and x.size != size:
        raise ValueError(
            f"an observation of {env_id} has {size} numbers, got an array of shape {list(x.shape)}."
        )
    return x.reshape(-1, size), batch
