"""The report of the policy-gradient study."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wng.agents.registry import METHODS
from wng.experiments.drawing import BINS, draw_aggregates, draw_panels
from wng.experiments.output import markdown_table, number, write_csv
from wng.experiments.pg import study as pg
from wng.experiments.pg.study import BEYOND, PAPER_METHODS, TABLE
from wng.experiments.report import (
    UNDECIDED,
    Claim,
    claims_table,
    overall,
    provenance,
    verdict,
    write_report,
)
from wng.experiments.statistics import (
    interquartile_mean,
    on_grid,
    stratified_bootstrap,
    welch_interval,
)
from wng.experiments.study import LAST, Job, Run, finals, grouped, summarize_missing

Finals = Mapping[str, Mapping[str, np.ndarray]]  # by task, by title: a return for each seed


def title(method: str) -> str:
    """As people write it."""
    return METHODS[method].title


def by_task(runs: Sequence[Run]) -> dict[str, dict[str, np.ndarray]]:
    """Final returns; methods without a finite one are left out."""
    return {
        env: {name: values for name, found in methods.items() if len(values := finals(found))}
        for env, methods in grouped(runs).items()
    }


def compare(ends: Finals, ours: str, others: Sequence[str], margin: float = 0.0) -> tuple[str, str]:
    """Whether `ours` has a higher mean than the best of `others` on every task, and the numbers.

    A difference counts if its 95% interval (Welch) leaves out 0; to match, if it leaves out a loss
    of more than `margin` times the other's mean.
    """
    verdicts, said = [], []
    for env, methods in ends.items():
        present = [name for name in others if name in methods]
        if ours not in methods or not present:
            continue
        best = max(present, key=lambda name: float(methods[name].mean()))
        difference, low, high = welch_interval(methods[ours], methods[best])
        slack = margin * abs(float(methods[best].mean()))
        verdicts.append(verdict(low + slack, high + slack))
        against = f" against {best}, the best of them" if len(others) > 1 else ""
        interval = f"[{number(low)}, {number(high)}]"
        said.append(f"{env}: {number(difference, '+')} {interval}{against}")
    return overall(verdicts), "; ".join(said)


def claims(ends: Finals) -> list[Claim]:
    """Each claim of the paper's section on policy gradients, with a verdict."""
    stated = [
        ("BGPG outperforms PPO", "all six tasks", "BGPG", ["PPO"]),
        ("BGPG outperforms vanilla PG", "all six tasks", "BGPG", ["PG"]),
        ("WNPG matches (within 5%) or exceeds BGPG", "all six tasks", "WNPG", ["BGPG"]),
        ("WNPG outperforms PPO", "all six tasks", "WNPG", ["PPO"]),
        ("WNPG outperforms vanilla PG", "all six tasks", "WNPG", ["PG"]),
        ("BG-WNPG improves on the penalty alone, BGPG", "all six tasks", "BG-WNPG", ["BGPG"]),
        (
            "BG-WNPG produces the largest gains",
            "first on all six tasks",
            "BG-WNPG",
            ["PG", "PPO", "BGPG", "WNPG"],
        ),
    ]
    found = []
    for claim, paper, ours, others in stated:
        judged, here = compare(ends, ours, others, margin=0.05 if "matches" in claim else 0.0)
        found.append(Claim(claim, paper, here or "not run", judged))
    hard = "WNG's advantage is largest where initial progress is difficult"
    where = "a matter of the eye in the paper's figure; see the conditioning study for a test"
    return [*found, Claim(hard, "qualitative", where, UNDECIDED)]


def spread(values: np.ndarray) -> str:
    """Mean ± standard deviation over seeds."""
    digits = 0 if np.abs(values).mean() >= 100 else 2
    return f"{values.mean():.{digits}f} ± {values.std():.{digits}f}"


def table(ends: Finals, methods: Sequence[str], paper: bool) -> str:
    """Table 1: final returns, the paper's own below ours."""
    rows = []
    for env, found in ends.items():
        means = {m: found[title(m)].mean() for m in methods if title(m) in found}
        best = max(means, key=lambda m: means[m]) if means else ""
        cells = []
        for m in methods:
            values = found.get(title(m))
            mark = "**" if m == best else ""
            cells.append("–" if values is None else f"{mark}{spread(values)}{mark}")
        seeds = sorted({len(found[title(m)]) for m in means})
        rows.append([env, "here", "–".join(map(str, seeds)), *cells])
        if paper and env in TABLE:
            rows.append(["", "paper", "5", *(f"{TABLE[env].get(m, np.nan):g}" for m in methods)])
    return markdown_table(["task", "", "seeds", *(title(m) for m in methods)], rows)


