"""The folder of one run: runs/<env>/<method>/seed<k>/."""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from wng.runs import checkpoint
from wng.runs.files import one_sentence, read_json, write_json

FORMAT = 1
# Packages that the numbers of a run depend on.
PACKAGES = ["wng", "jax", "jaxlib", "numpy", "optax", "equinox", "gymnasium", "mujoco", "envpool"]

# Seconds. A process that finds a run taken has held it for a moment: the owner must not give up.
PATIENCE = 0.25

_locks: set[int] = set()  # descriptors that hold a lock


def _forget_locks() -> None:
    # A forked worker would share the lock, and keep the run locked after its parent has died.
    for descriptor in _locks:
        os.close(descriptor)
    _locks.clear()


os.register_at_fork(after_in_child=_forget_locks)


class RunTakenError(ValueError):
    """Another process has the run, or has just created it."""


@dataclass(frozen=True)
class RunDirectory:
    """A run on disk. Create one with `create`; read an existing one with `open`.

    Attributes:
      path: the folder.
      record: config.json: env, method, seed, config, and the software that made the run.
    """

    path: Path
    record: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that the run was created with."""
        return self.record["config"]

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """The checkpoint with the highest deterministic return, if the run was evaluated."""
        return self.checkpoints / "best.safetensors"

    @classmethod
    def create(
        cls,
        root: str | Path,
        env: str,
        method: str,
        seed: int,
        config: dict[str, Any],
        command: str = "",
    ) -> "RunDirectory":
        """A new run at `root`/<env>/<method>/seed<seed>; RunTakenError if there already is one.

        `config.json` records `command`, by default that of this process.
        """
        path = Path(root) / safe_name(env) / safe_name(method) / f"seed{seed}"
        record = {
            "format": FORMAT,
            "env": env,
            "method": method,
            "seed": seed,
            "config": config,
            "command": command or shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": installed_packages(),
        }
        with one_sentence(path):
            path.mkdir(parents=True, exist_ok=True)
        with lock(path):  # of two processes that start the same run, one creates it
            if (path / "config.json").exists():
                raise RunTakenError(
                    f"{path} already holds a run: add --resume to continue it, choose another "
                    "folder with --out, or delete it."
                )
            if checkpoint.saved(path / "checkpoints"):
                raise ValueError(
                    f"{path / 'config.json'} is missing, but the run's checkpoints are there: "
                    "restore it, choose another folder with --out, or delete the checkpoints."
                )
            write_json(path / "config.json", record)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> "RunDirectory":
        """The run in the folder `path`, which need not be writable."""
        path = Path(path)
        if not (path / "config.json").exists():
            raise ValueError(_not_a_run(path))
        record = read_json(path / "config.json")
        kinds = {"env": str, "method": str, "seed": int, "config": dict}
        usable = all(isinstance(record.get(name), kind) for name, kind in kinds.items())
        if record.get("format") != FORMAT or not usable:
            raise ValueError(
                f"{path} has format {record.get('format')!r}, but this version of wng reads format "
                f"{FORMAT}: use the version that wrote it."
            )
        return cls(path, record)

    def check_config(self, new: dict[str, Any], *, allowed: Collection[str] = ()) -> None:
        """Raise a ValueError that shows where `new` differs from the run's configuration.

        Args:
          new: the requested configuration.
          allowed: keys that may differ.
        """
        was, now = self.config, json.loads(json.dumps(new))
        differences = [
            f"{key}: {was.get(key, 'not set')} → {now.get(key, 'not set')}"
            for key in {**was, **now}
            if key not in allowed and not _same(was.get(key, "not set"), now.get(key, "not set"))
        ]
        if differences:
            raise ValueError(
                f"{self.path} was made with another configuration ({'; '.join(differences)}): "
                "resume it with that one, or start a new run in another folder with --out."
            )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process; RunTakenError if another one has it.

        The system releases the lock when the process ends, however it ends.
        """
        with lock(self.path):
            yield


def safe_name(name: str) -> str:
    """`name` as one component of a path: 'wng/PointWall-v0' becomes 'wng-PointWall-v0'."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".")
    if not safe:
        raise ValueError(f"'{name}' cannot name a folder: use letters and digits.")
    return safe


@cache
def installed_packages() -> dict[str, str]:
    """Versions of the packages that a run depends on, where installed."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Hold a folder for this process; RunTakenError if another one has it."""
    path = directory / "lock"
    with one_sentence(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    _locks.add(descriptor)
    try:
        with one_sentence(path):
            end = time.monotonic() + PATIENCE
            while not _taken(descriptor):
                if time.monotonic() > end:
                    owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
                    raise RunTakenError(
                        f"{directory} is in use by process {owner}: wait for it to end, or stop it."
                    )
                time.sleep(0.02)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        if descriptor in _locks:  # not in a forked child
            _locks.remove(descriptor)
            os.close(descriptor)


def in_use(directory: Path) -> bool:
    """Whether another process has the folder."""
    try:
        with (directory / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # until it is closed
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _not_a_run(path: Path) -> str:
    """An error message that lists the runs below or near the path."""
    folder = next((p for p in [path, *path.parents[:-1]] if p.is_dir()), path)
    found = sorted(
        str(file.parent.relative_to(folder))
        for depth in range(1, 4)
        for file in folder.glob("*/" * depth + "config.json")
    )
    runs = ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
    if path.is_dir():
        what = f"; it holds: {runs}" if runs else f": there is no {path / 'config.json'}"
        return f"{path} is not a run{what}."
    problem = "is a file, not the folder of a run" if path.exists() else "does not exist"
    return f"{path} {problem}" + (f"; {folder} holds: {runs}." if runs else ".")


def _same(a: Any, b: Any) -> bool:
    return a == b or json.dumps(a) == json.dumps(b)  # as text a NaN equals a NaN
