r"""Closed forms for Gaussians with diagonal covariance: distances, information, natural gradients.

Parameters are θ = (μ, v). The two parameterisations of the paper's appendix are

    diagonal        Σ = v
    log-diagonal    Σ = e^{2v}      (the caption's e^v does not fit the paper's own gradients)

Both information matrices are diagonal, so a natural gradient is a division (appendix
`exp_setting_toy`). For policies, whose last layer gives (μ, σ), the Wasserstein information is I.
"""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

Parameterization = Literal["diagonal", "log-diagonal"]
Geometry = Literal["euclidean", "fisher", "wasserstein"]


def variance(v: Float[Array, "*d"], parameterization: Parameterization) -> Float[Array, "*d"]:
    """The diagonal of Σ."""
    if parameterization == "diagonal":
        return v
    if parameterization == "log-diagonal":
        return jnp.exp(2 * v)
    raise ValueError(
        f"unknown parameterization {parameterization!r}: use 'diagonal' or 'log-diagonal'."
    )


def wasserstein_squared(
    mean: Float[Array, "*d"],
    variance: Float[Array, "*d"],
    other_mean: Float[Array, "*d"],
    other_variance: Float[Array, "*d"],
) -> Float[Array, ""]:
    """W₂² = ‖μ − μ'‖² + ‖σ − σ'‖²."""
    root_difference = jnp.sqrt(variance) - jnp.sqrt(other_variance)
    return jnp.sum((mean - other_mean) ** 2 + root_difference**2)


def kl(
    mean: Float[Array, "*d"],
    variance: Float[Array, "*d"],
    other_mean: Float[Array, "*d"],
    other_variance: Float[Array, "*d"],
) -> Float[Array, ""]:
    """KL(N(μ, Σ) ‖ N(μ', Σ')) = ½ Σ_i [Σ_i/Σ'_i − 1 − ln(Σ_i/Σ'_i) + (μ_i − μ'_i)²/Σ'_i]."""
    ratio = variance / other_variance
    shift = (mean - other_mean) ** 2 / other_variance
    return 0.5 * jnp.sum(ratio - 1 - jnp.log(ratio) + shift)


def information(
    geometry: Geometry, parameterization: Parameterization, v: Float[Array, "*d"]
) -> tuple[Float[Array, "*d"], Float[Array, "*d"]]:
    """Diagonals of the information matrix: of μ, and of v."""
    sigma = variance(v, parameterization)
    one = jnp.ones_like(sigma)
    log = parameterization == "log-diagonal"
    if geometry == "euclidean":
        return one, one
    if geometry == "fisher":
        return 1 / sigma, 2 * one if log else 1 / (2 * sigma**2)
    if geometry == "wasserstein":
        return one, sigma if log else 1 / (4 * sigma)
    raise ValueError(f"unknown geometry {geometry!r}: use 'euclidean', 'fisher' or 'wasserstein'.")


def natural_gradient(
    geometry: Geometry,
    parameterization: Parameterization,
    v: Float[Array, "*d"],
    grad_mean: Float[Array, "*d"],
    grad_v: Float[Array, "*d"],
) -> tuple[Float[Array, "*d"], Float[Array, "*d"]]:
    """The gradient (of μ, of v) divided by the information: the paper's four closed forms."""
    info_mean, info_v = information(geometry, parameterization, v)
    return grad_mean / info_mean, grad_v / info_v
