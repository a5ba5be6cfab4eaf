"""What the fuzz tests share: numbers of examples, values of all kinds, what may be printed.

By default the examples are few and always the same. WNG_FUZZ=50 tries 50 times as many, random
ones; hypothesis then prints the seed of a failure.
"""

import contextlib
import io
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from wng import cli
from wng.cli.console import STOPPED

TIMES = int(os.environ.get("WNG_FUZZ", "0"))
POINT = "wng/PointWall-v0"
TINY = {
    "bgwnes": "--population 6 --hidden 3 --num-basis 3 --dual-features 4 --steps 600",
    "pg": "--num-envs 2 --rollout 16 --minibatch 16 --value-minibatch 16 --hidden 3 --epochs 1 "
    "--value-epochs 1 --backend gymnasium --steps 32",
}
TINY_RUN = {method: f"train {method} --env {POINT} {more}".split() for method, more in TINY.items()}
REFUSALS = (ValueError, RuntimeError, OSError)  # what `wng.cli.main` takes for a user's mistake


def fuzz(examples: int) -> Callable:
    """Settings of a test with so many examples in the fast mode."""
    return settings(
        max_examples=examples * max(1, TIMES),
        derandomize=not TIMES,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


STRINGS = [  # not "/": a run there, or a search of the whole disk, is what one would ask for
    *["", " ", "-", "--", "=", "--=", "-1", "nan", "inf", "1e400", "0x10", "1_0", "None", "True"],
    *["[]", "{", "%s", "..", "~", "a/b", "a:b", ":", ".a:b", "'", '"', "[bold]", "[/]"],
    *["٣", "é→λ", "a\nb", "\u2028", "x" * 5000, "9" * 5000],
]
TEXTS = st.one_of(
    st.sampled_from(STRINGS),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
)
LARGE = [10**6, 10**9, 2**31, 10**12, 2**63, 10**30, 10**400, -(10**12)]
FLOATS = [0.0, -0.0, 1.0, 0.5, 1e-45, 1e-300, 1e39, 1e300, math.nan, math.inf, -math.inf]
NUMBERS = st.one_of(
    st.integers(-3, 12), st.sampled_from(LARGE), st.floats(), st.sampled_from(FLOATS)
)
OF_NUMPY = [np.int64(4), np.float32(0.5), np.float64("nan"), np.bool_(True), np.str_("a")]
ODD = st.one_of(
    st.sampled_from([None, True, False, (), [], {}, b"bytes", 1j, object]),
    st.sampled_from([*OF_NUMPY, np.zeros(0), np.ones(3), np.array(2)]),
)
VALUES = st.one_of(NUMBERS, TEXTS, ODD, st.lists(st.one_of(NUMBERS, TEXTS), max_size=3).map(tuple))


@contextlib.contextmanager
def seconds(most: float) -> Iterator[None]:
    """Fail if the block takes longer: to hang is no answer."""

    def fail(*_: Any) -> None:
        raise AssertionError(f"no end after {most} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, most)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def refused(call: Callable[[], Any]) -> str | None:
    """None if the call works, or its one sentence; any other exception passes through."""
    try:
        with seconds(60):
            call()
    except REFUSALS as error:
        assert_sentence(str(error))
        return str(error)
    return None


def assert_sentence(text: str) -> None:
    """One line that says something."""
    assert len(text.splitlines()) == 1, text
    assert " " in text.strip(), text


def process(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A real `wng`."""
    return subprocess.run(
        [sys.executable, "-c", "from wng.cli import main; main()", *words],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=120,
    )


def run(*words: str) -> tuple[int, str]:
    """The exit code of `wng words…` and what it printed; a traceback passes through.

    The code is 0, or that of a run that was stopped, or 2 with one sentence on standard error, or
    with tyro's message about a flag.
    """
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["wng", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), seconds(60):
            cli.main()
        code = 0
    except SystemExit as end:
        code = end.code  # type: ignore[assignment]
    finally:
        sys.argv = before
    error = err.getvalue()
    if code == 2 and error.startswith("wng: "):
        assert error.endswith("\n"), error
        assert_sentence(error)
    elif code == 2:
        assert "Traceback" not in error, error
        assert "For full helptext, " in error, error
        assert out.getvalue() == "", out.getvalue()
    else:
        assert code in (0, None, STOPPED), (code, error)
        assert error == "", error
    return code or 0, out.getvalue() + error
