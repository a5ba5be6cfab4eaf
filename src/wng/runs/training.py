"""Training: the loop around a trainer, with metrics, checkpoints, progress and Ctrl-C."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import numpy as np

from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.interrupt import stop_on_signals
from wng.runs.metrics import DETERMINISTIC, MetricsWriter
from wng.runs.progress import TrainingProgress
from wng.runs.settings import EVALUATION_SEED

if TYPE_CHECKING:
    import jax

    from wng.envs.vector import VectorEnv

CHECKPOINT_SECONDS = 15.0
MOST_EPISODES = 1000  # of an evaluation: each has an environment of its own
_compiled: WeakSet[Any] = WeakSet()  # trainers that have done an iteration in this process
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


def check_evaluation(every: Any, episodes: Any) -> None:
    """Raise a ValueError if a policy cannot be evaluated so often, or in so many episodes."""
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

    Ctrl-C stops after the present iteration, a second one at once. However it ends, an exception
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
        every, evaluated, improved = int(eval_every), math.nan, False
        best = -math.inf if run is None else _best_return(run)
        arenas: list[VectorEnv] = []  # made once: an evaluation starts the same episodes again
        for env in _arenas(trainer, eval_episodes) if every else ():
            arenas.append(stack.enter_context(contextlib.closing(env)))

        def save() -> None:
            nonlocal saved
            if run is not None and writer is not None:
                writer.sync()
                arrays, info = trainer.checkpoint()
                info |= identity
                if improved:  # first: whoever resumes from the checkpoint will not evaluate it
                    checkpoint.write_file(run.best, arrays, info | {DETERMINISTIC: best})
                path = checkpoint.write(run.checkpoints, trainer.steps, arrays, info)
                trainer.newest, saved = path.resolve(), time.monotonic()

        try:
            while trainer.steps < total and not stop.requested:
                before = trainer.steps
                if bar is not None and trainer not in _compiled:
                    bar.say(name, "compiling")
                cpu = time.process_time()  # of all threads; the wall clock also counts waiting
                row = trainer.iterate()
                _compiled.add(trainer)
                row["seconds_cpu"] = time.process_time() - cpu
                if every:
                    row[DETERMINISTIC], improved = math.nan, False
                    if trainer.steps // every > before // every or trainer.steps >= total:
                        evaluated = row[DETERMINISTIC] = _evaluate(trainer, arenas)
                        improved, best = evaluated > best, max(evaluated, best)
                if run is not None and writer is not None:
                    trainer.keep(run.path)
                    writer.write(row)
                recorded = trainer.iteration
                if improved or time.monotonic() - saved > CHECKPOINT_SECONDS:
                    save()
                if bar is not None:
                    fields = trainer.shown(row)
                    if every:
                        fields = {"return": fields["return"], "evaluated": evaluated} | fields
                    bar.update(name, trainer.steps, fields)
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
    if run.best.exists() and not checkpoint.is_good(run.best):
        problems.append(f"{run.best} is damaged: the next evaluation replaces it.")
    return problems + ([warning] if warning else [])


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
