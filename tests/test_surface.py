"""The public names of wng: each is imported when it is first used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import wng

STUB = Path(wng.__file__).with_suffix(".pyi")


def test_import_wng_imports_nothing_large() -> None:
    code = "import sys, wng; wng.__version__, dir(wng); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"jax", "numpy", "gymnasium"} & {*done.stdout.split()}


def test_every_name_is_there() -> None:
    names = {
        alias.asname
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {"Agent", "WNPG", "WNES", "load", "scale_by_wasserstein", "Config"} <= names
    assert names == {*dir(wng)} == {*wng.__all__} - {"__version__"}
    star: dict[str, object] = {}
    exec("from wng import *", star)
    for name in names:
        assert star[name] is getattr(wng, name)


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="Agnet"):
        _ = wng.Agnet  # type: ignore[attr-defined]
