r"""The low-rank Wasserstein information matrix and its solves (Algorithm `KWNG_3`).

    Ĝ = Jᵀ L† J,    L = (1/N) C Cᵀ,    C_{m,(n,i)} = ∂_i h_m(X_n)

The paper solves (Ĝ + εI)⁻¹g by the Woodbury identity (eq. `wng_estimator`),

    ĝ^W = (g − Jᵀ(JJᵀ + εL)†Jg) / ε,

which subtracts two nearly equal vectors: in float32 the component in the row space of J is lost
once ε is small against the eigenvalues of Ĝ. Here the eigendecomposition Ĝ = Q Λ Qᵀ is formed
without ever squaring a matrix (and in float64, whatever the input), and the solve is

    ĝ^W = (g − QQᵀg)/ε + Q (Λ + ε)⁻¹ Qᵀg,

whose two terms are orthogonal: nothing cancels. Memory is O(Mp), time O(M²(Nd + p)).

The metric is a constant to automatic differentiation, as every preconditioner here is.
"""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from wng.estimator.basis import Basis
from wng.estimator.checks import check_finite, check_positive, check_samples
from wng.estimator.float64 import in_float64


class LowRank(eqx.Module):
    """An eigendecomposition of Ĝ of rank k = min(M, p): what a solve needs, and no more.

    With diagonal rescaling, of diag(√d) Ĝ diag(√d). Columns of `directions` that belong to
    eigenvalues at the level of rounding are zero.
    """

    directions: Float[Array, "p k"]
    eigenvalues: Float[Array, " k"]
    root_scale: Float[Array, " p"] | None  # √d, or None for no rescaling

    @classmethod
    def empty(
        cls, num_params: int, num_basis: int, dtype: jnp.dtype, *, rescale: bool = False
    ) -> "LowRank":
        """The zero matrix, in the shapes that a metric of M = `num_basis` functions has."""
        rank = min(num_params, num_basis)
        return cls(
            jnp.zeros((num_params, rank), dtype),
            jnp.zeros((rank,), dtype),
            jnp.ones((num_params,), dtype) if rescale else None,
        )

    @eqx.filter_jit
    def solve(self, g: Float[Array, " p"], damping: float | Array) -> Float[Array, " p"]:
        """(Ĝ + εI)⁻¹ g; with rescaling (Ĝ + ε diag(1/d))⁻¹ g."""
        Q, damping = self.directions, jnp.asarray(damping, self.directions.dtype)
        scaled = g if self.root_scale is None else self.root_scale * g
        inside = Q.T @ scaled
        outside = scaled - Q @ inside
        correction = Q.T @ outside  # a second projection: what leaks here is divided by ε below
        inside, outside = inside + correction, outside - Q @ correction
        # A remainder at the level of rounding is no direction at all: 1/ε would make it one.
        tolerance = 8 * Q.shape[1] ** 0.5 * jnp.finfo(Q.dtype).eps
        rounding = jnp.linalg.norm(outside) <= tolerance * jnp.linalg.norm(scaled)
        answer = Q @ (inside / (self.eigenvalues + damping))
        answer += jnp.where(rounding, 0.0, outside / damping)
        return answer if self.root_scale is None else self.root_scale * answer


