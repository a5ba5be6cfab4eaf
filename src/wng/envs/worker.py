"""A slice of the environments, and the worker process that steps it for `wng.envs.workers`.

Workers run this file as a script. It must import NumPy and Gymnasium only, so that a worker starts
in a fraction of a second and does not load JAX.
"""

import contextlib
import ctypes
import mmap
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import gymnasium
import numpy as np

# Commands and answers are single bytes without framing, which halves the cost of a message.
OK, FAILED = b"o", b"f"
COMMANDS = {"reset": b"r", "step": b"s", "restore": b"a"}


class Buffers(NamedTuple):
    """Inputs and outputs of the environments, one row for each."""

    actions: np.ndarray  # in the environment's own shape and type
    observations: np.ndarray
    final_observations: np.ndarray
    rewards: np.ndarray  # after a restore: returns so far
    terminated: np.ndarray
    truncated: np.ndarray
    episodes: np.ndarray  # episode numbers, set by the parent

    @classmethod
    def over(cls, rows: np.ndarray) -> "Buffers":
        """Return views of the fields of an array of `row_type`."""
        return cls(*(rows[name] for name in cls._fields))

    @classmethod
    def local(cls, spec: Any, num_envs: int) -> "Buffers":
        """Return contiguous arrays, not shared with another process, given the `EnvSpec`."""
        return cls(*(field.copy() for field in cls.over(np.zeros(num_envs, row_type(spec)))))


def row_type(spec: Any) -> np.dtype:
    """Return the type of a row of `Buffers`, given the `EnvSpec`."""
    types = [spec.action_dtype, "float32", "float32", "float64", "bool", "bool", "int64"]
    size = (spec.observation_size,)
    shapes = [spec.action_shape, size, size, (), (), (), ()]
    return np.dtype(list(zip(Buffers._fields, types, shapes, strict=True)), align=True)


class EnvFailedError(Exception):
    """Raised when the environment with index `index` raises an exception."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(index, message)
        self.index, self.message = index, message


def make_env(spec: Any) -> gymnasium.Env:
    """Make an environment without Gymnasium's checker, which is slow."""
    with warnings.catch_warnings(action="ignore"), quiet():  # the lookup showed the warnings
        return gymnasium.make(spec, disable_env_checker=True)


def episode_seed(seed: int, index: int, episode: int) -> int:
    """Derive the seed of an episode from the run's seed, the environment and the episode number."""
    return int(np.random.SeedSequence([seed, index, episode]).generate_state(1)[0])


