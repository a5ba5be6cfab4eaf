"""Workers of a Ray cluster, killed in mid-generation and in mid-run."""

import hashlib
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from evolution.small_envs import mean_state
from evolution.tiny import TINY, without_times

from drills.tally import Drill, LostError
from wng.agents.registry import EVOLUTION
from wng.agents.run import Job, Outcome, Status
from wng.evolution.methods import preset
from wng.evolution.trainer import EvolutionTrainer
from wng.execution.processes import progress_of, run_jobs
from wng.execution.ray import RayExecutor
from wng.runs.metrics import read_metrics

MORTAL = "evolution.mortal_env:Mortal-v0"
KILLS = 10


def digest(trainer: EvolutionTrainer) -> str:
    return hashlib.sha256(np.asarray(trainer.state.strategy.center).tobytes()).hexdigest()


@pytest.mark.slow
def test_a_ray_worker_is_killed_in_every_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/evolution/test_population.py kills one, and is quick."""
    mark = tmp_path / "killed"
    monkeypatch.setenv("WNG_MORTAL", str(mark))
    config = preset("wnes", **{**TINY, "horizon": 10, "backend": "gymnasium"})
    mark.touch()  # nobody is killed here
    resolved = EVOLUTION.resolve(MORTAL, config)
    serial = EvolutionTrainer(resolved, config, 3, mean_state)
    executor = RayExecutor(cores=2)
    try:
        spread = EvolutionTrainer(resolved, config, 3, mean_state, executor)
        note = "the sha256 of the parameters is that of the serial run"
        with Drill("A Ray worker is killed in mid-generation", note) as drill:
            for _ in range(KILLS):
                mark.touch()
                expected = serial.iterate()
                mark.unlink()  # the next who comes by dies, once
                with drill.trial():
                    row = spread.iterate()
                    assert mark.exists()
                    np.testing.assert_equal(without_times(row), without_times(expected))
                    if digest(spread) != digest(serial):
                        raise LostError("other parameters")
        spread.close()
    finally:
        executor.close()
    serial.close()


@pytest.mark.slow
def test_a_ray_worker_is_killed_that_has_a_run(tmp_path: Path) -> None:
    """As `wng train --seeds 0-1 --executor ray` has them."""
    env = "wng/PointWall-v0"
    config = preset("es", env=env, population=10)

    def jobs(root: Path) -> list[Job]:
        return [Job(env, "es", seed, 60_000, config, root) for seed in range(2)]

    killed: list[int] = []

    def kill(job: Job, outcome: Outcome | None) -> None:
        steps = progress_of(job.folder)[0]
        if outcome is None and len(killed) < 3 and steps > 10_000 * len(killed):
            owner = Path("/proc", (job.folder / "lock").read_text().strip())
            if owner.exists():  # and not the one before, which was killed
                worker = (owner / "stat").read_text().rpartition(")")[2].split()[1]
                if "_Holder" in Path("/proc", worker, "cmdline").read_text():
                    os.kill(int(worker), signal.SIGKILL)
                    killed.append(int(worker))

    executor = RayExecutor(cores=2)
    try:
        some = jobs(tmp_path / "some")
        outcomes = run_jobs(some, lambda: False, kill, executor=executor)
    finally:
        executor.close()
    whole = jobs(tmp_path / "whole")
    run_jobs(whole, lambda: False, lambda job, outcome: None)
    assert len(set(killed)) == 3
    with Drill("A Ray worker that has a run of `--seeds` is killed") as drill:
        for _ in killed:
            with drill.trial():
                assert set(outcomes.values()) == {Outcome(Status.FINISHED)}
                for one, other in zip(some, whole, strict=True):
                    rows, expected = read_metrics(one.folder), read_metrics(other.folder)
                    for name in ("iteration", "steps", "return", "gradient_norm"):
                        np.testing.assert_array_equal(rows[name], expected[name], name)
