"""`wng train --seeds`: several runs at once, one display."""

import re
import shlex
import sys

import numpy as np

from wng import envs
from wng.agents.registry import GRADIENT
from wng.behavior.embedding import find_embedding
from wng.cli.console import note
from wng.cli.train import Train, say_how_to_resume
from wng.execution.processes import STOPPED, Child, run_children
from wng.execution.ray import Executor
from wng.runs.interrupt import stop_on_signals
from wng.runs.progress import TrainingProgress

MOST = 10_000  # seeds in one command


def run_seeds(train: Train, executor: Executor) -> None:
    """Several seeds, each a process of its own, as many at a time as there are cores.

    Processes are not tied to cores: on another number of cores XLA rounds otherwise, and a seed
    should come out the same alone and in company.
    """
    seeds = parse_seeds(train.seeds)
    for seed in seeds:  # refuse before anything has started
        train.existing(seed)
    envs.check_env(train.env, train.config.backend if train.family is GRADIENT else "gymnasium")
    find_embedding(train.config.embedding)
    words = sys.argv[1:]
    for name in ("seeds", "seed", "executor", "ray-address", "ray_address"):
        words = _without(words, name)
    children = {
        seed: Child(f"{train.name} seed {seed}", train.folder(seed), [*words, "--seed", str(seed)])
        for seed in seeds
    }
    with stop_on_signals() as stop, TrainingProgress() as progress:
        for child in children.values():
            progress.add(child.name, int(train.steps), child.so_far()[0])

        def look(child: Child, _: int | None) -> None:
            done, fields = child.so_far()
            if fields:
                progress.update(child.name, done, fields)

        codes = run_children(
            list(children.values()), lambda: stop.requested, look, executor=executor
        )
    failed = [c for c in children.values() if codes.get(c.name, 0) not in (0, STOPPED)]
    for child in failed:
        note(f"{child.name} failed: {child.last_words(codes[child.name])}")
    parent = train.folder(seeds[0]).parent
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(seeds)} seeds failed; their logs are {parent}/seed*/log.txt."
        )
    if stop.requested and not all(codes.get(c.name) == 0 for c in children.values()):
        say_how_to_resume("Stopped")
        sys.exit(STOPPED)
    ends = [child.so_far()[1].get("return", np.nan) for child in children.values()]
    note(
        f"\n{train.name} on {train.env}: return {np.mean(ends):.1f} ± {np.std(ends):.1f} over "
        f"{len(seeds)} seeds ({'last 100 episodes' if train.family is GRADIENT else 'mean policy'} "
        "of each).\n"
        f"Next:\n  wng plot {shlex.quote(str(parent.parent))}/*/seed*"
    )


def parse_seeds(text: str) -> list[int]:
    """'0-4' or '0,3,7' as a list."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ValueError(f"--seeds must look like 0-4 or 0,3,7, got '{text}'.")
        if int(match[2] or match[1]) - int(match[1]) >= MOST:
            raise ValueError(f"--seeds {part.strip()} are too many: at most {MOST} at once.")
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
