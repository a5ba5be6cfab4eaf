"""Checks of user input: kinds and shapes always, values where they are known (outside jit)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def is_concrete(x: Any) -> bool:
    """Whether the value of `x` can be looked at, i.e. `x` is not being traced."""
    return not isinstance(x, jax.core.Tracer)


def check_array(x: Any, name: str) -> Float[Array, "..."]:
    """`x` as a floating-point array."""
    try:
        x = jnp.asarray(x)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers, got {_kind(x)}.") from None
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise ValueError(f"{name} must be real, got {x.dtype}; pass real and imaginary parts.")
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))


def check_finite(x: Array, name: str) -> None:
    """Raise if the known array `x` holds a NaN or an infinity."""
    # With NumPy: inside jit, jnp would trace the check of an array that is known there, too.
    if is_concrete(x) and not np.isfinite(np.asarray(x)).all():
        raise ValueError(f"{name} contains a NaN or an infinity; it must be finite.")


def check_samples(X: Any, name: str = "X") -> Float[Array, "N d"]:
    """`X` as a floating-point [N, d] array with at least one finite sample."""
    X = check_array(X, name)
    if X.ndim != 2 or 0 in X.shape:
        hint = " (one-dimensional behaviors: pass X[:, None])" if X.ndim == 1 else ""
        raise ValueError(
            f"{name} must be a non-empty array of shape [samples, dimensions], "
            f"got shape {list(X.shape)}{hint}."
        )
    check_finite(X, name)
    return X


def check_flat(vector: Any, num_params: int, name: str) -> Float[Array, " p"]:
    """`vector` as a flat floating-point array with one entry for each parameter."""
    vector = check_array(vector, name)
    if vector.shape != (num_params,):
        raise ValueError(
            f"{name} must be flat with {num_params} entries, one for each parameter, got shape "
            f"{list(vector.shape)}; flatten a pytree with jax.flatten_util.ravel_pytree."
        )
    return vector


def check_positive(x: Any, name: str) -> None:
    """Raise if `x` is not a scalar, or known and not a positive finite number."""
    number = isinstance(x, int | float) or (hasattr(x, "shape") and x.shape == ())
    if not number or (is_concrete(x) and not (math.isfinite(float(x)) and float(x) > 0)):
        shown = repr(float(x)) if number else repr(x) if isinstance(x, str) else _kind(x)
        raise ValueError(f"{name} must be a positive number, got {shown}.")


def check_count(x: Any, name: str, least: int) -> None:
    """Raise if `x` is not a whole number of at least `least`."""
    if isinstance(x, bool) or not isinstance(x, int) or x < least:
        traced = isinstance(x, jax.Array)
        hint = f" (In optax.inject_hyperparams, put {name!r} into static_args.)" if traced else ""
        raise ValueError(f"{name} must be a whole number, at least {least}, got {x!r}.{hint}")


def check_callable(fn: Any, name: str, what: str) -> None:
    """Raise if `fn` is not a function."""
    if not callable(fn):
        raise ValueError(f"{name} must be a function θ ↦ {what}, got {_kind(fn)}.")


def check_key(key: Any) -> None:
    """Raise if `key` is not one JAX random key."""
    typed = hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    raw = getattr(key, "dtype", None) == jnp.uint32 and getattr(key, "shape", None) == (2,)
    if not raw and not (typed and key.shape == ()):
        raise ValueError(
            f"key must be a single JAX random key, such as jax.random.key(0), got {_kind(key)}."
        )


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
                f"params must be a pytree of floating-point arrays, but one leaf is {_kind(leaf)} "
                "and cannot be differentiated; split such leaves off first "
                "(for example with equinox.partition(model, equinox.is_inexact_array))."
            )


def _kind(x: Any) -> str:
    """What `x` is, in a few words."""
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"an array of {x.dtype} with shape {list(x.shape)}"
    return f"a {type(x).__name__}"
