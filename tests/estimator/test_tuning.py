"""The default of `scale_by_wasserstein`: damping and gain that tune themselves."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import wng
from wng.estimator.metric import LowRank
from wng.estimator.tuning import DROP, MOVE, TARGET, TuningState, tune

# A metric diag(4, 1, 0), a loss ½ θᵀHθ, and a point.
METRIC = LowRank(jnp.eye(2, 3), jnp.array([4.0, 1.0]), None)
HESSIAN = np.diag([4.0, 1.0, 0.5]) + 0.1
THETA = np.array([1.0, -2.0, 3.0])


def direction(epsilon: float, gain: float, g: np.ndarray) -> np.ndarray:
    """γ (λ_max + ε)(G + εI)⁻¹ g for ε = κ λ_max."""
    return gain * (4 + 4 * epsilon) / (np.array([4.0, 1.0, 0.0]) + 4 * epsilon) * g


def planted(epsilon: float, gain: float) -> TuningState:
    start = TuningState.start(jnp.zeros(3))
    return start._replace(epsilon=jnp.asarray(epsilon), gain=jnp.asarray(gain))


def two_steps(rate: float, epsilon: float = 1.0, gain: float = 0.5) -> tuple[Any, Any, np.ndarray]:
    """Both results of two steps from THETA, and the parameters between them."""
    g = HESSIAN @ THETA
    first = tune(planted(epsilon, gain), METRIC, jnp.asarray(g), jnp.asarray(THETA))
    theta = THETA - rate * np.asarray(first.direction)
    second = tune(first.damping, METRIC, jnp.asarray(HESSIAN @ theta), jnp.asarray(theta))
    return first, second, theta


def test_the_first_direction_is_the_closed_form_and_nowhere_longer_than_the_gradient() -> None:
    g = HESSIAN @ THETA
    first, _, _ = two_steps(0.01)
    np.testing.assert_allclose(first.direction, direction(1.0, 0.5, g), rtol=1e-5)
    assert (np.abs(first.direction) <= np.abs(g) * (1 + 1e-6)).all()
    assert first.epsilon == 4.0
    assert (bool(first.finite), bool(first.fallback)) == (True, False)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
def test_from_the_natural_gradient_to_the_gradient(epsilon: float) -> None:
    g = HESSIAN @ THETA
    result = tune(planted(epsilon, 2.0), METRIC, jnp.asarray(g), jnp.asarray(THETA))
    np.testing.assert_allclose(result.direction, direction(epsilon, 2.0, g), rtol=1e-5)
    if epsilon == 100:
        np.testing.assert_allclose(result.direction, 2 * g, rtol=0.02)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.3, 0.6])
def test_gain_and_damping_follow_the_shares_of_the_slope(rate: float) -> None:
    first, second, theta = two_steps(rate)
    before, after, d = HESSIAN @ THETA, HESSIAN @ theta, np.asarray(first.direction)
    share, plain = (1 - (after @ v) / (before @ v) for v in (d, before))
    assert share < 2  # no return
    epsilon = np.clip(max(share, 0.02) / max(plain, 0.02), 1 / MOVE, MOVE)
    gain = max(0.5 * np.clip(TARGET / share, DROP, MOVE), epsilon / (1 + epsilon))
    np.testing.assert_allclose(second.damping.epsilon, epsilon, rtol=1e-3)
    np.testing.assert_allclose(second.damping.gain, gain, rtol=1e-3)
    np.testing.assert_allclose(second.direction, direction(epsilon, gain, after), rtol=1e-3)


def test_damping_rises_where_what_the_metric_calls_cheap_is_used_up_first() -> None:
    """The third coordinate, which the metric does not see, is the loss's stiffest, or softest."""
    for stiffness, compare in [(20.0, np.greater), (0.01, np.less)]:
        hessian = np.array([4.0, 1.0, stiffness])
        first = tune(planted(1.0, 0.5), METRIC, jnp.asarray(hessian), jnp.ones(3))
        theta = 1 - 0.05 * np.asarray(first.direction)
        second = tune(first.damping, METRIC, jnp.asarray(hessian * theta), jnp.asarray(theta))
        assert compare(second.damping.epsilon, 1.0)


