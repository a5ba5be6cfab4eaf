"""Report of the efficiency study: reward per minute (`wng reproduce efficiency`, Figure `fig:rpm`).

The paper divides the total reward of a run by its time. Where rewards are negative, as on the wall
tasks, that measure favors slow methods; so the report adds the gain over the start of the run,
divided by the time.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from wng.agents.registry import METHODS
from wng.experiments.comparison import by_setting, compare
from wng.experiments.drawing import color_of
from wng.experiments.output import figure, markdown_table, number, save, write_csv
from wng.experiments.pg import study as pg
from wng.experiments.report import Claim, appendix, claims_table, write_report
from wng.experiments.study import Missing, Run, summarize_missing

PAPER_MEASURE = "reward_per_minute"
FIRST = 0.05  # fraction of a run that counts as its start
MEASURES = {  # fields of a cost
    PAPER_MEASURE: "total reward per minute, the paper's measure",
    "gain_per_minute": "gain over the start of the run per minute",
}
Clock = Literal["wall", "cpu"]
BEYOND = tuple(METHODS[method].title for method in pg.BEYOND)  # not in the paper
SHARES = {"environment": "#9aa5b1", "policy": "#2e6f9e", "update": "#d1495b"}


class Cost(NamedTuple):
    """Cost and benefit of a run."""

    minutes: float
    reward_per_minute: float
    gain_per_minute: float
    shares: dict[str, float]  # fractions of the time
    cpu: float  # CPU time over wall time; well below 1, the run had to wait


def cost(run: Run, clock: Clock = "wall") -> Cost:
    """Measure a run: median time of an iteration × iterations, which excludes compilation."""
    rows, config = run.rows, run.trial.record
    median = {name: float(np.median(x)) for name, x in rows.items() if name.startswith("seconds")}
    seconds = median["seconds" if clock == "wall" else "seconds_cpu"]
    minutes = seconds * len(rows["steps"]) / 60
    if "seconds_env" in rows:
        episodes = np.diff(rows["episodes"], prepend=0)
        total = float(np.nansum(rows["return"] * episodes))
        parts = {"environment": median["seconds_env"], "policy": median["seconds_policy"]}
    else:  # the policy is part of the episodes
        total = float(np.nansum(rows["population_mean"]) * config["population"])
        parts = {"environment": median["seconds_episodes"], "policy": 0.0}
    parts["update"] = max(0.0, median["seconds"] - sum(parts.values()))
    known = np.isfinite(rows["return"])
    early = rows["return"][
        known & (rows["steps"] <= max(FIRST * run.trial.steps, rows["steps"][0]))
    ]
    start = float(early.mean()) if len(early) else float(rows["return"][known][:1].mean())
    return Cost(
        minutes,
        total / minutes,
        (run.final - start) / minutes,
        {name: part / median["seconds"] for name, part in parts.items()},
        median["seconds_cpu"] / median["seconds"],
    )


Costs = Mapping[str, Mapping[str, Sequence[Cost]]]  # by task and settings, then by title


def costs(runs: Sequence[Run], clock: Clock) -> dict[str, dict[str, list[Cost]]]:
    """Return the costs of every run in which an episode ended."""
    usable = [run for run in runs if np.isfinite(run.final)]
    return {
        group: {title: [cost(run, clock) for run in found] for title, found in methods.items()}
        for group, methods in by_setting(usable).items()
    }


def claims(measured: Costs) -> list[Claim]:
    """Return the paper's claims on efficiency, for its methods, with verdicts."""
    found = []
    by_field = {
        field: {
            group: {
                title: np.array([getattr(c, field) for c in costs])
                for title, costs in methods.items()
                if title not in BEYOND
            }
            for group, methods in measured.items()
        }
        for field in MEASURES
    }
    for field, groups in by_field.items():
        titles = dict.fromkeys(title for methods in groups.values() for title in methods)
        ours = [title for title in titles if "WN" in title]
        others = [title for title in titles if title not in ours]
        negative = [g for g, values in groups.items() if min(v.mean() for v in values.values()) < 0]
        excluded = negative if field == PAPER_MEASURE else []
        usable = {group: values for group, values in groups.items() if group not in excluded}
        text = f"The most efficient method on each task uses a WNG estimator ({MEASURES[field]})"
        claim = compare(text, "all tasks", usable, ours, others)
        notes = [f"{group}: excluded, rewards are negative" for group in excluded]
        found.append(claim._replace(here="; ".join([claim.here] * bool(usable) + notes)))
    text = f"The added cost of BG-WNPG reduces its efficiency ({MEASURES['gain_per_minute']})"
    gains = by_field["gain_per_minute"]
    return [*found, compare(text, "several tasks", gains, ["WNPG"], ["BG-WNPG"])]


