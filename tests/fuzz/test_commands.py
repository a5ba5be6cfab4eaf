"""Command lines of all kinds work, or end in a message and exit code 2, never in a traceback.

Everything is real but the work itself: learning, the episodes of evaluations and films, and the
studies are replaced where they begin (`ends`).
"""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, is_typeddict

import matplotlib.pyplot as plt
import numpy as np
import pytest
from edges import LARGE, POINT, TEXTS, TINY_RUN, fuzz, process, run
from hypothesis import example, given
from hypothesis import strategies as st

from wng import cli
from wng.agents import agent as agents
from wng.agents import video
from wng.agents.registry import METHODS
from wng.agents.run import Outcome, Status
from wng.cli import seeds, studies
from wng.envs import episodes as played
from wng.envs.episodes import episode_returns
from wng.execution import ray as executors
from wng.experiments.conditioning import spectrum as spectra
from wng.experiments.conditioning.spectrum import Spectrum
from wng.experiments.toys import study as toys
from wng.experiments.transport import study as transport


@pytest.fixture(scope="module")
def folder(tmp_path_factory, runs: Path) -> Iterator[Path]:
    """Here: two runs, an agent's file, files of other kinds; and the work replaced."""
    here = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        shutil.copytree(runs / "runs", here / "runs")
        (here / "text.txt").write_text("text")
        (here / "agent.wng").write_bytes(
            next(here.glob("runs/*/bgwnes/*/checkpoints/*")).read_bytes()
        )
        ends(patch)
        yield here


def ends(patch: pytest.MonkeyPatch) -> None:
    """Replace the work: whatever is before and after it stays."""
    spectrum = Spectrum("env", "PG", 0, 1, 1, 3, np.array([2.0, -1.0]), 0.5)
    patch.setattr(agents.Agent, "learn", lambda self, *args, **more: self)
    finished = Outcome(Status.FINISHED)
    patch.setattr(
        seeds, "run_jobs", lambda jobs, *args, **more: {job.folder: finished for job in jobs}
    )
    patch.setattr(executors.RayExecutor, "__init__", stopped)
    patch.setattr(played, "episode_returns", a_few)
    patch.setattr(video, "_play", lambda *args, play=video._play: play(*args[:-1], 2))
    patch.setattr(spectra, "diagnose", lambda *args: spectrum)
    patch.setattr(toys, "run_study", stopped)
    patch.setattr(transport, "reproduce", stopped)
    patch.setattr(studies.pg, "run", stopped)
    patch.setattr(studies, "run_trials", stopped)


def a_few(env: Any, make_act: Any, episodes: int, seed: int, limit: int | None) -> np.ndarray:
    """Not as many episodes as one may ask for, and short."""
    return episode_returns(env, make_act, min(episodes, 2), seed, min(limit or 5, 5))


def stopped(*args: Any, **more: Any) -> None:
    raise RuntimeError("the work would begin here")


SEED0 = ["runs/wng-PointWall-v0/bgwnes/seed0", "runs/wng-PointWall-v0/pg/seed0"]
FILES = ["runs", "agent.wng", "text.txt", "nowhere", "text.txt/below", "new/a.png", "a.gif", "."]
PATHS = st.one_of(st.sampled_from(SEED0), st.sampled_from(SEED0 + FILES), TEXTS)
IDS = [POINT, "CartPole-v1", "Hopper-v9", "wng:PointWall-v0", "os:path", "wng/Quadruped"]
WHOLE = st.sampled_from(["0", "1", "2", "3", "8", "16", "-1", "1.5", *map(str, LARGE)])
REAL = st.sampled_from(["0", "1", "0.5", "-1", "1e3", "1e9", "1e39", "1e400", "nan", "inf"])
WORDS = ["tuned", "paper", "smoke", "wasserstein", "none", "adam", "0-1", "0-99999999999", "3,1"]
SOMETHING = st.one_of(
    st.sampled_from(IDS), st.sampled_from([*METHODS, *WORDS]), PATHS, WHOLE, REAL, TEXTS
)


