from pathlib import Path

import matplotlib.axes
import numpy as np
import pytest
from fabricate import fabricate

from wng.experiments.drawing import color_of, draw_curves, draw_panels, std_band
from wng.experiments.study import Trial
from wng.runs.directory import RunDirectory
from wng.runs.metrics import DETERMINISTIC, MetricsWriter

STEPS = np.arange(1.0, 51)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, list]:
    """Records what is plotted and filled."""
    found: dict[str, list] = {"plot": [], "fill_between": []}
    for name, calls in found.items():
        original = getattr(matplotlib.axes.Axes, name)

        def record(self, *args, _original=original, _calls=calls, **kwargs):
            _calls.append((args, kwargs))
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(matplotlib.axes.Axes, name, record)
    return found


def test_a_panel_per_task_and_a_curve_per_method(tmp_path: Path, drawn: dict[str, list]) -> None:
    seeds = [(STEPS, STEPS + 10 * k) for k in range(3)]
    unknown = [(STEPS, np.full(50, np.nan))]  # no episode has ended
    panels = {"A-v0": {"PPO": seeds, "mine": seeds[:1]}, "B-v0": {"WNPG": unknown}}
    to = tmp_path / "deep" / "curves.png"
    assert draw_panels(panels, to, "share", band=std_band) == to
    assert to.stat().st_size > 10_000
    assert [k["label"] for _, k in drawn["plot"]] == ["PPO (3)", "mine (1)", "WNPG (1)"]
    assert [k["color"] for _, k in drawn["plot"]] == [color_of("PPO"), "C1", color_of("WNPG")]
    ((grid, low, high), _), *others = drawn["fill_between"]
    assert not others  # one seed has no band
    np.testing.assert_allclose(low, grid + 10 - np.std([0, 10, 20]))
    np.testing.assert_allclose(high, grid + 10 + np.std([0, 10, 20]))


def test_curves_of_run_folders(tmp_path: Path, drawn: dict[str, list]) -> None:
    trials = [
        Trial(env, method, seed, 1000, "tuned")
        for env in ("Hopper-v5", "Pendulum-v1")
        for method in ("wnpg", "ppo")
        for seed in range(2)
    ]
    fabricate(trials, tmp_path, lambda trial: 5.0)
    folders = [trial.folder(tmp_path) for trial in trials]
    for column in ("return", "seconds"):
        draw_curves(folders, tmp_path / f"{column}.png", column)
        assert (tmp_path / f"{column}.png").stat().st_size > 10_000
    assert [k["label"] for _, k in drawn["plot"]] == ["PPO (2)", "WNPG (2)"] * 4
    np.testing.assert_allclose(drawn["plot"][-1][0][1], 1.0)  # a second per iteration
    assert len(drawn["fill_between"]) == 8


def test_evaluations_are_joined_by_lines(tmp_path: Path, drawn: dict[str, list]) -> None:
    run = RunDirectory.create(tmp_path, "Hopper-v5", "ppo", 0, {})
    values = {2: 10.0, 4: 30.0, 8: 70.0}
    with MetricsWriter(run.path) as writer:
        for k in range(1, 11):
            row = {"iteration": k, "steps": 100 * k, DETERMINISTIC: values.get(k, np.nan)}
            writer.write(row)
    draw_curves([run.path], tmp_path / "curves.png", DETERMINISTIC)
    ((steps, line), _) = drawn["plot"][0]
    np.testing.assert_allclose(steps, np.arange(200, 900, 100))  # from the first to the last
    np.testing.assert_allclose(line, np.arange(10, 80, 10))
    with pytest.raises(ValueError, match="has no numbers in a column 'return'"):
        draw_curves([run.path], tmp_path / "curves.png")


@pytest.mark.parametrize("column", [DETERMINISTIC, "kl"])
def test_a_run_without_evaluations_is_refused(tmp_path: Path, column: str) -> None:
    run = RunDirectory.create(tmp_path, "Hopper-v5", "ppo", 0, {})
    with MetricsWriter(run.path) as writer:
        writer.write({"iteration": 1, "steps": 100, "return": 1.0, column: np.nan})
    with pytest.raises(ValueError, match=r"'return_deterministic': train with --eval-every to"):
        draw_curves([run.path], tmp_path / "curves.png", DETERMINISTIC)


def test_a_run_without_metrics_is_refused(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "Hopper-v5", "ppo", 0, {})
    with pytest.raises(ValueError, match="has no metrics yet"):
        draw_curves([run.path], tmp_path / "curves.png")
