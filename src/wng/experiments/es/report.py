"""Report of the evolution-strategies study."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wng.agents.registry import METHODS
from wng.evolution.maps import read_maps
from wng.experiments.comparison import (
    VERDICTS,
    Groups,
    by_setting,
    compare,
    draw_runs,
    final_returns,
    write_data,
)
from wng.experiments.drawing import draw_aggregates
from wng.experiments.es import study as es
from wng.experiments.es.paths import draw_paths
from wng.experiments.output import markdown_table, write_csv
from wng.experiments.report import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    appendix,
    claims_table,
    overall,
    write_report,
)
from wng.experiments.statistics import stratified_bootstrap
from wng.experiments.study import LAST, Missing, Run, finals, summarize_missing

TITLES = [METHODS[method].title for method in es.OURS]


def baselines(methods: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return the titles of the methods that ours are compared with."""
    return [name for name, runs in methods.items() if runs[0].trial.method in es.BASELINES]


def claims(groups: Groups, settings: str) -> list[Claim]:
    """Return the claims of the paper's section on evolution strategies, with verdicts."""
    chosen = {g: methods for g, methods in groups.items() if g.endswith(f", {settings}")}
    ends, suffix = final_returns(chosen), f" (settings {settings})"
    others = list(dict.fromkeys(t for methods in chosen.values() for t in baselines(methods)))
    low, high = (f"BGES β={beta:g}" for beta in es.BETAS)
    better = "improves over ES, clipped ES, NSR-ES and BGES"
    worse = f"BGES does worse with more repulsion (β = {es.BETAS[1]:g} instead of {es.BETAS[0]:g})"
    both = "BG-WNES does better than BGES with more repulsion"
    return [
        *(compare(f"{t} {better}{suffix}", "both tasks", ends, [t], others) for t in TITLES),
        *(reliability(chosen, title, suffix) for title in TITLES),
        compare(worse + suffix, "a decrease", ends, [low], [high]),
        compare(both + suffix, "above both β", ends, ["BG-WNES"], [low, high]),
    ]


def reliability(groups: Groups, title: str, suffix: str) -> Claim:
    """Judge the claim that a method overcomes the wall more often than the best baseline."""
    verdicts, said = [], []
    for group, methods in groups.items():
        present = baselines(methods)
        if title in methods and present:
            out = {
                t: np.array([es.overcomes_wall(r) for r in rs], float) for t, rs in methods.items()
            }
            best = max(present, key=lambda t: float(out[t].mean()))
            p, better = chance(out[title], out[best]), out[title].mean() > out[best].mean()
            verdicts.append(UNDECIDED if p > 0.05 else HOLDS if better else FAILS)
            ours, theirs = (f"{int(out[t].sum())} of {len(out[t])}" for t in (title, best))
            said.append(f"{group}: {ours} seeds, {best} {theirs} (Fisher's exact p {p:.2f})")
    text = f"{title} overcomes the wall more reliably than any baseline{suffix}"
    return Claim(text, "both tasks", "; ".join(said) or "not run", overall(verdicts))


def chance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the two-sided p-value of Fisher's exact test for two arrays of 0s and 1s."""
    from scipy.stats import fisher_exact

    table = [[a.sum(), len(a) - a.sum()], [b.sum(), len(b) - b.sum()]]
    return float(fisher_exact(table).pvalue)


def table(methods: Mapping[str, Sequence[Run]]) -> str:
    """Tabulate the results of every method on one task."""
    rows = []
    for title, runs in methods.items():
        ends = finals(runs)
        mean, low, high = stratified_bootstrap([ends], np.mean)
        until = [es.steps_until_past(run) for run in runs if es.overcomes_wall(run)]
        steps = np.median(until) if until else np.nan
        wait = "never" if np.isinf(steps) else f"{steps / 1e3:,.0f}k" if until else "–"
        spread = f"{mean:.0f} ± {ends.std():.0f} [{low:.0f}, {high:.0f}]"
        middle, limits = f"{np.median(ends):.0f}", f"{ends.min():.0f} to {ends.max():.0f}"
        rows.append([title, f"{len(until)}/{len(runs)}", wait, spread, middle, limits])
    header = ["method", "seeds that overcome the wall", "steps until then (median)"]
    header += ["return: mean ± std [95% interval of the mean]", "median", "worst to best seed"]
    return markdown_table(header, rows)


def write(
    scale: es.EvolutionScale,
    runs: Sequence[Run],
    missing: Sequence[Missing],
    root: Path,
    command: str,
    out: Path,
) -> list[Claim]:
    """Write data, figures, report.md and report.html; return the claims."""
    write_data(runs, out)
    groups = by_setting(runs)
    draw_runs(groups, "return", out / "figures" / "curves.png")
    draw_runs(groups, "past_wall", out / "figures" / "past_wall.png", band=None)
    paths, sections = [], []
    for group, methods in groups.items():
        name = group.replace("wng/", "").replace(", ", "_")
        seen: dict[str, list[tuple[np.ndarray, bool]]] = {}
        for run in itertools.chain(*methods.values()):
            last = int(run.rows["iteration"][-1])
            path = read_maps(run.trial.folder(root), until=last)[-1].path
            seen.setdefault(run.trial.title, []).append((path, es.overcomes_wall(run)))
            paths += [(*run.trial.who, k, float(x), float(y)) for k, (x, y) in enumerate(path)]
        env = next(iter(methods.values()))[0].trial.env
        draw_paths(env, seen, out / "figures" / f"paths_{name}.png")
        scores = {title: [finals(rs)] for title, rs in methods.items() if len(finals(rs))}
        draw_aggregates(scores, TITLES, "return", out / "figures" / f"aggregates_{name}.png")
        sections.append(
            f"## {group}\n\n{table(methods)}\n\n![Final paths of the mean policies, {group}]"
            f"(figures/paths_{name}.png)\n\n![Aggregates, {group}](figures/aggregates_{name}.png)"
        )
    header = ["settings", "env", "method", "seed", "step", "x", "y"]
    write_csv(out / "data" / "paths.csv", header, paths)
    levels = {e: es.stuck_return(e) for e in dict.fromkeys(run.trial.env for run in runs)}
    stuck = ", ".join(f"{e}: {x:.0f}" for e, x in levels.items() if np.isfinite(x)) or "unknown"
    used = dict.fromkeys(run.trial.settings for run in runs)
    found = [claim for settings in used for claim in claims(groups, settings)]
    write_report(
        f"""# Evolution strategies: WNES and BG-WNES compared with ES, NSR-ES and BGES

Figure 4 of the paper. {scale.about}

{claims_table(found)}

{VERDICTS}

![Learning curves](figures/curves.png)

![Fraction of seeds whose episode ends past the wall](figures/past_wall.png)

{(chr(10) * 2).join(sections)}

## How to read this report

Returns are those of the mean policy, without action noise; final returns are means over the last
{LAST:.0%} of the steps. A seed overcomes the wall if the episode ends past it in most of these
generations and the final return exceeds that of running straight into the cup ({stuck}); the second
condition excludes policies that pass the wall by running away. "Steps until then" counts the steps
after which nine out of ten generations end past the wall. Curves of returns show the mean ± one
standard deviation over seeds, whose number is in the legend. Intervals in tables are 95% bootstrap
intervals over seeds.
Data: [final returns](data/final.csv), [curves](data/curves.csv), [paths](data/paths.csv).

{appendix(command, summarize_missing(missing))}
""",
        out,
        "wng: evolution strategies",
    )
    return found
