import os
import signal
from pathlib import Path

import numpy as np
import pytest

from wng.execution.processes import STOPPED, Child, cores, run_children
from wng.execution.ray import LocalExecutor, RayExecutor
from wng.runs.metrics import read_metrics

PROBE = "wng/ProbeContextual-v0"
STEPS = 64 * 40
TINY = ("--num-envs=2", "--rollout=64", "--minibatch=32", "--value-minibatch=32", "--hidden=4")


def training(root: Path, steps: int, seed: int = 0) -> Child:
    words = ["train", "pg", "--env", PROBE, "--steps", str(steps), "--seed", str(seed), *TINY]
    folder = root / "wng-ProbeContextual-v0" / "pg" / f"seed{seed}"
    return Child(f"seed {seed}", folder, [*words, "--out", str(root)])


def owner(child: Child) -> int:
    """The process that has the run: its lock says."""
    return int((child.folder / "lock").read_text())


def test_each_has_its_own_exit_code_and_log(tmp_path: Path) -> None:
    children = [
        Child("good", tmp_path / "good", ["methods", "wnpg"]),
        Child("bad", tmp_path / "bad", ["train", "wnpg", "--env", "Hoper-v5"]),
        Child("again", tmp_path / "again", ["methods"]),
    ]
    seen = []
    codes = run_children(children, lambda: False, lambda child, code: seen.append((child, code)))
    assert codes == {"good": 0, "bad": 2, "again": 0}
    assert {(child.name, code) for child, code in seen if code is not None} == set(codes.items())
    assert "--num-basis" in (tmp_path / "good" / "log.txt").read_text()
    assert children[1].last_words(2).startswith("there is no environment 'Hoper-v5'")
    assert "bgwnes" in (tmp_path / "again" / "log.txt").read_text()
    assert children[0].so_far() == (0, {})


def test_a_worker_that_ends_with_its_child_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "leaver.py").write_text("import os\n\nos._exit(3)\n")  # as a simulator might
    leavers = [
        Child(f"leaver {k}", tmp_path / f"{k}", ["train", "pg", "--env", "leaver:Any-v0"])
        for k in cores()
    ]
    others = [Child(f"other {k}", tmp_path / f"o{k}", ["methods"]) for k in cores()]
    where = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    codes = run_children(
        [*leavers, *others], lambda: False, lambda child, code: None, environment=where
    )
    assert codes == {**{c.name: 3 for c in leavers}, **{c.name: 0 for c in others}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    whole = training(tmp_path_factory.mktemp("whole"), STEPS)
    run_children([whole], lambda: False, lambda child, code: None)
    return read_metrics(whole.folder)


@pytest.mark.parametrize("where", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_run_whose_worker_is_killed_is_gone_on_with(
    tmp_path: Path, undisturbed: dict[str, np.ndarray], where: str
) -> None:
    """On Ray the worker of the cluster is killed, and what it had started ends by itself."""
    killed: list[int] = []
    child = training(tmp_path, STEPS)
    executor = RayExecutor(cores=2) if where == "ray" else LocalExecutor()

    def kill(child: Child, code: int | None) -> None:
        if code is None and not killed and child.so_far()[0]:
            worker = owner(child)
            killed.append(parent_of(worker) if where == "ray" else worker)
            os.kill(killed[0], signal.SIGKILL)

    try:
        assert run_children([child], lambda: False, kill, executor=executor) == {child.name: 0}
    finally:
        executor.close()
    assert killed
    assert os.getpid() not in killed
    disturbed = read_metrics(child.folder)
    np.testing.assert_array_equal(disturbed["iteration"], np.arange(1, 41))
    for name in ("steps", "return", "kl"):
        np.testing.assert_array_equal(disturbed[name], undisturbed[name], name)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_a_run_that_kills_every_worker_is_given_up(tmp_path: Path) -> None:
    deadly, last = training(tmp_path, 10**9), training(tmp_path, 64, 99)
    killed = []

    def kill(child: Child, code: int | None) -> None:
        if child.name == deadly.name and code is None and owner_lives(child):
            killed.append(owner(child))
            os.kill(killed[-1], signal.SIGKILL)

    def owner_lives(child: Child) -> bool:
        lock = child.folder / "lock"
        return lock.exists() and bool(lock.read_text()) and owner(child) not in killed

    codes = run_children([deadly, last], lambda: False, kill, pinned=True)
    assert codes == {deadly.name: -signal.SIGKILL, last.name: 0}
    assert deadly.last_words(codes[deadly.name]) == "killed by SIGKILL"
    assert len(killed) == 4  # as it is killed before it gets anywhere
    assert last.so_far()[0] == 64


@pytest.mark.slow  # tests/cli has the same with `wng train --seeds`
def test_told_to_stop_they_save_and_no_more_start(tmp_path: Path) -> None:
    children = [training(tmp_path, 10**9, seed) for seed in range(len(cores()) + 1)]
    codes = run_children(children, lambda: children[0].so_far()[0] > 0, lambda child, code: None)
    assert set(codes.values()) == {STOPPED}
    assert children[-1].name not in codes
    assert list((children[0].folder / "checkpoints").iterdir())


@pytest.mark.slow
def test_on_ray_they_are_stopped_as_well(tmp_path: Path) -> None:
    children = [training(tmp_path, 10**9, seed) for seed in range(2)]
    executor = RayExecutor(cores=1)
    try:
        codes = run_children(
            children,
            lambda: children[0].so_far()[0] > 0,
            lambda child, code: None,
            executor=executor,
        )
    finally:
        executor.close()
    assert codes == {children[0].name: STOPPED}
    assert list((children[0].folder / "checkpoints").iterdir())
