"""The report of the evolution-strategies study."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wng.agents.registry import METHODS
from wng.evolution.maps import read_maps
from wng.experiments.drawing import draw_aggregates, draw_panels
from wng.experiments.es.paths import draw_paths
from wng.experiments.es.study import (
    BASELINES,
    BETAS,
    OURS,
    EvolutionScale,
    overcomes_wall,
    steps_until_past,
    stuck_return,
)
from wng.experiments.output import markdown_table, write_csv
from wng.experiments.pg.report import VERDICTS, compare, write_data
from wng.experiments.report import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    claims_table,
    overall,
    provenance,
    write_report,
)
from wng.experiments.statistics import difference_interval
from wng.experiments.study import LAST, Run, finals, grouped, summarize_missing

Groups = Mapping[str, Mapping[str, Sequence[Run]]]


def by_setting(runs: Sequence[Run]) -> dict[str, dict[str, list[Run]]]:
    """A group for each task with each settings, such as 'wng/PointWall-v0, tuned'."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for settings in dict.fromkeys(run.job.settings for run in runs):
        for env, methods in grouped([r for r in runs if r.job.settings == settings]).items():
            groups[f"{env}, {settings}"] = methods
    return groups


def baselines(methods: Mapping[str, Sequence[Run]]) -> list[str]:
    """Titles of the methods that ours are compared with."""
    return [name for name, runs in methods.items() if runs[0].job.method in BASELINES]


def claims(groups: Groups, settings: str) -> list[Claim]:
    """Each claim of the paper's section on evolution strategies, with a verdict."""
    chosen = {g: methods for g, methods in groups.items() if g.endswith(f", {settings}")}
    found = []
    ours = [METHODS[m].title for m in OURS]
    ends = {group: by_title(methods) for group, methods in chosen.items()}
    others = list(dict.fromkeys(t for methods in chosen.values() for t in baselines(methods)))

    def add(text: str, paper: str, here: str, judged: str) -> None:
        found.append(Claim(f"{text} (settings {settings})", paper, here or "not run", judged))

    for name in ours:
        judged, here = compare(ends, name, others)
        add(f"{name} improves over ES, clipped ES, NSR-ES and BGES", "both tasks", here, judged)
    for name in ours:
        verdicts, said = [], []
        for group, methods in chosen.items():
            present = baselines(methods)
            if name not in methods or not present:
                continue
            out = {t: np.array([overcomes_wall(r) for r in rs], float) for t, rs in methods.items()}
            best = max(present, key=lambda title: float(out[title].mean()))
            p = chance(out[name], out[best])
            better = out[name].mean() > out[best].mean()
            verdicts.append(UNDECIDED if p > 0.05 else HOLDS if better else FAILS)
            counts = [f"{int(out[t].sum())} of {len(out[t])}" for t in (name, best)]
            said.append(
                f"{group}: {counts[0]} seeds, {best} {counts[1]} (Fisher's exact p {p:.2f})"
            )
        text = f"{name} overcomes the wall more reliably than any of them"
        add(text, "both tasks", "; ".join(said), overall(verdicts))
    low, high = (f"BGES β={beta:g}" for beta in BETAS)
    judged, here = compare(ends, low, [high])
    text = f"BGES does worse with more repulsion, β = {BETAS[1]:g} for {BETAS[0]:g}"
    add(text, "a decrease", here, judged)
    judged, here = compare(ends, "BG-WNES", [low, high])
    add("BG-WNES is more than BGES with more repulsion", "above both β", here, judged)
    return found


def chance(a: np.ndarray, b: np.ndarray) -> float:
    """Fisher's exact test of two shares of 0s and 1s: the two-sided p-value."""
    from scipy.stats import fisher_exact

    table = [[a.sum(), len(a) - a.sum()], [b.sum(), len(b) - b.sum()]]
    return float(fisher_exact(table).pvalue)


def by_title(methods: Mapping[str, Sequence[Run]]) -> dict[str, np.ndarray]:
    """Final returns by title."""
    return {title: finals(runs) for title, runs in methods.items() if len(finals(runs))}


