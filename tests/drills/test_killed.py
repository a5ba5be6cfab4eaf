"""SIGKILL: while a checkpoint is written, of environment workers, of seeds, of a whole study."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from killing import rows

from drills.runs import GRADIENT, assert_loadable, assert_same_run, command
from drills.tally import Drill, LostError
from wng.cli import seeds
from wng.envs.workers import WorkerRunner
from wng.experiments.study import Trial, run_trials
from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.metrics import read_metrics

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent.parent
SIZE = 50_000

# Training without the training: checkpoints and metrics, one after the other, all the time.
LOOP = """
import sys, types
wng = types.ModuleType("wng")  # not the real one, which takes a second to import JAX
wng.__path__ = [sys.argv[1]]
sys.modules["wng"] = wng
import numpy as np
from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.metrics import MetricsWriter

run = RunDirectory.open(sys.argv[2])
with run.lock():
    step, resume_at = 0, None
    if checkpoint.saved(run.checkpoints):
        arrays, info, problems = checkpoint.read_latest(run.checkpoints)
        assert not problems, problems
        step = resume_at = info["step"]
    with MetricsWriter(run.path, resume_at) as metrics:
        print("begun", flush=True)
        while True:
            step += 1
            metrics.write({"iteration": step, "steps": step, "return": 0.1 * step})
            if step % 2 == 0:
                metrics.sync()
                arrays = {str(i): np.full(int(sys.argv[3]), step) for i in range(4)}
                checkpoint.write(run.checkpoints, step, arrays, {"copy": step})
                print(step, flush=True)
