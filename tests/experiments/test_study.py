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

from wng.agents.run import Job, Outcome
from wng.execution.processes import progress_of
from wng.execution.ray import RayExecutor
from wng.experiments import study
from wng.experiments.study import (
    Missing,
    Trial,
    best_rate,
    final_return,
    run_trials,
    summarize_missing,
)
from wng.runs import checkpoint
from wng.runs.executor import LocalExecutor
from wng.runs.metrics import read_metrics

PROBE = "wng/ProbeContextual-v0"
TINY = {"num_envs": 2, "rollout": 64, "minibatch": 32, "value_minibatch": 32, "hidden": (4,)}


def trial(seed: int = 0, steps: int = 128, env: str = PROBE, method: str = "pg", **more) -> Trial:
    return Trial(env, method, seed, steps, "tuned", "tiny", {**TINY, **more})


def stamps(trials: list[Trial], root: Path) -> list[int]:
    return [(t.folder(root) / "metrics.csv").stat().st_mtime_ns for t in trials]


def test_runs_are_those_of_wng_train_and_are_never_repeated(tmp_path: Path) -> None:
    trials = [trial(seed) for seed in (0, 1)]
    assert run_trials(trials, tmp_path, "probe")
    assert all(t.finished(tmp_path) for t in trials)
    for t in trials:
        run = t.read(tmp_path)
        assert run is not None
        np.testing.assert_array_equal(run.rows["iteration"], [1, 2])
    before = stamps(trials, tmp_path)
    longer = [dataclasses.replace(t, steps=192) for t in trials[:1]]
    assert run_trials([*trials, *longer], tmp_path, "probe")  # goes on with seed 0, repeats nothing
    assert stamps(trials[1:], tmp_path) == before[1:]
    np.testing.assert_array_equal(read_metrics(trials[0].folder(tmp_path))["iteration"], [1, 2, 3])
    shorter = trials[0].read(tmp_path)
    assert shorter is not None
    assert len(shorter.rows["steps"]) == 2  # as far as the trial asks
    with pytest.raises(ValueError, match="made with another configuration"):
        run_trials([trial(0, gamma=0.5)], tmp_path, "probe")


@pytest.mark.slow
def test_a_study_on_ray_comes_to_the_same(tmp_path: Path) -> None:
    few = {"population": 8, "hidden": (4,)}
    trials = [
        Trial("wng/PointWall-v0", "es", seed, 2000, "tuned", "tiny", few) for seed in range(3)
    ]
    executor = RayExecutor(cores=2)
    try:
        assert run_trials(trials, tmp_path / "ray", "walls", executor=executor)
        before = stamps(trials, tmp_path / "ray")
        assert run_trials(trials, tmp_path / "ray", "walls", executor=executor)
        assert stamps(trials, tmp_path / "ray") == before  # nothing is repeated
    finally:
        executor.close()
    assert run_trials(trials, tmp_path / "here", "walls")
    for t in trials:
        there, here = t.read(tmp_path / "ray"), t.read(tmp_path / "here")
        assert there is not None
        assert here is not None
        for name in ("iteration", "return", "direction_norm"):
            np.testing.assert_array_equal(there.rows[name], here.rows[name], name)


def test_a_failed_run_is_recorded_and_passed_over(tmp_path: Path, capsys) -> None:
    bad, good = trial(env="Nonexistent-v0"), trial()
    assert run_trials([bad, good], tmp_path, "probe")
    assert "Nonexistent-v0" in str(bad.failure(tmp_path))
    assert "failed" in capsys.readouterr().out
    assert good.finished(tmp_path)
    runs, missing = study.read_runs([bad, good], tmp_path)
    assert [run.trial for run in runs] == [good]
    assert [(found.trial, found.why) for found in missing] == [
        (bad, f"failed: {bad.failure(tmp_path)}")
    ]
    assert study.read_runs([trial(7)], tmp_path) == ([], [Missing(trial(7), "not run")])
    written = (bad.folder(tmp_path) / "failure.txt").stat().st_mtime_ns
    assert run_trials([bad, good], tmp_path, "probe")  # not tried again
    assert (bad.folder(tmp_path) / "failure.txt").stat().st_mtime_ns == written
    assert run_trials([bad], tmp_path, "probe", retry=True)
    assert (bad.folder(tmp_path) / "failure.txt").stat().st_mtime_ns > written


