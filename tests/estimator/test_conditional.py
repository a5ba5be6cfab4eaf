import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wng

INPUTS = np.random.default_rng(0).normal(size=(12, 2))


def outputs(theta: jax.Array) -> jax.Array:
    """Two outputs that depend on the input, and one that does not: [12, 3]."""
    weight = theta[:4].reshape(2, 2)
    own = jnp.sin(INPUTS @ weight) + theta[4:6]
    return jnp.concatenate([own, jnp.full((12, 1), jnp.exp(theta[6]))], axis=1)


def behaviors(theta: jax.Array) -> jax.Array:
    return jnp.concatenate([jnp.asarray(INPUTS), outputs(theta)], axis=1)


def gauss_newton(theta: jax.Array) -> np.ndarray:
    """E_s[(∂y/∂θ)ᵀ(∂y/∂θ)]."""
    J = np.asarray(jax.jacobian(outputs)(theta)).reshape(-1, theta.size)
    return J.T @ J / len(INPUTS)


def metric(theta: jax.Array, num_basis: int, constant: int = 1) -> wng.WassersteinMetric:
    X = behaviors(theta)
    basis = wng.conditional_basis(jax.random.key(1), X, num_basis, inputs=2, constant=constant)
    return wng.WassersteinMetric(basis, X, wng.jacobian_reparam(basis, behaviors, theta))


THETA = jnp.linspace(-0.6, 0.8, 7)


@pytest.mark.parametrize(("constant", "size"), [(0, 18), (1, 19)])
def test_gradients_are_those_of_the_values_with_the_inputs_held_fixed(
    x64: None, constant: int, size: int
) -> None:
    X = behaviors(THETA)
    basis = wng.conditional_basis(jax.random.key(0), X, 20, inputs=2, constant=constant)
    assert basis.size == size  # 3 + 5·3, and 3 + 8·2
    autodiff = jax.vmap(jax.jacobian(lambda x: basis.values(x[None])[:, 0]), out_axes=1)(X)
    assert np.abs(autodiff[..., :2]).max() > 0.1
    np.testing.assert_array_equal(basis.gradients(X)[..., :2], 0)
    np.testing.assert_allclose(basis.gradients(X)[..., 2:], autodiff[..., 2:], rtol=1e-10)


def test_as_many_centers_as_samples_give_the_gauss_newton_matrix(x64: None) -> None:
    theta = THETA.astype(float)
    np.testing.assert_allclose(metric(theta, 27).dense(), gauss_newton(theta), rtol=1e-6, atol=1e-9)


def test_fewer_centers_see_less_of_it_and_never_more(x64: None) -> None:
    theta, u = THETA.astype(float), jnp.asarray(np.random.default_rng(1).normal(size=7))
    exact = u @ gauss_newton(theta) @ u
    shares = [float(metric(theta, size).quadratic(u) / exact) for size in (3, 7, 15, 27)]
    assert shares[0] < 0.9
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1, abs=1e-6)


def test_an_output_that_does_not_depend_on_the_input_needs_no_center(x64: None) -> None:
    theta = THETA.astype(float)
    smallest = metric(theta, 3).dense()
    assert smallest[6, 6] == pytest.approx(float(jnp.exp(2 * theta[6])))
    np.testing.assert_allclose(smallest[6, :6], 0, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_basis": 2, "inputs": 2}, "fewer than one function for each of the 3 outputs"),
        ({"num_basis": 9, "inputs": 5}, "leaves no outputs"),
        ({"num_basis": 9, "inputs": 0}, "inputs must be a whole number, at least 1"),
        ({"num_basis": 9, "inputs": 2, "constant": 3}, "must be fewer than the 3 outputs"),
    ],
)
def test_mistakes_are_explained(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wng.conditional_basis(jax.random.key(0), behaviors(THETA), **arguments)


def test_behaviors_of_another_size_are_refused() -> None:
    X = behaviors(THETA)
    basis = wng.conditional_basis(jax.random.key(0), X, 9, inputs=2)
    with pytest.raises(ValueError, match="2 inputs and 3 outputs"):
        basis.values(X[:, :4])
