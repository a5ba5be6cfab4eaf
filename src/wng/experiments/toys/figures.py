"""Figures of the Gaussian study: the paper's six panels, and what goes beyond them."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from wng.estimator.gaussian import Parameterization
from wng.experiments.output import BLUE, GREEN, GREY, ORANGE, RED, figure, save
from wng.experiments.toys.descent import CONVERGED, STATUS, Geometry, Proximity, Run
from wng.experiments.toys.study import (
    BETAS,
    CLOSED_FORM,
    PARAMETERIZATIONS,
    PROXIMITIES,
    STEP_SIZES,
    Study,
    shown_iterations,
)

# The paper's five methods: label, proximity, geometry, colour.
PAPER_METHODS: tuple[tuple[str, Proximity, Geometry, str], ...] = (
    ("gradient descent", "none", "euclidean", GREY),
    ("KL penalty", "kl", "euclidean", ORANGE),
    ("W₂ penalty", "wasserstein", "euclidean", GREEN),
    ("FNG", "none", "fisher", BLUE),
    ("WNG", "none", "wasserstein", RED),
)
FLOOR = 1e-16
PROXIMITY_LABELS = {"none": "no penalty", "kl": "KL penalty", "wasserstein": "W₂ penalty"}


def draw_curve(axis: Axes, run: Run, label: str, color: object, **style: object) -> None:
    """Error against iterations; a cross where the run broke down."""
    shown = shown_iterations_of(run)
    shown = shown[run.error[shown] >= FLOOR]
    axis.loglog(shown + 1, run.error[shown], color=color, label=label, **style)
    if STATUS[run.status] in ("variance not positive", "diverged"):
        k = int(run.stopped)
        axis.plot(k + 1, run.error[k], "x", color=color, markersize=8, markeredgewidth=2)


def shown_iterations_of(run: Run) -> np.ndarray:
    """Iterations to draw: up to where the run stopped moving."""
    last = min(int(run.stopped), len(run.error) - 1)
    return np.unique(np.geomspace(1, last + 1, 300).round().astype(int)) - 1


def finish(axis: Axes, title: str, *, legend: bool = True) -> None:
    """Labels of an error-against-iterations panel."""
    axis.set(title=title, xlabel="iteration + 1", ylabel="error L(θ)", ylim=(FLOOR, 1e3))
    if legend:
        axis.legend(frameon=False, fontsize=8)


def paper_figure(study: Study, path: Path) -> None:
    """Panels (a)–(f), in the paper's arrangement."""
    fig, (a, b, c, d, e, f) = figure(2, 3, (14, 8))
    shades = plt.colormaps["viridis"](np.linspace(0.1, 0.9, len(BETAS)))
    panels: list[tuple[Axes, Proximity, tuple[str, Proximity, Geometry, str], str]] = [
        (a, "wasserstein", PAPER_METHODS[4], "(a) W₂ penalty and WNG, log-diagonal"),
        (b, "kl", PAPER_METHODS[3], "(b) KL penalty and FNG, log-diagonal"),
    ]
    for axis, proximity, (label, _, geometry, color), title in panels:
        for beta, shade in zip(BETAS, shades, strict=True):
            run = study.get("log-diagonal", proximity, "euclidean", beta=beta)
            draw_curve(axis, run, f"β = {beta:g}", shade, lw=1.3)
        draw_curve(
            axis, study.get("log-diagonal", "none", "euclidean"), "gradient descent", GREY, ls="--"
        )
        draw_curve(axis, study.get("log-diagonal", "none", geometry), label, color, lw=2.2)
        finish(axis, title)
    for label, proximity, geometry, color in PAPER_METHODS:
        run = study.get("log-diagonal", proximity, geometry)
        shown = shown_iterations_of(run)
        c.plot(run.std[shown], run.mean[shown], color=color, label=label, lw=1.8)
        for axis, parameterization in zip((d, e), PARAMETERIZATIONS, strict=True):
            draw_curve(axis, study.get(parameterization, proximity, geometry), label, color, lw=1.8)
        errors = [study.final("log-diagonal", proximity, geometry, step_size=s) for s in STEP_SIZES]
        f.loglog(STEP_SIZES, np.maximum(errors, FLOOR), "o-", ms=4, color=color, label=label)
    c.plot(0, 0, "k*", markersize=11)
    c.set(title="(c) first component, log-diagonal", xlabel="σ", ylabel="μ")
    c.legend(frameon=False, fontsize=8)
    finish(d, "(d) log-diagonal, Σ = exp(2v)")
    finish(e, "(e) diagonal, Σ = v   (×: broke down)")
    f.set(
        title=f"(f) after {study.settings.iterations} iterations, log-diagonal",
        xlabel="step size λ",
        ylabel="error L(θ)",
    )
    f.legend(frameon=False, fontsize=8)
    save(fig, path)


