"""Files of runs with something else in them, and a right checksum: they load, or one sentence.

Whatever a file says, only what the documents say is imported: the module of an environment's id
`module:id`, and that of an embedding `module:function`.
"""

import copy
import hashlib
import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from edges import LARGE, POINT, STRINGS, TINY_RUN, fuzz, refused, run
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

import wng
from wng.cli import look
from wng.runs import checkpoint, files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=list(TINY_RUN))
def made(request, runs: Path, tmp_path_factory) -> tuple[Path, list[str]]:
    """A real run, and the words that resume it."""
    root, method = tmp_path_factory.mktemp("altered"), request.param
    folder = root / "runs" / "wng-PointWall-v0" / method / "seed0"
    shutil.copytree(runs / folder.relative_to(root), root / "original")
    shutil.copytree(root / "original", folder)
    return folder, [*TINY_RUN[method], "--out", str(root / "runs"), "--resume"]


@pytest.fixture(autouse=True, scope="module")
def quickly(tmp_path_factory) -> Iterator[None]:
    """Elsewhere, without what follows when a run has ended, and with fewer frames."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("here"))
        patch.setattr("wng.cli.train.conclude", lambda *args: None)
        patch.setattr("wng.experiments.es.maps.FRAMES", 2)
        yield


@pytest.fixture(autouse=True)
def only_documented_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The modules that were imported by name, all of which an id or an embedding must name."""
    asked: list[str] = []
    real = importlib.import_module

    def noted(name: str, package: str | None = None) -> Any:
        if sys._getframe(1).f_globals["__name__"].startswith("wng."):
            asked.append(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", noted)
    return asked


def fresh(folder: Path) -> Path:
    """The run as it was."""
    shutil.rmtree(folder)
    shutil.copytree(folder.parents[3] / "original", folder)
    return folder


# JSON of all kinds, and what may be in its place.
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from(LARGE),
    st.floats(),
    st.sampled_from([*STRINGS, "\0", "wng", "pg", "es", "policy_gradient", "evolution", POINT]),
    st.sampled_from(["CartPole-v1", "this:Env-v0", "os:path", "<f>"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
ANY_JSON = st.recursive(
    ATOMS, lambda s: st.lists(s, max_size=3) | st.dictionaries(st.text(max_size=5), s, max_size=3)
)
DEEP = st.builds(lambda: json.loads("[" * 50 + "]" * 50))


def places(tree: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path of every value in nested dictionaries and lists."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


@st.composite
def altered(draw: st.DrawFn, tree: dict[str, Any]) -> dict[str, Any]:
    """`tree` with one to three values replaced, removed or added."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(list(places(tree)) or [("x",)]))
        inside: Any = tree
        for key in path:
            inside = inside[key]
        how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"]))
        if how == "remove" and last in (inside if isinstance(inside, dict) else ()):
            del inside[last]
        elif how == "add" and isinstance(inside, dict):
            inside[draw(st.text(max_size=4))] = draw(ANY_JSON)
        else:
            inside[last] = draw(st.one_of(ANY_JSON, DEEP))
    return tree


KINDS = ["f4", "f8", "i4", "i8", "u1", "?", "f2"]
SHAPES = [(), (0,), (1,), (2,), (3,), (2, 0), (1, 2), (2, 3), (2, 1, 2), (6, 6, 2)]


@st.composite
def altered_arrays(draw: st.DrawFn, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`arrays` with one or two of another shape, type or value, or missing, or added."""
    arrays = dict(arrays)
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from([*sorted(arrays), "extra", "env/extra", "learner/extra"]))
        how = draw(st.sampled_from(["shape", "dtype", "value", "remove"]))
        old = arrays.pop(name, np.zeros(2))
        fill = draw(st.sampled_from([0, 1, -1, np.nan, np.inf, 2**62, 10**9, -(2**63)]))
        with np.errstate(all="ignore"):
            if how == "shape":
                arrays[name] = np.full(draw(st.sampled_from(SHAPES)), 1).astype(old.dtype)
            elif how == "dtype":
                arrays[name] = old.astype(draw(st.sampled_from(KINDS)))
            elif how == "value":
                arrays[name] = np.full(old.shape, np.float64(fill)).astype(old.dtype)
    return arrays


def write(path: Path, arrays: dict[str, np.ndarray], manifest: Any) -> None:
    """A checkpoint with a right checksum, whatever it holds."""
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    contiguous = {name: np.asarray(x, order="C") for name, x in arrays.items()}
    raw = save(contiguous, metadata={"wng": text, "sha256": "0" * 64})
    place = checkpoint.DIGEST.search(raw)
    assert place is not None
    digest = hashlib.sha256(raw).hexdigest()
    path.write_bytes(checkpoint._with_digest(raw, place.start(1), digest))


def use(folder: Path, words: list[str], *commands: str) -> None:
    """Load it, evaluate it, go on with it, draw it."""
    refused(lambda: look.load_agent(folder).close())
    run("eval", str(folder), "--episodes", "1")
    for command in commands:
        run(*words) if command == "resume" else run(command, str(folder))
    plt.close("all")


def newest(folder: Path) -> Path:
    for old in checkpoint.saved(folder / "checkpoints")[1:]:
        old.unlink()
    return checkpoint.saved(folder / "checkpoints")[0]


@fuzz(12)
@given(st.data())
def test_manifests(made, only_documented_imports, data: st.DataObject) -> None:
    folder, words = fresh(made[0]), made[1]
    path = newest(folder)
    arrays, info = checkpoint.read(path)
    manifest = data.draw(altered({"format": 1, "info": info}))
    write(path, arrays, manifest)
    del only_documented_imports[:]
    use(folder, words, "resume")
    named = json.dumps(manifest, ensure_ascii=False)
    for module in only_documented_imports:
        assert module.startswith("wng.") or f"{module}:" in named, module


@fuzz(12)
@given(st.data())
def test_arrays(made, data: st.DataObject) -> None:
    folder, words = fresh(made[0]), made[1]
    path = newest(folder)
    arrays, info = checkpoint.read(path)
    write(path, data.draw(altered_arrays(arrays)), {"format": 1, "info": info})
    use(folder, words, "resume")


@fuzz(40)
@given(st.one_of(ANY_JSON, st.just("[" * 10**5), st.binary(max_size=20)))
def test_headers(made, instead: Any) -> None:
    """Metadata that are no manifest at all, or a header that is no header."""
    path = newest(fresh(made[0]))
    arrays, _ = checkpoint.read(path)
    if isinstance(instead, bytes):
        path.write_bytes(len(instead).to_bytes(8, "little") + instead)
    else:
        write(path, arrays, instead)
    assert refused(lambda: wng.load(path)) is not None
    assert refused(lambda: wng.load(made[0])) is not None


@fuzz(6)
@given(st.data())
def test_config_json(made, data: st.DataObject) -> None:
    folder, words = fresh(made[0]), made[1]
    record = files.read_json(folder / "config.json")
    files.write_json(folder / "config.json", data.draw(altered(record)))
    use(folder, words, "resume", "plot", *(["map"] if (folder / "maps").exists() else []))


@fuzz(8)
@given(st.data())
def test_metrics(made, data: st.DataObject) -> None:
    folder, words = fresh(made[0]), made[1]
    path = folder / "metrics.csv"
    cells = [line.split(",") for line in path.read_text().splitlines()]
    some = st.sampled_from(["", "x", "nan", "inf", "-inf", "1e400", "-1", "1e300", "\0", "\r", "é"])
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.sampled_from(cells))
        place = data.draw(st.integers(0, len(row) - 1) if row else st.just(0))
        row[place : place + data.draw(st.integers(0, 3))] = data.draw(st.lists(some, max_size=2))
    path.write_text("\n".join(",".join(row) for row in cells) + "\n")
    run("plot", str(folder))
    run("map", str(folder))
    run(*words)
    plt.close("all")


@fuzz(4)
@given(st.data())
def test_maps(made, data: st.DataObject) -> None:
    folder, _ = fresh(made[0]), made[1]
    (folder / "maps").mkdir(exist_ok=True)
    path = folder / "maps" / data.draw(st.sampled_from(["000001", "1", "0", "1x", "٣", "9" * 30]))
    path = path.with_suffix(".safetensors")
    arrays = {"finals": np.zeros((6, 2), np.float32), "path": np.ones((4, 2), np.float32)}
    if data.draw(st.booleans()):
        path.write_bytes(save(data.draw(altered_arrays(arrays))))
    else:
        path.write_bytes(data.draw(st.binary(max_size=20)))
    run("map", str(folder))
    plt.close("all")
