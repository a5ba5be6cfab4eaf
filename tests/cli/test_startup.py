"""Help, lists and mistakes are answered without importing JAX, which takes most of a second."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import wng

# What a quick answer must not wait for; Gymnasium is imported to look an environment up.
LARGE = ("jax", "scipy", "matplotlib", "mujoco", "tensorboardX", "imageio", "jaxtyping")
COMMAND = """
import sys
from wng.cli import main

sys.argv[0] = "wng"
main()
"""
# Each command in a process of its own, which has imported what nearly all commands import.
COMMANDS = """
import json, os, sys
import numpy, rich.console, typeguard, tyro
from wng.cli import main

for line in sys.stdin:
    folder, words = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        said = os.open("said.txt", os.O_CREAT | os.O_WRONLY)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.argv = ["wng", *words]
        try:
            main()
        finally:
            with open("modules.txt", "w") as file:
                print(*sys.modules, sep="\\n", file=file)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Imported = Callable[[Path, str], tuple[int, str, set[str]]]


@pytest.fixture(scope="module")
def imported() -> Iterator[Imported]:
    """The exit code of a command, what it printed, and what it imported."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", COMMANDS], **pipes) as process:

        def run(folder: Path, words: str) -> tuple[int, str, set[str]]:
            print(json.dumps([str(folder), shlex.split(words)]), file=process.stdin, flush=True)
            code = int(process.stdout.readline())
            modules = (folder / "modules.txt").read_text().split()
            return code, (folder / "said.txt").read_text(), set(modules)

        yield run
        process.stdin.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "wng train"),
        ("--help", "Add --help"),
        ("--version", f"wng {wng.__version__}"),
        ("train --help", "--learning-rate"),
        ("train wnes --help", "--population"),
        ("methods", "wtrpo"),
        ("methods bgwnes --settings paper", "dual-features"),
        ("eval --help", "--episodes"),
        ("map --help", "--to"),
        ("diagnose --help", "--rollouts"),
        ("reproduce --help", "wng reproduce conditioning"),
        ("reproduce toys --help", "--step-size"),
        ("reproduce all --help", "--clock"),
    ],
)
def test_help_and_lists(imported: Imported, tmp_path: Path, words: str, message: str) -> None:
    code, said, modules = imported(tmp_path, words)
    assert (code, message in said) == (0, True), said
    assert not modules & {*LARGE, "gymnasium"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian ppo", "did you mean 'wng train'"),
        ("train pppo --env CartPole-v1", "did you mean 'ppo'"),
        ("train ppo", "--env"),
        ("train ppo --env CartPole-v1 --lerning-rate 1", "--learning-rate"),
        ("train ppo --env CartPole-v1 --gamma x", "Error parsing --gamma"),
        ("train ppo --env CartPole-v1 --gamma 2", "gamma must be"),
        ("train ppo --env CartPole-v1 --geometry wasser", "did you mean 'wasserstein'"),
        ("train bgpg --env CartPole-v1 --penalty-embedding action", "did you mean 'actions'"),
        ("train ppo --env CartPole-v1 --embedding action", "did you mean 'actions'"),
        ("train ppo --env CartPole-v1 --steps 0", "--steps must be at least 1"),
        ("train ppo --env CartPole-v1 --seed -1", "seed must be"),
        ("train ppo --env CartPole-v1 --seeds 3-1", "--seeds must look like"),
        ("train ppo --env CartPole-v1 --executor ray", "--executor ray cannot distribute"),
        ("train wnes --env wng/PointWall-v0 --population 7", "must be even"),
        ("reproduce pg --scale large", "--scale"),
        ("reproduce toys --dim 0", "dim must be positive"),
        ("reproduce conditioning --number 1", "--number must be at least 10"),
        ("eval nothing", "nothing does not exist"),
        ("video nothing", "nothing does not exist"),
        ("plot nothing", "nothing does not exist"),
        ("map nothing", "nothing does not exist"),
        ("diagnose nothing", "nothing does not exist"),
        ("methods pppo", "did you mean 'ppo'"),
    ],
)
def test_mistakes(imported: Imported, tmp_path: Path, words: str, message: str) -> None:
    code, said, modules = imported(tmp_path, words)
    assert (code, message in said) == (2, True), said
    assert not modules & {*LARGE, "gymnasium"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train ppo --env CartPol-v1", "did you mean 'CartPole-v1'"),
        ("train wnes --env wng/PointWal-v0", "did you mean 'wng/PointWall-v0'"),
        ("train ppo --env CartPol-v1 --seeds 0-3", "did you mean 'CartPole-v1'"),
        ("train ppo --env nowhere:CartPole-v1", "cannot import the module 'nowhere'"),
        ("train ppo --env Blackjack-v1", "only Box observations"),
        ("reproduce es --tasks wng/PointWal-v0 --out out", "did you mean 'wng/PointWall-v0'"),
    ],
)
def test_environments_that_cannot_be_used(
    imported: Imported, tmp_path: Path, words: str, message: str
) -> None:
    code, said, modules = imported(tmp_path, words)
    assert (code, message in said) == (2, True), said
    assert not modules & {*LARGE}


def test_a_run_that_is_there_already(imported: Imported, tmp_path: Path) -> None:
    wng.RunDirectory.create(tmp_path / "runs", "CartPole-v1", "ppo", 0, {})
    code, said, modules = imported(tmp_path, "train ppo --env CartPole-v1")
    assert (code, "already holds a run: add --resume" in said) == (2, True), said
    assert not modules & {*LARGE, "gymnasium"}


def test_commands_run_small_programs_without_a_thread(tmp_path: Path) -> None:
    words = """train ppo --env wng/ProbeAction-v0 --steps 64 --rollout 64 --num-envs 1 --hidden 4
    --epochs 1 --value-epochs 1 --backend gymnasium --quiet"""
    look = "\nimport jax; print(jax.config.read('jax_cpu_enable_async_dispatch'))"
    done = subprocess.run(
        [sys.executable, "-c", COMMAND + look, *words.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
