r"""Proximity: the global term that keeps a new policy near the one that collected the batch.

The loss on a minibatch is −E[gain] + penalty, with ρ = π_θ(a|s)/π_k(a|s):

| proximity     | gain                          | penalty                                      |
|---------------|-------------------------------|----------------------------------------------|
| `none`        | ρA                            | 0                                            |
| `clip`        | min(ρA, clip(ρ, 1±c)A)        | 0                                            |
| `kl`          | ρA                            | β KL(π_k, π_θ), β adapted   (eq. `KL_PPO`)   |
| `wasserstein` | ρA                            | (β/2) OT_γ(Φ under π_k, Φ under π_θ)         |
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from wng.behavior.distance import (
    Potentials,
    RandomFeatures,
    dual_ascent,
    dual_value,
    random_features,
    squared_distances,
)
from wng.estimator.checks import check_memory
from wng.policy_gradient.batch import Batch, Data
from wng.policy_gradient.behaviors import Windows
from wng.policy_gradient.config import Config
from wng.policy_gradient.networks import Networks
from wng.policy_gradient.problem import Problem


class Proximity:
    """No proximity term: the base class, whose methods the others override where they differ."""

    needs_behaviors = False  # whether the term depends on the embedding Φ

    def check(self, problem: Problem) -> None:
        """Raise a ValueError if this proximity does not apply to the problem."""

    def prepare(
        self, problem: Problem, networks: Networks, windows: Windows, key: PRNGKeyArray
    ) -> Any:
        """Called once per batch, with the networks that collected it: what `penalty` compares to.

        Returns:
          A pytree of arrays, or None.
        """
        return None

    def refine(self, problem: Problem, networks: Networks, prepared: Any, key: PRNGKeyArray) -> Any:
        """Called before each gradient: `prepared`, improved at the present networks."""
        return prepared

    def gain(self, config: Config, ratio: Array, advantages: Array) -> Array:
        """The surrogate of each step, to be maximized."""
        return ratio * advantages

    def penalty(self, problem: Problem, networks: Networks, data: Data, key: PRNGKeyArray) -> Array:
        """The term that is added to the loss."""
        return jnp.zeros(())

    def adapt(self, config: Config, weight: Array, kl: Array) -> Array:
        """The weight for the next batch, after one that moved the policy by `kl`."""
        return weight

    def surrogate(self, config: Config, networks: Networks, batch: Batch) -> Array:
        """−E[gain]."""
        log_ratio = networks.policy(batch.observations).log_prob(batch.actions) - batch.log_probs
        ratio = jnp.exp(jnp.clip(log_ratio, -20, 20))
        return -self.gain(config, ratio, batch.advantages).mean()

    def loss(self, problem: Problem, networks: Networks, data: Data, key: PRNGKeyArray) -> Array:
        """−E[gain] + penalty."""
        gain = self.surrogate(problem.config, networks, data.batch)
        return gain + self.penalty(problem, networks, data, key)


class Clip(Proximity):
    """PPO's clipped probability ratio."""

    def gain(self, config: Config, ratio: Array, advantages: Array) -> Array:
        """min(ρA, clip(ρ, 1±c)A)."""
        low, high = 1 - config.clip_range, 1 + config.clip_range
        return jnp.minimum(ratio * advantages, jnp.clip(ratio, low, high) * advantages)


class KLPenalty(Proximity):
    """A KL penalty whose weight follows the target."""

    def penalty(self, problem: Problem, networks: Networks, data: Data, key: PRNGKeyArray) -> Array:
        """β KL(π_k, π_θ)."""
        new = networks.policy(data.batch.observations)
        return data.weight * data.batch.policy.kl(new).mean()

    def adapt(self, config: Config, weight: Array, kl: Array) -> Array:
        """Double β after 1.5 times the target, halve it after less than the target / 1.5."""
        weight = jnp.where(kl > 1.5 * config.kl_target, 2 * weight, weight)
        weight = jnp.where(kl < config.kl_target / 1.5, weight / 2, weight)
        return jnp.clip(weight, 1e-4, 1e4)


class OldBehaviors(NamedTuple):
    """What the Wasserstein penalty compares new behaviors with."""

    windows: Windows
    samples: Float[Array, "W d"]  # Φ under π_k, with noise of its own
    features: RandomFeatures
    potentials: Potentials


class WassersteinPenalty(Proximity):
    """The behavior-guided penalty (BGPG): an entropic W₂² between old and new behaviors."""

    needs_behaviors = True

    def check(self, problem: Problem) -> None:
        """Resampled actions must be differentiable."""
        config, behaviors = problem.config, problem.behaviors
        check_memory(
            f"dual_features={config.dual_features} for dual_samples={config.dual_samples}",
            config.dual_features * config.dual_samples,
        )
        if behaviors.embedding.resamples and not behaviors.reparam:
            raise ValueError(
                f"proximity=wasserstein cannot differentiate the embedding '{config.embedding}' "
                "with discrete actions: use --embedding state-action."
            )

    def prepare(
        self, problem: Problem, networks: Networks, windows: Windows, key: PRNGKeyArray
    ) -> OldBehaviors:
        """Behaviors of the old policy, and test functions that start at zero."""
        config = problem.config
        key_pick, key_embed, key_features = jax.random.split(key, 3)
        # One set of windows per batch: the test functions carry over from minibatch to minibatch.
        picked = windows.pick(config.dual_samples, key_pick)
        samples = problem.behaviors.embed(networks, picked, key_embed)
        spread = jnp.sqrt(squared_distances(samples, samples).mean() + 1e-12)
        features = random_features(
            key_features, samples.shape[1], config.dual_features, config.dual_bandwidth * spread
        )
        zeros = jnp.zeros(config.dual_features)
        return OldBehaviors(picked, samples, features, Potentials(zeros, zeros))

    def refine(
        self, problem: Problem, networks: Networks, prepared: OldBehaviors, key: PRNGKeyArray
    ) -> OldBehaviors:
        """`dual_steps` of ascent on the test functions."""
        config = problem.config
        X = problem.behaviors.embed(networks, prepared.windows, key)
        potentials = dual_ascent(
            prepared.potentials,
            prepared.features,
            X,
            prepared.samples,
            config.dual_gamma,
            config.dual_steps,
            weights=problem.behaviors.weights(networks, prepared.windows, X),
        )
        return prepared._replace(potentials=potentials)

    def penalty(self, problem: Problem, networks: Networks, data: Data, key: PRNGKeyArray) -> Array:
        """(β/2) OT_γ with the present test functions."""
        old, gamma = data.prepared, problem.config.dual_gamma
        X = problem.behaviors.embed(networks, old.windows, key)
        importance = problem.behaviors.weights(networks, old.windows, X)
        value = dual_value(old.potentials, old.features, X, old.samples, gamma, importance)
        return data.weight / 2 * value


none, clip, kl_penalty, wasserstein_penalty = Proximity(), Clip(), KLPenalty(), WassersteinPenalty()
