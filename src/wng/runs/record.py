"""What is kept of a run while a trainer learns: metrics, evaluations, checkpoints, progress."""

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import numpy as np

from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.metrics import DETERMINISTIC, MetricsWriter
from wng.runs.progress import TrainingProgress
from wng.runs.settings import EVALUATION_SEED

if TYPE_CHECKING:
    import jax

    from wng.envs.vector import VectorEnv

CHECKPOINT_SECONDS = 15.0
_compiled: WeakSet[Any] = WeakSet()  # trainers that have done an iteration in this process
Row = dict[str, float]


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
        """What the progress bar shows of an iteration, first of all 'return'."""

    def keep(self, folder: Path) -> None:
        """Write what else there is to keep of the last iteration into the run's folder."""

    def actions(self, state: Any, rows: np.ndarray, key: "jax.Array | None") -> np.ndarray:
        """Actions in the states `rows`: sampled with `key`, or the most likely ones without."""

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All that is needed to resume: arrays, and counters that fit in JSON."""

    def restore(self, arrays: dict[str, np.ndarray], info: dict[str, Any]) -> str | None:
        """Go back to a checkpoint; returns a sentence if the run cannot continue exactly."""

    def close(self) -> None:
        """Free all resources."""


class Record:
    """What is kept and shown of one trainer: metrics, evaluations, checkpoints, progress."""

    def __init__(
        self,
        trainer: Trainer,
        total: int,
        name: str,
        identity: dict[str, Any],
        run: RunDirectory | None,
        bar: TrainingProgress | None,
        stack: contextlib.ExitStack,
    ):
        self._trainer, self._total, self._name = trainer, total, name
        self._identity, self._run, self._bar = identity, run, bar
        self._writer: MetricsWriter | None = None
        if run is not None:
            stack.enter_context(run.lock())
            _check_continues(trainer, run)
            self._writer = stack.enter_context(
                MetricsWriter(run.path, trainer.iteration or None, x="steps")
            )
        if bar is not None:
            bar.add(name, total, trainer.steps)
        self._recorded, self._steps = trainer.iteration, trainer.steps
        self._saved = time.monotonic()
        self._every, self._evaluated, self._improved = 0, math.nan, False
        self._best = -math.inf if run is None else _best_return(run)
        self._arenas: list[VectorEnv] = []

    def evaluate_every(self, steps: float, episodes: int, stack: contextlib.ExitStack) -> None:
        """Evaluate the policy every `steps` environment steps, and at the end; 0 for never."""
        self._every = int(steps)
        # Made once: an evaluation starts the same episodes again.
        for env in _arenas(self._trainer, episodes) if self._every else ():
            self._arenas.append(stack.enter_context(contextlib.closing(env)))

    @property
    def complete(self) -> bool:
        """Whether all steps have been taken."""
        return self._trainer.steps >= self._total

    def say_compiling(self) -> None:
        """Show why nothing moves before the first iteration in this process."""
        if self._bar is not None and self._trainer not in _compiled:
            self._bar.say(self._name, "compiling")

    def add(self, row: Row, cpu_seconds: float) -> None:
        """Record an iteration, after which the policy may be evaluated and the run saved."""
        trainer, every = self._trainer, self._every
        _compiled.add(trainer)
        row["seconds_cpu"] = cpu_seconds
        if every:
            row[DETERMINISTIC], self._improved = math.nan, False
            if trainer.steps // every > self._steps // every or self.complete:
                self._evaluated = row[DETERMINISTIC] = _evaluate(trainer, self._arenas)
                self._improved = self._evaluated > self._best
                self._best = max(self._evaluated, self._best)
        if self._run is not None and self._writer is not None:
            trainer.keep(self._run.path)
            self._writer.write(row)
        self._recorded, self._steps = trainer.iteration, trainer.steps
        if self._improved or time.monotonic() - self._saved > CHECKPOINT_SECONDS:
            self._save()
        if self._bar is not None:
            fields = trainer.shown(row)
            if every:
                fields = {"return": fields["return"], "evaluated": self._evaluated} | fields
            self._bar.update(self._name, trainer.steps, fields)

    @contextlib.contextmanager
    def saved_at_the_end(self) -> Iterator[None]:
        """However it ends, save the last whole iteration."""
        try:
            yield
        finally:
            # Not if the row of the last iteration is missing: metrics reach up to a checkpoint.
            if self._recorded == self._trainer.iteration:
                self._save()

    def _save(self) -> None:
        if self._run is None or self._writer is None:
            return
        trainer, run = self._trainer, self._run
        self._writer.sync()
        arrays, info = trainer.checkpoint()
        info |= self._identity
        if self._improved:  # first: whoever resumes from the checkpoint will not evaluate it
            checkpoint.write_file(run.best, arrays, info | {DETERMINISTIC: self._best})
        path = checkpoint.write(run.checkpoints, trainer.steps, arrays, info)
        trainer.newest, self._saved = path.resolve(), time.monotonic()


def _arenas(trainer: Trainer, episodes: int) -> "Iterator[VectorEnv]":
    """The environments of evaluations."""
    from wng.envs.episodes import episode_envs

    return episode_envs(trainer.resolved, episodes, EVALUATION_SEED)


def _evaluate(trainer: Trainer, arenas: "list[VectorEnv]") -> float:
    """Mean return of the most likely actions, in the same episodes for every policy."""
    from wng.envs.episodes import first_returns

    returns: list[float] = []
    for env in arenas:
        returns += first_returns(
            env, lambda rows: trainer.actions(trainer.state, rows, None), trainer.horizon
        )
    return float(np.mean(returns))


def _best_return(run: RunDirectory) -> float:
    """The deterministic return of the best checkpoint; −∞ if there is no good one."""
    try:
        _, info = checkpoint.read(run.best)
        checkpoint.check_info(info, **{DETERMINISTIC: float})
    except ValueError:
        return -math.inf
    return info[DETERMINISTIC]


def _check_continues(trainer: Trainer, run: RunDirectory) -> None:
    """A checkpoint deletes later ones: refuse a run that the trainer does not continue."""
    for found in checkpoint.saved(run.checkpoints)[:1]:
        if found.resolve() != trainer.newest:
            raise ValueError(
                f"{run.path} holds a run that this agent does not continue: call "
                "agent.restore(run) first, or create another run."
            )
