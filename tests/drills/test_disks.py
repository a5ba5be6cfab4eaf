"""A disk that is full, and one that is read-only: see disks.py."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent


def namespace() -> list[str]:
    """What gives a process mounts of its own, if anything does."""
    for words in (["unshare", "-rm"], ["unshare", "-m"]):
        try:
            if subprocess.run([*words, "true"], capture_output=True).returncode == 0:
                return words
        except FileNotFoundError:
            continue
    return []


@pytest.mark.slow
@pytest.mark.parametrize("times", [(40, 5)])
def test_disks(tmp_path: Path, times: tuple[int, int]) -> None:
    words = [sys.executable, "-W", "error", "-m", "drills.disks", str(tmp_path), *map(str, times)]
    ended = subprocess.run([*namespace(), *words], cwd=TESTS, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-5000:]
