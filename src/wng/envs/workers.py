"""Environments in worker processes, with observations and actions in shared memory."""

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
from wng.envs.worker import (
    OK,
    RESET,
    RESTORE,
    STEP,
    Buffers,
    EnvFailedError,
    buffer_bytes,
    read_byte,
    write_byte,
)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def why_no_workers(gym_spec: Any) -> str | None:
    """Why an environment cannot run in a worker process, or None."""
    if os.name != "posix":
        return "worker processes need Linux or macOS"
    entry = gym_spec.entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    if module == "__main__":
        return "it is defined in the script that is running, which a worker process cannot import"
    try:
        pickle.dumps(gym_spec)
    except Exception:
        return "how it was registered (a lambda or local class?) cannot be sent to another process"
    return None


class WorkerRunner:
    """Processes that each step a slice of the environments.

    Plain subprocesses rather than `multiprocessing`: a fork breaks JAX, which has threads, and a
    spawned process would run the user's script again where it lacks the `__main__` guard, and hold
    a JAX of its own. A step costs a byte through a socket to each worker and one back; a worker
    that dies closes its socket, which the parent notices, and the other way round.
    """

    def __init__(self, spec: EnvSpec, gym_spec: Any, num_envs: int, seed: int, offset: int) -> None:
        count = min(available_cores(), num_envs)
        self._id, self._job = spec.id, (gym_spec, seed, offset)
        self._bounds = [num_envs * w // count for w in range(count + 1)]
        self._layout = Buffers.layout(
            num_envs, spec.observation_size, spec.action_shape, spec.action_dtype
        )
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._memory = _nameless_file(buffer_bytes(self._layout))
        # Runs at exit too, and when the owner is forgotten: no process outlives its use.
        self.close: Callable[[], Any] = weakref.finalize(
            self, _free, self._processes, self._connections, self._memory
        )
        self.buffers = Buffers.over(
            mmap.mmap(self._memory.fileno(), buffer_bytes(self._layout)), self._layout
        )
        try:
            self._start()
        except EnvFailedError as error:
            self.close()
            raise ValueError(
                f"{spec.id!r} cannot be made in a worker process ({error.message}): put it in a "
                "module that can be imported, or use backend='gymnasium'."
            ) from error

    def _start(self) -> None:
        memory = self._memory.fileno()
        for _ in self._bounds[1:]:
            ours, theirs = Pipe()
            with theirs:
                # -P: the directory of the file, this package, must not become importable itself.
                # A process group of its own: Ctrl-C in the terminal goes to the parent alone.
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
                connection.send((*self._job, *self._bounds[w : w + 2], self._layout))
        self._collect()

    def reset(self) -> None:
        """See `EnvSlice`."""
        self._command(RESET)

    def step(self) -> None:
        """See `EnvSlice`."""
        self._command(STEP)

    def restore(self, steps: np.ndarray, actions: np.ndarray) -> None:
        """See `EnvSlice`."""
        self._command(RESTORE, steps, actions)

    def _command(self, command: bytes, *arrays: np.ndarray) -> None:
        try:
            if not self._processes:
                self._start()
            for w, connection in enumerate(self._connections):
                with self._alive(w):
                    write_byte(connection, command)
                    if arrays:
                        rows = slice(self._bounds[w], self._bounds[w + 1])
                        connection.send([array[rows] for array in arrays])
            self._collect()
        except EnvFailedError:
            raise
        except BaseException:
            # Ctrl-C: who has been told or has answered what is unknown. The next command, which
            # rebuilds the episodes anyway, begins with new workers.
            _stop(self._processes, self._connections)
            raise

    def _collect(self) -> None:
        """Wait for the workers, all of them before a failure is reported."""
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
        """Turn a broken connection into an error that says which worker died."""
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
                f"worker {w}, with environments {first} to {last} of {self._id!r}, {how}; memory "
                "may have run out, or the simulator crashed: see above, or try fewer environments."
            ) from error


def _nameless_file(size: int) -> IO[bytes]:
    """Memory as a file without a name: nothing is left behind however the processes end."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = open(os.memfd_create("wng"), "r+b", buffering=0)  # noqa: SIM115
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    os.ftruncate(file.fileno(), size)
    return file


def _stop(processes: list[subprocess.Popen[bytes]], connections: list[Connection]) -> None:
    for connection in connections:
        connection.close()  # a worker takes this as its end
    end = time.monotonic() + 2  # of all of them
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
