"""Configuration of the documentation site: `sphinx-build -W --keep-going docs OUT`."""

import re
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


def setup(app: Any) -> None:
    """Connect the hook that shortens signatures."""
    app.connect("autodoc-process-signature", shorten)
