r"""Proximity: the global term that keeps a new policy near the one that collected the batch.

The objective to minimise on a minibatch is −E[ρA] + term, ρ = π_θ(a|s)/π_k(a|s):

| proximity     | surrogate                     | term                                         |
|---------------|-------------------------------|----------------------------------------------|
| `none`        | ρA                            | 0                                            |
| `clip`        | min(ρA, clip(ρ, 1±c)A)        | 0                                            |
| `kl`          | ρA                            | β KL(π_k, π_θ), β adapted   (eq. `KL_PPO`)   |
| `wasserstein` | ρA                            | (β/2) OT_γ(Φ under π_k, Φ under π_θ)         |
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from wng.behavior.distance import Potentials, RandomFeatures, dual_ascent, dual_value
from wng.policy_gradient.config import Config
from wng.policy_gradient.geometry import Behaviors, Windows
from wng.policy_gradient.networks import Distribution, Networks


class Batch(NamedTuple):
    """One row a step, [N, ...]."""

    observations: Array
    actions: Array
    log_probs: Float[Array, " N"]  # under π_k
    policy: Distribution  # π_k
    advantages: Float[Array, " N"]
    targets: Float[Array, " N"]  # of the value function

    def take(self, index: Array) -> "Batch":
        """The chosen rows."""
        return jax.tree.map(lambda x: x[index], self)


class OldBehaviors(NamedTuple):
    """What the Wasserstein penalty compares with."""

    windows: Windows
    samples: Float[Array, "W d"]  # Φ under π_k, noise of its own
    features: RandomFeatures
    potentials: Potentials


def standardized(advantages: Array) -> Array:
    """Mean 0, spread 1; but a spread far below that of returns, their unit, is noise and stays."""
    return (advantages - advantages.mean()) / (advantages.std() + 1e-3)


def surrogate_loss(config: Config, networks: Networks, batch: Batch) -> Array:
    """−E[ρA], clipped for proximity=clip."""
    log_ratio = networks.policy(batch.observations).log_prob(batch.actions) - batch.log_probs
    ratio = jnp.exp(jnp.clip(log_ratio, -20, 20))
    gain = ratio * batch.advantages
    if config.proximity == "clip":
        low, high = 1 - config.clip_range, 1 + config.clip_range
        gain = jnp.minimum(gain, jnp.clip(ratio, low, high) * batch.advantages)
    return -gain.mean()


def penalty(
    config: Config,
    networks: Networks,
    batch: Batch,
    weight: Array,
    old: OldBehaviors | None,
    behaviors: Behaviors,
    key: PRNGKeyArray,
) -> Array:
    """The term that is added to the surrogate loss."""
    if config.proximity == "kl":
        return weight * batch.policy.kl(networks.policy(batch.observations)).mean()
    if config.proximity == "wasserstein":
        assert old is not None
        X = behaviors.embed(networks, old.windows, key)
        importance = behaviors.weights(networks, old.windows, X)
        value = dual_value(
            old.potentials, old.features, X, old.samples, config.dual_gamma, importance
        )
        return weight / 2 * value
    return jnp.zeros(())


def improve_potentials(
    config: Config,
    networks: Networks,
    old: OldBehaviors,
    behaviors: Behaviors,
    key: PRNGKeyArray,
) -> Potentials:
    """The test functions after `dual_steps` of ascent at the present policy."""
    X = behaviors.embed(networks, old.windows, key)
    return dual_ascent(
        old.potentials,
        old.features,
        X,
        old.samples,
        config.dual_gamma,
        config.dual_steps,
        weights=behaviors.weights(networks, old.windows, X),
    )


def adapted_weight(config: Config, weight: Array, kl: Array) -> Array:
    """β doubled when a batch moved the policy by 1.5 times the target, halved in the other case."""
    if config.proximity != "kl":
        return weight
    weight = jnp.where(kl > 1.5 * config.kl_target, 2 * weight, weight)
    weight = jnp.where(kl < config.kl_target / 1.5, weight / 2, weight)
    return jnp.clip(weight, 1e-4, 1e4)


def steered(value: Array, kl: Array, target: float) -> Array:
    """A step length a little shorter after too much KL, a little longer after too little."""
    return value * jnp.where(kl > 1.5 * target, 0.7, jnp.where(kl < target / 1.5, 1.3, 1.0))
