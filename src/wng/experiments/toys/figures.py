"""Figures of the Gaussian study: the paper's six panels, and further ones."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from wng.estimator.gaussian import Parameterization
from wng.experiments.output import BLUE, GRAY, GREEN, ORANGE, RED, figure, save
from wng.experiments.toys import study as toys
from wng.experiments.toys.axes import GEOMETRIES, PROXIMITIES
from wng.experiments.toys.descent import BROKEN, CONVERGED, STATUS, Run
from wng.experiments.toys.study import PAPER_METHODS, PARAMETERIZATIONS, Study

COLORS = dict(zip(PAPER_METHODS, (GRAY, ORANGE, GREEN, BLUE, RED), strict=True))
FLOOR = 1e-16
ERRORS: Any = {"xlabel": "iteration + 1", "ylabel": "error L(θ)", "ylim": (FLOOR, 1e3)}


def draw_curve(axis: Axes, run: Run, label: str, color: object, **style: object) -> None:
    """Draw the error against iterations, with a cross where the run broke down."""
    shown = shown_iterations_of(run)
    shown = shown[run.error[shown] >= FLOOR]
    axis.loglog(shown + 1, run.error[shown], color=color, label=label, **style)
    if STATUS[run.status] in BROKEN:
        k = int(run.stopped)
        axis.plot(k + 1, run.error[k], "x", color=color, markersize=8, markeredgewidth=2)


def shown_iterations_of(run: Run) -> np.ndarray:
    """Return the iterations to draw: those before the run stopped."""
    last = min(int(run.stopped), len(run.error) - 1)
    return np.unique(np.geomspace(1, last + 1, 300).round().astype(int)) - 1


def finish(axis: Axes, title: str, **labels: str) -> None:
    """Label a panel, by default of errors against iterations."""
    axis.set(title=title, **(labels or ERRORS))
    axis.legend(frameon=False, fontsize=8)


def paper_figure(study: Study, path: Path) -> None:
    """Draw panels (a)–(f), arranged as in the paper."""
    fig, (a, b, c, d, e, f) = figure(2, 3, (14, 8))
    shades = plt.colormaps["viridis"](np.linspace(0.1, 0.9, len(toys.BETAS)))
    pairs = (("W₂ penalty", "WNG"), ("KL penalty", "FNG"))
    for axis, letter, (penalty, natural) in zip((a, b), "ab", pairs, strict=True):
        for beta, shade in zip(toys.BETAS, shades, strict=True):
            run = study.get("log-diagonal", *PAPER_METHODS[penalty], beta=beta)
            draw_curve(axis, run, f"β = {beta:g}", shade, lw=1.3)
        for label, style in (("gradient descent", {"ls": "--"}), (natural, {"lw": 2.2})):
            run = study.get("log-diagonal", *PAPER_METHODS[label])
            draw_curve(axis, run, label, COLORS[label], **style)
        finish(axis, f"({letter}) {penalty} and {natural}, log-diagonal")
    for label, method in PAPER_METHODS.items():
        color = COLORS[label]
        run = study.get("log-diagonal", *method)
        shown = shown_iterations_of(run)
        c.plot(run.std[shown], run.mean[shown], color=color, label=label, lw=1.8)
        for axis, parameterization in zip((d, e), PARAMETERIZATIONS, strict=True):
            draw_curve(axis, study.get(parameterization, *method), label, color, lw=1.8)
        errors = [study.final("log-diagonal", *method, step_size=s) for s in toys.STEP_SIZES]
        f.loglog(toys.STEP_SIZES, np.maximum(errors, FLOOR), "o-", ms=4, color=color, label=label)
    c.plot(0, 0, "k*", markersize=11)
    finish(c, "(c) first component, log-diagonal", xlabel="σ", ylabel="μ")
    finish(d, "(d) log-diagonal, Σ = exp(2v)")
    finish(e, "(e) diagonal, Σ = v   (×: broke down)")
    title = f"(f) after {study.settings.iterations} iterations, log-diagonal"
    finish(f, title, xlabel="step size λ", ylabel="error L(θ)")
    save(fig, path)


def extension_figure(study: Study, path: Path) -> None:
    """Draw the cost of estimation, the invariance of each method, and the whole grid."""
    fig, (g, h, i, j) = figure(2, 2, (11, 9))
    settings = study.settings
    versions = (("closed form", "wasserstein", RED), ("estimated", "wasserstein-estimated", ORANGE))
    for parameterization, style in zip(PARAMETERIZATIONS, ("-", "--"), strict=True):
        for name, geometry, color in versions:
            run = study.get(parameterization, "none", geometry)
            draw_curve(g, run, f"{name}, {parameterization}", color, ls=style, lw=1.8)
    sizes = f"M = {settings.num_basis}, N = {settings.num_samples}, ε = {settings.damping:g}"
    finish(g, f"(g) estimated WNG: {sizes}")
    marks = [k for k in toys.shown_iterations(settings) if k in (1, 3, 10, 20) or k > 20]
    for label, method in PAPER_METHODS.items():
        log, diagonal = (study.get(p, *method).error[marks] for p in PARAMETERIZATIONS)
        above = (log >= FLOOR) & (diagonal >= FLOOR)
        h.loglog(log[above], diagonal[above], ".-", ms=3, lw=0.8, color=COLORS[label], label=label)
    h.plot([FLOOR, 1e2], [FLOOR, 1e2], color="k", lw=0.8, ls=":")
    title = "(h) errors at equal iterations\n(dotted: invariant to the parameterization)"
    finish(h, title, xlabel="error, log-diagonal", ylabel="error, diagonal")
    for axis, parameterization, name in zip((i, j), PARAMETERIZATIONS, "ij", strict=True):
        heatmap(axis, study, parameterization, f"({name}) final error, {parameterization}")
    save(fig, path)


def heatmap(axis: Axes, study: Study, parameterization: Parameterization, title: str) -> None:
    """Draw the final errors of the 3 × 3 grid."""
    runs = [[study.get(parameterization, p, g) for g in toys.CLOSED_FORM] for p in PROXIMITIES]
    grid = np.array([[run.error[-1] for run in row] for row in runs])
    axis.imshow(np.log10(np.maximum(grid, CONVERGED)), cmap="viridis_r", vmin=-20, vmax=1)
    for (row, column), value in np.ndenumerate(grid):
        text = f"{value:.0e}" if value >= 1e-20 else "< 1e-20"
        if STATUS[runs[row][column].status] in BROKEN:
            text += "\nbroke down"
        axis.text(column, row, text, ha="center", va="center", color="k" if value < 1e-8 else "w")
    axis.set_xticks(range(3), [GEOMETRIES[g].label for g in toys.CLOSED_FORM])
    axis.set_yticks(range(3), [f"penalty: {p.label}" for p in PROXIMITIES.values()])
    axis.set_title(title)