def extension_figure(study: Study, path: Path) -> None:
    """What estimation costs, who is invariant, and the whole grid."""
    fig, (g, h, i, j) = figure(2, 2, (11, 9))
    settings = study.settings
    estimated: list[tuple[Geometry, str]] = [
        ("wasserstein", RED),
        ("wasserstein-estimated", ORANGE),
    ]
    for parameterization, style in zip(PARAMETERIZATIONS, ("-", "--"), strict=True):
        for geometry, color in estimated:
            name = "closed form" if geometry == "wasserstein" else "estimated"
            run = study.get(parameterization, "none", geometry)
            draw_curve(g, run, f"{name}, {parameterization}", color, ls=style, lw=1.8)
    finish(
        g,
        f"(g) WNG estimated: M = {settings.num_basis}, N = {settings.num_samples}, "
        f"ε = {settings.damping:g}",
    )
    marks = [k for k in shown_iterations(settings) if k in (1, 3, 10, 20) or k > 20]
    for label, proximity, geometry, color in PAPER_METHODS:
        log, diagonal = (study.get(p, proximity, geometry).error[marks] for p in PARAMETERIZATIONS)
        above = (log >= FLOOR) & (diagonal >= FLOOR)
        h.loglog(log[above], diagonal[above], ".-", ms=3, lw=0.8, color=color, label=label)
    h.plot([FLOOR, 1e2], [FLOOR, 1e2], color="k", lw=0.8, ls=":")
    h.set(
        title="(h) equal iterations: on the dotted line\nthe parameterisation does not matter",
        xlabel="error, log-diagonal",
        ylabel="error, diagonal",
    )
    h.legend(frameon=False, fontsize=8)
    for axis, parameterization, name in ((i, "log-diagonal", "(i)"), (j, "diagonal", "(j)")):
        heatmap(axis, study, parameterization, f"{name} final error, {parameterization}")
    save(fig, path)


def heatmap(axis: Axes, study: Study, parameterization: Parameterization, title: str) -> None:
    """Final error of the 3 × 3 grid."""
    grid = np.array(
        [[study.final(parameterization, p, g) for g in CLOSED_FORM] for p in PROXIMITIES]
    )
    axis.imshow(np.log10(np.maximum(grid, CONVERGED)), cmap="viridis_r", vmin=-20, vmax=1)
    for row, proximity in enumerate(PROXIMITIES):
        for column, geometry in enumerate(CLOSED_FORM):
            run = study.get(parameterization, proximity, geometry)
            value = grid[row, column]
            text = f"{value:.0e}" if value >= 1e-20 else "< 1e-20"
            if STATUS[run.status] in ("variance not positive", "diverged"):
                text += "\nbroke down"
            color = "k" if value < 1e-8 else "w"
            axis.text(column, row, text, ha="center", va="center", color=color)
    axis.set_xticks(range(3), [g.capitalize() for g in CLOSED_FORM])
    axis.set_yticks(range(3), [PROXIMITY_LABELS[p] for p in PROXIMITIES])
    axis.set_title(title)
