"""The Wasserstein natural gradient as an optax transformation."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from wng.estimator.basis import Basis, kernel_basis
from wng.estimator.checks import check_count, check_params, check_positive, check_samples
from wng.estimator.damping import Damping, DampingState, as_damping, reduction_ratio
from wng.estimator.jacobian import behaviors_and_pullback, jacobian_score
from wng.estimator.metric import LowRank, WassersteinMetric

MAKE_METRIC = (
    "either behavior_fn=θ ↦ behaviours (differentiable), or behaviors=X together with "
    "log_prob_fn=θ ↦ log-probabilities of X"
)


class ScaleByWassersteinState(NamedTuple):
    """State of `scale_by_wasserstein`. All counters are of steps."""

    damping: DampingState
    epsilon: Float[Array, ""]  # the ε of the last step
    age: Int[Array, ""]  # steps since the metric was made
    fallbacks: Int[Array, ""]  # steps that used the Euclidean gradient
    skipped: Int[Array, ""]  # steps dropped for a non-finite gradient, loss or direction
    spectrum: LowRank | None  # the metric in use, kept only with refresh_every > 1


class Metric(Protocol):
    """What a direction needs to know of a metric G."""

    def solve(self, g: Float[Array, " p"], damping: Array) -> Float[Array, " p"]:
        """(G + εI)⁻¹ g."""

    @property
    def largest_eigenvalue(self) -> Float[Array, ""]:
        """λ_max(G), the unit of a relative damping."""


class Preconditioned(NamedTuple):
    """A gradient turned into a direction, and what happened on the way."""

    direction: Float[Array, " p"]  # zero if not finite
    damping: DampingState
    epsilon: Float[Array, ""]
    fallback: Bool[Array, ""]  # the Euclidean gradient was used
    finite: Bool[Array, ""]  # False: skip this step


def precondition(
    control: Damping,
    state: DampingState,
    metric: Metric,
    g: Float[Array, " p"],
    *,
    value: Float[Array, ""] | None = None,
    loss_after: Callable[[Float[Array, " p"]], Float[Array, ""]] | None = None,
) -> Preconditioned:
    """(G + εI)⁻¹ g with its safeguards, and the control of ε.

    Args:
      control: how ε is chosen.
      state: of the control.
      metric: G.
      g: gradient.
      value: the loss at θ; a non-finite one drops the step.
      loss_after: direction ↦ the loss, of the same batch, after a step of `control.step_size`
        against it; only for an adaptive `control`.
    """
    epsilon = control.epsilon(state, metric.largest_eigenvalue)
    natural = metric.solve(g, epsilon)
    slope = g @ natural
    fallback = slope <= 0
    if control.relative:  # a metric that sees nothing sets no scale for ε
        fallback |= metric.largest_eigenvalue == 0
    natural, slope = jnp.where(fallback, g, natural), jnp.where(fallback, g @ g, slope)
    natural = natural.astype(g.dtype)

    finite = jnp.isfinite(slope) & jnp.isfinite(natural @ natural)  # also after the cast
    if value is not None:
        finite &= jnp.isfinite(value)
    natural = jnp.where(finite, natural, 0)

    # Nothing measured: a ratio in the range where ε stays.
    ratio = jnp.where(finite, (control.low + control.high) / 2, jnp.nan)
    if value is not None and loss_after is not None:
        due = control.due(state) & finite
        after = jax.lax.cond(due, lambda: loss_after(natural), lambda: value)
        # A zero gradient promises and saves nothing: no reason to change ε.
        promised = control.step_size * slope
        measured = jnp.where(slope > 0, reduction_ratio(value, after, promised), 0.5)
        ratio = jnp.where(finite, measured, jnp.nan)
    return Preconditioned(
        natural, control.update(state, ratio), epsilon, fallback & finite & (slope > 0), finite
    )


def scale_by_wasserstein(
    num_basis: int = 5,
    damping: float | Damping = 1e-3,
    *,
    basis: Basis | None = None,
    bandwidth: float | None = None,
    rescale: bool = False,
    refresh_every: int = 1,
) -> optax.GradientTransformationExtraArgs:
    r"""Replace a gradient by its Wasserstein natural gradient.

    .. math::  g \mapsto (\hat G + ε I)^{-1} g, \qquad \hat G = J^\top L^\dagger J

    Chain it before an optimiser, `optax.chain(scale_by_wasserstein(), optax.sgd(0.1))`, and hand
    `update` the behaviours of the model in one of two ways::

        tx.update(grads, state, params, key=key, behavior_fn=f)
        tx.update(grads, state, params, key=key, behaviors=X, log_prob_fn=lp)

    where f(params) is X [N, d], differentiable, or lp(params) is log q_θ(X) [N].

    Args:
      num_basis: M, the rank of the metric.
      damping: ε, or a `Damping` (relative to the metric; adaptive). An adaptive one needs two more
        arguments of `update`: value, the loss of this batch, and value_fn=θ ↦ loss of this batch.
      basis: a fixed basis (such as `polynomial_basis`) in place of the kernel basis that is drawn
        from the behaviours with `key`; `num_basis`, `bandwidth` and `key` then have no effect.
      bandwidth: of the kernel basis; by default the root-mean-square distance.
      rescale: diagonal rescaling of the damping, see `WassersteinMetric`.
      refresh_every: make a new metric only at every so-many-th step. In between its
        eigendecomposition, (M + 1)·p numbers in the state, is reused.

    Returns:
      An `optax.GradientTransformationExtraArgs` that works inside jit, scan and vmap.

    Note:
      * Where p > M, gradients outside the row space of J are scaled by 1/ε: choose ε with the
        learning rate in mind, normalise or clip after, or make ε relative to the metric.
      * The Euclidean gradient is used where ⟨g, g^W⟩ ≤ 0, and where a relative damping meets a
        metric that sees nothing.
      * A step whose gradient, loss or direction is not finite is dropped (a zero update) and
        counted; an adaptive ε is raised then. (Behaviours that are not finite raise an error where
        they can be looked at, outside jit.)

    References:
      Moskovitz et al., Efficient Wasserstein Natural Gradients for Reinforcement Learning,
      ICLR 2021. Arbel et al., Kernelized Wasserstein Natural Gradient, ICLR 2020.
    """
    control = as_damping(damping)
    check_count(num_basis, "num_basis", 1)
    check_count(refresh_every, "refresh_every", 1)
    if bandwidth is not None:
        check_positive(bandwidth, "bandwidth")
    if basis is not None and not isinstance(getattr(basis, "size", None), int):
        raise ValueError(
            f"basis must be a basis such as polynomial_basis(dim), got a {type(basis).__name__}."
        )
    size = num_basis if basis is None else basis.size

    def make_spectrum(
        params: Any,
        key: PRNGKeyArray | None,
        behavior_fn: Callable[[Any], Array] | None,
        behaviors: Array | None,
        log_prob_fn: Callable[[Any], Array] | None,
    ) -> LowRank:
        def make_basis(X: Array) -> Basis:
            if basis is not None:
                return basis
            if key is None:
                raise ValueError(
                    "scale_by_wasserstein draws its basis at random: pass key=… to update()."
                )
            return kernel_basis(key, X, num_basis, bandwidth=bandwidth)

        if behavior_fn is not None:
            if behaviors is not None or log_prob_fn is not None:
                raise ValueError(f"contradictory arguments to update(): pass {MAKE_METRIC}.")
            X, pullback = behaviors_and_pullback(behavior_fn, params)
            h = make_basis(X)
            J = pullback(h)
        else:
            if behaviors is None or log_prob_fn is None:
                raise ValueError(
                    f"scale_by_wasserstein needs more of update(): pass {MAKE_METRIC}."
                )
            X = check_samples(behaviors, "behaviors")
            h = make_basis(X)
            J = jacobian_score(h, X, log_prob_fn, params)
        return WassersteinMetric(h, X, J, rescale=rescale).spectrum

    def init_fn(params: Any) -> ScaleByWassersteinState:
        check_params(params)
        spectrum = None
        if refresh_every > 1:
            flat, _ = ravel_pytree(params)
            dtype = jnp.promote_types(flat.dtype, jnp.float32)
            spectrum = LowRank.empty(flat.size, size, dtype, rescale=rescale)
        state, zero = control.init(), jnp.zeros((), int)
        return ScaleByWassersteinState(
            damping=state,
            epsilon=control.epsilon(state, jnp.ones(())),
            age=zero,
            fallbacks=zero,
            skipped=zero,
            spectrum=spectrum,
        )

    def update_fn(
        updates: Any,
        state: ScaleByWassersteinState,
        params: Any = None,
        *,
        key: PRNGKeyArray | None = None,
        behavior_fn: Callable[[Any], Array] | None = None,
        behaviors: Array | None = None,
        log_prob_fn: Callable[[Any], Array] | None = None,
        value: Array | None = None,
        value_fn: Callable[[Any], Array] | None = None,
        **extra: Any,
    ) -> tuple[Any, ScaleByWassersteinState]:
        del extra  # of other transformations in the chain
        if params is None:
            raise ValueError("scale_by_wasserstein needs the parameters: pass params to update().")
        if _shapes(updates) != _shapes(params):
            raise ValueError(
                "the gradients and params must be pytrees of the same structure and shapes: pass "
                "update() the parameters that the gradient was taken at."
            )
        if control.every and (value is None or value_fn is None):
            raise ValueError(
                "adaptive damping compares losses: pass value=loss and value_fn=θ ↦ loss, both of "
                "this batch, to update()."
            )
        if value is not None and jnp.shape(value) != ():
            raise ValueError(f"value must be a single number, got shape {list(jnp.shape(value))}.")
        g, unravel = ravel_pytree(updates)

        def fresh() -> LowRank:
            return make_spectrum(params, key, behavior_fn, behaviors, log_prob_fn)

        if state.spectrum is None:
            spectrum = fresh()
        else:
            spectrum = jax.lax.cond(state.age == 0, fresh, lambda: state.spectrum)

        def loss_after(natural: Array) -> Array:
            assert value_fn is not None
            moved = jax.tree.map(lambda p, s: p - control.step_size * s, params, unravel(natural))
            after = value_fn(moved)
            if isinstance(after, tuple | list | dict) or jnp.shape(after) != ():
                raise ValueError("value_fn(params) must return the loss alone, one number.")
            return jnp.asarray(after, g.dtype)

        result = precondition(
            control,
            state.damping,
            spectrum,
            g,
            value=None if value is None else jnp.asarray(value, g.dtype),
            loss_after=loss_after if control.every else None,
        )
        return unravel(result.direction), ScaleByWassersteinState(
            damping=result.damping,
            epsilon=result.epsilon,
            # A metric that is not finite is replaced at the next step.
            age=jnp.where(
                jnp.isfinite(spectrum.largest_eigenvalue), (state.age + 1) % refresh_every, 0
            ),
            fallbacks=state.fallbacks + result.fallback,
            skipped=state.skipped + ~result.finite,
            spectrum=None if state.spectrum is None else spectrum,
        )

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def _shapes(tree: Any) -> tuple[Any, list[tuple[int, ...]]]:
    """Structure of a pytree and shapes of its leaves."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [jnp.shape(leaf) for leaf in leaves]
