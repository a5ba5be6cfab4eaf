"""`wng train wnes --resume`, killed again and again."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from evolution.tiny import ENV, GENERATION, TINY
from wng.evolution.agent import Evolution
from wng.evolution.maps import read_maps
from wng.evolution.methods import preset
from wng.runs import checkpoint
from wng.runs.metrics import read_metrics

DRIVER = """
from wng.runs import training
training.CHECKPOINT_SECONDS = 0.0  # a checkpoint after every generation: kills hit the writing too
from wng.cli import main
main()
"""


def rows(folder: Path) -> int:
    path = folder / "metrics.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def kill_and_compare(root: Path, method: str, kills: int, generations: int) -> list[int]:
    steps = GENERATION * generations
    flags = [method, "--env", ENV, "--steps", str(steps), "--resume", "--out", str(root)]
    for name, value in TINY.items():
        flags += [f"--{name.replace('_', '-')}", "4" if name == "hidden" else str(value)]
    command = [sys.executable, "-c", DRIVER, "train", *flags]
    quiet = os.environ | {"WNG_QUIET": "1"}
    folder = root / "wng-PointWall-v0" / method / "seed0"
    moments, reached = random.Random(0), []
    for kill in range(kills):
        process = subprocess.Popen(command, env=quiet)
        if kill % 5 == 1:  # while it starts: imports, environments, compilation
            time.sleep(moments.uniform(0.2, 3))
        else:
            last = reached[-1] if reached else 0
            while rows(folder) <= last + 1 and process.poll() is None:
                time.sleep(0.005)
            time.sleep(moments.uniform(0, 0.1))
        assert process.poll() is None, "it ended before it could be killed"
        process.kill()
        process.wait()
        if checkpoint.saved(folder / "checkpoints"):
            _, info, problems = checkpoint.read_latest(folder / "checkpoints")
            assert problems == []
            reached.append(info["iteration"])
            assert rows(folder) >= info["iteration"]
            assert read_maps(folder, until=info["iteration"])[-1].number == info["iteration"]
    subprocess.run(command, check=True, env=quiet)

    whole = Evolution(ENV, method, 0, config=preset(method, env=ENV, **TINY))
    whole.learn(steps, progress=False)
    expected, counters = whole._checkpoint()
    arrays, info, problems = checkpoint.read_latest(folder / "checkpoints")
    assert problems == []
    assert info == {**counters, "config": info["config"], "step": steps}
    assert arrays.keys() == expected.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)
    numbers = np.arange(1, generations + 1)
    np.testing.assert_array_equal(read_metrics(folder)["iteration"], numbers)
    maps = read_maps(folder, until=generations)
    np.testing.assert_array_equal([g.number for g in maps], numbers)
    assert whole._trainer.episodes is not None
    finals = whole._trainer.episodes.final_observations[:-1, :2]
    np.testing.assert_array_equal(maps[-1].finals, finals)
    return reached


def test_killed_three_times(tmp_path) -> None:
    assert len(kill_and_compare(tmp_path, "wnes", kills=3, generations=120)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("method", ["wnes", "bgwnes"])
def test_killed_twenty_times(tmp_path, method: str) -> None:
    reached = kill_and_compare(tmp_path, method, kills=20, generations=1200)
    print("generations of the checkpoints after each kill:", reached)
    assert reached[-1] > reached[0]
