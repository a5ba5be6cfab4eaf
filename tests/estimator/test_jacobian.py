import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wng

PARAMS = {"mean": jnp.array([0.5, -1.0]), "log_std": jnp.array([0.1, -0.4])}


def reparameterized(noise: jax.Array):
    return lambda params: params["mean"] + jnp.exp(params["log_std"]) * noise


def log_prob(X: jax.Array):
    def fn(params):
        z = (X - params["mean"]) / jnp.exp(params["log_std"])
        return jnp.sum(-0.5 * z**2 - params["log_std"], axis=1)

    return fn


def gaussian_monomial_jacobian() -> np.ndarray:
    """∇ of E[x], E[y], E[x²], E[xy], E[y²], by hand; columns log_std (2), mean (2)."""
    (mx, my), (sx, sy) = np.asarray(PARAMS["mean"]), np.exp(np.asarray(PARAMS["log_std"]))
    return np.array(
        [
            [2 * sx**2, 0, 2 * mx, 0],  # x²
            [0, 0, my, mx],  # xy
            [0, 0, 1, 0],  # x
            [0, 2 * sy**2, 0, 2 * my],  # y²
            [0, 0, 0, 1],  # y
        ]
    )


def test_reparam_and_score_converge_to_the_closed_form_as_one_over_root_n() -> None:
    basis, exact = wng.polynomial_basis(2), gaussian_monomial_jacobian()

    def errors(num_samples: int) -> np.ndarray:
        def one(key):
            noise = jax.random.normal(key, (num_samples, 2))
            X = reparameterized(noise)(PARAMS)
            reparam = wng.jacobian_reparam(basis, reparameterized(noise), PARAMS)
            score = wng.jacobian_score(basis, X, log_prob(X), PARAMS)
            return jnp.array([jnp.linalg.norm(reparam - exact), jnp.linalg.norm(score - exact)])

        squared = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(num_samples), 64)) ** 2
        return np.sqrt(np.mean(np.asarray(squared), axis=0))

    few, many = errors(100), errors(100 * 64)
    rate = np.log(few / many) / np.log(64)
    np.testing.assert_allclose(rate, 0.5, atol=0.1)
    assert (many < 0.3).all()


def test_score_jacobian_is_unbiased_at_small_n(x64: None) -> None:
    basis, exact = wng.polynomial_basis(2), gaussian_monomial_jacobian()
    params = jax.tree.map(lambda x: x.astype(float), PARAMS)

    def one(key):
        X = reparameterized(jax.random.normal(key, (4, 2)))(params)
        return wng.jacobian_score(basis, X, log_prob(X), params)

    estimates = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 200_000))
    standard_error = estimates.std(axis=0) / np.sqrt(200_000)
    # Dividing by N = 4 instead of N − 1 would be off by a quarter of every entry.
    assert (np.abs(estimates.mean(axis=0) - exact) <= 4.5 * standard_error + 1e-12).all()


def test_importance_weights_make_samples_of_another_distribution_unbiased(x64: None) -> None:
    """X from N(μ', σ'²), weighted by q_θ/q: the closed form at θ. Without weights: nowhere near."""
    basis, exact = wng.polynomial_basis(2), gaussian_monomial_jacobian()
    params = jax.tree.map(lambda x: x.astype(float), PARAMS)
    other = {"mean": jnp.array([0.2, -0.8]), "log_std": jnp.array([0.3, -0.2])}

    def one(key):
        X = reparameterized(jax.random.normal(key, (2000, 2)))(other)
        weights = jnp.exp(log_prob(X)(params) - log_prob(X)(other))
        plain = wng.jacobian_score(basis, X, log_prob(X), params)
        return plain, wng.jacobian_score(basis, X, log_prob(X), params, weights)

    keys = jax.random.split(jax.random.key(0), 500)
    plain, weighted = jax.jit(lambda keys: jax.lax.map(one, keys))(keys)
    standard_error = weighted.std(axis=0) / np.sqrt(500)
    # The weighted mean as a baseline costs a bias of order 1/N, here below 0.005 everywhere.
    assert (np.abs(weighted.mean(axis=0) - exact) <= 4.5 * standard_error + 5e-3).all()
    assert np.abs(plain.mean(axis=0) - exact).max() > 0.3


