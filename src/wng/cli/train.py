"""`wng train`: one run, or several seeds at once."""

import contextlib
import dataclasses
import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

import numpy as np
import tyro

from wng.agents.registry import EVOLUTION, METHODS, Family, agent_class, family_of
from wng.behavior.registry import check_choice
from wng.cli.console import console, note
from wng.evolution.config import EvolutionConfig
from wng.execution.processes import STOPPED
from wng.execution.ray import Executor, ExecutorName, make_executor
from wng.policy_gradient.config import Config
from wng.policy_gradient.methods import nearest_method
from wng.runs.directory import RunDirectory, safe_name
from wng.runs.settings import Settings, find_method


@dataclass(frozen=True)
class Train:
    """Train an agent: `wng train wnpg --env Hopper-v5`. `wng methods` lists the methods.

    The run is kept in OUT/<env>/<method>/seed<k>: the configuration, metrics.csv, TensorBoard
    events, checkpoints. Ctrl-C saves and stops; the same command with --resume goes on.
    """

    headings: ClassVar = {  # of the groups in --help, by their first flag
        "proximity": "WHAT IS LEARNED",
        "num-envs": "DATA",
        "hidden": "NETWORKS",
        "optimizer": "OPTIMISER",
        "clip-range": "PROXIMITY",
        "embedding": "GEOMETRY",
        "radius": "TRUST REGION",
    }

    method: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD")] = ""
    """pg, ppo, ppokl, npg, trpo, bgpg, wnpg, bgwnpg, wtrpo; or es, esclip, nsres, bges, wnes,
    bgwnes, whose flags `wng train wnes --help` lists. Leave it out to combine your own:
    --proximity clip --geometry wasserstein --step optimizer."""
    env: str = ""
    """A Gymnasium id, such as Hopper-v5 or wng/PointWall-v0, or module:id."""
    steps: float = 300_000
    """Environment steps in all."""
    seed: int = 0
    """Of everything random."""
    seeds: str = ""
    """Several seeds on all cores, such as 0-4 or 0,3,7, in place of --seed."""
    settings: Settings = "tuned"
    """Defaults of all that follows: tuned, what works best here; paper, the paper's text;
    released, the paper's code."""
    out: Path = Path("runs")
    """Where runs are kept."""
    resume: bool = False
    """Go on with the run that is there (start it if there is none)."""
    executor: ExecutorName = "local"
    """ray: on a Ray cluster, several seeds or the members of an evolution strategy. The outcome is
    the same."""
    ray_address: str = ""
    """Of the cluster, such as auto or 10.0.0.1:6379; by default one is started on this machine."""
    config: Config = field(default_factory=Config)

    @classmethod
    def before(cls, flags: list[str]) -> "Train | Evolve":
        """The defaults, which method, environment and --settings choose; --help shows them."""
        given, words = _split(flags)
        method = words[0] if words else ""
        family = family_of(method)
        for name, options in {"settings": get_args(Settings), **family.limits.choices}.items():
            if name in given:
                check_choice(f"--{name}", given[name], options)
        command = cls if family.config is Config else Evolve
        if any(name.removeprefix("no_") not in (*_kinds(), "h", "help") for name in given):
            return command()  # the parser will complain about a flag
        if method:
            find_method(method, METHODS)
        base = method or nearest_method(
            *(given.get(axis, "") for axis in ("proximity", "geometry", "step"))
        )
        settings: Any = given.get("settings", "tuned")
        config: Any = family.preset(base, settings, given.get("env", ""))
        return command(method=method, settings=settings, config=config)

    @property
    def family(self) -> Family:
        """Policy gradients or evolution strategies."""
        return family_of(self.method)

    @property
    def name(self) -> str:
        """What the run is called: the method, or the axes if they are no method's."""
        methods = self.family.methods
        names = next(iter(methods.values())).axes
        axes = {axis: getattr(self.config, axis) for axis in names}
        if self.method:
            method = find_method(self.method, methods)
            if axes == method.axes:
                return method.key
        named = [key for key, method in methods.items() if method.axes == axes]
        return named[0] if named and not self.method else "_".join(axes.values())

    def run(self) -> None:
        """Train."""
        if not self.env:
            raise ValueError(
                "--env is missing: wng train wnpg --env InvertedDoublePendulum-v5, for example."
            )
        if not (np.isfinite(self.steps) and self.steps >= 1):
            raise ValueError(f"--steps must be at least 1, got {self.steps:g}.")
        if self.executor == "ray" and not self.seeds and self.family is not EVOLUTION:
            raise ValueError(
                f"--executor ray has nothing to spread in one run of {self.name}: add --seeds 0-4, "
                "for example, or leave it out."
            )
        executor = make_executor(self.executor, self.ray_address)
        try:
            if self.seeds:
                from wng.cli.seeds import run_seeds

                run_seeds(self, executor)
            else:
                run_one(self, executor)
        finally:
            executor.close()

    def folder(self, seed: int) -> Path:
        """Where a run is kept."""
        return self.out / safe_name(self.env) / safe_name(self.name) / f"seed{seed}"

    @property
    def record(self) -> dict[str, Any]:
        """What config.json says."""
        return {"steps": int(self.steps), **dataclasses.asdict(self.config)}

    def existing(self, seed: int) -> RunDirectory | None:
        """The run that is there already, if it may be gone on with."""
        folder = self.folder(seed)
        if not (folder / "config.json").exists():
            return None
        if not self.resume:
            raise ValueError(
                f"{folder} already holds a run: add --resume to continue it, choose another "
                "folder with --out, or delete it."
            )
        run = RunDirectory.open(folder)
        run.check_config(self.record, allowed=("steps",))
        return run


