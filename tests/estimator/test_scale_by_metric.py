"""`wng.scale_by_metric` with metrics of one's own."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import wng

PARAMS = {"mean": jnp.array([0.5, -1.0]), "log_std": jnp.array([0.1, -0.4])}
GRADS = {"mean": jnp.array([1.0, 2.0]), "log_std": jnp.array([-1.0, 0.5])}
A = np.random.default_rng(0).normal(size=(4, 3))
G = jnp.asarray(A @ A.T)  # of rank 3


class Dense(eqx.Module):
    """A metric in full."""

    matrix: jax.Array

    @property
    def largest_eigenvalue(self) -> jax.Array:
        return jnp.linalg.eigvalsh(self.matrix)[-1]

    def solve(self, g: jax.Array, damping: jax.Array) -> jax.Array:
        return jnp.linalg.solve(self.matrix + damping * jnp.eye(g.size), g)


def flat(tree: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(tree)[0], np.float64)


def natural(matrix: Any, epsilon: float) -> np.ndarray:
    return np.linalg.solve(np.asarray(matrix, np.float64) + epsilon * np.eye(4), flat(GRADS))


@pytest.mark.parametrize("relative", [False, True], ids=["fixed", "relative"])
def test_an_update_is_the_damped_dense_solve(relative: bool) -> None:
    tx = wng.scale_by_metric(wng.Damping(0.1, relative=relative))
    epsilon = 0.1 * (float(np.linalg.eigvalsh(G)[-1]) if relative else 1)
    updates, state = jax.jit(
        lambda grads, state: tx.update(grads, state, PARAMS, metric_fn=lambda _: Dense(G))
    )(GRADS, tx.init(PARAMS))
    np.testing.assert_allclose(flat(updates), natural(G, epsilon), rtol=1e-4)
    assert jax.tree.structure(updates) == jax.tree.structure(PARAMS)
    assert state.epsilon == pytest.approx(epsilon, rel=1e-5)
    assert (state.fallbacks, state.skipped, state.metric) == (0, 0, None)


@pytest.mark.parametrize("scale", [0.0, 1e-37, 1e-33])
def test_a_metric_that_vanishes_leaves_the_gradient(scale: float) -> None:
    """As when a policy has become deterministic: ε, a share of λ_max, would underflow to zero."""
    tx = wng.scale_by_metric(wng.Damping(0.005, relative=True))
    metric = Dense(scale * jnp.diag(jnp.array([1.0, 0.0, 0.0, 0.0])))
    updates, state = tx.update(GRADS, tx.init(PARAMS), PARAMS, metric_fn=lambda _: metric)
    np.testing.assert_array_equal(flat(updates), flat(GRADS))
    assert (state.fallbacks, state.skipped) == (1, 0)


def test_the_metric_is_taken_at_the_parameters() -> None:
    tx = wng.scale_by_metric(0.1)
    updates, _ = tx.update(
        GRADS,
        tx.init(PARAMS),
        PARAMS,
        metric_fn=lambda params: Dense(jnp.diag(ravel_pytree(params)[0] ** 2)),
    )
    np.testing.assert_allclose(flat(updates), flat(GRADS) / (flat(PARAMS) ** 2 + 0.1), rtol=1e-5)


def test_refresh_every_reuses_the_metric() -> None:
    tx = wng.scale_by_metric(0.1, 3, empty=lambda params: Dense(jnp.zeros((4, 4))))

    @jax.jit
    def update(state: Any, scale: jax.Array) -> Any:
        return tx.update(GRADS, state, PARAMS, metric_fn=lambda _: Dense(scale * G))

    state = tx.init(PARAMS)
    for number, used in enumerate([1, 1, 1, 4, 4, 4, 7]):
        updates, state = update(state, jnp.asarray(number + 1.0))
        np.testing.assert_allclose(flat(updates), natural(used * G, 0.1), rtol=1e-4)
        np.testing.assert_allclose(state.metric.matrix, used * G, rtol=1e-6)


def test_a_metric_that_is_not_finite_is_dropped_and_replaced_at_once() -> None:
    tx = wng.scale_by_metric(0.1, 3, empty=lambda params: Dense(jnp.zeros((4, 4))))
    state = tx.init(PARAMS)
    bad, state = tx.update(GRADS, state, PARAMS, metric_fn=lambda _: Dense(jnp.nan * G))
    np.testing.assert_array_equal(flat(bad), 0)
    assert state.skipped == 1
    good, state = tx.update(GRADS, state, PARAMS, metric_fn=lambda _: Dense(G))
    np.testing.assert_allclose(flat(good), natural(G, 0.1), rtol=1e-4)
    assert state.skipped == 1


def test_a_metric_that_points_uphill_gives_way_to_the_gradient() -> None:
    tx = wng.scale_by_metric(0.1)
    updates, state = tx.update(
        GRADS, tx.init(PARAMS), PARAMS, metric_fn=lambda _: Dense(-jnp.eye(4))
    )
    np.testing.assert_array_equal(flat(updates), flat(GRADS))
    assert state.fallbacks == 1


@pytest.mark.parametrize("refresh_every", [1, 2])
def test_scale_by_wasserstein_is_scale_by_metric_with_the_kernel_metric(refresh_every) -> None:
    noise, damping = jax.random.normal(jax.random.key(0), (64, 2)), wng.Damping(0.1, relative=True)

    def behavior_fn(params: Any) -> jax.Array:
        return params["mean"] + jnp.exp(params["log_std"]) * noise

    def estimate(params: Any, key: jax.Array) -> Any:
        X = behavior_fn(params)
        basis = wng.kernel_basis(key, X, 5)
        J = wng.jacobian_reparam(basis, behavior_fn, params)
        return wng.WassersteinMetric(basis, X, J).spectrum

    ours = wng.scale_by_wasserstein(5, damping, refresh_every=refresh_every)
    general = wng.scale_by_metric(
        damping,
        refresh_every,
        empty=lambda params: wng.estimator.LowRank.empty(4, 5, jnp.float32),
    )
    states = [ours.init(PARAMS), general.init(PARAMS)]
    for number in range(3):
        key = jax.random.key(number)
        one, states[0] = ours.update(GRADS, states[0], PARAMS, key=key, behavior_fn=behavior_fn)
        other, states[1] = general.update(
            GRADS, states[1], PARAMS, metric_fn=lambda params, key=key: estimate(params, key)
        )
        np.testing.assert_array_equal(flat(one), flat(other))
    jax.tree.map(np.testing.assert_array_equal, *states)


def test_it_trains_in_a_chain() -> None:
    """Newton's method: a Hessian that conditions badly is no obstacle."""
    hessian = jnp.diag(jnp.array([1e-2, 1.0, 1e2]))
    tx = optax.chain(wng.scale_by_metric(1e-6), optax.sgd(1.0))
    x = jnp.array([3.0, -2.0, 1.0])
    updates, _ = tx.update(hessian @ x, tx.init(x), x, metric_fn=lambda _: Dense(hessian))
    np.testing.assert_allclose(optax.apply_updates(x, updates), 0, atol=1e-3)


def test_what_is_missing_is_one_clear_sentence() -> None:
    tx = wng.scale_by_metric()
    for arguments, message in [
        ((GRADS, tx.init(PARAMS), PARAMS), r"needs the metric: pass metric_fn=… to update\(\)"),
        ((GRADS, tx.init(PARAMS)), r"needs the parameters: pass params to update\(\)"),
    ]:
        with pytest.raises(ValueError, match=message) as error:
            tx.update(*arguments)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="pass empty=params ↦ a metric of the right shapes"):
        wng.scale_by_metric(refresh_every=2)
    with pytest.raises(ValueError, match="refresh_every"):
        wng.scale_by_metric(refresh_every=0)
    with pytest.raises(ValueError, match="damping must be a positive"):
        wng.scale_by_metric(-1.0)
    adaptive = wng.scale_by_metric(wng.Damping(every=5))
    with pytest.raises(ValueError, match="value=loss and value_fn"):
        adaptive.update(GRADS, adaptive.init(PARAMS), PARAMS, metric_fn=lambda _: Dense(G))
