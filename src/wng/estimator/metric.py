r"""The low-rank Wasserstein information matrix and its solves (Algorithm `KWNG_3`).

    Ĝ = Jᵀ L† J,    L = (1/N) C Cᵀ,    C_{m,(n,i)} = ∂_i h_m(X_n)

The paper solves (Ĝ + εI)⁻¹g by the Woodbury identity (eq. 12),

    ĝ^W = (g − Jᵀ(JJᵀ + εL)†Jg) / ε,

which subtracts two nearly equal vectors: in float32 the component in the row space of J is lost
once ε is small compared with the eigenvalues of Ĝ. This module forms the eigendecomposition
Ĝ = QᵀΛQ, in float64 whatever the input, and the solve is

    ĝ^W = (g − QᵀQg)/ε + Qᵀ (Λ + ε)⁻¹ Qg,

whose two terms are orthogonal: nothing cancels. Memory is O(Mp), time O(M²(Nd + p)).

Automatic differentiation treats the metric as a constant, like every preconditioner in wng.
"""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from wng.estimator.basis import Basis
from wng.estimator.checks import (
    check_array,
    check_finite,
    check_flat,
    check_positive,
    check_samples,
)
from wng.estimator.float64 import in_float64


class LowRank(eqx.Module):
    """The eigendecomposition Ĝ = Qᵀ Λ Q of rank k = min(M, p): what a solve needs, and no more.

    With diagonal rescaling, of diag(√d) Ĝ diag(√d). Rows of `directions` that belong to
    eigenvalues at the level of rounding are zero.
    """

    directions: Float[Array, "k p"]  # Q
    eigenvalues: Float[Array, " k"]  # Λ, descending
    root_scale: Float[Array, " p"] | None  # √d, or None for no rescaling

    @property
    def largest_eigenvalue(self) -> Float[Array, ""]:
        """λ_max."""
        return self.eigenvalues[0]

    @classmethod
    def empty(
        cls, num_params: int, num_basis: int, dtype: jnp.dtype, *, rescale: bool = False
    ) -> "LowRank":
        """The zero matrix, in the shapes that a metric of M = `num_basis` functions has."""
        rank = min(num_params, num_basis)
        return cls(
            jnp.zeros((rank, num_params), dtype),
            jnp.zeros((rank,), dtype),
            jnp.ones((num_params,), dtype) if rescale else None,
        )

    @eqx.filter_jit
    @jax.default_matmul_precision("highest")
    def solve(self, g: Float[Array, " p"], damping: float | Array) -> Float[Array, " p"]:
        """(Ĝ + εI)⁻¹ g; with rescaling (Ĝ + ε diag(1/d))⁻¹ g."""
        Q, damping = self.directions, jnp.asarray(damping, self.directions.dtype)
        scaled = g if self.root_scale is None else self.root_scale * g
        inside = Q @ scaled
        outside = scaled - inside @ Q
        leak = Q @ outside  # rounding left it in the row space, where 1/ε would blow it up
        # A remainder at the level of rounding is not a direction.
        tolerance = 8 * Q.shape[0] ** 0.5 * jnp.finfo(Q.dtype).eps
        remainder = outside @ outside - leak @ leak
        outer = jnp.where(remainder <= tolerance**2 * (scaled @ scaled), 0, 1 / damping)
        answer = (
            outer * outside + ((inside + leak) / (self.eigenvalues + damping) - outer * leak) @ Q
        )
        return answer if self.root_scale is None else self.root_scale * answer


