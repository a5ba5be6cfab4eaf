import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.sparse.linalg import ArpackNoConvergence

from wng.estimator import spectrum
from wng.estimator.spectrum import hessian_vector_product, leading_eigenvalues


def network(seed: int, dtype=jnp.float32):
    """A loss of a small tanh network, and its parameters."""
    keys = jax.random.split(jax.random.key(seed), 5)
    params = {
        "in": jax.random.normal(keys[0], (3, 8), dtype),
        "bias": jax.random.normal(keys[1], (8,), dtype),
        "out": jax.random.normal(keys[2], (8, 2), dtype),
    }
    x = jax.random.normal(keys[3], (50, 3), dtype)
    y = jax.random.normal(keys[4], (50, 2), dtype)

    def loss(params):
        return jnp.mean((jnp.tanh(x @ params["in"] + params["bias"]) @ params["out"] - y) ** 2)

    return loss, params


def dense(loss, params) -> np.ndarray:
    flat, unravel = ravel_pytree(params)
    hessian = jax.jit(jax.hessian(lambda theta: loss(unravel(theta))))
    return np.asarray(hessian(flat), np.float64)


def by_size(eigenvalues: np.ndarray) -> np.ndarray:
    return eigenvalues[np.argsort(-np.abs(eigenvalues))]


@pytest.mark.parametrize("seed", range(4))
def test_of_a_small_network_are_those_of_its_dense_hessian(seed: int) -> None:
    loss, params = network(seed)
    product, size = hessian_vector_product(loss, params)
    found = leading_eigenvalues(product, size, 20)
    exact = by_size(np.linalg.eigvalsh(dense(loss, params)))
    assert size == len(exact) == 48
    assert (np.diff(np.abs(found)) <= 0).all()
    np.testing.assert_allclose(found, exact[:20], rtol=1e-3, atol=1e-4 * abs(exact[0]))


def test_in_float64_to_many_digits(x64: None) -> None:
    loss, params = network(0, jnp.float64)
    product, size = hessian_vector_product(loss, params)
    exact = by_size(np.linalg.eigvalsh(dense(loss, params)))
    found = leading_eigenvalues(product, size, 10, tolerance=1e-12)
    np.testing.assert_allclose(found, exact[:10], rtol=1e-9)


def test_products_are_those_with_the_dense_hessian() -> None:
    loss, params = network(1)
    product, size = hessian_vector_product(loss, params)
    v = np.random.default_rng(0).standard_normal(size)
    np.testing.assert_allclose(product(v), dense(loss, params) @ v, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "diagonal",
    [
        np.linspace(-3, 5, 100),
        np.r_[7.0, 6.999, 6.998, -6.997, np.linspace(-1, 1, 96)],  # close together
        np.r_[[4.0] * 5, [-4.0] * 2, [2.0] * 8, np.linspace(-1, 1, 85)],  # the same several times
        -np.logspace(6, -6, 60),
        np.r_[3.0, -2.0, np.zeros(58)],  # of low rank
    ],
    ids=["spread", "close", "repeated", "negative", "low-rank"],
)
def test_known_spectra(diagonal: np.ndarray) -> None:
    order = np.random.default_rng(1).permutation(len(diagonal))
    found = leading_eigenvalues(lambda v: diagonal[order] * v, len(diagonal), 10, 1e-8)
    exact = by_size(diagonal)[:10]
    np.testing.assert_allclose(np.abs(found), np.abs(exact), rtol=1e-6, atol=1e-8)
    if not np.isclose(exact[0], -exact[-1]):
        np.testing.assert_allclose(found.sum(), exact.sum(), rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 5, 6, 7])
def test_no_more_than_there_are(size: int) -> None:
    diagonal = np.arange(1.0, size + 1) * (-1) ** np.arange(size)
    found = leading_eigenvalues(lambda v: diagonal * v, size, 5)
    np.testing.assert_allclose(found, by_size(diagonal)[:5], rtol=1e-6)


@pytest.mark.parametrize("size", [3, 100])
def test_of_nothing_are_zero(size: int) -> None:
    found = leading_eigenvalues(lambda v: 0 * v, size, 4)
    np.testing.assert_array_equal(found, np.zeros(min(size, 4)))


def test_the_same_seed_gives_the_same_numbers() -> None:
    product, size = hessian_vector_product(*network(2))
    found = [leading_eigenvalues(product, size, 5, seed=seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[2], found[0], rtol=1e-3)


@pytest.mark.parametrize("size", [3, 100])
def test_what_is_not_finite_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="is not finite"):
        leading_eigenvalues(lambda v: v * np.nan, size, 4)


def test_what_converged_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(found):
        def eigsh(*args, **kwargs):
            raise ArpackNoConvergence("too slow", np.array(found), None)

        monkeypatch.setattr(spectrum, "eigsh", eigsh)
        return leading_eigenvalues(lambda v: v, 100, 4)

    np.testing.assert_array_equal(stops([1.0, -3.0]), [-3.0, 1.0])
    with pytest.raises(ValueError, match="no eigenvalue of the operator converged"):
        stops([])


def test_bad_input_is_refused() -> None:
    loss, params = network(0)
    with pytest.raises(ValueError, match="number must be a whole number, at least 1"):
        leading_eigenvalues(lambda v: v, 10, 0)
    with pytest.raises(ValueError, match=r"a single number, got shape \[3, 8\]"):
        hessian_vector_product(lambda p: p["in"], params)
    with pytest.raises(ValueError, match="flat with 48 entries"):
        hessian_vector_product(loss, params)[0](jnp.ones(3))
