"""Natural gradients as optax transformations: for any metric, and for the Wasserstein metric."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from wng.estimator.basis import Basis, kernel_basis
from wng.estimator.branching import cond_any
from wng.estimator.checks import check_count, check_params, check_positive, check_samples
from wng.estimator.damping import Damping, as_damping
from wng.estimator.jacobian import behaviors_and_pullback, jacobian_score
from wng.estimator.masking import hides
from wng.estimator.metric import LowRank, WassersteinMetric
from wng.estimator.precondition import Metric, Preconditioned, precondition
from wng.estimator.tuning import TuningState, tune

MAKE_METRIC = (
    "either behavior_fn=θ ↦ behaviors (differentiable), or behaviors=X together with "
    "log_prob_fn=θ ↦ log-probabilities of X"
)


class ScaleByMetricState(NamedTuple):
    """State of `scale_by_metric` and `scale_by_wasserstein`. All counters are numbers of steps."""

    damping: Any  # a DampingState, or a TuningState with damping=None
    epsilon: Float[Array, ""]  # ε of the last step
    age: Int[Array, ""]  # steps since the metric was estimated
    fallbacks: Int[Array, ""]  # steps that used the Euclidean gradient
    skipped: Int[Array, ""]  # steps dropped for a non-finite gradient, loss or direction
    metric: Any  # the metric in use, kept only with refresh_every > 1


def scale_by_metric(
    damping: float | Damping | None = 1e-3,
    refresh_every: int = 1,
    *,
    empty: Callable[[Any], Metric] | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Replace a gradient by its natural gradient in any metric that you define.

    g ↦ (G + εI)⁻¹ g

    Chain it before an optimizer and give `update` the metric of the current batch, as a function
    of the parameters, which is called only when the metric is refreshed::

        tx.update(grads, state, params, metric_fn=metric_fn)

    `metric_fn(params)` returns a pytree with a method `solve(g, damping)` and a property
    `largest_eigenvalue`, such as the `spectrum` of a `wng.WassersteinMetric`; gradients reach
    `solve` flat, in the order of `jax.flatten_util.ravel_pytree(params)`.

    Args:
      damping: ε, or a `wng.Damping` (relative to the metric, or adaptive). An adaptive one needs
        two more arguments of `update`: value, the loss of this batch, and value_fn, which maps
        parameters to that loss. None tunes ε and the length of the step automatically, see
        `scale_by_wasserstein`.
      refresh_every: number of steps for which one metric is used. If it is more than 1, the metric
        is part of the state.
      empty: function from parameters to a metric with the shapes and types that `metric_fn`
        returns. Needed only if refresh_every > 1.

    Returns:
      An `optax.GradientTransformationExtraArgs` that works inside jit, scan and vmap.

    Note:
      * The Euclidean gradient is used if ⟨g, (G + εI)⁻¹g⟩ ≤ 0, and if the damping is relative and
        the metric is zero.
      * A step whose gradient, loss or direction is not finite is dropped (a zero update) and
        counted; an adaptive ε then rises.
    """
    control = None if damping is None else as_damping(damping)
    check_count(refresh_every, "refresh_every", 1)
    if refresh_every > 1 and empty is None:
        raise ValueError(
            "refresh_every > 1 keeps the metric in the state: pass empty=params ↦ a metric of the "
            "right shapes."
        )

    def init_fn(params: Any) -> ScaleByMetricState:
        # Not checked here: wrappers of optax call this with placeholders.
        params = jax.tree.map(lambda x: x if hasattr(x, "shape") else jnp.zeros(()), params)
        zero = jnp.zeros((), int)
        rule: Any = (
            TuningState.start(ravel_pytree(params)[0]) if control is None else control.init()
        )
        return ScaleByMetricState(
            damping=rule,
            epsilon=rule.epsilon if control is None else control.epsilon(rule, jnp.ones(())),
            age=zero,
            fallbacks=zero,
            skipped=zero,
            metric=empty(params) if refresh_every > 1 and empty is not None else None,
        )

    def update_fn(
        updates: Any,
        state: ScaleByMetricState,
        params: Any = None,
        *,
        metric_fn: Callable[[Any], Metric] | None = None,
        value: Array | None = None,
        value_fn: Callable[[Any], Array] | None = None,
        **extra: Any,
    ) -> tuple[Any, ScaleByMetricState]:
        del extra  # arguments of other transformations in the chain
        if params is None:
            raise ValueError("a natural gradient needs the parameters: pass params to update().")
        if not jax.tree.leaves(updates):  # a wrapper hides all of them
            return updates, state
        check_params(params)
        if metric_fn is None:
            raise ValueError("scale_by_metric needs the metric: pass metric_fn=… to update().")
        if jax.tree.map(jnp.shape, updates) != jax.tree.map(jnp.shape, params):
            raise ValueError(
                "the gradients and params must be pytrees of the same structure and shapes: pass "
                "update() the parameters that the gradient was taken at."
            )
        if control is not None and control.every and (value is None or value_fn is None):
            raise ValueError(
                "adaptive damping compares losses: pass value=loss and value_fn=θ ↦ loss, both of "
                "this batch, to update()."
            )
        if value is not None and jnp.shape(value) != ():
            raise ValueError(f"value must be a single number, got shape {list(jnp.shape(value))}.")
        g, unravel = ravel_pytree(updates)
        if state.metric is None:
            metric = metric_fn(params)
        else:
            metric = cond_any(state.age == 0, lambda: metric_fn(params), lambda: state.metric)
        value = None if value is None else jnp.asarray(value, g.dtype)

        def loss_after(natural: Array) -> Array:
            assert control is not None
            assert value_fn is not None
            moved = jax.tree.map(lambda p, s: p - control.step_size * s, params, unravel(natural))
            after = value_fn(moved)
            if isinstance(after, tuple | list | dict) or jnp.shape(after) != ():
                raise ValueError("value_fn(params) must return the loss alone, one number.")
            return jnp.asarray(after, g.dtype)

        result: Preconditioned[Any]
        if control is None:
            result = tune(state.damping, metric, g, ravel_pytree(params)[0], value=value)
        else:
            adapt = loss_after if control.every else None
            result = precondition(control, state.damping, metric, g, value=value, loss_after=adapt)
        return unravel(result.direction), ScaleByMetricState(
            damping=result.damping,
            epsilon=result.epsilon,
            # A metric that gave no finite direction is replaced at the next step.
            age=jnp.where(result.finite, (state.age + 1) % refresh_every, 0),
            fallbacks=state.fallbacks + result.fallback,
            skipped=state.skipped + ~result.finite,
            metric=None if state.metric is None else metric,
        )

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def scale_by_wasserstein(
    num_basis: int = 5,
    damping: float | Damping | None = None,
    *,
    basis: Basis | None = None,
    bandwidth: float | None = None,
    rescale: bool = False,
    refresh_every: int = 1,
) -> optax.GradientTransformationExtraArgs:
    """Replace a gradient by its Wasserstein natural gradient.

    g ↦ γ (λ_max + ε) (Ĝ + εI)⁻¹ g,     Ĝ = JᵀL†J

    Chain it before SGD and give `update` the behaviors of the model in one of two ways::

        tx = optax.chain(wng.scale_by_wasserstein(), optax.sgd(0.1))
        tx.update(grads, state, params, key=key, behavior_fn=f)
        tx.update(grads, state, params, key=key, behaviors=X, log_prob_fn=lp)

    Here f(params) is X [N, d] and differentiable, and lp(params) is log q_θ(X) [N].

    The learning rate means what it means for SGD: a rate that suits SGD suits this. A large ε gives
    SGD's step; a small ε equalizes the speed of all directions that Ĝ sees and trusts that the
    others are flat. By default, ε and the gain γ are tuned at each step from the gradient after the
    last step. If the slope along the last direction shrank faster than the slope along the last
    gradient, ε rises. If more than a quarter of the slope is left, γ rises, up to 100; if less is
    left, γ falls. If a step went beyond twice the distance to the lowest point of its line, it is
    taken back to that point. The first step is in no direction longer than SGD's.

    Args:
      num_basis: M, the rank of the metric.
      damping: None for the rule above; or a fixed ε or a `wng.Damping` (relative to the metric, or
        adaptive), which give the paper's plain (Ĝ + εI)⁻¹ g. An adaptive one needs two more
        arguments of `update`, value and value_fn; see `scale_by_metric`.
      basis: fixed basis, such as `polynomial_basis`, in place of the kernel basis that is drawn
        from the behaviors with `key`; `num_basis`, `bandwidth` and `key` then have no effect.
      bandwidth: bandwidth of the kernel; by default the root-mean-square distance of behaviors.
      rescale: diagonal rescaling of the damping, see `WassersteinMetric`.
      refresh_every: number of steps for which one metric is used. If it is more than 1, its
        eigendecomposition, (M + 1)·p numbers, is part of the state.

    Returns:
      An `optax.GradientTransformationExtraArgs` that works inside jit, scan and vmap. By default
      its state holds 3p numbers.

    Note:
      * The paper has no γ, and adapts ε by the reduction ratio of the loss, as
        `wng.Damping(1e-5, every=5)` does. The default needs no loss.
      * The default rule expects SGD to follow in the chain, possibly after clipping and schedules.
        Once the parameters have not moved straight against the direction (because of momentum or
        Adam), γ is the largest value that makes no step longer than SGD's in any direction, and
        only ε is tuned. Such optimizers often gain more from a `Damping`.
      * With a `Damping` and p > M, gradients outside the row space of J are scaled by 1/ε: choose
        ε with the learning rate in mind, clip afterward, or make ε relative to the metric.
      * Fallbacks and dropped steps are those of `scale_by_metric`, except that the default rule
        also takes back the previous step when it drops one. (Outside jit, where their values are
        known, behaviors that are not finite raise an error.)
      * If there are fewer than M samples, basis functions repeat, which changes nothing.

    References:
      Moskovitz et al., Efficient Wasserstein Natural Gradients for Reinforcement Learning,
      ICLR 2021. Arbel et al., Kernelized Wasserstein Natural Gradient, ICLR 2020. Barzilai and
      Borwein, Two-Point Step Size Gradient Methods, 1988 (the rule for γ).
    """
    check_count(num_basis, "num_basis", 1)
    if bandwidth is not None:
        check_positive(bandwidth, "bandwidth")
    if basis is not None and not isinstance(getattr(basis, "size", None), int):
        raise ValueError(
            f"basis must be a basis such as polynomial_basis(dim), got a {type(basis).__name__}."
        )
    size = num_basis if basis is None else basis.size

    def empty(params: Any) -> LowRank:
        flat, _ = ravel_pytree(params)
        dtype = jnp.promote_types(flat.dtype, jnp.float32)
        return LowRank.empty(flat.size, size, dtype, rescale=rescale)

    scale = scale_by_metric(damping, refresh_every, empty=empty)

    def update_fn(
        updates: Any,
        state: ScaleByMetricState,
        params: Any = None,
        *,
        key: PRNGKeyArray | None = None,
        behavior_fn: Callable[[Any], Array] | None = None,
        behaviors: Array | None = None,
        log_prob_fn: Callable[[Any], Array] | None = None,
        **extra: Any,
    ) -> tuple[Any, ScaleByMetricState]:
        def make_basis(X: Array) -> Basis:
            if basis is not None:
                return basis
            if key is None:
                raise ValueError(
                    "scale_by_wasserstein draws its basis at random: pass key=… to update()."
                )
            return kernel_basis(
                key, X, num_basis, bandwidth=bandwidth, replace=num_basis > X.shape[0]
            )

        def metric_fn(params: Any) -> LowRank:
            try:
                return estimate(params)
            except (TypeError, AttributeError, KeyError, IndexError) as error:
                if not hides(params):
                    raise
                raise ValueError(
                    "a wrapper such as optax.masked hides some parameters from behavior_fn and "
                    "log_prob_fn: fill them in, as in behavior_fn=lambda visible: "
                    "f(wng.fill_masked(visible, params))."
                ) from error

        def estimate(params: Any) -> LowRank:
            if behavior_fn is not None:
                if behaviors is not None or log_prob_fn is not None:
                    raise ValueError(f"contradictory arguments to update(): pass {MAKE_METRIC}.")
                X, pullback = behaviors_and_pullback(behavior_fn, params)
                h = make_basis(X)
                J = pullback(h)
            else:
                if behaviors is None or log_prob_fn is None:
                    raise ValueError(
                        "scale_by_wasserstein needs more arguments to update(): pass "
                        f"{MAKE_METRIC}."
                    )
                X = check_samples(behaviors, "behaviors")
                h = make_basis(X)
                J = jacobian_score(h, X, log_prob_fn, params)
            return WassersteinMetric(h, X, J, rescale=rescale).spectrum

        return scale.update(updates, state, params, metric_fn=metric_fn, **extra)

    return optax.GradientTransformationExtraArgs(scale.init, update_fn)
