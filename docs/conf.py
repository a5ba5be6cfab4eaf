"""Configuration of the documentation site: `sphinx-build -W --keep-going docs OUT`."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

project = "wng"
author = "The wng developers"
project_copyright = "The wng developers"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Docstrings put names in single backticks: link them where one documented object has that name,
# and show them as code otherwise. Pages use {any}, which fails the build if there is no target.
default_role = "py:obj"
suppress_warnings = ["ref.python"]  # a short name that several objects have
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_use_rtype = False

html_theme = "furo"
html_title = "wng"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
templates_path: list[str] = []
exclude_patterns: list[str] = []
copybutton_exclude = ".linenos, .gp, .go"

# jaxtyping's PRNGKeyArray is a union that is hard to read in a signature.
ARRAY = r"[^\[\]]*Array, '\w?'\]"
KEY = re.compile(rf"[~\w.]*Key\[{ARRAY}( \| [~\w.]*UInt32\[{ARRAY})+")


def shorten(*event: Any) -> tuple[str | None, str | None]:
    """Write types of arrays in a signature by their short names."""
    signature, returned = (
        text and re.sub(r"~?jaxlib\._jax\.Array", "Array", KEY.sub("PRNGKeyArray", text))
        for text in event[-2:]
    )
    return signature, returned


def keep_colons(app: Any, what: str, *event: Any) -> None:
    """Keep Napoleon from reading "text: more text" about an attribute as "type: description"."""
    if what in ("attribute", "data", "property"):
        event[-1].insert(0, "")  # it looks at the first line only


def copy_data(app: Any, error: Exception | None) -> None:
    """Copy the data of each report next to it, where the report links to it."""
    for report in Path(app.outdir).glob("_downloads/*/report.html"):
        for original in Path(__file__).parent.parent.glob("results/*/report.html"):
            if original.read_bytes() == report.read_bytes():
                data = original.parent / "data"
                shutil.copytree(data, report.parent / "data", dirs_exist_ok=True)


def setup(app: Any) -> None:
    """Connect the hooks."""
    app.connect("build-finished", copy_data)
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)  # before Napoleon
