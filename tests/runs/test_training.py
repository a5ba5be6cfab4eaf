"""The loop around a trainer, with one that only counts."""

import io
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from wng.runs import checkpoint, record
from wng.runs.directory import RunDirectory
from wng.runs.metrics import DETERMINISTIC, read_metrics
from wng.runs.progress import TrainingProgress
from wng.runs.training import restore, train

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

    def iterate(self) -> record.Row:
        if self.iteration + 1 == self.bad:
            raise ArithmeticError("oh")
        self.iteration += 1
        return {"iteration": self.iteration, "steps": self.steps, "return": -1.0}

    def shown(self, row: record.Row) -> record.Row:
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

    def callback(row: record.Row) -> bool:
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

    monkeypatch.setattr(record.MetricsWriter, "write", full)
    with pytest.raises(OSError, match="no space left"):
        run_to(trainer, 30, run)
    assert checkpoint.read_latest(run.checkpoints)[0]["count"] == 1


@pytest.mark.parametrize(("seconds", "expected"), [(1e9, []), (-1.0, [1, 2])])
def test_checkpoints_are_written_from_time_to_time(
    tmp_path, monkeypatch, seconds: float, expected: list[int]
) -> None:
    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", seconds)
    run, seen = new_run(tmp_path), []

    def callback(row: record.Row) -> None:
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
    with pytest.raises(ValueError, match="has seed 0, but this agent has seed 1"):
        restore(Counter(seed=1), run)
    assert restore(Counter(bad=-2), run) == ["something was lost."]
    (run.path / "metrics.csv").unlink()
    (problem,) = restore(Counter(), run)
    assert "metrics.csv is missing: the rows up to iteration 2 are lost" in problem


SCORES = [3.0, 1.0, 5.0, 5.0, 2.0]  # of evaluations, by iteration


@pytest.fixture
def scored(monkeypatch) -> list[int]:
    """Evaluations give `SCORES`, without environments; the iterations that were evaluated."""
    evaluated: list[int] = []

    def evaluate(trainer: Counter, arenas: list) -> float:
        evaluated.append(trainer.iteration)
        return SCORES[trainer.iteration - 1]

    monkeypatch.setattr(record, "_arenas", lambda *_: iter(()))
    monkeypatch.setattr(record, "_evaluate", evaluate)
    return evaluated


@pytest.mark.parametrize(
    ("every", "expected"), [(1, [1, 2, 3, 4, 5]), (10, [1, 2, 3, 4, 5]), (25, [3, 5]), (1e9, [5])]
)
def test_the_first_iteration_that_reaches_a_multiple_is_evaluated_and_the_last(
    scored, every: float, expected: list[int]
) -> None:
    rows = []
    run_to(Counter(), 45, eval_every=every, callback=rows.append)
    assert scored == expected
    found = [row["iteration"] for row in rows if math.isfinite(row[DETERMINISTIC])]
    assert found == expected
    rows.clear()
    run_to(Counter(), 20, callback=rows.append)
    assert DETERMINISTIC not in rows[0]


def test_the_best_is_kept_apart_from_the_newest(tmp_path, monkeypatch, scored) -> None:
    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", -1.0)
    run, held = new_run(tmp_path), []

    def look(row: record.Row) -> None:
        arrays, info = checkpoint.read(run.best)
        assert info == {"seed": 0, **IDENTITY, DETERMINISTIC: SCORES[int(arrays["count"]) - 1]}
        held.append(int(arrays["count"]))

    run_to(Counter(), 50, run, eval_every=10, callback=look)
    assert held == [1, 1, 3, 3, 3]  # of equal ones the first
    assert [int(path.stem) for path in checkpoint.saved(run.checkpoints)] == [50, 40]
    assert read_metrics(run.path)[DETERMINISTIC].tolist() == SCORES
    resumed = Counter()
    restore(resumed, run)
    assert resumed.iteration == 5  # not that of the best


