"""`python -m wng.execution.worker PARENT`: runs commands one after the other for its parent.

Each line of standard input is JSON: the words after `wng`, and a file for what the command says.
The answer to each is a line with its exit code. What is imported and compiled serves them all.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any


def main() -> None:
    """Serve until standard input ends, or Ctrl-C comes between two commands."""
    # A shell has what it starts in the background ignore Ctrl-C, which is how we are stopped.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # Ray has its workers block it
    # Told who it is: it may have been killed while we were importing.
    threading.Thread(target=_stop_with, args=(int(sys.argv[1]),), daemon=True).start()
    # Answers have a descriptor of their own: 1 and 2 belong to the command under way.
    answers = os.fdopen(os.dup(1), "w")
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        for line in sys.stdin:
            answers.write(f"{serve(json.loads(line))}\n")
            answers.flush()


def serve(task: dict[str, Any]) -> int:
    """One command; its exit code."""
    with open(task["log"], "a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.argv = ["wng", *task["words"]]
    try:
        from wng import cli  # when the log is there: it says so if this fails

        cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        traceback.print_exc()
        # Last, since JAX ends its traceback with advice.
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _stop_with(parent: int) -> None:
    """Save and end when the parent has been killed: whoever comes next needs the run."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
