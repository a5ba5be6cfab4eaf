from pathlib import Path

import pytest
from killing import as_flags, kill_and_compare
from tiny import TINY

from wng.agents.agent import Agent
from wng.policy_gradient.methods import preset


def kill(root: Path, kills: int, iterations: int) -> list[int]:
    flags = ["wnpg", "--env", "Pendulum-v1", "--out", str(root), *as_flags(TINY)]
    whole = Agent("Pendulum-v1", "wnpg", 0, config=preset("wnpg", **TINY))
    folder = root / "Pendulum-v1" / "wnpg" / "seed0"
    return kill_and_compare(flags, folder, whole, 64 * iterations, kills)


def test_killed_once(tmp_path) -> None:
    assert len(kill(tmp_path, kills=1, iterations=60)) == 1


@pytest.mark.slow
def test_killed_twenty_times(tmp_path) -> None:
    reached = kill(tmp_path, kills=20, iterations=1500)
    print("iterations of the checkpoints after each kill:", reached)
    assert reached[-1] > reached[0]
