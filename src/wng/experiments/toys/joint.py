"""Beyond the paper: how well a *joint* estimate of the metric captures 100 dimensions at once.

The study's estimated WNG exploits that the Gaussian factorizes. Users' behaviors rarely do, so this
module estimates one metric from samples X ∈ ℝᵈ for all 2d parameters and compares its natural
gradient with the closed form, at a point where the two parameters of a coordinate have very
different costs: Σ = 0.04, so G = diag(1, …, 0.04, …).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wng.estimator import WassersteinMetric, gaussian, jacobian_reparam, kernel_basis
from wng.experiments.toys.descent import objective
from wng.experiments.toys.settings import ToySettings

NUM_SAMPLES = 300
NUM_BASIS = (5, 20, 100, 300)
DAMPINGS = (1e-1, 1e-2, 1e-3)  # relative to the largest eigenvalue
SEEDS = 3


class Alignment(NamedTuple):
    """Cosine between the estimated and the exact natural gradient."""

    num_basis: int  # 0 for the Euclidean gradient itself
    damping: float
    cosine: float  # mean over seeds


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the cosine of the angle between two vectors."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def alignments(settings: ToySettings) -> list[Alignment]:
    """Return the mean cosine over seeds for every M and ε, in float64."""
    with jax.enable_x64(True):
        dim = settings.dim
        mean = 0.3 * jax.random.normal(jax.random.key(settings.seed), (dim,), float)
        v = jnp.full((dim,), np.log(0.2))
        theta = jnp.concatenate([mean, v])
        variance = jnp.exp(2 * v)
        _, d_mean, d_variance = objective(mean, variance)
        d_v = 2 * variance * d_variance
        g = jnp.concatenate([d_mean, d_v])
        exact = np.concatenate(
            gaussian.natural_gradient("wasserstein", "log-diagonal", v, d_mean, d_v)
        )
        found = [Alignment(0, 0.0, cosine(np.asarray(g), exact))]
        for num_basis in NUM_BASIS:
            cosines = []
            for seed in range(SEEDS):
                noise_key, basis_key = jax.random.split(jax.random.key(settings.seed + 1 + seed))
                noise = jax.random.normal(noise_key, (NUM_SAMPLES, dim), float)

                def behavior_fn(theta: jax.Array, noise: jax.Array = noise) -> jax.Array:
                    return theta[:dim] + jnp.exp(theta[dim:]) * noise

                X = behavior_fn(theta)
                basis = kernel_basis(basis_key, X, num_basis)
                metric = WassersteinMetric(basis, X, jacobian_reparam(basis, behavior_fn, theta))
                largest = metric.spectrum.eigenvalues[0]
                cosines.append(
                    [cosine(np.asarray(metric.solve(g, e * largest)), exact) for e in DAMPINGS]
                )
            for damping, value in zip(DAMPINGS, np.mean(cosines, axis=0), strict=True):
                found.append(Alignment(num_basis, damping, float(value)))
    return found
