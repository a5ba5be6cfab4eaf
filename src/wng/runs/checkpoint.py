"""Checkpoints that survive crashes, and that never execute code.

A checkpoint is one safetensors file. The format's own metadata hold our format number, `info` as
JSON, and a SHA-256 of every byte of the file with the digest itself read as zeros; so one rename
publishes it, one unlink removes it, and no byte of it can change unnoticed.
"""

import contextlib
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from wng.runs.files import read_bytes, temporary_name, write_atomic

MISMATCH = "it was written by another version or configuration"
FORMAT = 1
Arrays = dict[str, np.ndarray]

# Types that safetensors can both write and read.
DTYPES = frozenset(np.dtype(code) for code in "?bhilBHILefdF")
# In the header, JSON within JSON has its quotes escaped: only the digest itself looks like this.
DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')
NO_DIGEST = "0" * 64


def write(
    directory: str | Path, step: int, arrays: Arrays, info: dict[str, Any], *, keep: int = 2
) -> Path:
    """Write `directory`/<step>.safetensors, then delete all but the newest `keep` checkpoints.

    Args:
      directory: the folder of checkpoints; made if need be.
      step: names the checkpoint, and is added to `info`.
      arrays: named arrays, see `wng.runs.trees.save_tree`.
      info: anything else that resuming needs, as JSON holds it.
      keep: how many checkpoints to keep.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"step must be at least 0 and keep at least 1, got {step} and {keep}.")
    path = Path(directory) / f"{step:012d}.safetensors"
    raw = _encode(arrays, {**info, "step": step})
    _unlink(*path.parent.glob(temporary_name(Path("*.safetensors")).name))  # of killed processes
    write_atomic(path, raw)
    others = [p for p in saved(directory) if p != path]
    # Later ones exist only where resume skipped them as damaged.
    earlier = [p for p in others if _step(p) < step]
    _unlink(*(set(others) - set(earlier[: keep - 1])))
    return path


def write_file(
    path: str | Path, arrays: Arrays, info: dict[str, Any], durable: bool = True
) -> None:
    """Write one checkpoint to any path; see `write_atomic`."""
    write_atomic(Path(path), _encode(arrays, info), durable)


def read(path: str | Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the info of one checkpoint; ValueError if it is not exactly as written."""
    try:
        return _decode(read_bytes(Path(path)))
    except _OtherFormat as why:
        raise OtherFormatError(f"checkpoint {path} {why}.") from None
    except _Unusable as why:
        raise ValueError(f"checkpoint {path} {why}.") from None


def is_good(path: str | Path) -> bool:
    """Whether `read` would succeed."""
    try:
        read(path)
    except ValueError:
        return False
    return True


def read_latest(directory: str | Path) -> tuple[Arrays, dict[str, Any], list[str]]:
    """The newest good checkpoint, and a sentence for each newer one that is damaged.

    Raises a ValueError if there is no good checkpoint, or if the newest has another format: it is
    not damaged, and resuming from an older one would delete it.
    """
    problems: list[str] = []
    for path in saved(directory):
        try:
            arrays, info = read(path)
            if info.get("step") != _step(path):
                raise ValueError(f"checkpoint {path} was renamed: it belongs to another step.")
        except OtherFormatError:
            raise
        except ValueError as error:
            problems.append(str(error).rstrip("."))
            continue
        return arrays, info, [f"{problem}: using {path} instead." for problem in problems]
    if problems:
        raise ValueError(f"no checkpoint in {directory} can be used: {'; '.join(problems)}.")
    raise ValueError(f"there is no checkpoint in {directory}: start the run again.")


def saved(directory: str | Path) -> list[Path]:
    """The checkpoints in `directory`, good or not, newest first."""
    paths = Path(directory).glob("*.safetensors")
    return sorted((p for p in paths if re.fullmatch(r"\d{12,}", p.stem)), key=_step, reverse=True)


def check_info(info: dict[str, Any], **kinds: type) -> None:
    """Raise a ValueError if one of these entries is missing or has another type."""
    for name, kind in kinds.items():
        value = info.get(name)
        # Keys are folded with 32-bit numbers; only the number of steps may be larger.
        most = 2**53 if name == "steps" else 2**32
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value < most):
            raise ValueError(f"the checkpoint has no usable '{name}': {MISMATCH}.")


class OtherFormatError(ValueError):
    """A checkpoint that another version of wng can read."""


class _Unusable(Exception):
    """Why bytes are not a checkpoint: the rest of a sentence that begins with its name."""


class _OtherFormat(_Unusable):
    """The bytes are a checkpoint of another format."""


def _encode(arrays: Arrays, info: dict[str, Any]) -> bytes:
    for name, array in arrays.items():
        if array.dtype not in DTYPES:
            raise ValueError(
                f"a checkpoint cannot hold '{name}' of type {array.dtype}: convert it."
            )
    if "__metadata__" in arrays:
        raise ValueError("an array cannot be called '__metadata__': the format uses that name.")
    try:
        manifest = json.dumps({"format": FORMAT, "info": info})
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the info of a checkpoint must be JSON: {error}.") from None
    # safetensors ignores strides: pass contiguous copies only.
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    raw = save(contiguous, metadata={"wng": manifest, "sha256": NO_DIGEST})
    place = DIGEST.search(raw)
    assert place is not None
    return _with_digest(raw, place.start(1), hashlib.sha256(raw).hexdigest())


def _decode(raw: bytes) -> tuple[Arrays, dict[str, Any]]:
    header = raw[8 : 8 + int.from_bytes(raw[:8], "little")]
    found = DIGEST.search(header)
    if found is None:
        raise _Unusable("is not a checkpoint of wng, or only the beginning of one")
    original = _with_digest(raw, 8 + found.start(1), NO_DIGEST)
    if hashlib.sha256(original).hexdigest() != found[1].decode():
        raise _Unusable("has been altered or cut short")
    try:
        manifest = json.loads(json.loads(header)["__metadata__"]["wng"])
        if manifest["format"] != FORMAT:
            raise _OtherFormat(
                f"has format {manifest['format']!r}, but this version of wng reads format "
                f"{FORMAT}: use the version that wrote it"
            )
        return load(raw), dict(manifest["info"])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError):
        raise _Unusable("is not a checkpoint of wng") from None


def _with_digest(raw: bytes, start: int, digest: str) -> bytes:
    return raw[:start] + digest.encode() + raw[start + len(digest) :]


def _step(path: Path) -> int:
    return int(path.stem)


def _unlink(*paths: Path) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # a leftover is no reason to stop a run
            path.unlink()
