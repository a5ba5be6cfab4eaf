r"""The part of a matrix-free metric that one gradient sees, by the Lanczos method.

    K = span{g, Gg, …, G^{k−1}g},    G restricted to K:  V T Vᵀ,  T = VᵀGV tridiagonal

On K, the solution V (T + εI)⁻¹ Vᵀg is that of k conjugate-gradient iterations, whatever ε is.
So the same k products give both the solution and λ_max, the unit of a relative ε. (λ_max is that of
T, the largest eigenvalue that g meets.)
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from wng.estimator.metric import LowRank

ROUNDING = 84  # eps; a product's part outside the space that is less, as a share of λ_max, is noise


@jax.default_matmul_precision("highest")
def krylov_metric(
    product: Callable[[Float[Array, " p"]], Float[Array, " p"]], g: Float[Array, " p"], size: int
) -> LowRank:
    """G restricted to the Krylov space of g, as its eigenpairs.

    Args:
      product: v ↦ Gv, symmetric and positive semi-definite.
      g: where the space starts; the restricted metric solves for multiples of it.
      size: k ≥ 1, the number of products.
    """
    g = g.astype(jnp.promote_types(g.dtype, jnp.float32))
    k, tolerance = min(size, g.size), ROUNDING * float(jnp.finfo(g.dtype).eps)

    def unit(v: Array) -> tuple[Array, Array]:
        length = jnp.linalg.norm(v)
        return length, jnp.where(length == 0, 0, v / jnp.where(length == 0, 1, length))

    def extend(i: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        V, diagonal, below = now
        image = product(V[i])
        diagonal = diagonal.at[i].set(V[i] @ image)
        for _ in range(2):  # orthogonal to all, not only to the last two: rounding adds up
            image -= (V @ image) @ V
        length, following = unit(image)
        # The space is closed: the rest of V stays zero. (NaN is kept: a bad metric must show.)
        closed = length <= tolerance * jnp.maximum(diagonal.max(), below.max())
        # (Out of bounds for the last one, which JAX drops.)
        V = V.at[i + 1].set(jnp.where(closed, 0, following))
        return V, diagonal, below.at[i].set(jnp.where(closed, 0, length))

    start = (jnp.zeros((k, g.size), g.dtype).at[0].set(unit(g)[1]), *jnp.zeros((2, k), g.dtype))
    V, diagonal, below = jax.lax.fori_loop(0, k, extend, start)
    # Vectors that stayed zero get an eigenvalue of their own, so that none is mixed with them.
    unused = -jnp.maximum(diagonal.max(), below.max())
    T = jnp.diag(jnp.where((V != 0).any(axis=1), diagonal, unused))
    values, vectors = jnp.linalg.eigh(T + jnp.diag(below[:-1], 1) + jnp.diag(below[:-1], -1))
    values, vectors = jnp.maximum(values[::-1], 0), vectors[:, ::-1]
    # Whether LAPACK shows a NaN depends on where it is.
    finite = jnp.isfinite(T).all() & jnp.isfinite(below).all()
    return LowRank(vectors.T @ V, jnp.where(finite, values, jnp.nan), None)
