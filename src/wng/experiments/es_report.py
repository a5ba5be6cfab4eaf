"""The report of the evolution-strategies study."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wng.evolution.maps import read_maps
from wng.experiments.drawing import draw_aggregates, draw_panels
from wng.experiments.es import BASELINES, BETAS, OURS, EvolutionScale, past_wall, steps_until_past
from wng.experiments.output import markdown_table, write_csv
from wng.experiments.pg_report import VERDICTS, compare, write_data
from wng.experiments.report import (
    FAILS,
    HOLDS,
    Claim,
    claims_table,
    overall,
    provenance,
    write_report,
)
from wng.experiments.statistics import difference_interval
from wng.experiments.study import LAST, Run, finals, grouped, summarize_missing
from wng.experiments.walls import draw_paths
from wng.families import METHODS

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


def claims(groups: Groups) -> list[Claim]:
    """Each claim of the paper's section on evolution strategies, with a verdict."""
    found = []
    ours = [METHODS[m].title for m in OURS]
    ends = {group: by_title(methods) for group, methods in groups.items()}
    others = list(dict.fromkeys(t for methods in groups.values() for t in baselines(methods)))
    for name in ours:
        verdict, here = compare(ends, name, others)
        text = f"{name} improves over ES, clipped ES, NSR-ES and BGES"
        found.append(Claim(text, "both tasks", here or "not run", verdict))
    for name in ours:
        verdicts, said = [], []
        for group, methods in groups.items():
            present = baselines(methods)
            if name not in methods or not present:
                continue
            share = {t: float(np.mean([past_wall(r) for r in rs])) for t, rs in methods.items()}
            best = max(present, key=lambda title: share[title])
            verdicts.append(HOLDS if share[name] > share[best] else FAILS)
            said.append(f"{group}: {share[name]:.0%} of seeds, {best} {share[best]:.0%}")
        text = f"{name} overcomes the wall more reliably than any of them"
        found.append(Claim(text, "both tasks", "; ".join(said) or "not run", overall(verdicts)))
    low, high = (f"BGES β={beta:g}" for beta in BETAS)
    verdict, said_of = compare(ends, low, [high])
    text = f"BGES does worse with more repulsion, β = {BETAS[1]:g} for {BETAS[0]:g}"
    return [*found, Claim(text, "a decrease", said_of or "not run", verdict)]


def by_title(methods: Mapping[str, Sequence[Run]]) -> dict[str, np.ndarray]:
    """Final returns by title."""
    return {title: finals(runs) for title, runs in methods.items() if len(finals(runs))}


def table(methods: Mapping[str, Sequence[Run]]) -> str:
    """The numbers of every method on one task."""
    rows = []
    for title, runs in methods.items():
        ends = finals(runs)
        _, low, high = difference_interval(ends, np.zeros(1))
        past = sum(map(past_wall, runs))
        rows.append(
            [
                title,
                f"{past}/{len(runs)}",
                _thousands(float(np.median([steps_until_past(run) for run in runs]))),
                f"{ends.mean():.0f} ± {ends.std():.0f} [{low:.0f}, {high:.0f}]",
                f"{np.median(ends):.0f}",
                f"{ends.min():.0f} to {ends.max():.0f}",
            ]
        )
    header = ["method", "seeds past the wall", "steps until then (median)"]
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
        seen = {t: [(last_path(r, root), past_wall(r)) for r in rs] for t, rs in methods.items()}
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
    found = claims(groups)
    write_report(
        f"""# Evolution strategies: WNES and BG-WNES beside ES, NSR-ES and BGES

Figure `fig:es_exps` of the paper. {scale.about}

{claims_table(found)}

{VERDICTS} "More reliably" compares shares of seeds.

![Learning curves](figures/curves.png)

![Share of seeds past the wall](figures/past_wall.png)

{(chr(10) * 2).join(sections)}

## How to read this

Returns are those of the mean policy, without noise on its actions; final ones are means over the
last {LAST:.0%} of the steps. A seed is past the wall if in most of these generations the episode
ended beyond it, however far to the side; steps until then: from where on nine generations in ten
do. Curves of returns are mean ± one standard deviation over seeds (the legend has how many),
intervals 95% bootstraps over seeds.
Data: [final returns](data/final.csv), [curves](data/curves.csv), [paths](data/paths.csv).

## Not run, or failed

{summarize_missing(missing) or "Nothing."}

{provenance(command)}
""",
        out,
        "wng: evolution strategies",
    )
    return found
