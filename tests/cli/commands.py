"""`wng` as if typed."""

import sys

import pytest

from wng import cli


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code."""
    monkeypatch.setattr(sys, "argv", ["wng", *words])
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def sentence_of(capsys: pytest.CaptureFixture) -> str:
    """The one line on standard error."""
    error = capsys.readouterr().err
    assert error.startswith("wng: ")
    assert error.count("\n") == 1
    return error
