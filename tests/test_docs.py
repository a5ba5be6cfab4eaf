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
    """A block that starts with a file name is a file of its own; the others are one script."""
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "extend" / page).read_text(), re.M | re.S)
    assert blocks
    files: dict[str, str] = {}
    for block in blocks:
        named = re.match(r"# (\w+\.py)\n", block)
        name = named[1] if named else "page.py"
        files[name] = files.get(name, "") + block
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        run_in(tmp_path, sys.executable, name)


def test_the_command_line_trains_on_the_environment_of_the_docs(tmp_path: Path) -> None:
    page = (DOCS / "extend" / "environment.md").read_text()
    block = re.search(r"^```python\n(# drift\.py\n.*?)^```", page, re.M | re.S)
    assert block
    (tmp_path / "drift.py").write_text(block[1])
    command = "train wtrpo --env drift:Drift --seeds 0-1 --steps 2048 --out runs"
    code = "from wng.cli import main; main()"
    run_in(tmp_path, sys.executable, "-c", code, *command.split())
    assert (tmp_path / "runs" / "drift-Drift" / "wtrpo" / "seed1" / "config.json").exists()


def run_in(folder: Path, *command: str) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
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
