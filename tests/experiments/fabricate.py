"""Run directories as `wng train` leaves them, with curves of the test's choice."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from wng.experiments.study import Trial
from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.metrics import MetricsWriter

ROWS = 20


def fabricate(trials: Sequence[Trial], root: Path, level: Callable[[Trial], float]) -> None:
    """Finished runs whose return climbs from 0 to `level`, with a little noise of each seed."""
    for trial in trials:
        run = RunDirectory.create(
            root / trial.label, trial.env, trial.method, trial.seed, trial.record
        )
        assert run.path == trial.folder(root)
        noise = 0.01 * np.random.default_rng(trial.seed).normal()
        evolution = "population" in trial.record
        with MetricsWriter(run.path, x="steps") as writer:
            for k in range(1, ROWS + 1):
                done = level(trial) * min(1.0, k / (0.5 * ROWS)) + noise
                row = {"iteration": k, "steps": k * trial.steps / ROWS, "episodes": 2 * k}
                row |= {"return": done, "seconds": 1.0, "seconds_cpu": 0.9}
                if evolution:
                    row |= {"population_mean": done, "seconds_episodes": 0.75}
                    row |= {"past_wall": float(done > 0.5)}
                else:
                    row |= {"seconds_env": 0.5, "seconds_policy": 0.25, "seconds_update": 0.25}
                writer.write(row)
        (run.path / "checkpoints").mkdir()
        (run.path / "checkpoints" / f"{trial.steps:012d}.safetensors").touch()
        if evolution:
            arrays = {"finals": np.zeros((2, 2), np.float32), "path": np.ones((3, 2), np.float32)}
            checkpoint.write_file(run.path / "maps" / f"{ROWS:06d}.safetensors", arrays, {})
