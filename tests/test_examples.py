"""Every example runs and writes its picture, and the README's worked example keeps its promise."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(name: str, picture: Path, *options: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / name), str(picture), *options]
    result = subprocess.run(command, cwd=picture.parent, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    return result.stdout


def test_decay_wasserstein_beats_plain_sgd(tmp_path: Path) -> None:
    output = run("decay.py", tmp_path / "decay.png")
    rows = {line.split("  ")[0].strip(): line.split()[-4:] for line in output.splitlines()}
    steps = {name: int(cells[1].lstrip(">")) for name, cells in rows.items() if "sgd" in name}
    assert steps["wng + sgd"] * 20 < steps["sgd"]  # steps to within 1e-4 of the best fit


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("equinox_loop.py", ["--steps", "20", "--seeds", "1"], "wng (damping 0.1) + adam"),
        ("black_box.py", ["--generations", "5", "--seeds", "2"], "BG-WNES"),
        ("custom_environment.py", ["--steps", "4096"], "Mean return of 20 episodes"),
    ],
)
def test_example_runs_with_a_small_budget(
    tmp_path: Path, name: str, options: list[str], expected: str
) -> None:
    assert expected in run(name, tmp_path / "picture.png", *options)
