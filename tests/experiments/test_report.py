import base64
import html.parser
import platform
from itertools import product
from pathlib import Path

import pytest
from PIL import Image

from wng.experiments import report
from wng.experiments.report import (
    FAILS,
    HOLDS,
    PART,
    UNDECIDED,
    Claim,
    claims_table,
    overall,
    provenance,
    write_report,
)


class Elements(html.parser.HTMLParser):
    """The elements of a page, and whether they are nested properly."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "img", "br", "hr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def page_of(markdown: str, out: Path, title: str = "A study") -> Elements:
    write_report(markdown, out, title)
    return Elements((out / "report.html").read_text(encoding="utf-8"))


def test_the_markdown_is_written_as_it_is(tmp_path: Path) -> None:
    text = "# ρ of β\r\n\nno newline at the end"
    write_report(text, tmp_path / "new" / "folder", "A study")
    assert (tmp_path / "new" / "folder" / "report.md").read_bytes() == text.encode()
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == [
        "report.html",
        "report.md",
    ]


def test_images_are_inside_the_page(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    Image.new("RGB", (3, 2), "red").save(tmp_path / "figures" / "a b.png")
    (tmp_path / "ε.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    text = '![Returns of <all> *"methods"*](<figures/a b.png>)\n\n- in a list ![](ε.svg)\n'
    first, second = page_of(text, tmp_path).attributes("img")
    kind, data = str(first["src"]).split(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(data) == (tmp_path / "figures" / "a b.png").read_bytes()
    assert first["alt"] == 'Returns of <all> "methods"'
    assert str(second["src"]).startswith("data:image/svg+xml;base64,")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("figures/none.png", "does not exist"),
        ("https://example.com/x.png", "not in the report's folder"),
        ("//example.com/x.png", "not in the report's folder"),
        ("/etc/x.png", "not in the report's folder"),
        ("../x.png", "not in the report's folder"),
        ("%2e%2e/x.png", "not in the report's folder"),
        ("film.mp4", "unknown type"),
    ],
)
def test_an_image_that_cannot_be_inlined_is_refused(
    tmp_path: Path, source: str, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        write_report(f"# Title\n\n![x]({source})\n", tmp_path / "out", "A study")
    assert not (tmp_path / "out").exists()


def test_links_stay_links(tmp_path: Path) -> None:
    page = page_of("[`data/runs.csv`](data/runs.csv), [x](javascript:alert(1))", tmp_path)
    assert [a["href"] for a in page.attributes("a")] == ["data/runs.csv"]


def test_html_in_the_text_is_escaped(tmp_path: Path) -> None:
    text = (
        "a <script>alert(1)</script>\n\n<img src='https://example.com/x'>\n\n| <b>x</b> |\n|---|\n"
    )
    page = page_of(text, tmp_path, "</title><script>")
    tags = {tag for tag, _ in page.found}
    assert not tags & {"script", "img", "b"}
    assert (("html", "head", "title"), "</title><script>") in page.texts


def test_the_page_asks_nobody_for_anything(tmp_path: Path) -> None:
    page = page_of("# Title\n\n[the paper](https://arxiv.org/abs/2010.05380)\n", tmp_path)
    # No element but these can make a browser load something, and the policy forbids it to them.
    assert {tag for tag, attributes in page.found if {"src", "href"} & attributes.keys()} == {
        "a",
        "link",
    }
    assert page.attributes("link") == [{"rel": "icon", "href": "data:,"}]
    assert "url(" not in report.PAGE.template
    assert "@import" not in report.PAGE.template
    policy = [str(m["content"]) for m in page.attributes("meta") if "http-equiv" in m]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    names = [m.get("name") for m in page.attributes("meta")]
    assert "viewport" in names


def test_tables_scroll_and_verdicts_have_a_class(tmp_path: Path) -> None:
    claims = [
        Claim("A claim in so many words", "1e-8", f"it {verdict} for all but a few", verdict)
        for verdict in (HOLDS, PART, FAILS, UNDECIDED)
    ]
    page = page_of(
        f"holds\n\n{claims_table(claims)}\n\n| a | b |\n|--:|---|\n| **holds** | `not` |\n",
        tmp_path,
    )
    classes = [td.get("class") for td in page.attributes("td")]
    plain = [None, None, "long"]
    assert classes == [
        *plain, "holds", *plain, "part", *plain, "fails", *plain, "undecided", "holds", None,
    ]  # fmt: skip
    assert [div["class"] for div in page.attributes("div")] == ["table", "table"]
    assert all(("div" in place) == ("table" in place) for place, text in page.texts if text.strip())
    assert [td.get("style") for td in page.attributes("td")][-2:] == ["text-align:right", None]


def test_claims_may_contain_pipes_and_lines(tmp_path: Path) -> None:
    table = claims_table(
        [Claim("|x| < 1", "a\nb", "P(A|B)", HOLDS), Claim("`a|b`", "", "1", FAILS)]
    )
    assert table.splitlines()[0] == "| claim | paper | here | verdict |"
    page = page_of(table, tmp_path)
    assert len(page.attributes("td")) == 8
    cells = [text for place, text in page.texts if "td" in place]
    assert cells == ["|x| < 1", "a b", "P(A|B)", HOLDS, "a|b", "1", FAILS]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], UNDECIDED),
        ([HOLDS, HOLDS], HOLDS),
        ([FAILS], FAILS),
        ([PART, PART], PART),
        ([UNDECIDED, UNDECIDED], UNDECIDED),
        ([HOLDS, FAILS], PART),
        ([HOLDS, UNDECIDED], PART),
        ([PART, FAILS, UNDECIDED], PART),
        ([FAILS, UNDECIDED], FAILS),
    ],
)
def test_the_overall_verdict(verdicts: list[str], expected: str) -> None:
    assert overall(verdicts) == expected


def test_the_overall_verdict_does_not_depend_on_the_order_and_is_a_verdict() -> None:
    for verdicts in product((HOLDS, PART, FAILS, UNDECIDED), repeat=3):
        assert overall(verdicts) == overall(reversed(verdicts))
        assert overall(verdicts) in report.CSS_CLASS
    with pytest.raises(ValueError, match="'maybe' is not a verdict"):
        overall([HOLDS, "maybe"])


def test_provenance_names_the_software_but_no_machine(tmp_path: Path) -> None:
    text = provenance("wng reproduce es --tag '```' \\\n  --seeds 3\n")
    assert f"Python: {platform.python_version()}" in text
    assert "jax " in text
    assert "numpy " in text
    assert "/" not in text
    assert not platform.node() or platform.node() not in text
    page = page_of(text, tmp_path)
    blocks = [t for place, t in page.texts if place[-2:] == ("pre", "code")]
    assert "".join(blocks) == "wng reproduce es --tag '```' \\\n  --seeds 3\n"


def test_the_processor_is_named_as_far_as_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert f"CPU: {platform.machine()}, 1 core\n" in provenance("x")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Model: X\n")
    assert "CPU: A Model: X, 1 core\n" in provenance("x")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\n")
    assert f"CPU: {platform.machine()}, 1 core\n" in provenance("x")