class WassersteinMetric(eqx.Module):
    r"""The estimated Wasserstein information matrix Ĝ of a model at θ.

    W₂²(q_θ, q_{θ+u}) = uᵀG(θ)u + o(‖u‖²)      (eq. 6)

    Args:
      basis: M basis functions h_m on behavior space.
      X: behaviors [N, d] sampled from q_θ.
      J: Jacobian of the basis' expectations, [M, p]; see `wng.estimator.jacobian`.
      rescale: replace the damping εI by ε·diag(1/d), d_j = 1/(√Ĝ_jj + 1e-8), as in the paper's
        released code: parameters that hardly move behavior are damped less.

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
        if not hasattr(basis, "gradients"):
            raise ValueError(
                f"basis must be a basis such as kernel_basis(key, X), got a {type(basis).__name__}."
            )
        X, J = check_samples(X), check_array(J, "J")
        J = J.astype(jnp.promote_types(J.dtype, jnp.float32))  # no half-precision decompositions
        if J.ndim != 2 or J.shape[0] != basis.size or J.shape[1] == 0:
            raise ValueError(
                f"J must have shape [{basis.size}, parameters], one row for each basis function, "
                f"got shape {list(J.shape)}."
            )
        check_finite(J, "J")
        self.basis, self.J = basis, J
        self.whitener, self.spectrum = _decompose(basis.gradients(X), J, rescale)

    def solve(self, g: Float[Array, " p"], damping: float | Array = 1e-3) -> Float[Array, " p"]:
        """The Wasserstein natural gradient (Ĝ + εI)⁻¹ g   (eq. 12).

        Args:
          g: gradient, flat [p] in the order of `jax.flatten_util.ravel_pytree(params)`.
          damping: ε > 0.
        """
        g = check_flat(g, self.J.shape[1], "g")
        check_positive(damping, "damping")
        return self.spectrum.solve(g, jnp.asarray(damping, g.dtype))

    def quadratic(self, u: Float[Array, " p"]) -> Float[Array, ""]:
        """uᵀĜu, the squared distance that behaviors move under a small step u."""
        return jnp.sum((self.whitener @ (self.J @ check_flat(u, self.J.shape[1], "u"))) ** 2)

    def transport(self, u: Float[Array, " p"]) -> Callable[[Array], Array]:
        """The behavioral transport field x ↦ ∇f_u(x) of the step u (Figure 6).

        f_u = Σ_m α_m h_m with α = L†Ju. The field takes one behavior [d] or several [n, d], and
        moves samples of q_θ towards q_{θ+u}: X' = X + ∇f_u(X).
        """
        coefficients = self.whitener.T @ (
            self.whitener @ (self.J @ check_flat(u, self.J.shape[1], "u"))
        )

        def field(x: Array) -> Array:
            x = jnp.asarray(x)
            moves = jnp.einsum("m,mnd->nd", coefficients, self.basis.gradients(jnp.atleast_2d(x)))
            return moves.reshape(x.shape)

        return field

    def dense(self) -> Float[Array, "p p"]:
        """Ĝ = JᵀL†J itself: p×p numbers, for tests and small models."""
        whitened = self.whitener @ self.J
        return whitened.T @ whitened


@partial(jax.jit, static_argnames="rescale")
@jax.default_matmul_precision("highest")
def _decompose(
    gradients: Float[Array, "M N d"], J: Float[Array, "M p"], rescale: bool
) -> tuple[Float[Array, "M M"], LowRank]:
    """W with WᵀW = L†, and the eigenpairs of Ĝ = AᵀA with A = WJ.

    Nearby basis functions make C and J ill-conditioned together. W, from the singular values of C
    in float64 (by QR, or for float32 input by the Gram matrix L), takes that out of A. The
    eigenpairs come from AAᵀ, and Q = Λ^{-1/2}VᵀA from J in one float64 product, so that rounding Q
    to float32 costs eps, whatever cond(J).
    """
    dtype, num_basis = J.dtype, J.shape[0]
    cutoff = (
        2 * num_basis * float(jnp.finfo(dtype).eps)
    )  # below, a singular value is input rounding

    def keep(values: Array, relative: float) -> Array:
        return ~(values <= relative * values.max())  # NaN is kept: bad input must show

    @in_float64
    def decompose(gradients: Array, J: Array) -> tuple[Array, LowRank]:
        C = gradients.astype(jnp.float64).reshape(num_basis, -1) / gradients.shape[1] ** 0.5
        norms = jnp.sqrt(jnp.sum(C**2, axis=1))
        norms = jnp.where(norms == 0, 1, norms)  # the scale of a basis function does not matter
        C = C / norms[:, None]
        if dtype == jnp.float64:
            R = jnp.linalg.qr(C.T, mode="r")
            R = jnp.pad(R, ((0, num_basis - R.shape[0]), (0, 0)))  # N·d < M
            _, roots, Vt = jnp.linalg.svd(R)
        else:  # far cheaper, and what squaring loses in float64 lies below float32's cutoff
            squares, V = jnp.linalg.eigh(C @ C.T)
            roots, Vt = jnp.sqrt(jnp.where(squares < 0, 0, squares)), V.T
        whitener = jnp.where(keep(roots, cutoff), 1 / roots, 0)[:, None] * Vt / norms

        J, root_scale = J.astype(jnp.float64), None
        A = _mix(whitener, J)
        if rescale:
            root_scale = (jnp.linalg.norm(A, axis=0) + 1e-8) ** -0.5
            A, J = A * root_scale, J * root_scale
        values, vectors = jnp.linalg.eigh(A @ A.T)
        rank = min(J.shape)
        values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
        kept = keep(values, max(cutoff**2, 1e4 * float(jnp.finfo(jnp.float64).eps)))
        rotation = jnp.where(kept, 1 / jnp.sqrt(values), 0)[:, None] * vectors.T @ whitener
        spectrum = LowRank(_mix(rotation, J), jnp.where(kept, values, 0), root_scale)
        return jax.tree.map(lambda x: x.astype(dtype), (whitener, spectrum))

    return decompose(jax.lax.stop_gradient(gradients), jax.lax.stop_gradient(J))


def _mix(T: Float[Array, "k M"], J: Float[Array, "M p"]) -> Float[Array, "k p"]:
    """TJ in float64. XLA's float64 dot is slow on few long rows; an unrolled sum is not."""
    if J.shape[0] > 16:
        return T @ J
    return sum((T[:, m, None] * J[m] for m in range(J.shape[0])), start=jnp.zeros(()))
