"""The report of the Gaussian study: each claim of the paper beside what was measured."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from wng.experiments.output import markdown_table
from wng.experiments.report import FAILS, HOLDS, PART, Claim, claims_table
from wng.experiments.toys import joint as toys_joint
from wng.experiments.toys.descent import STATUS, Geometry, Proximity
from wng.experiments.toys.figures import PAPER_METHODS
from wng.experiments.toys.study import (
    BETAS,
    CLOSED_FORM,
    PARAMETERIZATIONS,
    PROXIMITIES,
    STARTS,
    STEP_SIZES,
    Method,
    Study,
)

BROKEN = ("variance not positive", "diverged")
LABELS = {(proximity, geometry): label for label, proximity, geometry, _ in PAPER_METHODS}


def verdict(*conditions: bool | np.bool) -> str:
    """All, some or none of the conditions."""
    return HOLDS if all(conditions) else PART if any(conditions) else FAILS


def reached(study: Study, method: Method, level: float) -> int | None:
    """The first iteration with an error of at most `level`."""
    hits = np.flatnonzero(study.get(*method).error <= level)
    return int(hits[0]) if hits.size else None


def best_penalty(study: Study, method: Method) -> tuple[float, float, float]:
    """Lowest final error over every β and step size tried, and those two."""
    runs = [(float(r.error[-1]), b, s) for (m, s, b), r in study.runs.items() if m == method]
    return min(runs)


def interval(step_sizes: list[float]) -> str:
    """A range of step sizes in words."""
    if not step_sizes:
        return "none"
    decades = np.log10(max(step_sizes) / min(step_sizes))
    return f"{min(step_sizes):.2g}–{max(step_sizes):.2g} ({decades:.2g} decades)"


def claims(study: Study) -> list[Claim]:
    """Every claim, with a verdict computed from the runs."""
    n = study.settings.iterations
    fng = {p: np.asarray(study.get(p, "none", "fisher").error) for p in PARAMETERIZATIONS}
    wng = {p: np.asarray(study.get(p, "none", "wasserstein").error) for p in PARAMETERIZATIONS}
    early = [k for k in (1, 3, 10, 30) if k <= n]
    faster = {
        std: [
            k
            for k in early
            if study.starts[std, "fisher"].error[k] < study.starts[std, "wasserstein"].error[k]
        ]
        for std in STARTS
    }
    descent = study.get("log-diagonal", "none", "euclidean").error
    small = study.get("log-diagonal", "wasserstein", "euclidean", beta=min(BETAS)).error
    gap = float(np.max(np.abs(small / descent - 1)))
    at_default = [
        study.final("log-diagonal", "wasserstein", "euclidean", beta=beta) for beta in BETAS
    ]
    best_log = best_penalty(study, Method("log-diagonal", "wasserstein", "euclidean"))
    diagonal_penalty = study.get("diagonal", "wasserstein", "euclidean")
    best_diagonal = best_penalty(study, Method("diagonal", "wasserstein", "euclidean"))
    initial = float(descent[0])
    workable = {
        label: study.workable(Method("log-diagonal", proximity, geometry), initial / 1e3)
        for label, proximity, geometry, _ in PAPER_METHODS
    }
    decades = {k: np.log10(max(v) / min(v)) if v else 0.0 for k, v in workable.items()}
    geometries: tuple[Geometry, ...] = ("fisher", "wasserstein")
    end = {
        LABELS["none", geometry]: (float(run.mean[-1]), float(run.std[-1]))
        for geometry in geometries
        for run in [study.get("log-diagonal", "none", geometry)]
    }
    broken = [
        label
        for label, proximity, geometry, _ in PAPER_METHODS
        if STATUS[study.get("diagonal", proximity, geometry).status] in BROKEN
    ]
    per_dim = {p: fng[p][-1] / study.settings.dim for p in PARAMETERIZATIONS}

    def both(values: Mapping[Any, object]) -> str:
        return "; ".join(f"{p}: {v}" for p, v in values.items())

    return [
        Claim(
            "FNG and WNG seem to reach the same solution (c)",
            "same point",
            "first component (μ, σ): "
            + ", ".join(f"{k} ({m:.0e}, {s:.0e})" for k, (m, s) in end.items()),
            verdict(all(abs(m) < 0.05 and s < 0.05 for m, s in end.values())),
        ),
        Claim(
            "FNG is faster at first, WNG slower (d, e)",
            "qualitative",
            f"iterations out of {early} at which FNG is ahead, by initial σ: "
            + "; ".join(f"{std:g}: {v or 'none'}" for std, v in faster.items()),
            verdict(*(bool(v) for v in faster.values())),
        ),
        Claim(
            "FNG then slows down to a final error of 1e-4 (d, e), and does not reach WNG's",
            "1e-4",
            both({p: f"{e[-1]:.1e} (a dimension: {per_dim[p]:.1e})" for p, e in fng.items()}),
            verdict(
                all(3e-5 < e[-1] < 3e-4 for e in fng.values()),
                all(e[-1] > 1e-6 for e in fng.values()),
            ),
        ),
        Claim(
            "WNG reaches an error of 1e-8 (d)",
            "1e-8",
            "iteration of error ≤ 1e-8: "
            + both({p: reached(study, Method(p, "none", "wasserstein"), 1e-8) for p in wng}),
            verdict(*(e[-1] <= 1e-8 for e in wng.values())),
        ),
        Claim(
            "for small β the W₂ penalty behaves like gradient descent (a)",
            "qualitative",
            f"β = {min(BETAS):g}: errors within {gap:.1%} of gradient descent's at every iteration",
            verdict(gap < 0.05),
        ),
        Claim(
            "log-diagonal: the W₂ penalty's error is of order 1e0 for various β (a)",
            "1e0",
            f"λ = {study.settings.step_size}: "
            + ", ".join(f"β {b:g}: {e:.0e}" for b, e in zip(BETAS, at_default, strict=True)),
            verdict(*(0.1 <= e <= 10 for e in at_default)),
        ),
        Claim(
            "log-diagonal: WNG performs best, the W₂ penalty is left far behind for every β (a)",
            "1e-8 against 1e0",
            f"WNG {wng['log-diagonal'][-1]:.0e}; penalty, best of every β and λ tried: "
            f"{best_log[0]:.0e} (β = {best_log[1]:g}, λ = {best_log[2]:.2g})",
            verdict(best_log[0] > 1e4 * max(wng["log-diagonal"][-1], 1e-16)),
        ),
        Claim(
            "diagonal: WNG and the W₂ penalty reach a similar error of 1e-6 (e)",
            "1e-6 both",
            f"WNG {wng['diagonal'][-1]:.0e}; W₂ penalty: {STATUS[diagonal_penalty.status]} at "
            f"iteration {int(diagonal_penalty.stopped)}, error {diagonal_penalty.error[-1]:.0e}; "
            f"best of every β and λ tried {best_diagonal[0]:.0e}",
            verdict(best_diagonal[0] <= 1e2 * max(wng["diagonal"][-1], 1e-8)),
        ),
        Claim(
            "WNG is robust to the parameterisation",
            "qualitative",
            "error ≤ 1e-8 in both; broke down in the diagonal one: "
            + (", ".join(broken) if broken else "none"),
            verdict(all(e[-1] <= 1e-8 for e in wng.values()) and "WNG" not in broken),
        ),
        Claim(
            "a W₂ penalty is optimised better by WNG than by gradient descent",
            "qualitative",
            "log-diagonal, final error: "
            f"{study.final('log-diagonal', 'wasserstein', 'wasserstein'):.0e} against "
            f"{study.final('log-diagonal', 'wasserstein', 'euclidean'):.0e}",
            verdict(
                study.final("log-diagonal", "wasserstein", "wasserstein")
                < study.final("log-diagonal", "wasserstein", "euclidean")
            ),
        ),
        Claim(
            "WNG tolerates the widest range of step sizes (f)",
            "qualitative",
            "error cut by 1000: " + "; ".join(f"{k} {interval(v)}" for k, v in workable.items()),
            verdict(
                decades["WNG"] >= max(map(float, decades.values())),
                decades["WNG"] > max(v for k, v in decades.items() if k != "WNG"),
            ),
        ),
    ]


def grid_table(study: Study) -> str:
    """Final errors of the whole grid at the default step size and β."""
    rows = []
    for parameterization in PARAMETERIZATIONS:
        for proximity in PROXIMITIES:
            cells = []
            for geometry in CLOSED_FORM:
                run = study.get(parameterization, proximity, geometry)
                status = STATUS[run.status]
                note = "" if status == "running" else f" ({status} at {int(run.stopped)})"
                cells.append(f"{run.error[-1]:.1e}{note}")
            rows.append((parameterization, penalty_name(proximity), *cells))
    return markdown_table(("Σ", "penalty", "Euclidean", "Fisher", "Wasserstein"), rows)


def penalty_name(proximity: Proximity) -> str:
    """A penalty in words."""
    return {"none": "none", "kl": "KL", "wasserstein": "W₂"}[proximity]


def estimated_text(study: Study) -> str:
    """What estimating the geometry from samples did to WNG."""
    lines = []
    for parameterization in PARAMETERIZATIONS:
        method = Method(parameterization, "none", "wasserstein-estimated")
        closed = Method(parameterization, "none", "wasserstein")
        run = study.get(*method)
        hit, status = reached(study, method, 1e-8), STATUS[run.status]
        end = "" if status == "running" else f" ({status} after {int(run.stopped)} iterations)"
        lines.append(
            f"- {parameterization}: error ≤ 1e-8 "
            f"{'never' if hit is None else f'after {hit} iterations'} (closed form: "
            f"{reached(study, closed, 1e-8)}); final error {run.error[-1]:.1e}{end}."
        )
    return "\n".join(lines)


def invariance(study: Study) -> str:
    """Ratios of the errors in the two parameterisations, for the natural gradients."""
    found = []
    geometries: tuple[Geometry, ...] = ("fisher", "wasserstein")
    for geometry in geometries:
        log, diagonal = (study.get(p, "none", geometry) for p in PARAMETERIZATIONS)
        last = min(60, study.settings.iterations)
        ratios = [f"{log.error[k] / diagonal.error[k]:.2g} at {k}" for k in (10, 20, 40, last)]
        found.append(f"{LABELS['none', geometry]} {', '.join(ratios)}")
    return "; ".join(found)


def joint_table(study: Study) -> str:
    """Cosines with the exact natural gradient, M by ε."""
    cosines = {(a.num_basis, a.damping): a.cosine for a in study.joint}
    rows = [
        (f"M = {m}", *(f"{cosines[m, e]:.2f}" for e in toys_joint.DAMPINGS))
        for m in toys_joint.NUM_BASIS
    ]
    return markdown_table(("", *(f"ε = {e:g} λ_max" for e in toys_joint.DAMPINGS)), rows)


def report(study: Study, command: str) -> str:
    """The report as Markdown."""
    settings = study.settings
    found = claims(study)
    counts = ", ".join(
        f"{sum(c.verdict == v for c in found)} {v.replace('holds', 'hold')}"
        if v != FAILS
        else f"{sum(c.verdict == v for c in found)} do not hold"
        for v in (HOLDS, PART, FAILS)
    )
    chosen = ", ".join(f"{f} = {getattr(settings, f)}" for f in settings.__dataclass_fields__)
    return f"""# The Gaussian study: Fisher against Wasserstein

