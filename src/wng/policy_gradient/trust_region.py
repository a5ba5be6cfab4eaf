"""One natural step per batch, of a given length in the geometry's own distance."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Int, PRNGKeyArray

from wng.estimator.damping import DampingState
from wng.estimator.precondition import precondition
from wng.policy_gradient.batch import Data
from wng.policy_gradient.networks import Networks
from wng.policy_gradient.problem import Problem
from wng.policy_gradient.steps import Result, Step, steered


class TrustRegionState(NamedTuple):
    """What a trust region remembers between iterations."""

    damping: DampingState
    radius: Array
    skipped: Int[Array, ""]  # steps dropped because a number was not finite


class TrustRegion(Step):
    """Go `radius` far along the natural direction; halve until the loss falls and KL allows.

    A step s·d has the length s²·dᵀ(G + εI)d = s²·gᵀd in units of the geometry's `distance`. Where
    that is the KL divergence, the radius limits it and stays (TRPO); otherwise it is adapted.
    """

    def init(self, problem: Problem, networks: Networks) -> TrustRegionState:
        """The state before the first iteration."""
        radius = jnp.asarray(problem.config.radius, float)
        return TrustRegionState(problem.control.init(), radius, jnp.zeros((), int))

    def take(
        self,
        problem: Problem,
        state: TrustRegionState,
        networks: Networks,
        data: Data,
        key: PRNGKeyArray,
    ) -> Result:
        """One step of the policy; the value function is fitted on its own."""
        config, distance = problem.config, problem.geometry.distance
        data = Data(
            data.batch.standardized(),
            data.windows.pick(problem.num_windows, key),
            problem.proximity.refine(problem, networks, data.prepared, key),
            data.weight,
        )
        metric = problem.geometry.metric(problem, networks, data, key)
        old, observations = data.batch.policy, data.batch.observations
        theta, unravel = ravel_pytree(networks.policy)

        def at(flat: Array) -> Networks:
            return Networks(unravel(flat), networks.value)

        def loss(flat: Array) -> Array:
            return problem.proximity.loss(problem, at(flat), data, key)

        def divergence(flat: Array) -> Array:
            return old.kl(unravel(flat)(observations)).mean()

        value, g = jax.value_and_grad(loss)(theta)
        found = precondition(problem.control, state.damping, metric, g, value=value)
        slope = g @ found.direction
        length = jnp.sqrt(distance.scale * state.radius / jnp.maximum(slope, 1e-30))
        most = 1.5 * state.radius if distance.is_kl else jnp.asarray(2 * config.kl_target)

        def candidate(k: Array) -> Array:
            return theta - length * 0.5**k * found.direction

        def good(k: Array) -> Array:
            flat = candidate(k)
            return (loss(flat) < value) & (divergence(flat) <= most)

        halvings, better = jax.lax.while_loop(
            lambda c: ~c[1] & (c[0] < config.backtracks),
            lambda c: (c[0] + 1, good(c[0] + 1)),
            (jnp.zeros((), int), good(jnp.zeros((), int))),
        )
        accepted = better & found.finite & (slope > 0)
        flat = jnp.where(accepted, candidate(halvings), theta)
        radius = state.radius
        if not distance.is_kl:
            # A halved or refused step was too long, whatever KL it ended with.
            kl = jnp.where(accepted & (halvings == 0), divergence(flat), jnp.inf)
            radius = steered(radius, kl, config.kl_target)
        metrics = {
            "radius": radius,
            "line_search_failed": (~accepted).astype(float),
            "epsilon": found.epsilon,
            "fallbacks": found.fallback.astype(float),
        }
        new = TrustRegionState(found.damping, radius, state.skipped + ~found.finite)
        return Result(at(flat), new, metrics)

    def skipped(self, state: TrustRegionState) -> Int[Array, ""]:
        """Number of steps that were dropped."""
        return state.skipped


trust_region = TrustRegion()
