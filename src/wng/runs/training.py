"""What every agent can do: train in a run that cannot be lost, go on, save."""

import abc
import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.interrupt import stop_on_signals
from wng.runs.metrics import MetricsWriter
from wng.runs.progress import TrainingProgress

CHECKPOINT_SECONDS = 15.0
Row = dict[str, float]


class NonFiniteError(ValueError):
    """An environment, or the learning, came up with a NaN or an infinity."""


class Trainer(Protocol):
    """Who does the learning, one iteration at a time. All it remembers fits in a checkpoint."""

    @property
    def iteration(self) -> int:
        """Whole iterations so far."""

    @property
    def steps(self) -> int:
        """Environment steps so far."""

    def check_memory(self) -> None:
        """Raise a ValueError if an iteration cannot fit into memory."""

    def iterate(self) -> Row:
        """One iteration; its metrics, among them 'iteration', 'steps' and 'return'."""

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All that is needed to go on: arrays, and counters as JSON holds them."""

    def restore(self, arrays: dict[str, np.ndarray], info: dict[str, Any]) -> str | None:
        """Go back to a checkpoint; a sentence if it cannot be gone on with exactly."""

    def close(self) -> None:
        """Free what it holds."""


class Trainable(abc.ABC):
    """`learn`, `restore`, `save`, `close` around a `Trainer`.

    Subclasses set `kind`, `method` and `seed`, and make `_trainer`.
    """

    kind: str
    method: str
    seed: int
    _trainer: Trainer
    _newest: Path | None = None  # checkpoint of a run that this agent continues

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self._trainer.steps

    def check_memory(self) -> None:
        """Raise a ValueError if learning cannot fit into memory; `learn` asks first."""
        self._trainer.check_memory()

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """The method's name as people write it."""

    @abc.abstractmethod
    def shown(self, row: Row) -> Row:
        """What the progress bar says."""

    def learn(
        self,
        steps: int,
        *,
        callback: Callable[[Self, Row], bool | None] | None = None,
        progress: bool | TrainingProgress = True,
        run: RunDirectory | None = None,
    ) -> Self:
        """Take at least `steps` more environment steps, in whole iterations.

        Args:
          steps: how many more.
          callback: called with the agent and the metrics of each iteration; False stops.
          progress: show a bar, or report to this one.
          run: keep metrics and checkpoints there (`RunDirectory.create`).

        Ctrl-C stops after the iteration under way, a second one at once. However it ends, an
        exception of the callback included, the run then holds the last whole iteration.
        """
        if not (isinstance(steps, int | float) and math.isfinite(steps) and steps >= 0):
            raise ValueError(f"steps must be a number of environment steps, got {steps!r}.")
        self.check_memory()
        total = self.steps + int(steps)
        name = f"{self.title} seed {self.seed}"
        with contextlib.ExitStack() as stack:
            stop = stack.enter_context(stop_on_signals())
            writer = None
            if run is not None:
                stack.enter_context(run.lock())
                self._check_continues(run)
                resume_at = self._trainer.iteration or None
                writer = stack.enter_context(MetricsWriter(run.path, resume_at, x="steps"))
            bar = progress if isinstance(progress, TrainingProgress) else None
            if progress is True:
                bar = stack.enter_context(TrainingProgress())
            if bar is not None:
                bar.add(name, total, self.steps)
            recorded, saved = self._trainer.iteration, time.monotonic()
            try:
                while self.steps < total and not stop.requested:
                    cpu = time.process_time()  # of all threads; wall clock also counts waiting
                    row = self._trainer.iterate()
                    row["seconds_cpu"] = time.process_time() - cpu
                    if run is not None:
                        self._keep(run)
                    if writer is not None:
                        writer.write(row)
                    recorded = self._trainer.iteration
                    if run is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                        self._save_to(run, writer)
                        saved = time.monotonic()
                    if bar is not None:
                        bar.update(name, self.steps, self.shown(row))
                    if callback is not None and callback(self, row) is False:
                        break
            finally:
                # Not if the row of the iteration is missing: metrics hold all up to a checkpoint.
                if run is not None and recorded == self._trainer.iteration:
                    self._save_to(run, writer)
        return self

    def _keep(self, run: RunDirectory) -> None:
        """Write what else there is to keep of an iteration: nothing, for most."""
        return

    def _check_continues(self, run: RunDirectory) -> None:
        """A checkpoint deletes later ones: refuse those that this agent does not come from."""
        for newest in checkpoint.saved(run.checkpoints)[:1]:
            if newest.resolve() != self._newest:
                raise ValueError(
                    f"{run.path} holds a run that this agent does not continue: call "
                    "agent.restore(run) first, or create another run."
                )

    def _save_to(self, run: RunDirectory, writer: MetricsWriter | None) -> None:
        if writer is not None:
            writer.sync()
        path = checkpoint.write(run.checkpoints, self.steps, *self._checkpoint())
        self._newest = path.resolve()

    def _checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, info = self._trainer.checkpoint()
        return arrays, info | {"kind": self.kind, "method": self.method}

    def restore(self, run: RunDirectory) -> list[str]:
        """Continue from the newest good checkpoint of a run; sentences about what is amiss."""
        newest = checkpoint.saved(run.checkpoints)
        if not newest:
            return []
        arrays, info, problems = checkpoint.read_latest(run.checkpoints)
        checkpoint.check_info(info, seed=int)
        if info["seed"] != self.seed:
            raise ValueError(
                f"{run.path} has seed {info['seed']} and this agent seed {self.seed}: give it the "
                "same one, or use wng.load."
            )
        warning = self._trainer.restore(arrays, info)
        self._newest = newest[0].resolve()  # good or not: it may be written over
        if not (run.path / "metrics.csv").exists():
            problems.append(
                f"{run.path / 'metrics.csv'} is missing: the rows up to iteration "
                f"{self._trainer.iteration} are lost."
            )
        return problems + ([warning] if warning else [])

    def save(self, path: str | Path) -> None:
        """Write everything to one file; `wng.load` reads it. It never holds code."""
        checkpoint.write_file(path, *self._checkpoint())

    def close(self) -> None:
        """Stop the environments; the agent can no longer learn."""
        self._trainer.close()
