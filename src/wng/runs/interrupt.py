"""Ctrl-C and SIGTERM as requests that take effect after the current iteration."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

NOTICE = b"\nwng: saving after this iteration; press Ctrl-C again to stop at once.\n"


@dataclass
class StopRequest:
    """Whether the run has been asked to stop."""

    requested: bool = False


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note the first SIGINT or SIGTERM in `.requested`; a second SIGINT is a KeyboardInterrupt.

    Outside the main thread, where Python allows no handlers, nothing is ever requested.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if request.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not request.requested:
            request.requested = True
            with contextlib.suppress(OSError):
                os.write(2, NOTICE)  # print() may be what was interrupted

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, handle)
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
