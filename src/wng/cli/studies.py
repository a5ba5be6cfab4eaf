"""`wng reproduce pg|es|conditioning|efficiency`: the studies that consist of runs."""

import abc
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from wng.cli.console import command_line, console, exit_stopped, note
from wng.execution.ray import ExecutorName, make_executor
from wng.experiments.conditioning import PLACE
from wng.experiments.es import study as es
from wng.experiments.pg import study as pg
from wng.experiments.report import Claim
from wng.experiments.study import Clock, Scale, Trial, only, read_runs, run_trials
from wng.runs.executor import Executor
from wng.runs.progress import TrainingProgress

if TYPE_CHECKING:
    from wng.envs import ResolvedEnv

Tasks = tuple[str, ...]


@dataclass(frozen=True)
class StudyFlags:
    """The flags that all studies of runs share."""

    scale: Scale = "short"
    """Size of the study: smoke (minutes, to see that everything works), short (one to two hours on
    2 cores) or paper (the paper's budgets, days). The same command resumes a stopped study."""
    out: Path | None = None
    """Folder of the report. If it is not given, wng uses results/NAME, or runs/smoke/NAME at scale
    smoke."""
    runs: Path = Path("runs/reproduce")
    """Folder of the runs, with a subfolder for each scale. Commands such as `wng plot` read it."""
    report_only: bool = False
    """Train nothing, and write a report of the finished runs."""
    retry: bool = False
    """Try failed runs again; otherwise the report lists them with the reason."""
    executor: ExecutorName = "local"
    """Where runs are trained: on this machine (local) or on a Ray cluster (ray), whose machines
    must share the folder RUNS and be of one kind if you want to compare times."""
    ray_address: str = ""
    """Address of the Ray cluster, such as auto or 10.0.0.1:6379. If it is empty, wng starts a
    cluster on this machine."""


@dataclass(frozen=True)
class Study(StudyFlags, abc.ABC):
    """What the studies of runs have in common."""

    tasks: tuple[str, ...] = ()
    """Environments to use in place of the study's own; needs --out."""

    name: ClassVar = ""

    @abc.abstractmethod
    def study(self, out: Path) -> list[Claim]:
        """Run the study and write its report to `out`."""

    def run(self) -> list[Claim]:
        """Train what is not there yet, and report."""
        if self.tasks and self.out is None:
            raise ValueError(
                "--tasks needs --out, so that the report on these tasks does not replace the main "
                "one: add --out FOLDER."
            )
        for env in self.tasks:
            self.check(env)
        out = self.out or results(self.scale) / self.name
        out.mkdir(parents=True, exist_ok=True)  # a bad folder fails now, not in two hours
        return finished(out, self.study(out))

    def check(self, env: str) -> None:
        """Raise a ValueError if the study cannot use this environment."""
        resolve(env)

    @property
    def root(self) -> Path:
        """The folder of the runs of this scale."""
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
        return plan if plan is not None else exit_stopped("Stopped")

    def evolution(self, tasks: Tasks) -> list[Trial]:
        """The runs of evolution strategies."""
        trials = es.trials(only(es.SCALES[self.scale].tasks, tasks))
        if self.report_only:
            return trials
        with self.placed() as executor:
            how: dict[str, Any] = {"retry": self.retry, "quick": self.scale == "smoke"}
            if not run_trials(trials, self.root, "es", executor=executor, **how):
                exit_stopped("Stopped")
        return trials

    def placed(self) -> contextlib.closing[Executor]:
        """Where runs are trained."""
        name = "local" if self.report_only else self.executor
        address = "" if self.report_only else self.ray_address
        return contextlib.closing(make_executor(name, address))


@dataclass(frozen=True)
class GradientStudy(Study):
    """Policy gradients: learning curves on the paper's tasks, and its Table 1.

    Sweeps over learning rates with separate seeds, then trains the paper's methods with the best
    rate of each (settings released), then all methods as users get them (settings tuned). Every run
    is a run of `wng train`. Writes figures/, data/, report.md and report.html.
    """

    name: ClassVar = "pg"

    def study(self, out: Path) -> list[Claim]:
        """Sweep, evaluation, report."""
        from wng.experiments.pg import report

        plan = self.gradients(self.tasks)
        _, missing = read_runs(plan.trials, self.root)
        runs, _ = read_runs(plan.evaluation, self.root)
        check_some(runs)
        scale = pg.SCALES[self.scale]
        return report.write(scale, runs, plan, missing, self.root, command_line(), out)


