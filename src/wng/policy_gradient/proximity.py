r"""Proximity: the global term that keeps a new policy near the one that collected the batch.

The loss on a minibatch is −E[gain] + penalty, with ρ = π_θ(a|s)/π_k(a|s):

| proximity     | gain                          | penalty                                      |
|---------------|-------------------------------|----------------------------------------------|
| `none`        | ρA                            | 0                                            |
| `clip`        | min(ρA, clip(ρ, 1±c)A)        | 0                                            |
| `kl`          | ρA                            | β KL(π_k, π_θ), β adapted   (eq. 3)          |
| `wasserstein` | ρA                            | (β/2) W₂² of actions in the same states      |
"""

from collections.abc import Callable
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
from wng.behavior.embedding import find_embedding
from wng.policy_gradient.batch import Batch, Data
from wng.policy_gradient.behaviors import Windows
from wng.policy_gradient.config import Config
from wng.policy_gradient.networks import Networks
from wng.policy_gradient.problem import Problem
from wng.runs.settings import check_memory


class Proximity:
    """The base class, which has no proximity term; subclasses override the methods that differ."""

    needs_behaviors = False  # whether the term depends on the embedding Φ

    def check(self, problem: Problem) -> None:
        """Raise a ValueError if this proximity does not apply to the problem."""

    def prepare(
        self, problem: Problem, networks: Networks, windows: Windows, key: PRNGKeyArray
    ) -> Any:
        """Prepare what `penalty` compares with, once per batch, from its networks.

        Returns:
          A pytree of arrays, or None.
        """
        return None

    def refine(self, problem: Problem, networks: Networks, prepared: Any, key: PRNGKeyArray) -> Any:
        """Improve `prepared` for the current networks, before each gradient."""
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
    """What the dual of the Wasserstein penalty compares new behaviors with."""

    windows: Windows
    key: PRNGKeyArray  # noise of the old behaviors, and of the new ones
    samples: Float[Array, "C N d"]  # C clouds of N behaviors under π_k
    features: RandomFeatures
    potentials: Potentials  # of each cloud, [C, D]


class WassersteinPenalty(Proximity):
    """The behavior-guided penalty (BGPG): W₂² between old and new behaviors *in the same states*.

    Pooled over states, clouds of actions are as far apart under one policy as under two, and a
    penalty on them has no pull. So each state (or stretch of trajectory) has a separate cloud,
    drawn with the same noise under both policies. Only embeddings of outcomes, which have one
    sample per trajectory, are compared as a single cloud.
    """

    needs_behaviors = True

    def check(self, problem: Problem) -> None:
        """The closed form is that of actions."""
        config, behaviors = problem.config, problem.penalty_behaviors
        check_memory(
            f"dual_features={config.dual_features} for dual_samples={config.dual_samples}",
            config.dual_features * config.dual_samples,
        )
        exact = map(find_embedding, ("state-action", "trajectory-actions"))
        if config.penalty_form == "exact" and behaviors.embedding not in exact:
            raise ValueError(
                "penalty_form=exact is the closed form for the embeddings state-action and "
                f"trajectory-actions, and the penalty's is '{config.penalty_embedding}': use "
                "--penalty-form dual."
            )
        if config.penalty_form == "matched" and not behaviors.reparam:
            raise ValueError(
                "penalty_form=matched draws matched actions, which needs continuous actions and "
                "an embedding of actions: use --penalty-form exact or dual."
            )

    def prepare(
        self, problem: Problem, networks: Networks, windows: Windows, key: PRNGKeyArray
    ) -> OldBehaviors | None:
        """Behaviors of the old policy, and test functions that start at zero."""
        config = problem.config
        if config.penalty_form == "exact":
            return None
        key_pick, key_noise, key_features = jax.random.split(key, 3)
        # One set of windows per batch: the test functions carry over from minibatch to minibatch.
        picked = windows.pick(config.dual_samples, key_pick)
        samples = self.clouds(problem, networks, picked, key_noise)
        features = random_features(
            key_features, samples.shape[2], config.dual_features, config.dual_bandwidth
        )
        zeros = jnp.zeros((samples.shape[0], config.dual_features))
        return OldBehaviors(picked, key_noise, samples, features, Potentials(zeros, zeros))

    def clouds(
        self, problem: Problem, networks: Networks, windows: Windows, key: PRNGKeyArray
    ) -> Float[Array, "C N d"]:
        """A cloud of behaviors for each window; a single one of all windows in the score form."""
        behaviors = problem.penalty_behaviors
        if not behaviors.reparam:
            return behaviors.embed(networks, windows, key)[None]
        keys = jax.random.split(key, problem.config.dual_actions)
        draws = jax.vmap(lambda k: behaviors.embed(networks, windows, k))(keys)
        return jnp.moveaxis(draws, 0, 1)

    def over_clouds(
        self, problem: Problem, networks: Networks, old: OldBehaviors, fn: Callable[..., Any]
    ) -> Any:
        """fn(potentials, X, Y, scale, options) of each cloud, in units of its mean distance."""
        config, behaviors = problem.config, problem.penalty_behaviors
        matched = config.penalty_form == "matched"
        X = self.clouds(problem, networks, old.windows, old.key)
        weights = None if behaviors.reparam else behaviors.weights(networks, old.windows, X[0])
        options: dict[str, Any] = {"weights": weights, "matched": matched}

        def one(potentials: Potentials, X: Array, Y: Array) -> Any:
            square = jax.lax.stop_gradient(squared_distances(X, Y).mean())
            scale = jnp.where(matched | (square == 0), 1.0, jnp.sqrt(square))
            return fn(potentials, X / scale, Y / scale, scale, options)

        return jax.vmap(one)(old.potentials, X, old.samples)

    def refine(
        self, problem: Problem, networks: Networks, prepared: Any, key: PRNGKeyArray
    ) -> OldBehaviors | None:
        """`dual_steps` of ascent on the test functions."""
        if prepared is None:
            return None
        config = problem.config

        def climb(potentials: Potentials, X: Array, Y: Array, scale: Array, options: Any) -> Any:
            steps, features = config.dual_steps, prepared.features
            return dual_ascent(potentials, features, X, Y, config.dual_gamma, steps, **options)

        potentials = self.over_clouds(problem, networks, prepared, climb)
        return prepared._replace(potentials=potentials)

    def penalty(self, problem: Problem, networks: Networks, data: Data, key: PRNGKeyArray) -> Array:
        """(β/2) W₂², or its dual with the current test functions."""
        config, old = problem.config, data.prepared
        if old is None:
            new = networks.policy(data.batch.observations)
            each = data.batch.policy.wasserstein_squared(new).mean()
            # Given its states, the actions of a stretch are independent: W₂² adds up.
            return data.weight / 2 * problem.penalty_behaviors.horizon * each

        def value(potentials: Potentials, X: Array, Y: Array, scale: Array, options: Any) -> Any:
            gamma = config.dual_gamma
            return scale**2 * dual_value(potentials, old.features, X, Y, gamma, **options)

        return data.weight / 2 * self.over_clouds(problem, networks, old, value).mean()


none, clip, kl_penalty, wasserstein_penalty = Proximity(), Clip(), KLPenalty(), WassersteinPenalty()
