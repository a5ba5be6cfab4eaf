from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import wng
from wng.estimator.metric import LowRank
from wng.estimator.precondition import precondition
from wng.estimator.transform import ScaleByMetricState

PARAMS = {"mean": jnp.array([0.5, -1.0]), "log_std": jnp.array([0.1, -0.4])}
GRADS = {"mean": jnp.array([1.0, 2.0]), "log_std": jnp.array([-1.0, 0.5])}
NOISE = jax.random.normal(jax.random.key(0), (64, 2))
KEY = jax.random.key(7)


def behavior_fn(params: Any) -> jax.Array:
    return params["mean"] + jnp.exp(params["log_std"]) * NOISE


BEHAVIORS = behavior_fn(PARAMS)


def log_prob_fn(params: Any) -> jax.Array:
    z = (BEHAVIORS - params["mean"]) / jnp.exp(params["log_std"])
    return jnp.sum(-0.5 * z**2 - params["log_std"], axis=1)


def flat(tree: Any) -> np.ndarray:
    return np.asarray(jax.flatten_util.ravel_pytree(tree)[0])


@pytest.mark.parametrize("form", ["reparam", "score"])
def test_update_is_the_metrics_solve(form: str) -> None:
    tx = wng.scale_by_wasserstein(num_basis=5, damping=1e-2)
    basis = wng.kernel_basis(KEY, BEHAVIORS, 5)
    if form == "reparam":
        extra: dict = {"behavior_fn": behavior_fn}
        J = wng.jacobian_reparam(basis, behavior_fn, PARAMS)
    else:
        extra = {"behaviors": BEHAVIORS, "log_prob_fn": log_prob_fn}
        J = wng.jacobian_score(basis, BEHAVIORS, log_prob_fn, PARAMS)
    updates, state = tx.update(GRADS, tx.init(PARAMS), PARAMS, key=KEY, **extra)
    expected = wng.WassersteinMetric(basis, BEHAVIORS, J).solve(flat(GRADS), 1e-2)
    np.testing.assert_allclose(flat(updates), expected, rtol=1e-5)
    assert jax.tree.structure(updates) == jax.tree.structure(PARAMS)
    assert state.epsilon == pytest.approx(1e-2)


def test_fixed_basis_needs_no_key_and_gives_the_closed_form() -> None:
    """Polynomial basis and standardized noise: Σ⁻¹ on log σ, 1 on μ."""
    centered = NOISE - NOISE.mean(axis=0)
    noise = jnp.linalg.solve(jnp.linalg.cholesky(centered.T @ centered / len(NOISE)), centered.T).T
    tx = wng.scale_by_wasserstein(basis=wng.polynomial_basis(2), damping=1e-6)
    updates, _ = tx.update(
        GRADS,
        tx.init(PARAMS),
        PARAMS,
        behavior_fn=lambda p: p["mean"] + jnp.exp(p["log_std"]) * noise,
    )
    mean, log_std = wng.estimator.gaussian.natural_gradient(
        "wasserstein", "log-diagonal", PARAMS["log_std"], GRADS["mean"], GRADS["log_std"]
    )
    np.testing.assert_allclose(updates["mean"], mean, rtol=1e-4)
    np.testing.assert_allclose(updates["log_std"], log_std, rtol=1e-4)


def quadratic(params: Any) -> jax.Array:
    return jnp.mean(jnp.sum((behavior_fn(params) - jnp.array([3.0, -4.0])) ** 2, axis=1))


# A metric diag(4, 1, 0) with its eigenvectors, and a gradient.
PLANTED = LowRank(jnp.eye(2, 3), jnp.array([4.0, 1.0]), None)
FLAT = jnp.array([1.0, 2.0, 3.0])


def test_precondition_by_hand() -> None:
    control = wng.Damping(0.5)
    result = precondition(control, control.init(), PLANTED, FLAT, value=jnp.array(1.0))
    np.testing.assert_allclose(result.direction, [1 / 4.5, 2 / 1.5, 3 / 0.5], rtol=1e-6)
    assert (result.epsilon, bool(result.finite), bool(result.fallback)) == (0.5, True, False)
    relative = wng.Damping(0.5, relative=True)
    result = precondition(relative, relative.init(), PLANTED, FLAT)
    np.testing.assert_allclose(result.direction, [1 / 6, 2 / 3, 3 / 2], rtol=1e-6)
    assert result.epsilon == 2.0


def test_precondition_without_a_measured_loss_leaves_epsilon_alone() -> None:
    control = wng.Damping(0.5, every=1)
    result = precondition(control, control.init(), PLANTED, FLAT, value=jnp.array(1.0))
    assert result.damping.value == 0.5
    bad = precondition(control, control.init(), PLANTED, FLAT, value=jnp.array(jnp.nan))
    assert bad.damping.value == pytest.approx(0.5 / 0.85)
    np.testing.assert_array_equal(bad.direction, 0)


