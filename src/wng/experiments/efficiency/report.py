"""Report of the efficiency study: reward per minute (`wng reproduce efficiency`, Figure 5).

The paper divides the total reward of a run by its time. Where rewards are negative, as on the wall
tasks, that measure favors slow methods; so the report adds the gain over the start of the run,
divided by the time.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wng.agents.registry import METHODS
from wng.experiments.comparison import by_setting, compare
from wng.experiments.drawing import color_of
from wng.experiments.output import figure, markdown_table, number, save, write_csv
from wng.experiments.pg import study as pg
from wng.experiments.report import Claim, appendix, claims_table, write_report
from wng.experiments.study import Clock, Missing, Run, summarize_missing

PAPER_MEASURE = "reward_per_minute"
FIRST = 0.05  # fraction of a run that counts as its start
MEASURES = {  # fields of a cost
    PAPER_MEASURE: "total reward per minute, the paper's measure",
    "gain_per_minute": "gain over the start of the run per minute",
}
BEYOND = tuple(METHODS[method].title for method in pg.BEYOND)  # not in the paper
SHARES = {"environment": "#9aa5b1", "policy": "#2e6f9e", "update": "#d1495b"}
COLUMNS = ("minutes", *MEASURES, "cpu", *SHARES)
# By task and settings, then by title: arrays over seeds by column.
Costs = Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]


class Cost(NamedTuple):
    """Cost and benefit of a run."""

    minutes: float
    reward_per_minute: float
    gain_per_minute: float
    shares: dict[str, float]  # fractions of the time
    cpu: float  # CPU time over wall time; well below 1, the run had to wait


def cost(run: Run, clock: Clock = "wall") -> Cost:
    """Measure a run: median time of an iteration × iterations, which excludes compilation."""
    rows = run.rows
    median = {name: float(np.median(x)) for name, x in rows.items() if name.startswith("seconds")}
    seconds = median["seconds" if clock == "wall" else "seconds_cpu"]
    minutes = seconds * len(rows["steps"]) / 60
    if "seconds_env" in rows:
        episodes = np.diff(rows["episodes"], prepend=0)
        total = float(np.nansum(rows["return"] * episodes))
        # Unknown where rollout and update are one program: all of it counts as update.
        parts = {
            part: float(np.nan_to_num(median[f"seconds_{name}"]))
            for part, name in (("environment", "env"), ("policy", "policy"))
        }
    else:  # the policy is part of the episodes
        total = float(np.nansum(rows["population_mean"]) * run.trial.config.population)
        parts = {"environment": median["seconds_episodes"], "policy": 0.0}
    parts["update"] = max(0.0, median["seconds"] - sum(parts.values()))
    known = np.isfinite(rows["return"])
    returns, steps = rows["return"][known], rows["steps"][known]
    early = returns[steps <= max(FIRST * run.trial.steps, rows["steps"][0])]
    start = float((early if len(early) else returns[:1]).mean())
    return Cost(
        minutes,
        total / minutes,
        (run.final - start) / minutes,
        {name: part / median["seconds"] for name, part in parts.items()},
        median["seconds_cpu"] / median["seconds"],
    )


def costs(runs: Sequence[Run], clock: Clock) -> Costs:
    """Return the costs of every run in which an episode ended."""

    def columns(found: Sequence[Run]) -> dict[str, np.ndarray]:
        rows = [c._asdict() | c.shares for c in (cost(run, clock) for run in found)]
        return {name: np.array([row[name] for row in rows]) for name in COLUMNS}

    usable = [run for run in runs if np.isfinite(run.final)]
    return {
        group: {title: columns(found) for title, found in methods.items()}
        for group, methods in by_setting(usable).items()
    }


def claims(measured: Costs) -> list[Claim]:
    """Return the paper's claims on efficiency, for its methods, with verdicts."""
    found = []
    for field, meaning in MEASURES.items():
        groups = {
            group: {title: c[field] for title, c in methods.items() if title not in BEYOND}
            for group, methods in measured.items()
            if set(methods) - set(BEYOND)
        }
        titles = dict.fromkeys(title for methods in groups.values() for title in methods)
        ours = [title for title in titles if "WN" in title]
        others = [title for title in titles if title not in ours]
        negative = [g for g, values in groups.items() if min(v.mean() for v in values.values()) < 0]
        excluded = negative if field == PAPER_MEASURE else []
        usable = {group: values for group, values in groups.items() if group not in excluded}
        text = f"The most efficient method on each task uses a WNG estimator ({meaning})"
        claim = compare(text, "all tasks", usable, ours, others)
        notes = [f"{group}: excluded, rewards are negative" for group in excluded]
        found.append(claim._replace(here="; ".join([claim.here] * bool(usable) + notes)))
    text = f"The added cost of BG-WNPG reduces its efficiency ({MEASURES['gain_per_minute']})"
    gains = {
        group: {title: c["gain_per_minute"] for title, c in methods.items()}
        for group, methods in measured.items()
    }
    return [*found, compare(text, "several tasks", gains, ["WNPG"], ["BG-WNPG"])]


