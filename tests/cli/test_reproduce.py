"""`wng reproduce`, from the command to the page."""

import re
from pathlib import Path

import matplotlib.image
import pytest
from commands import run, sentence_of, text_of

from wng.experiments.es import study as es
from wng.experiments.pg import study as pg

STUDIES = ("toys", "transport", "pg", "es", "conditioning", "efficiency")
FIGURES = {
    "toys/figures/toys",
    "toys/figures/beyond",
    "transport/figures/transport",
    "pg/figures/curves_released",
    "pg/figures/aggregates_released",
    "pg/figures/curves_tuned",
    "pg/figures/aggregates_tuned",
    "es/figures/curves",
    "es/figures/past_wall",
    "es/figures/paths_PointWall-v0_tuned",
    "es/figures/aggregates_PointWall-v0_tuned",
    "es/figures/paths_QuadrupedWall-v0_tuned",
    "es/figures/aggregates_QuadrupedWall-v0_tuned",
    "conditioning/figures/spectra",
    "conditioning/figures/heuristic",
    "efficiency/figures/efficiency",
}


QUADRUPED = {name for name in FIGURES if "Quadruped" in name}


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the scale smoke smaller: one run of each of few methods, without the quadruped."""
    (task,), (wall, _) = pg.SCALES["smoke"].released, es.SCALES["smoke"].tasks
    once = (task._replace(seeds=1),)
    gradients = pg.SCALES["smoke"]._replace(released=once, tuned=once, methods=("wnpg",))
    evolution = es.SCALES["smoke"]._replace(tasks=(wall._replace(seeds=1, steps=2000),))
    monkeypatch.setitem(pg.SCALES, "smoke", gradients)
    monkeypatch.setattr(pg, "PAPER_METHODS", ("pg", "wnpg"))
    monkeypatch.setitem(es.SCALES, "smoke", evolution)


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_everything_at_scale_smoke(monkeypatch, capsys, tmp_path: Path, whole: bool) -> None:
    """Every figure and every table, none empty; and a second time nothing is run again."""
    monkeypatch.chdir(tmp_path)
    if not whole:
        shrink(monkeypatch)
    assert run(monkeypatch, "reproduce", "all", "--scale", "smoke") == 0
    out = tmp_path / "runs" / "smoke"
    figures = {str(p.relative_to(out).with_suffix("")) for p in out.rglob("*.png")}
    assert figures == (FIGURES if whole else FIGURES - QUADRUPED)
    for name in figures:
        assert matplotlib.image.imread(out / f"{name}.png").std() > 0.02, name  # not an empty page
    for study in STUDIES:
        text = (out / study / "report.md").read_text()
        tables = re.findall(r"^\| ---.*\n((?:\|.*\n?)*)", text, re.M)
        assert tables, study
        assert all(table.count("\n|") or table.startswith("|") for table in tables), study
        if whole:
            assert "not run" not in text.split("## Not run, or failed")[0], study
        assert all(p.stat().st_size > 50 for p in (out / study / "data").iterdir()), study
        assert "<img" in (out / study / "report.html").read_text()
    claims = (out / "report.md").read_text()
    for words in ("FNG is faster at first", "BG-WNPG produces the largest", "WNES improves over"):
        assert words in claims
    assert not list((tmp_path / "runs").rglob("failure.txt"))

    runs = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("metrics.csv")}
    assert run(monkeypatch, "reproduce", "efficiency", "--scale", "smoke") == 0
    assert {p: p.stat().st_mtime_ns for p in runs} == runs


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pg --tasks Hoper-v5 --out x", "did you mean 'Hopper-v5'?"),
        ("pg --tasks Hopper-v5", "--tasks needs --out"),
        ("es --tasks Hopper-v5 --out x", "'Hopper-v5' has no wall"),
        ("conditioning --number 5", "--number must be at least 10"),
        ("pg --report-only", "no run has finished"),
        ("es --report-only", "no run has finished"),
        ("conditioning --report-only", "no run has finished"),
        ("efficiency --report-only", "no run has finished"),
    ],
)
def test_mistakes(monkeypatch, capsys, tmp_path: Path, words: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "reproduce", *words.split()) == 2
    assert message in sentence_of(capsys)


@pytest.mark.parametrize("study", ["pg", "es", "conditioning", "efficiency", "toys", "all"])
def test_a_scale_that_is_none(monkeypatch, capsys, tmp_path: Path, study: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "reproduce", study, "--scale", "huge") == 2
    said = text_of(capsys)
    assert "invalid choice 'huge' for argument '--scale'" in said
    assert "Expected one of ('smoke', 'short', 'paper')" in said
    assert list(tmp_path.iterdir()) == []
