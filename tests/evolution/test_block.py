"""Seeds side by side: one program, the results of seeds alone."""

import jax
import numpy as np
import pytest

from evolution.test_trainer import MODULE, center, trainer
from wng.evolution.block import EvolutionBlock

LINE = f"{MODULE}Line-v0"
METHODS = {
    "es": {},
    "wsnes": {"normalize_observations": True, "sigma": 0.1},
    "bgwnes": {"restart_after": 2},
}


def make(seed: int, method: str = "es", env: str = LINE, **settings):
    return trainer(env, method, seed, **settings)


@pytest.mark.parametrize("method", METHODS)
def test_seeds_side_by_side_are_seeds_alone(method: str) -> None:
    alone = [make(seed, method, **METHODS[method]) for seed in (5, 6)]
    block = EvolutionBlock([make(seed, method, **METHODS[method]) for seed in (5, 6)])
    for _ in range(3):
        rows = block.iterate(range(2))
        for row, each in zip(rows, alone, strict=True):
            expected = each.iterate()
            assert isinstance(row, dict)
            assert row.keys() == expected.keys()
            for name in ("steps", "return", "population_mean", "sigma", "direction_norm"):
                np.testing.assert_allclose(row[name], expected[name], rtol=1e-3, err_msg=name)
    for one, other in zip(block.trainers, alone, strict=True):
        np.testing.assert_allclose(center(one), center(other), atol=1e-3)
        np.testing.assert_allclose(one.episodes.path, other.episodes.path, atol=1e-3)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
            *(each.state.observation_moments for each in (one, other)),
        )
    assert np.abs(center(block.trainers[0]) - center(block.trainers[1])).max() > 0.01


def test_a_block_resumes_as_a_block_bit_for_bit_and_a_seed_alone_says_that_it_does_not() -> None:
    seeds, settings = (1, 2, 3), METHODS["wsnes"]
    whole = EvolutionBlock([make(seed, "wsnes", **settings) for seed in seeds])
    whole.iterate(range(3))
    saved = [each.checkpoint() for each in whole.trainers]
    resumed = EvolutionBlock([make(seed, "wsnes", **settings) for seed in seeds])
    for each, (arrays, info) in zip(resumed.trainers, saved, strict=True):
        assert each.restore(arrays, info) is None
    for block in (whole, resumed):
        block.iterate(range(3))
        block.iterate(range(3))
    for one, other in zip(whole.trainers, resumed.trainers, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one.checkpoint()[0], other.checkpoint()[0])
    message = make(1, "wsnes", **settings).restore(*saved[0])
    assert message is not None
    assert "not match an uninterrupted run bit for bit" in message


def test_a_trainer_that_is_not_wanted_stays_where_it_is() -> None:
    block = EvolutionBlock([make(seed) for seed in (1, 2)])
    assert block.iterate([1])[0] is None
    assert [each.iteration for each in block.trainers] == [0, 1]
    both = EvolutionBlock([make(seed) for seed in (1, 2)])
    both.iterate([0, 1])
    block.iterate([0])
    for one, other in zip(block.trainers, both.trainers, strict=True):
        np.testing.assert_array_equal(center(one), center(other))


def test_only_runs_that_differ_in_the_seed_make_a_block() -> None:
    for other in (make(2, "wnes"), make(2, sigma=0.3), make(2, backend="gymnasium")):
        with pytest.raises(ValueError, match="side by side"):
            EvolutionBlock([make(1), other])
        other.close()
