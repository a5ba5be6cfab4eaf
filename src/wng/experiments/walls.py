"""`wng reproduce es`: all evolution strategies on a wall task, many seeds, equal budgets.

The paper's claim (Figure `es_exps`): WNES and BG-WNES overcome the local maximum behind the wall
more reliably than ES, clipped ES, NSR-ES and BGES.
"""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from wng.envs.resolve import find
from wng.envs.walls.map import Map
from wng.evolution.agent import Evolution
from wng.evolution.methods import METHODS, preset
from wng.experiments.output import figure, markdown_table, save, write_csv
from wng.experiments.statistics import bootstrap_band, on_grid
from wng.runs.files import read_json, write_json
from wng.runs.progress import TrainingProgress
from wng.settings import Settings

COLUMNS = ("iteration", "steps", "return", "population_mean", "past_wall", "population_past_wall")
LAST = 0.1  # the share of generations, at the end, that the table averages over


@dataclasses.dataclass(frozen=True)
class WallSettings:
    """Settings of the study."""

    env: str = "wng/PointWall-v0"
    """The task; wng/PointWallEasy-v0 and wng/PointWallHard-v0 have other cups."""
    seeds: int = 10
    """Runs of each method, seeds 0, 1, …"""
    steps: int = 1_000_000
    """Environment steps of a run: 200 generations of 100 on the point tasks."""
    settings: Settings = "tuned"
    """tuned, paper or released."""


class Run(NamedTuple):
    """One run: columns by name, and the last path of the mean policy."""

    rows: dict[str, np.ndarray]
    path: np.ndarray

    @property
    def last_return(self) -> float:
        """Of the mean policy, over the last tenth of the generations."""
        return float(self.rows["return"][self._tail].mean())

    @property
    def past_wall(self) -> bool:
        """Whether the mean policy ended past the wall in most of these generations."""
        return bool(self.rows["past_wall"][self._tail].mean() > 0.5)

    @property
    def steps_until_past(self) -> float:
        """Steps from which on nine generations in ten end past the wall; infinite if never."""
        past = self.rows["past_wall"]
        share = np.cumsum(past[::-1])[::-1] / np.arange(len(past), 0, -1)
        good = (share >= 0.9) & (past > 0)
        return float(self.rows["steps"][np.argmax(good)]) if good.any() else np.inf

    @property
    def _tail(self) -> slice:
        number = len(self.rows["return"])
        return slice(number - max(1, int(LAST * number)), None)


Study = dict[str, list[Run]]


def run_study(settings: WallSettings, out: Path) -> Study:
    """Run what is not there yet; each run is written as soon as it has ended."""
    data = out / "data"
    data.mkdir(parents=True, exist_ok=True)
    configs = {m: dataclasses.asdict(preset(m, settings.settings, settings.env)) for m in METHODS}
    record = json.loads(json.dumps({**dataclasses.asdict(settings), "configs": configs}))
    made_with = data / "settings.json"
    if made_with.exists():
        before = read_json(made_with)
        if {**before, "seeds": settings.seeds} != record:
            raise ValueError(
                f"{data} holds runs with other settings: choose another folder with --out, or "
                "delete it."
            )
    write_json(made_with, record)
    study: Study = {}
    with TrainingProgress() as progress:
        jobs = [(method, seed) for method in METHODS for seed in range(settings.seeds)]
        for method, _ in jobs[:: settings.seeds]:
            progress.add(METHODS[method].title, settings.steps * settings.seeds)
        for method, seed in jobs:
            stem = data / f"{method}-{seed}"
            if not stem.with_suffix(".csv").exists():
                _run(settings, method, seed, stem)
            run = _read(stem)
            study.setdefault(method, []).append(run)
            fields = {"seed": seed, "return": run.last_return, "past wall": run.past_wall}
            progress.update(METHODS[method].title, (seed + 1) * settings.steps, fields)
    return study


def _run(settings: WallSettings, method: str, seed: int, stem: Path) -> None:
    agent = Evolution(settings.env, method, seed, settings=settings.settings)
    rows: list[dict[str, float]] = []
    try:
        agent.learn(settings.steps, progress=False, callback=lambda _, row: rows.append(row))
        if agent.steps < settings.steps:
            raise KeyboardInterrupt  # asked to stop: what has ended is on disk
        episodes = agent._trainer.episodes
        assert episodes is not None
        write_csv(
            stem.with_name(f"{stem.name}-path.csv"), ("x", "y"), episodes.path[:, :2].tolist()
        )
    finally:
        agent.close()
    write_csv(stem.with_suffix(".csv"), COLUMNS, [[row[c] for c in COLUMNS] for row in rows])


def _read(stem: Path) -> Run:
    def columns(path: Path) -> dict[str, np.ndarray]:
        with path.open() as file:
            rows = list(csv.DictReader(file))
        return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}

    path = columns(stem.with_name(f"{stem.name}-path.csv"))
    return Run(columns(stem.with_suffix(".csv")), np.stack([path["x"], path["y"]], axis=1))


