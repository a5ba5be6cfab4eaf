"""Runs and data of the Gaussian study (`wng reproduce toys`)."""

import dataclasses
import itertools
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich.progress import Progress

from wng.estimator.gaussian import Parameterization
from wng.experiments.output import write_csv
from wng.experiments.toys.axes import (
    GEOMETRIES,
    PROXIMITIES,
    GeometryName,
    ProximityName,
)
from wng.experiments.toys.descent import STATUS, Run, sweep
from wng.experiments.toys.joint import Alignment, alignments
from wng.experiments.toys.settings import ToySettings

STEP_SIZES = tuple(round(float(x), 6) for x in np.geomspace(1e-3, 10, 17))
STARTS = (0.5, 1.0, 2.0, 3.0)  # initial standard deviations; the paper gives none
BETAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
PARAMETERIZATIONS: tuple[Parameterization, ...] = ("log-diagonal", "diagonal")
CLOSED_FORM = tuple(name for name, geometry in GEOMETRIES.items() if geometry.closed_form)
NATURAL: tuple[GeometryName, ...] = ("fisher", "wasserstein")
PAPER_METHODS: dict[str, tuple[ProximityName, GeometryName]] = {
    "gradient descent": ("none", "euclidean"),
    "KL penalty": ("kl", "euclidean"),
    "W₂ penalty": ("wasserstein", "euclidean"),
    "FNG": ("none", "fisher"),
    "WNG": ("none", "wasserstein"),
}


class Method(NamedTuple):
    """A point on the three axes."""

    parameterization: Parameterization
    proximity: ProximityName
    geometry: GeometryName


class Study:
    """All runs, by method, step size and β."""

    def __init__(self, settings: ToySettings):
        self.settings = settings
        self.runs: dict[tuple[Method, float, float], Run] = {}
        self.joint: list[Alignment] = []
        self.starts: dict[tuple[float, GeometryName], Run] = {}  # by initial standard deviation

    def get(self, *method: str, step_size: float | None = None, beta: float | None = None) -> Run:
        """Return one run; step size and β default to those of the settings."""
        step_size = self.settings.step_size if step_size is None else step_size
        beta = self.settings.beta if beta is None else beta
        return self.runs[Method(*method), step_size, beta]  # type: ignore[arg-type]

    def final(self, *method: str, **which: float) -> float:
        """Return the final error of a run."""
        return float(self.get(*method, **which).error[-1])

    def workable(self, method: Method, threshold: float) -> list[float]:
        """Return the step sizes whose final error is at most `threshold`."""
        return [s for s in STEP_SIZES if self.final(*method, step_size=s) <= threshold]


def plan(settings: ToySettings) -> dict[Method, list[tuple[float, float]]]:
    """Return the (step size, β) pairs of every method.

    The paper's methods get all step sizes, the others fewer; the paper's penalized methods also get
    every β at several step sizes.
    """
    methods: dict[Method, list[tuple[float, float]]] = {}
    for axes in itertools.product(PARAMETERIZATIONS, PROXIMITIES, CLOSED_FORM):
        method = Method(*axes)
        paper = method[1:] in PAPER_METHODS.values()
        step_sizes = STEP_SIZES if paper else STEP_SIZES[::4]
        pairs = [(s, settings.beta) for s in (settings.step_size, *step_sizes)]
        if paper and PROXIMITIES[method.proximity].divergence:
            pairs += itertools.product((settings.step_size, *STEP_SIZES[::4]), BETAS)
        methods[method] = list(dict.fromkeys(pairs))
    for parameterization in PARAMETERIZATIONS:
        estimated = Method(parameterization, "none", "wasserstein-estimated")
        methods[estimated] = [(settings.step_size, settings.beta)]
    return methods


def run_study(settings: ToySettings) -> Study:
    """Run the plan, the other starts and the joint estimates, with a progress bar."""
    study = Study(settings)
    with Progress() as progress:
        methods, starts = plan(settings), list(itertools.product(STARTS, NATURAL))
        bar = progress.add_task("Gaussian study", total=len(methods) + len(starts) + 1)
        for method, pairs in methods.items():
            step_sizes, betas = np.array(pairs).T
            runs = sweep(settings, method.proximity, method.geometry, method.parameterization)(
                step_sizes, betas
            )
            for i, (step_size, beta) in enumerate(pairs):
                study.runs[method, step_size, beta] = jax.tree.map(itemgetter(i), runs)
            progress.advance(bar)
        for std, geometry in starts:
            elsewhere = dataclasses.replace(settings, std=std)
            runs = sweep(elsewhere, "none", geometry, "log-diagonal")(
                np.array([settings.step_size]), np.array([settings.beta])
            )
            study.starts[std, geometry] = jax.tree.map(itemgetter(0), runs)
            progress.advance(bar)
        study.joint = alignments(settings)
        progress.advance(bar)
    return study


def shown_iterations(settings: ToySettings) -> np.ndarray:
    """Return every early iteration, then iterations evenly spaced on a logarithmic axis."""
    late = np.geomspace(20, settings.iterations, 180).round().astype(int)
    shown = np.concatenate([np.arange(21), late])
    return np.unique(shown[shown <= settings.iterations])


def write_data(study: Study, folder: Path) -> None:
    """Write CSV files: how every run ended, curves, other initial σ, and joint estimates."""
    ends, curves = [], []
    iterations = shown_iterations(study.settings)
    for (method, step_size, beta), run in study.runs.items():
        end = float(run.error[-1]), STATUS[run.status], int(run.stopped)
        ends.append((*method, step_size, beta, *end))
        if step_size == study.settings.step_size:
            path = zip(iterations.tolist(), *(x[iterations].tolist() for x in run[:3]), strict=True)
            curves += [(*method, beta, *row) for row in path]
    starts = [
        (*key, int(k), float(run.error[k])) for key, run in study.starts.items() for k in iterations
    ]
    header = [*Method._fields, "step_size", "beta", "final_error", "status", "stopped_at"]
    write_csv(folder / "runs.csv", header, ends)
    header = [*Method._fields, "beta", "iteration", "error", "mean_1", "std_1"]
    write_csv(folder / "curves.csv", header, curves)
    write_csv(folder / "starts.csv", ["initial_std", "geometry", "iteration", "error"], starts)
    write_csv(folder / "joint.csv", Alignment._fields, study.joint)
