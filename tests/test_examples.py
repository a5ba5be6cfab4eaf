"""The README's worked example does what the README says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_decay_wasserstein_beats_plain_sgd(tmp_path: Path) -> None:
    picture = tmp_path / "decay.png"
    command = [sys.executable, "examples/decay.py", str(picture)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    rows = {line.split("  ")[0].strip(): line.split()[-4:] for line in result.stdout.splitlines()}
    steps = {name: int(cells[1].lstrip(">")) for name, cells in rows.items() if "sgd" in name}
    assert steps["wng + sgd"] * 20 < steps["sgd"]  # steps to within 1e-4 of the best fit
    assert picture.read_bytes().startswith(b"\x89PNG")
