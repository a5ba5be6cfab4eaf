import csv
from pathlib import Path

import numpy as np
import pytest

from wng.experiments.toys import figures as toys_figures
from wng.experiments.toys import report as toys_report
from wng.experiments.toys import study as toys_study
from wng.experiments.toys.settings import ToySettings
from wng.experiments.toys.study import Method, Study

pytestmark = pytest.mark.slow

SETTINGS = ToySettings(dim=3, iterations=40)


@pytest.fixture(scope="module")
def study() -> Study:
    return toys_study.run_study(SETTINGS)


def test_every_method_of_the_grid_is_run(study: Study) -> None:
    methods = {method for method, _, _ in study.runs}
    assert len(methods) == 3 * 3 * 2 + 2
    for method in methods:
        assert study.get(*method).error.shape == (41,)


def test_data_figures_and_report(study: Study, tmp_path: Path) -> None:
    toys_study.write_data(study, tmp_path)
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(study.runs)
    first = study.runs[Method("log-diagonal", "none", "euclidean"), 0.9, 0.1]
    assert float(rows[0]["final_error"]) == pytest.approx(float(first.error[-1]), rel=1e-6)
    toys_figures.paper_figure(study, tmp_path / "toys.png")
    toys_figures.extension_figure(study, tmp_path / "beyond.png")
    for name in ("toys.png", "beyond.png"):
        assert (tmp_path / name).stat().st_size > 50_000
    text = toys_report.report(study, "wng reproduce toys")
    for claim in toys_report.claims(study):
        assert f"| {claim.claim} | {claim.paper} | {claim.here} | {claim.verdict} |" in text


def verdict_of(study: Study, start: str) -> str:
    (found,) = (c.verdict for c in toys_report.claims(study) if c.claim.startswith(start))
    return found


def test_verdicts_follow_the_data(study: Study) -> None:
    """The same study with planted final errors."""
    planted = Study(SETTINGS)
    planted.runs, planted.starts = dict(study.runs), study.starts

    def plant(error: float, *method: str) -> None:
        for key, run in study.runs.items():
            if key[0] == Method(*method):
                errors = np.append(run.error[:-1], error)
                planted.runs[key] = run._replace(error=errors)

    def plant_both(error: float, proximity: str, geometry: str) -> None:
        plant(error, "diagonal", proximity, geometry)
        plant(error, "log-diagonal", proximity, geometry)

    plant_both(1e-9, "none", "wasserstein")
    plant_both(1e-4, "none", "fisher")
    assert verdict_of(planted, "WNG reaches an error") == toys_report.HOLDS
    assert verdict_of(planted, "FNG then slows down") == toys_report.HOLDS
    plant_both(1e-7, "none", "wasserstein")
    plant_both(1e-2, "none", "fisher")
    assert verdict_of(planted, "WNG reaches an error") == toys_report.FAILS
    assert verdict_of(planted, "FNG then slows down") == toys_report.PART
    plant(1e-6, "diagonal", "wasserstein", "euclidean")
    assert verdict_of(planted, "Diagonal: WNG and the W₂") == toys_report.HOLDS
    plant(1e-1, "diagonal", "wasserstein", "euclidean")
    assert verdict_of(planted, "Diagonal: WNG and the W₂") == toys_report.FAILS


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    method = Method("log-diagonal", "none", "wasserstein-estimated")
    for name in ("a", "b"):
        again = Study(SETTINGS)
        runs = toys_study.sweep(SETTINGS, "none", "wasserstein-estimated", "log-diagonal")(
            np.array([0.9]), np.array([0.1])
        )
        again.runs[method, 0.9, 0.1] = type(runs)(*(a[0] for a in runs))
        toys_study.write_data(again, tmp_path / name)
    for file in ("runs.csv", "curves.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
