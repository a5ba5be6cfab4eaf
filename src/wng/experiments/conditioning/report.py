"""Report of the conditioning study (`wng reproduce conditioning`, Figure 3).

It shows Hessian spectra at the end of training, and tests the heuristic that the paper draws from
them: Wasserstein natural gradients help most where the conditioning is poorest.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from wng.agents.load import load
from wng.agents.registry import title_of
from wng.experiments.comparison import final_returns
from wng.experiments.conditioning import PLACE
from wng.experiments.conditioning.spectrum import Spectrum, by_env, diagnose, draw_spectrum, ratios
from wng.experiments.output import RED, figure, markdown_table, save, write_csv
from wng.experiments.pg.study import TABLE
from wng.experiments.report import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    appendix,
    claims_table,
    write_report,
)
from wng.experiments.statistics import rank_correlation
from wng.experiments.study import Missing, Run, Trial, grouped, summarize_missing
from wng.runs.files import read_json, write_json

SHOWN = {2: "λ₂", 5: "λ₅", 10: "λ₁₀", 20: "λ₂₀"}  # columns of the table
ENOUGH = 5  # with fewer tasks no rank correlation can be significant
OURS = ("WNPG", "BG-WNPG")
Gains = dict[str, dict[str, float]]  # relative gain over PG, by task and title


def spectra(
    trials: Sequence[Trial], root: Path, rollouts: int, number: int, look: Callable[[int], None]
) -> list[Spectrum]:
    """Return the spectra of all finished runs; `look` is called with the number of trials done.

    A spectrum is kept in the run's folder and computed only if it is not there.
    """
    found = []
    for done, trial in enumerate(trials, start=1):
        if trial.finished(root):
            kept = trial.folder(root) / f"spectrum-{rollouts}-{number}.json"
            record: dict[str, Any] = read_json(kept) if kept.exists() else {"steps": 0}
            if record["steps"] < trial.steps:
                with closing(load(kept.parent)) as agent:
                    record = diagnose(agent, rollouts, number)._asdict()
                record["eigenvalues"] = record["eigenvalues"].tolist()
                write_json(kept, record)
            found.append(Spectrum(**record | {"eigenvalues": np.array(record["eigenvalues"])}))
        look(done)
    return found


def condition(found: Sequence[Spectrum]) -> float:
    """Return the geometric mean over runs of |λ₁|/|λ₁₀|."""
    values = [ratios(s.eigenvalues)[:PLACE][-1] for s in found]
    return float(np.exp(np.mean(np.log(values))))


def above_noise(found: Sequence[Spectrum]) -> float:
    """Return the number of leading eigenvalues that exceed the noise, averaged over runs."""
    return float(np.mean([np.sum(np.abs(s.eigenvalues) > s.noise) for s in found]))


def gains(returns: Mapping[str, Mapping[str, float]]) -> Gains:
    """Return how much more WNPG and BG-WNPG earn than PG, relative to PG, on each task."""
    return {
        env: {m: (row[m] - row["PG"]) / max(abs(row["PG"]), 1e-9) for m in OURS if m in row}
        for env, row in returns.items()
        if "PG" in row
    }


def claim(
    condition_of: dict[str, float], gain_of: Gains, whose: str, noisy: Sequence[str] = ()
) -> Claim:
    """Judge the heuristic by a rank correlation over tasks; λ₁₀ is within the noise on `noisy`."""
    tasks = [env for env in condition_of if "WNPG" in gain_of.get(env, {})]
    pairs = [(condition_of[env], gain_of[env]["WNPG"]) for env in tasks]
    rho, p = rank_correlation(*np.reshape(pairs, (-1, 2)).T)
    doubtful = [env for env in tasks if env in noisy]
    decided = len(tasks) >= ENOUGH and not doubtful and np.isfinite(p) and p < 0.05
    verdict = UNDECIDED if not decided else HOLDS if rho > 0 else FAILS
    here = f"Spearman's ρ {rho:.2f}, p = {p:.2f}" if np.isfinite(rho) else "no correlation defined"
    few = f"; a verdict needs at least {ENOUGH}" if len(tasks) < ENOUGH else ""
    unclear = f"; for {len(doubtful)} of them λ₁₀ is within the batch's noise" if doubtful else ""
    return Claim(
        f"WNG helps most where the conditioning is poorest (gain of WNPG over PG, {whose})",
        "a heuristic from six tasks",
        f"{here} over {len(tasks)} tasks{few}{unclear}",
        verdict,
    )


def draw_heuristic(condition_of: dict[str, float], gain_of: Gains, to: Path) -> None:
    """Draw gain against conditioning, with a point per task."""
    fig, (axis,) = figure(1, 1, (6.5, 4))
    for env, x in condition_of.items():
        if "WNPG" in gain_of.get(env, {}):
            y = 100 * gain_of[env]["WNPG"]
            axis.plot(x, y, "o", color=RED)
            axis.annotate(env, (x, y), xytext=(5, 5), textcoords="offset points", fontsize=8)
    axis.margins(0.25)
    axis.axhline(0, color="0.7", lw=0.8)
    axis.set_xlabel("|λ₁| / |λ₁₀|, geometric mean over runs")
    axis.set_ylabel("gain of WNPG over PG (% of PG's return)")
    save(fig, to)


def table(tasks: dict[str, list[Spectrum]], gain_of: Gains) -> str:
    """Tabulate ratios, negative eigenvalues and gains; ratios within the noise are in brackets."""
    rows = []
    for env, group in tasks.items():
        length = min(len(s.eigenvalues) for s in group)
        mean = np.exp(np.mean([np.log(ratios(s.eigenvalues)[:length]) for s in group], axis=0))
        signal = above_noise(group)
        shown = [f"{x:.3g}" if i <= signal else f"({x:.3g})" for i, x in enumerate(mean, 1)]
        cells = [shown[i - 1] if i <= length else "–" for i in SHOWN]
        negative = np.mean([np.mean(s.eigenvalues < 0) for s in group])
        ours = gain_of.get(env, {})
        gained = [f"{ours[m]:+.0%}" if m in ours else "–" for m in OURS]
        rows.append([env, len(group), *cells, f"{negative:.0%}", f"{signal:.1f}", *gained])
    header = ["task", "runs", *(f"λ₁/{name}" for name in SHOWN.values()), "negative", "above noise"]
    return markdown_table([*header, "WNPG over PG", "BG-WNPG over PG"], rows)


def write(
    found: Sequence[Spectrum],
    runs: Sequence[Run],
    missing: Sequence[Missing],
    command: str,
    out: Path,
) -> list[Claim]:
    """Write data, figures, report.md and report.html; return the claims."""
    draw_spectrum(list(found), out / "figures" / "spectra.png")
    tasks = by_env(found)
    condition_of = {env: condition(group) for env, group in tasks.items()}
    released = grouped([run for run in runs if run.trial.settings == "released"])
    means = {
        env: {title: float(ends.mean()) for title, ends in methods.items()}
        for env, methods in final_returns(released).items()
    }
    paper = {env: {title_of(m): value for m, value in row.items()} for env, row in TABLE.items()}
    gain_of = gains(means)
    draw_heuristic(condition_of, gain_of, out / "figures" / "heuristic.png")
    noisy = [env for env, group in tasks.items() if above_noise(group) < PLACE]
    stated = [
        claim(condition_of, gain_of, "here", noisy),
        claim(condition_of, gains(paper), "the paper", noisy),
    ]
    lines = [
        (s.env, s.method, s.seed, s.steps, s.samples, s.noise, i, float(value))
        for s in found
        for i, value in enumerate(s.eigenvalues, start=1)
    ]
    columns = ["env", "method", "seed", "steps", "samples", "noise", "i", "eigenvalue"]
    write_csv(out / "data" / "spectra.csv", columns, lines)
    methods = ", ".join(dict.fromkeys(s.method for s in found))
    samples = f"{min(s.samples for s in found):,}"
    write_report(
        f"""# Conditioning

Figure 3 of the paper: the ratio of the Hessian's largest eigenvalue to each of the
following ones, at the end of training ({methods} from `wng reproduce pg`, settings `released`).

{claims_table(stated)}

![Ratios of eigenvalues by task](figures/spectra.png)

{table(tasks, gain_of)}

![Gain of WNPG against conditioning](figures/heuristic.png)

## How to read this report

The Hessian is that of the surrogate objective E[ρA] with respect to the policy's parameters, on one
batch of {samples} steps of the final policy. Its leading eigenvalues, ordered by magnitude, come
from Lanczos iterations on Hessian-vector products; the matrix is never formed. Ratios are of
absolute values: geometric means over runs, with bands from minimum to maximum. "Above noise" is the
number of leading eigenvalues, averaged over runs, that exceed the largest one that chance alone
gives on equally many steps (with the advantages of other steps). Ratios in brackets belong to
eigenvalues within that noise: they compare batches, not tasks. The last two columns are differences
of mean final returns relative to PG's. The paper gives neither a threshold nor a correlation.
`wng diagnose RUN` computes the same for your own run.
Data: [eigenvalues](data/spectra.csv).

{appendix(command, summarize_missing(missing))}
""",
        out,
        "wng: conditioning",
    )
    return stated
