r"""Basis functions h_1..h_M on behavior space, with gradients in closed form.

The estimator looks for the potential of the optimal transport field in their span (eq. 9),

    f_u(x) = Σ_m α_m h_m(x),

so a basis is any object with `values(X) -> [M, N]` and `gradients(X) -> [M, N, d]`.
The estimate does not depend on the scale or on linear mixing of the h_m, only on their span.
"""

import itertools
from functools import partial
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from wng.estimator.checks import check_count, check_key, check_positive, check_samples


class Basis(Protocol):
    """What the estimator needs from a set of basis functions."""

    @property
    def size(self) -> int:
        """M, the number of basis functions."""

    def values(self, X: Float[Array, "N d"]) -> Float[Array, "M N"]:
        """h_m(X_n)."""

    def gradients(self, X: Float[Array, "N d"]) -> Float[Array, "M N d"]:
        """∂_i h_m(X_n)."""


class KernelBasis(eqx.Module):
    r"""Partial derivatives of a Gaussian kernel at M centers.

    h_m(x) = ∂_{i_m} K(Y_m, x),   K(y, x) = exp(−‖x − y‖² / (2ℓ²)),

    the derivative being with respect to coordinate i_m of the first argument. Make one with
    `kernel_basis`.
    """

    centers: Float[Array, "M d"]
    indices: Int[Array, " M"]
    bandwidth: Float[Array, ""]

    @property
    def size(self) -> int:
        """M, the number of basis functions."""
        return self.centers.shape[0]

    def _parts(
        self, X: Float[Array, "N d"]
    ) -> tuple[Float[Array, "M N d"], Float[Array, "M N"], Float[Array, "M N"]]:
        """Distances in units of ℓ: z = (x − Y_m)/ℓ, its coordinate i_m, and the kernel."""
        if X.shape[1] != self.centers.shape[1]:
            raise ValueError(
                f"X has {X.shape[1]} dimensions but this basis was made from samples with "
                f"{self.centers.shape[1]}."
            )
        z = (X[None, :, :] - self.centers[:, None, :]) / self.bandwidth
        z_index = jnp.take_along_axis(z, self.indices[:, None, None], axis=2)[..., 0]
        return z, z_index, jnp.exp(-0.5 * jnp.sum(z**2, axis=-1))

    @eqx.filter_jit
    def values(self, X: Float[Array, "N d"]) -> Float[Array, "M N"]:
        """h_m(X_n) = (X_n − Y_m)_{i_m} K / ℓ²."""
        _, z_index, kernel = self._parts(X)
        return z_index * kernel / self.bandwidth

    @eqx.filter_jit
    def gradients(self, X: Float[Array, "N d"]) -> Float[Array, "M N d"]:
        """∂_i h_m(X_n) = (δ_{i,i_m} − (X_n − Y_m)_{i_m} (X_n − Y_m)_i / ℓ²) K / ℓ²."""
        z, z_index, kernel = self._parts(X)
        unit = jax.nn.one_hot(self.indices, z.shape[-1], dtype=z.dtype)[:, None, :]
        return (unit - z_index[..., None] * z) * (kernel / self.bandwidth**2)[..., None]


def kernel_basis(
    key: PRNGKeyArray,
    X: Float[Array, "N d"],
    num_basis: int = 5,
    *,
    bandwidth: float | None = None,
    replace: bool = False,
) -> KernelBasis:
    """The paper's data-dependent basis: M samples Y_m and M coordinates i_m, drawn from the batch.

    Args:
      key: random key that chooses the samples and the coordinates.
      X: behaviors, [N, d].
      num_basis: M, the number of functions. The cost of a metric grows with it.
      bandwidth: ℓ of the Gaussian kernel. The default is the root-mean-square distance between the
        M centers and the batch, so that the basis adapts to the scale of the data.
      replace: draw centers with replacement; needed when M > N.

    Note:
      The paper writes K = exp(−‖x−y‖²/σ²); this is its released code's exp(−‖x−y‖²/(2ℓ²)), i.e.
      σ² = 2ℓ².
    """
    X = jax.lax.stop_gradient(check_samples(X))
    num_samples = X.shape[0]
    check_key(key)
    check_count(num_basis, "num_basis", 1)
    if num_basis > num_samples and not replace:
        raise ValueError(
            f"num_basis={num_basis} centers cannot be drawn from {num_samples} samples without "
            "replacement; pass more samples, a smaller num_basis, or (kernel_basis) replace=True."
        )
    if bandwidth is not None:
        check_positive(bandwidth, "bandwidth")
    return _draw_kernel_basis(key, X, num_basis, bandwidth, replace)