def table(methods: Mapping[str, Sequence[Run]]) -> str:
    """The numbers of every method on one task."""
    rows = []
    for title, runs in methods.items():
        ends = finals(runs)
        _, low, high = difference_interval(ends, np.zeros(1))
        out = [run for run in runs if overcomes_wall(run)]
        until = [steps_until_past(run) for run in out]
        rows.append(
            [
                title,
                f"{len(out)}/{len(runs)}",
                _thousands(float(np.median(until))) if until else "–",
                f"{ends.mean():.0f} ± {ends.std():.0f} [{low:.0f}, {high:.0f}]",
                f"{np.median(ends):.0f}",
                f"{ends.min():.0f} to {ends.max():.0f}",
            ]
        )
    header = ["method", "seeds that overcome the wall", "steps until then (their median)"]
    return markdown_table(
        [*header, "return, mean ± std [95% of the mean]", "median", "worst to best seed"], rows
    )


def _thousands(steps: float) -> str:
    return f"{steps / 1e3:,.0f}k" if np.isfinite(steps) else "never"


def last_path(run: Run, root: Path) -> np.ndarray:
    """Of the mean policy, in its last generation: [steps, 2]."""
    last = int(run.rows["iteration"][-1])
    return read_maps(run.job.folder(root), until=last)[-1].path


def write(
    scale: EvolutionScale,
    runs: Sequence[Run],
    missing: Sequence[str],
    root: Path,
    command: str,
    out: Path,
) -> list[Claim]:
    """Data, figures, report.md and report.html; the claims."""
    write_data(runs, out)
    groups = by_setting(runs)
    draw_panels(groups, "return", out / "figures" / "curves.png")
    draw_panels(groups, "past_wall", out / "figures" / "past_wall.png")
    paths = []
    sections = []
    for group, methods in groups.items():
        name = group.replace("wng/", "").replace(", ", "_")
        seen = {
            t: [(last_path(r, root), overcomes_wall(r)) for r in rs] for t, rs in methods.items()
        }
        env = next(iter(methods.values()))[0].job.env
        draw_paths(env, seen, out / "figures" / f"paths_{name}.png")
        scores = {title: [finals(rs)] for title, rs in methods.items() if len(finals(rs))}
        ours = [METHODS[m].title for m in OURS]
        draw_aggregates(scores, ours, "return", out / "figures" / f"aggregates_{name}.png")
        sections.append(
            f"## {group}\n\n{table(methods)}\n\n![Last paths of the mean policies, {group}]"
            f"(figures/paths_{name}.png)\n\n![Aggregates, {group}](figures/aggregates_{name}.png)"
        )
        paths += [
            (run.job.label, run.job.env, run.job.method, run.job.seed, k, float(x), float(y))
            for title, rs in methods.items()
            for run, (path, _) in zip(rs, seen[title], strict=True)
            for k, (x, y) in enumerate(path)
        ]
    header = ["settings", "env", "method", "seed", "step", "x", "y"]
    write_csv(out / "data" / "paths.csv", header, paths)
    levels = {e: stuck_return(e) for e in dict.fromkeys(run.job.env for run in runs)}
    stuck = ", ".join(f"{e}: {x:.0f}" for e, x in levels.items() if np.isfinite(x)) or "none here"
    used = dict.fromkeys(run.job.settings for run in runs)
    found = [claim for settings in used for claim in claims(groups, settings)]
    write_report(
        f"""# Evolution strategies: WNES and BG-WNES beside ES, NSR-ES and BGES

Figure `fig:es_exps` of the paper. {scale.about}

{claims_table(found)}

{VERDICTS}

![Learning curves](figures/curves.png)

![Share of seeds whose episode ends beyond the wall](figures/past_wall.png)

{(chr(10) * 2).join(sections)}

## How to read this

Returns are those of the mean policy, without noise on its actions; final ones are means over the
last {LAST:.0%} of the steps. A seed overcomes the wall if in most of these generations the episode
ended beyond it, and its final return is above that of running straight into the cup
({stuck}): some get past the wall by running away. Steps until then: from where on nine generations
in ten end beyond it. Curves of returns are mean ± one standard deviation over seeds (the legend has
how many), intervals in tables 95% bootstraps over seeds.
Data: [final returns](data/final.csv), [curves](data/curves.csv), [paths](data/paths.csv).

## Not run, or failed

{summarize_missing(missing) or "Nothing."}

{provenance(command)}
""",
        out,
        "wng: evolution strategies",
    )
    return found
