"""Running one step of a float32 program in float64, under every JAX transformation."""

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_batching import custom_vmap


def in_float64(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, traced with float64 available; it must cast its input up and its output down itself.

    `jax.enable_x64` holds while `fn` is traced. `vmap` of an already traced `fn` (`vmap(jit(f))`,
    `vmap` over a `scan`) applies batching rules later, where it no longer holds and JAX would
    truncate to float32. So batching is taken over: trace the batched `fn` anew, in float64.
    """

    @custom_vmap
    def call(*args: Any) -> Any:
        with jax.enable_x64(True):
            return fn(*args)

    @call.def_vmap
    def batched_call(axis_size: int, in_batched: list[Any], *args: Any) -> tuple[Any, Any]:
        in_axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batched))
        out = in_float64(jax.vmap(fn, in_axes=in_axes, axis_size=axis_size))(*args)
        return out, jax.tree.map(lambda _: True, out)

    return call
