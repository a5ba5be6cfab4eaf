"""`wng reproduce`: the paper's studies."""

import abc
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from wng import envs
from wng.cli.console import command_line, console, note
from wng.envs.resolve import find
from wng.evolution.evaluators import map_of
from wng.execution.processes import STOPPED
from wng.execution.ray import Executor, ExecutorName, make_executor
from wng.experiments.conditioning import report as conditioning_report
from wng.experiments.efficiency import report as efficiency
from wng.experiments.es import report as es_report
from wng.experiments.es import study as es
from wng.experiments.pg import report as pg_report
from wng.experiments.pg import study as pg
from wng.experiments.report import Claim, claims_table, provenance, write_report
from wng.experiments.study import Job, Scale, only, read_runs, run_jobs
from wng.experiments.toys import figures as toys_figures
from wng.experiments.toys import report as toys_report
from wng.experiments.toys import study as toys_study
from wng.experiments.toys.descent import ToySettings
from wng.experiments.transport import study as transport
from wng.experiments.transport.study import TransportSettings
from wng.runs.progress import TrainingProgress

Tasks = tuple[str, ...]


@dataclass(frozen=True)
class Toys:
    """The Gaussian study: Fisher against Wasserstein (the paper's Figure 1). About 100 seconds.

    Writes figures/, data/ and the report: every method on a smoothed sinc in 100 dimensions, each
    claim of the paper with what is measured here beside it.
    """

    settings: ToySettings = field(default_factory=ToySettings)
    out: Path = Path("results/toys")
    """Folder to write to."""
    scale: Scale = "paper"
    """smoke: 100 iterations in 3 dimensions, to see that everything works. short, paper: as set."""

    def run(self) -> list[Claim]:
        """Run the study."""
        self.out.mkdir(parents=True, exist_ok=True)  # a bad folder ends it here, not in 2 minutes
        settings = self.settings
        if self.scale == "smoke":
            few = {"iterations": 100, "dim": 3, "num_samples": 20}
            settings = replace(
                settings, **{k: min(n, getattr(settings, k)) for k, n in few.items()}
            )
        study = toys_study.run_study(settings)
        toys_study.write_data(study, self.out / "data")
        toys_figures.paper_figure(study, self.out / "figures" / "toys.png")
        toys_figures.extension_figure(study, self.out / "figures" / "beyond.png")
        text = toys_report.report(study, command_line())
        write_report(text, self.out, "wng: the Gaussian study")
        return finished(self.out, toys_report.claims(study))


@dataclass(frozen=True)
class Transport:
    """The picture of the behavioural transport function, for a Gaussian and a banana. Seconds."""

    settings: TransportSettings = field(default_factory=TransportSettings)
    out: Path = Path("results/transport")
    """Folder to write to."""

    def run(self) -> list[Claim]:
        """Draw the picture."""
        self.out.mkdir(parents=True, exist_ok=True)
        with console.status("Transport"):
            transport.reproduce(self.settings, self.out, command_line())
        return finished(self.out, [])


