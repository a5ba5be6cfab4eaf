"""Lint, format and types: part of the test suite, so that one command checks everything."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    ["ruff check", "ruff format --check", "pyrefly check"],
    ids=lambda c: c.replace(" ", "-"),
)
def test_source_passes(command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