def table(methods: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """Tabulate one task: mean ± standard deviation over seeds."""
    rows = []
    for title, c in methods.items():
        fields = [c[field] for field in (*MEASURES, "minutes")]
        spread = [f"{number(x.mean())} ± {number(x.std())}" for x in fields]
        split = [f"{c[part].mean():.0%}" for part in SHARES]
        rows.append([title, len(c["cpu"]), *spread, *split, f"{c['cpu'].mean():.2f}"])
    header = ["method", "seeds", "reward per minute", "gain per minute", "minutes", *SHARES, "CPU"]
    return markdown_table(header, rows)


def draw(measured: Costs, to: Path) -> None:
    """Draw a row per task: the paper's measure, the gain, and the breakdown of the time."""
    fig, axes = figure(len(measured), 3, (14, 2.6 * len(measured)))
    for k, (group, methods) in enumerate(measured.items()):
        for axis, field in zip(axes[3 * k :], MEASURES, strict=False):
            for i, (title, c) in enumerate(methods.items()):
                axis.barh(-i, c[field].mean(), color=color_of(title), alpha=0.75)
                axis.plot(c[field], [-i] * len(c[field]), ".", color="0.2", ms=4)
            axis.axvline(0, color="0.6", lw=0.8)
            axis.set_xlabel(field.replace("_", " "))
        seeds = max(len(c["cpu"]) for c in methods.values())
        axes[3 * k].set_title(f"{group} ({seeds} seeds)", fontsize=10)
        split = axes[3 * k + 2]
        for i, c in enumerate(methods.values()):
            left = 0.0
            for part, color in SHARES.items():
                width = float((c[part] * c["minutes"]).mean())
                split.barh(-i, width, left=left, color=color, label=part if i == 0 else None)
                left += width
        split.set_xlabel("minutes per run")
        split.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
        for axis in axes[3 * k : 3 * k + 3]:
            axis.set_yticks(-np.arange(len(methods)), list(methods), fontsize=8)
    save(fig, to)


def write(
    runs: Sequence[Run], missing: Sequence[Missing], clock: Clock, command: str, out: Path
) -> list[Claim]:
    """Write data, figure, report.md and report.html; return the claims."""
    measured = costs(runs, clock)
    draw(measured, out / "figures" / "efficiency.png")
    lines = [
        (group, title, *row)
        for group, methods in measured.items()
        for title, c in methods.items()
        for row in zip(*c.values(), strict=True)
    ]
    write_csv(out / "data" / "efficiency.csv", ["task", "method", *COLUMNS], lines)
    found = claims(measured)
    shares = [c["cpu"] for methods in measured.values() for c in methods.values()]
    share = np.median(np.concatenate(shares))
    starved = STARVED.format(share) if clock == "wall" and share < 0.9 else ""
    tables = "\n\n".join(f"### {group}\n\n{table(methods)}" for group, methods in measured.items())
    write_report(
        f"""# Reward per minute

Figure 5 of the paper, from the runs of `wng reproduce pg` and `wng reproduce es`, with one
program at a time per core. Seeds that train side by side in one program share its time equally.
{CLOCKS[clock]}{starved}

{claims_table(found)}

{NOTE}

![Reward per minute, gain per minute, and the breakdown of the time](figures/efficiency.png)

{tables}

Values are means ± one standard deviation over seeds. Minutes are the median time of an iteration ×
the number of iterations, which excludes compilation. "Policy" is the time to choose actions; for
evolution strategies it is part of "environment". "CPU" is CPU time divided by wall time: well below
1, the run had to wait for other programs. Data: [all runs](data/efficiency.csv).

{appendix(command, summarize_missing(missing))}
""",
        out,
        "wng: reward per minute",
    )
    return found


CLOCKS: dict[Clock, str] = {
    "wall": "Minutes are wall time.",
    "cpu": "Minutes are CPU time, not wall time: the machine was running other programs, which "
    "delayed some runs more than others.",
}
STARVED = (
    " **Runs had a core for only {:.0%} of the time (median): other programs were running, so "
    "times cannot be compared; use `--clock cpu`.**"
)
NOTE = """Where returns are negative, the paper's measure is higher for *slower* methods: its row
excludes such tasks, and only the gain is meaningful there. A difference counts if its 95% interval
(Welch's t) excludes 0."""
