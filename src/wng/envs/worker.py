"""A slice of the environments, and the process that steps it for `wng.envs.workers`.

That process runs this file as a script. It imports NumPy and Gymnasium only, so that a worker
starts in a fraction of a second and holds no JAX; keep it so.
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

# One byte each, read and written without framing, which halves the cost of a message.
OK, FAILED, RESET, STEP, RESTORE = b"o", b"f", b"r", b"s", b"a"


class Buffers(NamedTuple):
    """What goes in and out of the environments, one row for each."""

    actions: np.ndarray  # in the environment's own shape and type
    observations: np.ndarray
    final_observations: np.ndarray
    rewards: np.ndarray  # after a restore: the returns so far
    terminated: np.ndarray
    truncated: np.ndarray
    episodes: np.ndarray  # numbers of the present episodes, kept by the parent

    @classmethod
    def layout(
        cls, num_envs: int, size: int, action_shape: tuple[int, ...], action_dtype: str
    ) -> list[tuple[tuple[int, ...], str]]:
        """Shape and type of each array."""
        rows = (num_envs,)
        return [
            ((*rows, *action_shape), action_dtype),
            ((*rows, size), "float32"),
            ((*rows, size), "float32"),
            (rows, "float64"),
            (rows, "bool"),
            (rows, "bool"),
            (rows, "int64"),
        ]

    @classmethod
    def over(cls, memory: Any, layout: list[tuple[tuple[int, ...], str]]) -> "Buffers":
        """The arrays, one after the other in `memory`, each from a multiple of 64 bytes."""
        arrays, offset = [], 0
        for shape, dtype in layout:
            arrays.append(np.ndarray(shape, dtype, buffer=memory, offset=offset))
            offset += -(-arrays[-1].nbytes // 64) * 64
        return cls(*arrays)

    def rows(self, rows: slice) -> "Buffers":
        """Views of some of the rows."""
        return Buffers(*(array[rows] for array in self))


def buffer_bytes(layout: list[tuple[tuple[int, ...], str]]) -> int:
    """Size of the memory that `Buffers.over` needs."""
    return sum(
        -(-int(np.prod(shape)) * np.dtype(dtype).itemsize // 64) * 64 for shape, dtype in layout
    )


class EnvFailedError(Exception):
    """The environment with index `index` raised an exception."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(index, message)
        self.index, self.message = index, message


def make_env(spec: Any) -> gymnasium.Env:
    """An environment without Gymnasium's checker, which costs time.

    In silence: what there is to say was said when the id was looked up, and need not be repeated
    for every copy.
    """
    with warnings.catch_warnings(), quiet():
        warnings.simplefilter("ignore")
        return gymnasium.make(spec, disable_env_checker=True)


def episode_seed(seed: int, index: int, episode: int) -> int:
    """The seed of an episode: a function of nothing but the run, the environment and its number."""
    return int(np.random.SeedSequence([seed, index, episode]).generate_state(1)[0])


