"""The loop around a trainer, with one that only counts."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from wng.runs import checkpoint, training
from wng.runs.directory import RunDirectory
from wng.runs.metrics import read_metrics
from wng.runs.training import check_seed, restore, train

IDENTITY = {"kind": "counter", "method": "counting"}


class Counter:
    """Counts, ten steps an iteration; refuses to do iteration `bad`."""

    config, resolved, spec, horizon, newest = None, None, SimpleNamespace(id="x"), None, None

    def __init__(self, seed: int = 0, bad: int = -1):
        self.seed, self.bad, self.iteration, self.kept = seed, bad, 0, []

    @property
    def steps(self) -> int:
        return 10 * self.iteration

    @property
    def state(self) -> int:
        return self.iteration

    def initial_state(self) -> int:
        return 0

    def check_memory(self) -> None:
        if self.bad == 0:
            raise ValueError("it does not fit.")

    def iterate(self) -> training.Row:
        if self.iteration + 1 == self.bad:
            raise ArithmeticError("oh")
        self.iteration += 1
        return {"iteration": self.iteration, "steps": self.steps, "return": -1.0}

    def shown(self, row: training.Row) -> training.Row:
        return {"return": row["return"]}

    def keep(self, folder: Path) -> None:
        self.kept.append((folder, self.iteration))

    def checkpoint(self):
        return {"count": np.array(self.iteration)}, {"seed": self.seed}

    def restore(self, arrays, info) -> str | None:
        self.iteration = int(arrays["count"])
        return "something was lost." if self.bad == -2 else None

    def close(self) -> None:
        pass


def new_run(root: Path) -> RunDirectory:
    return RunDirectory.create(root, "x", "counting", 0, {})


def run_to(trainer: Counter, total: int, run: RunDirectory | None = None, **settings) -> Counter:
    train(trainer, total, "counter", identity=IDENTITY, run=run, progress=False, **settings)
    return trainer


def test_training_goes_up_to_a_total_in_whole_iterations(tmp_path) -> None:
    run = new_run(tmp_path)
    trainer = run_to(Counter(), 25, run)
    assert trainer.steps == 30
    assert run_to(trainer, 30, run).steps == 30
    assert trainer.kept == [(run.path, number) for number in (1, 2, 3)]
    rows = read_metrics(run.path)
    assert rows["iteration"].tolist() == [1, 2, 3]
    assert (rows["seconds_cpu"] >= 0).all()
    arrays, info, problems = checkpoint.read_latest(run.checkpoints)
    assert (arrays["count"], info, problems) == (3, {"seed": 0, "step": 30, **IDENTITY}, [])
    assert trainer.newest == checkpoint.saved(run.checkpoints)[0].resolve()


def test_nothing_is_kept_without_a_run() -> None:
    trainer = run_to(Counter(), 25)
    assert (trainer.steps, trainer.kept, trainer.newest) == (30, [], None)


def test_a_callback_sees_each_row_and_stops_with_false() -> None:
    seen = []

    def callback(row: training.Row) -> bool:
        seen.append(row["steps"])
        return len(seen) < 2

    assert run_to(Counter(), 1000, callback=callback).steps == 20
    assert seen == [10, 20]


def test_an_error_leaves_the_last_whole_iteration(tmp_path) -> None:
    run = new_run(tmp_path)
    with pytest.raises(ArithmeticError, match="oh"):
        run_to(Counter(bad=4), 100, run)
    again = Counter()
    assert restore(again, run) == []
    assert again.iteration == 3
    assert run_to(again, 50, run).iteration == 5
    assert read_metrics(run.path)["iteration"].tolist() == [1, 2, 3, 4, 5]


def test_a_row_that_was_not_written_is_not_in_a_checkpoint(tmp_path, monkeypatch) -> None:
    run, trainer = new_run(tmp_path), Counter()
    run_to(trainer, 10, run)

    def full(self, row) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(training.MetricsWriter, "write", full)
    with pytest.raises(OSError, match="no space left"):
        run_to(trainer, 30, run)
    assert checkpoint.read_latest(run.checkpoints)[0]["count"] == 1


@pytest.mark.parametrize(("seconds", "expected"), [(1e9, []), (-1.0, [1, 2])])
def test_checkpoints_are_written_from_time_to_time(
    tmp_path, monkeypatch, seconds: float, expected: list[int]
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", seconds)
    run, seen = new_run(tmp_path), []

    def callback(row: training.Row) -> None:
        if checkpoint.saved(run.checkpoints):
            seen.append(int(checkpoint.read_latest(run.checkpoints)[0]["count"]))

    run_to(Counter(), 20, run, callback=callback)
    assert seen == expected
    assert checkpoint.read_latest(run.checkpoints)[0]["count"] == 2


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path) -> None:
    run = new_run(tmp_path)
    with pytest.raises(ValueError, match="it does not fit"):
        run_to(Counter(bad=0), 10, run)
    assert not (run.path / "metrics.csv").exists()


def test_a_run_that_the_trainer_does_not_continue_is_refused(tmp_path) -> None:
    run = new_run(tmp_path)
    first = run_to(Counter(), 20, run)
    with pytest.raises(ValueError, match=r"does not continue: call agent.restore\(run\) first"):
        run_to(Counter(), 20, run)
    second = Counter()
    restore(second, run)
    run_to(second, 30, run)
    with pytest.raises(ValueError, match="does not continue"):
        run_to(first, 30, run)


def test_restore_says_what_is_wrong(tmp_path) -> None:
    run = new_run(tmp_path)
    assert restore(Counter(), run) == []  # there is nothing yet
    run_to(Counter(), 20, run)
    with pytest.raises(ValueError, match="has seed 0 and this agent has seed 1"):
        restore(Counter(seed=1), run)
    assert restore(Counter(bad=-2), run) == ["something was lost."]
    (run.path / "metrics.csv").unlink()
    (problem,) = restore(Counter(), run)
    assert "metrics.csv is missing: the rows up to iteration 2 are lost" in problem


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "0", None])
def test_seeds(seed) -> None:
    assert check_seed(np.int64(7)) == 7
    with pytest.raises(ValueError, match="seed must be a whole number from 0 to 4294967295"):
        check_seed(seed)