class WassersteinMetric(eqx.Module):
    r"""The estimated Wasserstein information matrix Ĝ of a model at θ.

    W₂²(q_θ, q_{θ+u}) = uᵀG(θ)u + o(‖u‖²)      (eq. `second_order_exansion`)

    Args:
      basis: M basis functions h_m on behaviour space.
      X: behaviours [N, d] sampled from q_θ.
      J: Jacobian of the basis' expectations, [M, p]; see `wng.estimator.jacobian`.
      rescale: replace the damping εI by ε·diag(1/d), d_j = 1/(√Ĝ_jj + 1e-8), as in the paper's
        released code: parameters that move behaviour little are damped less.

    Attributes:
      spectrum: the eigendecomposition that `solve` uses; `spectrum.eigenvalues`, descending, are
        those of Ĝ (of the rescaled Ĝ with `rescale`).
    """

    basis: Basis
    J: Float[Array, "M p"]
    whitener: Float[Array, "M M"]  # W with WᵀW = L†
    spectrum: LowRank

    def __init__(
        self, basis: Basis, X: Float[Array, "N d"], J: Float[Array, "M p"], *, rescale: bool = False
    ):
        X, J = check_samples(X), jnp.asarray(J)
        if J.ndim != 2 or J.shape[0] != basis.size or J.shape[1] == 0:
            raise ValueError(
                f"J must have shape [{basis.size}, parameters], one row for each basis function, "
                f"got shape {list(J.shape)}."
            )
        check_finite(J, "J")
        self.basis, self.J = basis, J
        self.whitener, self.spectrum = _decompose(basis.gradients(X), J, rescale)

    def solve(self, g: Float[Array, " p"], damping: float | Array = 1e-3) -> Float[Array, " p"]:
        """The Wasserstein natural gradient (Ĝ + εI)⁻¹ g   (eq. `wng_estimator`).

        Args:
          g: gradient, flat [p] in the order of `jax.flatten_util.ravel_pytree(params)`.
          damping: ε > 0.
        """
        g = self._check_vector(g, "g")
        check_positive(damping, "damping")
        return self.spectrum.solve(g, jnp.asarray(damping, g.dtype))

    def quadratic(self, u: Float[Array, " p"]) -> Float[Array, ""]:
        """uᵀĜu, the squared distance that behaviours move under a small step u."""
        return jnp.sum((self.whitener @ (self.J @ self._check_vector(u, "u"))) ** 2)

    def transport(self, u: Float[Array, " p"]) -> Callable[[Array], Array]:
        """The behavioural transport field x ↦ ∇f_u(x) of the step u (Figure `wasserstein`).

        f_u = Σ_m α_m h_m with α = L†Ju. The field takes one behaviour [d] or several [n, d], and
        moves samples of q_θ towards q_{θ+u}: X' = X + ∇f_u(X).
        """
        coefficients = self.whitener.T @ (self.whitener @ (self.J @ self._check_vector(u, "u")))

        def field(x: Array) -> Array:
            x = jnp.asarray(x)
            moves = jnp.einsum("m,mnd->nd", coefficients, self.basis.gradients(jnp.atleast_2d(x)))
            return moves.reshape(x.shape)

        return field

    def dense(self) -> Float[Array, "p p"]:
        """Ĝ = JᵀL†J itself: p×p numbers, for tests and small models."""
        whitened = self.whitener @ self.J
        return whitened.T @ whitened

    def _check_vector(self, vector: Array, name: str) -> Float[Array, " p"]:
        vector = jnp.asarray(vector)
        if vector.shape != self.J.shape[1:]:
            raise ValueError(
                f"{name} must be flat with {self.J.shape[1]} entries, one for each column of J, "
                f"got shape {list(vector.shape)}; flatten a pytree with "
                "jax.flatten_util.ravel_pytree."
            )
        return vector


@partial(jax.jit, static_argnames="rescale")
def _decompose(
    gradients: Float[Array, "M N d"], J: Float[Array, "M p"], rescale: bool
) -> tuple[Float[Array, "M M"], LowRank]:
    """W with WᵀW = L†, and the eigenpairs of Ĝ = JᵀWᵀWJ.

    Both come from QR decompositions, of C and of J, never from the Gram matrices L and JJᵀ, whose
    condition numbers are squares. Float32 input is decomposed in float64: the row space of J is
    otherwise off by eps·cond(J), and nearby basis functions make cond(J) large.
    """
    dtype, num_basis = J.dtype, J.shape[0]
    cutoff = 2 * num_basis * jnp.finfo(dtype).eps  # below, a singular value is input rounding

    @in_float64
    def decompose(gradients: Array, J: Array) -> tuple[Array, LowRank]:
        C = gradients.astype(jnp.float64).reshape(num_basis, -1) / gradients.shape[1] ** 0.5
        R = jnp.linalg.qr(C.T, mode="r")
        R = jnp.pad(R, ((0, num_basis - R.shape[0]), (0, 0)))  # N·d < M
        _, roots, Vt = jnp.linalg.svd(R)
        keep = roots > cutoff * roots[0]
        whitener = jnp.where(keep, 1 / jnp.where(keep, roots, 1), 0)[:, None] * Vt

        scaled, root_scale = J.astype(jnp.float64), None
        if rescale:
            root_scale = (jnp.linalg.norm(whitener @ scaled, axis=0) + 1e-8) ** -0.5
            scaled = scaled * root_scale
        Q, R = jnp.linalg.qr(scaled.T)
        _, roots, Zt = jnp.linalg.svd(whitener @ R.T, full_matrices=False)
        keep = roots > cutoff * roots[0]
        spectrum = LowRank(jnp.where(keep, Q @ Zt.T, 0), jnp.where(keep, roots**2, 0), root_scale)
        return jax.tree.map(lambda x: x.astype(dtype), (whitener, spectrum))

    return decompose(jax.lax.stop_gradient(gradients), jax.lax.stop_gradient(J))