def table(methods: Mapping[str, Sequence[Cost]]) -> str:
    """Tabulate one task: mean ± standard deviation over seeds."""

    def spread(found: Sequence[Cost], field: str) -> str:
        values = np.array([getattr(c, field) for c in found])
        return f"{number(values.mean())} ± {number(values.std())}"

    rows = []
    for title, found in methods.items():
        split = [f"{np.mean([c.shares[part] for c in found]):.0%}" for part in SHARES]
        fields = (*MEASURES, "minutes")
        cpu = f"{np.mean([c.cpu for c in found]):.2f}"
        rows.append([title, len(found), *(spread(found, field) for field in fields), *split, cpu])
    header = ["method", "seeds", "reward per minute", "gain per minute", "minutes", *SHARES, "CPU"]
    return markdown_table(header, rows)


def starved(measured: Costs, clock: Clock) -> str:
    """Return a warning if runs had to wait for the CPU, else an empty text."""
    shares = [c.cpu for methods in measured.values() for found in methods.values() for c in found]
    if clock == "cpu" or np.median(shares) >= 0.9:
        return ""
    return (
        f" **Runs had a core for only {np.median(shares):.0%} of the time (median): other programs "
        "were running, so times cannot be compared; use `--clock cpu`.**"
    )


def draw(measured: Costs, to: Path) -> None:
    """Draw a row per task: the paper's measure, the gain, and the breakdown of the time."""
    fig, axes = figure(len(measured), 3, (14, 2.6 * len(measured)))
    for k, (group, methods) in enumerate(measured.items()):
        names = list(methods)
        for axis, field in zip(axes[3 * k :], MEASURES, strict=False):
            for i, name in enumerate(names):
                values = [getattr(c, field) for c in methods[name]]
                axis.barh(-i, np.mean(values), color=color_of(name), alpha=0.75)
                axis.plot(values, [-i] * len(values), ".", color="0.2", ms=4)
            axis.axvline(0, color="0.6", lw=0.8)
            axis.set_xlabel(field.replace("_", " "))
        axes[3 * k].set_title(f"{group} ({max(map(len, methods.values()))} seeds)", fontsize=10)
        split = axes[3 * k + 2]
        for i, name in enumerate(names):
            left = 0.0
            for part, color in SHARES.items():
                width = float(np.mean([c.shares[part] * c.minutes for c in methods[name]]))
                split.barh(-i, width, left=left, color=color, label=part if i == 0 else None)
                left += width
        split.set_xlabel("minutes per run")
        split.legend(frameon=False, fontsize=7)
        for axis in axes[3 * k : 3 * k + 3]:
            axis.set_yticks([-i for i in range(len(names))], names, fontsize=8)
    save(fig, to)


def write(
    runs: Sequence[Run], missing: Sequence[Missing], clock: Clock, command: str, out: Path
) -> list[Claim]:
    """Write data, figure, report.md and report.html; return the claims."""
    measured = costs(runs, clock)
    draw(measured, out / "figures" / "efficiency.png")
    lines = [
        (group, title, *(float(getattr(c, f)) for f in fields), *c.shares.values())
        for fields in [("minutes", *MEASURES, "cpu")]
        for group, methods in measured.items()
        for title, found in methods.items()
        for c in found
    ]
    header = ["task", "method", "minutes", *MEASURES, "cpu", *SHARES]
    write_csv(out / "data" / "efficiency.csv", header, lines)
    found = claims(measured)
    tables = "\n\n".join(f"### {group}\n\n{table(methods)}" for group, methods in measured.items())
    write_report(
        f"""# Reward per minute

Figure `fig:rpm` of the paper, from the runs of `wng reproduce pg` and `wng reproduce es`, with one
run at a time per core. {CLOCKS[clock]}{starved(measured, clock)}

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
NOTE = """Where returns are negative, the paper's measure is higher for *slower* methods: its row
excludes such tasks, and only the gain is meaningful there. A difference counts if its 95% interval
(Welch's t) excludes 0."""
