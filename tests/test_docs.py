"""The site builds without a warning, documents everything public, and its examples run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import wng

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXTEND = sorted(page.name for page in (DOCS / "extend").glob("*.md") if page.stem != "index")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(out)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return out


def test_reference_has_everything_public(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text()
    documented = set(re.findall(r'id="wng\.(\w+)"', page))
    assert set(wng.__all__) - {"__version__"} <= documented


@pytest.mark.parametrize("page", EXTEND)
def test_python_of_an_extend_page_runs(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "extend" / page).read_text(), re.M | re.S)
    assert blocks
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    result = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("text", ["README.md", "CONTRIBUTING.md"])
def test_relative_links_of_a_page_outside_the_site_exist(text: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / text).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize(
    ("env", "method", "settings"),
    [
        ("Pendulum-v1", "wnpg", {"num_envs": 2, "rollout": 64, "minibatch": 64, "num_basis": 5}),
        ("Pendulum-v1", "wtrpo", {"num_envs": 2, "rollout": 64, "num_basis": 5}),
        ("wng/PointWall-v0", "bgwnes", {"population": 4, "num_basis": 4}),
    ],
)
def test_every_column_is_in_the_glossary(env: str, method: str, settings: dict[str, int]) -> None:
    columns: set[str] = set()
    agent = wng.Agent(env, method, **settings)
    agent.learn(1, callback=lambda agent, row: columns.update(row), progress=False)
    agent.close()
    glossary = (DOCS / "reference" / "metrics.md").read_text()
    described = set(re.findall(r"`(\w+)`", glossary))
    assert columns - described == set()
