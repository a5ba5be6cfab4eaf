r"""Leading eigenvalues of a Hessian from its products with vectors; no p×p matrix.

H v = d/dt ∇f(θ + t v) at t = 0
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from wng.estimator.checks import check_callable, check_count, check_flat, check_params

MatVec = Callable[[Any], Any]


def hessian_vector_product(
    loss_fn: Callable[[Any], Float[Array, ""]], params: Any
) -> tuple[Callable[[Float[Array, " p"]], Float[Array, " p"]], int]:
    """The map v ↦ H v for the Hessian H of `loss_fn` at `params`, and p: forward over reverse.

    Args:
      loss_fn: θ ↦ a number, twice differentiable.
      params: θ, any pytree of floating-point arrays.

    Returns:
      The map on flat vectors [p], in the order of `ravel_pytree(params)`, compiled at its first
      use; and p.
    """
    check_params(params)
    check_callable(loss_fn, "loss_fn", "a number")
    flat, unravel = ravel_pytree(params)
    shape = jax.eval_shape(loss_fn, params).shape
    if shape != ():
        raise ValueError(f"loss_fn(params) must be a single number, got shape {list(shape)}.")
    gradient = jax.grad(lambda theta: loss_fn(unravel(theta)))

    # θ is an argument: XLA would evaluate the forward pass of a constant while compiling.
    @jax.jit
    def product(theta: Array, v: Array) -> Array:
        return jax.jvp(gradient, (theta,), (v,))[1]

    def matvec(v: Float[Array, " p"]) -> Float[Array, " p"]:
        return product(flat, check_flat(v, flat.size, "v").astype(flat.dtype))

    return matvec, int(flat.size)


def leading_eigenvalues(
    matvec: MatVec, size: int, number: int = 20, tolerance: float = 1e-4, seed: int = 0
) -> Float[np.ndarray, " k"]:
    """The eigenvalues of largest magnitude of a symmetric operator, by decreasing |λ|.

    ARPACK's implicitly restarted Lanczos method, which keeps 2·number + 1 vectors. Fewer than
    `number` are returned where the operator has fewer, or where not all of them converged.

    Args:
      matvec: v ↦ Hv on flat vectors [size].
      size: p.
      number: number of eigenvalues.
      tolerance: relative error of an eigenvalue; float32 products do not reach below 1e-6.
      seed: random seed of the first vector.
    """
    check_count(size, "size", 1)
    check_count(number, "number", 1)

    def product(v: np.ndarray) -> np.ndarray:
        result = np.asarray(matvec(v.reshape(size)), np.float64)  # ARPACK also passes [p, 1]
        if not np.isfinite(result).all():
            raise ValueError(
                "a product with the operator is not finite, so it has no eigenvalues: check the "
                "parameters and the data."
            )
        return result

    if size <= number + 1:  # ARPACK finds fewer than `size`; so small a matrix may be formed
        dense = np.stack([product(row) for row in np.eye(size)])
        return _sorted(np.linalg.eigvalsh((dense + dense.T) / 2))[:number]
    start = np.random.default_rng(seed).standard_normal(size)
    if not product(start).any():  # a random vector lies in the null space of no other operator
        return np.zeros(number)
    operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
    try:
        found = eigsh(
            operator, number, which="LM", v0=start, tol=tolerance, return_eigenvectors=False
        )
    except ArpackNoConvergence as stopped:
        found = stopped.eigenvalues
        if not len(found):
            raise ValueError(
                "no eigenvalue of the operator converged: ask for fewer or raise the tolerance."
            ) from None
    return _sorted(found)


def _sorted(eigenvalues: np.ndarray) -> np.ndarray:
    return eigenvalues[np.argsort(-np.abs(eigenvalues), kind="stable")]
