"""`wng eval`, `video`, `plot`, `methods`: looking at what there is."""

import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro
from rich.table import Table

from wng.cli.console import console, note
from wng.experiments.output import figure, save
from wng.policy_gradient.config import Config
from wng.policy_gradient.methods import METHODS, Settings, find_method, preset
from wng.runs.directory import RunDirectory
from wng.runs.metrics import read_metrics

if TYPE_CHECKING:
    from wng.policy_gradient.agent import Agent

Run = Annotated[Path, tyro.conf.Positional]
BINS = 100  # points of a curve


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
        from wng.policy_gradient.video import film

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

    def run(self) -> None:
        """Print the table."""
        if self.method:
            config = preset(self.method, self.settings)
            table = Table(title=f"{find_method(self.method).title}, settings {self.settings}")
            table.add_column("flag")
            table.add_column("value")
            for f in fields(Config):
                table.add_row(f"--{f.name.replace('_', '-')}", str(getattr(config, f.name)))
            console.print(table)
            return
        table = Table(title="wng train METHOD --env ID")
        for name in ("method", "proximity", "geometry", "step"):
            table.add_column(name, no_wrap=True)
        table.add_column("what it is")
        for name, m in METHODS.items():
            table.add_row(name, m.proximity, m.geometry, m.step, m.about)
        console.print(table)
        console.print(
            "Any other combination: wng train --proximity X --geometry Y --step Z --env ID\n"
            "All settings of one:   wng methods wnpg --settings tuned|paper|released",
            highlight=False,
            soft_wrap=True,
        )


def load_agent(path: Path) -> "Agent":
    """`wng.load`, with what was amiss on the console."""
    from wng.policy_gradient.agent import load

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
        if len(rows.get("steps", [])) == 0:
            raise ValueError(f"{folder} has no metrics yet: train it for an iteration first.")
        name = run.record["method"]
        title = METHODS[name].title if name in METHODS else name
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


def on_grid(
    curves: list[tuple[np.ndarray, np.ndarray]], bins: int = BINS
) -> tuple[np.ndarray, np.ndarray]:
    """Each run's return averaged in the same bins of steps, up to where the shortest run ends.

    A bin without an episode has the value of the one before it; bins before the first are left out.
    """
    end = min(steps[-1] for steps, _ in curves)
    number = min(bins, max(1, min(len(steps) for steps, _ in curves)))
    edges = np.linspace(0, end, number + 1)
    values = np.full((len(curves), number), np.nan)
    for row, (steps, returns) in zip(values, curves, strict=True):
        known = np.isfinite(returns) & (steps <= end)
        place = np.clip(np.digitize(steps[known], edges[1:-1], right=True), 0, number - 1)
        for i in range(number):
            inside = returns[known][place == i]
            row[i] = inside.mean() if len(inside) else (row[i - 1] if i else np.nan)
    known_to_all = np.isfinite(values).all(axis=0)
    return edges[1:][known_to_all], values[:, known_to_all]


def bootstrap_band(values: np.ndarray, draws: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """95% interval of the mean over runs, by resampling runs."""
    pick = np.random.default_rng(0).integers(len(values), size=(draws, len(values)))
    means = values[pick].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return low, high
