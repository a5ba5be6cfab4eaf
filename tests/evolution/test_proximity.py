import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wng.evolution.config import StrategyConfig
from wng.evolution.proximity import NOVELTY, WASSERSTEIN, Archive, Keys, Memory

with warnings.catch_warnings():  # ott imports jaxopt, which announces its own end
    warnings.simplefilter("ignore", DeprecationWarning)
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn


def empty_archive(size: int, dim: int) -> Archive:
    return NOVELTY.empty(StrategyConfig(archive=size), dim)


def novelty(archive: Archive, X: jax.Array, neighbors: int) -> jax.Array:
    return NOVELTY.compare(StrategyConfig(neighbors=neighbors), archive, X)


def empty_memory(size: int, population: int, dim: int, features: int) -> Memory:
    settings = {"memory": size, "population": population, "dual_features": features}
    return WASSERSTEIN.empty(StrategyConfig(antithetic=False, **settings), dim)


def test_novelty_by_hand() -> None:
    archive = empty_archive(4, 2)
    X = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_array_equal(novelty(archive, X, 3), 0)  # nothing to be new against
    for point in ([0.0, 0.0], [0.0, 1.0], [6.0, 8.0]):
        archive = archive.add(jnp.array(point))
    np.testing.assert_allclose(novelty(archive, X, 2), [0.5, (5 + 18**0.5) / 2], rtol=1e-5)
    np.testing.assert_allclose(  # fewer known than neighbours asked for
        novelty(archive, X, 10), [(0 + 1 + 10) / 3, (5 + 18**0.5 + 5) / 3], rtol=1e-5
    )


def test_the_archive_forgets_the_oldest() -> None:
    archive = empty_archive(2, 1)
    for value in (1.0, 2.0, 3.0):
        archive = archive.add(jnp.array([value]))
    assert sorted(np.array(archive.behaviors)[:, 0]) == [2.0, 3.0]


def test_the_memory_holds_the_last_populations() -> None:
    memory = empty_memory(2, 3, 1, 8)
    first = jnp.ones((3, 1))
    memory = memory.add(first, memory.potentials)
    np.testing.assert_array_equal(memory.behaviors, np.ones((2, 3, 1)))  # fills every place
    memory = memory.add(2 * first, memory.potentials).add(3 * first, memory.potentials)
    assert sorted(np.array(memory.behaviors)[:, 0, 0]) == [2.0, 3.0]


def far_and_near() -> tuple[Memory, jax.Array]:
    """A past around the origin, and a population a part of which has moved away."""
    key = jax.random.key(1)
    past = 0.3 * jax.random.normal(key, (20, 2))
    moved = jnp.linspace(0, 4, 20)[:, None] * jnp.array([1.0, 0.5])
    memory = empty_memory(2, 20, 2, 200)
    return memory.add(past, memory.potentials), past + moved


def distance(memory: Memory, X: jax.Array, kept=None, steps: int = 100, batch: int = 200):
    kept = jnp.ones(len(X), bool) if kept is None else kept
    config = StrategyConfig(dual_gamma=0.1, dual_steps=steps, dual_batch=batch)
    keys = Keys(fixed=jax.random.key(2), fresh=jax.random.key(3))
    return WASSERSTEIN.compare(config, memory, keys, X, kept)


def test_members_far_from_the_past_score_higher() -> None:
    memory, X = far_and_near()
    f, _, _ = distance(memory, X)
    to_past = np.linalg.norm(np.array(X)[:, None] - np.array(memory.behaviors[0]), axis=2).min(1)
    assert np.corrcoef(f, to_past)[0, 1] > 0.9


def sinkhorn_distance(X: jax.Array, past: jax.Array) -> float:
    squares = ((np.array(X)[:, None] - np.array(past)) ** 2).sum(2)
    geometry = pointcloud.PointCloud(X, past, epsilon=0.1 * squares.mean())
    problem = linear_problem.LinearProblem(geometry)
    return float(sinkhorn.Sinkhorn(max_iterations=5000)(problem).reg_ot_cost)


def test_the_distance_nears_sinkhorns() -> None:
    memory, X = far_and_near()
    _, value, _ = distance(memory, X, steps=5000)
    assert value == pytest.approx(sinkhorn_distance(X, memory.behaviors[0]), rel=0.1)


def test_batches_find_the_same_test_function_and_distance() -> None:
    """Of 200 members with steps of 60; 20 generations, as test functions carry over."""
    past = 0.3 * jax.random.normal(jax.random.key(1), (200, 2))
    X = past[::-1] + jnp.linspace(0, 4, 200)[:, None] * jnp.array([1.0, 0.5])
    memory = empty_memory(2, 200, 2, 200)
    whole = parts = memory.add(past, memory.potentials)
    for _ in range(20):
        f, value, potentials = distance(whole, X, batch=200)
        whole = whole._replace(potentials=potentials)
        g, other, potentials = distance(parts, X, batch=60)
        parts = parts._replace(potentials=potentials)
    assert np.corrcoef(f, g)[0, 1] > 0.99
    assert other == pytest.approx(float(value), rel=0.05)
    assert other == pytest.approx(sinkhorn_distance(X, past), rel=0.1)
    _, sampled, _ = distance(parts, X, batch=40, steps=1)  # reported on 160 of 200 and of 400
    assert sampled == pytest.approx(float(other), rel=0.15)
    kept = jnp.arange(200) < 150  # members left out have weight 0
    a, _, _ = distance(whole, X, kept, batch=60)
    b, _, _ = distance(whole, jnp.where(kept[:, None], X, 100.0), kept, batch=60)
    np.testing.assert_allclose(a[:150], b[:150], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_unit_of_behaviors_does_not_matter(scale: float) -> None:
    memory, X = far_and_near()
    f, value, _ = distance(memory, X)
    scaled = memory._replace(behaviors=scale * memory.behaviors)
    g, scaled_value, _ = distance(scaled, scale * X)
    np.testing.assert_allclose(f, g, rtol=1e-3, atol=1e-4)
    assert scaled_value == pytest.approx(scale**2 * float(value), rel=1e-3)


def test_without_a_past_there_is_no_distance() -> None:
    memory = empty_memory(2, 4, 2, 8)
    f, value, potentials = distance(memory, jnp.ones((4, 2)))
    assert float(value) == 0
    np.testing.assert_array_equal(f, 0)
    np.testing.assert_array_equal(potentials.f, 0)


def test_members_left_out_do_not_move_the_test_functions() -> None:
    memory, X = far_and_near()
    kept = jnp.arange(20) < 12
    elsewhere = jnp.where(kept[:, None], X, X[0] + 100.0)
    a = distance(memory, jnp.where(kept[:, None], X, X[0]), kept)
    b = distance(memory, elsewhere, kept)
    np.testing.assert_allclose(a[0][:12], b[0][:12], rtol=1e-4, atol=1e-5)
