"""`python -m drills.disks FOLDER FULL SEALED`: drills on disks of their own, so many times each.

Run under `unshare`, so that the mounts end with the process. Where mounting is not allowed, a full
disk is a limit on the size of files, and a read-only one is folders without the right to write.
"""

import contextlib
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from drills.runs import FAMILIES, assert_loadable, assert_same_run, command, load
from drills.tally import Drill
from wng.runs import record
from wng.runs.metrics import MetricsWriter

PAGE = 4096
ITERATIONS = 7
NOBODY = 65534


def mounted(folder: Path, megabytes: int) -> bool:
    """Whether a small disk could be mounted there."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    return subprocess.run(words, capture_output=True).returncode == 0


class SmallDisk:
    """A disk that can be filled, but for some pages, and freed again."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        self.folder, self.real = folder, mounted(folder, 4)
        self.note = "a tmpfs, filled to the last pages" if self.real else "a limit on file sizes"

    def fill(self, pages: int) -> None:
        if not self.real:
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (pages * PAGE // 8, hard))
            return
        with (self.folder / "filler").open("wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(PAGE))
            file.truncate(max(0, file.tell() - pages * PAGE))

    def free(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        (self.folder / "filler").unlink(missing_ok=True)


@contextlib.contextmanager
def filling(after: int, fill: Callable[[], None]) -> Iterator[None]:
    """Fill the disk before the row of iteration `after` + 1 is written; 0: before the run."""
    write, rows = MetricsWriter.write, 0

    def counting(self: MetricsWriter, row: dict[str, float]) -> None:
        nonlocal rows
        rows += 1
        if rows == after + 1:
            fill()
        write(self, row)

    MetricsWriter.write = counting  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        MetricsWriter.write = write  # type: ignore[method-assign]


def full(folder: Path, times: int) -> None:
    """`wng train` fills the disk, says so, and goes on when there is room."""
    chance = random.Random(times)
    disk = SmallDisk(folder / "disk")
    for family in FAMILIES.values():
        whole = folder / "whole"
        command(*family.words(whole, ITERATIONS)).fine()
        with Drill("The disk is full", disk.note) as drill:
            for number in range(times):
                root = disk.folder / "runs"
                after, pages = chance.randrange(ITERATIONS), number and chance.randrange(8)
                with drill.trial(f"{family.method}: {pages} pages left after {after} rows"):
                    with filling(after, lambda pages=pages: disk.fill(pages)):
                        outcome = command(*family.words(root, ITERATIONS))
                    # What has room for all that follows does not fail; most do not have it.
                    if outcome.code:
                        outcome.sentence("cannot write", family.folder(root), "saved before")
                        if after:
                            assert_loadable(family.folder(root), at_least=max(0, after - 1))
                    else:
                        assert pages
                    disk.free()
                    command(*family.words(root, ITERATIONS, "--resume")).fine()
                    assert_same_run(family.folder(root), family.folder(whole))
                disk.free()
                shutil.rmtree(root)
            with drill.trial(f"{family.method}: full before it starts"):
                disk.fill(0)
                command(*family.words(root, ITERATIONS)).sentence("cannot write", root)
                disk.free()
                command(*family.words(root, ITERATIONS, "--resume")).fine()
                assert_same_run(family.folder(root), family.folder(whole))
            shutil.rmtree(root)
            shutil.rmtree(whole)


@contextlib.contextmanager
def read_only(folder: Path, mount: bool) -> Iterator[None]:
    """Nobody may write in a folder."""
    everything = [folder, *folder.rglob("*")]
    try:
        if mount:
            words = ["mount", "-o", "remount,ro", str(folder)]
            subprocess.run(words, check=True, capture_output=True)
        else:
            for path in everything:
                path.chmod(path.stat().st_mode & ~0o222 | 0o555)
            if os.geteuid() == 0:  # whom permissions do not bind
                os.seteuid(NOBODY)
        yield
    finally:
        if mount:
            words = ["mount", "-o", "remount,rw", str(folder)]
            subprocess.run(words, check=True, capture_output=True)
        else:
            os.seteuid(os.getuid())
            for path in everything:
                path.chmod(path.stat().st_mode | 0o200)


def sealed(folder: Path, times: int) -> None:
    """Training, going on and pictures within the run say one sentence; looking works."""
    disk, out = folder / "disk", folder / "out"
    out.mkdir()
    out.chmod(0o777)
    disk.mkdir()
    mount = mounted(disk, 4)
    note = "a tmpfs remounted" if mount else "without the right to write"
    for family in FAMILIES.values():
        root = disk / family.method
        command(*family.words(root, 3)).fine()
        run = family.folder(root)
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        cases: dict[str, list[str]] = {
            "train": family.words(disk / "new", 3),
            "train again": family.words(root, 3),
            "resume": family.words(root, 4, "--resume"),
            "resume what has ended": family.words(root, 3, "--resume"),
            "plot within": ["plot", str(run), "--to", str(run / "curve.png")],
        }
        works = {
            "eval": ["eval", str(run), "--episodes", "1"],
            "plot": ["plot", str(run), "--to", str(out / "curve.png")],
        }
        if (run / "maps").exists():
            cases["map within"] = ["map", str(run)]
            works["map"] = ["map", str(run), "--to", str(out)]
        else:
            cases["video within"] = ["video", str(run), "--episodes", "1"]
        if not mount:  # imports, of modules that nobody else may be able to read
            for words in (*works.values(), ["video", str(run), "--to", str(out / "film.mp4")]):
                command(*words)
            for path in out.iterdir():
                path.unlink()
        with Drill("The run folder is read-only", note) as drill:
            for _ in range(times):
                for name, words in cases.items():
                    with drill.trial(f"{family.method}, {name}"), read_only(disk, mount):
                        command(*words).sentence(disk)
                for name, words in works.items():
                    with drill.trial(f"{family.method}, {name}"), read_only(disk, mount):
                        command(*words).fine()
                with drill.trial(f"{family.method}, load"), read_only(disk, mount):
                    assert load(run)[0] == 3
                with drill.trial(f"{family.method}, nothing has changed"):
                    for path, raw in before.items():
                        assert path.read_bytes() == raw


if __name__ == "__main__":
    record.CHECKPOINT_SECONDS = 0.0
    for number, drill in enumerate((full, sealed), start=2):
        folder = Path(sys.argv[1]) / drill.__name__
        folder.mkdir(mode=0o755)
        drill(folder, int(sys.argv[number]))
