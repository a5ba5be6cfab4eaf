"""`python -m wng.execution.worker PARENT`: trains one job after another for its parent.

Each line of standard input is JSON: a job, and a log file for everything that is printed. The
answer to each is a line of JSON, its outcome. What is imported and compiled serves all jobs.
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
    """Serve until standard input ends, or Ctrl-C arrives between two jobs."""
    # A shell makes its background processes ignore Ctrl-C, which is how we are stopped.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # Ray blocks it in its workers
    # The parent's number is an argument: it may have been killed while we were importing.
    threading.Thread(target=_stop_with, args=(int(sys.argv[1]),), daemon=True).start()
    # Answers have a descriptor of their own: 1 and 2 belong to the present job.
    answers = os.fdopen(os.dup(1), "w")
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        for line in sys.stdin:
            answers.write(f"{json.dumps(serve(**json.loads(line)))}\n")
            answers.flush()


def serve(job: dict[str, Any], log: str) -> tuple[str, str, tuple[int, ...]]:
    """Train one job; its outcome, as `wng.agents.run.Outcome` has it."""
    with open(log, "a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        # Imported only now, so that the log shows why if this fails.
        from wng.agents.run import Job, Status, run_job
        from wng.runs import setup
        from wng.runs.directory import RunTakenError

        if os.getcwd() not in sys.path:  # for --env module:id and --embedding module:function
            sys.path.append(os.getcwd())
        setup.own_process = True
        try:
            return run_job(Job.from_json(job), progress=False)
        except RunTakenError as error:
            return Status.TAKEN, _one_line(error), ()
        except (ValueError, RuntimeError, OSError) as error:
            print(f"wng: {_one_line(error)}", file=sys.stderr)
            return Status.FAILED, _one_line(error), ()
    except KeyboardInterrupt:
        return "stopped", "", ()
    except Exception as error:
        traceback.print_exc()
        return "failed", f"{type(error).__name__}: {_one_line(error)}", ()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _stop_with(parent: int) -> None:
    """Save and end when the parent has been killed: the run can then be resumed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
