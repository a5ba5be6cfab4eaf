r"""Fisher-vector products and damped conjugate-gradient solves: the geometry of the KL divergence.

    F = E[s sᵀ],   s = ∇_θ log q_θ(X),   KL(q_θ, q_{θ+u}) = ½ uᵀFu + o(‖u‖²)

F is estimated from N samples and never formed: a product takes one JVP and one VJP.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from wng.estimator.checks import (
    check_callable,
    check_count,
    check_finite,
    check_flat,
    check_params,
    check_positive,
)


def fisher_vector_product(
    log_prob_fn: Callable[[Any], Float[Array, " N"]], params: Any, v: Float[Array, " p"]
) -> Float[Array, " p"]:
    """F v = (1/N) Σ_n s_n (s_nᵀ v).

    Args:
      log_prob_fn: θ ↦ log q_θ(X_n) [N] at samples X of q_θ.
      params: θ, any pytree of floating-point arrays.
      v: flat [p], in the order of `ravel_pytree(params)`.
    """
    return _product(log_prob_fn, params)(v)


def fisher_solve(
    log_prob_fn: Callable[[Any], Float[Array, " N"]],
    params: Any,
    g: Float[Array, " p"],
    damping: float | Array = 1e-3,
    iterations: int = 20,
    tolerance: float = 1e-6,
) -> Float[Array, " p"]:
    """The Fisher natural gradient (F + εI)⁻¹ g, by conjugate gradients.

    Args:
      log_prob_fn: θ ↦ log q_θ(X_n) [N] at samples X of q_θ.
      params: θ, any pytree of floating-point arrays.
      g: gradient, flat [p].
      damping: ε > 0.
      iterations: maximum number of products with F.
      tolerance: stop once the residual is below this share of ‖g‖.
    """
    check_positive(damping, "damping")
    check_count(iterations, "iterations", 1)
    product = _product(log_prob_fn, params)
    g = check_flat(g, ravel_pytree(params)[0].size, "g")
    check_finite(g, "g")
    solution, _ = jax.scipy.sparse.linalg.cg(
        lambda v: product(v) + damping * v, g, tol=tolerance, maxiter=iterations
    )
    return solution


def _product(
    log_prob_fn: Callable[[Any], Float[Array, " N"]], params: Any
) -> Callable[[Float[Array, " p"]], Float[Array, " p"]]:
    check_params(params)
    check_callable(log_prob_fn, "log_prob_fn", "log-probabilities [N]")
    flat, unravel = ravel_pytree(params)
    log_prob, jvp = jax.linearize(lambda theta: log_prob_fn(unravel(theta)), flat)
    if log_prob.ndim != 1:
        raise ValueError(
            "log_prob_fn(params) must have shape [samples], one number for each sample, got "
            f"shape {list(log_prob.shape)}."
        )
    vjp = jax.linear_transpose(jvp, flat)

    def product(v: Float[Array, " p"]) -> Float[Array, " p"]:
        v = check_flat(v, flat.size, "v").astype(flat.dtype)
        return vjp(jvp(v) / log_prob.shape[0])[0]

    return product
