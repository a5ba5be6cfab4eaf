"""A study is data: a list of trials. Each is a run like those of `wng train`, in its own folder.

Finished runs are never repeated, interrupted ones resume, failed ones are recorded and skipped.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from wng.agents.registry import METHODS, family_of
from wng.agents.run import Job, Outcome, Status
from wng.execution.blocks import in_blocks
from wng.execution.processes import progress_of, run_jobs
from wng.runs import checkpoint
from wng.runs.directory import in_use, lock
from wng.runs.executor import Executor, LocalExecutor
from wng.runs.files import write_atomic
from wng.runs.interrupt import stop_on_signals
from wng.runs.metrics import read_metrics
from wng.runs.progress import TrainingProgress
from wng.runs.settings import Settings

Scale = Literal["smoke", "short", "paper"]
Clock = Literal["wall", "cpu"]
LAST = 0.2  # the share of a run, at its end, that "final" means
PATIENCE = 120.0  # seconds
EVALUATION = 20  # episodes
TUNING_SEED = 1000  # and above: never seeds of an evaluation


class Task(NamedTuple):
    """An environment in a study."""

    env: str
    seeds: int
    steps: int


AnyTask = TypeVar("AnyTask", bound=NamedTuple)


def only(tasks: tuple[AnyTask, ...], names: Sequence[str]) -> tuple[AnyTask, ...]:
    """The tasks with these names, or all tasks if no name is given.

    An environment that the study does not have is treated like its first one.
    """
    known = {task[0]: task for task in tasks}
    first = tasks[0]
    return tuple(known.get(e, first._replace(env=e)) for e in names) if names else tasks


@dataclass(frozen=True)
class Trial:
    """One run of a study."""

    env: str
    method: str
    seed: int
    steps: int
    settings: Settings
    variant: str = ""  # added to the settings in names, such as "lr1e-05"
    overrides: dict[str, Any] = field(default_factory=dict)  # settings that differ from the preset
    eval_every: int = 0  # steps between evaluations of the most likely action; 0 for none

    @property
    def label(self) -> str:
        """The settings and the variant; runs that share it differ in the seed alone."""
        return f"{self.settings}-{self.variant}" if self.variant else self.settings

    @property
    def title(self) -> str:
        """The method's name in figures and tables, with β where it is varied."""
        beta = f" β={self.overrides['beta']:g}" if "beta" in self.overrides else ""
        return METHODS[self.method].title + beta

    @property
    def who(self) -> tuple[str, str, str, int]:
        """The first columns of a CSV file: settings, environment, method and seed."""
        return self.label, self.env, self.method, self.seed

    @property
    def group(self) -> str:
        """The name that all seeds share."""
        return f"{METHODS[self.method].title} {self.label} {self.env}"

    @property
    def name(self) -> str:
        """The name for people."""
        return f"{self.group} seed {self.seed}"

    @cached_property
    def config(self) -> Any:
        """Every setting."""
        preset = family_of(self.method).preset
        return preset(self.method, self.settings, self.env, **self.overrides)

    @cached_property
    def record(self) -> dict[str, Any]:
        """The configuration in the run's config.json."""
        return self.job(Path()).record

    def folder(self, root: Path) -> Path:
        """The folder of the run."""
        return self.job(root).folder

    def job(self, root: Path) -> Job:
        """The run as a worker takes it."""
        run = self.env, self.method, self.seed, self.steps, self.config, root / self.label
        return Job(*run, resume=True, eval_every=self.eval_every, eval_episodes=EVALUATION)

    def finished(self, root: Path) -> bool:
        """Whether all steps are there; ValueError if they are of another configuration."""
        job = self.job(root)
        if job.existing() is None:
            return False
        saved = checkpoint.saved(job.folder / "checkpoints")
        return bool(saved) and int(saved[0].stem) >= self.steps

    def failure(self, root: Path) -> str | None:
        """Why the run failed, if it did."""
        note = self.folder(root) / "failure.txt"
        return note.read_text(errors="replace").strip() if note.exists() else None

    def ended(self, root: Path) -> bool:
        """Whether the run has finished or failed."""
        return self.finished(root) or self.failure(root) is not None

    def read(self, root: Path) -> "Run | None":
        """The run up to the trial's number of steps, if it is finished."""
        if not self.finished(root):
            return None
        rows = read_metrics(self.folder(root))
        # It may have been continued for longer; the last iteration overshoots.
        before = np.concatenate([[0], rows["steps"][:-1]])
        return Run(self, {name: x[before < self.steps] for name, x in rows.items()})


@dataclass(frozen=True)
class Run:
    """What a finished run measured: columns of metrics.csv by name."""

    trial: Trial
    rows: dict[str, np.ndarray]

    @property
    def final(self) -> float:
        """Mean return of the episodes in the last fifth of the steps."""
        return final_return(self.rows)

    def last(self, column: str) -> float:
        """The last value of a column; NaN if there is none."""
        return float(self.rows.get(column, [np.nan])[-1])


class Missing(NamedTuple):
    """A trial without a finished run, and why it has none."""

    trial: Trial
    why: str


