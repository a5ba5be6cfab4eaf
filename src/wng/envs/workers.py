"""Runs environments in worker processes, with observations and actions in shared memory.

Why not `gymnasium.vector.AsyncVectorEnv`? Ratios to it (with fork), 8 environments on a busy
two-core machine (load 9 to 10), by `python benchmarks/vector_envs.py --rounds 11 --steps 300`:

  environment                 CPU time per step    steps per second
  Hopper-v5                   187 µs (0.51)        1.86 (0.77 to 1.86 in three full runs)
  InvertedDoublePendulum-v5   170 µs (0.39)        2.41 (1.36 to 2.41)
  CartPole-v1                  42 µs (0.26)        2.22 (2.22 to 2.34)

It has a process per environment, not per core; more than two cores were not measured. Start-up
takes 1.0 to 1.6 s here, 0.1 to 0.3 s with fork (unsafe once JAX has threads), 1.0 to 4.5 s with
spawn. It cannot replay episodes on resume, leaves 8 of 8 hanging processes behind when the parent
is killed (0 of 2 here), and cannot be reset after an environment raises an exception.
"""

import contextlib
import mmap
import os
import pickle
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

import numpy as np

from wng.envs import worker
from wng.envs.base import EnvSpec
from wng.envs.worker import COMMANDS, OK, Buffers, EnvFailedError, read_byte, row_type


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def why_no_workers(gym_spec: Any) -> str | None:
    """Say why an environment cannot run in a worker process, or return None."""
    if os.name != "posix":
        return "worker processes need Linux or macOS"
    entry = gym_spec.entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    if module == "__main__":
        return "it is defined in the running script, which worker processes cannot import"
    try:
        pickle.dumps(gym_spec)
    except Exception:
        return "its registration (a lambda or local class?) cannot be pickled"
    return None


class WorkerRunner:
    """Runs the environments in worker processes, a slice in each.

    These are plain subprocesses, not `multiprocessing`: a fork is unsafe with JAX's threads, and a
    spawned process would import JAX, and rerun a user's script without a `__main__` guard. A step
    costs one byte through a socket to each worker, and one back. If a worker or the parent dies,
    its socket closes and the other side notices.
    """

    def __init__(
        self, spec: EnvSpec, gym_spec: Any, num_envs: int, seed: int, offset: int, once: bool
    ) -> None:
        obstacle = why_no_workers(gym_spec)
        if obstacle:
            raise ValueError(
                f"{spec.id!r} cannot run in worker processes: {obstacle}; move it to an importable "
                "module, or use backend='gymnasium'."
            )
        count = min(available_cores(), num_envs)
        self._id, self._job, self._row = spec.id, (gym_spec, seed, offset, once), row_type(spec)
        self._bounds = [num_envs * w // count for w in range(count + 1)]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._memory = _nameless_file(num_envs * self._row.itemsize)
        # Also runs at exit and on garbage collection, so no process is left behind.
        self.close: Callable[[], Any] = weakref.finalize(
            self, _free, self._processes, self._connections, self._memory
        )
        shared = mmap.mmap(self._memory.fileno(), 0)  # all of it
        self.buffers = Buffers.over(np.frombuffer(shared, self._row))
        try:
            self._start()
        except EnvFailedError as error:
            self.close()
            raise ValueError(
                f"cannot make {spec.id!r} in a worker process ({error.message}): move it to an "
                "importable module, or use backend='gymnasium'."
            ) from error

    def _start(self) -> None:
        memory = self._memory.fileno()
        for _ in self._bounds[1:]:
            ours, theirs = Pipe()
            with theirs:
                # -P keeps this package's own directory off sys.path. The process group makes
                # sure that only the parent gets a Ctrl-C from the terminal.
                process = subprocess.Popen(
                    [sys.executable, "-P", worker.__file__, str(theirs.fileno()), str(memory)],
                    pass_fds=(theirs.fileno(), memory),
                    stdin=subprocess.DEVNULL,
                    process_group=0,
                )
            self._processes.append(process)
            self._connections.append(ours)
        for w, connection in enumerate(self._connections):
            with self._alive(w):
                connection.send(sys.path)
                connection.send((*self._job, *self._bounds[w : w + 2], self._row))
        self._collect()

    def run(self, command: str, *arrays: np.ndarray) -> None:
        """Call a method of `EnvSlice` in every worker, with its rows of the arrays."""
        try:
            if not self._processes:
                self._start()
            for w, connection in enumerate(self._connections):
                with self._alive(w):
                    os.write(connection.fileno(), COMMANDS[command])
                    if arrays:
                        rows = slice(self._bounds[w], self._bounds[w + 1])
                        connection.send([array[rows] for array in arrays])
            self._collect()
        except EnvFailedError:
            raise
        except BaseException:
            # On Ctrl-C, it is unknown which workers have stepped. The next command replays the
            # episodes anyway, and starts new workers.
            _stop(self._processes, self._connections)
            raise

    def _collect(self) -> None:
        """Wait for all workers, then report the first failure."""
        failure = None
        for w, connection in enumerate(self._connections):
            with self._alive(w):
                report = connection.recv() if read_byte(connection) != OK else None
            failure = failure or report
        if failure is not None:
            index, message, trace = failure
            error = EnvFailedError(index, message)
            error.add_note(f"In the worker process:\n{trace}")
            raise error

    @contextlib.contextmanager
    def _alive(self, w: int) -> Iterator[None]:
        """Turn a broken connection into an error that names the worker that died."""
        try:
            yield
        except (EOFError, ConnectionError) as error:
            try:
                code: int | None = self._processes[w].wait(timeout=5)
            except subprocess.TimeoutExpired:
                code = None
            first, last = self._bounds[w], self._bounds[w + 1] - 1
            how = f"was killed by signal {-code}" if code and code < 0 else f"exited ({code})"
            raise RuntimeError(
                f"worker {w}, with environments {first} to {last} of {self._id!r}, {how}: the "
                "simulator may have crashed (see above), or memory may have run out (use fewer "
                "environments)."
            ) from error


def _nameless_file(size: int) -> IO[bytes]:
    """Create shared memory as an unnamed file, which disappears with the processes."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = open(os.memfd_create("wng"), "r+b", buffering=0)  # noqa: SIM115
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    os.ftruncate(file.fileno(), size)
    return file


def _stop(processes: list[subprocess.Popen[bytes]], connections: list[Connection]) -> None:
    for connection in connections:
        connection.close()  # tells the worker to exit
    end = time.monotonic() + 2  # shared by all workers
    for process in processes:
        try:
            process.wait(timeout=max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    processes.clear()
    connections.clear()


def _free(
    processes: list[subprocess.Popen[bytes]], connections: list[Connection], memory: IO[bytes]
) -> None:
    _stop(processes, connections)
    memory.close()
