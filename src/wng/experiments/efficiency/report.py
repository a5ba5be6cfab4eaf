"""`wng reproduce efficiency`: reward per minute of wall clock (Figure `fig:rpm`).

The paper divides the total reward of a run by its time. Where rewards are negative, as on the wall
tasks, that is the higher the slower a method is; so the gain over the beginning of the run, divided
by the time, stands beside it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from wng.agents.registry import METHODS
from wng.experiments.drawing import color_of
from wng.experiments.es.report import by_setting
from wng.experiments.output import figure, markdown_table, number, save, write_csv
from wng.experiments.pg import study as pg
from wng.experiments.report import (
    Claim,
    claims_table,
    overall,
    provenance,
    verdict,
    write_report,
)
from wng.experiments.statistics import welch_interval
from wng.experiments.study import Run, summarize_missing

FIRST = 0.05  # the share of a run that counts as its beginning
MEASURES = {  # what each field of a cost is
    "reward_per_minute": "total reward ÷ time, as the paper measures it",
    "gain_per_minute": "gain over the beginning ÷ time",
}
Clock = Literal["wall", "cpu"]
BEYOND = tuple(METHODS[method].title for method in pg.BEYOND)  # not the paper's
SHARES = {"environment": "#9aa5b1", "policy": "#2e6f9e", "update": "#d1495b"}


class Cost(NamedTuple):
    """What a run took and brought."""

    minutes: float
    reward_per_minute: float
    gain_per_minute: float
    shares: dict[str, float]  # of the time
    cpu: float  # seconds of processor a second of clock: well below 1, the run had to wait


def cost(run: Run, clock: Clock = "wall") -> Cost:
    """Median time of an iteration × iterations: compiling, once a session, does not count."""
    rows, config = run.rows, run.job.record
    median = {name: float(np.median(x)) for name, x in rows.items() if name.startswith("seconds")}
    seconds = median["seconds" if clock == "wall" else "seconds_cpu"]
    minutes = seconds * len(rows["steps"]) / 60
    if "seconds_env" in rows:
        episodes = np.diff(rows["episodes"], prepend=0)
        total = float(np.nansum(rows["return"] * episodes))
        parts = {"environment": median["seconds_env"], "policy": median["seconds_policy"]}
    else:  # one batch of episodes, policy included
        total = float(np.nansum(rows["population_mean"]) * config["population"])
        parts = {"environment": median["seconds_episodes"], "policy": 0.0}
    parts["update"] = max(0.0, median["seconds"] - sum(parts.values()))
    known = np.isfinite(rows["return"])
    early = rows["return"][known & (rows["steps"] <= max(FIRST * run.job.steps, rows["steps"][0]))]
    start = float(early.mean()) if len(early) else float(rows["return"][known][:1].mean())
    return Cost(
        minutes,
        total / minutes,
        (run.final - start) / minutes,
        {name: part / median["seconds"] for name, part in parts.items()},
        median["seconds_cpu"] / median["seconds"],
    )


Costs = Mapping[str, Mapping[str, Sequence[Cost]]]  # by task and settings, by title


def costs(runs: Sequence[Run], clock: Clock) -> dict[str, dict[str, list[Cost]]]:
    """Of every run in which an episode ended."""
    usable = [run for run in runs if np.isfinite(run.final)]
    return {
        group: {title: [cost(run, clock) for run in found] for title, found in methods.items()}
        for group, methods in by_setting(usable).items()
    }


def claims(measured: Costs) -> list[Claim]:
    """The paper's claims on efficiency, for its methods; where only `tuned` was run, of that."""
    found = []
    for field, words in MEASURES.items():
        verdicts, said = [], []
        for group, methods in measured.items():
            values = {
                title: np.array([getattr(c, field) for c in costs])
                for title, costs in methods.items()
                if title not in BEYOND
            }
            ours = {t: v for t, v in values.items() if "WN" in t}
            others = {t: v for t, v in values.items() if t not in ours}
            if not ours or not others:
                continue
            if field == "reward_per_minute" and min(v.mean() for v in values.values()) < 0:
                said.append(f"{group}: left out, rewards are negative")
                continue
            best = max(ours, key=lambda t: ours[t].mean())
            other = max(others, key=lambda t: others[t].mean())
            difference, low, high = welch_interval(ours[best], others[other])
            verdicts.append(verdict(low, high))
            interval = f"[{number(low)}, {number(high)}]"
            said.append(f"{group}: {best} − {other} {number(difference, '+')} {interval}")
        text = f"Methods with a WNG estimator are the most efficient on each task ({words})"
        found.append(Claim(text, "all tasks", "; ".join(said) or "not run", overall(verdicts)))
    verdicts, said = [], []
    for group, methods in measured.items():
        if "WNPG" in methods and "BG-WNPG" in methods:
            both, alone = (
                np.array([c.gain_per_minute for c in methods[t]]) for t in ("BG-WNPG", "WNPG")
            )
            difference, low, high = welch_interval(alone, both)
            verdicts.append(verdict(low, high))
            interval = f"[{number(low)}, {number(high)}]"
            said.append(f"{group}: WNPG − BG-WNPG {number(difference, '+')} {interval}")
    text = "The added cost of BG-WNPG reduces its efficiency (gain over the beginning ÷ time)"
    found.append(Claim(text, "several tasks", "; ".join(said) or "not run", overall(verdicts)))
    return found