@dataclass(frozen=True)
class EvolutionStudy(Study):
    """Evolution strategies: the point and the quadruped that must get around a wall.

    Every run is a run of `wng train`. Writes figures/, data/, report.md and report.html.
    """

    name: ClassVar = "es"

    def check(self, env: str) -> None:
        """Only wall tasks have a wall to get past."""
        if resolve(env).map is None:
            raise ValueError(f"'{env}' has no wall: choose wall tasks, such as wng/PointWall-v0.")

    def study(self, out: Path) -> list[Claim]:
        """Runs, report."""
        from wng.experiments.es import report

        runs, missing = read_runs(self.evolution(self.tasks), self.root)
        check_some(runs)
        scale = es.SCALES[self.scale]
        return report.write(scale, runs, missing, self.root, command_line(), out)


@dataclass(frozen=True)
class ConditioningStudy(Study):
    """Conditioning: Hessian spectra of trained policies, and a test of the paper's heuristic.

    Uses the runs of `wng reproduce pg` (settings released), and trains them if they are missing.
    """

    name: ClassVar = "conditioning"
    rollouts: int = 32
    """Number of rollouts of each policy used to estimate the Hessian; 1 at scale smoke."""
    number: int = 20
    """Number of leading eigenvalues to compute."""
    methods: tuple[str, ...] = ("pg", "wnpg")
    """Methods whose final policies the study examines."""
    seeds: int = 2
    """Number of seeds of each method."""

    def study(self, out: Path) -> list[Claim]:
        """Spectra, report."""
        if self.number < PLACE:
            raise ValueError(
                f"--number must be at least {PLACE}, the eigenvalue that the report compares, got "
                f"{self.number}."
            )
        from wng.experiments.conditioning import report

        plan = self.gradients(self.tasks, pg.PAPER_METHODS)
        trials = [t for t in plan.evaluation if t.method in self.methods and t.seed < self.seeds]
        with TrainingProgress() as progress:
            progress.add("spectra", len(trials))
            found = report.spectra(
                trials,
                self.root,
                1 if self.scale == "smoke" else self.rollouts,
                self.number,
                lambda done: progress.update("spectra", done, {}),
            )
        check_some(found)
        runs, missing = read_runs(plan.evaluation, self.root)
        return report.write(found, runs, missing, command_line(), out)


@dataclass(frozen=True)
class EfficiencyStudy(Study):
    """Efficiency: reward per minute, and where the time goes.

    Uses the runs of `wng reproduce pg` and `wng reproduce es`, and trains them if necessary.
    """

    name: ClassVar = "efficiency"
    clock: Clock = "wall"
    """Time to measure: wall-clock time (wall), or CPU time (cpu) if the machine had other work."""

    def study(self, out: Path) -> list[Claim]:
        """Times of all runs, report."""
        from wng.experiments.efficiency import report

        walls = tuple(env for env in self.tasks if env.startswith("wng/"))
        others = tuple(env for env in self.tasks if env not in walls)
        trials = []
        if others or not self.tasks:
            trials += self.gradients(others).evaluation
        if walls or not self.tasks:
            trials += self.evolution(walls)
        runs, missing = read_runs(trials, self.root)
        check_some(runs)
        return report.write(runs, missing, self.clock, command_line(), out)


def results(scale: Scale) -> Path:
    """Where reports go; a smoke test does not go among the results."""
    return Path("runs/smoke") if scale == "smoke" else Path("results")


def resolve(env: str) -> "ResolvedEnv":
    """Look up an environment; ValueError if it cannot be used."""
    from wng import envs

    return envs.resolve(env, "gymnasium")


def check_some(found: Sequence[object]) -> None:
    """Raise a ValueError if there is nothing to report."""
    if not found:
        raise ValueError(
            "no run has finished: leave out --report-only, or look at the failures in the runs' "
            "folders (failure.txt) and add --retry."
        )


def finished(out: Path, claims: list[Claim]) -> list[Claim]:
    """Print what was found and where it is."""
    for claim in claims:
        console.print(f"  [bold]{claim.verdict:>14}[/]  {claim.claim}", highlight=False)
    note(f"\nReport: {out / 'report.html'} (and report.md, figures/, data/)")
    return claims