@pytest.mark.parametrize("rate", [2.0, 30.0])
def test_a_step_that_raised_the_loss_is_taken_back_to_the_lowest_point_of_its_line(rate) -> None:
    first, second, theta = two_steps(rate)
    d = np.asarray(first.direction)
    assert theta @ HESSIAN @ theta > THETA @ HESSIAN @ THETA
    lowest = THETA - d * (THETA @ HESSIAN @ d) / (d @ HESSIAN @ d)
    np.testing.assert_allclose(theta - rate * np.asarray(second.direction), lowest, atol=1e-3)
    assert second.damping.gain < 0.5 * first.damping.gain
    np.testing.assert_array_equal(second.damping.direction, 0)  # nothing to compare with next


def test_a_gradient_that_is_not_finite_takes_the_whole_last_step_back() -> None:
    first, _, theta = two_steps(0.1)
    bad = jnp.array([jnp.nan, 1.0, 1.0])
    result = tune(first.damping, METRIC, bad, jnp.asarray(theta))
    np.testing.assert_allclose(theta - 0.1 * np.asarray(result.direction), THETA, rtol=1e-5)
    assert not result.finite
    assert result.damping.gain == pytest.approx(DROP * 0.5)
    again = tune(result.damping, METRIC, bad, jnp.asarray(THETA))
    np.testing.assert_array_equal(again.direction, 0)
    good = tune(again.damping, METRIC, jnp.asarray(HESSIAN @ THETA), jnp.asarray(THETA))
    assert (np.asarray(good.direction) @ HESSIAN @ THETA) > 0


def test_a_loss_that_is_not_finite_counts_as_well() -> None:
    nan = jnp.array(jnp.nan)
    result = tune(planted(1.0, 0.5), METRIC, jnp.ones(3), jnp.ones(3), value=nan)
    np.testing.assert_array_equal(result.direction, 0)
    assert not result.finite


def test_a_step_that_did_not_move_says_nothing() -> None:
    g, theta = jnp.asarray(HESSIAN @ THETA), jnp.asarray(THETA)
    state = planted(1.0, 0.5)
    for _ in range(3):
        state = tune(state, METRIC, g, theta).damping
    assert (state.gain, state.epsilon) == (0.5, 1.0)


def test_a_metric_that_is_zero_gives_the_gradient_times_the_gain() -> None:
    zero = LowRank(jnp.zeros((2, 3)), jnp.zeros(2), None)
    result = tune(planted(1.0, 0.5), zero, jnp.ones(3), jnp.ones(3))
    np.testing.assert_array_equal(result.direction, 0.5)
    assert result.fallback


def test_tiny_and_huge_metrics_give_the_same_direction() -> None:
    g = jnp.asarray(HESSIAN @ THETA)
    for scale in (1e-30, 1e30):
        metric = LowRank(METRIC.directions, scale * METRIC.eigenvalues, None)
        result = tune(planted(1.0, 0.5), metric, 1e4 * g, jnp.asarray(THETA))
        np.testing.assert_allclose(result.direction, direction(1.0, 0.5, 1e4 * g), rtol=1e-5)


# --- regressions ------------------------------------------------------------------------------
SCALES = jnp.array([1.0, 1.0, 0.7, 0.7, 0.5, 0.3, 0.2])
INPUTS = SCALES * jax.random.normal(jax.random.key(0), (64, 7))
TARGETS = INPUTS @ (1 / SCALES)[:, None] + 0.5
NOISY = TARGETS + jax.random.normal(jax.random.key(2), TARGETS.shape)


def model(params: Any, inputs: jax.Array) -> jax.Array:
    return inputs @ params["weight"] + params["bias"]


PARAMS = {"weight": jnp.zeros((7, 1)), "bias": jnp.zeros(1)}


def losses(
    optimizer: optax.GradientTransformation,
    steps: int,
    targets: jax.Array = TARGETS,
    batch: int | None = None,
) -> np.ndarray:
    """The loss on all data before each step of a regression with 8 parameters."""
    tx = optax.with_extra_args_support(optimizer)

    def loss(params: Any, rows: Any) -> jax.Array:
        return jnp.mean((model(params, INPUTS[rows]) - targets[rows]) ** 2)

    def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        params, state = carry
        rows = slice(None) if batch is None else jax.random.permutation(key, 64)[:batch]
        updates, state = tx.update(
            jax.grad(loss)(params, rows),
            state,
            params,
            key=key,
            behavior_fn=lambda params: model(params, INPUTS[rows]),
        )
        return (optax.apply_updates(params, updates), state), loss(params, slice(None))

    keys = jax.random.split(jax.random.key(1), steps)
    return np.asarray(jax.jit(lambda: jax.lax.scan(step, (PARAMS, tx.init(PARAMS)), keys))()[1])


