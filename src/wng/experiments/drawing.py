"""Figures that the studies and the command line share."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from wng.agents.registry import title_of
from wng.experiments.output import figure, save
from wng.experiments.statistics import (
    BINS,
    bootstrap_band,
    interquartile_mean,
    on_grid,
    performance_profile,
    probability_of_improvement,
    profile_band,
    stratified_bootstrap,
)
from wng.runs.directory import RunDirectory
from wng.runs.metrics import DETERMINISTIC, read_metrics

COLORS = {
    "PG": "#8a8f98",
    "PPO": "#2e6f9e",
    "BGPG": "#e09f3e",
    "WNPG": "#d1495b",
    "BG-WNPG": "#7b2d8b",
    "PPO-KL": "#6cb4d9",
    "TRPO": "#3a9d6e",
    "WTRPO": "#f08a8a",
    "ES": "#8a8f98",
    "ES-clip": "#4d5157",
    "NSR-ES": "#3a9d6e",
    "BGES": "#f4c987",
    "BGES β=0.5": "#e09f3e",
    "BGES β=0.75": "#a86a12",
    "WNES": "#d1495b",
    "BG-WNES": "#7b2d8b",
}
LABELS = {  # of columns whose name does not say enough
    "past_wall": "fraction of seeds past the wall",
    DETERMINISTIC: "deterministic return",
}
Curves = Sequence[tuple[np.ndarray, np.ndarray]]  # steps and values of each seed
Band = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # values [seeds, bins] to low, high
Scores = Mapping[str, list[np.ndarray]]  # by title, an array of seeds for each task


def color_of(title: str, otherwise: str = "#000000") -> str:
    """Return the color of a method, the same in every figure."""
    return COLORS.get(title, otherwise)


def std_band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over seeds minus and plus one standard deviation."""
    mean, std = values.mean(axis=0), values.std(axis=0)
    return mean - std, mean + std


def draw_panels(
    panels: Mapping[str, Mapping[str, Curves]],
    to: Path,
    label: str = "return",
    *,
    band: Band | None = bootstrap_band,
    bins: int = BINS,
) -> Path:
    """Draw learning curves: one panel per task, one curve per method, averaged over seeds.

    The band around the mean of several seeds is `bootstrap_band` (95% interval of the mean),
    `std_band`, or None; a curve has at most `bins` points.
    """
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    fig, axes = figure(rows, columns, (6.2 * columns, 3.8 * rows))
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis, (task, methods) in zip(axes, panels.items(), strict=False):
        for k, (title, curves) in enumerate(methods.items()):
            grid, values = on_grid(list(curves), bins)
            color, name = color_of(title, f"C{k}"), f"{title} ({len(curves)})"
            width = 2.2 if "W" in title else 1.4
            axis.plot(grid, values.mean(axis=0), color=color, label=name, lw=width)
            if band and len(curves) > 1:
                axis.fill_between(grid, *band(values), color=color, alpha=0.12, lw=0)
        axis.set_title(task, fontsize=10)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.set(xlabel="environment steps", ylabel=label)
        # Next to the curves, so that it hides none of them.
        place: Any = {"loc": "upper left", "bbox_to_anchor": (1, 1), "title_fontsize": 7}
        axis.legend(frameon=False, fontsize=7, title="method (seeds)", **place)
    save(fig, to)
    return to


def draw_curves(folders: Sequence[Path], to: Path, column: str = "return") -> Path:
    """Draw a column of the metrics of run folders, which must have some: a panel per task."""
    panels: dict[str, dict[str, list[tuple[np.ndarray, np.ndarray]]]] = {}
    for folder in folders:
        record = RunDirectory.open(folder).record
        rows = read_metrics(folder) if (folder / "metrics.csv").exists() else {}
        if len(rows.get("steps", [])) == 0:
            raise ValueError(
                f"{folder / 'metrics.csv'} is missing or empty: the run has no metrics yet."
            )
        sparse = column == DETERMINISTIC
        if column not in rows or (sparse and not np.isfinite(rows[column]).any()):
            advice = ": train with --eval-every to evaluate it" if sparse else ""
            raise ValueError(f"{folder} has no numbers in a column '{column}'{advice}.")
        steps, values = rows["steps"], rows[column]
        if sparse:
            steps, values = _joined(steps, values)
        methods = panels.setdefault(record["env"], {})
        methods.setdefault(title_of(record["method"]), []).append((steps, values))
    tasks = {env: dict(sorted(methods.items())) for env, methods in panels.items()}
    return draw_panels(tasks, to, LABELS.get(column, column))


def _joined(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Join the numbers of a column that is mostly NaN by straight lines, up to the last one."""
    known = np.flatnonzero(np.isfinite(values))
    until = steps[: known[-1] + 1]
    return until, np.interp(until, steps[known], values[known], left=np.nan)


def draw_aggregates(scores: Scores, ours: Sequence[str], what: str, to: Path) -> None:
    """Draw interquartile means, performance profiles, and how likely `ours` beat the others."""
    fig, (means, profiles, chances) = figure(1, 3, (15, 4))
    names = list(scores)
    for k, name in enumerate(names):
        _draw_interval(means, k, name, *stratified_bootstrap(scores[name], interquartile_mean))
    runs = [f"{name} ({sum(map(len, scores[name]))})" for name in names]
    means.set_yticks([-k for k in range(len(names))], runs)
    means.set_title("method (runs)", fontsize=9, loc="left")
    means.set_xlabel(f"{what}: interquartile mean")
    ends = np.concatenate([np.concatenate(tasks) for tasks in scores.values()])
    thresholds = np.linspace(ends.min(), ends.max(), 60)
    for name in names:
        curve = performance_profile(np.concatenate(scores[name]), thresholds)
        band = profile_band(scores[name], thresholds)
        profiles.plot(thresholds, curve, color=color_of(name), label=name)
        profiles.fill_between(thresholds, *band, color=color_of(name), alpha=0.08, lw=0)
    profiles.set(xlabel=f"{what} τ", ylabel="fraction of runs above τ")
    profiles.legend(frameon=False, fontsize=7)
    pairs = [(a, b) for a in ours if a in scores for b in scores if b not in ours]
    for k, (a, b) in enumerate(pairs):
        _draw_interval(chances, k, a, *probability_of_improvement(scores[a], scores[b]))
    chances.axvline(0.5, color="0.6", lw=1, ls=":")
    chances.set(xlim=(-0.02, 1.02), xlabel="probability of improvement")
    names = [f"{a} > {b}" for a, b in pairs]
    chances.set_yticks([-k for k in range(len(pairs))], names, fontsize=8)
    save(fig, to)


def _draw_interval(axis: Axes, k: int, title: str, point: float, low: float, high: float) -> None:
    axis.plot([low, high], [-k, -k], color=color_of(title), lw=7, alpha=0.35)
    axis.plot(point, -k, "o", color=color_of(title))
