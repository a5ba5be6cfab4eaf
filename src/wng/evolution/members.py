"""Members of a generation: each follows from (key, generation, number) alone.

Whoever knows the center θ and, if it learns, σ can make any member, so only numbers need to travel.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

MEMBERS, FRESH, FIXED, BASIS, RESTART = range(5)  # purposes of the keys of a strategy
LANES = 16  # float32 numbers in the widest vector register
Sigma = float | Float[Array, ""] | Float[Array, " p"]  # one number, or one for each parameter
BLOCK = 2**23  # numbers in a block of regenerated members


def key_for(key: PRNGKeyArray, purpose: int, generation: int | Array) -> PRNGKeyArray:
    """Derive the key of a generation for one purpose."""
    return jax.random.fold_in(jax.random.fold_in(key, purpose), generation)


def member(
    antithetic: bool,
    key: PRNGKeyArray,
    generation: int | Array,
    center: Float[Array, " p"],
    sigma: Sigma,
    number: int | Array,
) -> Float[Array, " p"]:
    """Make θ̃_n = θ + σε_n; θ is the `center`, n the `number`, `key` that of the strategy."""
    pair = number // 2 if antithetic else number
    key = jax.random.fold_in(key_for(key, MEMBERS, generation), pair)
    noise = jax.random.normal(key, center.shape, center.dtype)
    if antithetic:
        noise = jnp.where(number % 2 == 0, noise, -noise)
    return center + sigma * noise


def members(
    antithetic: bool,
    key: PRNGKeyArray,
    generation: int | Array,
    center: Float[Array, " p"],
    sigma: Sigma,
    first: int | Array,
    number: int,
) -> Float[Array, "n p"]:
    """Make `number` members, from the one numbered `first` on, each the same as by `member`.

    With antithetic pairs, `first` and `number` must be even: a pair is drawn once.
    """
    step = 2 if antithetic else 1
    key = key_for(key, MEMBERS, generation)
    draws = map_rows(
        lambda n: jax.random.normal(jax.random.fold_in(key, n), center.shape, center.dtype)
    )(first // step + jnp.arange(number // step))
    if antithetic:
        draws = jnp.stack([draws, -draws], axis=1).reshape(number, -1)
    return center + sigma * draws


class Noise(NamedTuple):
    """θ̃_n − θ of all members: an array, or regenerated in blocks so that it is never held whole."""

    rows: Callable[[int | Array], Float[Array, "B p"]]  # B of them, from a number on
    kept: Bool[Array, " N"]  # others count as 0
    block: int  # B

    def sums(
        self,
        weights: Float[Array, "K N"],
        of: Callable[[Array], Float[Array, "B q"]] = lambda rows: rows,
    ) -> Float[Array, "K q"]:
        """Compute Σ_n w_kn of(θ̃_n − θ), by default Σ_n w_kn (θ̃_n − θ), for each k."""
        weights = jnp.where(self.kept, weights, 0)
        blocks = -(-self.kept.size // self.block)
        if blocks == 1:
            return weights @ of(self.rows(0))[: self.kept.size]
        filled = jnp.pad(weights, ((0, 0), (0, blocks * self.block - self.kept.size)))
        parts = filled.reshape(-1, blocks, self.block).swapaxes(0, 1)

        def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
            first, now = part
            return total + now @ of(self.rows(first)), None

        firsts = self.block * jnp.arange(blocks)
        shape = jax.eval_shape(lambda: parts[0] @ of(self.rows(0)))
        return jax.lax.scan(add, jnp.zeros(shape.shape, shape.dtype), (firsts, parts))[0]


def map_rows(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.vmap(fn)` in which a row's result does not depend on how many other rows there are.

    XLA computes the rows that are left over from whole vector registers with other instructions,
    which may round differently. So rows are filled up to whole registers, and cut off again.
    """

    def run(*arguments: Any) -> Any:
        number = jax.tree.leaves(arguments)[0].shape[0]
        filled = jnp.minimum(jnp.arange(-(-number // LANES) * LANES), number - 1)
        wide = jax.tree.map(lambda x: x[filled], arguments)
        return jax.tree.map(lambda x: x[:number], jax.vmap(fn)(*wide))

    return run
