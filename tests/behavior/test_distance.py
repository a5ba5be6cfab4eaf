"""The dual test functions, against ott-jax's Sinkhorn at the same entropic smoothing."""

import warnings
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wng.behavior.distance import (
    Potentials,
    RandomFeatures,
    dual_ascent,
    dual_value,
    random_features,
    squared_distances,
)

with warnings.catch_warnings():  # ott imports jaxopt, which announces its own end
    warnings.simplefilter("ignore", DeprecationWarning)
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

NUMBER, GAMMA = 64, 1.0
SHIFTS = jnp.array([0.0, 0.5, 1.0, 1.5, 2.0])


class Clouds(NamedTuple):
    X: jax.Array  # [shifts, N, 2], further and further from Y
    Y: jax.Array
    features: RandomFeatures


@pytest.fixture(scope="module")
def clouds() -> Clouds:
    key_x, key_y, key_f = jax.random.split(jax.random.key(0), 3)
    X, Y = (jax.random.normal(k, (NUMBER, 2)) for k in (key_x, key_y))
    spread = np.sqrt(np.mean(np.sum((np.asarray(Y)[:, None] - np.asarray(Y)) ** 2, axis=-1)))
    return Clouds(
        X + SHIFTS[:, None, None] * jnp.array([1.0, 0.0]),
        Y,
        random_features(key_f, 2, 100, spread),
    )


@pytest.fixture(scope="module")
def reference(clouds: Clouds) -> np.ndarray:
    """min ⟨C, P⟩ + γ KL(P ‖ μ⊗ν)."""

    @jax.jit
    @jax.vmap
    def solve(X: jax.Array) -> tuple[jax.Array, jax.Array]:
        geometry = pointcloud.PointCloud(X, clouds.Y, epsilon=GAMMA)
        solver = sinkhorn.Sinkhorn(threshold=1e-4, max_iterations=2000)
        output = solver(linear_problem.LinearProblem(geometry))
        return output.reg_ot_cost, output.converged

    cost, converged = solve(clouds.X)
    assert converged.all()
    return np.asarray(cost)


@pytest.fixture(scope="module")
def values(clouds: Clouds) -> dict[int, np.ndarray]:
    """The dual's value after a number of ascent steps from zero."""
    start = Potentials(jnp.zeros(100), jnp.zeros(100))

    @partial(jax.jit, static_argnums=1)
    def after(X: jax.Array, steps: int) -> jax.Array:
        def one(X: jax.Array) -> jax.Array:
            improved = dual_ascent(start, clouds.features, X, clouds.Y, GAMMA, steps)
            return dual_value(improved, clouds.features, X, clouds.Y, GAMMA)

        return jax.vmap(one)(X)

    return {steps: np.asarray(after(clouds.X, steps)) for steps in (0, 25, 10_000)}


def test_ascent_converges_to_sinkhorns_cost(
    values: dict[int, np.ndarray], reference: np.ndarray
) -> None:
    """Measured: 0.9 % to 1.8 % below after 10 000 steps; 27 % to 72 % below after 25."""
    error = 1 - values[10_000] / reference
    print("relative error:", error, "after 25 steps:", 1 - values[25] / reference)
    assert (error < 0.025).all()


@pytest.mark.parametrize("steps", [0, 25, 10_000])
def test_dual_is_a_lower_bound_in_sinkhorns_order(
    values: dict[int, np.ndarray], reference: np.ndarray, steps: int
) -> None:
    assert (np.diff(reference) > 0).all()
    assert (np.diff(values[steps]) > 0).all()
    assert (values[steps] < reference).all()


def test_every_ascent_goes_up(values: dict[int, np.ndarray]) -> None:
    assert (values[0] < values[25]).all()
    assert (values[25] < values[10_000]).all()


