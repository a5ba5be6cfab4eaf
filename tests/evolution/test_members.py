"""Members that are made again in blocks, instead of being held."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wng
from wng.evolution import generation
from wng.evolution.axes import SEARCHES
from wng.evolution.members import Noise

SMALL = {"num_basis": 4, "dual_features": 16, "dual_steps": 5, "archive": 8, "neighbors": 2}


@pytest.mark.parametrize("antithetic", [True, False])
@pytest.mark.parametrize("search", list(SEARCHES))
@pytest.mark.parametrize("cls", [wng.ES, wng.BGWNES])
def test_telling_without_candidates_is_telling_with_them(
    x64: None, monkeypatch, cls, search: str, antithetic: bool
) -> None:
    """In blocks of 4 of 22 members, of which the last is not full, and some are dropped."""
    monkeypatch.setattr(generation, "BLOCK", 5 * 6)
    settings = {"population": 22, "search": search, "antithetic": antithetic, "sigma": 0.3}
    es = cls(jnp.arange(6.0), **settings, **SMALL)
    given = made = es.init(jax.random.key(0))
    for _ in range(3):
        candidates, given = es.ask(given)
        returns = np.array(-jnp.sum(candidates**2, axis=1))
        returns[[3, 20]] = np.nan, np.inf
        given, metrics = es.tell(given, candidates, returns, candidates[:, :2])
        made, same = es.tell(made, None, returns, candidates[:, :2])
        for one, other in zip(jax.tree.leaves(made), jax.tree.leaves(given), strict=True):
            if jnp.issubdtype(one.dtype, jnp.floating):
                np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
        for name, value in metrics.items():
            np.testing.assert_allclose(same[name], value, rtol=1e-6, atol=1e-9, err_msg=name)
        assert int(same["dropped"]) == 2
    assert int(made.generation) == 3


@pytest.mark.parametrize("given", [True, False])
def test_the_best_member_so_far_is_kept(given: bool) -> None:
    es = wng.ES({"x": jnp.ones(3)}, population=8, learning_rate=0.5)
    state = es.init(jax.random.key(0))
    assert float(es.best(state)[1]) == -np.inf
    np.testing.assert_array_equal(es.best(state)[0]["x"], 1)
    seen = []
    for number in range(6):
        candidates, state = es.ask(state)
        returns = np.array(-jnp.sum(candidates["x"] ** 2, axis=1)) - 10 * (number > 3)
        returns[2] = np.nan  # does not count
        kept = np.delete(np.array(candidates["x"]), 2, axis=0)
        seen += list(zip(np.delete(returns, 2), kept, strict=True))
        state, _ = es.tell(state, candidates if given else None, returns)
        value, member = max(seen, key=lambda pair: pair[0])
        found, best = es.best(state)
        assert float(best) == value
        np.testing.assert_allclose(found["x"], member, rtol=0 if given else 1e-6)


@pytest.mark.parametrize("block", [2, 6, 7, 20])
def test_sums_over_blocks_are_sums(block: int) -> None:
    rng = np.random.default_rng(0)
    rows = jnp.array(rng.normal(size=(40, 3)))
    weights, kept = jnp.array(rng.normal(size=(2, 20))), jnp.arange(20) % 7 != 3
    noise = Noise(lambda first: jax.lax.dynamic_slice_in_dim(rows, first, block), kept, block)
    exact = np.array(weights)[:, kept] @ np.array(rows[:20])[kept]
    np.testing.assert_allclose(noise.sums(weights), exact, rtol=1e-4, atol=1e-5)
    squares = np.array(weights)[:, kept] @ np.array(rows[:20])[kept] ** 2
    found = noise.sums(weights, lambda x: x**2)
    np.testing.assert_allclose(found, squares, rtol=1e-4, atol=1e-5)


def test_members_are_never_held_together() -> None:
    """Compiled for 10,000 members of 100,000 parameters, 4 GB, all buffers take less than 1 GB."""
    for cls in (wng.ES, wng.WNES, wng.WSNES):
        es = cls(jnp.zeros(100_000), population=10_000)
        state = es.init(jax.random.key(0))
        shapes = jnp.zeros(10_000), jnp.zeros((10_000, 2 if es.needs_behaviors else 0))
        compiled = es._programs.learn.lower(es._numbers, state, None, *shapes).compile()
        memory = compiled.memory_analysis()
        assert memory.temp_size_in_bytes + memory.output_size_in_bytes < 1e9
