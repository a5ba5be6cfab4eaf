import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wng.estimator.damping import Damping
from wng.estimator.krylov import krylov_metric
from wng.estimator.precondition import precondition

P = 40


def matrix(eigenvalues: np.ndarray, seed: int = 0) -> np.ndarray:
    """A symmetric matrix with these eigenvalues and random eigenvectors."""
    Q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(P, P)))
    return (Q * eigenvalues) @ Q.T


def gradient(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=P)


def restricted(G: np.ndarray, g: np.ndarray, size: int):
    G32 = jnp.asarray(G, jnp.float32)
    return jax.jit(lambda g: krylov_metric(lambda v: G32 @ v, g, size))(jnp.asarray(g, jnp.float32))


@pytest.mark.parametrize("epsilon", [1.0, 0.01])
def test_a_whole_space_solves_like_the_dense_matrix(epsilon: float) -> None:
    G, g = matrix(np.geomspace(1, 1e-3, P)), gradient()
    found = restricted(G, g, P)
    expected = np.linalg.solve(G + epsilon * np.eye(P), g)
    np.testing.assert_allclose(found.solve(g, epsilon), expected, rtol=0.02)
    assert found.largest_eigenvalue == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("size", [1, 3, 10])
def test_a_small_space_solves_like_as_many_conjugate_gradient_iterations(size: int) -> None:
    G, g = matrix(np.geomspace(1, 1e-4, P)), gradient()
    A = G + 0.01 * np.eye(P)
    x, residual, v = np.zeros(P), g.copy(), g.copy()
    for _ in range(size):
        length = residual @ residual / (v @ A @ v)
        x, left = x + length * v, residual - length * (A @ v)
        v, residual = left + (left @ left) / (residual @ residual) * v, left
    found = restricted(G, g, size)
    np.testing.assert_allclose(found.solve(g, 0.01), x, rtol=1e-3, atol=1e-4 * np.abs(x).max())


def test_ten_products_come_close_to_the_largest_eigenvalue() -> None:
    found = restricted(matrix(np.geomspace(1, 1e-4, P)), gradient(), 10)
    assert 0.99 < found.largest_eigenvalue < 1.00001


@pytest.mark.parametrize("rank", [1, 3])
def test_a_space_that_closes_early_is_used_as_it_is(rank: int) -> None:
    G, g = matrix(np.r_[np.arange(rank, 0, -1), np.zeros(P - rank)]), gradient()
    found = restricted(G, g, 12)
    expected = np.linalg.solve(G + 0.1 * np.eye(P), g)
    np.testing.assert_allclose(found.solve(g, 0.1), expected, rtol=1e-3, atol=1e-4)
    kept = np.asarray(found.directions @ found.directions.T)
    np.testing.assert_allclose(kept[np.abs(kept) > 1e-4], 1, atol=1e-5)  # of the identity
    assert (np.diag(kept) > 0.5).sum() <= rank + 1


def test_a_zero_gradient_or_metric_gives_zero_and_no_nan() -> None:
    G = matrix(np.geomspace(1, 1e-3, P))
    assert not np.any(restricted(G, np.zeros(P), 5).solve(jnp.zeros(P), 0.1))
    found = restricted(0 * G, gradient(), 5)
    assert found.largest_eigenvalue == 0
    np.testing.assert_allclose(found.solve(gradient(), 0.1), gradient() / 0.1, rtol=1e-5)


@pytest.mark.parametrize("bad", [0, 3])
@pytest.mark.parametrize("relative", [False, True])
def test_a_metric_that_is_not_finite_is_dropped(bad: int, relative: bool) -> None:
    """From the first product on, or from a later one on: a NaN in one parameter."""
    G = np.diag(np.geomspace(1, 0.01, P))
    G[bad, bad] = np.nan
    g = np.zeros(P)
    g[0] = 1.0
    if bad:  # g meets it only through a product
        G[0, 1] = G[1, 0] = G[1, bad] = G[bad, 1] = 0.1
    control = Damping(0.1, relative=relative)
    found = precondition(control, control.init(), Counted(G, 8), jnp.asarray(g, jnp.float32))
    assert not found.finite
    assert not found.direction.any()
    assert not found.fallback


def test_small_eigenvalues_beside_a_large_one_count(x64: None) -> None:
    G, g = matrix(np.r_[1e3, np.linspace(1e-3, 5e-3, P - 1)]), gradient()
    found = krylov_metric(lambda v: jnp.asarray(G) @ v, jnp.asarray(g), 10)
    expected = np.linalg.solve(G + 1e-3 * np.eye(P), g)
    error = np.linalg.norm(found.solve(jnp.asarray(g), 1e-3) - expected)
    assert error < 1e-3 * np.linalg.norm(expected)


def test_half_precision_is_decomposed_in_single() -> None:
    g = jnp.asarray(gradient(), jnp.bfloat16)
    found = krylov_metric(lambda v: 2 * v, g, 5)
    assert found.largest_eigenvalue == pytest.approx(2, rel=1e-2)


class Counted:
    """A matrix-free metric that counts its restrictions, and is never solved whole."""

    def __init__(self, G: np.ndarray, size: int):
        self.G, self.size, self.restrictions = jnp.asarray(G, jnp.float32), size, 0

    def restricted(self, g: jax.Array):
        self.restrictions += 1
        return krylov_metric(lambda v: self.G @ v, g, self.size)

    @property
    def largest_eigenvalue(self) -> jax.Array:
        return self.restricted(jnp.ones(P)).largest_eigenvalue

    def solve(self, g: jax.Array, damping: jax.Array) -> jax.Array:
        return self.restricted(g).solve(g, damping)


def test_relative_damping_takes_no_products_of_its_own() -> None:
    G, g = matrix(np.geomspace(5, 0.01, P)), gradient()
    control, metric = Damping(0.1, relative=True), Counted(G, P)
    found = precondition(control, control.init(), metric, jnp.asarray(g, jnp.float32))
    assert metric.restrictions == 1
    assert found.epsilon == pytest.approx(0.5, rel=1e-4)
    expected = np.linalg.solve(G + 0.5 * np.eye(P), g)
    np.testing.assert_allclose(found.direction, expected, rtol=1e-3, atol=1e-4)


def test_momentum_solves_for_its_own_right_hand_side() -> None:
    G, g, last = matrix(np.geomspace(5, 0.01, P)), gradient(), gradient(2)
    control, metric = Damping(0.5), Counted(G, P)
    found = precondition(
        control,
        control.init(),
        metric,
        jnp.asarray(g, jnp.float32),
        previous=jnp.asarray(last, jnp.float32),
    )
    expected = np.linalg.solve(G + 0.5 * np.eye(P), g + 0.5 * last)
    np.testing.assert_allclose(found.direction, expected, rtol=1e-3, atol=1e-4)