def test_value_by_hand_at_zero_potentials() -> None:
    """f = g = 0: γ − γ E exp(−‖x − y‖²/γ), over all pairs."""
    X, Y = jnp.array([[0.0, 0.0], [1.0, 0.0]]), jnp.array([[0.0, 0.0], [0.0, 2.0], [1.0, 2.0]])
    features = random_features(jax.random.key(0), 2, 5)
    zero = Potentials(jnp.zeros(5), jnp.zeros(5))
    terms = np.exp(-np.array([[0, 4, 5], [1, 5, 4]]) / 0.5)
    assert dual_value(zero, features, X, Y, 0.5) == pytest.approx(0.5 - 0.5 * terms.mean())
    weights = np.array([0.5, 2.0])
    weighted = np.mean(weights * (0.5 - 0.5 * terms.mean(axis=1)))
    assert dual_value(zero, features, X, Y, 0.5, jnp.asarray(weights)) == pytest.approx(weighted)


def test_value_by_hand_at_given_potentials() -> None:
    X, Y = np.array([[0.3], [1.0]]), np.array([[0.0], [2.0]])
    features = RandomFeatures(jnp.array([[1.0], [2.0]]), jnp.array([0.5, -0.5]))
    p, q = np.array([0.2, -0.4]), np.array([1.0, 0.3])
    f = np.cos(X @ [[1.0, 2.0]] + [0.5, -0.5]) @ p  # √(2/D) = 1
    g = np.cos(Y @ [[1.0, 2.0]] + [0.5, -0.5]) @ q
    slack = np.exp((f[:, None] - g - (X - Y.T) ** 2) / 0.7)
    expected = f.mean() - g.mean() - 0.7 * slack.mean() + 0.7
    found = dual_value(
        Potentials(jnp.asarray(p), jnp.asarray(q)), features, jnp.asarray(X), jnp.asarray(Y), 0.7
    )
    assert found == pytest.approx(expected, rel=1e-5)


def test_clouds_on_one_point_are_at_distance_zero() -> None:
    X = jnp.ones((4, 2))
    features = random_features(jax.random.key(0), 2, 20)
    zero = Potentials(jnp.zeros(20), jnp.zeros(20))
    improved = dual_ascent(zero, features, X, X, steps=50)
    assert dual_value(improved, features, X, X, 1.0) == pytest.approx(0, abs=1e-6)


def test_features_approximate_the_gaussian_kernel() -> None:
    X = jax.random.normal(jax.random.key(0), (6, 3))
    features = random_features(jax.random.key(1), 3, 40_000, bandwidth=2.0)
    kernel = np.exp(-np.sum((np.asarray(X)[:, None] - np.asarray(X)) ** 2, axis=-1) / (2 * 4.0))
    np.testing.assert_allclose(features(X) @ features(X).T, kernel, atol=0.03)


def test_squared_distances() -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, 5, 3))
    expected = np.sum((X[:, None] - Y[None]) ** 2, axis=-1)
    np.testing.assert_allclose(
        squared_distances(jnp.asarray(X), jnp.asarray(Y)), expected, rtol=1e-4
    )
    assert (squared_distances(jnp.asarray(X), jnp.asarray(X)) >= 0).all()


def test_a_too_long_step_does_not_overflow() -> None:
    """Tiny γ: the exponent of the first steps would be in the hundreds."""
    X, Y = jax.random.normal(jax.random.key(0), (2, 16, 2))
    features = random_features(jax.random.key(1), 2, 20)
    zero = Potentials(jnp.zeros(20), jnp.zeros(20))
    improved = dual_ascent(zero, features, X, Y, gamma=1e-3, steps=50)
    assert np.isfinite(dual_value(improved, features, X, Y, 1e-3))


def test_gradient_points_away_from_the_other_cloud(clouds: Clouds) -> None:
    """Moving X along +x, where it was shifted to, raises the distance."""
    start = Potentials(jnp.zeros(100), jnp.zeros(100))

    @jax.jit
    def slope(X: jax.Array) -> jax.Array:
        improved = dual_ascent(start, clouds.features, X, clouds.Y, GAMMA, 200)
        return jax.grad(
            lambda s: dual_value(
                improved, clouds.features, X + s * jnp.array([1.0, 0.0]), clouds.Y, GAMMA
            )
        )(0.0)

    assert slope(clouds.X[-1]) > 0.1
