"""One natural step a batch, of a given length in the geometry's own distance."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from wng.estimator.damping import Damping, DampingState
from wng.estimator.transform import Metric, precondition
from wng.policy_gradient.config import Config
from wng.policy_gradient.networks import Networks
from wng.policy_gradient.proximity import Batch, steered


class TrustRegionResult(NamedTuple):
    """The policy after the step, and how the step went."""

    networks: Networks
    radius: Array
    damping: DampingState
    epsilon: Array
    fallback: Array
    finite: Array
    failed: Array  # the line search found nothing better: the parameters are the old ones


def trust_region_step(
    config: Config,
    control: Damping,
    damping: DampingState,
    metric: Metric | None,
    loss: Callable[[Networks], Array],
    networks: Networks,
    batch: Batch,
    radius: Array,
) -> TrustRegionResult:
    """Go `radius` far along the natural direction, halving until the loss falls and KL allows.

    The length of a step s·d is s²·dᵀ(G + εI)d = s²·gᵀd, half of it for the Fisher metric, so that
    it is the KL divergence there and W₂² in a Wasserstein geometry. For Fisher the radius is the
    limit on KL and stays (TRPO). A radius in W₂ outlives the policy's spread: as σ shrinks, the
    same W₂ becomes a huge step in likelihood. So it is steered such that KL stays near
    `kl_target`.
    """
    theta, unravel = ravel_pytree(networks.policy)

    def at(flat: Array) -> Networks:
        return Networks(unravel(flat), networks.value)

    value, g = jax.value_and_grad(lambda flat: loss(at(flat)))(theta)
    fisher = config.geometry == "fisher"
    if metric is None:
        direction, epsilon = g, jnp.zeros(())
        finite, fallback = jnp.isfinite(value) & jnp.isfinite(g @ g), jnp.array(False)
    else:
        result = precondition(control, damping, metric, g, value=value)
        direction, damping, epsilon = result.direction, result.damping, result.epsilon
        finite, fallback = result.finite, result.fallback
    slope = g @ direction
    length = jnp.sqrt((2 if fisher else 1) * radius / jnp.maximum(slope, 1e-30))
    most = 1.5 * radius if fisher else jnp.asarray(2 * config.kl_target)

    def divergence(flat: Array) -> Array:
        return batch.policy.kl(unravel(flat)(batch.observations)).mean()

    def candidate(k: Array) -> Array:
        return theta - length * 0.5**k * direction

    def good(k: Array) -> Array:
        flat = candidate(k)
        return (loss(at(flat)) < value) & (divergence(flat) <= most)

    halvings, found = jax.lax.while_loop(
        lambda c: ~c[1] & (c[0] < config.backtracks),
        lambda c: (c[0] + 1, good(c[0] + 1)),
        (jnp.zeros((), int), good(jnp.zeros((), int))),
    )
    accepted = found & finite & (slope > 0)
    flat = jnp.where(accepted, candidate(halvings), theta)
    if not fisher:
        # A halved or refused step was too long, whatever KL it ended with.
        kl = jnp.where(accepted & (halvings == 0), divergence(flat), jnp.inf)
        radius = steered(radius, kl, config.kl_target)
    return TrustRegionResult(at(flat), radius, damping, epsilon, fallback, finite, ~accepted)
