"""Two processes that want the same run at the same moment: exactly one gets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drills.runs import GRADIENT, Outcome, assert_same_run, command
from drills.tally import Drill

TESTS = Path(__file__).parent.parent
ITERATIONS = 400  # enough that both are at it at the same time


class Writer:
    """A process that runs commands."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "drills.writers"],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, words: list[str]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        self.process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("times", [30])
def test_two_writers(tmp_path: Path, times: int) -> None:
    writers = [Writer(), Writer()]
    try:
        command(*GRADIENT.words(tmp_path / "whole", ITERATIONS)).fine()
        assert [writer.answer() for writer in writers] == ["ready\n"] * 2
        for writer in writers:  # what is compiled serves all that follows
            writer.tell(GRADIENT.words(tmp_path / f"own{writer.process.pid}", 2))
        for writer in writers:
            writer.answer()
        with Drill("Two processes start the same run, or go on with it, at once") as drill:
            for number in range(times):
                root = tmp_path / str(number)
                with drill.trial(number):
                    for iterations, flags in ((ITERATIONS // 2, []), (ITERATIONS, ["--resume"])):
                        compete(writers, GRADIENT.words(root, iterations, *flags))
                    assert_same_run(GRADIENT.folder(root), GRADIENT.folder(tmp_path / "whole"))
    finally:
        for writer in writers:
            writer.close()


def compete(writers: list[Writer], words: list[str]) -> None:
    for writer in writers:
        writer.tell(words)
    one, other = sorted(Outcome(*json.loads(writer.answer())) for writer in writers)
    one.fine()
    sentence = other.sentence("seed0")
    assert any(why in sentence for why in ("in use by process", "already holds a run"))
