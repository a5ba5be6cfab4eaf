r"""The Jacobian J of the basis' expectations, three ways (eqs. 10 and 14).

    J_{m,·} = ∇_θ E_{q_θ}[h_m(X)]      [M, p]

J contains everything that the metric needs to know about how parameters move behaviors. Which form
applies depends on what is known about the behaviors:

| known                               | function                |
|-------------------------------------|-------------------------|
| X = B_θ(Z), differentiable          | `jacobian_reparam`      |
| log q_θ(X), X itself a black box    | `jacobian_score`        |
| X under perturbed copies of θ       | `jacobian_perturbation` |
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from wng.estimator.basis import Basis
from wng.estimator.checks import (
    check_array,
    check_callable,
    check_finite,
    check_params,
    check_positive,
    check_samples,
)


def _pull_back(
    vjp: Callable[[Array], Any], cotangents: Float[Array, "M ..."]
) -> Float[Array, "M p"]:
    """One VJP per row of `cotangents`, flattened in `ravel_pytree`'s order."""
    return jax.vmap(lambda row: ravel_pytree(vjp(row))[0])(cotangents)


def behaviors_and_pullback(
    behavior_fn: Callable[[Any], Float[Array, "N d"]], params: Any
) -> tuple[Float[Array, "N d"], Callable[[Basis], Float[Array, "M p"]]]:
    """X = behavior_fn(params), and basis ↦ J reusing that one forward pass.

    For callers whose basis is drawn from X itself.
    """
    check_params(params)
    check_callable(behavior_fn, "behavior_fn", "behaviors [N, d]")
    X, vjp = jax.vjp(behavior_fn, params)
    check_samples(X, "behavior_fn(params)")
    if not jnp.issubdtype(jnp.result_type(X), jnp.floating):
        raise ValueError(
            f"behavior_fn(params) must be differentiable, but it is an array of {X.dtype}; for "
            "discrete behaviors use their log-probabilities (the score form)."
        )

    def pullback(basis: Basis) -> Float[Array, "M p"]:
        return _pull_back(lambda row: vjp(row)[0], basis.gradients(X) / X.shape[0])

    return X, pullback


def jacobian_reparam(
    basis: Basis, behavior_fn: Callable[[Any], Float[Array, "N d"]], params: Any
) -> Float[Array, "M p"]:
    """J_m = (1/N) Σ_n ∇_x h_m(X_n)ᵀ ∂_θ B_θ(Z_n)   (eq. 10, left).

    Args:
      basis: M basis functions, treated as constants even if they are drawn from X.
      behavior_fn: θ ↦ X [N, d] with the noise Z held fixed. Must be differentiable.
      params: θ, any pytree of floating-point arrays.
    """
    _, pullback = behaviors_and_pullback(behavior_fn, params)
    return pullback(basis)


def jacobian_score(
    basis: Basis,
    X: Float[Array, "N d"],
    log_prob_fn: Callable[[Any], Float[Array, " N"]],
    params: Any,
    weights: Float[Array, " N"] | None = None,
) -> Float[Array, "M p"]:
    """J_m = 1/(N−1) Σ_n (h_m(X_n) − h̄_m) ∇_θ log q_θ(X_n)   (eq. 10, right).

    Args:
      basis: M basis functions.
      X: behaviors [N, d], independent samples from q_θ.
      log_prob_fn: θ ↦ log q_θ(X_n) [N]. If X = Φ(τ) is any function of a trajectory, use the
        trajectory's Σ_t log π_θ(a_t|s_t) (the rest of its score does not depend on θ).
      params: θ, any pytree of floating-point arrays.
      weights: importance weights q_θ(X_n)/q(X_n), if X was sampled from another q. The baseline
        is then the weighted mean, and the estimate is biased by O(1/N).

    Note:
      Subtracting the batch mean h̄_m lowers the variance; N−1 instead of the paper's N keeps the
      estimate unbiased (it is the leave-one-out baseline).
    """
    X = check_samples(X)
    check_params(params)
    check_callable(log_prob_fn, "log_prob_fn", "log-probabilities [N]")
    log_prob, vjp = jax.vjp(log_prob_fn, params)
    if log_prob.shape != (X.shape[0],):
        raise ValueError(
            f"log_prob_fn(params) must have shape [{X.shape[0]}], one number for each sample in X, "
            f"got shape {list(log_prob.shape)}."
        )
    check_finite(log_prob, "log_prob_fn(params)")
    if weights is None:
        weights = jnp.ones(X.shape[0])
    elif jnp.shape(weights) != (X.shape[0],):
        raise ValueError(
            f"weights must have shape [{X.shape[0]}], one number for each sample in X, got shape "
            f"{list(jnp.shape(weights))}."
        )
    values = basis.values(X)
    baseline = values @ weights / jnp.maximum(weights.sum(), jnp.finfo(weights.dtype).tiny)
    rows = weights * (values - baseline[:, None]) / max(X.shape[0] - 1, 1)
    return _pull_back(lambda row: vjp(row)[0], rows.astype(log_prob.dtype))


def perturbation_weights(basis: Basis, X: Float[Array, "N d"]) -> Float[Array, "M N"]:
    """Return h_m(X_n) − h̄_m, whose product with the noise, over Nσ², is J."""
    values = basis.values(check_samples(X))
    return values - values.mean(axis=1, keepdims=True)


def jacobian_perturbation(
    basis: Basis, X: Float[Array, "N d"], noise: Float[Array, "N p"], sigma: float | Array
) -> Float[Array, "M p"]:
    """J_m = 1/(Nσ²) Σ_n (h_m(X_n) − h̄_m) (θ̃_n − θ)   (eq. 14).

    Args:
      basis: M basis functions.
      X: behaviors [N, d]; X_n is that of the perturbed parameters θ̃_n.
      noise: θ̃_n − θ, [N, p], drawn from N(0, σ²I); antithetic pairs are fine.
      sigma: standard deviation σ of the noise, as one number or one number for each parameter.

    Note:
      The paper divides by Nσ with σ "a variance" in one place and a standard deviation in another;
      with a standard deviation the factor is 1/(Nσ²). The baseline h̄_m does nothing under
      antithetic noise and costs independent noise a factor 1 − 1/N in expectation.
    """
    X = check_samples(X)
    noise = check_array(noise, "noise")
    if noise.ndim != 2 or noise.shape[0] != X.shape[0]:
        raise ValueError(
            f"noise must have shape [{X.shape[0]}, parameters], one row for each sample in X, "
            f"got shape {list(noise.shape)}."
        )
    check_finite(noise, "noise")
    each = getattr(sigma, "shape", ()) == (noise.shape[1],)
    check_positive(jnp.min(sigma) if each else sigma, "sigma")
    return perturbation_weights(basis, X) @ noise / (X.shape[0] * sigma**2)
