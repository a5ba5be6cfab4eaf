import csv
from pathlib import Path

import numpy as np
import pytest

from wng.experiments import toys_figures, toys_report, toys_study
from wng.experiments.toys import ToySettings
from wng.experiments.toys_study import Method, Study

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
    toys_report.write_report(study, "wng reproduce toys", tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text()
    for claim in toys_report.claims(study):
        assert claim.claim in text
        assert claim.verdict in (toys_report.HOLDS, toys_report.PART, toys_report.FAILS)


def test_verdicts_follow_the_data(study: Study) -> None:
    """WNG cannot reach 1e-8 in 40 iterations, and can in the full study's 4000."""
    verdicts = {claim.claim: claim.verdict for claim in toys_report.claims(study)}
    claim = "WNG reaches an error of 1e-8 (d)"
    reached = [study.final(p, "none", "wasserstein") <= 1e-8 for p in ("diagonal", "log-diagonal")]
    assert verdicts[claim] == toys_report.verdict(*reached)
    assert toys_report.verdict(True, False) == toys_report.PART
    assert toys_report.verdict(False) == toys_report.FAILS


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