@partial(jax.jit, static_argnames=("num_basis", "replace"))
def _draw_kernel_basis(
    key: PRNGKeyArray,
    X: Float[Array, "N d"],
    num_basis: int,
    bandwidth: float | Array | None,
    replace: bool,
) -> KernelBasis:
    num_samples, dim = X.shape
    # One draw for both choices. Centers: the M largest of N random numbers, or M random rows.
    uniform = jax.random.uniform(key, (num_basis + (num_basis if replace else num_samples),))
    indices = (uniform[:num_basis] * dim).astype(int)
    if replace:
        rows = (uniform[num_basis:] * num_samples).astype(int)
    else:
        rows = jax.lax.top_k(uniform[num_basis:], num_basis)[1]
    centers = X[rows]
    if bandwidth is None:
        squared = jnp.mean(jnp.sum((X[None, :, :] - centers[:, None, :]) ** 2, axis=-1))
        # Constant samples have no scale of their own; any ℓ then gives the same span.
        bandwidth = jnp.sqrt(jnp.where(squared > 0, squared, 1.0))
    return KernelBasis(centers, indices, jnp.asarray(bandwidth, X.dtype))


class PolynomialBasis(eqx.Module):
    """All monomials x_{i_1} … x_{i_k} with 1 ≤ k ≤ degree. Make one with `polynomial_basis`."""

    # Row m lists the variables whose product is h_m; the number `dim` stands for the constant 1.
    factors: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        """M, the number of basis functions."""
        return len(self.factors)

    def _parts(self, X: Float[Array, "N d"]) -> Float[Array, "M degree N"]:
        if X.shape[1] != self.dim:
            raise ValueError(
                f"X has {X.shape[1]} dimensions but this basis was made for dim={self.dim}."
            )
        padded = jnp.concatenate([X, jnp.ones((X.shape[0], 1), X.dtype)], axis=1)
        return padded.T[np.array(self.factors)]

    @eqx.filter_jit
    def values(self, X: Float[Array, "N d"]) -> Float[Array, "M N"]:
        """h_m(X_n), the product of the factors."""
        return jnp.prod(self._parts(X), axis=1)

    @eqx.filter_jit
    def gradients(self, X: Float[Array, "N d"]) -> Float[Array, "M N d"]:
        """∂_i h_m(X_n): the product rule, one factor left out at a time."""
        parts, factors = self._parts(X), np.array(self.factors)
        gradient = jnp.zeros((self.size, X.shape[0], self.dim), X.dtype)
        for k in range(factors.shape[1]):
            others = jnp.prod(jnp.delete(parts, k, axis=1), axis=1)
            unit = np.eye(self.dim + 1)[factors[:, k], : self.dim]  # the constant drops out
            gradient += others[:, :, None] * jnp.asarray(unit, X.dtype)[:, None, :]
        return gradient


def polynomial_basis(dim: int, degree: int = 2) -> PolynomialBasis:
    """Monomials up to `degree` in `dim` variables.

    With degree 2 the span contains the exact transport potentials between Gaussians, so the
    estimated metric of a Gaussian is exact up to the sampling error of the second moments.
    M grows as dim^degree: meant for low dimensions and for checking other bases.
    """
    check_count(dim, "dim", 1)
    check_count(degree, "degree", 1)
    combinations = itertools.combinations_with_replacement(range(dim + 1), degree)
    return PolynomialBasis(tuple(c for c in combinations if any(i < dim for i in c)), dim)
