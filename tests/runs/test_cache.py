"""Compiled programs are kept between processes; damaged ones do no harm."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from wng.runs.cache import cache_folder, keep_compiled

# Two iterations; prints a digest of everything that was learned, and what JAX's cache did.
PROGRAM = """
import hashlib, json
from collections import Counter
import jax, wng

events = Counter()
jax.monitoring.register_event_listener(lambda event, **_: events.update([event.split("/")[-1]]))
agent = wng.PPO("CartPole-v1", rollout=64, num_envs=2, hidden=(4,), epochs=1, value_epochs=1)
agent.learn(128, progress=False)
arrays, _ = agent.trainer.checkpoint()
digest = hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()
folder = jax.config.jax_compilation_cache_dir
print(json.dumps([digest, events["cache_hits"], events["cache_misses"], folder]))
"""

ALL = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}  # quickly compiled programs too


def start(home: Path, **variables: str) -> subprocess.Popen:
    ours = {name: x for name, x in os.environ.items() if not name.startswith(("JAX", "XDG", "WNG"))}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env={**ours, "HOME": str(home), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process: subprocess.Popen) -> tuple[str, int, int, Path]:
    """The digest, programs found in the cache and not found, and the folder."""
    said, errors = process.communicate()
    assert (process.returncode, errors) == (0, ""), errors
    digest, hits, misses, folder = json.loads(said)
    return digest, hits, misses, folder and Path(folder)


def test_the_same_numbers_whatever_happens_to_the_cache(tmp_path: Path) -> None:
    at_once = [start(tmp_path, **ALL) for _ in range(2)]
    (cold, _, _, folder), (other, *_) = (result(process) for process in at_once)
    assert cold == other
    assert folder.is_relative_to(tmp_path)
    for each in (folder, folder.parent):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    entries = list(folder.glob("*-cache"))
    assert any("update" in entry.name for entry in entries)

    assert result(start(tmp_path, **ALL))[:3] == (cold, len(entries), 0)

    for entry in entries:
        entry.write_bytes(entry.read_bytes()[: entry.stat().st_size // 2])
    assert result(start(tmp_path, **ALL))[:2] == (cold, 0)

    for entry in entries:  # as if killed while writing, some time ago
        entry.with_name(entry.name.removesuffix("-cache") + "-atime").unlink()
        os.utime(entry, (time.time() - 100,) * 2)
    assert result(start(tmp_path, **ALL))[:2] == (cold, 0)
    assert result(start(tmp_path, **ALL))[:2] == (cold, len(entries))


def test_the_size_is_limited_and_the_folder_chosen(tmp_path: Path) -> None:
    chosen = tmp_path / "compiled"
    limit = {"WNG_CACHE": str(chosen), "JAX_COMPILATION_CACHE_MAX_SIZE": "100000"}
    *_, misses, folder = result(start(tmp_path, **ALL, **limit))
    assert folder.parent == chosen
    sizes = [entry.stat().st_size for entry in folder.glob("*-cache")]
    assert 0 < len(sizes) < misses
    assert sum(sizes) <= 100_000


def test_what_the_user_has_configured_stays() -> None:
    before = jax.config.jax_compilation_cache_dir
    assert before is not None  # see conftest.py
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir == before
    assert jax.config.jax_compilation_cache_max_size == -1


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("WNG_CACHE", str(tmp_path / "kept"))
    folder = cache_folder()
    assert folder is not None
    assert cache_folder() == folder
    for each in (folder, folder.parent):
        for mode in (0o770, 0o707):
            each.chmod(mode)
            assert cache_folder() is None
        each.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert cache_folder() is None


def test_no_folder_no_cache(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WNG_CACHE", str(tmp_path / "file"))
    assert cache_folder() is None
    monkeypatch.setenv("WNG_CACHE", "off")
    assert cache_folder() is None
    monkeypatch.delenv("WNG_CACHE")
    monkeypatch.setattr(Path, "home", lambda: Path("/dev/null"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which is to be ignored
    assert cache_folder() is None


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has a place of its own")
def test_the_cache_folder_of_the_system(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("WNG_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "wng"