def steps_to(values: np.ndarray, share: float) -> int:
    reached = np.flatnonzero(values <= share * values[0])
    return int(reached[0]) if reached.size else len(values)


@pytest.mark.parametrize("rate", [0.01, 0.03, 0.1, 0.3, 1.0])
def test_the_docstrings_example_needs_a_third_of_the_steps_of_sgd(rate: float) -> None:
    plain = losses(optax.sgd(rate), 1000)
    ours = losses(optax.chain(wng.scale_by_wasserstein(), optax.sgd(rate)), 1000)
    assert np.isfinite(ours).all()
    assert steps_to(ours, 0.02) <= steps_to(plain, 0.02) / 3


def test_a_relative_damping_also_beats_sgd() -> None:
    """The plain formula, with ε a tenth of the largest eigenvalue."""
    damped = wng.scale_by_wasserstein(damping=wng.Damping(0.1, relative=True))
    plain, ours = (losses(tx, 1000) for tx in (optax.sgd(0.1), optax.chain(damped, optax.sgd(0.1))))
    assert ours[-1] < 0.1 * plain[-1]


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.3])
def test_minibatches_are_no_worse_than_with_sgd(rate: float) -> None:
    plain, ours = (
        losses(optimizer, 300, NOISY, batch=8)
        for optimizer in (
            optax.sgd(rate),
            optax.chain(wng.scale_by_wasserstein(), optax.sgd(rate)),
        )
    )
    assert ours.mean() < 1.05 * plain.mean()
    assert ours[-50:].mean() < 1.05 * plain[-50:].mean()


OPTIMIZERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "momentum": lambda: optax.sgd(0.03, momentum=0.9),
    "adam": lambda: optax.adam(0.03),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_momentum_and_adam_get_no_step_longer_than_their_own(name: str) -> None:
    tx = optax.chain(wng.scale_by_wasserstein(), OPTIMIZERS[name]())
    params, state = PARAMS, tx.init(PARAMS)
    for i in range(30):
        grads = jax.grad(lambda params: jnp.mean((model(params, INPUTS) - TARGETS) ** 2))(params)
        updates, state = tx.update(
            grads,
            state,
            params,
            key=jax.random.key(i),
            behavior_fn=lambda params: model(params, INPUTS),
        )
        params = optax.apply_updates(params, updates)
    tuning = state[0].damping
    assert not tuning.against
    assert tuning.gain == pytest.approx(tuning.epsilon / (1 + tuning.epsilon))
    plain, ours = (losses(optimizer, 300) for optimizer in (OPTIMIZERS[name](), tx))
    assert ours[-1] < 0.02 * plain[0]


@pytest.mark.parametrize(
    "between", [optax.clip_by_global_norm(1.0), optax.scale_by_schedule(lambda n: 0.99**n)]
)
def test_clipping_and_schedules_leave_the_rule_at_work(between: Any) -> None:
    tx = optax.chain(wng.scale_by_wasserstein(), between, optax.sgd(0.1))
    params, state = PARAMS, tx.init(PARAMS)
    for i in range(10):
        grads = jax.grad(lambda params: jnp.mean((model(params, INPUTS) - TARGETS) ** 2))(params)
        updates, state = tx.update(
            grads,
            state,
            params,
            key=jax.random.key(i),
            behavior_fn=lambda params: model(params, INPUTS),
        )
        params = optax.apply_updates(params, updates)
    assert state[0].damping.against


def test_the_score_form() -> None:
    """The mean of a Gaussian, from samples and their log-probabilities."""
    tx = optax.chain(wng.scale_by_wasserstein(), optax.sgd(0.3))
    mean, state = jnp.array([3.0, -4.0]), tx.init(jnp.zeros(2))
    for i in range(60):
        X = mean + jax.random.normal(jax.random.key(i), (64, 2))
        cost = jnp.sum(X**2, axis=1)
        grads = jnp.mean((cost - cost.mean())[:, None] * (X - mean), axis=0)
        updates, state = tx.update(
            grads,
            state,
            mean,
            key=jax.random.key(i),
            behaviors=X,
            log_prob_fn=lambda m, X=X: -0.5 * jnp.sum((X - m) ** 2, axis=1),
        )
        mean = mean + updates
    assert jnp.linalg.norm(mean) < 1
