"""A training loop without the training, killed again and again."""

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.metrics import read_metrics

LOOP = """
import sys, types
wng = types.ModuleType("wng")  # not the real one, which takes a second to import JAX
wng.__path__ = [sys.argv[1]]
sys.modules["wng"] = wng
import numpy as np
from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.metrics import MetricsWriter

run = RunDirectory.open(sys.argv[2])
with run.lock():
    step, resume_at = 0, None
    if checkpoint.saved(run.checkpoints):
        arrays, info, problems = checkpoint.read_latest(run.checkpoints)
        assert not problems, problems
        step = resume_at = info["step"]
    with MetricsWriter(run.path, resume_at) as metrics:
        while True:
            step += 1
            metrics.write({"iteration": step, "return": 0.1 * step})
            if step % 2 == 0:
                metrics.sync()
                arrays = {str(i): np.full(200_000, step) for i in range(4)}
                checkpoint.write(run.checkpoints, step, arrays, {"copy": step})
            print("done", flush=True)
"""


def test_sigkill_at_any_moment(tmp_path) -> None:
    source = Path(checkpoint.__file__).parent.parent
    run = RunDirectory.create(tmp_path, "Hopper-v5", "wnpg", 0, {})
    moments = random.Random(0)
    reached = 0
    for kill in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(source), str(run.path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        if kill:  # the first is killed while it starts
            assert process.stdout.readline() == b"done\n"
        time.sleep(moments.uniform(0, 0.1))
        process.kill()
        process.wait()
        process.stdout.close()
        if checkpoint.saved(run.checkpoints):
            arrays, info, problems = checkpoint.read_latest(run.checkpoints)
            assert problems == []
            assert info["copy"] == info["step"] >= reached
            assert all((array == info["step"]).all() for array in arrays.values())
            reached = info["step"]
            columns = read_metrics(run.path)
            steps = np.arange(1, len(columns["iteration"]) + 1)
            assert len(steps) >= reached
            np.testing.assert_array_equal(columns["iteration"], steps)
            np.testing.assert_array_equal(columns["return"], 0.1 * steps)
    assert reached > 1  # how far depends on the machine
    assert len(checkpoint.saved(run.checkpoints)) <= 3  # one that it died before deleting
