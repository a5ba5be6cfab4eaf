"""One run, as data and as a function: what `wng train`, several seeds and studies all do."""

import dataclasses
import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from wng.agents.agent import Agent
from wng.agents.registry import FAMILIES, Family
from wng.runs import training
from wng.runs.directory import RunDirectory, safe_name
from wng.runs.executor import Executor
from wng.runs.settings import config_from, find_method


class Status(enum.StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    STOPPED = "stopped"  # by Ctrl-C or SIGTERM, and saved
    FAILED = "failed"
    TAKEN = "taken"  # another process has the run
    DIED = "died"  # its process was killed


class Outcome(NamedTuple):
    """How a run ended, and why if it did not finish."""

    status: Status
    message: str = ""
    failed: tuple[int, ...] = ()  # seeds of a block; the others may go on, or have finished

    def concerns(self, seed: int) -> bool:
        """Whether the outcome is that of this seed, or of the whole block."""
        return not self.failed or seed in self.failed


@dataclass(frozen=True)
class Job:
    """One run: everything that is needed to start or to resume it."""

    env: str
    method: str  # name of the run: a method, or its axes where they are no method's
    seed: int
    steps: int  # environment steps in all
    config: Any  # a `wng.Config` or `wng.EvolutionConfig`
    out: Path  # folder that the run is kept below
    resume: bool = False  # continue the run that is there
    command: str = ""  # what the user typed, for the record
    eval_every: int = 0  # environment steps between evaluations; 0 for none
    eval_episodes: int = 10  # of an evaluation
    block: tuple[int, ...] = ()  # seeds, this one first, that are trained in one program

    @property
    def jobs(self) -> "list[Job]":
        """The runs of a block, one for each seed; of a job that is no block, itself."""
        seeds = self.block or (self.seed,)
        return [dataclasses.replace(self, seed=seed, block=()) for seed in seeds]

    @property
    def family(self) -> Family:
        """The family of the method."""
        return next(family for family in FAMILIES if type(self.config) is family.config)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.out / safe_name(self.env) / safe_name(self.method) / f"seed{self.seed}"

    @property
    def record(self) -> dict[str, Any]:
        """The configuration in config.json."""
        evaluations = {"eval_every": self.eval_every, "eval_episodes": self.eval_episodes}
        settings = dataclasses.asdict(self.config)
        return {"steps": self.steps, **(evaluations if self.eval_every else {}), **settings}

    def existing(self) -> RunDirectory | None:
        """The run that is there already, if it may be resumed."""
        if not (self.folder / "config.json").exists():
            return None
        if not self.resume:
            raise ValueError(
                f"{self.folder} already holds a run: add --resume to continue it, choose another "
                "folder with --out, or delete it."
            )
        run = RunDirectory.open(self.folder)
        run.check_config(self.record, allowed=("steps",))
        return run

    def to_json(self) -> dict[str, Any]:
        """The job as JSON holds it."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        config = dataclasses.asdict(self.config)
        return {**fields, "out": str(self.out), "config": config, "kind": self.family.kind}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "Job":
        """The inverse of `to_json`."""
        kind = saved.pop("kind")
        family = next(family for family in FAMILIES if family.kind == kind)
        config = config_from(saved["config"], family.config)
        block = tuple(saved["block"])
        fields: dict[str, Any] = {"config": config, "out": Path(saved["out"]), "block": block}
        return cls(**saved | fields)


def run_name(family: Family, method: str, config: Any) -> str:
    """The name of a run: the method, or its axes where they are not the method's."""
    axes = {axis: getattr(config, axis) for axis in next(iter(family.methods.values())).axes}
    if method:
        chosen = find_method(method, family.methods)
        return chosen.key if chosen.covers(axes) else "_".join(axes.values())
    named = [key for key, found in family.methods.items() if found.covers(axes)]
    return named[0] if named else "_".join(axes.values())


def run_job(
    job: Job,
    *,
    executor: Executor | None = None,
    progress: bool = True,
    say: Callable[[str], None] = print,
    conclude: Callable[[Agent, RunDirectory], None] | None = None,
) -> Outcome:
    """Train up to the job's number of steps, from the last checkpoint if there is one.

    `say` is called with sentences for the user, `conclude` with the agent and its run once all
    steps are done. The outcome is FINISHED, or STOPPED after Ctrl-C or SIGTERM. The runs of a block
    are trained side by side; if some fail, the others finish first.
    """
    if job.block:
        return _run_block(job, progress, say)
    run = job.existing()
    agent = Agent(job.env, job.method, job.seed, config=job.config, executor=executor)
    try:
        run = _open_run(job, run, agent, say)
        agent.learn(
            max(0, job.steps - agent.steps),
            progress=progress,
            run=run,
            eval_every=job.eval_every,
            eval_episodes=job.eval_episodes,
        )
        if agent.steps < job.steps:
            return Outcome(Status.STOPPED, f"Stopped at {agent.steps:,} of {job.steps:,} steps")
        if conclude is not None:
            conclude(agent, run)
        return Outcome(Status.FINISHED)
    finally:
        agent.close()


def _open_run(
    job: Job, run: RunDirectory | None, agent: Agent, say: Callable[[str], None]
) -> RunDirectory:
    """The run's folder, with the agent at its last checkpoint if there is one."""
    agent.trainer.check_memory()  # before there is a folder of a run that cannot be
    if run is None:
        run = RunDirectory.create(job.out, job.env, job.method, job.seed, job.record, job.command)
    with run.lock():
        for problem in agent.restore(run):
            say(f"Note: {problem}")
    if agent.steps:
        say(f"Resuming at step {agent.steps:,}.")
    return run


def _run_block(job: Job, progress: bool, say: Callable[[str], None]) -> Outcome:
    jobs = job.jobs
    found = [each.existing() for each in jobs]
    agents = [Agent(each.env, each.method, each.seed, config=each.config) for each in jobs]
    try:
        try:
            block = job.family.make_block([agent.trainer for agent in agents])
        except ValueError:  # each has an environment, and so a program, of its own
            return _run_in_turn(jobs, progress, say)
        runs, refused = [], {}
        for each, run, agent in zip(jobs, found, agents, strict=True):
            try:
                runs.append(_open_run(each, run, agent, say))
            except (ValueError, RuntimeError, OSError) as error:
                refused[each.seed] = f"seed {each.seed}: {error}"
        if refused:
            return _run_others(job, refused, progress, say)
        failures = training.train_block(
            block,
            job.steps,
            [f"{agent.title} seed {agent.seed}" for agent in agents],
            identity=agents[0].identity,
            runs=runs,
            progress=progress,
            eval_every=job.eval_every,
            eval_episodes=job.eval_episodes,
        )
        failed = {a.seed: f"seed {a.seed}: {e}" for a, e in zip(agents, failures, strict=True) if e}
        if failed:
            return Outcome(Status.FAILED, " ".join(failed.values()), tuple(failed))
        least = min(agent.steps for agent in agents)
        if least < job.steps:
            return Outcome(Status.STOPPED, f"Stopped at {least:,} of {job.steps:,} steps")
        return Outcome(Status.FINISHED)
    finally:
        for agent in agents:
            agent.close()


def _run_others(
    job: Job, refused: dict[int, str], progress: bool, say: Callable[[str], None]
) -> Outcome:
    """Run the seeds of a block without those that cannot be opened; these count as failed."""
    seeds = tuple(each.seed for each in job.jobs if each.seed not in refused)
    outcome = Outcome(Status.FINISHED)
    if seeds:
        others = dataclasses.replace(job, seed=seeds[0], block=seeds * (len(seeds) > 1))
        # Where the first try has made folders, there are runs without a checkpoint now.
        outcome = run_job(dataclasses.replace(others, resume=True), progress=progress, say=say)
    if outcome.status is Status.STOPPED:
        return outcome
    messages = [*refused.values(), *[outcome.message] * bool(outcome.message)]
    return Outcome(Status.FAILED, " ".join(messages), (*refused, *outcome.failed))


def _run_in_turn(jobs: list[Job], progress: bool, say: Callable[[str], None]) -> Outcome:
    failed = {}
    for job in jobs:
        try:
            outcome = run_job(job, progress=progress, say=say)
        except (ValueError, RuntimeError, OSError) as error:
            failed[job.seed] = f"seed {job.seed}: {error}"
            continue
        if outcome.status is Status.STOPPED:
            return outcome
    if failed:
        return Outcome(Status.FAILED, " ".join(failed.values()), tuple(failed))
    return Outcome(Status.FINISHED)
