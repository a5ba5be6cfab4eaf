"""One run as data, and run."""

import dataclasses
import json
from pathlib import Path

import pytest
from policy_gradient.tiny import TINY

import wng
from wng.agents.registry import EVOLUTION, GRADIENT
from wng.agents.run import Job, Status, run_job, run_name
from wng.policy_gradient.methods import preset
from wng.policy_gradient.trainer import Trainer
from wng.runs.metrics import read_metrics

PROBE = "wng/ProbeContextual-v0"
CONFIG = preset("pg", **TINY)


def job(root: Path, **changes) -> Job:
    fields = {"env": PROBE, "method": "pg", "seed": 2, "steps": 128, "config": CONFIG, "out": root}
    return Job(**(fields | changes))


@pytest.mark.parametrize("config", [CONFIG, wng.EvolutionConfig(hidden=(3, 4))])
def test_a_job_survives_json(tmp_path, config) -> None:
    one = job(tmp_path, config=config, resume=True, command="wng train", eval_every=64)
    assert Job.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert one.folder == tmp_path / "wng-ProbeContextual-v0" / "pg" / "seed2"
    assert one.family is (GRADIENT if config is CONFIG else EVOLUTION)


def test_a_run_is_named_after_its_method_or_its_axes() -> None:
    assert run_name(GRADIENT, "PG", CONFIG) == "pg"
    assert run_name(GRADIENT, "", CONFIG) == "pg"
    for settings in ("tuned", "paper"):
        for method in GRADIENT.methods:
            assert run_name(GRADIENT, method, GRADIENT.preset(method, settings)) == method
    clipped = dataclasses.replace(CONFIG, proximity="clip", geometry="fisher")
    assert run_name(GRADIENT, "pg", clipped) == "clip_fisher_optimizer"
    assert run_name(GRADIENT, "", clipped) == "clip_fisher_optimizer"
    strategy = wng.EvolutionConfig(proximity="none", geometry="wasserstein")
    assert run_name(EVOLUTION, "", strategy) == "wnes"


def test_a_job_runs_resumes_and_is_not_overwritten(tmp_path) -> None:
    said, concluded = [], []
    quiet = {"progress": False, "say": said.append}
    assert run_job(job(tmp_path), **quiet).status is Status.FINISHED
    assert said == []
    with pytest.raises(ValueError, match="already holds a run: add --resume"):
        run_job(job(tmp_path), **quiet)
    outcome = run_job(
        job(tmp_path, steps=256, resume=True),
        conclude=lambda agent, run: concluded.append((agent.steps, run.path)),
        **quiet,
    )
    assert outcome.status is Status.FINISHED
    assert said == ["Resuming at step 128."]
    folder = job(tmp_path).folder
    assert concluded == [(256, folder)]
    assert read_metrics(folder)["iteration"].tolist() == [1, 2, 3, 4]
    other = dataclasses.replace(CONFIG, learning_rate=0.5)
    with pytest.raises(ValueError, match="learning_rate"):
        run_job(job(tmp_path, steps=256, resume=True, config=other), **quiet)


def test_a_job_evaluates_and_resumes_with_its_own_evaluations_alone(tmp_path) -> None:
    plain = job(tmp_path)
    assert not {"eval_every", "eval_episodes"} & plain.record.keys()
    run_job(job(tmp_path, eval_every=64, eval_episodes=2), progress=False)
    assert len(read_metrics(plain.folder)["return_deterministic"]) == 2
    more = {"steps": 256, "resume": True}
    for changes, sentence in [
        ({}, "eval_every: 64 → not set"),
        ({"eval_every": 128, "eval_episodes": 2}, "eval_every: 64 → 128"),
        ({"eval_every": 64, "eval_episodes": 3}, "eval_episodes: 2 → 3"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            run_job(job(tmp_path, **more, **changes), progress=False)
    run_job(job(tmp_path, **more, eval_every=64, eval_episodes=2), progress=False)
    evaluations = read_metrics(plain.folder)["return_deterministic"]
    assert len(evaluations) == 4
    assert wng.load(wng.RunDirectory.open(plain.folder).best).evaluate(2).mean() == max(evaluations)


def test_a_job_that_cannot_fit_leaves_no_folder(tmp_path, monkeypatch) -> None:
    def refuse(self) -> None:
        raise ValueError("a rollout would take more memory than there is.")

    monkeypatch.setattr(Trainer, "check_memory", refuse)
    with pytest.raises(ValueError, match="more memory than there is"):
        run_job(job(tmp_path), progress=False)
    assert list(tmp_path.iterdir()) == []
