"""A pickle in place of every file that is ever read: nothing is executed."""

import ast
import io
import os
import pickle
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import wng
from drills.conftest import Pair
from drills.runs import command, one_sentence
from drills.tally import Drill
from wng.execution.processes import progress_of
from wng.experiments import drawing
from wng.experiments.es import maps
from wng.experiments.study import Trial, read_runs

# What any command, or call of the library, reads of what a run or a study leaves. The lock holds
# the number of a process; failure.txt is read for people, and log.txt by people alone.
READ = {
    "agent.safetensors",
    "checkpoints/*.safetensors",
    "config.json",
    "failure.txt",
    "lock",
    "maps/*.safetensors",
    "metrics.csv",
}
WATCHED: list[Path] = []  # folders; an audit hook cannot be removed, but it can have nothing to do
SEEN: set[Path] = set()


def watch(event: str, arguments: tuple) -> None:
    if not WATCHED or event != "open" or not isinstance(arguments[0], str | os.PathLike):
        return
    path, mode, flags = arguments
    reads = mode.startswith("r") if mode else (flags & os.O_ACCMODE) != os.O_WRONLY
    if reads and any(folder in Path(path).parents for folder in WATCHED):
        SEEN.add(Path(path))


sys.addaudithook(watch)


def kind(path: Path, folder: Path) -> str:
    name = path.relative_to(folder)
    return str(name) if name.parent == Path() else f"{name.parent}/*{name.suffix}"


def actions(pair: Pair, root: Path, fast: bool) -> dict[str, Callable[[], None]]:
    """All that reads. Each says one sentence where it cannot go on."""
    folder, out = pair.family.folder(root), root / "out"
    # A study's folders are those of its trials: link this run to where a trial has its own.
    trial = Trial(pair.family.env, pair.family.method, 0, pair.family.size, "tuned")
    study = root / "study"
    trial.folder(study).parent.mkdir(parents=True, exist_ok=True)
    trial.folder(study).symlink_to(folder)

    def of_wng(*words: str) -> None:
        outcome = command(*words)
        _ = outcome.fine() if outcome.code == 0 else outcome.sentence()

    def of_library(call: Callable[[], object]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                call()
        except (ValueError, OSError) as error:
            one_sentence(str(error))

    def to_a_file() -> None:
        agent = wng.load(folder / "agent.safetensors")
        agent.close()

    found: dict[str, Callable[[], None]] = {
        "load": lambda: of_library(lambda: wng.load(folder).close()),
        "load a file": lambda: of_library(to_a_file),
        "plot": lambda: of_wng("plot", str(folder), "--to", str(out / "curve.png")),
        "map": lambda: of_library(
            lambda: maps.draw_map(wng.RunDirectory.open(folder), out / "map.png")
        ),
        "study": lambda: of_library(lambda: read_runs([trial], study)),
        "failure": lambda: of_library(lambda: trial.failure(study)),
        "seeds": lambda: of_library(lambda: progress_of(folder)),
    }
    if not fast:
        found["eval"] = lambda: of_wng("eval", str(folder), "--episodes", "1")
        found["map and film"] = lambda: of_wng("map", str(folder), "--to", str(out))
        found["video"] = lambda: of_wng("video", str(folder), "--to", str(out / "film.gif"))
        found["diagnose"] = lambda: of_wng(
            "diagnose", str(folder), "--rollouts", "1", "--number", "2", "--to", str(out / "s.png")
        )
    found["train"] = lambda: of_wng(*pair.family.words(root, 5))
    found["train --resume"] = lambda: of_wng(*pair.go_on(root))  # last: it changes the run
    return found


def prepare(pair: Pair, root: Path) -> Path:
    shutil.copytree(pair.some, root)
    folder = pair.family.folder(root)
    (folder / "log.txt").write_text("Resuming at step 64.\n")
    (folder / "failure.txt").write_text("killed by SIGKILL\n")
    agent = wng.load(folder)
    agent.save(folder / "agent.safetensors")
    agent.close()
    return folder


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, sentinel: Path):
        self.sentinel = sentinel

    def __reduce__(self):
        return (Path.touch, (self.sentinel,))


def payloads(sentinel: Path) -> list[bytes]:
    """Pickles, old and new, and the arrays of objects that NumPy makes of them."""
    array = io.BytesIO()
    np.save(array, np.array([Bomb(sentinel)], object), allow_pickle=True)
    return [pickle.dumps(Bomb(sentinel), 0), pickle.dumps(Bomb(sentinel)), array.getvalue()]


@pytest.mark.parametrize("family", ["gradient", "evolution"])
@pytest.mark.slow
@pytest.mark.parametrize("fast", [True, False])
def test_pickles_in_place_of_files(
    pairs, family: str, fast: bool, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(drawing, "save", lambda figure, path: plt.close(figure))
    monkeypatch.setattr(maps, "save", lambda figure, path: plt.close(figure))
    pair: Pair = pairs[family]
    root, sentinel = tmp_path / "root", tmp_path / "executed"
    expected = READ - ({"maps/*.safetensors"} if family == "gradient" else set())

    SEEN.clear()
    folder = prepare(pair, root)
    WATCHED.append(folder)
    WATCHED.append(root / "study")
    try:
        for act in actions(pair, root, fast).values():
            act()
    finally:
        WATCHED.clear()
    files = {path.resolve() for path in SEEN if not path.is_dir()}  # those are synchronised
    assert {kind(path, folder) for path in files} == expected
    shutil.rmtree(root)

    for payload in payloads(sentinel):  # each of them does it, if it is loaded
        np.load(io.BytesIO(payload), allow_pickle=True)
        sentinel.unlink()
    with Drill("A pickle in place of a file that is read", f"{len(READ)} kinds of files") as drill:
        for name in sorted(expected):
            for number, payload in enumerate(payloads(sentinel)[fast:]):
                folder = prepare(pair, root)
                for path in folder.rglob("*"):
                    if path.is_file() and kind(path, folder) == name:
                        path.write_bytes(payload)
                for action, act in actions(pair, root, fast).items():
                    with drill.trial(f"{action}, {name}, payload {number}"):
                        act()
                        assert not sentinel.exists(), "it was executed"
                shutil.rmtree(root)


def test_nothing_in_the_source_unpickles() -> None:
    """By any of the names that do; what processes send each other is no file."""
    dangerous = {("pickle", "load"), ("pickle", "loads"), ("np", "load"), ("marshal", "loads")}
    dangerous |= {
        ("torch", "load"),
        ("joblib", "load"),
        ("shelve", "open"),
        ("pickle", "Unpickler"),
    }
    source = Path(wng.__file__).parent
    files = sorted(set(source.rglob("*.py")) - {source / "execution" / "ray.py"})
    assert len(files) > 50
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in dangerous, file
            if isinstance(node, ast.ImportFrom) and node.module in ("pickle", "marshal", "shelve"):
                raise AssertionError(f"{file} imports from {node.module}")
