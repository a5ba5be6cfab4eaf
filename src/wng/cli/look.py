"""`wng eval`, `video`, `plot` and `methods`: look at runs and methods."""

import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.table import Table

from wng.agents.agent import Agent
from wng.agents.load import load
from wng.agents.registry import FAMILIES, METHODS, family_of
from wng.cli.console import console, note
from wng.runs.directory import RunDirectory
from wng.runs.metrics import DETERMINISTIC
from wng.runs.settings import EVALUATION_SEED, Settings, find_method

RunPath = Annotated[Path, tyro.conf.Positional]


@dataclass(frozen=True)
class Play:
    """The flags of commands that play episodes."""

    run_path: RunPath
    """Folder of a run, or the file of a saved agent."""
    episodes: int = 1
    """Number of episodes."""
    best: bool = False
    """Play the best policy of a run that was trained with --eval-every, instead of the last one."""
    sampled: bool = False
    """Sample actions instead of taking the most likely one."""
    seed: int = EVALUATION_SEED
    """Random seed of the episodes."""


@dataclass(frozen=True)
class Eval(Play):
    """Evaluate a run or a saved agent: `wng eval runs/Hopper-v5/wnpg/seed0`."""

    episodes: int = 20
    """Number of episodes."""

    def run(self) -> None:
        """Print the mean and the spread of the return."""
        with console.status(f"{self.episodes} episodes"):
            agent = load_agent(self.run_path, self.best)
            returns = agent.evaluate(self.episodes, deterministic=not self.sampled, seed=self.seed)
            agent.close()
        how = "sampled actions" if self.sampled else "most likely action"
        console.print(
            f"{agent.title} on {agent.env} after {agent.steps:,} steps: "
            f"[bold]{returns.mean():.1f} ± {returns.std():.1f}[/] "
            f"({self.episodes} episodes, {how}; lowest {returns.min():.1f}, "
            f"highest {returns.max():.1f})",
            highlight=False,
            soft_wrap=True,
        )


@dataclass(frozen=True)
class Video(Play):
    """Record a video of an agent: `wng video runs/Hopper-v5/wnpg/seed0`."""

    to: Path | None = None
    """File to write, .mp4 or .gif. If it is not given, wng writes video.mp4 to the run's folder."""

    def run(self) -> None:
        """Write the video."""
        folder = self.run_path if self.run_path.is_dir() else self.run_path.parent
        path = self.to or folder / "video.mp4"
        with console.status(f"Recording {self.episodes} episode{'s' * (self.episodes != 1)}"):
            agent = load_agent(self.run_path, self.best)
            from wng.agents.video import film

            most_likely = not self.sampled
            returns = film(
                agent, path, episodes=self.episodes, seed=self.seed, deterministic=most_likely
            )
            agent.close()
        total = ", ".join(f"{r:.1f}" for r in returns)
        note(f"{path}  (return {total})")


@dataclass(frozen=True)
class Plot:
    """Draw learning curves: `wng plot runs/Hopper-v5/*/seed*`. Seeds of a method share a curve."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, or folders that contain runs."""
    returns: Literal["training", "deterministic"] = "training"
    """Returns to draw: those of training (training), or those of the evaluations of wng train
    --eval-every, with the most likely actions (deterministic)."""
    to: Path = Path("curves.png")
    """Image file to write."""

    def run(self) -> None:
        """Draw, and print where the picture is."""
        if not self.runs:
            raise ValueError("no runs are given: name some, as in wng plot runs/Hopper-v5/*/seed*.")
        found = [folder for path in self.runs for folder in find_runs(path)]
        found = list(dict.fromkeys(found))  # given twice, by a pattern and by name
        from wng.experiments.drawing import draw_curves

        column = DETERMINISTIC if self.returns == "deterministic" else "return"
        drawn = draw_curves(found, self.to, column)
        note(f"{drawn}  ({len(found)} run{'s' * (len(found) > 1)})")


@dataclass(frozen=True)
class Methods:
    """List the methods and their axes or, given the name of a method, all its settings."""

    method: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD")] = ""
    """Name of a method whose settings to show."""
    settings: Settings = "tuned"
    """Preset to show: tuned, paper or released."""
    env: str = ""
    """Id of an environment, because presets may depend on it."""

    def run(self) -> None:
        """Print the table."""
        if self.method:
            method = find_method(self.method, METHODS)
            family = family_of(method.key)
            config = family.preset(method.key, self.settings, self.env)
            table = Table(title=f"{method.title}, settings {self.settings}")
            table.add_column("flag")
            table.add_column("value")
            for f in fields(family.config):
                table.add_row(f"--{f.name.replace('_', '-')}", str(getattr(config, f.name)))
            console.print(table)
            return
        for family in FAMILIES:
            table = Table(title=f"wng train METHOD --env ID: {family.title}")
            axes = list(next(iter(family.methods.values())).axes)
            for name in ("method", *axes):
                table.add_column(name, no_wrap=True)
            table.add_column("what it is")
            for name, m in family.methods.items():
                table.add_row(name, *m.axes.values(), m.about)
            console.print(table)
        console.print(
            "Any other combination: wng train --proximity X --geometry Y --step Z --env ID\n"
            "All settings of one:   wng methods wnpg --settings tuned|paper|released",
            highlight=False,
            soft_wrap=True,
        )


def load_agent(path: Path, best: bool = False) -> Agent:
    """`wng.load`, with its warnings on the console; the best checkpoint of a run if asked for."""
    if best:
        run = RunDirectory.open(path)
        if not run.best.exists():
            raise ValueError(f"{path} has no best checkpoint: train with --eval-every to keep it.")
        path = run.best
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        agent = load(path)
    for warning in caught:
        note(f"Note: {warning.message}")
    return agent


def find_runs(path: Path) -> list[Path]:
    """`path` if it is a run, otherwise the runs below it."""
    if (path / "config.json").exists():
        return [path]
    below = sorted(file.parent for file in path.glob("**/config.json"))
    if not below:
        RunDirectory.open(path)  # raises the sentence that helps
    return below
