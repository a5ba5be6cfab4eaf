"""Running mean and variance, by which observations and rewards are normalized."""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Moments(NamedTuple):
    """Mean and variance of everything seen so far."""

    mean: Array
    variance: Array
    seen: Array  # how many

    @classmethod
    def empty(cls, size: int) -> Self:
        """Mean 0, variance 1, nothing seen."""
        return cls(jnp.zeros(size), jnp.ones(size), jnp.zeros(()))

    def update(self, x: Float[Array, "N d"]) -> Self:
        """With the rows of `x` added."""
        return self.merge(x.mean(axis=0), x.var(axis=0), x.shape[0])

    def merge(self, mean: Array, variance: Array, number: int | Array) -> Self:
        """With `number` more of this mean and variance added (Chan's parallel formula)."""
        total = self.seen + number
        shift = mean - self.mean
        squares = (
            self.variance * self.seen + variance * number + shift**2 * self.seen * number / total
        )
        new = type(self)(self.mean + shift * number / total, squares / total, total)
        finite = jnp.isfinite(new.variance).all() & jnp.isfinite(new.mean).all()
        # A NaN would stay forever.
        return jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, self)

    def normalize(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """Standardized and clipped at ±10, in NumPy if all arrays are NumPy's."""
        centered = x - self.mean
        arrays = centered.__array_namespace__()
        return arrays.clip(centered / arrays.sqrt(self.variance + 1e-8), -10, 10)
