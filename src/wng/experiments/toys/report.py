"""Report of the Gaussian study: each claim of the paper next to the measurement."""

from wng.experiments.output import markdown_table
from wng.experiments.report import FAILS, HOLDS, PART, claims_table
from wng.experiments.toys import joint
from wng.experiments.toys import study as toys
from wng.experiments.toys.axes import GEOMETRIES, PROXIMITIES
from wng.experiments.toys.claims import claims, reached
from wng.experiments.toys.descent import STATUS
from wng.experiments.toys.study import PAPER_METHODS, PARAMETERIZATIONS, Method, Study

COUNTS = {HOLDS: "hold", PART: "hold in part", FAILS: "do not hold"}


def grid_table(study: Study) -> str:
    """Tabulate the final errors of the whole grid at the default step size and β."""
    rows = []
    for parameterization in PARAMETERIZATIONS:
        for proximity in PROXIMITIES:
            cells = []
            for geometry in toys.CLOSED_FORM:
                run = study.get(parameterization, proximity, geometry)
                end = f" ({STATUS[run.status]} at {int(run.stopped)})" if run.status else ""
                cells.append(f"{run.error[-1]:.1e}{end}")
            rows.append((parameterization, PROXIMITIES[proximity].label, *cells))
    return markdown_table(("Σ", "penalty", *(GEOMETRIES[g].label for g in toys.CLOSED_FORM)), rows)


def estimated_text(study: Study) -> str:
    """Describe how estimating the geometry from samples affects WNG."""
    lines = []
    for parameterization in PARAMETERIZATIONS:
        method = Method(parameterization, "none", "wasserstein-estimated")
        closed = Method(parameterization, "none", "wasserstein")
        run, hit = study.get(*method), reached(study, method, 1e-8)
        end = f" ({STATUS[run.status]} after {int(run.stopped)} iterations)" if run.status else ""
        lines.append(
            f"- {parameterization}: error ≤ 1e-8 "
            f"{'never' if hit is None else f'after {hit} iterations'} (closed form: "
            f"{reached(study, closed, 1e-8)}); final error {run.error[-1]:.1e}{end}."
        )
    return "\n".join(lines)


def invariance(study: Study) -> str:
    """List the ratios of the errors in the two parameterizations for the natural gradients."""
    found = []
    last = min(60, study.settings.iterations)
    for label in ("FNG", "WNG"):
        log, diagonal = (study.get(p, *PAPER_METHODS[label]).error for p in PARAMETERIZATIONS)
        ratios = [f"{log[k] / diagonal[k]:.2g} at {k}" for k in (10, 20, 40, last)]
        found.append(f"{label} {', '.join(ratios)}")
    return "; ".join(found)


def joint_table(study: Study) -> str:
    """Tabulate the cosines with the exact natural gradient by M and ε."""
    cosines = {(a.num_basis, a.damping): a.cosine for a in study.joint}
    rows = [
        (f"M = {m}", *(f"{cosines[m, e]:.2f}" for e in joint.DAMPINGS)) for m in joint.NUM_BASIS
    ]
    return markdown_table(("", *(f"ε = {e:g} λ_max" for e in joint.DAMPINGS)), rows)


def report(study: Study, command: str) -> str:
    """Return the report as Markdown."""
    settings = study.settings
    found = claims(study)
    verdicts = [claim.verdict for claim in found]
    counts = ", ".join(f"{verdicts.count(v)} {words}" for v, words in COUNTS.items())
    chosen = ", ".join(f"{f} = {getattr(settings, f)}" for f in settings.__dataclass_fields__)
    return f"""# The Gaussian study: Fisher against Wasserstein

`{command}`

The task is to minimize L(θ) = E[Σ(1 − sin(x_i)/x_i)] over a Gaussian with diagonal covariance in
{settings.dim} dimensions. The objective is exact (quadrature, float64). The study has
{len(study.runs)} runs of up to {settings.iterations} gradient evaluations each. Settings: {chosen}.

![The paper's six panels](figures/toys.png)

## The paper's claims

The section "Why use the Wasserstein Natural Gradient?" makes {len(found)} claims that can be
measured: {counts}. Errors are sums over the dimensions, as in the definition of L. All verdicts are
computed from the runs.

{claims_table(found)}

The paper gives neither the initial Gaussian nor the number of inner steps of the penalized methods;
both are flags (`wng reproduce toys --help`). Penalized methods fail at large β because their inner
gradient steps become unstable, once λβ > 2 (W₂) or λβ > 2σ² (KL), not because the penalty makes the
steps small. Curves end at 1e-16; × marks a run that broke down. Step sizes in (f):
{", ".join(f"{s:.2g}" for s in toys.STEP_SIZES)}; β: {", ".join(f"{b:g}" for b in toys.BETAS)}.

## The whole grid

Final error at λ = {settings.step_size}, β = {settings.beta}. A run stops and keeps its error if its
next step would make a variance non-positive or leave |μ| ≤ 40, σ ≤ 40 (diverged). A run has
converged when its error is below 1e-30.

{grid_table(study)}

## Beyond the paper

![Estimated WNG, invariance, the grid](figures/beyond.png)

**The cost of estimation (g).** The same WNG step, with the metric estimated from
{settings.num_samples} samples and {settings.num_basis} kernel basis functions for each coordinate's
(μ, v) and damping {settings.damping:g}:

{estimated_text(study)}

In the log-diagonal parameterization the metric of v is Σ itself. Once Σ falls below the damping,
the step is no longer natural and the error decays as in gradient descent.

**A joint estimate.** The estimate above exploits that the Gaussian factorizes. A single metric for
all {2 * settings.dim} parameters, estimated from {joint.NUM_SAMPLES} samples of the whole vector,
is a much harder problem. The table shows the cosine between its natural gradient and the exact one
at a point with Σ = 0.04, averaged over {joint.SEEDS} seeds; for the Euclidean gradient the cosine
is {study.joint[0].cosine:.2f}.

{joint_table(study)}

Each kernel basis function sees one coordinate. With far fewer basis functions than parameters, the
metric captures only some directions, and a small ε merely removes those: the cosine falls below
that of the plain gradient.

**Invariance (h).** A natural gradient *flow* does not depend on the parameterization, but its
discretization with step size {settings.step_size} does: near the optimum, a WNG step multiplies Σ
by e^(−2λ/3) in the log-diagonal and by 1 − 2λ/3 in the diagonal parameterization. Ratio of the
log-diagonal to the diagonal error at equal iterations: {invariance(study)}.

Data: [`data/runs.csv`](data/runs.csv) (how every run ended),
[`data/curves.csv`](data/curves.csv) (errors and paths at λ = {settings.step_size}),
[`data/starts.csv`](data/starts.csv) (other initial σ), [`data/joint.csv`](data/joint.csv) (joint
estimates).
"""
