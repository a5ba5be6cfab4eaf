"""Parts that the reports on runs share: groups, comparisons, curves and data files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wng.experiments.drawing import LABELS, Band, draw_panels, std_band
from wng.experiments.output import number, write_csv
from wng.experiments.report import Claim, overall, verdict
from wng.experiments.statistics import on_grid, welch_interval
from wng.experiments.study import Run, finals, grouped

Groups = Mapping[str, Mapping[str, Sequence[Run]]]  # runs by task and by title of the method
Finals = Mapping[str, Mapping[str, np.ndarray]]  # final returns of the seeds, by task and title
BINS = 40  # points per curve
VERDICTS = """A claim holds on a task if the 95% interval (Welch's t) of the difference of means
excludes 0 on the right side; it is undecided if the interval contains 0. There is no correction for
multiple comparisons: of twenty comparisons without a difference, one is expected to be decided by
chance. Verdicts refer to the runs and budgets of this report."""


def by_setting(runs: Sequence[Run]) -> dict[str, dict[str, list[Run]]]:
    """Group runs by task and settings, such as 'wng/PointWall-v0, tuned', then by title."""
    return {
        f"{env}, {settings}": methods
        for settings in dict.fromkeys(run.trial.settings for run in runs)
        for env, methods in grouped([r for r in runs if r.trial.settings == settings]).items()
    }


def final_returns(groups: Groups) -> dict[str, dict[str, np.ndarray]]:
    """Return the final returns, without methods that have no finite one."""
    return {
        group: {title: ends for title, runs in methods.items() if len(ends := finals(runs))}
        for group, methods in groups.items()
    }


def compare(
    claim: str,
    paper: str,
    ends: Finals,
    ours: Sequence[str],
    others: Sequence[str],
    margin: float = 0.0,
) -> Claim:
    """Judge the claim that the best of `ours` beats the best of `others` on every task.

    A relative loss of up to `margin` counts as a match.
    """
    verdicts, said = [], []
    for task, methods in ends.items():
        sides = [[title for title in side if title in methods] for side in (ours, others)]
        if all(sides):
            a, b = (max(side, key=lambda title: float(methods[title].mean())) for side in sides)
            difference, low, high = welch_interval(methods[a], methods[b])
            slack = margin * abs(float(methods[b].mean()))
            verdicts.append(verdict(low + slack, high + slack))
            interval = f"[{number(low)}, {number(high)}]"
            said.append(f"{task}: {a} − {b} {number(difference, '+')} {interval}")
    return Claim(claim, paper, "; ".join(said) or "not run", overall(verdicts))


def draw_runs(groups: Groups, column: str, to: Path, band: Band | None = std_band) -> None:
    """Draw a column of the runs' metrics: one panel per group, mean and band over seeds."""
    panels = {
        group: {
            title: [(run.rows["steps"], run.rows[column]) for run in runs]
            for title, runs in methods.items()
        }
        for group, methods in groups.items()
    }
    draw_panels(panels, to, LABELS.get(column, column), band=band, bins=BINS)


def write_data(runs: Sequence[Run], out: Path) -> None:
    """Write curves.csv, with each run on the grid of its figure, and final.csv, a line per run."""
    curves, ends = [], []
    for run in runs:
        who = run.trial.who
        grid, values = on_grid([(run.rows["steps"], run.rows["return"])], BINS)
        curves += [(*who, int(s), float(r)) for s, r in zip(grid, values.ravel(), strict=True)]
        times = [float(run.rows[name].sum()) for name in ("seconds", "seconds_cpu")]
        ends.append((*who, int(run.rows["steps"][-1]), run.final, *times))
    header = ["settings", "env", "method", "seed", "steps"]
    write_csv(out / "data" / "curves.csv", [*header, "return"], curves)
    write_csv(out / "data" / "final.csv", [*header, "final_return", "seconds", "seconds_cpu"], ends)
