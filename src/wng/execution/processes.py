"""Runs in worker processes, as many at a time as there are cores."""

import contextlib
import dataclasses
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wng.agents.run import Job, Outcome, Status
from wng.runs.directory import in_use
from wng.runs.executor import RETRIES, Executor, LocalExecutor, LostError
from wng.runs.metrics import DETERMINISTIC, read_metrics

SAVING = 60.0  # seconds that an orphaned process may take to save its run
SHOWN = {
    "return": "return_recent",
    "evaluated": DETERMINISTIC,
    "KL": "kl",
    "past wall": "population_past_wall",
}
KILLED = Outcome(Status.DIED, f"killed by {signal.SIGKILL.name}")


def progress_of(folder: Path) -> tuple[int, dict[str, float]]:
    """How many steps a run has taken, and its latest metrics for the progress display."""
    try:
        rows = read_metrics(folder)
    except (ValueError, OSError):
        return 0, {}
    if not len(rows.get("steps", [])):
        return 0, {}
    fields = {name: float(rows[key][-1]) for name, key in SHOWN.items() if key in rows}
    evaluations = rows.get(DETERMINISTIC, np.zeros(0))
    for latest in evaluations[np.isfinite(evaluations)][-1:]:
        fields["evaluated"] = float(latest)
    return int(rows["steps"][-1]), fields


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class Worker:
    """A process that trains one job after another and reuses its compiled programs."""

    def __init__(self, folder: str, core: int | None, environment: Mapping[str, str]):
        self._folder = Path(folder)  # which the folders of jobs are relative to
        self._core, self._environment = core, environment
        self._process: Any = None

    def _launch(self) -> None:
        if not self._folder.is_dir():
            raise ValueError(
                f"{self._folder} does not exist on {platform.node()}: keep runs on a disk that all "
                "machines share."
            )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "wng.execution.worker", str(os.getpid())],
            env={**os.environ, "WNG_THREADS": "1", **self._environment},
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # each job has a log
            # Its own group: Ctrl-C reaches the parent alone, which passes it on once.
            process_group=0,
        )
        if self._core is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self._process.pid, {self._core})
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def start(self, job: Job) -> None:
        """Start training a job."""
        if self._process is None or self._process.poll() is not None:
            self.close()  # it died with the job before
            self._launch()
        log = self._folder / job.folder / "log.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        line = json.dumps({"job": job.to_json(), "log": str(log)})
        with contextlib.suppress(BrokenPipeError):  # it has died, which `outcome` reports
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def outcome(self) -> Outcome | None:
        """The outcome of the job, or None while it is training."""
        ended = self._process.poll()
        answer = self._process.stdout.read()
        if answer:
            status, message, failed = json.loads(answer)
            return Outcome(Status(status), message, tuple(failed))
        if ended is None:
            return None
        if ended < 0:
            return Outcome(Status.DIED, f"killed by {signal.Signals(-ended).name}")
        return Outcome(Status.FAILED, f"its process ended with exit code {ended}")

    def ping(self) -> None:
        """Return if the worker can be reached."""

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Let the process end, and wait for it."""
        if self._process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class _Slot:
    """A core, and the worker there, which may be lost at any time."""

    def __init__(self, executor: Executor, worker: Any, how: tuple):
        self._executor, self._worker, self._how = executor, worker, how
        self.job: Job | None = None

    def _ask(self, method: str, *arguments: Any, lost: Any = None) -> Any:
        """What the worker's method returns, or `lost` if there is no worker any more."""
        try:
            return getattr(self._worker, method)(*arguments)
        except LostError:
            return lost

    def start(self, job: Job) -> None:
        """Train a job; if the worker is lost, `outcome` reports it."""
        self.job = job
        self._ask("start", job)

    def outcome(self) -> Outcome | None:
        """The outcome of the job, or None while it is training."""
        outcome = self._ask("outcome", lost=KILLED)
        if outcome is not None:
            self.job = None
        return outcome

    def has_worker(self) -> bool:
        """Whether there is a worker, or could be another in its place."""
        if self._ask("ping", lost=KILLED) is KILLED:
            self._executor.release([self._worker])
            try:
                (self._worker,) = self._executor.place(Worker, [self._how])
            except LostError:
                return False
        return True

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        if self.job is not None:
            self._ask("interrupt")

    def close(self) -> None:
        """Let the worker end, and wait for it."""
        self._ask("close")
        self._executor.release([self._worker])


