"""One natural step per batch, as long as KL allows; σ may take a separate step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from wng.estimator.damping import DampingState
from wng.estimator.precondition import precondition
from wng.policy_gradient.batch import Batch, Data
from wng.policy_gradient.networks import Gaussian, Networks
from wng.policy_gradient.problem import Problem
from wng.policy_gradient.steps import Result, Step

MEMORY = 0.9  # share of the average gradient of σ that an iteration leaves in place
RATE = 0.5  # multiple of that gradient by which log σ changes, if KL allows


class StdGradient(NamedTuple):
    """Running averages over iterations: the gradient of the loss in log σ, and its noise."""

    mean: Float[Array, " a"]
    variance: Float[Array, " a"]  # of one batch's estimate
    steps: Int[Array, ""]

    @classmethod
    def empty(cls, actions: int) -> "StdGradient":
        """Nothing seen yet."""
        return cls(jnp.zeros(actions), jnp.zeros(actions), jnp.zeros((), int))

    def update(self, gradient: Float[Array, " a"], batch: Batch) -> "StdGradient":
        """With the gradient on one more batch, whose noise is that of A(z² − 1), z = (a − μ)/σ."""
        policy: Any = batch.policy
        z = (batch.actions - policy.mean) * jnp.exp(-policy.log_std)
        each = batch.advantages[:, None] * (z**2 - 1)
        return StdGradient(
            MEMORY * self.mean + (1 - MEMORY) * gradient,
            MEMORY * self.variance + (1 - MEMORY) * each.var(axis=0) / each.shape[0],
            self.steps + 1,
        )

    def significant(self) -> tuple[Float[Array, " a"], Float[Array, " a"]]:
        """The average gradient, and the share of it that is signal, 1 − noise / gradient² or 0.

        The share is the positive-part James-Stein factor: an average that is no larger than its
        standard error counts for nothing.
        """
        seen = 1 - MEMORY**self.steps  # weight of what has been seen, against the zeros before
        mean, variance = self.mean / seen, self.variance / seen
        # Variance of a weighted mean: the sum of the squared weights.
        squares = (1 - MEMORY) / (1 + MEMORY) * (1 - MEMORY ** (2 * self.steps)) / seen**2
        signal = 1 - variance * squares / jnp.maximum(mean**2, 1e-30)
        return mean, jnp.maximum(signal, 0)


class TrustRegionState(NamedTuple):
    """What a trust region remembers between iterations."""

    damping: DampingState
    direction: Float[Array, " p"]  # of the last step; zero if it was refused
    std: StdGradient
    skipped: Int[Array, ""]  # steps dropped because a number was not finite


class TrustRegion(Step):
    """Go along the natural direction until KL, to second order, is `kl_target`.

    Halve the step until the loss falls and KL is at most 1.5 times the target. The KL divergence
    is the speedometer of every geometry: a fixed W₂ becomes a huge step in likelihood as σ shrinks.
    With `momentum`, directions that the metric says little about carry over from the last step.

    With `std_share` > 0, σ of a Gaussian policy takes a separate step, because W₂² = ‖Δμ‖² + ‖Δσ‖²
    splits exactly: along its Wasserstein gradient, averaged over about ten iterations and shrunk by
    what of it may be noise, and at most as long as that share of the target. (The gradient of σ on
    one batch is often nearly all noise, and a shared step moves σ by that noise at a speed that
    damping sets by accident.)
    """

    def init(self, problem: Problem, networks: Networks) -> TrustRegionState:
        """The state before the first iteration."""
        return TrustRegionState(
            problem.control.init(),
            jnp.zeros_like(ravel_pytree(networks.policy)[0]),
            StdGradient.empty(problem.action_size),
            jnp.zeros((), int),
        )

    def take(
        self,
        problem: Problem,
        state: TrustRegionState,
        networks: Networks,
        data: Data,
        key: PRNGKeyArray,
    ) -> Result:
        """One step of the policy; the value function is fitted on its own."""
        config = problem.config
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

        def without_std(flat: Array) -> Array:
            return ravel_pytree(eqx.tree_at(_log_std, unravel(flat), replace_fn=jnp.zeros_like))[0]

        own_std = problem.shape.std_share > 0 and isinstance(old, Gaussian)
        value, gradient = jax.value_and_grad(loss)(theta)
        g = without_std(gradient) if own_std else gradient
        previous = config.momentum * state.direction if problem.shape.momentum else None
        found = precondition(
            problem.control, state.damping, metric, g, previous=previous, value=value
        )
        direction, std, confidence = found.direction, state.std, jnp.ones(())
        if own_std:
            direction = without_std(direction)
        slope = gradient @ direction
        divergence_of_one = second_order_kl(lambda f: unravel(f)(observations), theta, direction)
        step = -jnp.sqrt(config.kl_target / jnp.maximum(divergence_of_one, 1e-30)) * direction
        if own_std:
            std = std.update(unravel(gradient).log_std, data.batch)
            most = config.std_share * config.kl_target
            moved, confidence = std_step(std, _log_std(networks.policy), most)
            step += ravel_pytree(eqx.tree_at(_log_std, unravel(0 * step), moved))[0]

        def good(k: Array) -> Array:
            flat = theta + 0.5**k * step
            return (loss(flat) < value) & (divergence(flat) <= 1.5 * config.kl_target)

        halvings, better = jax.lax.while_loop(
            lambda c: ~c[1] & (c[0] < config.backtracks),
            lambda c: (c[0] + 1, good(c[0] + 1)),
            (jnp.full((), -1), jnp.zeros((), bool)),
        )
        finite = found.finite & jnp.isfinite(step).all()
        accepted = better & finite & (slope > 0)
        flat = jnp.where(accepted, theta + 0.5**halvings * step, theta)
        metrics = {
            "halvings": halvings.astype(float),
            "line_search_failed": (~accepted).astype(float),
            "std_confidence": confidence,
            "epsilon": found.epsilon,
            "fallbacks": found.fallback.astype(float),
        }
        std = jax.tree.map(lambda new, old: jnp.where(finite, new, old), std, state.std)
        last = jnp.where(accepted & ~found.fallback, direction, 0)
        new = TrustRegionState(found.damping, last, std, state.skipped + ~finite)
        return Result(at(flat), new, metrics)

    def skipped(self, state: TrustRegionState) -> Int[Array, ""]:
        """Number of steps that were dropped."""
        return state.skipped


def second_order_kl(
    policy: Callable[[Array], Any], theta: Float[Array, " p"], step: Float[Array, " p"]
) -> Float[Array, ""]:
    """½ uᵀFu, the mean KL divergence of a small step u."""
    outputs, push = jax.jvp(policy, (theta,), (step,))
    products = jax.tree.map(lambda u, v: jnp.sum(u * v, axis=-1).mean(), push, outputs.fisher(push))
    return 0.5 * sum(jax.tree.leaves(products), start=jnp.zeros(()))


def std_step(
    std: StdGradient, log_std: Float[Array, " a"], most: float
) -> tuple[Float[Array, " a"], Float[Array, ""]]:
    """The change of log σ, and the mean share of the gradient that is signal.

    The Wasserstein metric is the identity in σ, so Δσ_i ∝ −∂L/∂σ_i, and Δlog σ_i is −∂L/∂log σ_i
    over σ_i². The factor E[σ²] keeps the change of log σ, and so of KL, from growing as σ shrinks.
    Its KL, Σ(Δlog σ)² to second order, is limited to `most`.
    """
    gradient, signal = std.significant()
    variance = jnp.exp(2 * log_std)
    step = -RATE * signal * gradient * variance.mean() / variance
    return step * jnp.minimum(1, jnp.sqrt(most / jnp.maximum(step @ step, 1e-30))), signal.mean()


def _log_std(policy: Any) -> Array:
    return policy.log_std


trust_region = TrustRegion()
