"""Another configuration, another format: refused in one sentence, and nothing is touched."""

import shutil
from pathlib import Path

import pytest

from drills.conftest import Pair
from drills.runs import FAMILIES, assert_same_run, command, load, one_sentence
from drills.tally import Drill, LostError
from wng.runs import checkpoint, directory
from wng.runs.files import read_json, write_json

CHANGES = {
    "gradient": {"learning-rate": "0.0123", "gamma": "0.5", "num-basis": "7", "hidden": "9"},
    "evolution": {"learning-rate": "0.0123", "sigma": "0.5", "population": "6", "hidden": "9"},
}


def contents(folder: Path) -> dict[Path, bytes]:
    """All but the lock, which names the last who had it."""
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def assert_untouched(folder: Path, before: dict[Path, bytes]) -> None:
    if contents(folder) != before:
        raise LostError("the run is not what it was")


@pytest.mark.parametrize("family", FAMILIES)
def test_another_configuration(pairs, family: str, tmp_path: Path) -> None:
    pair: Pair = pairs[family]
    root = tmp_path / "root"
    shutil.copytree(pair.some, root)
    folder = pair.family.folder(root)
    before = contents(folder)
    with Drill("Resume with another configuration", "the difference is shown") as drill:
        for name, value in CHANGES[family].items():
            with drill.trial(name):
                outcome = command(*pair.go_on(root), f"--{name}", value)
                sentence = outcome.sentence(folder, f"{name.replace('-', '_')}: ")
                assert any(f"→ {shown})" in sentence for shown in (value, f"[{value}]"))
                assert_untouched(folder, before)
    command(*pair.go_on(root)).fine()
    assert_same_run(folder, pair.family.folder(pair.whole))


def reformat(folder: Path, what: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a version of wng with another format would have written it."""
    if what == "configuration":
        record = read_json(folder / "config.json")
        write_json(folder / "config.json", record | {"format": number})
        return
    paths = checkpoint.saved(folder / "checkpoints")
    for path in paths if what == "all checkpoints" else paths[:1]:
        arrays, info = checkpoint.read(path)
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "FORMAT", number)
            checkpoint.write_file(path, arrays, info)


@pytest.mark.parametrize("what", ["configuration", "all checkpoints", "newest checkpoint"])
@pytest.mark.parametrize("family", FAMILIES)
def test_another_format(pairs, family: str, what: str, tmp_path: Path, monkeypatch) -> None:
    pair: Pair = pairs[family]
    assert checkpoint.FORMAT == directory.FORMAT == 1
    for number, age in ((0, "older"), (2, "newer")):
        root = tmp_path / age
        shutil.copytree(pair.some, root)
        folder = pair.family.folder(root)
        reformat(folder, what, number, monkeypatch)
        before = contents(folder)
        said = f"has format {number}, but this version of wng reads format 1"
        with Drill("A run of an older or a newer format", "refused, and left as it is") as drill:
            with drill.trial(f"resume of {age} {what}"):
                command(*pair.go_on(root)).sentence(folder, said)
                assert_untouched(folder, before)
            with drill.trial(f"eval of {age} {what}"):
                command("eval", str(folder)).sentence(folder, said)
            with drill.trial(f"load of {age} {what}"):
                with pytest.raises(ValueError, match=said) as refusal:
                    load(folder)
                one_sentence(str(refusal.value), folder)
                assert_untouched(folder, before)