@dataclass(frozen=True)
class Study(abc.ABC):
    """What the studies of runs have in common."""

    scale: Scale = "short"
    """smoke: minutes, to see that everything works. short: about two hours on 2 cores. paper: the
    paper's budgets, over days. Stopped, it goes on where it was when it is called again."""
    tasks: tuple[str, ...] = ()
    """Only these environments, or others in place of the study's; needs --out."""
    out: Path | None = None
    """Folder to write to; by default results/NAME, or runs/smoke/NAME at scale smoke."""
    runs: Path = Path("runs/reproduce")
    """Where runs are kept, in a folder for each scale; each can be looked at with `wng plot`, …"""
    report_only: bool = False
    """Run nothing: a report of what is there."""
    retry: bool = False
    """Try again the runs that failed; otherwise they are listed with the reason."""
    executor: ExecutorName = "local"
    """ray: one run a core of a Ray cluster, whose machines share the folder RUNS. (Times of runs
    can then be compared on machines of one kind only.)"""
    ray_address: str = ""
    """Of the cluster, such as auto or 10.0.0.1:6379; by default one is started on this machine."""

    name: ClassVar = ""

    @abc.abstractmethod
    def study(self, out: Path) -> list[Claim]:
        """Run it and write to `out`."""

    def run(self) -> list[Claim]:
        """Run what is not there yet, and report."""
        if self.tasks and self.out is None:
            raise ValueError(
                "--tasks needs --out: a report of some tasks should not replace that of all."
            )
        for env in self.tasks:
            self.check(env)
        out = self.out or results(self.scale) / self.name
        out.mkdir(parents=True, exist_ok=True)  # a bad folder ends it here, not in two hours
        return finished(out, self.study(out))

    def check(self, env: str) -> None:
        """Raise if the study cannot have this environment."""
        envs.check_env(env, "gymnasium")

    @property
    def root(self) -> Path:
        """Where the runs of this scale are."""
        return self.runs / self.scale

    def gradients(self, tasks: Tasks, methods: tuple[str, ...] = ()) -> pg.Plan:
        """The runs of policy gradients."""
        with self.placed() as executor:
            plan = pg.run(
                pg.SCALES[self.scale],
                self.root,
                tasks,
                execute=not self.report_only,
                retry=self.retry,
                quick=self.scale == "smoke",
                methods=methods,
                executor=executor,
            )
        return plan if plan is not None else stopped()

    def evolution(self, tasks: Tasks) -> list[Job]:
        """The runs of evolution strategies."""
        jobs = es.jobs(only(es.SCALES[self.scale].tasks, tasks))
        if self.report_only:
            return jobs
        with self.placed() as executor:
            how: dict[str, Any] = {"retry": self.retry, "quick": self.scale == "smoke"}
            if not run_jobs(jobs, self.root, "es", executor=executor, **how):
                stopped()
        return jobs

    def placed(self) -> contextlib.closing[Executor]:
        """Where runs run."""
        name = "local" if self.report_only else self.executor
        address = "" if self.report_only else self.ray_address
        return contextlib.closing(make_executor(name, address))


@dataclass(frozen=True)
class GradientStudy(Study):
    """Policy gradients: learning curves on the paper's tasks, and its Table 1.

    A sweep over learning rates with seeds of its own, then the paper's methods with the best rate
    of each (settings released), then all methods as a user gets them (settings tuned). Every run is
    one of `wng train`. Writes figures/, data/, report.md and report.html.
    """

    name: ClassVar = "pg"

    def study(self, out: Path) -> list[Claim]:
        """Sweep, evaluation, report."""
        plan = self.gradients(self.tasks)
        _, missing = read_runs(plan.jobs, self.root)
        runs, _ = read_runs(plan.evaluation, self.root)
        some(runs)
        scale = pg.SCALES[self.scale]
        return pg_report.write(scale, runs, plan, missing, self.root, command_line(), out)


@dataclass(frozen=True)
class EvolutionStudy(Study):
    """Evolution strategies on the point and the quadruped that have to get around a wall.

    Every run is one of `wng train`. Writes figures/, data/, report.md and report.html.
    """

    name: ClassVar = "es"

    def check(self, env: str) -> None:
        """Only wall tasks can be got past."""
        super().check(env)
        made, _ = find(env)
        shown = map_of(made)
        made.close()
        if shown is None:
            raise ValueError(f"'{env}' has no wall: this study takes the tasks wng/…Wall….")

    def study(self, out: Path) -> list[Claim]:
        """Runs, report."""
        runs, missing = read_runs(self.evolution(self.tasks), self.root)
        some(runs)
        scale = es.SCALES[self.scale]
        return es_report.write(scale, runs, missing, self.root, command_line(), out)


@dataclass(frozen=True)
class ConditioningStudy(Study):
    """Conditioning: Hessian spectra of trained policies, and the paper's heuristic tested.

    Takes the runs of `wng reproduce pg` (settings released), and makes them if they are not there.
    """

    name: ClassVar = "conditioning"
    rollouts: int = 32
    """Rollouts of each policy that the Hessian is taken over; 1 at scale smoke."""
    number: int = 20
    """Leading eigenvalues."""
    methods: tuple[str, ...] = ("pg", "wnpg")
    """Whose final policies."""
    seeds: int = 2
    """Of each, at most."""

    def study(self, out: Path) -> list[Claim]:
        """Spectra, report."""
        if self.number < conditioning_report.PLACE:
            raise ValueError(
                f"--number must be at least {conditioning_report.PLACE}, the eigenvalue that the "
                f"report compares, got {self.number}."
            )
        plan = self.gradients(self.tasks, pg.PAPER_METHODS)
        jobs = [j for j in plan.evaluation if j.method in self.methods and j.seed < self.seeds]
        with TrainingProgress() as progress:
            progress.add("spectra", len(jobs))
            found = conditioning_report.spectra(
                jobs,
                self.root,
                1 if self.scale == "smoke" else self.rollouts,
                self.number,
                lambda done: progress.update("spectra", done, {}),
            )
        some(found)
        runs, missing = read_runs(plan.evaluation, self.root)
        return conditioning_report.write(found, runs, missing, command_line(), out)


