import errno
import hashlib
import json
import os
import pickle
import resource
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from wng.runs import checkpoint
from wng.runs.checkpoint import read, read_latest, saved, write

ARRAYS = {"a": np.arange(5.0), "n": np.array(3), "m": np.ones((2, 3), np.float32)}


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, sentinel: Path):
        self.sentinel = sentinel

    def __reduce__(self):
        return (Path.touch, (self.sentinel,))


def two_checkpoints(folder: Path) -> tuple[Path, Path]:
    older = write(folder, 100, ARRAYS, {"iteration": 1})
    return older, write(folder, 200, {"a": np.zeros(3)}, {"iteration": 2})


def assert_previous_used(older: Path, newer: Path, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refusal:
        read(newer)
    assert str(newer) in str(refusal.value)
    arrays, info, problems = read_latest(newer.parent)
    assert info == {"iteration": 1, "step": 100}
    assert arrays.keys() == ARRAYS.keys()
    assert len(problems) == 1
    assert str(newer) in problems[0]
    assert problems[0].endswith(f": using {older} instead.")


def reseal(path: Path, arrays: dict, metadata: dict) -> None:
    """A file with a correct checksum, whatever it holds."""
    raw = save(arrays, metadata={**metadata, "sha256": "0" * 64})
    path.write_bytes(raw.replace(b"0" * 64, hashlib.sha256(raw).hexdigest().encode(), 1))


def test_round_trip_and_keep(tmp_path) -> None:
    for step in (0, 10, 20, 30):
        write(tmp_path / "checkpoints", step, ARRAYS, {"x": [1, None, "s"], "y": float("inf")})
    assert [p.name for p in saved(tmp_path / "checkpoints")] == [
        "000000000030.safetensors",
        "000000000020.safetensors",
    ]
    arrays, info, _ = read_latest(tmp_path / "checkpoints")
    assert info == {"x": [1, None, "s"], "y": float("inf"), "step": 30}
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.tobytes()


def test_info_that_looks_like_the_checksum(tmp_path) -> None:
    info = {"zeros": "0" * 64, "trap": '"sha256":"' + "0" * 64 + '"', "sha256": "f" * 64}
    for step in range(10):  # safetensors puts its metadata in any order
        path = write(tmp_path, step, {"sha256": np.zeros(80, np.uint8), **ARRAYS}, info)
        assert read(path)[1] == {**info, "step": step}


@pytest.mark.parametrize("size", [0, 5, 8, 60, -1])
def test_truncated(tmp_path, size) -> None:
    older, newer = two_checkpoints(tmp_path)
    newer.write_bytes(newer.read_bytes()[:size])
    assert_previous_used(older, newer, "only the beginning|altered or cut short")


def test_any_flipped_bit_is_noticed(tmp_path) -> None:
    path = write(tmp_path, 0, {"a": np.arange(4.0)}, {"lr": 0.1})
    raw = path.read_bytes()
    for place in range(len(raw)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ (1 << place % 8)]) + raw[place + 1 :])
        with pytest.raises(ValueError, match=r"not a checkpoint of wng|has been altered"):
            read(path)


def test_flipped_bit_falls_back(tmp_path) -> None:
    older, newer = two_checkpoints(tmp_path)
    raw = bytearray(newer.read_bytes())
    raw[-3] ^= 16
    newer.write_bytes(raw)
    assert_previous_used(older, newer, "has been altered or cut short")


def test_pickle_is_refused_and_not_executed(tmp_path) -> None:
    older, newer = two_checkpoints(tmp_path)
    sentinel = tmp_path / "executed"
    newer.write_bytes(pickle.dumps(Bomb(sentinel)))
    assert_previous_used(older, newer, "is not a checkpoint of wng")
    newer.write_bytes(os.urandom(5000))
    assert_previous_used(older, newer, "is not a checkpoint of wng")
    assert not sentinel.exists()


