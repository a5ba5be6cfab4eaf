"""The paper's claims about the Gaussian study, with verdicts computed from the runs."""

from collections.abc import Mapping

import numpy as np

from wng.experiments.report import FAILS, HOLDS, PART, Claim
from wng.experiments.toys import study as toys
from wng.experiments.toys.descent import BROKEN, STATUS
from wng.experiments.toys.study import PAPER_METHODS, PARAMETERIZATIONS, Method, Study


def verdict(*conditions: bool) -> str:
    """Return whether all, some or none of the conditions hold."""
    return HOLDS if all(conditions) else PART if any(conditions) else FAILS


def reached(study: Study, method: Method, level: float) -> int | None:
    """Return the first iteration with an error of at most `level`."""
    hits = np.flatnonzero(study.get(*method).error <= level)
    return int(hits[0]) if hits.size else None


def best_penalty(study: Study, method: Method) -> tuple[float, float, float]:
    """Return the lowest final error over all β and step sizes, with its β and step size."""
    return min((float(r.error[-1]), b, s) for (m, s, b), r in study.runs.items() if m == method)


def listed(values: Mapping[str, object]) -> str:
    """Format named values as `name: value; name: value`."""
    return "; ".join(f"{name}: {value}" for name, value in values.items())


def claims(study: Study) -> list[Claim]:
    """Return every claim with a verdict computed from the runs."""
    return [*natural_claims(study), *penalty_claims(study), *robustness_claims(study)]


def natural_claims(study: Study) -> list[Claim]:
    """Return the claims that compare the two natural gradients."""
    fng, wng = (
        {p: study.get(p, "none", geometry).error for p in PARAMETERIZATIONS}
        for geometry in toys.NATURAL
    )
    end = {
        label: (float(run.mean[-1]), float(run.std[-1]))
        for label in ("FNG", "WNG")
        for run in [study.get("log-diagonal", *PAPER_METHODS[label])]
    }
    early = [k for k in (1, 3, 10, 30) if k <= study.settings.iterations]
    faster = {}
    for std in toys.STARTS:
        fisher, wasserstein = (study.starts[std, geometry].error for geometry in toys.NATURAL)
        faster[f"{std:g}"] = [k for k in early if fisher[k] < wasserstein[k]]
    dim = study.settings.dim
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
            + listed({std: ahead or "none" for std, ahead in faster.items()}),
            verdict(*(bool(ahead) for ahead in faster.values())),
        ),
        Claim(
            "FNG then slows down to a final error of 1e-4 and does not reach WNG's (d, e)",
            "1e-4",
            listed({p: f"{e[-1]:.1e} ({e[-1] / dim:.1e} per dimension)" for p, e in fng.items()}),
            verdict(
                all(3e-5 < e[-1] < 3e-4 for e in fng.values()),
                all(e[-1] > 1e-6 for e in fng.values()),
            ),
        ),
        Claim(
            "WNG reaches an error of 1e-8 (d)",
            "1e-8",
            "first iteration with error ≤ 1e-8: "
            + listed({p: reached(study, Method(p, "none", "wasserstein"), 1e-8) for p in wng}),
            verdict(*(bool(e[-1] <= 1e-8) for e in wng.values())),
        ),
    ]


def penalty_claims(study: Study) -> list[Claim]:
    """Return the claims that compare a W₂ penalty with gradient descent and with WNG."""
    penalty = Method("log-diagonal", *PAPER_METHODS["W₂ penalty"])
    descent = study.get("log-diagonal", *PAPER_METHODS["gradient descent"]).error
    least = min(toys.BETAS)
    gap = float(np.max(np.abs(study.get(*penalty, beta=least).error / descent - 1)))
    at_default = {f"β {b:g}": study.final(*penalty, beta=b) for b in toys.BETAS}
    wng, wng_diagonal = (study.final(p, *PAPER_METHODS["WNG"]) for p in PARAMETERIZATIONS)
    error, beta, step_size = best_penalty(study, penalty)
    diagonal = penalty._replace(parameterization="diagonal")
    run, best_diagonal = study.get(*diagonal), best_penalty(study, diagonal)[0]
    by_wng = study.final("log-diagonal", "wasserstein", "wasserstein")
    by_descent = study.final(*penalty)
    return [
        Claim(
            "For small β, the W₂ penalty behaves like gradient descent (a)",
            "qualitative",
            f"β = {least:g}: errors within {gap:.1%} of gradient descent's at every iteration",
            verdict(gap < 0.05),
        ),
        Claim(
            "Log-diagonal: the W₂ penalty's error is of order 1e0 for various β (a)",
            "1e0",
            f"λ = {study.settings.step_size}: "
            + ", ".join(f"{b}: {e:.0e}" for b, e in at_default.items()),
            verdict(*(0.1 <= e <= 10 for e in at_default.values())),
        ),
        Claim(
            "Log-diagonal: WNG performs best; the W₂ penalty is far behind for every β (a)",
            "1e-8 against 1e0",
            f"WNG {wng:.0e}; penalty, best over all β and λ: "
            f"{error:.0e} (β = {beta:g}, λ = {step_size:.2g})",
            verdict(error > 1e4 * max(wng, 1e-16)),
        ),
        Claim(
            "Diagonal: WNG and the W₂ penalty reach a similar error of 1e-6 (e)",
            "1e-6 both",
            f"WNG {wng_diagonal:.0e}; W₂ penalty: {STATUS[run.status]} at iteration "
            f"{int(run.stopped)}, error {run.error[-1]:.0e}; best over all β and λ: "
            f"{best_diagonal:.0e}",
            verdict(best_diagonal <= 1e2 * max(wng_diagonal, 1e-8)),
        ),
        Claim(
            "WNG optimizes a W₂ penalty better than gradient descent does",
            "qualitative",
            f"log-diagonal, final error: {by_wng:.0e} against {by_descent:.0e}",
            verdict(by_wng < by_descent),
        ),
    ]


def robustness_claims(study: Study) -> list[Claim]:
    """Return the claims about parameterizations and step sizes."""
    ends = {label: study.get("diagonal", *method) for label, method in PAPER_METHODS.items()}
    broken = [label for label, run in ends.items() if STATUS[run.status] in BROKEN]
    wng = [study.final(p, *PAPER_METHODS["WNG"]) for p in PARAMETERIZATIONS]
    initial = float(study.get("log-diagonal", "none", "euclidean").error[0])
    workable = {
        label: study.workable(Method("log-diagonal", *method), initial / 1e3)
        for label, method in PAPER_METHODS.items()
    }
    decades = {k: float(np.log10(max(v) / min(v))) if v else 0.0 for k, v in workable.items()}
    ranges = {
        label: f"{min(v):.2g}–{max(v):.2g} ({decades[label]:.2g} decades)" if v else "none"
        for label, v in workable.items()
    }
    ours = decades.pop("WNG")
    return [
        Claim(
            "WNG is robust to the parameterization",
            "qualitative",
            "final error of WNG: "
            + listed(dict(zip(PARAMETERIZATIONS, (f"{e:.0e}" for e in wng), strict=True)))
            + f"; methods that break down in the diagonal one: {', '.join(broken) or 'none'}",
            verdict(max(wng) <= 1e-8 and "WNG" not in broken),
        ),
        Claim(
            "WNG tolerates the widest range of step sizes (f)",
            "qualitative",
            "step sizes that reduce the error by a factor of 1000: " + listed(ranges),
            verdict(ours >= max(decades.values()), ours > max(decades.values())),
        ),
    ]