def test_the_best_so_far_survives_sessions(tmp_path, monkeypatch, scored) -> None:
    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", 1e9)
    run = new_run(tmp_path)
    for total in (10, 20, 30, 40, 50):
        trainer = Counter()
        assert restore(trainer, run) == []
        run_to(trainer, total, run, eval_every=10)
    assert scored == [1, 2, 3, 4, 5]  # none of them twice
    assert checkpoint.read(run.best)[0]["count"] == 3


def test_a_damaged_best_is_named_and_replaced(tmp_path, scored) -> None:
    run = new_run(tmp_path)
    run_to(Counter(), 30, run, eval_every=10)
    run.best.write_bytes(run.best.read_bytes()[:-1])
    trainer = Counter()
    assert restore(trainer, run) == [f"{run.best} is damaged: the next evaluation replaces it."]
    run_to(trainer, 50, run, eval_every=10)
    assert checkpoint.read(run.best)[0]["count"] == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_evaluation_that_fails_leaves_the_checkpoint_before(
    tmp_path, monkeypatch, scored, error
) -> None:
    run = new_run(tmp_path)

    def fail(trainer: Counter, arenas: list) -> float:
        raise error("not finite")

    with monkeypatch.context() as patched:
        run_to(trainer := Counter(), 20, run, eval_every=15)
        patched.setattr(record, "_evaluate", fail)
        with pytest.raises(error):
            run_to(trainer, 50, run, eval_every=15)
    again = Counter()
    assert restore(again, run) == []
    assert again.iteration == 2
    run_to(again, 50, run, eval_every=15)
    assert scored == [2, 3, 5]
    assert read_metrics(run.path)["iteration"].tolist() == [1, 2, 3, 4, 5]


def test_an_interrupt_after_the_row_does_not_lose_the_best(tmp_path, monkeypatch, scored) -> None:
    """The row says that it is the best, so the resumed run does not evaluate it again."""
    run, write = new_run(tmp_path), checkpoint.write_file
    calls: list[Path] = []

    def interrupted(path: Path, *arguments) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise KeyboardInterrupt
        write(path, *arguments)

    monkeypatch.setattr(checkpoint, "write_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_to(Counter(), 50, run, eval_every=10)
    assert checkpoint.read_latest(run.checkpoints)[0]["count"] == 1
    assert checkpoint.read(run.best)[0]["count"] == 1


def test_the_progress_shows_the_latest_evaluation(scored) -> None:
    console = Console(width=100, file=io.StringIO())
    with TrainingProgress(console) as display:
        train(Counter(), 40, "counter", identity={}, progress=display, eval_every=25)
    lines = console.file.getvalue().splitlines()
    assert [line.split("return ")[1] for line in lines if "return" in line] == [
        "-1  evaluated nan",
        "-1  evaluated nan",
        "-1  evaluated 5",
        "-1  evaluated 5",
    ]


@pytest.mark.parametrize("every", [-1, 0.5, math.nan, math.inf, "often", None])
def test_how_often_to_evaluate(every) -> None:
    with pytest.raises(ValueError, match="eval_every must be a number of environment steps, or 0"):
        run_to(Counter(), 10, eval_every=every)


@pytest.mark.parametrize("episodes", [0, -1, 1001, 1.5, None])
def test_how_long_to_evaluate(episodes) -> None:
    with pytest.raises(ValueError, match="eval_episodes must be a whole number from 1 to 1000"):
        run_to(Counter(), 10, eval_every=10, eval_episodes=episodes)


def test_the_first_iteration_of_a_process_says_that_it_compiles(capsys) -> None:
    trainer = Counter()
    train(trainer, 20, "counter", identity=IDENTITY)
    assert capsys.readouterr().out.splitlines()[0] == "counter  compiling"
    train(trainer, 40, "counter", identity=IDENTITY)
    assert "compiling" not in capsys.readouterr().out
    train(Counter(), 0, "counter", identity=IDENTITY)  # nothing to do
    assert capsys.readouterr().out == ""
