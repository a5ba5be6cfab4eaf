import errno
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wng.runs import directory
from wng.runs.directory import RunDirectory, safe_name

CONFIG = {"lr": 3e-4, "steps": 1000, "hidden": (64, 64), "std": float("nan")}


def make(root: Path, seed: int = 0, env: str = "Hopper-v5") -> RunDirectory:
    return RunDirectory.create(root, env, "wnpg", seed, CONFIG)


def test_create_and_open(tmp_path) -> None:
    run = make(tmp_path, env="wng/PointWall-v0")
    assert run.path == tmp_path / "wng-PointWall-v0" / "wnpg" / "seed0"
    assert run.checkpoints == run.path / "checkpoints"
    again = RunDirectory.open(str(run.path))
    assert again.config["hidden"] == [64, 64]
    assert (again.record["env"], again.record["seed"]) == ("wng/PointWall-v0", 0)
    assert {"wng", "jax", "jaxlib", "numpy", "optax", "equinox"} <= again.record["packages"].keys()
    assert again.record["command"]
    with pytest.raises(ValueError, match=r"seed0 already holds a run: add --resume .*--out"):
        make(tmp_path, env="wng/PointWall-v0")


def test_names_are_safe() -> None:
    assert safe_name("my.module:Env-v0") == "my.module-Env-v0"
    assert safe_name("../../etc") == "-..-etc"
    with pytest.raises(ValueError, match="cannot name a folder"):
        safe_name("..")


def test_open_says_where_the_runs_are(tmp_path) -> None:
    make(tmp_path)
    make(tmp_path, seed=1)
    with pytest.raises(
        ValueError, match=r"Hopper-v5 is not a run; it holds: wnpg/seed0, wnpg/seed1"
    ):
        RunDirectory.open(tmp_path / "Hopper-v5")
    with pytest.raises(ValueError, match=r"seed7 does not exist; .*wnpg holds: seed0, seed1\."):
        RunDirectory.open(tmp_path / "Hopper-v5" / "wnpg" / "seed7")
    with pytest.raises(ValueError, match=r"is a file, not the folder of a run\."):
        RunDirectory.open(tmp_path / "Hopper-v5" / "wnpg" / "seed0" / "config.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"is not a run: there is no .*empty/config\.json\.$"):
        RunDirectory.open(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"^/nowhere/at/all does not exist\.$"):
        RunDirectory.open("/nowhere/at/all")
    for seed in range(2, 12):
        make(tmp_path, seed=seed)
    with pytest.raises(ValueError, match="and 4 more"):
        RunDirectory.open(tmp_path)


def test_a_run_killed_before_it_had_a_configuration_can_be_created(tmp_path) -> None:
    path = tmp_path / "Hopper-v5" / "wnpg" / "seed0"
    path.mkdir(parents=True)
    (path / "lock").write_text("1")
    (path / ".config.json.tmp").write_text("{")
    make(tmp_path)
    assert sorted(p.name for p in path.iterdir()) == ["config.json", "lock"]


def test_check_config(tmp_path) -> None:
    run = make(tmp_path)
    run.check_config(CONFIG)
    run.check_config({**CONFIG, "steps": 2000}, allowed={"steps"})
    run.check_config({**CONFIG, "steps": 1000.0})
    other = {**CONFIG, "lr": 1e-3, "steps": 2000, "hidden": [32], "new": 1}
    with pytest.raises(ValueError, match="another configuration") as refusal:
        run.check_config(other, allowed={"steps"})
    assert ("(lr: 0.0003 → 0.001; hidden: [64, 64] → [32]; new: not set → 1): resume") in str(
        refusal.value
    )
    with pytest.raises(ValueError, match="std: nan → not set"):
        run.check_config({name: value for name, value in CONFIG.items() if name != "std"})


def test_any_change_of_the_configuration_file_is_noticed(tmp_path) -> None:
    path = make(tmp_path).path / "config.json"
    raw = path.read_bytes()
    damaged = [raw[:-1], raw[:100], b"", b"[]", b"{}", b"[" * 10**5, raw.replace(b"Hop", b"Pop")]
    damaged += [
        raw[:i] + bytes([raw[i] ^ (1 << i % 8)]) + raw[i + 1 :] for i in range(0, len(raw), 3)
    ]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"config\.json is damaged or was edited"):
            RunDirectory.open(path.parent)


def test_pickle_is_refused_and_not_executed(tmp_path) -> None:
    path, sentinel = make(tmp_path).path, tmp_path / "executed"

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (sentinel,))

    (path / "config.json").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        RunDirectory.open(path)
    assert not sentinel.exists()


def test_another_format_is_refused(tmp_path, monkeypatch) -> None:
    path = make(tmp_path).path
    monkeypatch.setattr(directory, "FORMAT", 7)
    with pytest.raises(ValueError, match="has format 1, but this version of wng reads format 7"):
        RunDirectory.open(path)


def test_configuration_must_be_json(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"config\.json as JSON: .*PosixPath"):
        RunDirectory.create(tmp_path, "Hopper-v5", "wnpg", 0, {"out": tmp_path})


def test_lock_excludes_and_ends_with_the_process(tmp_path) -> None:
    run = make(tmp_path)
    code = (
        "import fcntl, os, sys, time; f = os.open(sys.argv[1], os.O_RDWR);"
        "fcntl.flock(f, fcntl.LOCK_EX); os.ftruncate(f, 0); os.write(f, b'%d' % os.getpid());"
        "print('locked', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(run.path / "lock")], stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"locked\n"
    with (
        pytest.raises(ValueError, match=f"seed0 is in use by process {other.pid}: wait"),
        run.lock(),
    ):
        pass
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    other.stdout.close()
    with run.lock():
        with pytest.raises(ValueError, match=f"in use by process {os.getpid()}"), run.lock():
            pass
        with pytest.raises(ValueError, match="in use by process"):
            make(tmp_path)
    with run.lock():
        pass


def test_a_forked_worker_does_not_keep_the_lock(tmp_path) -> None:
    """In a process of its own, without JAX, whose threads do not like forks."""
    code = """
import os, sys, types
wng = types.ModuleType("wng")
wng.__path__ = [sys.argv[1]]
sys.modules["wng"] = wng
from wng.runs.directory import RunDirectory
run = RunDirectory.open(sys.argv[2])
with run.lock():
    ready, worker_ready = os.pipe()
    done, parent_done = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(parent_done)
        os.write(worker_ready, b"x")
        os.read(done, 1)
        os._exit(0)
    os.read(ready, 1)
with run.lock():  # while the worker is alive
    os.close(parent_done)
    os.waitpid(worker, 0)
"""
    source = Path(directory.__file__).parent.parent
    run = make(tmp_path)
    subprocess.run([sys.executable, "-c", code, str(source), str(run.path)], check=True, timeout=30)


def test_read_only_folder_is_one_sentence(tmp_path, monkeypatch) -> None:
    run = make(tmp_path)

    def read_only(*_, **__) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", read_only)
    with (
        pytest.raises(OSError, match=r"lock \(Read-only file system\): choose .* --out"),
        run.lock(),
    ):
        pass
    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(OSError, match=r"seed1 \(Read-only file system\): choose .* --out"):
        make(tmp_path, seed=1)
    assert RunDirectory.open(run.path).config["steps"] == 1000
