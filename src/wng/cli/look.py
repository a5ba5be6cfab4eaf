"""`wng eval`, `video`, `plot`, `methods`: looking at what there is."""

import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro
from rich.table import Table

from wng.agents.registry import FAMILIES, METHODS, family_of, title_of
from wng.cli.console import console, note
from wng.experiments.output import figure, save
from wng.experiments.statistics import bootstrap_band, on_grid
from wng.runs.directory import RunDirectory
from wng.runs.metrics import read_metrics
from wng.runs.settings import Settings, find_method

if TYPE_CHECKING:
    from wng.evolution.agent import Evolution
    from wng.policy_gradient.agent import Agent

Run = Annotated[Path, tyro.conf.Positional]


@dataclass(frozen=True)
class Eval:
    """Evaluate a run, or a saved agent: `wng eval runs/Hopper-v5/wnpg/seed0`."""

    run_path: Run
    """Folder of a run, or file of a saved agent."""
    episodes: int = 20
    """How many episodes."""
    sampled: bool = False
    """Sample actions in place of taking the most likely one."""
    seed: int = 1_000_000
    """Of the episodes."""

    def run(self) -> None:
        """Print the return's mean and spread."""
        with console.status(f"{self.episodes} episodes"):
            agent = load_agent(self.run_path)
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
class Video:
    """Film an agent: `wng video runs/Hopper-v5/wnpg/seed0`."""

    run_path: Run
    """Folder of a run, or file of a saved agent."""
    to: Path | None = None
    """An .mp4 or .gif file; by default video.mp4 in the folder of the run."""
    episodes: int = 1
    """How many episodes."""
    sampled: bool = False
    """Sample actions in place of taking the most likely one."""
    seed: int = 1_000_000
    """Of the episodes."""

    def run(self) -> None:
        """Write the film."""
        from wng.agents.video import film

        folder = self.run_path if self.run_path.is_dir() else self.run_path.parent
        path = self.to or folder / "video.mp4"
        with console.status(f"Filming {self.episodes} episode(s)"):
            agent = load_agent(self.run_path)
            returns = film(
                agent,
                path,
                episodes=self.episodes,
                seed=self.seed,
                deterministic=not self.sampled,
            )
            agent.close()
        total = ", ".join(f"{r:.1f}" for r in returns)
        note(f"{path}  (return {total})")


@dataclass(frozen=True)
class Plot:
    """Draw learning curves: `wng plot runs/Hopper-v5/*/seed*`. Seeds of a method share a curve."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, or folders that hold runs."""
    to: Path = Path("curves.png")
    """The picture."""

    def run(self) -> None:
        """Draw, and say where."""
        if not self.runs:
            raise ValueError("which runs? For example: wng plot runs/Hopper-v5/*/seed*.")
        found = [folder for path in self.runs for folder in find_runs(path)]
        found = list(dict.fromkeys(found))  # given twice, by a pattern and by name
        note(f"{draw_curves(found, self.to)}  ({len(found)} run{'s' * (len(found) > 1)})")


@dataclass(frozen=True)
class Methods:
    """List the methods on their axes; with a name, all settings of that method."""

    method: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD")] = ""
    """Show every setting of this one."""
    settings: Settings = "tuned"
    """tuned, paper or released."""
    env: str = ""
    """Id of an environment that may have settings of its own."""

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


def load_agent(path: Path) -> "Agent | Evolution":
    """`wng.load`, with what was amiss on the console."""
    from wng.agents.load import load

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        agent = load(path)
    for warning in caught:
        note(f"Note: {warning.message}")
    return agent


def find_runs(path: Path) -> list[Path]:
    """`path` if it is a run, else the runs below it."""
    if (path / "config.json").exists():
        return [path]
    below = sorted(file.parent for file in path.glob("**/config.json"))
    if not below:
        RunDirectory.open(path)  # raises the sentence that helps
    return below


def draw_curves(folders: list[Path], to: Path) -> Path:
    """A panel for each environment, a curve for each method: mean over seeds, 95% band."""
    groups: dict[str, dict[str, list[tuple[np.ndarray, np.ndarray]]]] = {}
    for folder in folders:
        run = RunDirectory.open(folder)
        rows = read_metrics(folder) if (folder / "metrics.csv").exists() else {}
        if len(rows.get("steps", [])) == 0 or "return" not in rows:
            raise ValueError(
                f"{folder} has no metrics yet: {folder / 'metrics.csv'} is empty or missing."
            )
        title = title_of(run.record["method"])
        panel = groups.setdefault(run.record["env"], {})
        panel.setdefault(title, []).append((rows["steps"], rows["return"]))
    fig, axes = figure(1, len(groups), (6.5 * len(groups), 4.2))
    for axis, (env, methods) in zip(axes, groups.items(), strict=True):
        for k, (title, curves) in enumerate(sorted(methods.items())):
            grid, values = on_grid(curves)
            mean = values.mean(axis=0)
            seeds = f" ({len(curves)} seeds)" if len(curves) > 1 else ""
            color = f"C{k}"
            axis.plot(grid, mean, color=color, label=title + seeds, lw=1.6)
            if len(curves) > 1:
                axis.fill_between(grid, *bootstrap_band(values), color=color, alpha=0.18, lw=0)
        axis.set_title(env)
        axis.set_xlabel("environment steps")
        axis.set_ylabel("return")
        axis.legend(frameon=False, fontsize=8)
    save(fig, to)
    return to
