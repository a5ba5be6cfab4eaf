"""Runs in processes of their own, as many at a time as there are cores."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from wng.runs.metrics import read_metrics

STOPPED = 130  # exit code: by Ctrl-C or SIGTERM, and saved


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


class _Worker:
    """A process that runs one child after the other; what it has compiled serves the next."""

    def __init__(self, core: int | None, environment: Mapping[str, str]):
        self.child: Child | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wng.cli.worker", str(os.getpid())],
            env={**os.environ, "WNG_QUIET": "1", "WNG_THREADS": "1", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a command has its log
            # Its own group: Ctrl-C reaches the parent alone, which passes it on, once.
            process_group=0,
        )
        if core is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.process.pid, {core})
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def start(self, child: Child) -> None:
        """Hand it a child."""
        child.folder.mkdir(parents=True, exist_ok=True)
        log = child.folder / "log.txt"
        log.write_text("")
        self.child = child
        task = {"words": list(child.words), "log": str(log.resolve())}
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, which `code` will tell
            self.process.stdin.write(f"{json.dumps(task)}\n".encode())
            self.process.stdin.flush()

    def code(self) -> int | None:
        """The exit code of the child, or None if it is under way. A worker dies with its child."""
        assert self.process.stdout is not None
        ended = self.process.poll()
        answer = self.process.stdout.read()
        if answer:
            return int(answer)
        return ended if ended != 0 else 1  # an end without an answer is no success

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Let it end, and wait for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def run_children(
    children: Sequence[Child],
    stop: Callable[[], bool],
    look: Callable[[Child, int | None], None],
    *,
    pinned: bool = False,
    environment: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Run them all, one at a time on each core, and leave nobody behind.

    Args:
      children: what to run, in this order.
      stop: asked often; once it says so, those under way save and end, and no more start.
      look: called for each child under way, and with its exit code when it has ended.
      pinned: tie each to a core of its own, so that its times can be compared. XLA rounds otherwise
        on another number of cores: not for runs that are to come out the same alone and in company.
      environment: variables on top of this process's.

    Returns:
      The exit code of each that was started, STOPPED for all that were stopped.
    """
    waiting, codes, told = list(children), {}, False
    free: list[int] = cores()[: len(waiting)]
    workers: dict[int, _Worker] = {}  # by core

    def busy() -> list[tuple[int, _Worker, Child]]:
        return [(core, w, w.child) for core, w in workers.items() if w.child is not None]

    try:
        while busy() or (waiting and not told):
            while waiting and not told and free:
                core = free.pop(0)
                if core in workers and workers[core].process.poll() is not None:
                    workers.pop(core).close()  # it died with its child
                if core not in workers:
                    workers[core] = _Worker(core if pinned else None, environment or {})
                workers[core].start(waiting.pop(0))
            time.sleep(0.5)
            if stop() and not told:
                told = True
                for _, worker, _ in busy():
                    worker.interrupt()
            for core, worker, child in busy():
                code = worker.code()
                if code is not None:
                    worker.child = None
                    free.append(core)
                    # Stopped while it was still importing, it ends with a code of Python's.
                    codes[child.name] = code = STOPPED if told and code not in (0, 2) else code
                look(child, code)
    finally:  # also after a second Ctrl-C, or an error here
        for _, worker, _ in busy():
            worker.interrupt()
        for worker in workers.values():
            worker.close()
    return codes
