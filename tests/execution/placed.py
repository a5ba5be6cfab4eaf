"""Objects to be placed elsewhere. No JAX here, so that their processes start at once."""

import os
import signal
from pathlib import Path


class Counter:
    def __init__(self, start: int):
        self.value = start

    def add(self, number: int) -> int:
        self.value += number
        return self.value

    def where(self) -> tuple[int, str | None]:
        return os.getpid(), os.environ.get("WNG_THREADS")

    def close(self) -> None:
        self.value = -1


class Mortal:
    """Kills its process as often as there are names for it on a list."""

    def __init__(self, folder: str):
        self.folder = Path(folder)

    def survive(self, times: int, name: str) -> str:
        deaths = len(list(self.folder.glob(f"{name}*")))
        if deaths < times:
            (self.folder / f"{name}{deaths}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{name} after {deaths} deaths"


class OddError(Exception):
    """Cannot be unpickled: its arguments are not those of Exception."""

    def __init__(self, what: str, where: int):
        super().__init__(f"{what} at {where}")


class Faulty:
    def __init__(self, fault: str):
        self.fault = fault
        if fault == "making":
            raise ValueError("this cannot be made: make another.")

    def work(self) -> None:
        if self.fault == "odd":
            raise OddError("odd", 3)
        raise RuntimeError("environment 3 failed.")