def test_chains_with_clipping_adam_and_schedules_inside_jit_scan_and_vmap() -> None:
    schedule = optax.exponential_decay(0.3, 10, 0.8)
    tx = optax.chain(
        wng.scale_by_wasserstein(damping=wng.Damping(0.1, relative=True), refresh_every=2),
        optax.clip_by_global_norm(10.0),
        optax.scale_by_adam(),
        optax.scale_by_learning_rate(schedule),
    )

    def train(key: jax.Array) -> tuple[jax.Array, Any]:
        def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            params, state = carry
            loss, grads = jax.value_and_grad(quadratic)(params)
            updates, state = tx.update(grads, state, params, key=key, behavior_fn=behavior_fn)
            return (optax.apply_updates(params, updates), state), loss

        carry, losses = jax.lax.scan(step, (PARAMS, tx.init(PARAMS)), jax.random.split(key, 40))
        return losses, carry[1]

    losses, _ = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 3))
    assert losses.shape == (3, 40)
    assert (losses[:, -1] < 0.1 * losses[:, 0]).all()
    alone, _ = jax.jit(train)(jax.random.split(jax.random.key(0), 3)[1])
    np.testing.assert_allclose(losses[1], alone, rtol=1e-3)


def test_refresh_every_reuses_the_metric() -> None:
    tx = wng.scale_by_wasserstein(refresh_every=3, damping=1e-2)
    state, updates = tx.init(PARAMS), []
    for i in range(6):  # another key each time: a new basis shows as another update
        step, state = tx.update(
            GRADS, state, PARAMS, key=jax.random.key(i), behavior_fn=behavior_fn
        )
        updates.append(flat(step))
    for a, b, same in [(0, 1, True), (1, 2, True), (2, 3, False), (3, 4, True), (4, 5, True)]:
        assert np.array_equal(updates[a], updates[b]) is same


def test_adaptive_damping_moves_both_ways_on_the_same_batch() -> None:
    def run(step_size: float) -> ScaleByMetricState:
        control = wng.Damping(1e-2, every=1, step_size=step_size)
        tx = wng.scale_by_wasserstein(damping=control)
        value, grads = jax.value_and_grad(quadratic)(PARAMS)
        _, state = tx.update(
            grads,
            tx.init(PARAMS),
            PARAMS,
            key=KEY,
            behavior_fn=behavior_fn,
            value=value,
            value_fn=quadratic,
        )
        return state

    assert run(step_size=1e-3).damping.value == pytest.approx(1e-2 * 0.85)  # as promised
    assert run(step_size=10.0).damping.value == pytest.approx(1e-2 / 0.85)  # overshoots


def test_zero_gradient_gives_zero_and_moves_nothing() -> None:
    tx = wng.scale_by_wasserstein(damping=wng.Damping(1e-2, every=1))
    zero = jax.tree.map(jnp.zeros_like, GRADS)
    updates, state = tx.update(
        zero,
        tx.init(PARAMS),
        PARAMS,
        key=KEY,
        behavior_fn=behavior_fn,
        value=jnp.array(1.0),
        value_fn=quadratic,
    )
    np.testing.assert_array_equal(flat(updates), 0)
    assert state.damping.value == pytest.approx(1e-2)
    assert (state.skipped, state.fallbacks) == (0, 0)


def test_fallback_to_the_euclidean_gradient() -> None:
    """⟨g, g^W⟩ > 0 for any metric, so an indefinite one is planted in the state."""
    tx = wng.scale_by_wasserstein(refresh_every=2, damping=1e-3)
    _, state = tx.update(GRADS, tx.init(PARAMS), PARAMS, key=KEY, behavior_fn=behavior_fn)
    planted = LowRank(jnp.eye(4), -jnp.ones(4), None)
    updates, state = tx.update(
        GRADS, state._replace(metric=planted), PARAMS, key=KEY, behavior_fn=behavior_fn
    )
    np.testing.assert_array_equal(flat(updates), flat(GRADS))
    assert state.fallbacks == 1


def test_relative_damping_of_a_metric_that_sees_nothing_is_euclidean() -> None:
    tx = wng.scale_by_wasserstein(damping=wng.Damping(0.1, relative=True))
    updates, state = tx.update(
        GRADS, tx.init(PARAMS), PARAMS, key=KEY, behavior_fn=lambda p: BEHAVIORS
    )
    np.testing.assert_array_equal(flat(updates), flat(GRADS))
    assert state.fallbacks == 1


def test_half_precision_parameters_get_half_precision_updates() -> None:
    params, grads = (
        jax.tree.map(lambda x: x.astype(jnp.bfloat16), tree) for tree in (PARAMS, GRADS)
    )
    tx = wng.scale_by_wasserstein(damping=1e-2, refresh_every=2)
    updates, _ = tx.update(grads, tx.init(params), params, key=KEY, behavior_fn=behavior_fn)
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(updates))
    tx = wng.scale_by_wasserstein(damping=1e-2)
    full, _ = tx.update(GRADS, tx.init(PARAMS), PARAMS, key=KEY, behavior_fn=behavior_fn)
    np.testing.assert_allclose(flat(updates).astype(float), flat(full), rtol=0.05)