@pytest.mark.parametrize("method", ["ppo", "es"])
def test_seeds_in_a_jax_environment_are_trained_side_by_side(
    tmp_path: Path, method: str, monkeypatch
) -> None:
    monkeypatch.setattr(LocalExecutor, "cores", lambda _: 2)
    few = {"population": 4, "hidden": (4,)} if method == "es" else TINY
    trials = [
        Trial("wng/PointWall-v0", method, seed, 400, "tuned", "tiny", few) for seed in range(4)
    ]
    other = dataclasses.replace(trials[0], seed=9, steps=200)
    assert run_trials([*trials, other], tmp_path, "walls")
    blocks = []
    for t in (*trials, other):
        saved = checkpoint.saved(t.folder(tmp_path) / "checkpoints")
        blocks.append(checkpoint.read(saved[0])[1]["block"])
    assert blocks == [[0, 1], [0, 1], [2, 3], [2, 3], [9]]


SCRIPT = """
import sys
sys.path[:0] = [{here!r}]
from pathlib import Path
from test_study import trial
from wng.experiments.study import run_trials
run_trials([trial(seed, 25_600) for seed in (0, 1)], Path({root!r}), "probe")
"""


@pytest.mark.slow
def test_a_killed_study_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    trials = [trial(seed, 25_600) for seed in (0, 1)]
    script = SCRIPT.format(here=str(Path(__file__).parent), root=str(tmp_path / "killed"))
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
    first = trials[0].folder(tmp_path / "killed")
    end = time.monotonic() + 120
    while not (first / "metrics.csv").exists() and time.monotonic() < end:
        time.sleep(0.05)
    parent.kill()  # and nobody tells its workers
    parent.wait()
    assert not all(t.finished(tmp_path / "killed") for t in trials)
    assert run_trials(trials, tmp_path / "killed", "probe")
    assert run_trials(trials, tmp_path / "whole", "probe")
    for t in trials:
        killed, whole = (t.read(tmp_path / name) for name in ("killed", "whole"))
        assert killed is not None
        assert whole is not None
        for name, column in whole.rows.items():
            if not name.startswith("seconds"):
                np.testing.assert_array_equal(killed.rows[name], column, err_msg=name)


@pytest.mark.slow
def test_a_stopped_study_says_so_and_goes_on(tmp_path: Path, monkeypatch) -> None:
    trials = [trial(seed, 10**7) for seed in (0, 1, 2)]

    run_jobs = study.run_jobs

    def interrupted(jobs, stop, look, **settings):
        sent = []

        def looked(job: Job, outcome: Outcome | None) -> None:
            if not sent and progress_of(job.folder)[0]:
                sent.append(os.kill(os.getpid(), signal.SIGINT))
            look(job, outcome)

        return run_jobs(jobs, stop, looked, **settings)

    monkeypatch.setattr(study, "run_jobs", interrupted)
    assert not run_trials(trials, tmp_path, "probe")
    assert all(t.failure(tmp_path) is None for t in trials)
    done = int(read_metrics(trials[0].folder(tmp_path))["steps"][-1])
    assert done > 0
    monkeypatch.undo()
    assert run_trials([dataclasses.replace(trials[0], steps=done + 64)], tmp_path, "probe")
    iterations = read_metrics(trials[0].folder(tmp_path))["iteration"]
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
        run_trials([trial()], tmp_path, "probe")
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
    trials = [
        Trial(PROBE, "pg", 1000, 1000, "released", f"lr{r:g}", {"learning_rate": r}) for r in levels
    ]
    assert best_rate(trials, tmp_path) is None
    fabricate(trials[:1], tmp_path, lambda t: levels[t.overrides["learning_rate"]])
    assert best_rate(trials, tmp_path) is trials[0]
    fabricate(trials[1:], tmp_path, lambda t: levels[t.overrides["learning_rate"]])
    assert best_rate(trials, tmp_path) is trials[1]


def test_seeds_with_the_same_to_say_share_a_line() -> None:
    missing = [Missing(Trial("X-v0", "pg", seed, 64, "tuned"), "not run") for seed in (0, 1)]
    failed = Missing(Trial("X-v0", "pg", 3, 64, "tuned", "lr1"), "failed: seed 4: no")
    assert summarize_missing([missing[0], failed, missing[1]]) == (
        "- PG tuned X-v0: not run (seeds 0, 1)\n- PG tuned-lr1 X-v0: failed: seed 4: no (seed 3)"
    )
    assert summarize_missing([]) == ""


def test_a_trial_and_its_job_are_the_same_run(tmp_path: Path) -> None:
    for tried in (trial(3, gamma=0.5), Trial("wng/PointWall-v0", "wnes", 0, 400, "paper")):
        job = tried.job(tmp_path)
        assert job.folder == tried.folder(tmp_path)
        assert job.record == tried.record
        assert job.resume
        assert (job.env, job.method, job.seed) == tried.who[1:]
