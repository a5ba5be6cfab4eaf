import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wng.evolution.fitness import Sample, centered_ranks, es_gradient, standardized, utilities
from wng.evolution.members import Noise

ALL = jnp.ones(5, bool)


def test_standardized_by_hand() -> None:
    values = jnp.array([1.0, 2.0, 3.0, 4.0, 10.0])
    expected = (np.array(values) - 4) / np.std([1, 2, 3, 4, 10])
    np.testing.assert_allclose(standardized(values, ALL), expected, rtol=1e-6)


def test_members_left_out_do_not_count() -> None:
    values = jnp.array([1.0, jnp.nan, 3.0, jnp.inf, 5.0])
    kept = jnp.isfinite(values)
    found = standardized(values, kept)
    expected = (np.array([1, 3, 5]) - 3) / np.std([1, 3, 5])
    np.testing.assert_allclose(found[kept], expected, rtol=1e-6)
    np.testing.assert_array_equal(found[~kept], 0)
    ranks = centered_ranks(values, kept)
    np.testing.assert_allclose(ranks, [-0.5, 0, 0, 0, 0.5])


@pytest.mark.parametrize("value", [0.0, 3.1e6, -7.3])
def test_equal_returns_say_nothing(value: float) -> None:
    values = jnp.full(5, value)
    np.testing.assert_array_equal(standardized(values, ALL), 0)
    np.testing.assert_array_equal(centered_ranks(values, ALL), 0)


def test_differences_at_the_level_of_rounding_say_nothing() -> None:
    values = jnp.array([1e6, np.nextafter(np.float32(1e6), np.float32(2e6)), 1e6, 1e6, 1e6])
    np.testing.assert_array_equal(standardized(values, ALL), 0)


def test_ranks_ignore_the_scale_and_share_ties() -> None:
    values = jnp.array([5.0, -1e9, 5.0, 7.0, 1e30])
    np.testing.assert_allclose(centered_ranks(values, ALL), [-0.125, -0.5, -0.125, 0.25, 0.5])


def test_utilities_by_hand() -> None:
    """Of five, ln(5/2 + 1) − ln k is positive for the first three; ties share a place."""
    raw = np.maximum(0, np.log(3.5) - np.log([1, 2, 3, 4, 5]))
    expected = raw / raw.mean() - 1
    values = jnp.array([50.0, 7.0, -1e9, 6.0, 1e30])
    found = utilities(values, ALL)
    np.testing.assert_allclose(found, expected[[1, 2, 4, 3, 0]], rtol=1e-5)
    np.testing.assert_allclose(found.mean(), 0, atol=1e-6)
    tied = utilities(jnp.array([1.0, 1.0, 0.0, 0.0, 0.0]), ALL)
    assert tied[0] == tied[1] > 0 > tied[2] == tied[4]
    np.testing.assert_array_equal(utilities(jnp.ones(5), ALL), 0)
    wide, kept = jnp.concatenate([values, jnp.full(3, jnp.nan)]), jnp.arange(8) < 5
    np.testing.assert_allclose(utilities(wide, kept), [*found, 0, 0, 0], rtol=1e-6)


def gradient(noise, fitness, sigma: float, kept=None) -> np.ndarray:
    kept = jnp.ones(len(noise), bool) if kept is None else kept
    rows = Noise(lambda first: noise, kept, len(noise))
    return es_gradient(Sample(fitness, rows, noise, kept, sigma), fitness)


def curvature(dim: int) -> np.ndarray:
    return np.diag(np.logspace(-2, 2, dim))  # condition number 1e4


def test_the_gradient_is_unbiased_on_an_ill_conditioned_quadratic() -> None:
    """E[F(θ+σε)] of F = −½xᵀAx + bᵀx has the gradient −Aθ + b whatever σ."""
    dim, sigma, number = 5, 0.3, 400_000
    theta, b = jnp.linspace(-1, 1, dim), jnp.arange(5.0)
    A = jnp.array(curvature(dim), jnp.float32)
    noise = sigma * jax.random.normal(jax.random.key(0), (number, dim))
    points = theta + noise
    values = -0.5 * jnp.einsum("ni,ij,nj->n", points, A, points) + points @ b
    fitness = values - values.mean()
    each = fitness[:, None] * noise / sigma**2
    error = gradient(noise, fitness, sigma) - (-A @ theta + b)
    scatter = np.std(np.array(each), axis=0) / number**0.5
    assert np.all(np.abs(error) < 4 * scatter)
    assert np.all(scatter < 0.3 * np.maximum(1, np.abs(-A @ theta + b)))  # it could have failed


def test_the_gradient_is_exact_where_the_noise_is_balanced() -> None:
    """±√p·σ·e_i: the second moment is σ²I without error, and antithetic pairs cancel the rest."""
    dim, sigma = 4, 0.1
    theta, b = jnp.arange(4.0), jnp.array([1.0, -2.0, 0.5, 3.0])
    A = jnp.array(curvature(dim), jnp.float32)
    axes = dim**0.5 * sigma * jnp.eye(dim)
    noise = jnp.concatenate([axes, -axes])
    points = theta + noise
    values = -0.5 * jnp.einsum("ni,ij,nj->n", points, A, points) + points @ b
    found = gradient(noise, values - values.mean(), sigma)
    np.testing.assert_allclose(found, -A @ theta + b, rtol=1e-3, atol=1e-2)


def test_members_left_out_do_not_shrink_the_gradient() -> None:
    noise = jnp.array([[1.0], [-1.0], [2.0], [-2.0]])
    kept = jnp.array([True, True, False, False])
    fitness = jnp.array([1.0, -1.0, 0.0, 0.0])
    np.testing.assert_allclose(gradient(noise, fitness, 1.0, kept), [1.0])
