from pathlib import Path
from typing import NamedTuple

import pytest

from drills.runs import FAMILIES, Family, command
from wng.runs import record

SOME, ALL = 5, 7  # iterations of the run that is damaged, and of the one that nobody disturbs


class Pair(NamedTuple):
    """A run that has come some way, and one of the same seed that has come to the end."""

    family: Family
    some: Path
    whole: Path

    def go_on(self, root: Path) -> list[str]:
        """The words that bring the run in `root` to the end."""
        return self.family.words(root, ALL, "--resume")


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint at every iteration."""
    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", 0.0)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Roots of runs of each family."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "CHECKPOINT_SECONDS", 0.0)
        for name, family in FAMILIES.items():
            root = tmp_path_factory.mktemp(name)
            for folder, iterations in (("some", SOME), ("whole", ALL)):
                command(*family.words(root / folder, iterations)).fine()
            found[name] = Pair(family, root / "some", root / "whole")
    return found
