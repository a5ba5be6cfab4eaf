"""`wng train --seeds`: several runs at once, one display."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from wng import envs
from wng.behavior.embedding import find_embedding
from wng.cli.console import note
from wng.cli.families import GRADIENT
from wng.cli.train import STOPPED, Train, say_how_to_resume
from wng.envs.workers import available_cores
from wng.runs.interrupt import stop_on_signals
from wng.runs.metrics import read_metrics
from wng.runs.progress import TrainingProgress


def run_seeds(train: Train) -> None:
    """Several seeds, each a process of its own, as many at a time as there are cores.

    Processes are not tied to cores: on another number of cores XLA rounds otherwise, and a seed
    should come out the same alone and in company.
    """
    seeds = parse_seeds(train.seeds)
    for seed in seeds:  # refuse before anything has started
        train.existing(seed)
    envs.check_env(train.env, train.config.backend if train.family is GRADIENT else "gymnasium")
    find_embedding(train.config.embedding)
    with stop_on_signals() as stop, TrainingProgress() as progress:
        for seed in seeds:
            progress.add(f"{train.name} seed {seed}", int(train.steps), _last(train, seed)[0])
        codes = _run_children(train, seeds, progress, lambda: stop.requested)
    failed = [seed for seed, code in codes.items() if code not in (0, STOPPED)]
    for seed in failed:
        log = train.folder(seed) / "log.txt"
        said = log.read_text(errors="replace").strip().splitlines()
        note(f"seed {seed} failed: {said[-1] if said else f'exit code {codes[seed]}'}")
    parent = train.folder(seeds[0]).parent
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(seeds)} seeds failed; their logs are {parent}/seed*/log.txt."
        )
    if stop.requested and not all(codes.get(seed) == 0 for seed in seeds):
        say_how_to_resume("Stopped")
        sys.exit(STOPPED)
    ends = [_last(train, seed)[1].get("return", np.nan) for seed in seeds]
    note(
        f"\n{train.name} on {train.env}: return {np.mean(ends):.1f} ± {np.std(ends):.1f} over "
        f"{len(seeds)} seeds ({'last 100 episodes' if train.family is GRADIENT else 'mean policy'} "
        "of each).\n"
        f"Next:\n  wng plot {shlex.quote(str(parent.parent))}/*/seed*"
    )


def _run_children(
    train: Train, seeds: list[int], progress: TrainingProgress, stop: Callable[[], bool]
) -> dict[int, int]:
    """Run the seeds; the exit code of each that was started, STOPPED for all that were stopped."""
    words = _without(_without(sys.argv[1:], "seeds"), "seed")
    waiting, codes, told = list(seeds), {}, False
    running: dict[int, subprocess.Popen[bytes]] = {}
    try:
        while running or (waiting and not told):
            while waiting and not told and len(running) < available_cores():
                seed = waiting.pop(0)
                running[seed] = _start(train, seed, words)
            time.sleep(0.5)
            if stop() and not told:
                told = True
                _interrupt(running)
            for seed, process in list(running.items()):
                done, fields = _last(train, seed)
                if fields:
                    progress.update(f"{train.name} seed {seed}", done, fields)
                if process.poll() is not None:
                    del running[seed]
                    code = process.returncode
                    # A child stopped while it was still importing ends with a code of Python's.
                    codes[seed] = STOPPED if told and code not in (0, 2) else code
    finally:  # a second Ctrl-C, or an error here: leave nobody behind
        _interrupt(running)
        for process in running.values():
            process.wait()
    return codes


def _start(train: Train, seed: int, words: list[str]) -> "subprocess.Popen[bytes]":
    folder = train.folder(seed)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "wng.cli", *words, "--seed", str(seed)],
            env={**os.environ, "WNG_QUIET": "1", "WNG_THREADS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            # Its own group: Ctrl-C reaches the parent alone, which passes it on, once.
            process_group=0,
        )


def _interrupt(running: dict[int, "subprocess.Popen[bytes]"]) -> None:
    for process in running.values():
        process.send_signal(signal.SIGINT)


def _last(train: Train, seed: int) -> tuple[int, dict[str, float]]:
    """How far a run is, and how well it does, by its last line of metrics."""
    try:
        rows = read_metrics(train.folder(seed))
    except (ValueError, OSError):
        return 0, {}
    if not len(rows.get("steps", [])):
        return 0, {}
    shown = {"return": "return_recent", "KL": "kl", "past wall": "population_past_wall"}
    fields = {name: float(rows[key][-1]) for name, key in shown.items() if key in rows}
    return int(rows["steps"][-1]), fields


def parse_seeds(text: str) -> list[int]:
    """'0-4' or '0,3,7' as a list."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ValueError(f"--seeds must look like 0-4 or 0,3,7, got '{text}'.")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return sorted(set(seeds))


def _without(words: list[str], name: str) -> list[str]:
    """The command line without --name and its value."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == f"--{name}":
            skip = True
        elif not word.startswith(f"--{name}="):
            kept.append(word)
    return kept
