"""The axes of the Gaussian study: a penalty (proximity) and a metric (geometry).

The third axis, the parameterization of Σ, is `wng.estimator.gaussian.PARAMETERIZATIONS`.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from wng.estimator import WassersteinMetric, gaussian, jacobian_reparam, kernel_basis
from wng.estimator.gaussian import Parameterization
from wng.experiments.toys.settings import ToySettings

ProximityName = Literal["none", "kl", "wasserstein"]
GeometryName = Literal["euclidean", "fisher", "wasserstein", "wasserstein-estimated"]


class Theta(NamedTuple):
    """Parameters of the Gaussian."""

    mean: Float[Array, " dim"]
    v: Float[Array, " dim"]


class Proximity(NamedTuple):
    """A penalty β D(q_{θ_k}, q_θ), or none."""

    label: str
    divergence: Callable[..., Array] | None = None  # of two (mean, variance) pairs


PROXIMITIES: dict[ProximityName, Proximity] = {
    "none": Proximity("none"),
    "kl": Proximity("KL", gaussian.kl),  # KL(q_{θ_k} ‖ q_θ), eq. 3
    # ½W₂², eq. 4
    "wasserstein": Proximity("W₂", lambda *pairs: gaussian.wasserstein_squared(*pairs) / 2),
}


# (settings, parameterization, key, θ, gradient) ↦ natural gradient
Direction = Callable[[ToySettings, Parameterization, Array, Theta, Theta], Theta]


class Geometry(NamedTuple):
    """A metric, as the natural gradient that it defines."""

    label: str
    direction: Direction
    closed_form: bool = True


def closed_form(geometry: gaussian.Geometry) -> Direction:
    """Return the exact natural gradient, which needs neither settings nor a key."""
    return lambda settings, parameterization, key, theta, grad: Theta(
        *gaussian.natural_gradient(geometry, parameterization, theta.v, *grad)
    )


def estimated_direction(
    settings: ToySettings, parameterization: Parameterization, key: Array, theta: Theta, grad: Theta
) -> Theta:
    """Estimate the natural gradient from samples alone, without a closed form.

    The Gaussian factorizes over coordinates, so its metric is block-diagonal: each coordinate's
    (μ_i, v_i) gets its own estimate from N samples.
    """

    def coordinate(key: Array, params: Array, g: Array) -> Array:
        noise_key, basis_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, (settings.num_samples, 1), params.dtype)

        def behavior_fn(params: Array) -> Array:
            return params[0] + jnp.sqrt(gaussian.variance(params[1], parameterization)) * noise

        X = behavior_fn(params)
        basis = kernel_basis(basis_key, X, settings.num_basis)
        J = jacobian_reparam(basis, behavior_fn, params)
        return WassersteinMetric(basis, X, J).solve(g, settings.damping)

    keys = jax.random.split(key, settings.dim)
    natural = jax.vmap(coordinate)(keys, jnp.stack(theta, axis=1), jnp.stack(grad, axis=1))
    return Theta(*natural.T)


GEOMETRIES: dict[GeometryName, Geometry] = {
    "euclidean": Geometry("Euclidean", closed_form("euclidean")),
    "fisher": Geometry("Fisher", closed_form("fisher")),
    "wasserstein": Geometry("Wasserstein", closed_form("wasserstein")),
    "wasserstein-estimated": Geometry("estimated Wasserstein", estimated_direction, False),
}
