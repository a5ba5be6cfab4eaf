"""The walk in docs/architecture.md is what the code does."""

import re
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import wng
from wng import cli

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
PACKAGE = str(Path(wng.__file__).parent)
TINY = """--env wng/ProbeContextual-v0 --steps 64 --rollout 64 --num-envs 1 --minibatch 64
--epochs 1 --value-minibatch 64 --value-epochs 1 --hidden 4 --num-basis 4 --metric-samples 8
--backend gymnasium --quiet"""


def listed() -> tuple[list[str], list[str]]:
    """The functions of the set-up, and of the first iteration."""
    _, walk = PAGE.read_text().split("## From the command to the first update")
    setup, first = walk.split("## Determinism")[0].split("First iteration:")
    found = [re.findall(r"^\d+\. `([^`]+)`", part, re.M) for part in (setup, first)]
    return found[0], found[1]


def test_the_walk_to_the_first_update(monkeypatch, tmp_path: Path) -> None:
    setup, first = listed()
    assert 10 < len(setup) < 20
    called: list[str] = []

    def follow(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            called.append(f"{code.co_filename[len(PACKAGE) + 1 :]}:{code.co_qualname}")

    words = ["wng", "train", "wnpg", *TINY.split(), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    sys.setprofile(follow)
    try:
        cli.main()
    finally:
        sys.setprofile(None)
    counts = Counter(called)
    assert {name: counts[name] for name in setup} == dict.fromkeys(setup, 1)
    assert [name for name in called if name in setup] == setup
    order = [called.index(name) for name in first]
    # The chain is made at the start; its parts are called in the first update.
    order.pop(first.index("estimator/transform.py:scale_by_metric"))
    assert order == sorted(order)
    assert order[0] > called.index(setup[-1])
