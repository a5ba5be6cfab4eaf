"""Whole episodes of a policy, in environments of their own."""

from collections.abc import Callable

import numpy as np

from wng.envs.base import VectorEnv
from wng.envs.make import make

LONGEST_EPISODE = 30_000  # steps after which an episode without a time limit is cut

Act = Callable[[np.ndarray], np.ndarray]  # observations [n, d] to actions, as `VectorEnv` has them


def episode_returns(
    env_id: str, make_act: Callable[[int], Act], episodes: int, seed: int, limit: int | None = None
) -> np.ndarray:
    """Returns of whole episodes; one without a time limit is cut after 30,000 steps.

    Args:
      env_id: a Gymnasium id.
      make_act: the policy, made for each batch of episodes with the seed of that batch.
      episodes: how many.
      seed: of the first batch.
      limit: most steps of an episode, if fewer than the environment's own.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}.")
    returns: list[float] = []
    while len(returns) < episodes:
        number, batch_seed = min(10, episodes - len(returns)), seed + len(returns)
        env = make(env_id, number, batch_seed, "gymnasium")
        try:
            returns += first_returns(env, make_act(batch_seed), limit)
        finally:
            env.close()
    return np.array(returns)


def first_returns(env: VectorEnv, act: Act, limit: int | None = None) -> list[float]:
    """The return of the first episode of each environment, short or long."""
    observations = env.reset()
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
    """One observation or several, flat or in the environment's own shape, as rows [n, size].

    Also whether there were several; [1, size] is a batch of one.
    """
    x = np.asarray(observation, np.float32)
    batch = x.ndim > 1 and int(np.prod(x.shape[1:])) == size
    if not batch and x.size != size:
        raise ValueError(
            f"an observation of {env_id} has {size} numbers, got an array of shape {list(x.shape)}."
        )
    return x.reshape(-1, size), batch