@dataclass(frozen=True)
class EfficiencyStudy(Study):
    """Efficiency: reward per minute of wall clock, and where the time goes.

    Takes the runs of `wng reproduce pg` and `wng reproduce es`, and makes them if need be.
    """

    name: ClassVar = "efficiency"
    clock: efficiency.Clock = "wall"
    """cpu: minutes of the processor, for a machine that had other work to do meanwhile."""

    def study(self, out: Path) -> list[Claim]:
        """Times of all runs, report."""
        walls = tuple(env for env in self.tasks if env.startswith("wng/"))
        others = tuple(env for env in self.tasks if env not in walls)
        jobs = []
        if others or not self.tasks:
            jobs += self.gradients(others).evaluation
        if walls or not self.tasks:
            jobs += self.evolution(walls)
        runs, missing = read_runs(jobs, self.root)
        some(runs)
        return efficiency.write(runs, missing, self.clock, command_line(), out)


@dataclass(frozen=True)
class All:
    """Every figure and table of the paper, one after the other, and a page with every claim."""

    scale: Scale = "short"
    """As for each of the studies."""
    out: Path | None = None
    """Folder to write to; by default results, or runs/smoke at scale smoke."""
    runs: Path = Path("runs/reproduce")
    """Where runs are kept."""
    report_only: bool = False
    """Run nothing: a report of what is there. (The Gaussian study is run all the same.)"""
    retry: bool = False
    """Try again the runs that failed."""
    clock: efficiency.Clock = "wall"
    """Of the efficiency study."""
    executor: ExecutorName = "local"
    """As for each of the studies."""
    ray_address: str = ""
    """As for each of the studies."""

    def run(self) -> None:
        """All studies, then the page."""
        out = self.out or results(self.scale)
        out.mkdir(parents=True, exist_ok=True)
        studies: dict[str, Toys | Transport | Study] = {
            "toys": Toys(scale=self.scale, out=out / "toys"),
            "transport": Transport(out=out / "transport"),
        }
        for kind in (GradientStudy, EvolutionStudy, ConditioningStudy, EfficiencyStudy):
            studies[kind.name] = kind(
                self.scale,
                out=out / kind.name,
                runs=self.runs,
                report_only=self.report_only,
                retry=self.retry,
                executor=self.executor,
                ray_address=self.ray_address,
            )
        timed = studies["efficiency"]
        assert isinstance(timed, EfficiencyStudy)
        studies["efficiency"] = replace(timed, clock=self.clock)
        abouts = {"pg": pg.SCALES[self.scale].about, "es": es.SCALES[self.scale].about}
        sections = []
        for name, study in studies.items():
            console.rule(name)
            claims = study.run()
            table = claims_table(claims) if claims else "A picture, no claim."
            heading = f"## {(study.__doc__ or name).splitlines()[0]}"
            about = abouts.get(name, "")
            sections.append(f"{heading}\n\n[Report]({name}/report.html) {about}\n\n{table}")
        text = ["# The paper's claims, one by one", *sections, provenance(command_line())]
        write_report("\n\n".join(text), out, "wng: the paper's claims")
        finished(out, [])


def results(scale: Scale) -> Path:
    """Where reports go; what is merely tried out does not go among results."""
    return Path("runs/smoke") if scale == "smoke" else Path("results")


def stopped() -> NoReturn:
    """Say how to go on, and leave."""
    note(f"\nStopped; nothing is lost. The same command goes on:\n  {command_line()}")
    sys.exit(STOPPED)


def some(found: Sequence[object]) -> None:
    """Raise if there is nothing to report."""
    if not found:
        raise ValueError(
            "no run has ended: leave out --report-only, or look at the failures in the runs' "
            "folders (failure.txt) and add --retry."
        )


def finished(out: Path, claims: list[Claim]) -> list[Claim]:
    """Say what was found and where it is."""
    for claim in claims:
        console.print(f"  [bold]{claim.verdict:>14}[/]  {claim.claim}", highlight=False)
    note(f"\nReport: {out / 'report.html'} (and report.md, figures/, data/)")
    return claims