def test_other_formats_are_refused(tmp_path) -> None:
    older, newer = two_checkpoints(tmp_path)
    for number in (0, 2):
        reseal(newer, ARRAYS, {"wng": json.dumps({"format": number, "info": {"step": 200}})})
        for load, path in ((read, newer), (read_latest, tmp_path)):  # not damaged: not passed over
            with pytest.raises(ValueError, match=f"has format {number}, but this version of "):
                load(path)
    for metadata in ({}, {"wng": "[]"}, {"wng": "[" * 10**5}, {"wng": '{"format": 1, "info": 3}'}):
        reseal(newer, ARRAYS, metadata)
        assert_previous_used(older, newer, "is not a checkpoint of wng")
    newer.write_bytes(save(ARRAYS))
    assert_previous_used(older, newer, "is not a checkpoint of wng")


def test_renamed_and_unreadable(tmp_path) -> None:
    older, newer = two_checkpoints(tmp_path)
    newer.unlink()
    newer.mkdir()
    assert_previous_used(older, newer, "cannot be read")
    newer.rmdir()
    newer.write_bytes(older.read_bytes())
    assert "belongs to another step" in read_latest(tmp_path)[2][0]


def test_none_and_none_good(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"there is no checkpoint in .*nowhere"):
        read_latest(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="does not exist"):
        read(tmp_path / "nothing.safetensors")
    for path in two_checkpoints(tmp_path):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"no checkpoint .* can be used: .*200.*; .*100"):
        read_latest(tmp_path)


def test_passed_over_checkpoints_are_replaced_or_removed(tmp_path) -> None:
    _, newer = two_checkpoints(tmp_path)
    newer.write_bytes(b"damaged")
    write(tmp_path, 150, ARRAYS, {})
    assert [int(p.stem) for p in saved(tmp_path)] == [150, 100]
    _, newer = two_checkpoints(tmp_path)
    newer.write_bytes(b"damaged")
    write(tmp_path, 200, ARRAYS, {})
    assert read_latest(tmp_path)[1:] == ({"step": 200}, [])


def test_bad_input(tmp_path) -> None:
    with pytest.raises(ValueError, match="cannot hold 'x' of type object"):
        write(tmp_path, 0, {"x": np.array([None])}, {})
    with pytest.raises(ValueError, match="cannot hold 'x' of type >f4"):
        write(tmp_path, 0, {"x": np.zeros(2, ">f4")}, {})
    with pytest.raises(ValueError, match="cannot be called '__metadata__'"):
        write(tmp_path, 0, {"__metadata__": np.zeros(2)}, {})
    with pytest.raises(ValueError, match="must be JSON"):
        write(tmp_path, 0, {}, {"x": np.float32(1)})
    with pytest.raises(ValueError, match="at least"):
        write(tmp_path, 0, {}, {}, keep=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_full_disk_leaves_the_previous(tmp_path, monkeypatch, call) -> None:
    write(tmp_path, 100, ARRAYS, {})

    def full(*_) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(OSError, match=r"cannot write .*200.* \(No space left.*free some space"):
            write(tmp_path, 200, ARRAYS, {})
    assert read_latest(tmp_path)[1:] == ({"step": 100}, [])
    assert len(list(tmp_path.iterdir())) == 1  # no temporary is left


def test_write_that_stops_half_way_leaves_the_previous(tmp_path) -> None:
    """A real short write, by the limit on the size of files."""
    write(tmp_path, 100, ARRAYS, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(tmp_path, 200, {"a": np.zeros(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_latest(tmp_path)[1:] == ({"step": 100}, [])
    assert len(list(tmp_path.iterdir())) == 1


def test_stale_temporaries_are_removed(tmp_path) -> None:
    (tmp_path / ".000000000050.safetensors.tmp").write_bytes(b"half")
    path = write(tmp_path, 100, ARRAYS, {})
    assert list(tmp_path.iterdir()) == [path]


def test_write_file(tmp_path) -> None:
    checkpoint.write_file(tmp_path / "new" / "agent.safetensors", ARRAYS, {"env": "Hopper-v5"})
    arrays, info = read(tmp_path / "new" / "agent.safetensors")
    assert info == {"env": "Hopper-v5"}
    assert arrays.keys() == ARRAYS.keys()
