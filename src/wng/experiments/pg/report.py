"""Report of the policy-gradient study."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wng.agents.registry import title_of
from wng.experiments.comparison import (
    BINS,
    VERDICTS,
    Finals,
    Groups,
    compare,
    draw_runs,
    final_returns,
    write_data,
)
from wng.experiments.drawing import draw_aggregates
from wng.experiments.output import markdown_table, write_csv
from wng.experiments.pg import study as pg
from wng.experiments.pg.study import BEYOND, PAPER_METHODS, TABLE
from wng.experiments.report import UNDECIDED, Claim, appendix, claims_table, write_report
from wng.experiments.statistics import interquartile_mean, stratified_bootstrap
from wng.experiments.study import EVALUATION, LAST, Missing, Run, Trial, grouped, summarize_missing
from wng.runs.metrics import DETERMINISTIC


def claims(ends: Finals) -> list[Claim]:
    """Return the claims of the paper's section on policy gradients, with verdicts."""
    six, first = "all six tasks", "first on all six tasks"
    stated: list[tuple[str, str, str, list[str], float]] = [
        ("BGPG outperforms PPO", six, "BGPG", ["PPO"], 0),
        ("BGPG outperforms vanilla PG", six, "BGPG", ["PG"], 0),
        ("WNPG matches (within 5%) or exceeds BGPG", six, "WNPG", ["BGPG"], 0.05),
        ("WNPG outperforms PPO", six, "WNPG", ["PPO"], 0),
        ("WNPG outperforms vanilla PG", six, "WNPG", ["PG"], 0),
        ("BG-WNPG improves on the penalty alone, BGPG", six, "BG-WNPG", ["BGPG"], 0),
        ("BG-WNPG produces the largest gains", first, "BG-WNPG", OTHERS, 0),
    ]
    found = [compare(c, p, ends, [ours], others, m) for c, p, ours, others, m in stated]
    hard = "WNG's advantage is largest where initial progress is difficult"
    where = "judged by eye in the paper; tested in the conditioning study"
    return [*found, Claim(hard, "qualitative", where, UNDECIDED)]


def table(ends: Finals, methods: Sequence[str], paper: bool) -> str:
    """Tabulate final returns as in Table 1, with the paper's own below ours."""
    rows = []
    for env, found in ends.items():
        ours = {m: found[title_of(m)] for m in methods if title_of(m) in found}
        best = max(ours, key=lambda m: ours[m].mean(), default="")
        cells = dict.fromkeys(methods, "–")
        for m, values in ours.items():
            digits, mark = 0 if np.abs(values).mean() >= 100 else 2, "**" * (m == best)
            cells[m] = f"{mark}{values.mean():.{digits}f} ± {values.std():.{digits}f}{mark}"
        seeds = sorted({len(values) for values in ours.values()})
        rows.append([env, "here", "–".join(map(str, seeds)), *cells.values()])
        if paper and env in TABLE:
            rows.append(["", "paper", "5", *(f"{TABLE[env].get(m, np.nan):g}" for m in methods)])
    return markdown_table(["task", "", "seeds", *(title_of(m) for m in methods)], rows)


def deterministic_table(groups: Groups, methods: Sequence[str]) -> str:
    """Tabulate the return of the most likely action, and the σ that hides it in training."""
    rows = []
    for env, found in groups.items():
        ours = {m: found[title_of(m)] for m in methods if title_of(m) in found}
        cells = dict.fromkeys(methods, "–")
        for m, runs in ours.items():
            values = np.array([run.last(DETERMINISTIC) for run in runs])
            digits = 0 if np.abs(values).mean() >= 100 else 2
            sigma = np.mean([run.last("std") for run in runs])
            cells[m] = f"{values.mean():.{digits}f} ± {values.std():.{digits}f} (σ {sigma:.2f})"
        rows.append([env, *cells.values()])
    return markdown_table(["task", *(title_of(m) for m in methods)], rows)