def final_return(rows: dict[str, np.ndarray]) -> float:
    """Mean return over the last fifth of the steps; NaN if no episode ended there."""
    late = rows["return"][rows["steps"] > (1 - LAST) * rows["steps"][-1]]
    late = late[np.isfinite(late)]
    return float(late.mean()) if len(late) else np.nan


def run_trials(
    trials: Sequence[Trial],
    root: Path,
    title: str,
    *,
    retry: bool = False,
    quick: bool = False,
    executor: Executor | None = None,
) -> bool:
    """Train what is not there yet, in folders below `root`, on all cores, one run per core.

    In JAX environments, runs that differ in the seed alone are trained side by side, in blocks.

    With `retry`, what failed before is tried again; with `quick`, programs are compiled without
    optimizing, for runs of seconds. Returns whether every trial has finished or failed.
    """
    planned = {trial.folder(root): trial for trial in trials}
    for folder in planned if retry else ():
        (folder / "failure.txt").unlink(missing_ok=True)
    waiting = {folder: trial for folder, trial in planned.items() if not trial.ended(root)}
    if not waiting:
        return True
    steps = {folder: trial.steps for folder, trial in planned.items() if folder not in waiting}
    ended = set(steps)
    failed = sum(trial.failure(root) is not None for trial in planned.values())

    def look(unit: Job, outcome: Outcome | None) -> None:
        nonlocal failed
        for job in unit.jobs:
            trial = waiting[job.folder]
            steps[job.folder] = min(progress_of(job.folder)[0], trial.steps)
            if outcome is None:
                continue
            steps[job.folder] = trial.steps
            ended.add(job.folder)
            bad = outcome.status in (Status.FAILED, Status.DIED) and outcome.concerns(job.seed)
            if bad and not trial.finished(root):
                failed += 1
                write_atomic(job.folder / "failure.txt", f"{outcome.message}\n".encode())
                progress.console.print(f"{trial.name} failed: {outcome.message}", soft_wrap=True)
        fields = {"runs done": len(ended), "of": len(planned)}
        fields |= {"failed": failed} if failed else {}
        progress.update(title, sum(steps.values()), fields)

    executor = executor or LocalExecutor()
    root.mkdir(parents=True, exist_ok=True)
    with lock(root):  # one study at a time
        for folder in waiting:
            _wait_for(folder)
        environment = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"} if quick else {}
        with stop_on_signals() as stop, TrainingProgress() as progress:
            progress.add(title, sum(trial.steps for trial in planned.values()), sum(steps.values()))
            run_jobs(
                _in_blocks(list(waiting.values()), root, executor.cores()),
                lambda: stop.requested,
                look,
                executor=executor,
                pinned=True,
                environment=environment,
            )
    return all(trial.ended(root) for trial in planned.values())


def _in_blocks(trials: Sequence[Trial], root: Path, cores: int) -> list[Job]:
    """The runs, those that differ in the seed alone side by side where the environment allows."""
    groups: dict[tuple, list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.label, trial.env, trial.method, trial.steps), []).append(trial)
    jobs = []
    for (_, env, method, _), group in groups.items():
        family, size = family_of(method), 0
        with contextlib.suppress(Exception):  # which the worker will report
            size = family.seed_size(group[0].config, family.resolve(env, group[0].config))
        jobs += in_blocks([trial.job(root) for trial in group], cores, size)
    return jobs


def _wait_for(folder: Path) -> None:
    """Wait until a worker whose study was killed has saved the run and released it."""
    end = time.monotonic() + PATIENCE
    while (folder / "config.json").exists() and in_use(folder) and time.monotonic() < end:
        time.sleep(0.2)


def best_rate(candidates: Sequence[Trial], root: Path) -> Trial | None:
    """The trial of a sweep with the highest final return; None if none has finished."""
    runs, _ = read_runs(candidates, root)
    scored = [run for run in runs if np.isfinite(run.final)]
    return max(scored, key=lambda run: run.final).trial if scored else None


def read_runs(trials: Sequence[Trial], root: Path) -> tuple[list[Run], list[Missing]]:
    """All runs that have finished, and the trials that have none."""
    runs, missing = [], []
    for trial in trials:
        if run := trial.read(root):
            runs.append(run)
        else:
            why = trial.failure(root)
            missing.append(Missing(trial, f"failed: {why}" if why else "not run"))
    return runs, missing


def grouped(runs: Sequence[Run]) -> dict[str, dict[str, list[Run]]]:
    """Runs by environment, then by title."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        groups.setdefault(run.trial.env, {}).setdefault(run.trial.title, []).append(run)
    return groups


def finals(runs: Sequence[Run]) -> np.ndarray:
    """Final returns, without runs in which no episode ended late."""
    values = np.array([run.final for run in runs])
    return values[np.isfinite(values)]


def summarize_missing(missing: Sequence[Missing]) -> str:
    """One line for all seeds of a method that are missing for the same reason."""
    groups: dict[str, list[str]] = {}
    for trial, why in missing:
        groups.setdefault(f"{trial.group}: {why}", []).append(str(trial.seed))
    return "\n".join(
        f"- {what} (seed{'s' * (len(seeds) > 1)} {', '.join(seeds)})"
        for what, seeds in groups.items()
    )