`{command}`

Minimise L(θ) = E[Σ(1 − sin(x_i)/x_i)] over a Gaussian with diagonal covariance in
{settings.dim} dimensions, exact by quadrature, float64. {len(study.runs)} runs of up
to {settings.iterations} gradient evaluations each. Settings: {chosen}.

![The paper's six panels](figures/toys.png)

## The paper's claims

Of {len(found)} claims of the section "Why use the Wasserstein Natural Gradient?" that can be
measured, {counts}. Errors here are sums over the dimensions, as L is defined. Verdicts are computed
from the runs.

{claims_table(found)}

The paper gives neither the initial Gaussian nor the number of inner steps of the penalised methods;
both are flags (`wng reproduce toys --help`). Penalised methods fail at a large β here because their
inner gradient steps become unstable, once λβ > 2 (W₂) or λβ > 2σ² (KL), not because the penalty
makes the steps small. Curves end at 1e-16; × marks a run that broke down. Step sizes tried for (f):
{", ".join(f"{s:.2g}" for s in STEP_SIZES)}; β: {", ".join(f"{b:g}" for b in BETAS)}.

## The whole grid

Final error at λ = {settings.step_size}, β = {settings.beta}. A run whose next step would
make a variance non-positive, or leave |μ| ≤ 40 and σ ≤ 40 (diverged), stops there and keeps its
error; one whose error is below 1e-30 has converged.

{grid_table(study)}

## Beyond the paper

![Estimated WNG, invariance, the grid](figures/beyond.png)

**What estimation costs (g).** The same WNG step with the metric estimated from
{settings.num_samples} samples and {settings.num_basis} kernel basis functions for each coordinate's
(μ, v), damping {settings.damping:g}:

{estimated_text(study)}

In the log-diagonal parameterisation the metric of v is Σ itself; once Σ is below the damping the
step is no longer natural, and the error decays like a gradient descent's.

**A joint estimate.** That estimate may use that the Gaussian factorises. One metric for all
{2 * settings.dim} parameters, from {toys_joint.NUM_SAMPLES} samples of the whole vector, has a much
harder task. Cosine between its natural gradient and the exact one, at a point with Σ = 0.04, mean
of {toys_joint.SEEDS} seeds; the Euclidean gradient itself has {study.joint[0].cosine:.2f}:

{joint_table(study)}

A kernel basis function sees one coordinate. Where they are far fewer than the parameters, the
metric knows some directions only, and a small ε merely removes those: a cosine below the
gradient's own.

**Invariance (h).** A natural gradient *flow* does not depend on the parameterisation; its
discretisation with a step size of {settings.step_size} does: near the optimum a WNG step
multiplies Σ by e^(−2λ/3) in the log-diagonal and by 1 − 2λ/3 in the diagonal parameterisation.
Error in the log-diagonal over error in the diagonal one, at equal iterations:
{invariance(study)}.

Data: [`data/runs.csv`](data/runs.csv) (how every run ended),
[`data/curves.csv`](data/curves.csv) (errors and paths at
λ = {settings.step_size}), [`data/starts.csv`](data/starts.csv) (other
initial σ), [`data/joint.csv`](data/joint.csv) (joint estimates).
"""
