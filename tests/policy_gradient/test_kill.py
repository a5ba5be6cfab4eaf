"""`wng train --resume`, killed again and again."""

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny import TINY

from wng.policy_gradient.agent import Agent
from wng.policy_gradient.methods import preset
from wng.runs import checkpoint
from wng.runs.metrics import read_metrics

DRIVER = """
from wng.runs import training
training.CHECKPOINT_SECONDS = 0.0  # a checkpoint at every iteration: kills hit the writing too
from wng.cli import main
main()
"""


def rows(folder: Path) -> int:
    path = folder / "metrics.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def kill_and_compare(root: Path, kills: int, iterations: int) -> list[int]:
    flags = ["wnpg", "--env", "Pendulum-v1", "--steps", str(64 * iterations), "--resume"]
    for name, value in TINY.items():
        flags += [f"--{name.replace('_', '-')}", "8" if name == "hidden" else str(value)]
    command = [sys.executable, "-c", DRIVER, "train", *flags, "--out", str(root)]
    folder = root / "Pendulum-v1" / "wnpg" / "seed0"
    moments, reached = random.Random(0), []
    for kill in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        if kill % 5 == 1:  # while it starts: imports, environments, compilation
            time.sleep(moments.uniform(0.2, 3))
        else:
            last = reached[-1] if reached else 0
            while rows(folder) <= last + 1 and process.poll() is None:
                time.sleep(0.02)
            time.sleep(moments.uniform(0, 0.2))
        assert process.poll() is None, "it ended before it could be killed"
        process.kill()
        process.wait()
        if checkpoint.saved(folder / "checkpoints"):
            _, info, problems = checkpoint.read_latest(folder / "checkpoints")
            assert problems == []
            reached.append(info["iteration"])
            assert rows(folder) >= info["iteration"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    whole = Agent("Pendulum-v1", "wnpg", 0, config=preset("wnpg", **TINY))
    whole.learn(64 * iterations, progress=False)
    expected, counters = whole._checkpoint()
    whole.close()
    arrays, info, problems = checkpoint.read_latest(folder / "checkpoints")
    assert problems == []
    assert info == {**counters, "config": info["config"], "step": 64 * iterations}
    assert arrays.keys() == expected.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)
    np.testing.assert_array_equal(read_metrics(folder)["iteration"], np.arange(1, iterations + 1))
    return reached


def test_killed_twice(tmp_path) -> None:
    assert len(kill_and_compare(tmp_path, kills=2, iterations=60)) == 2


@pytest.mark.slow
def test_killed_twenty_times(tmp_path) -> None:
    reached = kill_and_compare(tmp_path, kills=20, iterations=600)
    print("iterations of the checkpoints after each kill:", reached)
    assert reached[-1] > reached[0]
