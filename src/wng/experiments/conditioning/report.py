"""`wng reproduce conditioning`: Hessian spectra at the end of training (Figure `fig:cond_number`).

And a test of the heuristic that the paper draws from them: that Wasserstein natural gradients help
most where the conditioning is poorest.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from wng.agents.load import load
from wng.experiments.conditioning.spectrum import Spectrum, diagnose, draw_spectrum, ratios
from wng.experiments.output import RED, figure, markdown_table, save, write_csv
from wng.experiments.pg.report import by_task
from wng.experiments.pg.study import TABLE
from wng.experiments.report import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    claims_table,
    provenance,
    write_report,
)
from wng.experiments.statistics import rank_correlation
from wng.experiments.study import Job, Run, summarize_missing
from wng.runs.files import read_json, write_json

PLACE = 10  # the ratio |λ₁|/|λ₁₀| stands for a task's conditioning
ENOUGH = 5  # tasks: with fewer no rank correlation can be significant


def spectrum_of(job: Job, root: Path, rollouts: int, number: int) -> Spectrum:
    """From the run's folder if it was computed before, with the same settings."""
    folder = job.folder(root)
    kept = folder / f"spectrum-{rollouts}-{number}.json"
    if kept.exists():
        record = read_json(kept)
        if record["steps"] >= job.steps:
            return Spectrum(**record | {"eigenvalues": np.array(record["eigenvalues"])})
    agent = load(folder)
    try:
        spectrum = diagnose(agent, rollouts, number)
    finally:
        agent.close()
    write_json(kept, spectrum._asdict() | {"eigenvalues": spectrum.eigenvalues.tolist()})
    return spectrum


def spectra(
    jobs: Sequence[Job], root: Path, rollouts: int, number: int, look: Callable[[int], None]
) -> list[Spectrum]:
    """Of all finished runs; `look` is called with how many are done."""
    found = []
    for done, job in enumerate(jobs, start=1):
        if job.finished(root):
            found.append(spectrum_of(job, root, rollouts, number))
        look(done)
    return found


def condition(found: Sequence[Spectrum]) -> float:
    """Geometric mean over runs of |λ₁|/|λ₁₀|."""
    values = [ratios(s.eigenvalues)[:PLACE][-1] for s in found]
    return float(np.exp(np.mean(np.log(values))))


def above_noise(found: Sequence[Spectrum]) -> float:
    """How many leading eigenvalues are larger than chance makes them, mean over runs."""
    return float(np.mean([np.sum(np.abs(s.eigenvalues) > s.noise) for s in found]))


