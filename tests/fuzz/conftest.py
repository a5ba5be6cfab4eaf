"""Two real runs, of a process each, that the fuzz tests copy and alter."""

from pathlib import Path

import pytest
from edges import TINY_RUN, process


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """The folder that holds runs/."""
    here = tmp_path_factory.mktemp("fuzz")
    for words in TINY_RUN.values():
        result = process(here, *words)
        assert (result.returncode, result.stderr) == (0, "")
        assert "Next:" in result.stdout
    return here