def draw_curves(study: Study, env: str, to: Path) -> None:
    """Return of the mean policy against steps, and the share of seeds past the wall."""
    fig, axes = figure(1, 2, (11, 4))
    for k, (method, runs) in enumerate(study.items()):
        color, heavy = f"C{k}", "wn" in method
        for axis, column in zip(axes, ("return", "past_wall"), strict=True):
            curves = [(run.rows["steps"], run.rows[column]) for run in runs]
            grid, values = on_grid(curves, bins=50)
            label = METHODS[method].title
            axis.plot(grid, values.mean(0), color=color, lw=2.2 if heavy else 1.4, label=label)
            if column == "return":
                axis.fill_between(grid, *bootstrap_band(values), color=color, alpha=0.12, lw=0)
    number = len(next(iter(study.values())))
    axes[0].set_ylabel("return of the mean policy")
    axes[0].set_title(f"{env}, {number} seeds: mean and 95% interval")
    axes[1].set_ylabel("share of seeds past the wall")
    axes[1].legend(frameon=False, fontsize=8)
    for axis in axes:
        axis.set_xlabel("environment steps")
    save(fig, to)


def draw_walls(axis: Axes, shown: Map) -> None:
    """Walls, start and goal from above."""
    for box in shown.walls:
        corner = (box.x - box.half_x, box.y - box.half_y)
        axis.add_patch(Rectangle(corner, 2 * box.half_x, 2 * box.half_y, color="0.25", zorder=3))
    axis.plot(*shown.goal, marker="*", ms=14, color="C2", zorder=4)
    axis.plot(0, 0, marker="o", ms=5, color="0.4", zorder=4)
    axis.set_xlim(*shown.extent[:2])
    axis.set_ylim(*shown.extent[2:])
    axis.set_aspect("equal")


def draw_paths(study: Study, env: str, to: Path) -> None:
    """The last path of each seed's mean policy, a panel for each method."""
    made, _ = find(env)
    shown: Any = getattr(made.unwrapped, "map", None)
    made.close()
    fig, axes = figure(2, 3, (13, 6.2))
    for axis, (method, runs) in zip(axes, study.items(), strict=True):
        draw_walls(axis, shown)
        for run in runs:
            axis.plot(*run.path.T, lw=1.4, color="C0" if run.past_wall else "C3", alpha=0.8)
        past = sum(run.past_wall for run in runs)
        axis.set_title(f"{METHODS[method].title}: {past} of {len(runs)} past the wall")
    save(fig, to)


def table(study: Study) -> str:
    """The numbers of every method, as Markdown."""
    rows = []
    for method, runs in study.items():
        returns = np.array([run.last_return for run in runs])
        low, high = (float(x[0]) for x in bootstrap_band(returns[:, None]))
        past = sum(run.past_wall for run in runs)
        rows.append(
            [
                METHODS[method].title,
                f"{past}/{len(runs)}",
                _thousands(np.median([run.steps_until_past for run in runs])),
                f"{returns.mean():.0f} [{low:.0f}, {high:.0f}]",
                f"{np.median(returns):.0f}",
                f"{returns.min():.0f}",
                f"{returns.max():.0f}",
            ]
        )
    header = ["method", "seeds past the wall", "steps until then (median)"]
    header.append("return, mean [95% interval]")
    return markdown_table([*header, "median", "worst seed", "best seed"], rows)


def _thousands(steps: float) -> str:
    return f"{steps / 1e3:,.0f}k" if np.isfinite(steps) else "never"


def write_report(study: Study, settings: WallSettings, command: str, out: Path) -> None:
    """report.md: the command, the table, what the paper expects and what is seen."""
    means = {m: float(np.mean([r.last_return for r in runs])) for m, runs in study.items()}
    order = sorted(means, key=lambda method: -means[method])
    titles = " > ".join(METHODS[method].title for method in order)
    reliable = {m: sum(r.past_wall for r in runs) for m, runs in study.items()}
    baselines = max(n for m, n in reliable.items() if "wn" not in m)
    speed = {m: np.median([r.steps_until_past for r in runs]) for m, runs in study.items()}
    fastest = min((m for m in speed if "wn" not in m), key=lambda m: speed[m])
    verdicts = [
        f"- {METHODS[m].title} gets past the wall in {reliable[m]} seeds, the best baseline in "
        f"{baselines}: the claim {'holds' if reliable[m] > baselines else 'does not hold'} here. "
        f"Median steps until then: {_thousands(speed[m])}; of ES {_thousands(speed['es'])}, of the "
        f"fastest baseline ({METHODS[fastest].title}) {_thousands(speed[fastest])}."
        for m in ("wnes", "bgwnes")
    ]
    text = f"""# Evolution strategies on {settings.env}

`{command}`: {settings.seeds} seeds, {settings.steps:,} environment steps a run, settings
`{settings.settings}`.

{table(study)}

Returns are those of the mean policy, without noise on its actions, over the last tenth of the
generations; a seed is past the wall if in most of these the episode ended beyond it. Steps until
then: from where on nine generations in ten end past the wall. Intervals are bootstraps over seeds.

The paper's claim: WNES and BG-WNES get past the wall more reliably than ES, clipped ES, NSR-ES and
BGES.

{chr(10).join(verdicts)}

By mean return: {titles}.

![Curves](figures/curves.png)

![Paths](figures/paths.png)
"""
    (out / "report.md").write_text(text)