def test_weights_of_one_change_nothing() -> None:
    basis = wng.polynomial_basis(2)
    X = reparameterized(jax.random.normal(jax.random.key(0), (20, 2)))(PARAMS)
    plain = wng.jacobian_score(basis, X, log_prob(X), PARAMS)
    ones = wng.jacobian_score(basis, X, log_prob(X), PARAMS, jnp.ones(20))
    np.testing.assert_allclose(ones, plain, rtol=1e-6)


def test_jacobian_columns_follow_ravel_pytree() -> None:
    basis = wng.polynomial_basis(2, degree=1)
    noise = jax.random.normal(jax.random.key(0), (50, 2))
    J = wng.jacobian_reparam(basis, reparameterized(noise), PARAMS)
    flat, unravel = jax.flatten_util.ravel_pytree(PARAMS)
    dense = jax.jacobian(lambda t: basis.values(reparameterized(noise)(unravel(t))).mean(1))(flat)
    np.testing.assert_allclose(J, dense, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("antithetic", [False, True])
def test_perturbation_is_exact_for_linear_behaviors_as_n_grows(x64: None, antithetic) -> None:
    """X = A θ̃ and h = x: E[h] = Aθ, so J = A whatever θ and σ are."""
    A = jax.random.normal(jax.random.key(0), (2, 3))
    theta, sigma = jnp.array([3.0, -1.0, 2.0]), 0.05
    basis = wng.polynomial_basis(2, degree=1)

    def error(num_samples: int) -> float:
        def one(key):
            noise = sigma * jax.random.normal(key, (num_samples, 3))
            if antithetic:
                noise = jnp.concatenate([noise[: num_samples // 2], -noise[: num_samples // 2]])
            J = wng.jacobian_perturbation(basis, (theta + noise) @ A.T, noise, sigma)
            return jnp.sum((J - A) ** 2)

        keys = jax.random.split(jax.random.key(num_samples), 32)
        return float(jnp.sqrt(jax.jit(jax.vmap(one))(keys).mean()))

    few, many = error(100), error(6400)
    assert np.log(few / many) / np.log(64) == pytest.approx(0.5, abs=0.1)
    assert many < 0.1


def test_bad_input_is_refused_in_one_sentence() -> None:
    basis = wng.polynomial_basis(2)
    X = jax.random.normal(jax.random.key(0), (6, 2))
    cases = [
        (lambda: wng.jacobian_reparam(basis, lambda p: X[:, 0], PARAMS), "behavior_fn"),
        (lambda: wng.jacobian_reparam(basis, lambda p: X, {"a": jnp.arange(3)}), "floating-point"),
        (lambda: wng.jacobian_reparam(basis, lambda p: X, {"f": jnp.tanh}), "floating-point"),
        (lambda: wng.jacobian_reparam(basis, lambda p: X, {}), "no arrays"),
        (lambda: wng.jacobian_reparam(basis, X, PARAMS), "behavior_fn must be a function"),
        (lambda: wng.jacobian_reparam(basis, lambda p: X > 0, PARAMS), "must be differentiable"),
        (lambda: wng.jacobian_score(basis, X, X[:, 0], PARAMS), "log_prob_fn must be a function"),
        (lambda: wng.jacobian_score(basis, X, lambda p: X, PARAMS), "log_prob_fn"),
        (lambda: wng.jacobian_score(basis, X, lambda p: X[:, 0] / 0, PARAMS), "infinity"),
        (
            lambda: wng.jacobian_score(basis, X, lambda p: X[:, 0], PARAMS, jnp.ones(5)),
            r"weights must have shape \[6\]",
        ),
        (lambda: wng.jacobian_perturbation(basis, X, X[:5], 0.1), "noise must have shape"),
        (lambda: wng.jacobian_perturbation(basis, X, X, 0.0), "sigma must be a positive"),
        (lambda: wng.jacobian_perturbation(basis, X, X.at[1].set(jnp.inf), 0.1), "noise contains"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
