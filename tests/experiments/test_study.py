import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fabricate import fabricate

from wng.execution.ray import RayExecutor
from wng.experiments import study
from wng.experiments.study import Job, best_rate, final_return, run_jobs, summarize_missing
from wng.runs.metrics import read_metrics

PROBE = "wng/ProbeContextual-v0"
TINY = {"num_envs": 2, "rollout": 64, "minibatch": 32, "value_minibatch": 32, "hidden": (4,)}


def job(seed: int = 0, steps: int = 128, env: str = PROBE, method: str = "pg", **more) -> Job:
    return Job(env, method, seed, steps, "tuned", "tiny", {**TINY, **more})


def stamps(jobs: list[Job], root: Path) -> list[int]:
    return [(j.folder(root) / "metrics.csv").stat().st_mtime_ns for j in jobs]


def test_runs_are_those_of_wng_train_and_are_never_repeated(tmp_path: Path) -> None:
    jobs = [job(seed) for seed in (0, 1)]
    assert run_jobs(jobs, tmp_path, "probe")
    assert all(j.finished(tmp_path) for j in jobs)
    for j in jobs:
        run = j.read(tmp_path)
        assert run is not None
        np.testing.assert_array_equal(run.rows["iteration"], [1, 2])
    before = stamps(jobs, tmp_path)
    longer = [dataclasses.replace(j, steps=192) for j in jobs[:1]]
    assert run_jobs([*jobs, *longer], tmp_path, "probe")  # goes on with seed 0, repeats nothing
    assert stamps(jobs[1:], tmp_path) == before[1:]
    np.testing.assert_array_equal(read_metrics(jobs[0].folder(tmp_path))["iteration"], [1, 2, 3])
    shorter = jobs[0].read(tmp_path)
    assert shorter is not None
    assert len(shorter.rows["steps"]) == 2  # as far as the job asks
    with pytest.raises(ValueError, match="made with another configuration"):
        run_jobs([job(0, gamma=0.5)], tmp_path, "probe")


@pytest.mark.slow
def test_a_study_on_ray_comes_to_the_same(tmp_path: Path) -> None:
    few = {"population": 8, "hidden": (4,)}
    jobs = [Job("wng/PointWall-v0", "es", seed, 2000, "tuned", "tiny", few) for seed in range(3)]
    executor = RayExecutor(cores=2)
    try:
        assert run_jobs(jobs, tmp_path / "ray", "walls", executor=executor)
        before = stamps(jobs, tmp_path / "ray")
        assert run_jobs(jobs, tmp_path / "ray", "walls", executor=executor)
        assert stamps(jobs, tmp_path / "ray") == before  # nothing is repeated
    finally:
        executor.close()
    assert run_jobs(jobs, tmp_path / "here", "walls")
    for j in jobs:
        there, here = j.read(tmp_path / "ray"), j.read(tmp_path / "here")
        assert there is not None
        assert here is not None
        for name in ("iteration", "return", "direction_norm"):
            np.testing.assert_array_equal(there.rows[name], here.rows[name], name)


def test_a_failed_run_is_recorded_and_passed_over(tmp_path: Path, capsys) -> None:
    bad, good = job(env="Nonexistent-v0"), job()
    assert run_jobs([bad, good], tmp_path, "probe")
    assert "Nonexistent-v0" in str(bad.failure(tmp_path))
    assert "failed" in capsys.readouterr().out
    assert good.finished(tmp_path)
    runs, missing = study.read_runs([bad, good], tmp_path)
    assert [run.job for run in runs] == [good]
    assert missing[0].startswith("PG tuned-tiny Nonexistent-v0 seed 0: failed: ")
    written = (bad.folder(tmp_path) / "failure.txt").stat().st_mtime_ns
    assert run_jobs([bad, good], tmp_path, "probe")  # not tried again
    assert (bad.folder(tmp_path) / "failure.txt").stat().st_mtime_ns == written
    assert run_jobs([bad], tmp_path, "probe", retry=True)
    assert (bad.folder(tmp_path) / "failure.txt").stat().st_mtime_ns > written


SCRIPT = """
import sys
sys.path[:0] = [{here!r}]
from pathlib import Path
from test_study import job
from wng.experiments.study import run_jobs
run_jobs([job(seed, 25_600) for seed in (0, 1)], Path({root!r}), "probe")
"""