def scores_by_task(runs: Sequence[Run]) -> dict[str, list[np.ndarray]]:
    """Return normalized final returns: by title, an array of seeds for each task.

    Includes only the paper's tasks that every method has: aggregates over different sets of tasks
    would compare tasks, not methods.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    for env, methods in grouped(runs).items():
        for name, group in methods.items():
            values = np.array([pg.normalized(run) for run in group])
            if len(values := values[np.isfinite(values)]):
                found.setdefault(name, {})[env] = values
    common = [env for env in TABLE if found and all(env in tasks for tasks in found.values())]
    return {name: [tasks[env] for env in common] for name, tasks in found.items()} if common else {}


def aggregate_table(scores: Mapping[str, list[np.ndarray]]) -> str:
    """Tabulate the interquartile mean of normalized returns over tasks and seeds."""
    rows = []
    for name, tasks in scores.items():
        point, low, high = stratified_bootstrap(tasks, interquartile_mean)
        runs = sum(map(len, tasks))
        rows.append([name, len(tasks), runs, f"{point:.2f} [{low:.2f}, {high:.2f}]"])
    return markdown_table(["method", "tasks", "runs", "interquartile mean [95%]"], rows)


def sweep_table(candidates: Mapping[tuple[str, str], Sequence[Trial]], root: Path) -> str:
    """Tabulate the final return of each learning rate, with the chosen one in bold."""
    rows = []
    for (env, method), trials in candidates.items():
        runs = [trial.read(root) for trial in trials]
        ends = [run.final if run else np.nan for run in runs]
        if not np.isfinite(ends).any():
            continue  # listed under "Not run, or failed"
        cells = [f"{end:.4g}" if np.isfinite(end) else "–" for end in ends]
        best = np.nanargmax(ends)
        cells[best] = f"**{cells[best]}**"
        rows.append([env, title_of(method), *cells])
    rates = next(iter(candidates.values()))
    header = ["task", "method", *(f"{trial.overrides['learning_rate']:g}" for trial in rates)]
    return markdown_table(header, rows)


def write(
    scale: pg.GradientScale,
    runs: Sequence[Run],
    plan: pg.Plan,
    missing: Sequence[Missing],
    root: Path,
    command: str,
    out: Path,
) -> list[Claim]:
    """Write data, figures, report.md and report.html; return the claims."""
    write_data(runs, out)
    write_csv(
        out / "data" / "deterministic.csv",
        ["settings", "env", "method", "seed", DETERMINISTIC, "std"],
        [(*run.trial.who, run.last(DETERMINISTIC), run.last("std")) for run in runs],
    )
    sections = []
    found: list[Claim] = []
    for settings, methods in (("released", PAPER_METHODS), ("tuned", (*PAPER_METHODS, *BEYOND))):
        chosen = [run for run in runs if run.trial.settings == settings]
        if not chosen:
            continue
        groups, scores = grouped(chosen), scores_by_task(chosen)
        ends = final_returns(groups)
        draw_runs(groups, "return", out / "figures" / f"curves_{settings}.png")
        text = [f"![Learning curves, {settings}](figures/curves_{settings}.png)"]
        text.append(table(ends, methods, paper=settings == "released"))
        text += [MOST_LIKELY, deterministic_table(groups, methods)]
        if scores:
            figure = f"aggregates_{settings}.png"
            ours = ("WNPG", "BG-WNPG")
            draw_aggregates(scores, ours, "normalized return", out / "figures" / figure)
            text += [f"![Aggregates, {settings}](figures/{figure})", aggregate_table(scores)]
        if settings == "released":
            found = claims(ends)
            text = [claims_table(found), VERDICTS, *text, SWEEP, sweep_table(plan.candidates, root)]
        sections.append(f"## Settings `{settings}`: {HEADINGS[settings]}\n\n" + "\n\n".join(text))
    left_out = "\n".join([*plan.never_planned(), summarize_missing(missing)]).strip()
    write_report(
        f"""# Policy gradients: WNPG and BG-WNPG compared with PG, PPO and BGPG

Figure 2 and Table 1 of the paper. {scale.about}

{(chr(10) * 2).join(sections)}

## How to read this report

Curves show the mean return of the episodes in each iteration, averaged in {BINS} equal bins of
steps: mean ± one standard deviation over seeds, whose number is in the legend. Final returns are
means over the last {LAST:.0%} of a run's steps, from the episodes sampled in training; ± is one
standard deviation over seeds, and the best mean of each row is bold. Normalized returns are 0 at
the paper's PG and 1 at the paper's BG-WNPG on each task. Intervals in figures and of interquartile
means are 95% bootstrap intervals, with seeds resampled within each task.
Data: [final returns](data/final.csv), [curves](data/curves.csv), [most likely
actions](data/deterministic.csv).

{appendix(command, left_out)}
""",
        out,
        "wng: policy gradients",
    )
    return found


HEADINGS = {"released": "the paper's claims", "tuned": "the defaults of `wng train`"}
OTHERS = ["PG", "PPO", "BGPG", "WNPG"]
MOST_LIKELY = f"""The return in training also depends on how random the policy still is. Without its
noise (the most likely action, {EVALUATION} episodes at the end, mean ± one standard deviation
over seeds; σ is the policy's mean standard deviation):"""
SWEEP = """### Learning rates

Final returns of the sweep, which uses a random seed reserved for tuning and the same budget for
every method. The evaluation uses the rate in bold."""
