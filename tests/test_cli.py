import sys
from pathlib import Path

import pytest

from wng import cli


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["wng", *words])
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("reprodce",), "did you mean 'wng reproduce'?"),
        (("reproduce", "toy"), "did you mean 'wng reproduce toys'?"),
        (("reproduce", "toys", "--iteration", "3"), "--iterations"),
        (("reproduce", "toys", "--iterations", "0"), "iterations must be positive"),
        (("reproduce", "toys", "--scale", "huge"), "smoke"),
    ],
)
def test_mistakes_end_with_exit_code_2_and_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, words, message: str
) -> None:
    assert run(monkeypatch, *words) == 2
    printed = capsys.readouterr()
    assert message in printed.err + printed.out
    assert "Traceback" not in printed.err + printed.out


@pytest.mark.parametrize("words", [(), ("--help",), ("reproduce",), ("reproduce", "toys", "-h")])
def test_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, words) -> None:
    assert run(monkeypatch, *words) == 0
    assert "wng reproduce toys" in capsys.readouterr().out


def test_reproduce_transport(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    assert run(monkeypatch, "reproduce", "transport", "--out", str(tmp_path)) == 0
    assert "report.md" in capsys.readouterr().out
    assert "--out" in (tmp_path / "report.md").read_text()


def test_an_unwritable_folder_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    for study in ("toys", "transport"):
        assert run(monkeypatch, "reproduce", study, "--out", str(blocked / "x")) == 2
        error = capsys.readouterr().err
        assert error.startswith("wng: ")
        assert error.count("\n") == 1


def test_reproduce_toys_smoke(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    flags = ("--scale", "smoke", "--dim", "2", "--num-samples", "20", "--out", str(tmp_path))
    assert run(monkeypatch, "reproduce", "toys", *flags) == 0
    assert "WNG reaches an error of 1e-8" in capsys.readouterr().out
    written = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    data = {f"data/{name}.csv" for name in ("runs", "curves", "starts", "joint")}
    assert written == data | {"figures/toys.png", "figures/beyond.png", "report.md"}