class EnvSlice:
    """Environments `first`, `first + 1`, …, one for each row of the buffers.

    Their episodes are those of environments `offset + first`, … of a larger set.
    """

    def __init__(self, spec: Any, seed: int, first: int, buffers: Buffers, offset: int = 0) -> None:
        self._spec, self._seed, self._first, self._buffers = spec, seed, first, buffers
        self._number = offset + first
        self._envs = [make_env(spec) for _ in buffers.rewards]
        self._fresh = [True] * len(self._envs)  # has had no episode yet
        self._shape = self._envs[0].observation_space.shape or ()
        shape = (len(self._envs), *self._shape)
        # The environment's own shape: each row is then written without flattening it first.
        self._observations = buffers.observations.reshape(shape)
        self._final_observations = buffers.final_observations.reshape(shape)

    def _begin(self, k: int, episode: int) -> None:
        # A simulator may begin its first episode a little differently from all later ones
        # (PyBullet's walkers do), so a later one is preceded by the first one in a new simulator.
        if self._fresh[k] and episode > 0:
            self._envs[k].reset(seed=episode_seed(self._seed, self._number + k, 0))
        self._fresh[k] = False
        seed = episode_seed(self._seed, self._number + k, episode)
        observation, _ = self._envs[k].reset(seed=seed)
        self._observations[k] = self._checked(observation)

    def _checked(self, observation: Any) -> Any:
        """NumPy would spread one number, or a shorter row, over the whole row."""
        if np.shape(observation) != self._shape:
            raise ValueError(
                f"an observation has shape {list(np.shape(observation))} instead of "
                f"{list(self._shape)}"
            )
        return observation

    def reset(self) -> None:
        """Begin the episodes whose numbers stand in the buffers."""
        for k, episode in enumerate(self._buffers.episodes.tolist()):
            with self._guard(k):
                self._begin(k, episode)

    def step(self) -> None:
        """Take the actions that stand in the buffers, and begin a new episode where one ends."""
        b, final = self._buffers, self._final_observations
        k = 0
        try:
            # A number beyond float32 becomes an infinity; the trainer deals with those.
            with np.errstate(over="ignore", invalid="ignore"):
                for k, env in enumerate(self._envs):
                    # A copy: an environment may keep its action, and the buffer is reused.
                    observation, b.rewards[k], b.terminated[k], b.truncated[k], _ = env.step(
                        b.actions[k].copy()
                    )
                    final[k] = self._checked(observation)
                b.observations[:] = b.final_observations
                for k in np.flatnonzero(b.terminated | b.truncated).tolist():
                    self._begin(k, int(b.episodes[k]) + 1)
        except (Exception, SystemExit) as error:
            raise EnvFailedError(self._first + k, _describe(error)) from error

    def restore(self, steps: np.ndarray, actions: np.ndarray) -> None:
        """Rebuild, in new environments, the episodes whose numbers stand in the buffers."""
        b = self._buffers
        for k, episode in enumerate(b.episodes.tolist()):
            with self._guard(k):
                self._envs[k].close()
                self._envs[k], self._fresh[k] = make_env(self._spec), True
                self._begin(k, episode)
                total, ended = 0.0, False
                for action in actions[k, : steps[k]]:
                    total = np.nan if ended else total  # an end that the saved episode had not
                    observation, reward, terminated, truncated, _ = self._envs[k].step(
                        action.copy()
                    )
                    self._observations[k] = self._checked(observation)
                    total, ended = total + float(reward), terminated or truncated
                b.rewards[k] = np.nan if ended else total

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            with contextlib.suppress(Exception):
                env.close()

    @contextlib.contextmanager
    def _guard(self, k: int) -> Iterator[None]:
        """Say which environment raised an exception; let numbers beyond float32 be infinite."""
        try:
            with quiet_bullet(self._spec.id), np.errstate(over="ignore", invalid="ignore"):
                yield
        except (Exception, SystemExit) as error:
            raise EnvFailedError(self._first + k, _describe(error)) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide what C libraries print (to the descriptors, which Python's redirection leaves alone)."""
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
    """Hide PyBullet's announcements, which come whenever a simulator starts."""
    return quiet() if "Bullet" in env_id else contextlib.nullcontext()


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def read_byte(connection: Connection) -> bytes:
    """Wait for a byte from the other side."""
    byte = os.read(connection.fileno(), 1)
    if not byte:
        raise EOFError
    return byte


def write_byte(connection: Connection, byte: bytes) -> None:
    """Send a byte to the other side."""
    os.write(connection.fileno(), byte)


def main() -> None:
    """Serve one slice until the parent closes the connection, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent deals with Ctrl-C
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    parent, memory = Connection(int(sys.argv[1])), int(sys.argv[2])
    environments = None
    with contextlib.suppress(EOFError, ConnectionError):
        try:
            sys.path[:] = parent.recv()
            spec, seed, offset, first, last, layout = parent.recv()
            buffers = Buffers.over(mmap.mmap(memory, buffer_bytes(layout)), layout)
            environments = EnvSlice(spec, seed, first, buffers.rows(slice(first, last)), offset)
        except Exception as error:
            write_byte(parent, FAILED)
            parent.send((-1, _describe(error), traceback.format_exc()))
            return
        write_byte(parent, OK)
        while True:
            command = read_byte(parent)
            try:
                if command == STEP:
                    environments.step()
                elif command == RESET:
                    environments.reset()
                else:
                    environments.restore(*parent.recv())
            except EnvFailedError as error:
                write_byte(parent, FAILED)
                parent.send((error.index, error.message, traceback.format_exc()))
            else:
                write_byte(parent, OK)
    if environments is not None:
        environments.close()


def _end_with(parent: int) -> None:
    """An environment that hangs does not notice that the parent has been killed: end it."""
    while os.getppid() == parent:
        time.sleep(1)
    time.sleep(3)  # for others to close their environments
    os._exit(1)


if __name__ == "__main__":
    main()