def scores_by_task(runs: Sequence[Run]) -> dict[str, list[np.ndarray]]:
    """Normalised final returns: by title, an array of seeds for each task.

    Only tasks with a paper's number that every method has: sums over others would compare tasks.
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
    """Interquartile mean of normalised returns over tasks and seeds."""
    rows = []
    for name, tasks in scores.items():
        point, low, high = stratified_bootstrap(tasks, interquartile_mean)
        runs = sum(map(len, tasks))
        rows.append([name, len(tasks), runs, f"{point:.2f} [{low:.2f}, {high:.2f}]"])
    return markdown_table(["method", "tasks", "runs", "interquartile mean [95%]"], rows)


def sweep_table(candidates: Mapping[tuple[str, str], Sequence[Job]], root: Path) -> str:
    """The final return of each learning rate, the chosen one in bold."""
    rows = []
    for (env, method), jobs in candidates.items():
        runs = {job.overrides["learning_rate"]: job.read(root) for job in jobs}
        ends = {rate: run.final for rate, run in runs.items() if run and np.isfinite(run.final)}
        if not ends:
            continue  # listed among what was not run
        best = max(ends, key=lambda rate: ends[rate])
        cells = [
            "–" if rate not in ends else f"**{ends[rate]:.4g}**" if rate == best else f"{e:.4g}"
            for rate in runs
            for e in [ends.get(rate, np.nan)]
        ]
        rows.append([env, title(method), *cells])
    rates = next(iter(candidates.values()))
    header = ["task", "method", *(f"{job.overrides['learning_rate']:g}" for job in rates)]
    return markdown_table(header, rows)


def write_data(runs: Sequence[Run], out: Path) -> None:
    """curves.csv: every run on the grid of its figure; final.csv: a line for each run."""
    curves, ends = [], []
    for run in runs:
        job = run.job
        who = (job.label, job.env, job.method, job.seed)
        grid, values = on_grid([(run.rows["steps"], run.rows["return"])], BINS)
        curves += [(*who, int(s), float(r)) for s, r in zip(grid, values.ravel(), strict=True)]
        times = [float(run.rows[name].sum()) for name in ("seconds", "seconds_cpu")]
        ends.append((*who, int(run.rows["steps"][-1]), run.final, *times))
    who_names = ["settings", "env", "method", "seed"]
    write_csv(out / "data" / "curves.csv", [*who_names, "steps", "return"], curves)
    header = [*who_names, "steps", "final_return", "seconds", "seconds_cpu"]
    write_csv(out / "data" / "final.csv", header, ends)


def write(
    scale: pg.GradientScale,
    runs: Sequence[Run],
    plan: pg.Plan,
    missing: Sequence[str],
    root: Path,
    command: str,
    out: Path,
) -> list[Claim]:
    """Data, figures, report.md and report.html; the claims."""
    write_data(runs, out)
    sections = []
    found: list[Claim] = []
    for settings, methods in (("released", PAPER_METHODS), ("tuned", (*PAPER_METHODS, *BEYOND))):
        chosen = [run for run in runs if run.job.settings == settings]
        if not chosen:
            continue
        ends, scores = by_task(chosen), scores_by_task(chosen)
        draw_panels(grouped(chosen), "return", out / "figures" / f"curves_{settings}.png")
        text = [f"![Learning curves, {settings}](figures/curves_{settings}.png)"]
        text.append(table(ends, methods, paper=settings == "released"))
        if scores:
            figure = f"aggregates_{settings}.png"
            ours = ("WNPG", "BG-WNPG")
            draw_aggregates(scores, ours, "normalised return", out / "figures" / figure)
            text += [f"![Aggregates, {settings}](figures/{figure})", aggregate_table(scores)]
        if settings == "released":
            found = claims(ends)
            text = [claims_table(found), VERDICTS, *text, SWEEP, sweep_table(plan.candidates, root)]
        sections.append(f"## Settings `{settings}`: {HEADINGS[settings]}\n\n" + "\n\n".join(text))
    left_out = "\n".join([*plan.never_planned(), summarize_missing(missing)]).strip() or "Nothing."
    write_report(
        f"""# Policy gradients: WNPG and BG-WNPG beside PG, PPO and BGPG

Figure `fig:pg_exps` and Table 1 of the paper. {scale.about}

{(chr(10) * 2).join(sections)}

## How to read this

Curves are the mean return of the episodes of each iteration, averaged in {BINS} equal bins of
steps, mean ± one standard deviation over seeds (the legend has how many). Final returns are means
over the last {LAST:.0%} of the steps of a run, of episodes as they were sampled in training; ± is
one standard deviation over seeds, the best mean of a row is in bold. Normalised returns have 0 at
the paper's PG and 1 at the paper's BG-WNPG on each task. Intervals in figures and of
interquartile means are 95% bootstraps, seeds resampled within each task.
Data: [final returns](data/final.csv), [curves](data/curves.csv).

## Not run, or failed

{left_out}

{provenance(command)}
""",
        out,
        "wng: policy gradients",
    )
    return found


HEADINGS = {"released": "the paper's claims", "tuned": "what a user gets"}
VERDICTS = """A claim holds on a task if the 95% interval (Welch's t) of the difference of means
leaves out 0 on the right side; it is undecided if the interval has 0 in it. No correction is made
for the number of comparisons: of twenty without a difference, one would be decided by chance.
Verdicts are on what was run, with its budgets."""
SWEEP = """### The learning rates

Final returns of the sweep, with a seed that no evaluation uses and the same budget for every
method; the evaluation takes the rate in bold."""
