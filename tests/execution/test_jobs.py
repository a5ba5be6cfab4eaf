"""One run as data (`Job`) and as a function (`run_job`)."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from wng.agents.registry import FAMILIES, METHODS, family_of
from wng.agents.run import Job, Outcome, Status, run_job, run_name
from wng.runs.directory import RunDirectory, RunTakenError
from wng.runs.metrics import read_metrics

PROBE, POINT = "wng/ProbeContextual-v0", "wng/PointWall-v0"
TINY = {
    "pg": {"num_envs": 2, "rollout": 64, "minibatch": 32, "value_minibatch": 32, "hidden": (4,),
           "backend": "gymnasium"},
    "es": {"population": 8, "hidden": (4, 3), "delta": -0.5},
}  # fmt: skip


def tiny(method: str, out: Path, steps: int = 64, **more) -> Job:
    config = family_of(method).preset(method, **TINY[method])
    return Job(PROBE if method == "pg" else POINT, method, 3, steps, config, out, **more)


@pytest.mark.parametrize("method", ["pg", "es"])
def test_a_job_survives_json(tmp_path: Path, method: str) -> None:
    job = tiny(method, tmp_path / "a b", resume=True, command="wng train 'a b' é")
    again = Job.from_json(json.loads(json.dumps(job.to_json())))
    assert again == job
    assert type(again.config) is job.family.config
    assert again.config.hidden == TINY[method]["hidden"]  # JSON has no tuples
    assert isinstance(again.out, Path)
    for name in ("family", "folder", "record"):
        assert getattr(again, name) == getattr(job, name)


@pytest.mark.parametrize("method", METHODS)
def test_every_preset_survives_json(method: str) -> None:
    for settings in ("tuned", "paper", "released"):
        config = family_of(method).preset(method, settings, "wng/QuadrupedWall-v0")
        job = Job(POINT, method, 0, 10**12, config, Path("runs"))
        assert Job.from_json(json.loads(json.dumps(job.to_json()))) == job


def test_a_job_of_another_version_is_refused(tmp_path: Path) -> None:
    saved = tiny("pg", tmp_path).to_json()
    saved["config"]["later"] = 1
    with pytest.raises(ValueError, match="are not those of a Config: it was written by another"):
        Job.from_json(saved)


def test_the_folder_is_that_of_the_run(tmp_path: Path) -> None:
    job = tiny("es", tmp_path)
    run = RunDirectory.create(tmp_path, job.env, job.method, job.seed, job.record)
    assert run.path == job.folder == tmp_path / "wng-PointWall-v0" / "es" / "seed3"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.kind)
def test_names_of_runs(family) -> None:
    for name, method in family.methods.items():
        config = family.config(**method.axes)
        assert run_name(family, name, config) == run_name(family, method.title, config) == name
        first = next(n for n, m in family.methods.items() if m.axes == method.axes)
        assert run_name(family, "", config) == first
    config = family.config(proximity="wasserstein", geometry="mine:metric")
    assert run_name(family, "", config).startswith("wasserstein_mine:metric")
    assert run_name(family, next(iter(family.methods)), config) == run_name(family, "", config)


def test_a_run_is_started_continued_and_refused(tmp_path: Path) -> None:
    said: list[str] = []
    job = tiny("pg", tmp_path, command="wng train as typed")
    assert job.existing() is None
    assert run_job(job, progress=False, say=said.append) == Outcome(Status.FINISHED)
    assert said == []
    assert RunDirectory.open(job.folder).record["command"] == "wng train as typed"
    with pytest.raises(ValueError, match="already holds a run: add --resume"):
        run_job(job, progress=False)

    longer = dataclasses.replace(job, steps=128, resume=True)
    ended = []
    outcome = run_job(
        longer, progress=False, say=said.append, conclude=lambda *both: ended.append(both)
    )
    assert outcome == Outcome(Status.FINISHED)
    assert said == ["Resuming at step 64."]
    ((agent, run),) = ended
    assert (agent.steps, run.path) == (128, job.folder)
    np.testing.assert_array_equal(read_metrics(job.folder)["steps"], [64, 128])

    other = dataclasses.replace(longer, config=dataclasses.replace(job.config, gamma=0.5))
    with pytest.raises(ValueError, match=r"another configuration \(gamma: 0.99 → 0.5\)"):
        run_job(other, progress=False)
    with run.lock(), pytest.raises(RunTakenError, match="in use by process"):
        run_job(longer, progress=False)


def test_a_run_that_is_stopped_says_how_far_it_came(tmp_path: Path, monkeypatch) -> None:
    from wng.agents.agent import Agent

    learn = Agent.learn
    monkeypatch.setattr(Agent, "learn", lambda self, steps, **more: learn(self, 64, **more))
    ended = []
    outcome = run_job(
        tiny("pg", tmp_path, 6400), progress=False, conclude=lambda *both: ended.append(both)
    )
    assert outcome == Outcome(Status.STOPPED, "Stopped at 64 of 6,400 steps")
    assert not ended