"""


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_sigkill_while_checkpoints_are_written(tmp_path: Path, kills: int) -> None:
    source = Path(checkpoint.__file__).parent.parent
    run = RunDirectory.create(tmp_path, "Hopper-v5", "wnpg", 0, {})
    moments, reached, unfinished = random.Random(kills), 0, 0
    with Drill("SIGKILL while checkpoints are written") as drill:
        for kill in range(kills):
            words = [sys.executable, "-c", LOOP, str(source), str(run.path), str(SIZE)]
            process = subprocess.Popen(words, stdout=subprocess.PIPE)
            assert process.stdout is not None
            said: list[bytes] = []
            if kill:  # the first is killed while it starts
                assert process.stdout.readline() == b"begun\n"
            if kill % 2:
                said.append(process.stdout.readline())
            time.sleep(moments.uniform(0, 0.05))
            process.kill()
            said += process.communicate()[0].split()  # what it told us is saved
            unfinished += bool(list(run.checkpoints.glob(".*.tmp")))
            with drill.trial(f"kill {kill}"):
                if checkpoint.saved(run.checkpoints):
                    reached = check_loop(run, max([reached, *map(int, said)]))
                elif said:
                    raise LostError("a checkpoint that was reported is gone")
        drill.note = f"{unfinished} of {kills} kills left an unfinished temporary file"
    assert reached > 1
    assert unfinished or kills < 20, "the drill misses its target"
    assert len(checkpoint.saved(run.checkpoints)) <= 3  # one that it died before deleting


def check_loop(run: RunDirectory, reported: int) -> int:
    """The newest checkpoint is good, is no older than reported, and so are its metrics."""
    arrays, info, problems = checkpoint.read_latest(run.checkpoints)
    assert problems == []
    if info["step"] < reported:
        raise LostError(f"step {reported} was reported, step {info['step']} is there")
    if not all((array == info["copy"]).all() for array in arrays.values()):
        raise LostError("the arrays are not those of the checkpoint")
    columns = read_metrics(run.path)
    steps = np.arange(1, len(columns["iteration"]) + 1)
    whole = np.array_equal(columns["iteration"], steps) and len(steps) >= info["step"]
    if not (whole and np.array_equal(columns["return"], 0.1 * steps)):
        raise LostError("the metrics are not complete")
    return int(info["step"])


@pytest.mark.parametrize("times", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_environment_worker_killed_in_mid_rollout(
    pairs, tmp_path: Path, times: int, monkeypatch
) -> None:
    """Workers give the same numbers as one process: the undisturbed run is that of the fixture."""
    run, moments, left = WorkerRunner.run, random.Random(times), 0
    processes: list[subprocess.Popen[bytes]] = []

    def killing(self: WorkerRunner, command: str, *arrays: np.ndarray) -> None:
        nonlocal left
        left -= command == "step"
        if command == "step" and left == 0:
            processes[:] = self._processes
            moments.choice(self._processes).kill()
        run(self, command, *arrays)

    monkeypatch.setattr(WorkerRunner, "run", killing)
    pair = pairs["gradient"]
    whole = GRADIENT.folder(pair.whole)
    words = ["--backend", "workers"]
    with Drill("An environment worker is killed in mid-rollout") as drill:
        for number in range(times):
            left = moments.randrange(1, 7 * 16)  # of 7 iterations of 16 steps
            before = (left - 1) // 16
            root = tmp_path / str(number)
            with drill.trial(f"at step {left}"):
                command(*GRADIENT.words(root, 7, *words)).sentence("worker", GRADIENT.env, "killed")
                assert all(process.poll() is not None for process in processes)
                folder = GRADIENT.folder(root)
                assert assert_loadable(folder, at_least=before) == before
                command(*GRADIENT.words(root, 7, *words, "--resume")).fine()
                assert_same_run_elsewhere(folder, whole)


def assert_same_run_elsewhere(folder: Path, whole: Path) -> None:
    """As `assert_same_run`, but for the backend in the configuration."""
    newest, expected = (checkpoint.saved(path / "checkpoints")[0] for path in (folder, whole))
    arrays, info = checkpoint.read(newest)
    info["config"]["backend"] = checkpoint.read(expected)[1]["config"]["backend"]
    del info["step"]
    checkpoint.write(folder / "checkpoints", int(newest.stem), arrays, info)
    assert_same_run(folder, whole)


def lock_owner(folder: Path) -> int | None:
    """The process that has the run, as its lock says."""
    try:
        return int((folder / "lock").read_text())
    except (OSError, ValueError):
        return None


@pytest.mark.slow  # tests/execution/test_processes.py has one kill
def test_a_seed_killed(tmp_path: Path, monkeypatch) -> None:
    """`wng train --seeds`: the others are unaffected, and resumed all come to the same end."""
    command(*GRADIENT.words(tmp_path / "whole", 300)).fine()
    moments, after = random.Random(0), 0
    killed: list[int] = []
    look = seeds.progress_of
    first: Path

    def killing(folder: Path) -> tuple[int, dict[str, float]]:
        done = look(folder)
        owner = lock_owner(folder)  # and it has not ended: the next seed is the same worker's
        if not killed and folder == first and owner and 64 * after <= done[0] < 64 * 300:
            killed.append(owner)
            os.kill(owner, signal.SIGKILL)
        return done

    monkeypatch.setattr(seeds, "progress_of", killing)
    with Drill("A process of `wng train --seeds` is killed") as drill:
        for number in range(3):
            after = number and moments.randrange(1, 50)
            root = tmp_path / str(number)
            first = GRADIENT.folder(root)
            killed.clear()
            with drill.trial(f"after {after} iterations"):
                outcome = command(*GRADIENT.words(root, 300, "--seeds", "0-2"))
                assert len(killed) == 1
                if outcome.code:  # it may be tried again at once, or be left to --resume
                    outcome.sentence("1 of 3 seeds failed")
                    assert "wnpg seed 0 failed: killed by SIGKILL" in outcome.out
                folders = [GRADIENT.folder(root, seed=seed) for seed in (0, 1, 2)]
                others = [folder / "metrics.csv" for folder in folders[1:]]
                before = [path.stat().st_mtime_ns for path in others]
                for folder in folders[1:]:
                    assert assert_loadable(folder, at_least=300) == 300
                command(*GRADIENT.words(root, 300, "--resume")).fine()
                assert_same_run(folders[0], GRADIENT.folder(tmp_path / "whole"))
                assert [path.stat().st_mtime_ns for path in others] == before


STUDY = """
import sys
from pathlib import Path
from drills.test_killed import trials
from wng.experiments.study import run_trials
run_trials(trials(int(sys.argv[2])), Path(sys.argv[1]), "probe")
"""
TINY = {"num_envs": 2, "rollout": 64, "minibatch": 32, "value_minibatch": 32, "hidden": (4,)}


def trials(steps: int) -> list[Trial]:
    env = "wng/ProbeContextual-v0"
    return [Trial(env, "pg", seed, steps, "tuned", "tiny", TINY) for seed in (0, 1)]


@pytest.mark.slow  # tests/experiments/test_study.py has one kill
def test_a_study_killed(tmp_path: Path) -> None:
    """Killed at random, and nobody tells its workers; then to the end."""
    kills, steps = 5, 128_000
    root, moments, reached = tmp_path / "killed", random.Random(kills), [0, 0]
    command = [sys.executable, "-c", STUDY, str(root), str(steps)]
    folders = [trial.folder(root) for trial in trials(steps)]
    with Drill("A study (`wng reproduce`) is killed") as drill:
        for kill in range(kills):
            with drill.trial(f"kill {kill}"):
                study = subprocess.Popen(command, cwd=TESTS, stdout=subprocess.DEVNULL)
                end = time.monotonic() + 120
                while [rows(f) for f in folders] <= reached and time.monotonic() < end:
                    time.sleep(0.02)
                time.sleep(moments.uniform(0, 0.5))
                assert study.poll() is None, "it ended before it could be killed"
                study.kill()
                study.wait()
                before, reached = reached, [rows(folder) for folder in folders]
                if any(now < then for now, then in zip(reached, before, strict=True)):
                    raise LostError(f"from {before} iterations back to {reached}")
        with drill.trial("to the end"):
            assert run_trials(trials(steps), root, "probe")
            assert run_trials(trials(steps), tmp_path / "whole", "probe")
            for trial in trials(steps):
                assert_same_run(trial.folder(root), trial.folder(tmp_path / "whole"))
