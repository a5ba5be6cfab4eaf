"""Atomic files: always wholly old or wholly new, whenever the process dies.

Nothing here can execute what it loads: bytes, and JSON that includes its checksum.
"""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ADVICE = {
    errno.ENOSPC: "free some space there; what was saved before is intact",
    errno.EDQUOT: "free some space there; what was saved before is intact",
    errno.EACCES: "choose a writable folder with --out or --to",
    errno.EPERM: "choose a writable folder with --out or --to",
    errno.EROFS: "choose a writable folder with --out or --to",
}


@contextlib.contextmanager
def one_sentence(path: Path) -> Iterator[None]:
    """Turn the system's error about writing `path` into one that says what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        advice = ADVICE.get(error.errno or 0, "what was saved before is intact")
        raise OSError(f"cannot write {path} ({reason}): {advice}.") from error


def write_atomic(path: Path, data: bytes, durable: bool = True) -> None:
    """Write all of `data` to `path` or nothing.

    If `durable`, it has reached the disk when this returns: it survives a power cut.
    """
    temporary = temporary_name(path)
    try:
        with one_sentence(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if durable:
                _sync_directory(path.parent)
    finally:
        with contextlib.suppress(OSError):  # the error above, if any, is the one to tell
            temporary.unlink(missing_ok=True)


def temporary_name(path: Path) -> Path:
    """The temporary file for `path`: in the same folder, since a rename is atomic on one disk."""
    return path.with_name(f".{path.name}.tmp")


def _sync_directory(directory: Path) -> None:
    """Sync a folder: a rename survives a power cut only after this."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` as JSON with its own checksum."""
    write_atomic(path, _encode(content, path))


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote; ValueError if a single byte has changed since."""
    raw = read_bytes(path)
    try:
        content = json.loads(raw)
        unaltered = content.pop("sha256") is not None and _encode(content, path) == raw
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        unaltered = False
    if not unaltered:
        raise ValueError(
            f"{path} is damaged or was edited: restore the original, or start a new run."
        )
    return content


def _encode(content: dict[str, Any], path: Path) -> bytes:
    try:
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        return (json.dumps({**content, "sha256": digest}, indent=2) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"this cannot be written to {path} as JSON: {error}.") from None


def read_bytes(path: Path) -> bytes:
    """The content of a file; ValueError if it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist.") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}).") from None
