"""Tiny runs of both families through `wng`, and how two runs are compared."""

import contextlib
import io
import re
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from evolution.tiny import TINY as EVOLUTION_TINY
from killing import as_flags
from policy_gradient.tiny import TINY as GRADIENT_TINY

import wng
from drills.tally import LostError
from wng import cli
from wng.runs import checkpoint
from wng.runs.metrics import read_metrics


class Family(NamedTuple):
    """One way of training."""

    method: str
    env: str
    flags: list[str]
    size: int  # steps of an iteration

    def folder(self, root: Path, env: str = "", seed: int = 0) -> Path:
        return root / re.sub("[/:]", "-", env or self.env) / self.method / f"seed{seed}"

    def words(self, root: Path, iterations: int, *more: str, env: str = "") -> list[str]:
        """What is typed after `wng`."""
        steps = str(self.size * iterations)
        shared = ["train", self.method, "--env", env or self.env, "--steps", steps]
        return [*shared, "--out", str(root), "--quiet", *self.flags, *more]


GRADIENT = Family("wnpg", "Pendulum-v1", as_flags(GRADIENT_TINY), 64)
EVOLUTION = Family("wnes", "wng/PointWall-v0", as_flags(EVOLUTION_TINY), 8 * 50)
FAMILIES = {"gradient": GRADIENT, "evolution": EVOLUTION}


class Outcome(NamedTuple):
    """What became of a command."""

    code: int
    out: str
    err: str

    def sentence(self, *named: object) -> str:
        """The one sentence on standard error, which must have each of `named` in it."""
        assert self.code == 2, self
        return one_sentence(self.err.removeprefix("wng: "), *named)

    def fine(self) -> "Outcome":
        assert self.code == 0, self
        assert "Traceback" not in self.out + self.err, self
        return self


def one_sentence(text: str, *named: object) -> str:
    assert text.strip(), "it says nothing"
    assert text.strip().count("\n") == 0, text
    assert not re.match(r"\[Errno|'?\w*Error\b", text), text
    for name in named:
        assert str(name) in text, f"{name} is not in: {text}"
    return text


def command(*words: str) -> Outcome:
    """`wng` in this process; what it does not catch itself, a traceback for users, is raised."""
    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["wng", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
    return Outcome(code, out.getvalue(), err.getvalue())


def load(folder: Path) -> tuple[int, dict[str, np.ndarray]]:
    """`wng.load` of a run: its iteration, and all that its checkpoint holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about checkpoints that it passed over
        agent = wng.load(folder)
    try:
        arrays, info = agent.trainer.checkpoint()
    finally:
        agent.close()
    return int(info["iteration"]), arrays


def assert_same_arrays(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    if found.keys() != expected.keys():
        raise LostError(f"{sorted(found)} is not {sorted(expected)}")
    for name, array in expected.items():
        if not np.array_equal(found[name], array, equal_nan=True):
            raise LostError(f"array {name} differs")


def assert_rows_of(folder: Path, whole: Path, at_least: int = 0) -> int:
    """How many rows of metrics there are; all of them those of the undisturbed run."""
    found, expected = read_metrics(folder), read_metrics(whole)
    number = len(found.get("iteration", ()))
    if number < at_least:
        raise LostError(f"{number} rows of metrics, and {at_least} had been saved")
    for name, column in expected.items():
        if not number or name.startswith("seconds"):
            continue
        if name not in found or not np.array_equal(found[name], column[:number], True):
            raise LostError(f"column {name} of the metrics differs")
    return number


def assert_same_run(folder: Path, whole: Path) -> None:
    """Everything is that of the undisturbed run, bit for bit."""
    arrays, info, problems = checkpoint.read_latest(folder / "checkpoints")
    expected, counters, _ = checkpoint.read_latest(whole / "checkpoints")
    assert problems == []
    if info != counters:
        raise LostError(f"{info} is not {counters}")
    assert_same_arrays(arrays, expected)
    assert_rows_of(folder, whole, counters["iteration"])


def assert_loadable(folder: Path, at_least: int = 0) -> int:
    """The iteration of the newest checkpoint, all of whose past the metrics hold."""
    iteration, _ = load(folder)
    if iteration < at_least:
        raise LostError(f"back to iteration {iteration}, and {at_least} had been saved")
    rows = read_metrics(folder)["iteration"] if iteration else np.zeros(0)
    if not np.array_equal(rows[:iteration], np.arange(1, iteration + 1)):
        raise LostError(f"the metrics hold iterations {rows}, the checkpoint is of {iteration}")
    return iteration