@dataclass(frozen=True)
class Evolve(Train):
    """Evolve a policy: `wng train wnes --env wng/PointWall-v0`. `wng methods` lists the methods.

    The run is kept in OUT/<env>/<method>/seed<k>: the configuration, metrics.csv, TensorBoard
    events, checkpoints. Ctrl-C saves and stops; the same command with --resume goes on.
    """

    headings: ClassVar = {
        "proximity": "WHAT IS LEARNED",
        "population": "POPULATION",
        "backend": "EPISODES",
        "policy": "POLICY",
        "embedding": "BEHAVIOUR",
        "beta": "PROXIMITY",
        "delta": "GEOMETRY",
    }
    steps: float = 1_000_000
    """Environment steps in all."""
    config: EvolutionConfig = field(  # type: ignore[assignment]
        default_factory=EvolutionConfig
    )
    """Settings of the strategy, its population and its policy."""


def run_one(train: Train, executor: Executor) -> None:
    """One seed, in this process."""
    quiet = "WNG_QUIET" in os.environ  # one of several seeds, whose parent shows the progress
    with console.status("Preparing the environments") if not quiet else contextlib.nullcontext():
        run = train.existing(train.seed)
        spread = {"executor": executor} if train.family is EVOLUTION else {}
        agent = agent_class(train.family)(
            train.env, train.name, train.seed, config=train.config, **spread
        )
    try:
        agent.check_memory()  # before there is a folder of a run that cannot be
        if run is None:
            run = RunDirectory.create(train.out, train.env, train.name, train.seed, train.record)
        with run.lock():
            for problem in agent.restore(run):
                note(f"Note: {problem}")
        if agent.steps:
            note(f"Going on from step {agent.steps:,}.")
        agent.learn(max(0, int(train.steps) - agent.steps), run=run, progress=not quiet)
        if agent.steps < train.steps:
            say_how_to_resume(f"Stopped at {agent.steps:,} of {int(train.steps):,} steps")
            sys.exit(STOPPED)
        if not quiet:
            conclude(train, agent, run)
    finally:
        agent.close()


def say_how_to_resume(what: str) -> None:
    """The command that goes on, to be copied."""
    again = shlex.join(word for word in sys.argv[1:] if word != "--resume")
    note(f"\n{what}; nothing is lost. Go on with\n  wng {again} --resume")


def conclude(train: Train, agent: Any, run: RunDirectory) -> None:
    """What was learned, where it is, what to do next."""
    from wng.cli.look import draw_curves
    from wng.cli.map import draw_map

    with console.status("Evaluating before and after, 10 episodes each"):
        before = agent.evaluate(10, untrained=True)
        after = agent.evaluate(10)
        picture = draw_curves([run.path], run.path / "curve.png")
        pictures = f"  curve       {picture}\n"
        looks = ["video"]
        if (run.path / "maps").exists():
            pictures += f"  map         {draw_map(run.path, run.path / 'map.png')}\n"
            looks.append("map")
    console.print(
        f"\n[bold]{agent.title} on {agent.env}[/]: return {before.mean():.1f} ± {before.std():.1f} "
        f"before, [bold]{after.mean():.1f} ± {after.std():.1f}[/] after {agent.steps:,} steps "
        "(10 episodes, most likely action).",
        highlight=False,
        soft_wrap=True,
    )
    elsewhere = "" if train.out == Path("runs") else f" --out {shlex.quote(str(train.out))}"
    usual, ours = ("es", "wnes") if train.family is EVOLUTION else ("ppo", "wtrpo")
    other = usual if train.name != usual else ours
    note(
        f"{pictures}  checkpoint  {run.checkpoints}\n"
        "Next:\n"
        + "".join(f"  wng {look} {shlex.quote(str(run.path))}\n" for look in looks)
        + f"  wng train {other} --env {train.env}{elsewhere}\n"
        f"  wng plot {shlex.quote(str(run.path.parent.parent))}/*/seed*"
    )


def _split(flags: list[str]) -> tuple[dict[str, str], list[str]]:
    """Flags as typed, --name value or --name=value, and the words that belong to none."""
    kinds = _kinds()
    given: dict[str, str] = {}
    words, rest = [], list(flags)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            words.append(word)
            continue
        name, equals, value = word.lstrip("-").replace("-", "_").partition("=")
        if equals:
            value = word.partition("=")[2]
        elif name == "hidden":
            while rest and rest[0].isdigit():
                rest.pop(0)
        elif name in kinds and kinds[name] is not bool and rest:
            value = rest.pop(0)
        given[name] = value
    return given, words


def _kinds() -> dict[str, Any]:
    """The type of each flag."""
    commands = (Train, EvolutionConfig, Config)
    return {f.name: f.type for cls in commands for f in dataclasses.fields(cls)}
