"""Training: the loop around a trainer, with metrics, checkpoints, progress and Ctrl-C."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.interrupt import stop_on_signals
from wng.runs.metrics import MetricsWriter
from wng.runs.progress import TrainingProgress

CHECKPOINT_SECONDS = 15.0
Row = dict[str, float]


class NonFiniteError(ValueError):
    """An environment, or the learning, produced a NaN or an infinity."""


class Trainer(Protocol):
    """What learns, one iteration at a time. All that it remembers fits in a checkpoint."""

    config: Any
    seed: int
    resolved: Any  # the environment, a `wng.envs.ResolvedEnv`
    spec: Any  # its description, a `wng.envs.EnvSpec`
    horizon: int | None  # most steps of an episode, if fewer than the environment's own limit
    newest: Path | None  # newest checkpoint that it wrote or was restored from
    state: Any  # what learning remembers
    params: Any  # parameters of the policy
    iteration: int  # whole iterations so far
    steps: int  # environment steps so far

    def initial_state(self) -> Any:
        """The state before any learning."""

    def check_memory(self) -> None:
        """Raise a ValueError if an iteration cannot fit into memory."""

    def iterate(self) -> Row:
        """Run one iteration; returns its metrics, with 'iteration', 'steps' and 'return'."""

    def shown(self, row: Row) -> Row:
        """What the progress bar shows of an iteration."""

    def keep(self, folder: Path) -> None:
        """Write what else there is to keep of the last iteration into the run's folder."""

    def actions(self, state: Any, rows: np.ndarray, key: jax.Array | None) -> np.ndarray:
        """Actions in the states `rows`: sampled with `key`, or the most likely ones without."""

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All that is needed to resume: arrays, and counters that fit in JSON."""

    def restore(self, arrays: dict[str, np.ndarray], info: dict[str, Any]) -> str | None:
        """Go back to a checkpoint; returns a sentence if the run cannot continue exactly."""

    def close(self) -> None:
        """Free all resources."""


def check_seed(seed: Any) -> int:
    """The seed as an int; ValueError if a JAX key cannot hold it."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1}, got {seed!r}.")
    return int(seed)


def train(
    trainer: Trainer,
    total: int,
    name: str,
    *,
    identity: dict[str, Any],
    run: RunDirectory | None = None,
    progress: bool | TrainingProgress = True,
    callback: Callable[[Row], bool | None] | None = None,
) -> None:
    """Train up to `total` environment steps, in whole iterations.

    Ctrl-C stops after the present iteration, a second one at once. However it ends, an exception
    of the callback included, the run then holds the last whole iteration.

    Args:
      trainer: what learns.
      total: environment steps in all.
      name: name in the progress display.
      identity: what `wng.load` needs to know; part of each checkpoint.
      run: where metrics and checkpoints are kept.
      progress: whether to show a bar, or the display to report to.
      callback: called with the metrics of each iteration; returning False stops.
    """
    trainer.check_memory()
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        writer = None
        if run is not None:
            stack.enter_context(run.lock())
            _check_continues(trainer, run)
            writer = stack.enter_context(
                MetricsWriter(run.path, trainer.iteration or None, x="steps")
            )
        bar = progress if isinstance(progress, TrainingProgress) else None
        if progress is True:
            bar = stack.enter_context(TrainingProgress())
        if bar is not None:
            bar.add(name, total, trainer.steps)
        recorded, saved = trainer.iteration, time.monotonic()

        def save() -> None:
            nonlocal saved
            if run is not None and writer is not None:
                writer.sync()
                arrays, info = trainer.checkpoint()
                path = checkpoint.write(run.checkpoints, trainer.steps, arrays, info | identity)
                trainer.newest, saved = path.resolve(), time.monotonic()

        try:
            while trainer.steps < total and not stop.requested:
                cpu = time.process_time()  # of all threads; the wall clock also counts waiting
                row = trainer.iterate()
                row["seconds_cpu"] = time.process_time() - cpu
                if run is not None and writer is not None:
                    trainer.keep(run.path)
                    writer.write(row)
                recorded = trainer.iteration
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    save()
                if bar is not None:
                    bar.update(name, trainer.steps, trainer.shown(row))
                if callback is not None and callback(row) is False:
                    break
        finally:
            # Not if the row of the last iteration is missing: metrics reach up to a checkpoint.
            if recorded == trainer.iteration:
                save()


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
            f"{run.path} has seed {info['seed']} and this agent has seed {trainer.seed}: use the "
            "same seed, or wng.load."
        )
    warning = trainer.restore(arrays, info)
    trainer.newest = newest[0].resolve()  # good or not: it may be overwritten
    if not (run.path / "metrics.csv").exists():
        problems.append(
            f"{run.path / 'metrics.csv'} is missing: the rows up to iteration "
            f"{trainer.iteration} are lost."
        )
    return problems + ([warning] if warning else [])


def _check_continues(trainer: Trainer, run: RunDirectory) -> None:
    """A checkpoint deletes later ones: refuse a run that the trainer does not continue."""
    for found in checkpoint.saved(run.checkpoints)[:1]:
        if found.resolve() != trainer.newest:
            raise ValueError(
                f"{run.path} holds a run that this agent does not continue: call "
                "agent.restore(run) first, or create another run."
            )
