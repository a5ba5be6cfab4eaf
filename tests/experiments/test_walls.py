import dataclasses
from pathlib import Path

import numpy as np
import pytest

from wng.evolution.methods import METHODS
from wng.experiments import walls
from wng.experiments.walls import Run, WallSettings

TINY = WallSettings(seeds=2, steps=10_000)


def run_of(returns: list[float], past: list[float]) -> Run:
    steps = np.arange(1.0, len(returns) + 1)
    return Run(
        {"steps": steps, "return": np.array(returns), "past_wall": np.array(past)}, np.zeros((3, 2))
    )


def test_the_last_tenth_of_a_run_counts() -> None:
    run = run_of([-1000.0] * 18 + [-600.0, -500.0], [1.0] * 18 + [0.0, 0.0])
    assert run.last_return == -550
    assert not run.past_wall
    assert run_of([0.0] * 19 + [3.0], [0.0] * 18 + [1.0, 1.0]).past_wall


def test_steps_until_past_the_wall() -> None:
    def steps(past: list[float]) -> float:
        return run_of([0.0] * len(past), past).steps_until_past

    assert steps([0.0, 1.0, 0.0, 1.0, 1.0]) == 4
    assert steps([0.0] + [1.0] * 15 + [0.0] + [1.0] * 3) == 2  # a slip in twenty is forgiven
    assert steps([1.0, 1.0, 0.0]) == np.inf


def test_the_table_by_hand() -> None:
    study = {m: [run_of([-600.0], [1.0]), run_of([-800.0], [0.0])] for m in METHODS}
    for line in walls.table(study).splitlines()[2:]:
        assert "| 1/2 | never | -700 [-800, -600] | -700 | -800 | -600 |" in line


def test_a_study_goes_on_where_it_was(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(walls, "METHODS", {m: METHODS[m] for m in ("es", "wnes")})
    study = walls.run_study(TINY, tmp_path)
    assert [len(runs) for runs in study.values()] == [2, 2]
    assert len(study["es"][0].rows["return"]) == 2  # generations of 5,000 steps
    assert study["es"][0].path.shape == (50, 2)
    data = (tmp_path / "data" / "es-1.csv").read_bytes()
    (tmp_path / "data" / "es-1.csv").unlink()
    monkeypatch.setattr(walls, "_run", _only(walls._run, ("es", 1)))
    walls.run_study(TINY, tmp_path)  # only what is missing is run, and it comes out the same
    assert (tmp_path / "data" / "es-1.csv").read_bytes() == data
    with pytest.raises(ValueError, match="holds runs with other settings"):
        walls.run_study(dataclasses.replace(TINY, steps=20_000), tmp_path)


def _only(run, allowed):
    def checked(settings, method, seed, stem) -> None:
        assert (method, seed) == allowed
        run(settings, method, seed, stem)

    return checked


def test_report_and_figures(tmp_path: Path) -> None:
    past = {"es": 0.0, "wnes": 1.0}
    study = {m: [run_of([-700.0] * 9, [past.get(m, 0.0)] * 9)] * 3 for m in METHODS}
    walls.draw_curves(study, "wng/PointWall-v0", tmp_path / "curves.png")
    walls.draw_paths(study, "wng/PointWall-v0", tmp_path / "paths.png")
    walls.write_report(study, TINY, "wng reproduce es", tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "WNES gets past the wall in 3 seeds, the best baseline in 0: the claim holds" in text
    assert "BG-WNES gets past the wall in 0 seeds" in text
    assert all((tmp_path / f"{name}.png").stat().st_size > 10_000 for name in ("curves", "paths"))