def flags_of(cls: Any) -> dict[str, Any]:
    """The flags of a command and what they take."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(field.type):
            found |= flags_of(field.type)
        elif is_typeddict(field.type):  # a group of settings
            for name, kind in field.type.__annotations__.items():
                found[f"--{name.replace('_', '-')}"] = get_args(kind)[0]
        elif get_origin(field.type) is not Annotated:  # a word without a flag
            found[f"--{field.name.replace('_', '-')}"] = field.type
    return found


def class_of(name: str, method: str = "") -> Any:
    """The class of a command, for `train` that of a method."""
    cls = cli.command_class(name)
    return cls.for_method(method, helps=False) if name == "train" else cls


def fitting(kind: Any) -> st.SearchStrategy[list[str]]:
    """What a flag takes, as words: mostly of the right kind, not always of the right value."""
    one = {int: WHOLE, float: REAL, Path: PATHS, Path | None: PATHS}.get(kind, SOMETHING)
    if get_origin(kind) is Literal:
        one = st.sampled_from(get_args(kind))
    if get_origin(kind) is tuple:
        return st.lists(WHOLE if int in get_args(kind) else SOMETHING, max_size=2)
    return st.just([]) if kind is bool else one.map(lambda word: [word])


@st.composite
def good_lines(draw: st.DrawFn) -> list[str]:
    """Real flags, each with a value of its kind."""
    name = draw(st.sampled_from([*cli.COMMANDS, "train", "train", "train", "eval", "video"]))
    words, method = name.split(), draw(st.sampled_from(list(TINY_RUN)))
    if name == "train":
        words = [*TINY_RUN[method], "--steps", "1e9"]
        where = [["--out", "new"], ["--seeds", "0,1"], ["--resume", "--steps", "32"]]
        words += draw(st.sampled_from(where))
    elif name in ("eval", "video", "plot", "map", "diagnose"):
        words.append(draw(PATHS))
    flags = flags_of(class_of(name, method))
    for flag in draw(st.lists(st.sampled_from(sorted(flags)), max_size=3, unique=True)):
        words += [flag, *draw(fitting(flags[flag]))]
    return words


@st.composite
def bad_lines(draw: st.DrawFn) -> list[str]:
    """A command, then flags that are nearly right, words and values of any kind."""
    name = draw(st.sampled_from(list(cli.COMMANDS)))
    words = name.split() + draw(st.lists(SOMETHING, max_size=2))
    for flag in draw(st.lists(st.sampled_from(sorted(flags_of(class_of(name))) or ["--x"]))):
        more = [
            flag[:-1],
            f"{flag}x",
            flag.upper(),
            flag.replace("-", "_"),
            flag[1:],
            f"{flag}=",
            "-h",
        ]
        word = draw(st.sampled_from([flag, flag, flag, flag, f"--no-{flag[2:]}", *more]))
        value = draw(st.lists(SOMETHING, max_size=2))
        joined = draw(st.booleans()) and value
        words += [f"{word}={value[0]}", *value[1:]] if joined else [word, *value]
    return words


@fuzz(25)
@given(good_lines())
def test_good_lines(folder: Path, words: list[str]) -> None:
    run(*words)
    plt.close("all")
    for made in (folder / "new").glob("*/*"):
        shutil.rmtree(made, ignore_errors=True)


@fuzz(100)
@given(bad_lines())
def test_bad_lines(folder: Path, words: list[str]) -> None:
    run(*words)
    plt.close("all")


@fuzz(100)
@given(st.lists(st.one_of(TEXTS, st.sampled_from([*cli.COMMANDS, "reproduce"])), max_size=4))
@example([])
@example(["reproduce"])
@example(["reproduce", "--help"])
def test_words(folder: Path, words: list[str]) -> None:
    run(*words)


@pytest.mark.parametrize("end", ["--seed 4294967296"])
def test_whole_processes_that_end_in_a_sentence(tmp_path: Path, end: str) -> None:
    result = process(tmp_path, *TINY_RUN["bgwnes"], *end.split())
    assert result.returncode == 2
    assert result.stderr.startswith("wng: ")
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()
