"""A study is data: a list of jobs. Each is a run of `wng train`, in a run directory like any other.

Finished runs are never repeated, interrupted ones go on, failed ones are recorded and passed over.
"""

import dataclasses
import os
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from wng.agents.registry import METHODS, family_of
from wng.execution.processes import STOPPED, Child, run_children
from wng.runs import checkpoint
from wng.runs.directory import RunDirectory, in_use, lock, safe_name
from wng.runs.executor import Executor, LocalExecutor
from wng.runs.files import write_atomic
from wng.runs.interrupt import stop_on_signals
from wng.runs.metrics import read_metrics
from wng.runs.progress import TrainingProgress
from wng.runs.settings import Settings

Scale = Literal["smoke", "short", "paper"]
LAST = 0.2  # the share of a run, at its end, that "final" means
PATIENCE = 120.0  # seconds
TUNING_SEED = 1000  # and above: never seeds of an evaluation


class Task(NamedTuple):
    """An environment in a study."""

    env: str
    seeds: int
    steps: int


AnyTask = TypeVar("AnyTask", bound=NamedTuple)


def only(tasks: tuple[AnyTask, ...], names: Sequence[str]) -> tuple[AnyTask, ...]:
    """The tasks with these names, or all; one that the study does not have is run like its first.

    Args:
      tasks: with fields `env` and more.
      names: of environments.
    """
    known = {task[0]: task for task in tasks}
    first = tasks[0]
    return tuple(known.get(e, first._replace(env=e)) for e in names) if names else tasks


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
      variant: what is added to `settings` in names, such as "lr1e-05".
      overrides: settings that differ from the preset.
    """

    env: str
    method: str
    seed: int
    steps: int
    settings: Settings
    variant: str = ""
    overrides: dict[str, Any] = field(default_factory=dict)

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
    def name(self) -> str:
        """For people."""
        return f"{METHODS[self.method].title} {self.label} {self.env} seed {self.seed}"

    @cached_property
    def record(self) -> dict[str, Any]:
        """What config.json of the run says."""
        preset = family_of(self.method).preset
        config = preset(self.method, self.settings, self.env, **self.overrides)
        return {"steps": self.steps, **dataclasses.asdict(config)}

    def folder(self, root: Path) -> Path:
        """Where the run is kept."""
        return root / self.label / safe_name(self.env) / self.method / f"seed{self.seed}"

    def command(self, root: Path) -> list[str]:
        """The words after `wng`."""
        flags = {"env": self.env, "settings": self.settings, "steps": self.steps, "seed": self.seed}
        words = ["train", self.method, "--out", str(root / self.label), "--resume"]
        for name, value in (flags | self.overrides).items():
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{name.replace('_', '-')}", *map(_text, values)]
        return words

    def finished(self, root: Path) -> bool:
        """Whether all its steps are there; ValueError if they are of another configuration."""
        folder = self.folder(root)
        if not (folder / "config.json").exists():
            return False
        RunDirectory.open(folder).check_config(self.record, allowed=("steps",))
        saved = checkpoint.saved(folder / "checkpoints")
        return bool(saved) and int(saved[0].stem) >= self.steps

    def failure(self, root: Path) -> str | None:
        """Why the run failed, if it did."""
        note = self.folder(root) / "failure.txt"
        return note.read_text(errors="replace").strip() if note.exists() else None

    def read(self, root: Path) -> "Run | None":
        """The run up to the steps asked for, if it has got there."""
        if not self.finished(root):
            return None
        rows = read_metrics(self.folder(root))
        # It may have been continued for longer; the last iteration overshoots.
        before = np.concatenate([[0], rows["steps"][:-1]])
        return Run(self, {name: x[before < self.steps] for name, x in rows.items()})


@dataclass(frozen=True)
class Run:
    """What a finished run measured: columns of metrics.csv by name."""

    job: Job
    rows: dict[str, np.ndarray]

    @property
    def final(self) -> float:
        """Mean return of the episodes in the last fifth of the steps."""
        return final_return(self.rows)


def final_return(rows: dict[str, np.ndarray]) -> float:
    """Mean return over the last fifth of the steps; NaN if no episode ended there."""
    late = rows["return"][rows["steps"] > (1 - LAST) * rows["steps"][-1]]
    late = late[np.isfinite(late)]
    return float(late.mean()) if len(late) else np.nan


def run_jobs(
    jobs: Sequence[Job],
    root: Path,
    title: str,
    *,
    retry: bool = False,
    quick: bool = False,
    executor: Executor | None = None,
) -> bool:
    """Run what is not there yet, on all cores, one run a core. Whether it got to the end.

    Args:
      jobs: the runs, in the order to start them.
      root: where runs are kept.
      title: of the progress bar.
      retry: try again what failed before.
      quick: compile without optimising, for runs of seconds.
      executor: where; by default on this machine.
    """
    jobs = list({job.folder(root): job for job in jobs}.values())
    waiting: dict[str, Job] = {}
    for job in jobs:
        if retry:
            (job.folder(root) / "failure.txt").unlink(missing_ok=True)
        if not job.finished(root) and job.failure(root) is None:
            waiting[job.name] = job
    if not waiting:
        return True
    root.mkdir(parents=True, exist_ok=True)
    with lock(root):  # of two studies with the same runs, one goes on
        for job in waiting.values():
            _wait_for(job.folder(root))
        return _run(jobs, waiting, root, title, quick, executor or LocalExecutor())


def _wait_for(folder: Path) -> None:
    """Until a worker whose study was killed has saved the run and let go of it."""
    end = time.monotonic() + PATIENCE
    while (folder / "config.json").exists() and in_use(folder) and time.monotonic() < end:
        time.sleep(0.2)


def _run(
    jobs: Sequence[Job],
    waiting: dict[str, Job],
    root: Path,
    title: str,
    quick: bool,
    executor: Executor,
) -> bool:
    todo = sum(job.steps for job in jobs)
    ended = {job.name: job.steps for job in jobs if job.name not in waiting}
    with (
        stop_on_signals() as stop,
        TrainingProgress() as progress,
        tempfile.TemporaryDirectory() as compiled,
    ):
        progress.add(title, todo, sum(ended.values()))
        under_way: dict[str, int] = {}
        failed = sum(job.failure(root) is not None for job in jobs)

        def look(child: Child, code: int | None) -> None:
            nonlocal failed
            job = waiting[child.name]
            under_way[child.name] = min(child.so_far()[0], job.steps)
            if code is not None:
                del under_way[child.name]
                ended[child.name] = job.steps
                reason = child.last_words(code)
                taken = "in use by process" in reason or "already holds a run" in reason
                if code not in (0, STOPPED) and not taken:  # by someone who goes on with it
                    failed += 1
                    write_atomic(child.folder / "failure.txt", f"{reason}\n".encode())
                    progress.console.print(f"{job.name} failed: {reason}", soft_wrap=True)
            fields = {"runs done": len(ended), "of": len(jobs)}
            fields |= {"failed": failed} if failed else {}
            progress.update(title, sum(ended.values()) + sum(under_way.values()), fields)

        children = [Child(n, job.folder(root), job.command(root)) for n, job in waiting.items()]
        how: dict[str, str] = {}
        if not executor.remote:  # runs that differ in the seed alone need not compile anew
            kept = os.environ.get("JAX_COMPILATION_CACHE_DIR", compiled)
            how["JAX_COMPILATION_CACHE_DIR"] = kept
        how |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"} if quick else {}
        run_children(
            children,
            lambda: stop.requested,
            look,
            executor=executor,
            pinned=True,
            environment=how,
        )
    return all(job.finished(root) or job.failure(root) is not None for job in jobs)


def best_rate(candidates: Sequence[Job], root: Path) -> Job | None:
    """The job of a sweep with the highest final return; None if none has ended."""
    runs = [run for job in candidates if (run := job.read(root)) is not None]
    scored = [run for run in runs if np.isfinite(run.final)]
    return max(scored, key=lambda run: run.final).job if scored else None


def read_runs(jobs: Sequence[Job], root: Path) -> tuple[list[Run], list[str]]:
    """All that have ended, and a line for each that has not."""
    runs, missing = [], []
    for job in jobs:
        run = job.read(root)
        if run is not None:
            runs.append(run)
        else:
            why = job.failure(root)
            missing.append(f"{job.name}: {f'failed: {why}' if why else 'not run'}")
    return runs, missing


def grouped(runs: Sequence[Run]) -> dict[str, dict[str, list[Run]]]:
    """By environment, then by title."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        groups.setdefault(run.job.env, {}).setdefault(run.job.title, []).append(run)
    return groups


def finals(runs: Sequence[Run]) -> np.ndarray:
    """Their final returns; runs in which no episode ended late are left out."""
    values = np.array([run.final for run in runs])
    return values[np.isfinite(values)]


def summarize_missing(missing: Sequence[str]) -> str:
    """One line for the seeds of a method that have the same to say."""
    groups: dict[str, list[str]] = {}
    for line in missing:
        match = re.fullmatch(r"(.*?) seed (\d+): (.*)", line, re.S)
        assert match is not None
        groups.setdefault(f"{match[1]}: {match[3]}", []).append(match[2])
    return "\n".join(
        f"- {what} (seed{'s' * (len(seeds) > 1)} {', '.join(seeds)})"
        for what, seeds in groups.items()
    )


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
