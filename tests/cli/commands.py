"""`wng` as if typed."""

import re
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


def text_of(capsys: pytest.CaptureFixture) -> str:
    """What tyro prints about a wrong flag, on standard error, without the box around it."""
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    return without_boxes(printed.err)


def without_boxes(text: str) -> str:
    """The words of a text in boxes."""
    return " ".join(re.sub("[│╭╮╰╯─]|--+(?![a-z])", " ", text).split())
