import os
import signal
from pathlib import Path

from wng.runs.children import STOPPED, Child, cores, run_children

PROBE = "wng/ProbeContextual-v0"
TINY = ("--num-envs=2", "--rollout=64", "--minibatch=32", "--value-minibatch=32", "--hidden=4")


def training(root: Path, steps: int, seed: int = 0) -> Child:
    words = ["train", "pg", "--env", PROBE, "--steps", str(steps), "--seed", str(seed), *TINY]
    folder = root / "wng-ProbeContextual-v0" / "pg" / f"seed{seed}"
    return Child(f"seed {seed}", folder, [*words, "--out", str(root)])


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


def test_a_worker_that_is_killed_takes_one_run_with_it(tmp_path: Path) -> None:
    """The lock of a run names the worker that has it."""
    children = [training(tmp_path, 10**9, seed) for seed in range(len(cores()))]
    last = training(tmp_path, 64, 99)

    def kill(child: Child, code: int | None) -> None:
        if code is None and child is not last and child.so_far()[0]:
            os.kill(int((child.folder / "lock").read_text()), signal.SIGKILL)

    codes = run_children([*children, last], lambda: False, kill, pinned=True)
    assert codes == {**{child.name: -signal.SIGKILL for child in children}, last.name: 0}
    assert children[0].last_words(codes[children[0].name]) == "killed by SIGKILL"
    assert last.so_far()[0] == 64


def test_told_to_stop_they_save_and_no_more_start(tmp_path: Path) -> None:
    children = [training(tmp_path, 10**9, seed) for seed in range(len(cores()) + 1)]
    codes = run_children(children, lambda: children[0].so_far()[0] > 0, lambda child, code: None)
    assert set(codes.values()) == {STOPPED}
    assert children[-1].name not in codes
    assert list((children[0].folder / "checkpoints").iterdir())
