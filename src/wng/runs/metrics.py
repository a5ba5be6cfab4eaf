"""One row of numbers per iteration, in metrics.csv and for TensorBoard.

The last column of metrics.csv, crc32, is a checksum of the header and the row before it.
"""

import contextlib
import math
import os
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wng.runs import checkpoint
from wng.runs.files import one_sentence, read_bytes, write_atomic

CHECKSUM = "crc32"
DETERMINISTIC = "return_deterministic"  # the column of evaluations
FLUSH_SECONDS = 10.0
ADVICE = "move it away to continue without the earlier rows"


class MetricsWriter:
    """Writes rows so that each iteration appears exactly once, however often a run is resumed.

    Args:
      directory: the run's folder.
      resume_at: the iteration of the checkpoint; later rows are dropped. None starts a new file.
      x: the column that is TensorBoard's horizontal axis.
    """

    def __init__(
        self, directory: str | Path, resume_at: int | None = None, *, x: str = "iteration"
    ):
        from wng.runs.tensorboard import EventFile  # imports protobuf, which readers do not need

        self.path, self._x = Path(directory) / "metrics.csv", x
        self._columns: list[str] = []
        kept: list[dict[str, float]] = []
        if resume_at is not None and self.path.exists():
            self._columns, kept = _parse(self.path, until=resume_at)
            _check_complete(self.path, kept, checkpoint.saved(Path(directory) / "checkpoints"))
        write_atomic(self.path, _format(self._columns, kept))
        last = kept[-1].get(x, math.nan) if kept else math.nan
        start = int(last) + 1 if math.isfinite(last) else 0
        self._tensorboard = Path(directory) / "tensorboard"
        with contextlib.ExitStack() as opened:  # closed again if something fails here
            with one_sentence(self.path):
                self._file = opened.enter_context(self.path.open("ab", buffering=0))
            with one_sentence(self._tensorboard):
                self._events = EventFile(self._tensorboard)
                opened.callback(self._events.close)
                self._events.forget(start)
            self._opened = opened.pop_all()
        self._flushed = -math.inf

    def write(self, row: Mapping[str, float]) -> None:
        """Add a row, one of whose keys is 'iteration'. The first row fixes the columns.

        A number that is not finite, and a column that the row lacks, becomes nan.
        """
        numbers = {name: float(value) for name, value in row.items()}
        for name in ("iteration", self._x):
            if not math.isfinite(numbers.get(name, math.nan)):
                raise ValueError(f"a row of metrics needs a number '{name}', got {dict(row)}.")
        header = b""
        if not self._columns:
            self._columns = [*row]
            header = _format(self._columns, [])
        unknown = [name for name in row if name not in self._columns]
        if unknown:
            raise ValueError(
                f"{self.path} has no column '{unknown[0]}': a run's first row fixes its columns."
            )
        self._append(header + _format_row(self._columns, numbers))
        shown = {k: v for k, v in numbers.items() if k != "iteration" and math.isfinite(v)}
        with one_sentence(self._tensorboard):
            self._events.write(int(numbers[self._x]), shown)
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Flush all rows to disk. Call it before a checkpoint, which must not be ahead of them."""
        with one_sentence(self.path):
            os.fsync(self._file.fileno())
            self._events.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Write out and close both files, the one even if the other fails."""
        with one_sentence(self.path):
            self._opened.close()

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _append(self, data: bytes) -> None:
        with one_sentence(self.path):
            while data:  # an unbuffered file may take a part, before the disk is full
                data = data[self._file.write(data) :]


def read_metrics(path: str | Path) -> dict[str, np.ndarray]:
    """The columns of a metrics.csv, or of the one in the run folder `path`, as float64 arrays."""
    path = Path(path)
    file = path / "metrics.csv" if path.is_dir() else path
    saved = checkpoint.saved(path / "checkpoints")  # before the rows: a run may be under way
    columns, rows = _parse(file)
    _check_complete(file, rows, saved)
    return {name: np.array([row[name] for row in rows], float) for name in columns}


def _check_complete(path: Path, rows: list[dict[str, float]], saved: list[Path]) -> None:
    """Raise a ValueError if rows that a checkpoint builds on have been lost."""
    reached = rows[-1].get("steps", math.inf) if rows else 0
    for newest in saved:
        if reached >= int(newest.stem):
            return
        if checkpoint.is_good(newest):  # not one that resume has passed over
            raise ValueError(f"{path} ends before the checkpoint {newest.name}: {ADVICE}.")


def _format(columns: list[str], rows: list[dict[str, float]]) -> bytes:
    for name in columns:
        if not name or set(name) & set(",\r\n"):
            raise ValueError(f"'{name}' cannot name a column of a CSV file: rename the metric.")
    header = _header(columns) + b"\n" if columns else b""
    return header + b"".join(_format_row(columns, row) for row in rows)


def _header(columns: list[str]) -> bytes:
    return ",".join([*columns, CHECKSUM]).encode()


def _format_row(columns: list[str], row: Mapping[str, float]) -> bytes:
    """A row with all digits, so that equal runs give equal bytes."""
    values = ",".join(_text(row.get(name, math.nan)) for name in columns).encode()
    return values + b"," + _checksum(_header(columns), values) + b"\n"


def _checksum(header: bytes, values: bytes) -> bytes:
    """A checksum that is not a number, so it cannot pass for a metric under a damaged name."""
    return b"#%08x" % zlib.crc32(header + b"\n" + values)


def _text(value: float) -> str:
    if not math.isfinite(value):
        return "nan"
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _parse(path: Path, until: float = math.inf) -> tuple[list[str], list[dict[str, float]]]:
    """Columns and rows up to iteration `until`, without a last line that was cut off."""
    lines = read_bytes(path).split(b"\n")[:-1]
    try:
        columns = lines[0].decode().split(",") if lines else [CHECKSUM]
        if columns.pop() != CHECKSUM or (lines and "iteration" not in columns):
            raise ValueError
    except ValueError:
        raise ValueError(f"{path} is not a table of metrics: {ADVICE}.") from None
    rows: list[dict[str, float]] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            values, _, checksum = line.rpartition(b",")
            if checksum != _checksum(lines[0], values):
                raise ValueError
            row = dict(zip(columns, map(float, values.decode().split(",")), strict=True))
            if not all(0 <= row.get(name, 0) < 2**53 for name in ("iteration", "steps")):
                raise ValueError
        except ValueError:
            raise ValueError(f"line {number} of {path} is damaged: {ADVICE}.") from None
        if row["iteration"] > until:
            break
        rows.append(row)
        if row["iteration"] == until:  # what follows will be dropped, good or not
            break
    return columns, rows