def table(methods: Mapping[str, Sequence[Cost]]) -> str:
    """One task: mean ± standard deviation over seeds."""

    def spread(found: Sequence[Cost], field: str) -> str:
        values = np.array([getattr(c, field) for c in found])
        return f"{number(values.mean())} ± {number(values.std())}"

    rows = []
    for title, found in methods.items():
        split = [f"{np.mean([c.shares[part] for c in found]):.0%}" for part in SHARES]
        fields = (*MEASURES, "minutes")
        cpu = f"{np.mean([c.cpu for c in found]):.2f}"
        rows.append([title, len(found), *(spread(found, field) for field in fields), *split, cpu])
    header = ["method", "seeds", "reward a minute", "gain a minute", "minutes", *SHARES, "CPU"]
    return markdown_table(header, rows)


def starved(measured: Costs, clock: Clock) -> str:
    """A warning if runs had to wait for the processor."""
    shares = [c.cpu for methods in measured.values() for found in methods.values() for c in found]
    if clock == "cpu" or np.median(shares) >= 0.9:
        return ""
    return (
        f" **Runs had their core for {np.median(shares):.0%} of the time only (median): something "
        "else was running, and times cannot be compared; see `--clock cpu`.**"
    )


def draw(measured: Costs, to: Path) -> None:
    """A row for each task: the paper's measure, the gain, and where the time goes."""
    fig, axes = figure(len(measured), 3, (14, 2.6 * len(measured)))
    for k, (group, methods) in enumerate(measured.items()):
        names = list(methods)
        for axis, field in zip(
            axes[3 * k :], ("reward_per_minute", "gain_per_minute"), strict=False
        ):
            for i, name in enumerate(names):
                values = [getattr(c, field) for c in methods[name]]
                axis.barh(-i, np.mean(values), color=color_of(name), alpha=0.75)
                axis.plot(values, [-i] * len(values), ".", color="0.2", ms=4)
            axis.axvline(0, color="0.6", lw=0.8)
            axis.set_xlabel({"reward_per_minute": "total reward"}.get(field, "gain") + " a minute")
        axes[3 * k].set_title(f"{group} ({max(map(len, methods.values()))} seeds)", fontsize=10)
        split = axes[3 * k + 2]
        for i, name in enumerate(names):
            left = 0.0
            for part, color in SHARES.items():
                width = float(np.mean([c.shares[part] * c.minutes for c in methods[name]]))
                split.barh(-i, width, left=left, color=color, label=part if i == 0 else None)
                left += width
        split.set_xlabel("minutes a run")
        split.legend(frameon=False, fontsize=7)
        for axis in axes[3 * k : 3 * k + 3]:
            axis.set_yticks([-i for i in range(len(names))], names, fontsize=8)
    save(fig, to)


def write(
    runs: Sequence[Run], missing: Sequence[str], clock: Clock, command: str, out: Path
) -> list[Claim]:
    """Data, figure, report.md and report.html; the claims."""
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

Figure `fig:rpm` of the paper, from the runs of `wng reproduce pg` and `wng reproduce es`, one run
at a time on each core. {CLOCKS[clock]}{starved(measured, clock)}

{claims_table(found)}

{NOTE}

![Reward per minute, gain per minute, and where the time goes](figures/efficiency.png)

{tables}

Mean ± one standard deviation over seeds. Minutes: the median time of an iteration × the number of
iterations, so that compiling does not count. Policy: choosing actions; for evolution strategies it
is part of the environment's share. CPU: seconds of processor a second of clock; well below 1 the
run had to wait for other work on the machine. Data: [all runs](data/efficiency.csv).

## Not run, or failed

{summarize_missing(missing) or "Nothing."}

{provenance(command)}
""",
        out,
        "wng: reward per minute",
    )
    return found


CLOCKS: dict[Clock, str] = {
    "wall": "Minutes are those of the clock.",
    "cpu": "Minutes are those of the processor that a run used, not of the clock: the machine had "
    "other work to do meanwhile, which made some runs wait more than others.",
}
NOTE = """Where returns are negative, the paper's measure is the higher the *slower* a method is:
such tasks are left out of its row, and only the gain says something. A difference counts if its 95%
interval (Welch's t) leaves out 0."""
