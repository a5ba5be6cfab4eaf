import errno
import math
import os
import pickle
import struct
import zlib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from wng.runs import checkpoint
from wng.runs.metrics import MetricsWriter, read_metrics


def row(iteration: int, value: float = 0.1) -> dict[str, float]:
    return {"iteration": iteration, "steps": 2048 * iteration, "return": value}


def events(directory: Path) -> list[Event]:
    found = []
    for path in sorted((directory / "tensorboard").iterdir()):
        raw = path.read_bytes()
        while raw:
            (length,) = struct.unpack("Q", raw[:8])
            found.append(Event.FromString(raw[12 : 12 + length]))
            raw = raw[16 + length :]
    return found


def test_rows_come_back_exactly(tmp_path) -> None:
    values = [0.1, 1e-300, -3.0, math.pi, 1e22, math.nan, math.inf, -math.inf]
    with MetricsWriter(tmp_path) as metrics:
        for i, value in enumerate(values):
            metrics.write(row(i, value))
            assert len(read_metrics(tmp_path)["return"]) == i + 1  # each row at once
    columns = read_metrics(tmp_path / "metrics.csv")
    assert [*columns] == ["iteration", "steps", "return"]
    np.testing.assert_array_equal(columns["return"], [*values[:5], math.nan, math.nan, math.nan])
    np.testing.assert_array_equal(columns["steps"], 2048.0 * np.arange(8))
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines[0] == "iteration,steps,return,crc32"
    assert lines[1].startswith("0,0,0.1,#")
    assert lines[-1].startswith("7,14336,nan,#")


def test_arrays_missing_and_unknown_columns(tmp_path) -> None:
    with MetricsWriter(tmp_path) as metrics:
        metrics.write({"iteration": jnp.array(1), "a": np.float32(0.5), "b": jnp.array(0.25)})
        metrics.write({"iteration": 2, "a": 1})
        with pytest.raises(ValueError, match="no column 'c'"):
            metrics.write({"iteration": 3, "c": 1})
        with pytest.raises(ValueError, match="needs a number 'iteration'"):
            metrics.write({"a": 1})
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert [line.rpartition(",")[0] for line in lines] == ["iteration,a,b", "1,0.5,0.25", "2,1,nan"]
    with MetricsWriter(tmp_path) as metrics, pytest.raises(ValueError, match="cannot name a col"):
        metrics.write({"iteration": 1, "return, mean": 1})


def test_each_iteration_once_after_resume(tmp_path) -> None:
    with MetricsWriter(tmp_path, x="steps") as metrics:
        for i in range(1, 8):
            metrics.write(row(i))
    path = tmp_path / "metrics.csv"
    path.write_bytes(path.read_bytes() + b"8,163")  # SIGKILL
    assert len(read_metrics(path)["return"]) == 7
    with MetricsWriter(tmp_path, resume_at=5, x="steps") as metrics:
        assert read_metrics(path)["iteration"].tolist() == [1, 2, 3, 4, 5]
        for i in range(6, 10):
            metrics.write(row(i, 0.2))
    columns = read_metrics(path)
    assert columns["iteration"].tolist() == list(range(1, 10))
    assert columns["return"].tolist() == [0.1] * 5 + [0.2] * 4
    starts = [event.step for event in events(tmp_path) if event.HasField("session_log")]
    assert starts == [0, 5 * 2048 + 1]  # TensorBoard hides what came after, in its own axis
    shown = [e.step for e in events(tmp_path) if e.HasField("summary")]
    assert shown == [2048 * i for i in (*range(1, 8), *range(6, 10))]


def test_resume_of_a_file_torn_in_its_header_or_gone(tmp_path) -> None:
    for content in (b"", b"iteration,st", None):
        path = tmp_path / "metrics.csv"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with MetricsWriter(tmp_path, resume_at=5) as metrics:
            metrics.write(row(6))
        assert read_metrics(path)["iteration"].tolist() == [6]


def test_any_flipped_bit_is_noticed(tmp_path) -> None:
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(row(1))
        metrics.write(row(2, 1e-300))
    path = tmp_path / "metrics.csv"
    raw = path.read_bytes()
    for place in range(len(raw) - 1):  # without the last newline the last row is being written
        path.write_bytes(raw[:place] + bytes([raw[place] ^ (1 << place % 8)]) + raw[place + 1 :])
        with pytest.raises(ValueError, match=r"is damaged|is not a table"):
            read_metrics(path)
    path.write_bytes(b"\n".join(line.rpartition(b",")[0] for line in raw.split(b"\n")))
    with pytest.raises(ValueError, match="is not a table of metrics"):  # without checksums
        read_metrics(path)