@pytest.mark.slow
def test_a_killed_study_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    jobs = [job(seed, 25_600) for seed in (0, 1)]
    script = SCRIPT.format(here=str(Path(__file__).parent), root=str(tmp_path / "killed"))
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
    first = jobs[0].folder(tmp_path / "killed")
    end = time.monotonic() + 120
    while not (first / "metrics.csv").exists() and time.monotonic() < end:
        time.sleep(0.05)
    parent.kill()  # and nobody tells its workers
    parent.wait()
    assert not all(j.finished(tmp_path / "killed") for j in jobs)
    assert run_jobs(jobs, tmp_path / "killed", "probe")
    assert run_jobs(jobs, tmp_path / "whole", "probe")
    for j in jobs:
        killed, whole = (j.read(tmp_path / name) for name in ("killed", "whole"))
        assert killed is not None
        assert whole is not None
        for name, column in whole.rows.items():
            if not name.startswith("seconds"):
                np.testing.assert_array_equal(killed.rows[name], column, err_msg=name)


@pytest.mark.slow
def test_a_stopped_study_says_so_and_goes_on(tmp_path: Path, monkeypatch) -> None:
    jobs = [job(seed, 10**7) for seed in (0, 1, 2)]

    children = study.run_children

    def interrupted(all_children, stop, look, **settings):
        sent = []

        def looked(child, code) -> None:
            if not sent and child.so_far()[0]:
                sent.append(os.kill(os.getpid(), signal.SIGINT))
            look(child, code)

        return children(all_children, stop, looked, **settings)

    monkeypatch.setattr(study, "run_children", interrupted)
    assert not run_jobs(jobs, tmp_path, "probe")
    assert all(j.failure(tmp_path) is None for j in jobs)
    done = int(read_metrics(jobs[0].folder(tmp_path))["steps"][-1])
    assert done > 0
    monkeypatch.undo()
    assert run_jobs([dataclasses.replace(jobs[0], steps=done + 64)], tmp_path, "probe")
    iterations = read_metrics(jobs[0].folder(tmp_path))["iteration"]
    np.testing.assert_array_equal(iterations, np.arange(1, len(iterations) + 1))


def test_two_studies_do_not_share_runs(tmp_path: Path) -> None:
    from wng.runs.directory import lock

    code = f"""
from pathlib import Path
from wng.runs.directory import lock
import time
with lock(Path({str(tmp_path)!r})):
    print("held", flush=True)
    time.sleep(60)
"""
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    with pytest.raises(ValueError, match=f"in use by process {other.pid}"):
        run_jobs([job()], tmp_path, "probe")
    other.kill()
    other.wait()
    other.stdout.close()
    with lock(tmp_path):
        pass


def test_the_last_fifth_of_a_run_counts() -> None:
    rows = {"steps": np.arange(1.0, 11), "return": np.array([9.0] * 8 + [1.0, np.nan])}
    assert final_return(rows) == 1
    rows["return"][8] = np.nan
    assert np.isnan(final_return(rows))


def test_the_best_rate(tmp_path: Path) -> None:
    levels = {1e-5: 1.0, 1e-4: 3.0, 3e-4: 2.0}
    jobs = [
        Job(PROBE, "pg", 1000, 1000, "released", f"lr{r:g}", {"learning_rate": r}) for r in levels
    ]
    assert best_rate(jobs, tmp_path) is None
    fabricate(jobs[:1], tmp_path, lambda j: levels[j.overrides["learning_rate"]])
    assert best_rate(jobs, tmp_path) is jobs[0]
    fabricate(jobs[1:], tmp_path, lambda j: levels[j.overrides["learning_rate"]])
    assert best_rate(jobs, tmp_path) is jobs[1]


def test_seeds_with_the_same_to_say_share_a_line() -> None:
    lines = ["PG tuned X-v0 seed 0: not run", "PG tuned X-v0 seed 1: not run"]
    assert summarize_missing(lines) == "- PG tuned X-v0: not run (seeds 0, 1)"
    assert (
        summarize_missing(["A b seed 3: failed: seed 4: no"])
        == "- A b: failed: seed 4: no (seed 3)"
    )
