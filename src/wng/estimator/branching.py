"""A conditional that stays one under `vmap`."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array, Bool

T = TypeVar("T")


def cond_any(needed: Bool[Array, ""], compute: Callable[[], T], keep: Callable[[], T]) -> T:
    """`jax.lax.cond(needed, compute, keep)`, where `compute` is expensive and `keep` is cheap.

    Under `vmap`, `jax.lax.cond` runs both branches for every row. Here `compute` runs only if at
    least one row needs it, and rows that do not need it keep what they have.
    """
    run_compute, compute_inputs = _without_closure(compute)
    run_keep, keep_inputs = _without_closure(keep)

    @jax.custom_batching.custom_vmap
    def branch(needed: Array, inputs: list[Array], kept: list[Array]) -> T:
        return jax.lax.cond(
            needed, lambda x, _: run_compute(x), lambda _, y: run_keep(y), inputs, kept
        )

    @branch.def_vmap
    def _(size: int, batched: Any, needed: Array, inputs: list[Array], kept: list[Array]) -> Any:
        rows_differ, inputs_differ, kept_differ = batched

        def rows(run: Callable, values: list[Array], differ: list[bool]) -> Any:
            axes = ([0 if d else None for d in differ],)
            return jax.vmap(run, in_axes=axes, axis_size=size)(values)

        def keep_rows() -> Any:
            return rows(run_keep, kept, kept_differ)

        def compute_rows() -> Any:
            found = rows(run_compute, inputs, inputs_differ)
            if not rows_differ:
                return found

            def choose(new: Array, old: Array) -> Array:
                return jnp.where(needed.reshape(size, *(1,) * (new.ndim - 1)), new, old)

            return jax.tree.map(choose, found, keep_rows())

        some = needed.any() if rows_differ else needed
        found = cond_any(some, compute_rows, keep_rows)
        return found, jax.tree.map(lambda _: True, found)

    return branch(needed, compute_inputs, keep_inputs)


def _without_closure(fn: Callable[[], T]) -> tuple[Callable[[list[Array]], T], list[Array]]:
    """`fn` as a function of the arrays that it refers to, and these arrays."""
    closed, shape = jax.make_jaxpr(fn, return_shape=True)()
    structure = jax.tree.structure(shape)

    def run(arrays: list[Array]) -> T:
        outputs = jaxpr_as_fun(closed.replace(consts=arrays))()
        return jax.tree.unflatten(structure, outputs)

    return run, list(closed.consts)
