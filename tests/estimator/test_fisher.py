import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wng

PARAMS = {"mean": jnp.array([0.5, -1.0]), "log_std": jnp.array([0.1, -0.4])}


def log_prob_fn(n: int):
    X = PARAMS["mean"] + jnp.exp(PARAMS["log_std"]) * jax.random.normal(jax.random.key(0), (n, 2))

    def fn(params):
        z = (X - params["mean"]) / jnp.exp(params["log_std"])
        return jnp.sum(-0.5 * z**2 - params["log_std"], axis=1)

    return fn


def test_product_converges_to_the_closed_form() -> None:
    """For a Gaussian in (log σ, μ): F = diag(2, 1/σ²)."""
    exact = np.concatenate([[2, 2], np.exp(-2 * np.asarray(PARAMS["log_std"]))])
    columns = [wng.fisher_vector_product(log_prob_fn(200_000), PARAMS, e) for e in jnp.eye(4)]
    np.testing.assert_allclose(jnp.stack(columns), np.diag(exact), atol=0.05)


def test_product_equals_the_dense_sum_of_score_outer_products(x64: None) -> None:
    params = jax.tree.map(lambda x: x.astype(float), PARAMS)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    fn = log_prob_fn(50)
    scores = jax.jacobian(lambda t: fn(unravel(t)))(flat)
    v = jnp.array([1.0, -2.0, 0.5, 3.0])
    np.testing.assert_allclose(
        wng.fisher_vector_product(fn, params, v), scores.T @ (scores @ v) / 50, rtol=1e-10
    )


@pytest.mark.parametrize("damping", [1e-4, 1.0, 1e3])
def test_solve_equals_the_dense_inverse(x64: None, damping: float) -> None:
    params = jax.tree.map(lambda x: x.astype(float), PARAMS)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    fn = log_prob_fn(50)
    scores = np.asarray(jax.jacobian(lambda t: fn(unravel(t)))(flat))
    g = jnp.array([1.0, -2.0, 0.5, 3.0])
    dense = np.linalg.solve(scores.T @ scores / 50 + damping * np.eye(4), g)
    answer = wng.fisher_solve(fn, params, g, damping, tolerance=1e-12)
    np.testing.assert_allclose(answer, dense, rtol=1e-8)


def test_bad_input_is_refused() -> None:
    fn = log_prob_fn(50)
    with pytest.raises(ValueError, match="damping must be a positive"):
        wng.fisher_solve(fn, PARAMS, jnp.ones(4), -1.0)
    with pytest.raises(ValueError, match="flat with 4 entries"):
        wng.fisher_vector_product(fn, PARAMS, jnp.ones(3))
    with pytest.raises(ValueError, match=r"shape \[samples\]"):
        wng.fisher_vector_product(lambda p: p["mean"].sum(), PARAMS, jnp.ones(4))
    with pytest.raises(ValueError, match="array of numbers"):
        wng.fisher_solve(fn, PARAMS, PARAMS)
    with pytest.raises(ValueError, match="g contains a NaN"):
        wng.fisher_solve(fn, PARAMS, jnp.ones(4) * jnp.nan)
