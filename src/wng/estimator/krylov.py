r"""The part of a matrix-free metric that one gradient sees, by the Lanczos method.

    K = span{g, Gg, …, G^{k−1}g},    G restricted to K:  V T Vᵀ,  T = VᵀGV tridiagonal

On K, the solution V (T + εI)⁻¹ Vᵀg is that of k conjugate-gradient iterations, whatever ε is.
So the same k products give both the solution and λ_max, the unit of a relative ε.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from wng.estimator.metric import LowRank

ROUNDING = 1e-5  # share of λ_max that float32 leaves of a product's part outside the space


def krylov_metric(
    product: Callable[[Float[Array, " p"]], Float[Array, " p"]], g: Float[Array, " p"], size: int
) -> LowRank:
    """G restricted to the Krylov space of g, as its eigenpairs.

    Args:
      product: v ↦ Gv, symmetric and positive semi-definite.
      g: where the space starts; the restricted metric solves for multiples of it.
      size: k, the number of products.
    """
    k = min(size, g.size)
    norm = jnp.linalg.norm(g)

    def extend(i: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        V, diagonal, below = now
        image = product(V[i])
        diagonal = diagonal.at[i].set(V[i] @ image)
        for _ in range(2):  # orthogonal to all, not only to the last two: rounding adds up
            image -= (V @ image) @ V
        length = jnp.linalg.norm(image)
        # The space is closed: the rest of V stays zero.
        goes_on = length > ROUNDING * jnp.maximum(diagonal.max(), below.max())
        length = jnp.where(goes_on, length, 0)
        following = jnp.where(goes_on, image / jnp.where(goes_on, length, 1), 0)
        # (Out of bounds for the last one, which JAX drops.)
        return V.at[i + 1].set(following), diagonal, below.at[i].set(length)

    first = jnp.where(norm > 0, g / jnp.where(norm > 0, norm, 1), 0)
    start = (jnp.zeros((k, g.size), g.dtype).at[0].set(first), *jnp.zeros((2, k), g.dtype))
    V, diagonal, below = jax.lax.fori_loop(0, k, extend, start)
    alive = (V != 0).any(axis=1)
    T = (
        jnp.diag(jnp.where(alive, diagonal, -1))
        + jnp.diag(below[:-1], 1)
        + jnp.diag(below[:-1], -1)
    )
    values, vectors = jnp.linalg.eigh(T)
    values, vectors = values[::-1], vectors[:, ::-1]
    return LowRank(vectors.T @ V, jnp.maximum(values, 0), None)
