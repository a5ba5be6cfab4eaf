from pathlib import Path

import numpy as np
import pytest
from killing import as_flags, kill_and_compare

from evolution.tiny import ENV, GENERATION, TINY
from wng.agents.agent import Agent
from wng.evolution.maps import read_maps
from wng.evolution.methods import preset

pytestmark = pytest.mark.slow


def kill(root: Path, method: str, kills: int, generations: int) -> list[int]:
    flags = [method, "--env", ENV, "--out", str(root), *as_flags(TINY)]
    whole = Agent(ENV, method, 0, config=preset(method, env=ENV, **TINY))
    folder = root / "wng-PointWall-v0" / method / "seed0"

    def has_maps(generation: int) -> None:
        assert read_maps(folder, until=generation)[-1].number == generation

    reached = kill_and_compare(flags, folder, whole, GENERATION * generations, kills, has_maps)
    maps = read_maps(folder, until=generations)
    np.testing.assert_array_equal([g.number for g in maps], np.arange(1, generations + 1))
    assert whole.trainer.episodes is not None
    finals = whole.trainer.episodes.final_observations[:-1, :2]
    np.testing.assert_array_equal(maps[-1].finals, finals)
    return reached


def test_killed_once(tmp_path) -> None:
    assert len(kill(tmp_path, "wnes", kills=1, generations=60)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["wnes", "bgwnes"])
def test_killed_twenty_times(tmp_path, method: str) -> None:
    reached = kill(tmp_path, method, kills=20, generations=1200)
    print("generations of the checkpoints after each kill:", reached)
    assert reached[-1] > reached[0]
