"""Trees of several runs as one tree, whose arrays have a leading axis."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Stack:
    """Remembers the last result, in one piece and in pieces, so that it need not be stacked again.

    A program for several runs wants one piece; each run holds its own.
    """

    def __init__(self) -> None:
        self._whole: Any = None
        self._pieces: list[Any] = []

    def join(self, pieces: Sequence[Any]) -> Any:
        """Return the pieces in one; quick if they are those of the last `split`."""
        now, before = jax.tree.leaves(list(pieces)), jax.tree.leaves(self._pieces)
        if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
            return jax.tree.map(lambda *rows: jnp.stack(rows), *pieces)
        return self._whole

    def split(self, whole: Any, number: int) -> list[Any]:
        """Return the rows of a tree of arrays; views, where that is possible."""
        leaves, structure = jax.tree.flatten(whole)
        host = [
            x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x) for x in leaves
        ]
        rows = ([x[i] for x in host] for i in range(number))
        self._whole, self._pieces = whole, [jax.tree.unflatten(structure, row) for row in rows]
        return self._pieces
