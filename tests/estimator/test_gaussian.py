import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wng.estimator import gaussian

MEAN, OTHER_MEAN = jnp.array([0.5, -1.0]), jnp.array([1.0, 0.5])
V = {"diagonal": jnp.array([0.4, 2.0]), "log-diagonal": jnp.array([-0.3, 0.5])}
GRID = list(itertools.product(["fisher", "wasserstein"], V))


def test_wasserstein_equals_the_sorted_coupling_of_quantiles(x64: None) -> None:
    """In one dimension the optimal coupling is monotone: W₂² = ∫(F⁻¹ − G⁻¹)²."""
    t = (jnp.arange(1_000_000) + 0.5) / 1_000_000
    q = jax.scipy.stats.norm.ppf(t)
    integral = jnp.mean(((0.5 + 0.6 * q) - (1.0 + 2.0 * q)) ** 2)
    closed = gaussian.wasserstein_squared(
        jnp.array([0.5]), jnp.array([0.36]), jnp.array([1.0]), jnp.array([4.0])
    )
    np.testing.assert_allclose(closed, integral, rtol=1e-4)


def test_kl_equals_its_integral(x64: None) -> None:
    x = jnp.linspace(-12, 12, 200_001)
    p = jax.scipy.stats.norm.logpdf(x, 0.5, 0.6)
    q = jax.scipy.stats.norm.logpdf(x, 1.0, 2.0)
    integral = jnp.trapezoid(jnp.exp(p) * (p - q), x)
    closed = gaussian.kl(jnp.array([0.5]), jnp.array([0.36]), jnp.array([1.0]), jnp.array([4.0]))
    np.testing.assert_allclose(closed, integral, rtol=1e-8)


@pytest.mark.parametrize(("geometry", "parameterization"), GRID)
def test_information_is_the_hessian_of_its_divergence(x64, geometry, parameterization) -> None:
    """W₂² = uᵀGu + … and KL = ½uᵀFu + …: G is half the Hessian of W₂², F the Hessian of KL."""
    theta = jnp.concatenate([MEAN, V[parameterization]]).astype(float)

    def divergence(other: jax.Array) -> jax.Array:
        here, there = ((t[:2], gaussian.variance(t[2:], parameterization)) for t in (theta, other))
        if geometry == "fisher":
            return gaussian.kl(*here, *there)
        return gaussian.wasserstein_squared(*here, *there) / 2

    exact = jax.hessian(divergence)(theta)
    diagonal = jnp.concatenate(gaussian.information(geometry, parameterization, theta[2:]))
    np.testing.assert_allclose(jnp.diag(diagonal), exact, atol=1e-9)


@pytest.mark.parametrize(
    ("geometry", "parameterization", "factors"),
    [
        ("euclidean", "diagonal", lambda s: (1, 1)),
        ("wasserstein", "diagonal", lambda s: (1, 4 * s)),
        ("fisher", "diagonal", lambda s: (s, 2 * s**2)),
        ("wasserstein", "log-diagonal", lambda s: (1, 1 / s)),
        ("fisher", "log-diagonal", lambda s: (s, 0.5)),
    ],
)
def test_natural_gradients_are_the_papers(geometry, parameterization, factors) -> None:
    v = V[parameterization]
    sigma = v if parameterization == "diagonal" else jnp.exp(2 * v)
    g_mean, g_v = jnp.array([1.0, -2.0]), jnp.array([3.0, 0.5])
    n_mean, n_v = gaussian.natural_gradient(geometry, parameterization, v, g_mean, g_v)
    np.testing.assert_allclose(n_mean, factors(sigma)[0] * g_mean, rtol=1e-6)
    np.testing.assert_allclose(n_v, factors(sigma)[1] * g_v, rtol=1e-6)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown parameterization 'full'"):
        gaussian.variance(MEAN, "full")
    with pytest.raises(ValueError, match="unknown geometry 'hyperbolic'"):
        gaussian.information("hyperbolic", "diagonal", MEAN)
