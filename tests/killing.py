"""`wng train … --resume`, killed again and again, beside the run that nobody disturbs."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from wng.agents.agent import Agent
from wng.runs import checkpoint
from wng.runs.metrics import read_metrics

DRIVER = """
from wng.runs import record
record.CHECKPOINT_SECONDS = 0.0  # a checkpoint at every iteration: kills hit the writing too
from wng.cli import main
main()
"""


def running(pid: int) -> bool:
    """Whether a process is there, and is more than an entry in a table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def rows(folder: Path) -> int:
    path = folder / "metrics.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def as_flags(settings: dict[str, Any]) -> list[str]:
    flags = []
    for name, value in settings.items():
        text = [str(width) for width in value] if name == "hidden" else [str(value)]
        flags += [f"--{name.replace('_', '-')}", *text]
    return flags


def kill_and_compare(
    flags: list[str],
    folder: Path,
    whole: Agent,
    steps: int,
    kills: int,
    check: Callable[[int], None] = lambda iteration: None,
) -> list[int]:
    """Iterations of the checkpoints after each kill; all else must equal the undisturbed run.

    Args:
      flags: of `wng train`.
      folder: of the run.
      whole: the same agent, untrained; it is trained here.
      steps: of the run.
      kills: how many.
      check: of what else the folder must hold, given the iteration of its checkpoint.
    """
    more = ["--steps", str(steps), "--resume", "--quiet"]
    command = [sys.executable, "-c", DRIVER, "train", *flags, *more]
    moments = random.Random(0)
    reached: list[int] = []
    for kill in range(kills):
        process = subprocess.Popen(command)
        if kill % 5 == 1:  # while it starts: imports, environments, compilation
            time.sleep(moments.uniform(0.2, 3))
        else:
            last = reached[-1] if reached else 0
            while rows(folder) <= last + 1 and process.poll() is None:
                time.sleep(0.005)
            time.sleep(moments.uniform(0, 0.2))
        assert process.poll() is None, "it ended before it could be killed"
        process.kill()
        process.wait()
        if checkpoint.saved(folder / "checkpoints"):
            _, info, problems = checkpoint.read_latest(folder / "checkpoints")
            assert problems == []
            reached.append(info["iteration"])
            assert rows(folder) >= info["iteration"]
            check(info["iteration"])
    subprocess.run(command, check=True)

    whole.learn(steps, progress=False)
    expected, counters = whole.trainer.checkpoint()
    whole.close()
    arrays, info, problems = checkpoint.read_latest(folder / "checkpoints")
    assert problems == []
    identity = {"kind": whole.family.kind, "method": whole.method}
    assert info == {**counters, **identity, "config": info["config"], "step": steps}
    assert arrays.keys() == expected.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)
    numbers = np.arange(1, counters["iteration"] + 1)
    np.testing.assert_array_equal(read_metrics(folder)["iteration"], numbers)
    return reached
