"""`wng train --seeds`: several runs at once, one display."""

import re
import shlex
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from wng.agents.registry import GRADIENT
from wng.agents.run import Job, Outcome, Status
from wng.behavior.embedding import find_embedding
from wng.cli.console import exit_stopped, note
from wng.execution.blocks import in_blocks
from wng.execution.processes import progress_of, run_jobs
from wng.runs.executor import Executor
from wng.runs.interrupt import stop_on_signals
from wng.runs.progress import TrainingProgress

if TYPE_CHECKING:
    from wng.cli.train import Train

MOST = 10_000  # seeds in one command


def run_seeds(train: "Train", executor: Executor) -> None:
    """Train several seeds in worker processes, as many at a time as there are cores.

    In a JAX environment, each process trains a block of seeds as one program.

    Processes are not tied to cores: on another number of cores XLA rounds differently, and a seed
    should come out the same alone and in company.
    """
    jobs = [train.job(seed) for seed in parse_seeds(train.seeds)]
    for job in jobs:  # refuse before anything has started
        job.existing()
    resolved = train.family.resolve(train.env, train.config)
    find_embedding(train.config.embedding)
    with stop_on_signals() as stop, TrainingProgress(Console(quiet=train.quiet)) as progress:
        for job in jobs:
            progress.add(_name(job), job.steps, progress_of(job.folder)[0])

        def look(unit: Job, outcome: Outcome | None) -> None:
            for job in unit.jobs:
                done, fields = progress_of(job.folder)
                if fields:
                    progress.update(_name(job), done, fields)
                elif outcome is None:
                    progress.say(_name(job), "compiling")

        size = train.family.seed_size(train.config, resolved)
        units = in_blocks(jobs, executor.cores(), size)
        ends_of = run_jobs(units, lambda: stop.requested, look, executor=executor)
    outcomes = {
        job.folder: ends_of[unit.folder]
        for unit in units
        for job in unit.jobs
        if unit.folder in ends_of
    }
    bad = {Status.FAILED, Status.DIED, Status.TAKEN}
    failed = [
        job
        for job in jobs
        if (outcome := outcomes.get(job.folder)) is not None
        and outcome.status in bad
        and outcome.concerns(job.seed)
    ]
    for job in failed:
        note(f"{_name(job)} failed: {outcomes[job.folder].message}")
    parent = jobs[0].folder.parent
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(jobs)} seeds failed; their logs are {parent}/seed*/log.txt."
        )
    finished = [o for o in outcomes.values() if o.status is Status.FINISHED]
    if len(finished) < len(jobs):
        exit_stopped("Stopped", "--resume")
    ends = [progress_of(job.folder)[1] for job in jobs]

    def mean_and_std(name: str) -> str:
        values = [end.get(name, np.nan) for end in ends]
        return f"{np.mean(values):.1f} ± {np.std(values):.1f}"

    whose = "last 100 episodes" if train.family is GRADIENT else "mean policy"
    evaluated = f"; evaluated {mean_and_std('evaluated')}" if train.eval_every else ""
    note(
        f"\n{jobs[0].method} on {train.env}: return {mean_and_std('return')} over "
        f"{len(jobs)} seed{'s' * (len(jobs) > 1)} ({whose} of each){evaluated}.\n"
        f"Next:\n  wng plot {shlex.quote(str(parent.parent))}/*/seed*"
    )


def _name(job: Job) -> str:
    return f"{job.method} seed {job.seed}"


def parse_seeds(text: str) -> list[int]:
    """'0-4' or '0,3,7' as a list."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ValueError(f"--seeds must look like 0-4 or 0,3,7, got '{text}'.")
        if int(match[2] or match[1]) - int(match[1]) >= MOST:
            raise ValueError(f"--seeds {part.strip()} has too many seeds: use at most {MOST}.")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return sorted(set(seeds))
