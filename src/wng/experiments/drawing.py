"""Figures that the studies share."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from wng.experiments.output import figure, save
from wng.experiments.statistics import (
    interquartile_mean,
    on_grid,
    performance_profile,
    probability_of_improvement,
    profile_band,
    stratified_bootstrap,
)
from wng.experiments.study import Run

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
BINS = 40  # points of a curve
Scores = Mapping[str, list[np.ndarray]]  # by title, an array of seeds for each task


def color_of(title: str) -> str:
    """The same in every figure."""
    return COLORS.get(title, "#000000")


def draw_panels(panels: Mapping[str, Mapping[str, Sequence[Run]]], column: str, to: Path) -> None:
    """A panel for each task, a curve for each method: mean ± standard deviation over seeds."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    fig, axes = figure(rows, columns, (6.2 * columns, 3.8 * rows))
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, methods) in zip(axes, panels.items(), strict=False):
        for name, runs in methods.items():
            grid, values = on_grid([(run.rows["steps"], run.rows[column]) for run in runs], BINS)
            if not len(grid):
                continue
            mean, std = values.mean(axis=0), values.std(axis=0)
            heavy = "W" in name
            label = f"{name} ({len(runs)})"
            axis.plot(grid, mean, color=color_of(name), lw=2.2 if heavy else 1.4, label=label)
            if column != "past_wall":  # a share has no spread of its own
                band = mean - std, mean + std
                axis.fill_between(grid, *band, color=color_of(name), alpha=0.1, lw=0)
        axis.set_title(title, fontsize=10)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.set_xlabel("environment steps")
        axis.set_ylabel({"past_wall": "share of seeds past the wall"}.get(column, column))
        axis.legend(
            frameon=False,
            fontsize=7,
            title="method (seeds)",
            title_fontsize=7,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),  # beside the curves, not on them
        )
    save(fig, to)


def draw_aggregates(scores: Scores, ours: Sequence[str], what: str, to: Path) -> None:
    """Interquartile means, performance profiles, and how likely `ours` beat the others."""
    fig, (means, profiles, chances) = figure(1, 3, (15, 4))
    names = list(scores)
    for k, name in enumerate(names):
        point, low, high = stratified_bootstrap(scores[name], interquartile_mean)
        means.plot([low, high], [-k, -k], color=color_of(name), lw=7, alpha=0.35)
        means.plot(point, -k, "o", color=color_of(name))
    runs = [f"{name} ({sum(map(len, scores[name]))})" for name in names]
    means.set_yticks([-k for k in range(len(names))], runs)
    means.set_title("method (runs)", fontsize=9, loc="left")
    means.set_xlabel(f"{what}: interquartile mean")
    ends = np.concatenate([np.concatenate(tasks) for tasks in scores.values()])
    thresholds = np.linspace(ends.min(), ends.max(), 60)
    for name in names:
        curve = performance_profile(np.concatenate(scores[name]), thresholds)
        profiles.plot(thresholds, curve, color=color_of(name), label=name)
        band = profile_band(scores[name], thresholds)
        profiles.fill_between(thresholds, *band, color=color_of(name), alpha=0.08, lw=0)
    profiles.set_xlabel(f"{what} τ")
    profiles.set_ylabel("share of runs above τ")
    profiles.legend(frameon=False, fontsize=7)
    _draw_chances(chances, scores, [name for name in ours if name in scores])
    save(fig, to)


def _draw_chances(axis: Axes, scores: Scores, ours: Sequence[str]) -> None:
    pairs = [(a, b) for a in ours for b in scores if a != b and b not in ours]
    for k, (a, b) in enumerate(pairs):
        p, low, high = probability_of_improvement(scores[a], scores[b])
        axis.plot([low, high], [-k, -k], color=color_of(a), lw=7, alpha=0.35)
        axis.plot(p, -k, "o", color=color_of(a))
    axis.axvline(0.5, color="0.6", lw=1, ls=":")
    axis.set_xlim(-0.02, 1.02)
    axis.set_yticks([-k for k in range(len(pairs))], [f"{a} > {b}" for a, b in pairs], fontsize=8)
    axis.set_xlabel("probability of improvement")
