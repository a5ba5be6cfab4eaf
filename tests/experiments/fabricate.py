"""Run directories as `wng train` leaves them, with curves of the test's choice."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from wng.experiments.study import Job
from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.metrics import MetricsWriter

ROWS = 20


def fabricate(jobs: Sequence[Job], root: Path, level: Callable[[Job], float]) -> None:
    """Finished runs whose return climbs from 0 to `level`, with a little noise of each seed."""
    for job in jobs:
        run = RunDirectory.create(root / job.label, job.env, job.method, job.seed, job.record)
        assert run.path == job.folder(root)
        noise = 0.01 * np.random.default_rng(job.seed).normal()
        evolution = "population" in job.record
        with MetricsWriter(run.path, x="steps") as writer:
            for k in range(1, ROWS + 1):
                done = level(job) * min(1.0, k / (0.5 * ROWS)) + noise
                row = {"iteration": k, "steps": k * job.steps / ROWS, "episodes": 2 * k}
                row |= {"return": done, "seconds": 1.0, "seconds_cpu": 0.9}
                if evolution:
                    row |= {"population_mean": done, "seconds_episodes": 0.75}
                    row |= {"past_wall": float(done > 0.5)}
                else:
                    row |= {"seconds_env": 0.5, "seconds_policy": 0.25, "seconds_update": 0.25}
                writer.write(row)
        (run.path / "checkpoints").mkdir()
        (run.path / "checkpoints" / f"{job.steps:012d}.safetensors").touch()
        if evolution:
            arrays = {"finals": np.zeros((2, 2), np.float32), "path": np.ones((3, 2), np.float32)}
            checkpoint.write_file(run.path / "maps" / f"{ROWS:06d}.safetensors", arrays, {})