def gains(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """By task: how much more WNPG and BG-WNPG returned than PG, as a share of PG's size."""
    found: dict[str, dict[str, float]] = {}
    for env, ends in by_task(runs).items():
        if "PG" in ends:
            base = float(ends["PG"].mean())
            for name in ("WNPG", "BG-WNPG"):
                if name in ends:
                    gain = (float(ends[name].mean()) - base) / max(abs(base), 1e-9)
                    found.setdefault(env, {})[name] = gain
    return found


def paper_gains() -> dict[str, dict[str, float]]:
    """The same from the paper's Table 1."""
    return {
        env: {
            name: (row[method] - row["pg"]) / abs(row["pg"])
            for name, method in (("WNPG", "wnpg"), ("BG-WNPG", "bgwnpg"))
        }
        for env, row in TABLE.items()
    }


def claim(
    condition_of: dict[str, float],
    gain_of: dict[str, dict[str, float]],
    whose: str,
    noisy: Sequence[str] = (),
) -> Claim:
    """The heuristic, as a rank correlation over tasks. `noisy`: where λ₁₀ says nothing."""
    tasks = [env for env in condition_of if "WNPG" in gain_of.get(env, {})]
    x = np.array([condition_of[env] for env in tasks])
    y = np.array([gain_of[env]["WNPG"] for env in tasks])
    rho, p = rank_correlation(x, y) if len(tasks) >= 2 else (np.nan, np.nan)
    doubtful = [env for env in tasks if env in noisy]
    decided = len(tasks) >= ENOUGH and not doubtful and np.isfinite(p) and p < 0.05
    verdict = UNDECIDED if not decided else HOLDS if rho > 0 else FAILS
    here = f"Spearman's ρ {rho:.2f}, p = {p:.2f}" if np.isfinite(rho) else "no correlation defined"
    few = f"; no verdict with fewer than {ENOUGH}" if len(tasks) < ENOUGH else ""
    unclear = f"; on {len(doubtful)} of them λ₁₀ is within the batch's noise" if doubtful else ""
    return Claim(
        f"WNG helps most where the conditioning is poorest (gain of WNPG over PG, {whose})",
        "a heuristic from six tasks",
        f"{here} over {len(tasks)} tasks{few}{unclear}",
        verdict,
    )


def draw_heuristic(
    condition_of: dict[str, float], gain_of: dict[str, dict[str, float]], to: Path
) -> None:
    """Gain against conditioning, a point for each task."""
    fig, (axis,) = figure(1, 1, (6.5, 4))
    for env, x in condition_of.items():
        if "WNPG" in gain_of.get(env, {}):
            y = gain_of[env]["WNPG"]
            axis.plot(x, 100 * y, "o", color=RED)
            axis.annotate(env, (x, 100 * y), xytext=(5, 5), textcoords="offset points", fontsize=8)
    axis.margins(0.25)
    axis.axhline(0, color="0.7", lw=0.8)
    axis.set_xlabel("|λ₁| / |λ₁₀|, geometric mean over runs")
    axis.set_ylabel("WNPG over PG, % of PG's return")
    save(fig, to)


def shown(mean: np.ndarray, place: int, signal: float) -> str:
    """A ratio, in brackets where the eigenvalue is within the noise."""
    text = f"{mean[place - 1]:.3g}"
    return text if signal >= place else f"({text})"


def write(
    found: Sequence[Spectrum],
    runs: Sequence[Run],
    missing: Sequence[str],
    command: str,
    out: Path,
) -> list[Claim]:
    """Data, figures, report.md and report.html; the claims."""
    draw_spectrum(list(found), out / "figures" / "spectra.png")
    tasks: dict[str, list[Spectrum]] = {}
    for spectrum in found:
        tasks.setdefault(spectrum.env, []).append(spectrum)
    condition_of = {env: condition(group) for env, group in tasks.items()}
    gain_of = gains([run for run in runs if run.job.settings == "released"])
    draw_heuristic(condition_of, gain_of, out / "figures" / "heuristic.png")
    noisy = [env for env, group in tasks.items() if above_noise(group) < PLACE]
    stated = [
        claim(condition_of, gain_of, "here", noisy),
        claim(condition_of, paper_gains(), "the paper", noisy),
    ]
    rows = []
    for env, group in tasks.items():
        length = min(len(s.eigenvalues) for s in group)
        places = [i for i in (2, 5, 10, 20) if i <= length]
        mean = np.exp(np.mean([np.log(ratios(s.eigenvalues)[:length]) for s in group], axis=0))
        negative = np.mean([np.mean(s.eigenvalues < 0) for s in group])
        signal = above_noise(group)
        ours = gain_of.get(env, {})
        rows.append(
            [
                env,
                len(group),
                *(shown(mean, i, signal) if i in places else "–" for i in (2, 5, 10, 20)),
                f"{negative:.0%}",
                f"{signal:.1f}",
                *(f"{ours[m]:+.0%}" if m in ours else "–" for m in ("WNPG", "BG-WNPG")),
            ]
        )
    header = [
        "task",
        "runs",
        *(f"λ₁/λ{i}" for i in "₂₅"),
        "λ₁/λ₁₀",
        "λ₁/λ₂₀",
        "negative",
        "above noise",
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
    table = markdown_table([*header, "WNPG over PG", "BG-WNPG over PG"], rows)
    write_report(
        f"""# Conditioning

Figure `fig:cond_number` of the paper: the ratio of the Hessian's largest eigenvalue to each next
one, at the end of training (runs of `wng reproduce pg`, settings `released`; {methods}).

{claims_table(stated)}

![Ratios of eigenvalues by task](figures/spectra.png)

{table}

![Gain of WNPG against conditioning](figures/heuristic.png)

## How to read this

The Hessian is that of the surrogate objective E[ρA] in the policy's parameters, on one batch of
{samples} steps of the final policy; its leading eigenvalues by Lanczos on Hessian-vector products,
ordered by size, never the matrix itself. Ratios are of absolute values, geometric means over runs,
bands from the least to the largest. Above noise: how many of the leading eigenvalues are larger
than the largest that chance alone gives on as many steps (advantages of other steps), mean over
runs; ratios in brackets are of eigenvalues within that noise, and compare batches, not tasks. The
last two columns are
differences of mean final returns as a share of PG's. The paper gives no threshold and no
correlation. `wng diagnose RUN` computes the same for a run of your own.
Data: [eigenvalues](data/spectra.csv).

## Not run, or failed

{summarize_missing(missing) or "Nothing."}

{provenance(command)}
""",
        out,
        "wng: conditioning",
    )
    return stated
