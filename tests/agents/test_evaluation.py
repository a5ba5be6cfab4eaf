"""Evaluation during training: `learn(eval_every=…)`, the same for both families."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from evolution import tiny as evolution
from policy_gradient.tiny import TINY

import wng
from wng.agents.agent import Agent
from wng.envs.vector import VectorEnv
from wng.runs import checkpoint, record
from wng.runs.metrics import DETERMINISTIC, read_metrics

EVALUATIONS = {"eval_every": 100.0, "eval_episodes": 3}  # a policy gradient takes 64 at a time


def gradient() -> Agent:
    return Agent("wng/ProbeContextual-v0", "wnpg", **TINY)


def strategy() -> Agent:
    return evolution.tiny()


@pytest.fixture(params=[gradient, strategy])
def make(request) -> Iterator[Callable[[], Agent]]:
    """Makes the same agent again and again; closes all in the end."""
    made: list[Agent] = []

    def make_one() -> Agent:
        made.append(request.param())
        return made[-1]

    yield make_one
    for agent in made:
        agent.close()


def learn(agent: Agent, iterations: int, **settings) -> Agent:
    """Up to a number of iterations."""
    size = 64 if agent.family.kind == "policy_gradient" else evolution.GENERATION
    return agent.learn(size * iterations - agent.steps, progress=False, **settings)


def new_run(agent: Agent, root: Path) -> wng.RunDirectory:
    return wng.RunDirectory.create(root, agent.env, agent.method, agent.seed, {})


def assert_same_files(one: Path, other: Path) -> None:
    """Two checkpoints hold the same, bit for bit."""
    (arrays, info), (expected, expected_info) = checkpoint.read(one), checkpoint.read(other)
    assert info == expected_info
    assert arrays.keys() == expected.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)


def assert_same_run(one: wng.RunDirectory, other: wng.RunDirectory) -> None:
    rows, expected = read_metrics(one.path), read_metrics(other.path)
    assert rows.keys() == expected.keys()
    for name in rows:
        if not name.startswith("seconds"):
            np.testing.assert_array_equal(rows[name], expected[name], err_msg=name)
    newest = [checkpoint.saved(run.checkpoints)[0] for run in (one, other)]
    assert_same_files(*newest)
    assert_same_files(one.best, other.best)


def test_evaluating_changes_nothing_but_adds_a_column(make) -> None:
    alone, rows, expected = learn(make(), 5), [], []

    def look(agent: Agent, row: dict[str, float]) -> None:
        rows.append(row)
        expected.append(float(agent.evaluate(13).mean()))

    agent = learn(make(), 5, callback=look, eval_every=150, eval_episodes=13)
    evolution.assert_same(agent, alone)
    found = [row[DETERMINISTIC] for row in rows]
    # Of policy gradients the third iteration is the first to reach 150, the last ends the training.
    due = [2, 4] if agent.family.kind == "policy_gradient" else [0, 1, 2, 3, 4]
    assert [k for k in range(5) if np.isfinite(found[k])] == due
    assert [found[k] for k in due] == [expected[k] for k in due]  # bit for bit
    assert DETERMINISTIC not in learn_rows(make())


def learn_rows(agent: Agent) -> dict[str, float]:
    """The row of one iteration without evaluation."""
    rows: list[dict[str, float]] = []
    learn(agent, 1, callback=lambda _, row: rows.append(row))
    return rows[0]


def test_a_kill_at_any_moment_leaves_a_run_that_resumes_exactly(
    make, tmp_path, monkeypatch
) -> None:
    """A copy of the folder is what a kill at that moment would leave."""
    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", 1e9)  # at evaluations alone
    whole, copies = make(), []
    run = new_run(whole, tmp_path / "whole")

    def copy(*_) -> None:
        copies.append(shutil.copytree(run.path, tmp_path / f"copy{len(copies)}"))

    def then_copy(write: Callable) -> Callable:
        return lambda *arguments, **more: (write(*arguments, **more), copy())[0]

    with monkeypatch.context() as patched:
        for name in ("write", "write_file"):  # one after the other
            patched.setattr(checkpoint, name, then_copy(getattr(checkpoint, name)))
        learn(whole, 6, run=run, callback=copy, **EVALUATIONS)
    ahead = 0
    for path in copies:
        killed, agent = wng.RunDirectory.open(path), make()
        assert agent.restore(killed) == []
        if killed.best.exists():
            ahead += checkpoint.read(killed.best)[1]["iteration"] > agent.trainer.iteration
        learn(agent, 6, run=killed, **EVALUATIONS)
        assert_same_run(killed, run)
    assert ahead  # of the checkpoint that is resumed from


def test_the_best_checkpoint_is_the_agent_of_that_iteration(make, tmp_path) -> None:
    agent = make()
    run = new_run(agent, tmp_path)
    learn(agent, 6, run=run, **EVALUATIONS)
    rows = read_metrics(run.path)
    best = int(np.nanargmax(rows[DETERMINISTIC]))
    loaded = wng.load(run.best)
    assert loaded.steps == rows["steps"][best]
    assert loaded.evaluate(3).mean() == rows[DETERMINISTIC][best]
    evolution.assert_same(loaded, learn(make(), best + 1))
    with pytest.raises(ValueError, match="does not continue"):
        loaded.learn(64, progress=False, run=run)
    loaded.close()


def test_its_environments_are_made_once_and_closed(make, monkeypatch) -> None:
    made, closed, close = [], [], VectorEnv.close
    monkeypatch.setattr(VectorEnv, "close", lambda self: (closed.append(self), close(self)))
    arenas = record._arenas

    def note(*arguments) -> Iterator[VectorEnv]:
        for env in arenas(*arguments):
            made.append(env)
            yield env

    monkeypatch.setattr(record, "_arenas", note)
    learn(make(), 4, eval_every=1, eval_episodes=12)
    assert [env.num_envs for env in made] == [10, 2]
    assert all(env in closed for env in made)
