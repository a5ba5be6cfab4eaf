r"""Closed forms for Gaussians with diagonal covariance: distances, information, natural gradients.

Parameters are θ = (μ, v). The paper's appendix has two parameterizations:

    diagonal        Σ = v
    log-diagonal    Σ = e^{2v}      (the caption's e^v does not fit the paper's own gradients)

Both information matrices are diagonal, so a natural gradient is a division (appendix
`exp_setting_toy`). For policies, whose last layer outputs (μ, σ), the Wasserstein information is I.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Parameterization = Literal["diagonal", "log-diagonal"]
Geometry = Literal["euclidean", "fisher", "wasserstein"]
T = TypeVar("T")


class Coordinates(NamedTuple):
    """A parameterization of the variance by v."""

    variance: Callable[[Array], Array]  # v ↦ Σ
    slope: Callable[[Array], Array | float]  # Σ ↦ ∂Σ/∂v
    from_std: Callable[[float], float]  # σ ↦ v
    always_positive: bool  # Σ > 0 for every v


PARAMETERIZATIONS: dict[str, Coordinates] = {
    "diagonal": Coordinates(lambda v: v, lambda sigma: 1.0, lambda std: std**2, False),
    "log-diagonal": Coordinates(
        lambda v: jnp.exp(2 * v), lambda sigma: 2 * sigma, lambda std: float(np.log(std)), True
    ),
}

# Diagonals of the information matrix as functions of Σ: for μ, and for v by parameterization.
Information = tuple[Callable[[Array], Array], dict[str, Callable[[Array], Array]]]
INFORMATION: dict[str, Information] = {
    "euclidean": (jnp.ones_like, dict.fromkeys(PARAMETERIZATIONS, jnp.ones_like)),
    "fisher": (
        lambda sigma: 1 / sigma,
        {
            "diagonal": lambda sigma: 1 / (2 * sigma**2),
            "log-diagonal": lambda sigma: 2 * jnp.ones_like(sigma),
        },
    ),
    "wasserstein": (
        jnp.ones_like,
        {"diagonal": lambda sigma: 1 / (4 * sigma), "log-diagonal": lambda sigma: sigma},
    ),
}


def find(table: Mapping[str, T], kind: str, name: str) -> T:
    """Look `name` up in `table`; raise a ValueError that lists the valid names."""
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}: use one of {', '.join(map(repr, table))}.")
    return table[name]


def variance(v: Float[Array, "*d"], parameterization: Parameterization) -> Float[Array, "*d"]:
    """Return the diagonal of Σ."""
    return find(PARAMETERIZATIONS, "parameterization", parameterization).variance(v)


def wasserstein_squared(
    mean: Float[Array, "*d"],
    variance: Float[Array, "*d"],
    other_mean: Float[Array, "*d"],
    other_variance: Float[Array, "*d"],
) -> Float[Array, ""]:
    """Return W₂² = ‖μ − μ'‖² + ‖σ − σ'‖²."""
    root_difference = jnp.sqrt(variance) - jnp.sqrt(other_variance)
    return jnp.sum((mean - other_mean) ** 2 + root_difference**2)


def kl(
    mean: Float[Array, "*d"],
    variance: Float[Array, "*d"],
    other_mean: Float[Array, "*d"],
    other_variance: Float[Array, "*d"],
) -> Float[Array, ""]:
    """Return KL(N(μ, Σ) ‖ N(μ', Σ')) = ½ Σ_i [Σ_i/Σ'_i − 1 − ln(Σ_i/Σ'_i) + (μ_i − μ'_i)²/Σ'_i]."""
    ratio = variance / other_variance
    shift = (mean - other_mean) ** 2 / other_variance
    return 0.5 * jnp.sum(ratio - 1 - jnp.log(ratio) + shift)


def information(
    geometry: Geometry, parameterization: Parameterization, v: Float[Array, "*d"]
) -> tuple[Float[Array, "*d"], Float[Array, "*d"]]:
    """Return the diagonals of the information matrix for μ and for v."""
    sigma = variance(v, parameterization)
    of_mean, of_v = find(INFORMATION, "geometry", geometry)
    return of_mean(sigma), of_v[parameterization](sigma)


def natural_gradient(
    geometry: Geometry,
    parameterization: Parameterization,
    v: Float[Array, "*d"],
    grad_mean: Float[Array, "*d"],
    grad_v: Float[Array, "*d"],
) -> tuple[Float[Array, "*d"], Float[Array, "*d"]]:
    """Divide the gradient with respect to (μ, v) by the information: the paper's closed forms."""
    info_mean, info_v = information(geometry, parameterization, v)
    return grad_mean / info_mean, grad_v / info_v
