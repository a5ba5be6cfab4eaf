"""Settings and axes of the Gaussian study: a penalty (proximity) and a metric (geometry).

The third axis, the parameterization of Σ, is `wng.estimator.gaussian.PARAMETERIZATIONS`.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from wng.envs.base import check_arguments
from wng.estimator import WassersteinMetric, gaussian, jacobian_reparam, kernel_basis
from wng.estimator.checks import check_memory
from wng.estimator.gaussian import Parameterization
from wng.runs.settings import LARGEST

ProximityName = Literal["none", "kl", "wasserstein"]
GeometryName = Literal["euclidean", "fisher", "wasserstein", "wasserstein-estimated"]


@dataclasses.dataclass(frozen=True)
class ToySettings:
    """Settings of the Gaussian study. "Not given" marks values that the paper leaves open."""

    dim: int = 100
    """Number of dimensions (paper: 100)."""
    iterations: int = 4000
    """Number of gradient evaluations per run (paper: 4000)."""
    step_size: float = 0.9
    """Step size λ of the runs that do not vary it (paper: 0.9)."""
    beta: float = 0.1
    """Penalty weight β of the runs that do not vary it (paper: 0.1)."""
    inner_steps: int = 10
    """Number of gradient steps a penalized method takes before its reference θ_k moves (paper: not
    given). The gradient of a divergence vanishes at θ_k, so with 1 a penalty has no effect."""
    mean: float = 2.0
    """Center of the initial means (paper: not given)."""
    spread: float = 0.5
    """Standard deviation of the initial means around their center (paper: not given)."""
    std: float = 1.0
    """Initial standard deviation of the Gaussian (paper: not given)."""
    num_basis: int = 5
    """Number of basis functions M of the estimated Wasserstein geometry."""
    num_samples: int = 100
    """Number of samples N per iteration of the estimated Wasserstein geometry."""
    damping: float = 1e-10
    """Damping ε of the estimated Wasserstein geometry (the closed forms need none)."""
    seed: int = 0
    """Random seed of the initial means and of the estimator's samples."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in ("mean", "spread", "seed") and not value > 0:
                raise ValueError(f"{field.name} must be positive, got {value}.")
            if not abs(value) <= LARGEST:
                raise ValueError(f"{field.name} must be finite, got {value}.")
        check_arguments(1, self.seed)
        check_memory(f"iterations={self.iterations}", 2 * 3 * 17 * self.iterations)  # in float64
        check_memory(
            f"num_samples={self.num_samples} in dim={self.dim}", 2 * self.num_samples * self.dim
        )
        if self.num_basis > self.num_samples:
            raise ValueError(
                f"num_basis ({self.num_basis}) must not exceed num_samples ({self.num_samples})."
            )


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
    "kl": Proximity("KL", gaussian.kl),  # KL(q_{θ_k} ‖ q_θ), eq. `KL_PPO`
    # ½W₂², eq. `proximal_expression_wasserstein`
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