def test_rows_that_a_checkpoint_had_and_that_are_gone(tmp_path) -> None:
    checkpoint.write(tmp_path / "checkpoints", 0, {}, {})  # it failed in its first iteration
    with MetricsWriter(tmp_path) as metrics:
        assert read_metrics(tmp_path) == {}
        for i in (1, 2, 3):
            metrics.write(row(i))
    checkpoint.write(tmp_path / "checkpoints", 3 * 2048, {}, {}, keep=1)
    assert len(read_metrics(tmp_path)["steps"]) == 3
    path = tmp_path / "metrics.csv"
    cut = b"".join(path.read_bytes().splitlines(keepends=True)[:3])
    for content in (b"", b"iteration,st", cut):
        path.write_bytes(content)
        for load in (lambda: read_metrics(tmp_path), lambda: MetricsWriter(tmp_path, resume_at=3)):
            with pytest.raises(ValueError, match=r"metrics.csv ends before the checkpoint 0000"):
                load()
        assert path.read_bytes() == content
    (newest,) = checkpoint.saved(tmp_path / "checkpoints")
    newest.write_bytes(b"damaged")  # resume has passed it over, and dropped its row
    assert len(read_metrics(tmp_path)["steps"]) == 2


def test_non_finite_numbers_do_not_reach_tensorboard(tmp_path) -> None:
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(row(1, math.nan))
    (summary,) = (e.summary for e in events(tmp_path) if e.HasField("summary"))
    assert [value.tag for value in summary.value] == ["steps"]


def table(header: bytes, *rows: bytes) -> bytes:
    """With checksums: what is wrong is wrong in the rows."""
    header += b",crc32"
    signed = [row + b",#%08x" % zlib.crc32(header + b"\n" + row) for row in rows]
    return b"\n".join([header, *signed, b""])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (table(b"iteration,a", b"1,2", b"2,x", b"3,4"), "line 3 of .* is damaged: move it away"),
        (table(b"iteration,a", b"1,2", b"2", b"3,4"), "line 3 of .* is damaged"),
        (table(b"iteration,a", b"1,2", b"\0\0\0", b"3,4"), "line 3 of .* is damaged"),
        (table(b"iteration,a", b"1,2", b"\xff,2", b"3,4"), "line 3 of .* is damaged"),
        (table(b"iteration,a", b"1,2").replace(b"1,2", b"1,3"), "line 2 of .* is damaged"),
        (table(b"a,b", b"1,2"), "is not a table of metrics"),
        (b"iteration,a\n1,2\n", "is not a table of metrics"),
        (b"\xff\xfe\n", "is not a table of metrics"),
    ],
)
def test_damage_is_refused_by_name(tmp_path, content, message) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    for load in (lambda: read_metrics(path), lambda: MetricsWriter(tmp_path, resume_at=9)):
        with pytest.raises(ValueError, match=message) as refusal:
            load()
        assert str(path) in str(refusal.value)
    assert path.read_bytes() == content


def test_damage_after_the_checkpoint_does_not_matter(tmp_path) -> None:
    rows = table(b"iteration,a", b"1,2", b"2,3", b"3,4")
    (tmp_path / "metrics.csv").write_bytes(rows + b"\0\0\n")
    MetricsWriter(tmp_path, resume_at=2).close()
    assert read_metrics(tmp_path)["a"].tolist() == [2, 3]


def test_pickle_is_refused_and_not_executed(tmp_path) -> None:
    sentinel = tmp_path / "executed"

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (sentinel,))

    (tmp_path / "metrics.csv").write_bytes(pickle.dumps(Bomb()) + b"\n")
    with pytest.raises(ValueError, match="is not a table of metrics"):
        read_metrics(tmp_path)
    with pytest.raises(ValueError, match="is not a table of metrics"):
        MetricsWriter(tmp_path, resume_at=1)
    assert not sentinel.exists()
    with pytest.raises(ValueError, match="does not exist"):
        read_metrics(tmp_path / "nothing.csv")


def test_full_disk_is_one_sentence(tmp_path, monkeypatch) -> None:
    def full(*_) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with MetricsWriter(tmp_path) as metrics:
        metrics.write(row(1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match=r"metrics.csv \(No space left.*free some space"):
                metrics.sync()
        metrics.write(row(2))
    assert read_metrics(tmp_path)["iteration"].tolist() == [1, 2]
