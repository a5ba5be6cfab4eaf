"""Maps of a run on a wall task: a picture and an animation, generation by generation."""

from pathlib import Path

import imageio.v3 as imageio
import matplotlib.pyplot as plt
import numpy as np

from wng import envs
from wng.agents.registry import title_of
from wng.envs.walls.map import Map
from wng.evolution.maps import Generation, read_maps
from wng.experiments.es.paths import draw_walls
from wng.experiments.output import figure, save
from wng.runs.directory import RunDirectory
from wng.runs.files import one_sentence
from wng.runs.metrics import read_metrics

FRAMES = 60  # of the animation, at most


def _read(run: RunDirectory) -> tuple[str, Map, list[Generation]]:
    """The title, the map and the generations of a run."""
    shown = envs.resolve(run.record["env"], "gymnasium").map
    if shown is None:
        raise ValueError(f"{run.record['env']} has no map: only the wall tasks have one.")
    last = read_metrics(run.path).get("iteration", np.zeros(0))
    generations = read_maps(run.path, until=int(last[-1]) if len(last) else 0)
    title = f"{title_of(run.record['method'])} on {run.record['env']}, seed {run.record['seed']}"
    return title, shown, generations


def draw_map(run: RunDirectory, to: Path) -> Path:
    """All generations in one picture, early ones blue, late ones red."""
    title, shown, generations = _read(run)
    fig, (axis,) = figure(1, 1, (9, 5.2))
    draw_walls(axis, shown)
    colors = plt.get_cmap("coolwarm")
    chosen = [generations[i] for i in _spread(len(generations), 12)]
    for generation in chosen:
        color = colors(generation.number / generations[-1].number)
        axis.scatter(
            generation.finals[:, 0], generation.finals[:, 1], s=9, color=color, alpha=0.45, lw=0
        )
        axis.plot(*generation.path.T, color=color, lw=1.4)
    scale = plt.cm.ScalarMappable(plt.Normalize(1, generations[-1].number), colors)
    fig.colorbar(scale, ax=axis, label="generation", shrink=0.8)
    axis.set_title(f"{title}: the mean policy's path, and where the population ended")
    save(fig, to)
    return to


def animate_map(run: RunDirectory, to: Path) -> Path:
    """One frame for each of up to 60 generations."""
    title, shown, generations = _read(run)
    fig, (axis,) = figure(1, 1, (7, 4.2))
    draw_walls(axis, shown)
    dots = axis.scatter([], [], s=12, color="C0", alpha=0.6, lw=0)
    (line,) = axis.plot([], [], color="C3", lw=1.8)
    frames = []
    for i in _spread(len(generations), FRAMES):
        generation = generations[i]
        dots.set_offsets(generation.finals)
        line.set_data(*generation.path.T)
        axis.set_title(f"{title}: generation {generation.number}", fontsize=10)
        fig.canvas.draw()
        frames.append(np.asarray(fig.canvas.buffer_rgba())[..., :3].copy())  # type: ignore[attr-defined]
    plt.close(fig)
    # The last frame is held for two seconds.
    frames += [frames[-1]] * 20
    with one_sentence(to):
        to.parent.mkdir(parents=True, exist_ok=True)
        imageio.imwrite(to, np.stack(frames), plugin="pillow", duration=100, loop=0)
    return to


def _spread(length: int, most: int) -> list[int]:
    """Up to `most` indices from first to last."""
    return sorted(set(np.linspace(0, length - 1, min(length, most)).round().astype(int).tolist()))
