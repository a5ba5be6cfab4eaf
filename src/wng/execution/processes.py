"""Runs in processes of their own, as many at a time as there are cores."""

import contextlib
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

from wng.runs.directory import in_use
from wng.runs.executor import RETRIES, Executor, LocalExecutor, LostError
from wng.runs.metrics import read_metrics

STOPPED = 130  # exit code: by Ctrl-C or SIGTERM, and saved
SAVING = 60.0  # seconds that an orphan may take to save its run


class Child(NamedTuple):
    """A `wng train` command."""

    name: str
    folder: Path  # of its run
    words: Sequence[str]  # after `wng`

    def so_far(self) -> tuple[int, dict[str, float]]:
        """How far the run is, and how well it does, by its last line of metrics."""
        try:
            rows = read_metrics(self.folder)
        except (ValueError, OSError):
            return 0, {}
        if not len(rows.get("steps", [])):
            return 0, {}
        shown = {"return": "return_recent", "KL": "kl", "past wall": "population_past_wall"}
        fields = {name: float(rows[key][-1]) for name, key in shown.items() if key in rows}
        return int(rows["steps"][-1]), fields

    def last_words(self, code: int) -> str:
        """Why it failed: the last line of its log."""
        try:
            said = (self.folder / "log.txt").read_text(errors="replace").strip().splitlines()
        except OSError:
            said = []
        died = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return said[-1].removeprefix("wng: ") if said and code > 0 else died


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class Worker:
    """A process that runs one child after the other; what it has compiled serves the next."""

    def __init__(self, folder: str, core: int | None, environment: Mapping[str, str]):
        self._folder = Path(folder)  # to which the paths of children are relative
        self._core, self._environment = core, environment
        self._process: Any = None

    def _launch(self) -> None:
        if not self._folder.is_dir():
            raise ValueError(
                f"{self._folder} is not there on {platform.node()}: runs must be kept on a disk "
                "that all machines share."
            )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "wng.execution.worker", str(os.getpid())],
            env={**os.environ, "WNG_QUIET": "1", "WNG_THREADS": "1", **self._environment},
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a command has its log
            # Its own group: Ctrl-C reaches the parent alone, which passes it on, once.
            process_group=0,
        )
        if self._core is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self._process.pid, {self._core})
        os.set_blocking(self._process.stdout.fileno(), False)

    def start(self, child: Child) -> None:
        """Hand it a child."""
        if self._process is None or self._process.poll() is not None:
            self.close()  # it died with the child before
            self._launch()
        log = self._folder / child.folder / "log.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        task = {"words": list(child.words), "log": str(log)}
        with contextlib.suppress(BrokenPipeError):  # it has died, which `code` will tell
            self._process.stdin.write(f"{json.dumps(task)}\n".encode())
            self._process.stdin.flush()

    def code(self) -> int | None:
        """The exit code of the child, or None if it is under way. The process may die with it."""
        ended = self._process.poll()
        answer = self._process.stdout.read()
        if answer:
            return int(answer)
        return ended if ended != 0 else 1  # an end without an answer is no success

    def is_there(self) -> None:
        """It is, who can be asked."""

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Let it end, and wait for it."""
        if self._process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class _Slot:
    """A place for a child, and the worker there."""

    def __init__(self, executor: Executor, worker: Any, how: tuple):
        self._executor, self._worker, self._how = executor, worker, how
        self.child: Child | None = None

    def start(self, child: Child) -> None:
        """Run a child; if the worker is lost, `code` will tell."""
        self.child = child
        with contextlib.suppress(LostError):
            self._worker.start(child)

    def code(self) -> int | None:
        """The exit code of the child, a negative one if it was killed, or None."""
        try:
            code = self._worker.code()
        except LostError:
            code = -signal.SIGKILL
        if code is not None:
            self.child = None
        return code

    def has_worker(self) -> bool:
        """Whether there is one, or another in its place."""
        try:
            self._worker.is_there()
        except LostError:
            self._executor.release([self._worker])
            try:
                (self._worker,) = self._executor.place(Worker, [self._how])
            except LostError:
                return False
        return True

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        if self.child is not None:
            with contextlib.suppress(LostError):
                self._worker.interrupt()

    def close(self) -> None:
        """Let the worker end, and wait for it."""
        with contextlib.suppress(LostError):
            self._worker.close()
        self._executor.release([self._worker])


def run_children(
    children: Sequence[Child],
    stop: Callable[[], bool],
    look: Callable[[Child, int | None], None],
    *,
    executor: Executor | None = None,
    pinned: bool = False,
    environment: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Run them all, one at a time on each core, and leave nobody behind.

    A child that dies with its worker is gone on with from its last checkpoint; only after
    `RETRIES` deaths in a row without progress it is given up.

    Args:
      children: what to run, in this order.
      stop: asked often; once it says so, those under way save and end, and no more start.
      look: called for each child under way, and with its exit code when it has ended.
      executor: where; by default on this machine.
      pinned: tie each to a core of its own, so that its times can be compared. XLA rounds otherwise
        on another number of cores: not for runs that are to come out the same alone and in company.
        Not done elsewhere than on this machine.
      environment: variables on top of this process's.

    Returns:
      The exit code of each that was started, STOPPED for all that were stopped.
    """
    executor = executor or LocalExecutor()
    waiting, codes, told = list(children), {}, False
    deaths: dict[str, _Deaths] = {}
    ties: Sequence[int | None] = cores()
    if executor.remote or not pinned:
        ties = [None] * max(1, executor.cores())
    how = [(os.getcwd(), tie, environment or {}) for tie in ties[: len(waiting)]]
    workers = executor.place(Worker, how)
    slots = [_Slot(executor, *each) for each in zip(workers, how, strict=True)]

    def busy() -> list[tuple[_Slot, Child]]:
        return [(slot, slot.child) for slot in slots if slot.child is not None]

    def still_saving(child: Child) -> bool:
        """Its worker was lost, but not the process that the worker had started."""
        last = deaths.get(child.name)
        recent = last is not None and time.monotonic() < last.moment + SAVING
        return recent and in_use(child.folder)

    def gone_on_with(child: Child) -> bool:
        """Whether it will be tried again."""
        last, steps = deaths.get(child.name, _Deaths(0, 0, 0.0)), child.so_far()[0]
        times = 1 if steps > last.steps else last.times + 1
        deaths[child.name] = _Deaths(times, steps, time.monotonic())
        if times > RETRIES or told:
            return False
        words = [*child.words, *(() if "--resume" in child.words else ("--resume",))]
        waiting.append(child._replace(words=words))
        return True

    with contextlib.ExitStack() as ends:  # also after a second Ctrl-C, or an error here
        for slot in slots:
            ends.callback(slot.close)
        for slot in slots:
            ends.callback(slot.interrupt)
        while busy() or (waiting and not told):
            for slot in [slot for slot in slots if slot.child is None]:
                ready = [child for child in waiting if not still_saving(child)]
                if not ready or told:
                    break
                if slot.has_worker():
                    waiting.remove(ready[0])
                    slot.start(ready[0])
                elif len(slots) > 1:
                    slots.remove(slot)
                else:
                    raise LostError("all workers are lost; the same command with --resume goes on.")
            time.sleep(0.5)
            if stop() and not told:
                told = True
                for slot, _ in busy():
                    slot.interrupt()
            for slot, child in busy():
                code = slot.code()
                if code is not None and code < 0 and gone_on_with(child):
                    code = None
                if code is not None:
                    # Stopped while it was still importing, it ends with a code of Python's.
                    codes[child.name] = code = STOPPED if told and code not in (0, 2) else code
                look(child, code)
    return codes


class _Deaths(NamedTuple):
    """Of one child."""

    times: int  # in a row, without progress
    steps: int  # that it had taken
    moment: float  # of the last
