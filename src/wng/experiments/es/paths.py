"""Top views of the wall tasks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from wng import envs
from wng.envs.walls.map import Map
from wng.experiments.output import figure, save


def draw_walls(axis: Axes, shown: Map) -> None:
    """Draw walls, start and goal from above."""
    for box in shown.walls:
        corner = (box.x - box.half_x, box.y - box.half_y)
        axis.add_patch(Rectangle(corner, 2 * box.half_x, 2 * box.half_y, color="0.25", zorder=3))
    axis.plot(*shown.goal, marker="*", ms=14, color="C2", zorder=4)
    axis.plot(0, 0, marker="o", ms=5, color="0.4", zorder=4)
    axis.set_xlim(*shown.extent[:2])
    axis.set_ylim(*shown.extent[2:])
    axis.set_aspect("equal")


def draw_paths(env: str, paths: Mapping[str, Sequence[tuple[np.ndarray, bool]]], to: Path) -> None:
    """Draw the final paths [steps, 2] of each method: blue if they overcome the wall, else red."""
    shown = envs.resolve(env, "gymnasium").map
    assert shown is not None
    rows = -(-len(paths) // 4)
    fig, axes = figure(rows, 4, (16, 3.1 * rows))
    for axis in axes[len(paths) :]:
        axis.set_visible(False)
    for axis, (title, found) in zip(axes, paths.items(), strict=False):
        draw_walls(axis, shown)
        for path, past in found:
            axis.plot(*path.T, lw=1.4, color="C0" if past else "C3", alpha=0.8)
        counted = sum(past for _, past in found)
        axis.set_title(f"{title}: {counted} of {len(found)} overcome the wall", fontsize=10)
    save(fig, to)