class EnvSlice:
    """Environments `first`, `first + 1`, …, one for each row of the buffers.

    They have the episodes of environments `offset + first`, … of a larger set. If they run `once`,
    an environment whose episode has ended waits, as it is, for the next `reset`.
    """

    def __init__(
        self, spec: Any, seed: int, first: int, buffers: Buffers, offset: int, once: bool
    ) -> None:
        self._once, self._waits = once, [False] * len(buffers.rewards)
        self._spec, self._seed, self._first, self._buffers = spec, seed, first, buffers
        self._number = offset + first
        self._k = 0  # environment at work
        self._envs = [make_env(spec) for _ in buffers.rewards]
        self._fresh = [True] * len(self._envs)  # no episode yet
        self._shape = self._envs[0].observation_space.shape or ()
        shape = (len(self._envs), *self._shape)
        # In the environment's own shape, so that rows need no flattening.
        self._observations = buffers.observations.reshape(shape)
        self._final_observations = buffers.final_observations.reshape(shape)

    def _begin(self, k: int, episode: int) -> None:
        self._k = k
        # In some simulators (PyBullet's walkers), the first episode starts slightly differently
        # from later ones, so a new simulator starts the first episode before a later one.
        if self._fresh[k] and episode > 0:
            self._envs[k].reset(seed=episode_seed(self._seed, self._number + k, 0))
        self._fresh[k] = False
        seed = episode_seed(self._seed, self._number + k, episode)
        observation, _ = self._envs[k].reset(seed=seed)
        self._observations[k] = self._checked(observation)

    def _checked(self, observation: Any) -> Any:
        if np.shape(observation) != self._shape:  # NumPy would broadcast it
            raise ValueError(
                f"an observation has shape {list(np.shape(observation))} instead of "
                f"{list(self._shape)}"
            )
        return observation

    def reset(self) -> None:
        """Start the episodes whose numbers are in the buffers."""
        with quiet_bullet(self._spec.id), self._guard():
            for k, episode in enumerate(self._buffers.episodes.tolist()):
                self._begin(k, episode)
        self._waits = [False] * len(self._envs)

    def step(self) -> None:
        """Take the actions in the buffers, and start a new episode where one ends."""
        b, final = self._buffers, self._final_observations
        with self._guard():
            for k, env in enumerate(self._envs):
                if self._waits[k]:
                    b.rewards[k], b.terminated[k], b.truncated[k] = 0, False, False
                    continue
                self._k = k
                # A copy, because an environment may keep its action and the buffer is reused.
                found = env.step(b.actions[k].copy())
                observation, b.rewards[k], b.terminated[k], b.truncated[k], _ = found
                final[k] = self._checked(observation)
            b.observations[:] = b.final_observations
            for k in np.flatnonzero(b.terminated | b.truncated).tolist():
                if self._once:
                    self._waits[k] = True
                else:
                    self._begin(k, int(b.episodes[k]) + 1)

    def restore(self, steps: np.ndarray, actions: np.ndarray) -> None:
        """Replay, in new environments, the episodes whose numbers are in the buffers."""
        self._waits = [False] * len(self._envs)
        with quiet_bullet(self._spec.id), self._guard():
            for k, episode in enumerate(self._buffers.episodes.tolist()):
                self._k = k
                self._envs[k].close()
                self._envs[k] = env = make_env(self._spec)
                self._fresh[k], total, ended = True, 0.0, False
                self._begin(k, episode)
                for action in actions[k, : steps[k]]:
                    total = np.nan if ended else total  # ended too early
                    observation, reward, terminated, truncated, _ = env.step(action.copy())
                    self._observations[k] = self._checked(observation)
                    total, ended = total + float(reward), terminated or truncated
                self._buffers.rewards[k] = np.nan if ended else total

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            with contextlib.suppress(Exception):
                env.close()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            # Values beyond float32 become infinite; the trainer handles those.
            with np.errstate(over="ignore", invalid="ignore"):
                yield
        except (Exception, SystemExit) as error:
            raise EnvFailedError(self._first + self._k, _describe(error)) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide the output of C libraries, which Python's own redirection does not catch."""
    if os.name != "posix":
        yield
        return
    flush = ctypes.CDLL(None).fflush

    def flush_all() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        flush(None)

    flush_all()
    with open(os.devnull, "w") as nowhere:
        kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
        for descriptor in kept:
            os.dup2(nowhere.fileno(), descriptor)
        try:
            yield
        finally:
            flush_all()
            for descriptor, copy in kept.items():
                os.dup2(copy, descriptor)
                os.close(copy)


def quiet_bullet(env_id: str) -> contextlib.AbstractContextManager[None]:
    """Hide the messages that PyBullet prints whenever a simulator starts."""
    return quiet() if "Bullet" in env_id else contextlib.nullcontext()


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def read_byte(connection: Connection) -> bytes:
    """Wait for a byte from the other process."""
    byte = os.read(connection.fileno(), 1)
    if not byte:
        raise EOFError
    return byte


def main() -> None:
    """Run one slice until the parent closes the connection or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    parent, memory = Connection(int(sys.argv[1])), int(sys.argv[2])
    environments = None
    with contextlib.suppress(EOFError, ConnectionError):
        try:
            sys.path[:] = parent.recv()
            spec, seed, offset, once, first, last, row = parent.recv()
            rows = np.frombuffer(mmap.mmap(memory, 0), row)
            buffers = Buffers.over(rows[first:last])
            environments = EnvSlice(spec, seed, first, buffers, offset, once)
        except Exception as error:
            os.write(parent.fileno(), FAILED)
            parent.send((-1, _describe(error), traceback.format_exc()))
            return
        os.write(parent.fileno(), OK)
        methods = {byte: getattr(environments, name) for name, byte in COMMANDS.items()}
        while True:
            command = read_byte(parent)
            try:
                methods[command](*(parent.recv() if command == COMMANDS["restore"] else ()))
            except EnvFailedError as error:
                os.write(parent.fileno(), FAILED)
                parent.send((error.index, error.message, traceback.format_exc()))
            else:
                os.write(parent.fileno(), OK)
    if environments is not None:
        environments.close()


def _exit_with(parent: int) -> None:
    """Exit after the parent was killed, which an environment that hangs does not notice."""
    while os.getppid() == parent:
        time.sleep(1)
    time.sleep(3)  # time to close the environments if nothing hangs
    os._exit(1)


if __name__ == "__main__":
    main()
