"""Compiled programs are kept for the next process, in a folder that only the user can write.

This is JAX's persistent compilation cache, with a limit on its size. Agents switch it on before
they compile anything, unless the user has configured it. WNG_CACHE=off leaves it off, and
WNG_CACHE=FOLDER keeps programs there.
"""

import contextlib
import os
import stat
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from wng.runs.executor import LocalExecutor

SETTINGS = {
    "jax_compilation_cache_max_size": 2**28,  # bytes; the least recently used are deleted
    "jax_persistent_cache_min_compile_time_secs": 0.1,
    "jax_persistent_cache_enable_xla_caches": "none",  # those of GPUs, which have no limit
}
ENTRY, USE = "-cache", "-atime"  # JAX's names for a program, and for the time of its last use
WRITING = 60.0  # seconds that writing an entry may take


def keep_compiled() -> None:
    """Keep programs that are compiled from now on, unless JAX's cache is configured already."""
    import jax

    config: Any = jax.config
    if config.jax_compilation_cache_dir is not None:
        return
    folder = cache_folder()
    if folder is None:
        return
    _delete_fragments(folder)
    for name, value in SETTINGS.items():
        if name.upper() not in os.environ:
            config.update(name, value)
    config.update("jax_compilation_cache_dir", str(folder))
    # A damaged entry or a full disk costs time and nothing else: JAX compiles the program again.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")


def cache_folder() -> Path | None:
    """Where compiled programs are kept, or None if they are not to be kept.

    Loading a program runs it: a folder that others could write to is not used.
    """
    chosen = os.environ.get("WNG_CACHE", "")
    if chosen == "off":
        return None
    try:
        root = Path(chosen).absolute() if chosen else _user_cache() / "wng"
        # A program divides its work by the number of cores, which may change how it rounds.
        folder = root / f"cores-{LocalExecutor().cores()}"
        for each in (root, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if _is_ours(root) and _is_ours(folder) else None
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return None


def _user_cache() -> Path:
    """The user's cache folder, as the system has it."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def _is_ours(folder: Path) -> bool:
    """Whether this user owns the folder and can write there, and nobody else can."""
    found = folder.stat()
    others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid == os.geteuid() and not others and os.access(folder, os.R_OK | os.W_OK)


def _delete_fragments(folder: Path) -> None:
    """Delete what a killed process has half written: JAX would write nothing more after it."""
    for entry in folder.glob(f"*{ENTRY}"):
        use = entry.with_name(entry.name.removesuffix(ENTRY) + USE)  # written last
        with contextlib.suppress(OSError):
            if not use.exists() and entry.stat().st_mtime < time.time() - WRITING:
                entry.unlink()