@pytest.mark.parametrize("refresh_every", [1, 3])
def test_non_finite_steps_are_dropped_counted_and_raise_epsilon(refresh_every: int) -> None:
    tx = wng.scale_by_wasserstein(damping=wng.Damping(1e-2, every=100), refresh_every=refresh_every)

    @jax.jit
    def update(grads: Any, state: Any, value: jax.Array, scale: jax.Array) -> Any:
        return tx.update(
            grads,
            state,
            PARAMS,
            key=KEY,
            behavior_fn=lambda p: behavior_fn(p) * scale,
            value=value,
            value_fn=quadratic,
        )

    one, nan = jnp.array(1.0), jnp.array(jnp.nan)
    bad_grads = {**GRADS, "mean": jnp.array([jnp.inf, 0.0])}
    state, epsilon = tx.init(PARAMS), 1e-2
    for count, (grads, value, scale) in enumerate(
        [(bad_grads, one, one), (GRADS, nan, one), (GRADS, one, nan)]
    ):
        if refresh_every > 1:  # let the third case meet a due refresh
            state = state._replace(age=jnp.zeros((), int))
        updates, state = update(grads, state, value, scale)
        epsilon /= 0.85
        np.testing.assert_array_equal(flat(updates), 0)
        assert state.skipped == count + 1
        assert state.damping.value == pytest.approx(epsilon)
    updates, state = update(GRADS, state, one, one)  # and it recovers
    assert np.isfinite(flat(updates)).all()
    assert (flat(updates) != 0).all()
    assert state.skipped == 3


def test_float32_parameters_stay_float32_when_float64_is_enabled(x64: None) -> None:
    params = jax.tree.map(lambda x: x.astype(jnp.float32), PARAMS)
    tx = wng.scale_by_wasserstein(damping=wng.Damping(0.1, relative=True))
    updates, _ = tx.update(params, tx.init(params), params, key=KEY, behavior_fn=behavior_fn)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(updates))


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("refresh_every", [1, 2])
def test_fewer_samples_than_basis_functions(samples: int, refresh_every: int) -> None:
    tx = wng.scale_by_wasserstein(refresh_every=refresh_every)
    updates, state = tx.update(
        GRADS, tx.init(PARAMS), PARAMS, key=KEY, behavior_fn=lambda p: behavior_fn(p)[:samples]
    )
    assert np.isfinite(flat(updates)).all()
    assert flat(updates) @ flat(GRADS) > 0
    assert (state.skipped, state.fallbacks) == (0, 0)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({}, "needs more arguments to update"),
        ({"key": KEY}, "needs more arguments to update"),
        ({"behavior_fn": behavior_fn}, "pass key="),
        ({"key": KEY, "behaviors": BEHAVIORS}, "log_prob_fn="),
        ({"key": KEY, "log_prob_fn": log_prob_fn}, "behaviors=X"),
        ({"key": KEY, "behavior_fn": behavior_fn, "behaviors": BEHAVIORS}, "contradictory"),
        ({"key": KEY, "behavior_fn": behavior_fn, "params": None}, "pass params"),
        ({"key": 0, "behavior_fn": behavior_fn}, "single JAX random key"),
        ({"key": KEY, "behavior_fn": BEHAVIORS}, "behavior_fn must be a function"),
        ({"key": KEY, "behavior_fn": lambda p: (BEHAVIORS, 1)}, "array of numbers"),
        ({"params": {**PARAMS, "mean": jnp.ones(3)}}, "same structure and shapes"),
    ],
)
def test_missing_and_contradictory_arguments_say_what_to_pass(extra: dict, message: str) -> None:
    tx = wng.scale_by_wasserstein()
    with pytest.raises(ValueError, match=message) as error:
        tx.update(GRADS, tx.init(PARAMS), **{"params": PARAMS, **extra})
    assert "\n" not in str(error.value)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="num_basis"):
        wng.scale_by_wasserstein(0)
    with pytest.raises(ValueError, match="refresh_every"):
        wng.scale_by_wasserstein(refresh_every=0)
    for damping in (-1.0, "auto", jnp.ones(2)):
        with pytest.raises(ValueError, match="damping must be a positive"):
            wng.scale_by_wasserstein(damping=damping)
    with pytest.raises(ValueError, match="bandwidth must be a positive"):
        wng.scale_by_wasserstein(bandwidth=-1.0)
    with pytest.raises(ValueError, match="basis must be a basis"):
        wng.scale_by_wasserstein(basis=wng.polynomial_basis)
    adaptive = wng.scale_by_wasserstein(damping=wng.Damping(every=5))
    with pytest.raises(ValueError, match="value=loss and value_fn"):
        adaptive.update(GRADS, adaptive.init(PARAMS), PARAMS, key=KEY, behavior_fn=behavior_fn)
    with pytest.raises(ValueError, match="loss alone"):
        adaptive.update(
            GRADS,
            adaptive.init(PARAMS),
            PARAMS,
            key=KEY,
            behavior_fn=behavior_fn,
            value=1,
            value_fn=lambda p: (quadratic(p), p),
        )
    whole = {"steps": jnp.arange(3)}
    with pytest.raises(ValueError, match="floating-point"):
        adaptive.update(whole, adaptive.init(whole), whole, key=KEY, behavior_fn=behavior_fn)
