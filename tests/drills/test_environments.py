"""Environments that raise, hang, or return what is not a number or not of the right kind."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from killing import running

from drills import faulty_envs
from drills.faulty_envs import CASES, LIMIT, MARK
from drills.runs import EVOLUTION, GRADIENT, Outcome, assert_loadable, command, load
from drills.tally import Drill

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent.parent
FAMILIES = {"gradient": GRADIENT, "evolution": EVOLUTION._replace(size=8 * LIMIT)}
ITERATIONS = 6
# Whole iterations before the fault, of those that stop a run at once.
WHOLE = {
    ("gradient", "step", "later"): 1,  # 16 steps of each environment in an iteration
    ("gradient", "reset", "later"): 2,
    ("evolution", "step", "later"): 1,  # an episode of 20 in a generation
    ("evolution", "reset", "later"): 1,
}
BACKENDS = ("gymnasium", "workers", "auto")
SECONDS = 15  # that ending a hanging run may take; three are usual


def words(family: str, root: Path, backend: str, case: tuple[str, str, str]) -> list[str]:
    flags = FAMILIES[family].words(root, ITERATIONS, env=env_id(case))
    place = flags.index("--backend") if "--backend" in flags else len(flags)
    return [*flags[:place], "--backend", backend, *flags[place + 2 :]]


def env_id(case: tuple[str, str, str]) -> str:
    return f"{faulty_envs.__name__}:{faulty_envs.name(*case)}"


def check_run(folder: Path, family: str, where: str, when: str) -> None:
    """The run is there up to its last whole iteration; before the first reset there is none."""
    if folder.exists():
        assert_loadable(folder, at_least=WHOLE.get((family, where, when), 0))
    else:
        assert (family, where, when) == ("gradient", "reset", "now")


def chosen(cases: list, every: int) -> list:
    """All of them, or some in which nothing is missing for long."""
    return random.Random(0).sample(cases, len(cases) // every)


COMBINATIONS = [
    (family, backend, case)
    for family in FAMILIES
    for backend in BACKENDS
    for case in CASES
    if case[0] != "hang"
]


@pytest.mark.parametrize("every", [24, pytest.param(1, marks=pytest.mark.slow)])
def test_environments_that_fail(tmp_path: Path, every: int) -> None:
    note = f"{len(faulty_envs.FAULTS)} faults, in reset and step, at once and later"
    with Drill("An environment raises, or returns what it must not", note) as drill:
        for family, backend, case in chosen(COMBINATIONS, every):
            root = tmp_path / str(drill.tried)
            with drill.trial((family, backend, case)):
                outcome = command(*words(family, root, backend, case))
                sentence = outcome.sentence(faulty_envs.name(*case))
                if case[0].startswith("raise"):
                    assert "bad luck" in sentence
                check_run(FAMILIES[family].folder(root, env_id(case)), family, *case[1:])


HANGING = [
    (family, backend, case)
    for family in FAMILIES
    for backend in ("gymnasium", "workers")
    for case in CASES
    if case[0] == "hang"
]


def press_twice(process: int, mark: Path, over: threading.Event) -> None:
    """Ctrl-C once the environment hangs, and again if that was not enough."""
    while not mark.exists() and not over.is_set():
        time.sleep(0.02)
    for _ in range(2):
        if not over.is_set():
            os.kill(process, signal.SIGINT)
        over.wait(0.5)


def check_end(outcome: Outcome, seconds: float, mark: Path) -> None:
    assert outcome.code == 130, outcome
    assert "Traceback" not in outcome.err, outcome.err
    assert "wng: stopped." in outcome.err
    assert seconds < SECONDS
    hanging = {int(pid) for pid in mark.read_text().split()} - {os.getpid()}
    assert not any(map(running, hanging)), "a worker is left behind"


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_environments_that_hang(tmp_path: Path, every: int, monkeypatch) -> None:
    with Drill("An environment hangs, and Ctrl-C is pressed twice") as drill:
        for family, backend, case in chosen(HANGING, every):
            root, over = tmp_path / str(drill.tried), threading.Event()
            mark = tmp_path / f"mark{drill.tried}"
            monkeypatch.setenv(MARK, str(mark))
            with drill.trial((family, backend, case)):
                fingers = threading.Thread(target=press_twice, args=(os.getpid(), mark, over))
                fingers.start()
                try:
                    outcome = command(*words(family, root, backend, case))
                finally:
                    ended = time.time()
                    over.set()
                    fingers.join()
                check_end(outcome, ended - mark.stat().st_mtime, mark)
                check_run(FAMILIES[family].folder(root, env_id(case)), family, *case[1:])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gymnasium", "workers"])
def test_hanging_processes(tmp_path: Path, backend: str, monkeypatch) -> None:
    """The same with a `wng train` of its own, whose end is by Ctrl-C, or by SIGKILL."""
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}:{os.environ.get('PYTHONPATH', '')}")
    case = ("hang", "step", "later")
    for how in ("Ctrl-C is pressed twice", "the run is killed"):
        with Drill(f"An environment hangs, and {how}") as drill:
            root, over = tmp_path / how, threading.Event()
            mark = tmp_path / f"mark {how}"
            with drill.trial(backend):
                process = subprocess.Popen(
                    [sys.executable, "-m", "wng.cli", *words("gradient", root, backend, case)],
                    env=os.environ | {MARK: str(mark)},
                    stderr=subprocess.PIPE,
                    text=True,
                )
                if "Ctrl-C" in how:
                    press_twice(process.pid, mark, over)
                    start = time.monotonic()
                    _, err = process.communicate(timeout=SECONDS)
                    outcome = Outcome(process.returncode, "", err)
                    check_end(outcome, time.monotonic() - start, mark)
                else:
                    while not mark.exists():
                        time.sleep(0.02)
                    process.kill()
                    process.communicate()
                    deadline = time.monotonic() + SECONDS
                    while any(running(int(pid)) for pid in mark.read_text().split()):
                        assert time.monotonic() < deadline, "a worker is left behind"
                        time.sleep(0.1)
                folder = GRADIENT.folder(root, env_id(case))
                if "Ctrl-C" in how:
                    assert assert_loadable(folder, at_least=1) == 1
                else:  # checkpoints are written every 15 seconds: it starts anew
                    assert not (folder / "checkpoints").exists() or load(folder)