class _Deaths(NamedTuple):
    """The deaths of one run's processes."""

    times: int  # in a row, without progress
    steps: int  # that the run had taken
    moment: float  # of the last


def run_jobs(
    jobs: Sequence[Job],
    stop: Callable[[], bool],
    look: Callable[[Job, Outcome | None], None],
    *,
    executor: Executor | None = None,
    pinned: bool = False,
    environment: Mapping[str, str] | None = None,
) -> dict[Path, Outcome]:
    """Train all jobs, one at a time on each core, and leave no process behind.

    A run that dies with its process resumes from its last checkpoint. It is given up after
    `RETRIES` deaths in a row without progress.

    Once `stop` returns True, runs save and end, and no more start. `look` is called for each run in
    progress, and with its outcome when it has ended. With `pinned`, each run is tied to a core of
    this machine, so that times can be compared; XLA then rounds differently than on all cores.
    `environment` adds to the variables of this process. Returns the outcomes by folder.
    """
    executor = executor or LocalExecutor()
    waiting, outcomes, told = list(jobs), {}, False
    deaths: dict[Path, _Deaths] = {}
    ties: Sequence[int | None] = cores()
    if executor.remote or not pinned:
        ties = [None] * max(1, executor.cores())
    how = [(os.getcwd(), tie, environment or {}) for tie in ties[: len(waiting)]]
    workers = executor.place(Worker, how)
    slots = [_Slot(executor, *each) for each in zip(workers, how, strict=True)]

    def busy() -> list[tuple[_Slot, Job]]:
        return [(slot, slot.job) for slot in slots if slot.job is not None]

    def still_saving(job: Job) -> bool:
        """Whether its worker was lost, but not the process that the worker had started."""
        last = deaths.get(job.folder)
        recent = last is not None and time.monotonic() < last.moment + SAVING
        return recent and in_use(job.folder)

    def retried(job: Job) -> bool:
        """Queue a run that died again, unless it makes no progress."""
        last = deaths.get(job.folder, _Deaths(0, 0, 0.0))
        steps = sum(progress_of(each.folder)[0] for each in job.jobs)
        times = 1 if steps > last.steps else last.times + 1
        deaths[job.folder] = _Deaths(times, steps, time.monotonic())
        if times > RETRIES or told:
            return False
        waiting.append(dataclasses.replace(job, resume=True))
        return True

    with contextlib.ExitStack() as ends:  # also after a second Ctrl-C, or an error here
        for slot in slots:
            ends.callback(slot.close)
        for slot in slots:
            ends.callback(slot.interrupt)
        while busy() or (waiting and not told):
            for slot in [slot for slot in slots if slot.job is None]:
                ready = [job for job in waiting if not still_saving(job)]
                if not ready or told:
                    break
                if slot.has_worker():
                    waiting.remove(ready[0])
                    slot.start(ready[0])
                elif len(slots) > 1:
                    slots.remove(slot)
                else:
                    raise LostError("all workers are lost: resume with the same command.")
            time.sleep(0.5)
            if stop() and not told:
                told = True
                for slot, _ in busy():
                    slot.interrupt()
            for slot, job in busy():
                outcome = slot.outcome()
                if outcome is not None and outcome.status is Status.DIED and retried(job):
                    outcome = None
                if outcome is not None:
                    if told and outcome.status is Status.DIED:  # interrupted while it started
                        outcome = Outcome(Status.STOPPED)
                    outcomes[job.folder] = outcome
                look(job, outcome)
    return outcomes
