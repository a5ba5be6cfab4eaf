"""Training: the loop around a trainer, with metrics, checkpoints, progress and Ctrl-C."""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np

from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.interrupt import stop_on_signals
from wng.runs.progress import TrainingProgress
from wng.runs.record import Record, Row, Trainer

MOST_EPISODES = 1000  # of an evaluation: each has an environment of its own


class NonFiniteError(ValueError):
    """An environment, or the learning, produced a NaN or an infinity."""


def check_evaluation(every: Any, episodes: Any) -> None:
    """Raise a ValueError if a policy cannot be evaluated this often, or in this many episodes."""
    if not (isinstance(every, int | float) and (every == 0 or 1 <= every < math.inf)):
        raise ValueError(
            f"eval_every must be a number of environment steps, or 0 for never, got {every!r}."
        )
    if not (isinstance(episodes, int | np.integer) and 1 <= episodes <= MOST_EPISODES):
        raise ValueError(
            f"eval_episodes must be a whole number from 1 to {MOST_EPISODES}, got {episodes!r}."
        )


def train(
    trainer: Trainer,
    total: int,
    name: str,
    *,
    identity: dict[str, Any],
    run: RunDirectory | None = None,
    progress: bool | TrainingProgress = True,
    callback: Callable[[Row], bool | None] | None = None,
    eval_every: float = 0,
    eval_episodes: int = 10,
) -> None:
    """Train up to `total` environment steps, in whole iterations.

    Ctrl-C stops after the current iteration, a second one at once. However it ends, an exception
    of the callback included, the run then holds the last whole iteration. (If it ends in the midst
    of an evaluation, the run holds its last checkpoint.)

    Args:
      trainer: what learns.
      total: environment steps in all.
      name: name in the progress display.
      identity: what `wng.load` needs to know; part of each checkpoint.
      run: where metrics and checkpoints are kept.
      progress: whether to show a bar, or the display to report to.
      callback: called with the metrics of each iteration; returning False stops.
      eval_every: environment steps between evaluations of the policy; 0 for none.
      eval_episodes: episodes of an evaluation.
    """
    check_evaluation(eval_every, eval_episodes)
    trainer.check_memory()
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        bar = _open_bar(progress, stack)
        record = Record(trainer, total, name, identity, run, bar, stack)
        record.evaluate_every(eval_every, eval_episodes, stack)
        with record.saved_at_the_end():
            while not record.complete and not stop.requested:
                record.say_compiling()
                cpu = time.process_time()  # of all threads; the wall clock also counts waiting
                row = trainer.iterate()
                record.add(row, time.process_time() - cpu)
                if callback is not None and callback(row) is False:
                    break


class Block(Protocol):
    """Several trainers whose iterations are one compiled call."""

    trainers: Sequence[Trainer]

    def iterate(self, wanted: Collection[int]) -> list[Row | Exception | None]:
        """Run an iteration of some of them; returns the metrics of each, or why it failed."""


def other_block(seed: int) -> str:
    """Say that a run was not resumed in the block of seeds that it was saved in."""
    return (
        f"seed {seed} was trained in one program with other seeds than now, which rounds "
        "differently, so the run will not match an uninterrupted run bit for bit."
    )


def train_block(
    block: Block,
    total: int,
    names: Sequence[str],
    *,
    identity: dict[str, Any],
    runs: Sequence[RunDirectory],
    progress: bool | TrainingProgress = True,
    eval_every: float = 0,
    eval_episodes: int = 10,
) -> list[Exception | None]:
    """Train several trainers side by side, each in a separate run; see `train`.

    A trainer that fails stops; the others continue. Returns why each failed, or None.
    """
    check_evaluation(eval_every, eval_episodes)
    number = len(block.trainers)
    failures: list[Exception | None] = [None] * number
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        bar = _open_bar(progress, stack)
        records = []
        for trainer, name, run in zip(block.trainers, names, runs, strict=True):
            record = Record(trainer, total, name, identity, run, bar, stack)
            record.evaluate_every(eval_every, eval_episodes, stack)
            stack.enter_context(record.saved_at_the_end())
            records.append(record)
        while not stop.requested:
            left = [i for i in range(number) if not records[i].complete and failures[i] is None]
            if not left:
                break
            records[left[0]].say_compiling()
            cpu = time.process_time()
            rows = block.iterate(left)
            cpu = (time.process_time() - cpu) / len(left)
            for i in left:
                row = rows[i]
                if isinstance(row, Exception):
                    failures[i] = row
                elif row is not None:
                    records[i].add(row, cpu)
    return failures


def _open_bar(
    progress: bool | TrainingProgress, stack: contextlib.ExitStack
) -> TrainingProgress | None:
    if progress is True:
        return stack.enter_context(TrainingProgress())
    return progress if isinstance(progress, TrainingProgress) else None


def restore(trainer: Trainer, run: RunDirectory) -> list[str]:
    """Resume from the newest good checkpoint of a run, if there is one.

    Returns:
      A sentence for each problem on the way.
    """
    newest = checkpoint.saved(run.checkpoints)
    if not newest:
        return []
    arrays, info, problems = checkpoint.read_latest(run.checkpoints)
    checkpoint.check_info(info, seed=int)
    if info["seed"] != trainer.seed:
        raise ValueError(
            f"{run.path} has seed {info['seed']}, but this agent has seed {trainer.seed}: use the "
            "same seed, or wng.load."
        )
    warning = trainer.restore(arrays, info)
    trainer.newest = newest[0].resolve()  # good or not: it may be overwritten
    if not (run.path / "metrics.csv").exists():
        problems.append(
            f"{run.path / 'metrics.csv'} is missing: the rows up to iteration "
            f"{trainer.iteration} are lost."
        )
    if run.best.exists() and not checkpoint.is_good(run.best):
        problems.append(f"{run.best} is damaged: the next evaluation replaces it.")
    return problems + ([warning] if warning else [])
