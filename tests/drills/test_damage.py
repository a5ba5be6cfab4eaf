"""Each file of a run emptied, cut, one bit flipped, removed: it works, or the file is named."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import wng
from drills.conftest import ALL, SOME, Pair
from drills.runs import (
    FAMILIES,
    assert_rows_of,
    assert_same_arrays,
    assert_same_run,
    command,
    load,
    one_sentence,
)
from drills.tally import Drill, LostError
from wng.evolution.maps import read_maps
from wng.experiments import drawing
from wng.experiments.es import maps
from wng.runs import checkpoint
from wng.runs.metrics import read_metrics


def cut(raw: bytes, chance: random.Random) -> bytes:
    return raw[: chance.randrange(1, len(raw))]


def flip(raw: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ (1 << chance.randrange(8))]) + raw[place + 1 :]


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "emptied": lambda raw, chance: b"",
    "cut at random": cut,
    "changed by one bit": flip,
    "removed": lambda raw, chance: None,
}
SAID = (ValueError, OSError)  # what `wng` prints as one sentence


def files(folder: Path) -> dict[str, list[Path]]:
    """The files of a run by their kind."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file()):
        kinds.setdefault(str(path.parent if path.parent.name else path.name), []).append(path)
    kinds["newest checkpoint"], kinds["older checkpoint"] = (
        [path.relative_to(folder)] for path in checkpoint.saved(folder / "checkpoints")
    )
    del kinds["checkpoints"]
    return kinds


def no_picture(figure, path: Path) -> None:
    plt.close(figure)


def check_reading(folder: Path, whole: Path, past: dict[int, dict], named: Path) -> None:
    """load, eval, plot, map: what is said is true, or names the file."""
    try:
        iteration, arrays = load(folder)
        assert_same_arrays(arrays, past[iteration])
    except SAID as error:
        one_sentence(str(error), named)
    try:
        assert_rows_of(folder, whole)
    except SAID as error:
        one_sentence(str(error), named)
    drawn = command("plot", str(folder), "--to", str(folder / "curve.png"))
    _ = drawn.fine() if drawn.code == 0 else drawn.sentence(named)
    if (whole / "maps").exists():
        try:
            maps.draw_map(wng.RunDirectory.open(folder), folder / "map.png")
            expected = {g.number: g for g in read_maps(whole, ALL)}
            for found in read_maps(folder, ALL):
                for name in ("finals", "path"):
                    same = np.array_equal(getattr(found, name), getattr(expected[found[0]], name))
                    if not same:
                        raise LostError(f"{name} of generation {found.number} differ")
        except SAID as error:
            one_sentence(str(error), named)


def check_resume(pair: Pair, root: Path, damaged: Path, raw: bytes) -> None:
    """To the end of the undisturbed run; where that is refused, once the file is put back."""
    folder, whole = (pair.family.folder(path) for path in (root, pair.whole))
    gone = not damaged.exists() and damaged.name == "metrics.csv"
    outcome = command(*pair.go_on(root))
    if outcome.code:
        outcome.sentence(damaged)
        damaged.parent.mkdir(exist_ok=True)
        damaged.write_bytes(raw)
        outcome = command(*pair.go_on(root))
    outcome.fine()
    if gone:  # it goes on without the rows before, as advised, and says so
        assert str(damaged) in outcome.out
        rows = read_metrics(folder)["iteration"].tolist()
        assert rows == list(range(SOME + 1, ALL + 1))
        shutil.copy(whole / "metrics.csv", damaged)
    assert_same_run(folder, whole)


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_damaged_files(
    pairs, times: int, family: str, how: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(drawing, "save", no_picture)
    monkeypatch.setattr(maps, "save", no_picture)
    pair: Pair = pairs[family]
    some, whole = (pair.family.folder(path) for path in (pair.some, pair.whole))
    (some / "log.txt").write_text("Resuming at step 64.\n")  # as --seeds leaves one
    past = {
        info["iteration"]: arrays
        for arrays, info in map(checkpoint.read, checkpoint.saved(some / "checkpoints"))
    }
    chance = random.Random(times)
    root = tmp_path / "root"
    with Drill(f"A file of a run is {how}", "each kind of file of both families") as drill:
        for kind, names in files(some).items():
            for _ in range(times if how in ("cut at random", "changed by one bit") else 1):
                name = chance.choice(names)
                shutil.copytree(pair.some, root)
                damaged = pair.family.folder(root) / name
                raw = damaged.read_bytes()
                damage = DAMAGE[how](raw, chance)
                if damage is None:
                    damaged.unlink()
                else:
                    damaged.write_bytes(damage)
                with drill.trial(f"{family}, {kind}, {how}: {name} is {damage!r}"):
                    check_reading(pair.family.folder(root), whole, past, damaged)
                    check_resume(pair, root, damaged, raw)
                shutil.rmtree(root)
