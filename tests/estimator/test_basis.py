import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wng


def samples(n: int = 7, d: int = 3) -> jax.Array:
    return jax.random.normal(jax.random.key(1), (n, d)) * jnp.arange(1, d + 1) + 0.5


def test_kernel_values_are_the_derivative_of_the_gaussian_kernel(x64: None) -> None:
    X = samples()
    basis = wng.kernel_basis(jax.random.key(0), X, 5, bandwidth=1.7)

    def kernel(y: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.exp(-jnp.sum((x - y) ** 2) / (2 * 1.7**2))

    for m in range(5):
        expected = [jax.grad(kernel)(basis.centers[m], x)[basis.indices[m]] for x in X]
        np.testing.assert_allclose(basis.values(X)[m], jnp.stack(expected), rtol=1e-12)


@pytest.mark.parametrize("kind", ["kernel", "polynomial-1", "polynomial-2", "polynomial-3"])
def test_closed_form_gradients_equal_autodiff_of_the_values(x64: None, kind: str) -> None:
    X = samples()
    if kind == "kernel":
        basis = wng.kernel_basis(jax.random.key(0), X, 5)
    else:
        basis = wng.polynomial_basis(3, degree=int(kind[-1]))
    autodiff = jax.vmap(jax.jacobian(lambda x: basis.values(x[None])[:, 0]), out_axes=1)(X)
    assert basis.gradients(X).shape == (basis.size, 7, 3)
    np.testing.assert_allclose(basis.gradients(X), autodiff, rtol=1e-10, atol=1e-12)


def test_mean_distance_bandwidth_by_hand(x64: None) -> None:
    X = jnp.array([[0.0, 0.0], [3.0, 4.0]])  # both are centers: squared distances 0, 25, 25, 0
    basis = wng.kernel_basis(jax.random.key(0), X, 2)
    assert basis.bandwidth == pytest.approx(np.sqrt(12.5))


def test_centres_are_samples_without_repetition() -> None:
    X = samples(6, 2)
    basis = wng.kernel_basis(jax.random.key(3), X, 6)
    np.testing.assert_array_equal(np.sort(basis.centers, axis=0), np.sort(X, axis=0))
    assert set(np.asarray(basis.indices)) <= {0, 1}


def test_polynomial_basis_lists_the_monomials() -> None:
    X = jnp.array([[2.0, 3.0]])
    values = np.sort(np.asarray(wng.polynomial_basis(2, degree=2).values(X))[:, 0])
    np.testing.assert_array_equal(values, [2, 3, 4, 6, 9])  # x, y, x², xy, y²
    assert wng.polynomial_basis(4, degree=3).size == 34  # C(7, 3) − 1


def test_constant_samples_keep_a_finite_bandwidth() -> None:
    X = jnp.ones((8, 2))
    basis = wng.kernel_basis(jax.random.key(0), X, 3)
    assert basis.bandwidth == 1
    assert jnp.isfinite(basis.gradients(X)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k, X: wng.kernel_basis(k, X, 9), "without replacement"),
        (lambda k, X: wng.kernel_basis(k, X, 0), "num_basis must be a whole number, at least 1"),
        (lambda k, X: wng.kernel_basis(k, X[:, 0], 2), r"X\[:, None\]"),
        (lambda k, X: wng.kernel_basis(k, X[:0], 2), "non-empty"),
        (lambda k, X: wng.kernel_basis(k, X.at[0, 0].set(jnp.nan), 2), "NaN"),
        (lambda k, X: wng.kernel_basis(k, X, 2, bandwidth=-1.0), "bandwidth must be a positive"),
        (lambda k, X: wng.kernel_basis(k, X, 2).values(X[:, :1]), "made from samples with 3"),
        (lambda k, X: wng.polynomial_basis(2).values(X), "made for dim=2"),
        (lambda k, X: wng.polynomial_basis(0), "at least 1"),
        (lambda k, X: wng.kernel_basis(0, X, 2), "single JAX random key"),
        (lambda k, X: wng.kernel_basis(k, X, 2.0), "num_basis must be a whole number"),
        (
            lambda k, X: wng.kernel_basis(k, X, 2, bandwidth="median"),
            "bandwidth must be a positive",
        ),
        (lambda k, X: wng.kernel_basis(k, [[1.0], [1.0, 2.0]], 2), "array of numbers"),
        (lambda k, X: wng.kernel_basis(k, X * 1j, 2), "must be real"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        call(jax.random.key(0), samples())
    assert "\n" not in str(error.value)


def test_more_basis_functions_than_samples_with_replacement() -> None:
    assert wng.kernel_basis(jax.random.key(0), samples(), 9, replace=True).size == 9


@pytest.mark.parametrize(
    "make",
    [
        lambda key, X: wng.kernel_basis(key, X, 3),
        lambda key, X: wng.conditional_basis(key, X, 3, inputs=1),
    ],
)
def test_samples_that_are_known_inside_jit_are_checked_there(make) -> None:
    X = jnp.arange(10.0).reshape(5, 2)
    values = jax.jit(lambda key: make(key, X).values(X))(jax.random.key(0))
    np.testing.assert_allclose(values, make(jax.random.key(0), X).values(X), rtol=1e-5)
    bad = X.at[0].set(jnp.nan)
    with pytest.raises(ValueError, match="finite"):
        jax.jit(lambda key: make(key, bad).values(X))(jax.random.key(0))
