import io

import pytest
from rich.console import Console
from rich.text import Text

from wng.runs import progress
from wng.runs.progress import TrainingProgress

FIELDS = {"return": -1234.567, "ε": 0.00123, "skipped": 0}


def show(console: Console) -> str:
    """Two runs, one of them resumed, both ended."""
    with TrainingProgress(console) as display:
        for seed in (0, 1):
            display.add(f"wnpg [Hopper-v5] seed{seed}", 100_000, 20_000 * seed)
        for done in range(21_000, 102_000, 1_000):
            for seed in (0, 1):
                display.update(f"wnpg [Hopper-v5] seed{seed}", done, FIELDS)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_terminal(width) -> None:
    console = Console(width=width, force_terminal=True, file=io.StringIO(), legacy_windows=False)
    shown = show(console)
    assert "\x1b[" in shown
    lines = [Text.from_ansi(line).plain for line in shown.splitlines()]
    assert max(len(line) for line in lines) <= width
    last = [line for line in lines if "seed" in line or width == 40][-2:]
    if width >= 80:
        assert [line[:22] for line in last] == ["wnpg [Hopper-v5] seed0", "wnpg [Hopper-v5] seed1"]
        assert all("101k/100k" in line and "0:00:00 return -1235" in line for line in last)
    if width == 120:
        assert all(line.rstrip().endswith("return -1235  ε 0.00123  skipped 0") for line in last)


def test_plain_lines() -> None:
    printed = show(Console(width=80, file=io.StringIO()))
    assert "\x1b" not in printed
    assert "\r" not in printed
    lines = printed.splitlines()
    assert 16 <= len(lines) <= 20  # ten per cent each
    assert lines[-1].startswith("wnpg [Hopper-v5] seed1  100k/100k  ") or "101k" in lines[-1]
    assert all(line.endswith("return -1235  ε 0.00123  skipped 0") for line in lines)


def test_plain_lines_of_a_slow_run(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    console = Console(file=io.StringIO())
    with TrainingProgress(console) as display:
        display.add("run", 10**9)
        for i in range(100):
            now[0] += 1.0
            display.update("run", i, {})
    assert len(console.file.getvalue().splitlines()) == 10  # type: ignore[attr-defined]


@pytest.mark.parametrize("terminal", [True, False])
def test_what_a_run_without_numbers_is_doing(terminal: bool) -> None:
    console = Console(width=120, force_terminal=terminal, file=io.StringIO(), legacy_windows=False)
    with TrainingProgress(console) as display:
        display.add("wnpg [Hopper-v5] seed0", 100)
        for _ in range(3):
            display.say("wnpg [Hopper-v5] seed0", "compiling")
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [Text.from_ansi(line).plain.rstrip() for line in printed.splitlines()]
    said = [line for line in lines if line.endswith("compiling")]
    assert all(line.startswith("wnpg [Hopper-v5] seed0 ") for line in said)
    assert said if terminal else len(said) == len(lines) == 1


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (950, "950"), (999.7, "1k"), (20_480, "20.5k"), (999_999, "1M"), (1.25e6, "1.25M")],
)
def test_counts(number, text) -> None:
    assert progress._count(number) == text
