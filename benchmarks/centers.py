"""Ways to choose the centers of a basis from a batch, for `python benchmarks/basis.py --centers`.

Each takes a key, samples Z [N, d] in units of the kernel's bandwidth, and the number of centers.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

Choice = Callable[[jax.Array, jax.Array, int], jax.Array]


def squared(X: jax.Array, Y: jax.Array) -> jax.Array:
    """Squared distances [N, M]."""
    return jnp.sum((X[:, None] - Y[None]) ** 2, axis=-1)


def uniform(key: jax.Array, Z: jax.Array, number: int) -> jax.Array:
    """Samples at random."""
    return Z[jax.random.permutation(key, len(Z))[:number]]


def one_by_one(key: jax.Array, Z: jax.Array, number: int, greedy: bool) -> jax.Array:
    """A random sample, then again and again one that is far from those before it.

    Either with a probability proportional to the squared distance, as in k-means++ (Arthur and
    Vassilvitskii, 2007), or, if `greedy`, the farthest (Gonzalez, 1985).
    """
    keys = jax.random.split(key, number + 1)

    def add(state: tuple[jax.Array, jax.Array], key: jax.Array) -> tuple:
        row, distance = state
        distance = jnp.minimum(distance, jnp.sum((Z - Z[row]) ** 2, axis=1))
        drawn = jax.random.categorical(key, jnp.log(distance))
        return (jnp.argmax(distance) if greedy else drawn, distance), row

    first = jax.random.randint(keys[0], (), 0, len(Z))
    start = (first.astype(int), jnp.full(len(Z), jnp.inf))
    return Z[jax.lax.scan(add, start, keys[1:])[1]]


def lloyd(key: jax.Array, Z: jax.Array, number: int) -> jax.Array:
    """k-means++ and three of Lloyd's iterations: centers become means, no longer samples."""

    def move(_: int, centers: jax.Array) -> jax.Array:
        own = jax.nn.one_hot(jnp.argmin(squared(Z, centers), axis=1), number).T
        size = own.sum(axis=1, keepdims=True)
        return jnp.where(size > 0, own @ Z / jnp.maximum(size, 1), centers)

    return jax.lax.fori_loop(0, 3, move, one_by_one(key, Z, number, greedy=False))


def leverage(key: jax.Array, Z: jax.Array, number: int) -> jax.Array:
    """Samples by their approximate ridge leverage score (Musco and Musco, 2017).

    The scores are those of the kernel matrix, from as many random samples as there are centers; the
    ridge is what these leave of its trace, for each center.
    """
    key_samples, key_draw = jax.random.split(key)
    landmarks = uniform(key_samples, Z, number)
    K, inner = (jnp.exp(-squared(X, landmarks) / 2) for X in (Z, landmarks))

    def left(ridge: jax.Array | float) -> jax.Array:
        solved = jnp.linalg.solve(inner + ridge * jnp.eye(number), K.T)
        return 1 - jnp.sum(K * solved.T, axis=1)

    scores = jnp.maximum(left(jnp.maximum(left(1e-5).sum() / number, 1e-4)), 1e-9)
    # The largest of these are a draw without replacement (Gumbel's trick).
    noisy = jnp.log(scores) + jax.random.gumbel(key_draw, (len(Z),))
    return Z[jax.lax.top_k(noisy, number)[1]]


CHOICES: dict[str, Choice] = {
    "random": uniform,
    "k-means++": partial(one_by_one, greedy=False),
    "farthest point": partial(one_by_one, greedy=True),
    "k-means++ and Lloyd": lloyd,
    "leverage scores": leverage,
}
