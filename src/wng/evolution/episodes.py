"""Episodes of members: how they are run, what is recorded, what is kept of them.

Episodes are those of the members of a generation and, last, of the policy at the center without
noise on its actions, which shows the progress of the run; or of some of these. What a member meets
follows from (seed, generation, member) alone, so results depend neither on the other members nor
on the number of threads, workers or machines.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from wng.behavior.embedding import Embedding, Trajectory
from wng.envs.moments import Moments
from wng.evolution.policies import Layer, Policy

EPISODES = 0  # purpose of the keys here; those of strategy and policy have others


class Setup(NamedTuple):
    """How episodes are run."""

    policy: Policy
    embedding: Embedding
    horizon: int
    action_noise: float  # its standard deviation
    normalize: bool = False  # observations

    def act(
        self,
        layers: list[Layer],
        moments: Moments | None,
        observation: Float[Array, " d"],
        noise: Float[Array, " a"],
    ) -> Array:
        """Choose the action in a state, normalized by `moments` if there are any."""
        seen = observation if moments is None else moments.normalize(observation)
        return self.policy.act(layers, seen, noise)

    @property
    def shape(self) -> "Setup":
        """What programs are compiled for; the size of the noise is an argument."""
        return self._replace(action_noise=1.0)

    def draw_noise(self, key: PRNGKeyArray) -> Float[Array, "H a"]:
        """Draw the noise on the actions of an episode, in units of `action_noise`."""
        return jax.random.normal(key, (self.horizon, self.policy.action_size))


class Rows(NamedTuple):
    """Numbers of the members that are run; the one numbered `center` has no action noise."""

    first: int
    number: int
    center: int

    @property
    def members(self) -> range:
        """The numbers."""
        return range(self.first, self.first + self.number)

    def array(self) -> Int[Array, " n"]:
        """Make an array of the numbers, inside the compiled function that needs it."""
        return self.first + jnp.arange(self.number)

    def keys(self, key: PRNGKeyArray) -> PRNGKeyArray:
        """Derive a key for each member."""
        return jax.vmap(lambda n: jax.random.fold_in(key, n))(self.array())


class Rollout(NamedTuple):
    """Episodes of n members, padded to the horizon; `mask` marks the steps that took place."""

    observations: Float[Array, "n H d"]  # after each step
    actions: Float[Array, "n H a"]
    rewards: Float[Array, "n H"]
    mask: Bool[Array, "n H"]


class Episodes(NamedTuple):
    """Outcome of the episodes, one row for each member; the center comes last."""

    returns: Float[np.ndarray, " n"]
    behaviors: Float[np.ndarray, "n b"]
    lengths: Float[np.ndarray, " n"]
    final_observations: Float[np.ndarray, "n d"]
    means: Float[np.ndarray, "n d"]  # of the observations; d = 0 if they are not normalized
    variances: Float[np.ndarray, "n d"]
    path: Float[np.ndarray, "steps d"]  # observations of the last member, after each step


def episodes_key(seed: int) -> PRNGKeyArray:
    """Derive the key of a run's episodes."""
    return jax.random.fold_in(jax.random.key(seed), EPISODES)


def summarize(setup: Setup, rollout: Rollout) -> tuple[Array, ...]:
    """Compute all fields of `Episodes` but the path.

    After the end of an episode an embedding sees its last observation, and zeros.
    """
    n, horizon = rollout.mask.shape
    lengths = rollout.mask.sum(axis=1)
    final = rollout.observations[jnp.arange(n), jnp.maximum(lengths - 1, 0)]
    taken, actions = rollout.actions, setup.policy.action_size
    if setup.policy.discrete:
        taken = jax.nn.one_hot(taken.astype(int), actions)
    steps = rollout.mask[..., None]
    observations = jnp.where(steps, rollout.observations, final[:, None])
    trajectories = Trajectory(
        observations=observations,
        next_observations=observations,  # here, both are what a step led to
        actions=jnp.where(steps, taken, 0),
        resampled=jnp.zeros((n, horizon, 0, actions)),
        values=jnp.zeros((n, horizon)),
        rewards=jnp.where(rollout.mask, rollout.rewards, 0),
        mask=rollout.mask.astype(rollout.rewards.dtype),
    )
    # One after the other: the rounding of a sum over a batch depends on the size of the batch.
    returns, behaviors, means, variances = jax.lax.map(
        lambda t: (t.rewards.sum(), jnp.ravel(setup.embedding.fn(t)), *_moments(setup, t)),
        trajectories,
    )
    return returns, behaviors, lengths, final, means, variances


def _moments(setup: Setup, trajectory: Trajectory) -> tuple[Array, Array]:
    """Compute mean and variance of the observations of one episode."""
    x = trajectory.observations[:, : None if setup.normalize else 0]
    weights = trajectory.mask / jnp.maximum(trajectory.mask.sum(), 1)
    mean = weights @ x
    return mean, weights @ (x - mean) ** 2


def behavior_size(setup: Setup) -> int:
    """Compute d, the length of a behavior."""
    policy, shape = setup.policy, (1, setup.horizon)
    rollout = Rollout(
        jnp.zeros((*shape, policy.observation_size)),
        jnp.zeros(shape if policy.discrete else (*shape, policy.action_size)),
        jnp.zeros(shape),
        jnp.ones(shape, bool),
    )
    return jax.eval_shape(partial(summarize, setup), rollout)[1].shape[1]
