"""How often a fault was tried, how often it was survived, and what was lost."""

import contextlib
import json
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType


class LostError(AssertionError):
    """Something that had been saved is gone, or is not what it was."""


def record(fault: str, tried: int, survived: int, lost: int, note: str = "") -> None:
    """Append a JSON line to the file that the environment variable WNG_DRILLS names, if it does."""
    if path := os.environ.get("WNG_DRILLS"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        row = {"fault": fault, "tried": tried, "survived": survived, "lost": lost, "note": note}
        with open(path, "a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


class Drill:
    """Trials of one fault: all are made, then recorded, and then any failure fails the test."""

    def __init__(self, fault: str, note: str = ""):
        self.fault, self.note = fault, note
        self.tried = self.lost = 0
        self.failures: list[str] = []

    @contextlib.contextmanager
    def trial(self, what: object = "") -> Iterator[None]:
        self.tried += 1
        try:
            yield
        except (Exception, SystemExit) as error:
            self.lost += isinstance(error, LostError)
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            self.failures.append(f"{what}: {type(error).__name__}: {error}\n{where}")

    def __enter__(self) -> "Drill":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            survived = self.tried - len(self.failures)
            record(self.fault, self.tried, survived, self.lost, self.note)
            assert self.tried
            assert not self.failures, "\n".join(self.failures)
