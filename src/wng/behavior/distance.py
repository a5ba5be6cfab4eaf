r"""The entropic Wasserstein distance between two clouds, by dual test functions.

    OT_γ(μ, ν) = sup_{f, g}  E f(X) − E g(Y) − γ E exp((f(X) − g(Y) − ‖X − Y‖²)/γ) + γ

with X ~ μ and Y ~ ν independent (Pacchiano et al., Learning to Score Behaviors, 2020, eq. 4, with
the constant γ that makes the distance of two points on top of each other zero). The test
functions are linear in random Fourier features, f(x) = pᵀφ(x), and are improved by a few steps of
gradient ascent. Unlike Sinkhorn's algorithm this carries over from one batch to the next, and its
gradient in X is cheap.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from wng.estimator.shuffle import shuffled

LARGEST_EXPONENT = 10.0  # keeps a first, too long ascent step from overflowing


class RandomFeatures(NamedTuple):
    """φ(x) = √(2/D) cos(Ωx/s + b); inner products approximate a Gaussian kernel of width s."""

    frequencies: Float[Array, "D d"]
    phases: Float[Array, " D"]

    def __call__(self, X: Float[Array, "N d"]) -> Float[Array, "N D"]:
        """φ at each row of X."""
        scale = (2 / self.phases.size) ** 0.5
        return scale * jnp.cos(X @ self.frequencies.T + self.phases)


class Potentials(NamedTuple):
    """Coefficients p, q of the two test functions."""

    f: Float[Array, " D"]
    g: Float[Array, " D"]


def random_features(
    key: PRNGKeyArray, dim: int, number: int = 100, bandwidth: float | Array = 1.0
) -> RandomFeatures:
    """D = `number` features for behaviors of `dim` dimensions."""
    key_frequency, key_phase = jax.random.split(key)
    return RandomFeatures(
        jax.random.normal(key_frequency, (number, dim)) / bandwidth,
        jax.random.uniform(key_phase, (number,), maxval=2 * jnp.pi),
    )


def squared_distances(X: Float[Array, "N d"], Y: Float[Array, "K d"]) -> Float[Array, "N K"]:
    """‖x − y‖² of every pair."""
    products = X @ Y.T
    squares = jnp.sum(X**2, axis=1)[:, None] + jnp.sum(Y**2, axis=1)
    return jnp.maximum(squares - 2 * products, 0)


def dual_value(
    potentials: Potentials,
    features: RandomFeatures,
    X: Float[Array, "N d"],
    Y: Float[Array, "K d"],
    gamma: float,
    weights: Float[Array, " N"] | None = None,
    matched: bool = False,
) -> Float[Array, ""]:
    """The dual objective over all pairs; a lower bound of OT_γ between the clouds.

    `weights` [N] are importance weights of X, for behaviors that cannot be differentiated. With
    `matched`, only the pairs (x_n, y_n) count: the bound is then on the cost of that coupling.
    """
    f, g = features(X) @ potentials.f, features(Y) @ potentials.g
    return _objective(f, g, _costs(X, Y, matched), gamma, weights)


def _costs(X: Array, Y: Array, matched: bool) -> Array:
    """‖x − y‖² of every pair, or of the matched pairs alone as [N, 1]."""
    return jnp.sum((X - Y) ** 2, axis=1)[:, None] if matched else squared_distances(X, Y)


def _objective(f: Array, g: Array, cost: Array, gamma: float, weights: Array | None) -> Array:
    other = g[:, None] if cost.shape[1] == 1 else g[None, :]
    exponent = (f[:, None] - other - cost) / gamma
    slack = gamma * jnp.exp(jnp.minimum(exponent, LARGEST_EXPONENT)).mean(axis=1)
    each = f - slack + gamma
    return jnp.mean(each if weights is None else weights * each) - g.mean()


def dual_ascent(
    potentials: Potentials,
    features: RandomFeatures,
    X: Float[Array, "N d"],
    Y: Float[Array, "K d"],
    gamma: float = 1.0,
    steps: int = 25,
    step_size: float = 5e-2,
    weights: Float[Array, " N"] | None = None,
    matched: bool = False,
) -> Potentials:
    """The test functions after `steps` of gradient ascent on the dual objective."""
    at_x, at_y, cost = features(X), features(Y), _costs(X, Y, matched)

    def value(p: Potentials) -> Array:
        return _objective(at_x @ p.f, at_y @ p.g, cost, gamma, weights)

    def climb(p: Potentials, _: None) -> tuple[Potentials, None]:
        return _higher(p, jax.grad(value)(p), step_size), None

    return jax.lax.scan(climb, potentials, None, length=steps)[0]


def stochastic_ascent(
    key: PRNGKeyArray,
    batch: int,
    potentials: Potentials,
    features: RandomFeatures,
    X: Float[Array, "N d"],
    Y: Float[Array, "K d"],
    gamma: float = 1.0,
    steps: int = 25,
    step_size: float = 5e-2,
    weights: Float[Array, " N"] | None = None,
) -> Potentials:
    """As `dual_ascent`, with `batch` samples of X and of Y in each step, so with batch² pairs.

    The samples of a step are drawn without replacement. Returned is the mean of the test functions
    over the second half of the steps, which evens out the noise of the draws.
    """
    weights = jnp.ones(X.shape[0]) if weights is None else weights
    keys = jax.random.split(key)
    # Shuffled once, and wrapped around, so that each step takes the rows that come next.
    near, far = (
        jnp.resize(x[shuffled(k, x.shape[0])], (x.shape[0] + batch, x.shape[1]))
        for k, x in zip(keys, (jnp.column_stack([X, weights]), Y), strict=True)
    )
    at_near, at_far = features(near[:, :-1]), features(far)

    def climb(carry: tuple[Potentials, Potentials], t: Array) -> tuple[Any, None]:
        p, total = carry
        x, at_x = _rows(t * batch % X.shape[0], batch, near, at_near)
        y, at_y = _rows(t * batch % Y.shape[0], batch, far, at_far)
        cost = squared_distances(x[:, :-1], y)

        def value(p: Potentials) -> Array:
            return _objective(at_x @ p.f, at_y @ p.g, cost, gamma, x[:, -1])

        p = _higher(p, jax.grad(value)(p), step_size)
        share = jnp.where(t >= steps // 2, 1 / (steps - steps // 2), 0)
        return (p, _higher(total, p, share)), None

    nothing = jax.tree.map(jnp.zeros_like, potentials)
    return jax.lax.scan(climb, (potentials, nothing), jnp.arange(steps))[0][1]


def _higher(p: Potentials, gradient: Potentials, step: float | Array) -> Potentials:
    return jax.tree.map(lambda x, dx: x + step * dx, p, gradient)


def _rows(first: Array, number: int, *arrays: Array) -> list[Array]:
    return [jax.lax.dynamic_slice_in_dim(x, first, number) for x in arrays]
