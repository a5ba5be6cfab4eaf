"""Reports as Markdown and as a self-contained HTML page, and the parts they share."""

import base64
import mimetypes
import os
import platform
import re
import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path, PurePosixPath
from string import Template
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from wng.experiments.output import markdown_table
from wng.runs.directory import installed_packages
from wng.runs.files import read_bytes, write_atomic

HOLDS, PART, FAILS, UNDECIDED = "holds", "holds in part", "does not hold", "undecided"
SMOKE = (
    "Far too short to learn anything: this run only checks that every part works, and its verdicts "
    "mean nothing."
)
CSS_CLASS = {HOLDS: "holds", PART: "part", FAILS: "fails", UNDECIDED: "undecided"}
LONG = 24  # characters; longer table cells may wrap
CPU_INFO = Path("/proc/cpuinfo")
# The policy and the empty icon stop browsers from loading anything else.
PAGE = Template(Path(__file__).with_name("report.html").read_text())


class Claim(NamedTuple):
    """A claim of the paper and the measurement, in Markdown."""

    claim: str
    paper: str
    here: str
    verdict: str


def verdict(low: float, high: float) -> str:
    """Judge the claim that a quantity is positive by its interval."""
    return HOLDS if low > 0 else FAILS if high < 0 else UNDECIDED


def overall(verdicts: Iterable[str]) -> str:
    """Combine verdicts: in a mixture, those that hold or fail decide; none at all are undecided."""
    found = set(verdicts)
    for word in found - CSS_CLASS.keys():
        raise ValueError(f"'{word}' is not a verdict: use one of {', '.join(CSS_CLASS)}.")
    if len(found) <= 1:
        return found.pop() if found else UNDECIDED
    return PART if found & {HOLDS, PART} else FAILS


def claims_table(claims: Iterable[Claim]) -> str:
    """Format claims as a Markdown table; cells may contain '|' and line breaks."""
    rows = [[" ".join(cell.split()).replace("|", r"\|") for cell in claim] for claim in claims]
    return markdown_table(Claim._fields, rows)


def provenance(command: str) -> str:
    """Return a Markdown section on the command, the software and the CPU, without a host name."""
    info = CPU_INFO.read_text() if CPU_INFO.exists() else ""
    found = re.search(r"^model name\s*:(.*)$", info, re.MULTILINE)
    model = found[1].strip() if found else platform.machine()
    packages = ", ".join(f"{name} {version}" for name, version in installed_packages().items())
    cores = os.cpu_count() or 1
    # An indented block, because the command may contain code fences.
    return f"""## How this report was made

{textwrap.indent(command.strip(), "    ")}

- Packages: {packages}
- Python: {platform.python_version()}
- Platform: {platform.system()} {platform.machine()}
- CPU: {model}, {cores} {"core" if cores == 1 else "cores"}
"""


def appendix(command: str, not_run: str) -> str:
    """Return the last sections of a report: what was not run, and how the report was made."""
    return f"## Not run, or failed\n\n{not_run or 'Nothing.'}\n\n{provenance(command)}"


def write_report(markdown: str, out: Path, title: str) -> None:
    """Write the text to `out`/report.md, and a self-contained page to `out`/report.html.

    The page embeds the images, which must be in `out`; links stay links, and HTML is escaped. A
    ValueError for an image that cannot be embedded is raised before anything is written.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(markdown)
    for token in tokens:
        for child in token.children or []:
            if child.type == "image":
                child.attrs["src"] = _inlined(str(child.attrs["src"]), out)
    body = parser.renderer.render(_decorated(tokens), parser.options, {})
    page = PAGE.substitute(title=escape(title), body=body)
    write_atomic(out / "report.md", markdown.encode())
    write_atomic(out / "report.html", page.encode())


def _inlined(source: str, out: Path) -> str:
    path = PurePosixPath(unquote(source))
    if urlsplit(source).scheme or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"the image {source[:200]} is not in the report's folder: move it there.")
    kind, _ = mimetypes.guess_type(path.name, strict=False)
    if kind is None or not kind.startswith("image/"):
        raise ValueError(f"the image {source} has an unknown type: use PNG, JPEG, SVG or WebP.")
    return f"data:{kind};base64,{base64.b64encode(read_bytes(out / path)).decode()}"


def _decorated(tokens: Sequence[Token]) -> list[Token]:
    """Put tables in scrolling boxes, and give verdicts and long cells a CSS class."""
    result = []
    for i, token in enumerate(tokens):
        if token.type == "table_open":
            # Focusable, because the keyboard scrolls only the element with the focus.
            box = {"class": "table", "role": "region", "aria-label": "table", "tabindex": "0"}
            result.append(Token("table_box_open", "div", 1, attrs={**box}, block=True))
        elif token.type in ("th_open", "td_open"):
            text = "".join(child.content for child in tokens[i + 1].children or []).strip()
            if token.type == "td_open" and text in CSS_CLASS:
                token.attrJoin("class", CSS_CLASS[text])
            elif len(text) > LONG:
                token.attrJoin("class", "long")
        result.append(token)
        if token.type == "table_close":
            result.append(Token("table_box_close", "div", -1, block=True))
    return result
