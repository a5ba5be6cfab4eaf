"""Many training runs, one process each, whose rows go to a CSV file; used by other benchmarks."""

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import wng
from wng.runs import setup

setup.own_process = True  # JAX may be set up as for a command
Job = tuple[Any, ...]


def train(agent: wng.Agent, steps: int) -> dict[str, float]:
    """Train an agent on one core, as `wng train` does; what became of it."""
    rows: list[dict[str, float]] = []
    start = time.perf_counter()
    agent.learn(steps, progress=False, callback=lambda _, row: rows.append(row))
    seconds = time.perf_counter() - start
    if agent.steps < steps:
        raise SystemExit("stopped before the end: no row.")
    return {
        "deterministic": agent.evaluate(20).mean(),
        "training": rows[-1]["return_recent"],
        "std": rows[-1].get("std", np.nan),
        "kl": float(np.mean([row["kl"] for row in rows])),
        "seconds": seconds,
    }


def append(path: Path, row: list[object]) -> None:
    """Add a row; numbers to six digits."""
    shown = [f"{x:.6g}" if isinstance(x, float) else x for x in row]
    with path.open("a", newline="") as file:
        csv.writer(file).writerow(shown)


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def run_missing(
    script: str, path: Path, header: list[str], missing: Callable[[], list[Job]], cores: int
) -> None:
    """Run `script --out path --one JOB` for what is `missing`, `cores` at a time, to the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(",".join(header) + "\n")
    running: dict[Job, subprocess.Popen[bytes]] = {}
    free, own = list(range(cores)), {}  # cores that no job has, and the core of each job
    failed: set[Job] = set()
    while True:
        for job in [job for job, process in running.items() if process.poll() is not None]:
            free.append(own.pop(job))
            if running.pop(job).returncode:
                failed.add(job)
        waiting = [job for job in missing() if job not in running and job not in failed]
        if not waiting and not running:
            break
        if waiting and len(running) < cores:
            job = waiting[0]
            print(f"{len(waiting):4} left: ", *job, flush=True)
            command = [sys.executable, script, "--out", str(path), "--one", *map(str, job)]
            running[job] = subprocess.Popen(command, env=os.environ | {"WNG_THREADS": "1"})
            own[job] = free.pop()
            if hasattr(os, "sched_setaffinity"):  # as in a study: each on a core of its own
                os.sched_setaffinity(running[job].pid, {own[job]})
        time.sleep(0.5)
    if failed:
        raise SystemExit(f"failed: {', '.join(map(str, sorted(failed)))}.")
