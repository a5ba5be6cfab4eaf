"""A rollout of the environments as arrays, and the batch that the learner uses."""

from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float

from wng.policy_gradient.behaviors import Windows
from wng.policy_gradient.networks import Distribution


class Rollout(NamedTuple):
    """T steps of n environments: [T, n, ...]."""

    observations: Any
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    next_observations: Any  # true successors, also where an episode ended


class Batch(NamedTuple):
    """The steps of a rollout as rows, [N, ...]."""

    observations: Array
    actions: Array
    log_probs: Float[Array, " N"]  # under π_k, the policy that collected the batch
    policy: Distribution  # π_k
    advantages: Float[Array, " N"]
    targets: Float[Array, " N"]  # for the value function

    def take(self, index: Array) -> "Batch":
        """The rows with the given indices."""
        return jax.tree.map(lambda x: x[index], self)

    def standardized(self) -> "Batch":
        """The batch with advantages of mean 0 and standard deviation 1.

        A spread far below that of returns is noise, and stays small.
        """
        centered = self.advantages - self.advantages.mean()
        return self._replace(advantages=centered / (self.advantages.std() + 1e-3))


class Data(NamedTuple):
    """Everything that a step uses."""

    batch: Batch
    windows: Windows  # stretches of the rollout that behaviors are taken from
    prepared: Any  # what the proximity prepared for this batch
    weight: Float[Array, ""]  # weight β of the proximity's penalty
