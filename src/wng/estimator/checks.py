"""Checks of user input: shapes always, values only where they are known (outside jit)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float


def is_concrete(x: Any) -> bool:
    """Whether the value of `x` can be looked at, i.e. `x` is not being traced."""
    return not isinstance(x, jax.core.Tracer)


def check_finite(x: Array, name: str) -> None:
    """Raise if the known array `x` holds a NaN or an infinity."""
    if is_concrete(x) and not bool(jnp.isfinite(x).all()):
        raise ValueError(f"{name} contains a NaN or an infinity; remove those samples first.")


def check_samples(X: Any, name: str = "X") -> Float[Array, "N d"]:
    """`X` as a floating-point [N, d] array with at least one finite sample."""
    X = jnp.asarray(X)
    if X.ndim != 2 or 0 in X.shape:
        hint = " (one-dimensional behaviours: pass X[:, None])" if X.ndim == 1 else ""
        raise ValueError(
            f"{name} must be a non-empty array of shape [samples, dimensions], "
            f"got shape {list(X.shape)}{hint}."
        )
    if not jnp.issubdtype(X.dtype, jnp.floating):
        X = X.astype(jnp.result_type(float))
    check_finite(X, name)
    return X


def check_positive(x: Any, name: str) -> None:
    """Raise if the known scalar `x` is not a positive finite number."""
    if is_concrete(x) and not (math.isfinite(float(x)) and float(x) > 0):
        raise ValueError(f"{name} must be a positive number, got {float(x)!r}.")


def check_params(params: Any) -> None:
    """Raise if `params` is not a non-empty pytree of floating-point arrays."""
    leaves = jax.tree.leaves(params)
    if not leaves:
        raise ValueError("params holds no arrays; pass the pytree of trainable parameters.")
    for leaf in leaves:
        if not (hasattr(leaf, "dtype") or isinstance(leaf, float)) or not jnp.issubdtype(
            jnp.result_type(leaf), jnp.floating
        ):
            raise ValueError(
                "params must be a pytree of floating-point arrays, but one leaf is a "
                f"{type(leaf).__name__} that cannot be differentiated; split such leaves off first "
                "(for example with equinox.partition(model, equinox.is_inexact_array))."
            )


def flatten(params: Any) -> Float[Array, " p"]:
    """All leaves of `params` as one vector, in `jax.flatten_util.ravel_pytree`'s order."""
    return ravel_pytree(params)[0]
