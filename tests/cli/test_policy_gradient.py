import importlib.util
import os
import shlex
import signal
import sys
import threading
import time
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
from commands import run, sentence_of, text_of

import wng
from wng import cli
from wng.agents.registry import GRADIENT
from wng.policy_gradient.methods import METHODS
from wng.policy_gradient.trainer import Trainer
from wng.runs import checkpoint, record
from wng.runs.directory import RunDirectory
from wng.runs.executor import LocalExecutor
from wng.runs.metrics import read_metrics


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("reprodce",), "did you mean 'wng reproduce'?"),
        (("reproduce", "toy"), "did you mean 'wng reproduce toys'?"),
        (("reproduce", "toys", "--iteration", "3"), "--iterations"),
        (("reproduce", "toys", "--iterations", "0"), "iterations must be positive"),
        (("reproduce", "toys", "--scale", "huge"), "smoke"),
    ],
)
def test_mistakes_end_with_exit_code_2_and_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, words, message: str
) -> None:
    assert run(monkeypatch, *words) == 2
    printed = capsys.readouterr()
    assert message in printed.err + printed.out
    assert "Traceback" not in printed.err + printed.out


@pytest.mark.parametrize("words", [(), ("--help",), ("reproduce",), ("reproduce", "toys", "-h")])
def test_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, words) -> None:
    assert run(monkeypatch, *words) == 0
    assert "wng reproduce toys" in capsys.readouterr().out


def test_an_unwritable_folder_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    for study in ("toys", "transport"):
        assert run(monkeypatch, "reproduce", study, "--out", str(blocked / "x")) == 2
        error = capsys.readouterr().err
        assert error.startswith("wng: ")
        assert error.count("\n") == 1


@pytest.mark.parametrize("method", ["ppo", "wnes"])
def test_a_missing_or_broken_extra_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path, method: str
) -> None:
    words = ("--env", "brax/ant", "--out", str(tmp_path / "runs"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run(monkeypatch, "train", method, *words) == 2
    assert "'brax/ant' needs brax: pip install 'wng[brax]'." in sentence_of(capsys)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "brax", None)  # as if an import in brax failed
    assert run(monkeypatch, "train", method, *words) == 2
    assert "brax cannot be imported (" in sentence_of(capsys)
    assert not (tmp_path / "runs").exists()


# wng train and what looks at its runs


TINY = shlex.split(
    "--rollout 64 --num-envs 4 --minibatch 32 --value-minibatch 32 --epochs 1 --value-epochs 1 "
    "--num-basis 5 --metric-samples 32 --hidden 8 --backend gymnasium"
)
PROBE = "wng/ProbeContextual-v0"
FAULTY = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Faulty(gymnasium.Env):
    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = float("nan") if self.steps == 20 else 0.0
        return np.zeros(1, np.float32), reward, False, False, {}


gymnasium.register("Faulty-v0", entry_point="faulty_module:Faulty")
"""


def train(monkeypatch: pytest.MonkeyPatch, root: Path, *words: str, steps: int = 128) -> int:
    return run(monkeypatch, "train", *words, "--steps", str(steps), "--out", str(root), *TINY)


def stop_after(monkeypatch: pytest.MonkeyPatch, iterations: int) -> None:
    """Ctrl-C while the given iteration is under way."""
    iterate, calls = Trainer.iterate, 0

    def interrupted(self: Trainer) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == iterations:
            os.kill(os.getpid(), signal.SIGINT)
        return iterate(self)

    monkeypatch.setattr(Trainer, "iterate", interrupted)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian", "did you mean 'wng train'?"),
        ("train wnpgg --env Hopper-v5", "did you mean 'wnpg'?"),
        ("train wnpg --env Hoper-v5", "did you mean 'Hopper-v5'?"),
        ("train wnpg --env CartPole-v1 --embedding state-actoin", "did you mean 'state-action'?"),
        ("train wnpg --env CartPole-v1 --geometry=fisch", "did you mean 'fisher'?"),
        ("train --env CartPole-v1 --proximity klip", "did you mean 'clip'?"),
        ("train --env CartPole-v1 --step trust-region", "did you mean 'trust_region'?"),
        ("train wnpg --env CartPole-v1 --geometry nowhere:f", "'nowhere:f' cannot be imported"),
        ("train wnpg --env CartPole-v1 --steps -1", "--steps must be at least 1, got -1"),
        ("train wnpg --env CartPole-v1 --steps nan", "--steps must be at least 1, got nan"),
        ("train wnpg --env CartPole-v1 --eval-every -1", "eval_every must be a number of envi"),
        ("train es --env CartPole-v1 --eval-every inf", "eval_every must be a number of enviro"),
        ("train wnpg --env CartPole-v1 --eval-episodes 0", "eval_episodes must be a whole numb"),
        ("eval nothing --best", "nothing does not exist"),
        ("train wnpg --env CartPole-v1 --num-envs 0", "num_envs must be at least 1, got 0"),
        ("train wnpg --env CartPole-v1 --rollout 100 --num-envs 8", "multiple of num_envs=8"),
        (
            "train wnpg --env CartPole-v1 --gamma 2",
            "gamma must be finite, at least 0 and at most 1",
        ),
        ("train wnpg --env CartPole-v1 --seed -1", "seed must be a whole number from 0"),
        ("train wnpg --env CartPole-v1 --seeds 3-1", "must look like 0-4 or 0,3,7"),
        ("train wnpg --env Hoper-v5 --seeds 0-1", "did you mean 'Hopper-v5'?"),
        ("train wnpg --env CartPole-v1 --geometry wasserstein-exact", "needs continuous actions"),
        ("train wnpg --env Blackjack-v1", "only Box observations"),
        ("methods wnp", "did you mean 'wnpg'?"),
        ("eval nothing", "nothing does not exist"),
        ("video nothing", "nothing does not exist"),
        ("plot", "no runs are given: name some, as in wng plot runs/"),
        ("plot nothing", "nothing does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(monkeypatch, capsys, tmp_path, words: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *words.split()) == 2
    assert message in sentence_of(capsys)
    assert list(tmp_path.iterdir()) == []  # refused before anything was begun


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train wnpg", "Missing from wng train wnpg: --env STR"),
        ("train", "Missing from wng train: --env STR"),
        ("train wnpg --env", "Missing value for argument '--env'"),
        ("train wnpg --env X --lerning-rate 3", "Unrecognized options: --lerning-rate, 3"),
        ("train wnpg --env X --lerning-rate 3", "Perhaps you meant: --learning-rate FLOAT"),
        ("train --lerning_rate 3 --env X", "Perhaps you meant: --learning-rate FLOAT"),
        ("train wnpg more --env X", "Unrecognized options: more"),
        ("train --env X ppo", "Unrecognized options: ppo"),  # the method comes first
        ("train wnpg --env X --settings papr", "invalid choice 'papr' for argument '--settings'"),
        ("train wnpg --env X --backend envpol", "'gymnasium', 'workers', 'envpool', 'jax')"),
        ("train wnpg --env X --optimizer adm", "Expected one of ('adam', 'sgd')"),
        ("train wnpg --env X --learning-rate x", "Error parsing --learning-rate: "),
        ("train wnpg --env X --epochs 1.5", "Error parsing --epochs: "),
        ("plot runs --returns determinstic", "Expected one of ('training', 'deterministic')"),
        ("methods wnpg --settings relesed", "'--settings'. Expected one of ('tuned', 'paper', "),
        ("eval", "Missing from wng eval: PATH"),
        ("video", "Missing from wng video: PATH"),
    ],
)
def test_a_wrong_flag_is_named(monkeypatch, capsys, tmp_path, words: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *words.split()) == 2
    assert message in text_of(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("wnpg", "wnpg"),
        ("BG-WNPG", "bgwnpg"),
        ("ppo --seed 3", "ppo"),
        ("--hidden 8 8 --log-std -1", "pg"),
        ("--proximity clip", "ppo"),
        ("--geometry wasserstein-auto --step trust_region", "wtrpo"),
        ("--proximity clip --geometry wasserstein", "clip_wasserstein_optimizer"),
        ("ppo --geometry fisher", "clip_fisher_optimizer"),
    ],
)
def test_names_of_methods_and_combinations(words: str, name: str) -> None:
    command = cli.parse("train", [*words.split(), "--env", "X"])
    assert command.family is GRADIENT
    assert command.job(0).method == name
    if name in METHODS:
        method = METHODS[name]
        assert method.covers({axis: getattr(command.config, axis) for axis in method.axes})


def test_methods(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "methods") == 0
    table = capsys.readouterr().out
    assert all(name in table for name in METHODS)
    assert run(monkeypatch, "methods", "wnpg", "--settings", "released") == 0
    assert "actions-value" in capsys.readouterr().out


def test_train_then_look(monkeypatch, capsys, tmp_path) -> None:
    for method in ("pg", "ppo"):
        for seed in ("0", "1"):
            assert train(monkeypatch, tmp_path, method, "--env", PROBE, "--seed", seed) == 0
    said = capsys.readouterr().out
    assert "before" in said
    folder = tmp_path / "wng-ProbeContextual-v0" / "pg" / "seed0"
    for next_command in (f"wng video {folder}", "wng train ppo --env", "wng plot"):
        assert next_command in said
    assert (folder / "curve.png").stat().st_size > 0

    for how in ((), ("--sampled",)):
        assert run(monkeypatch, "eval", str(folder), "--episodes", "3", *how) == 0
        said = capsys.readouterr().out
        assert "after 128 steps" in said
        assert ("sampled actions" if how else "most likely action") in said

    picture = tmp_path / "curves.png"
    assert run(monkeypatch, "plot", str(tmp_path), str(folder), "--to", str(picture)) == 0
    assert "(4 runs)" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")

    assert run(monkeypatch, "video", str(folder), "--to", str(tmp_path / "film.avi")) == 2
    assert ".mp4 or .gif" in sentence_of(capsys)
    assert run(monkeypatch, "video", str(folder)) == 2
    assert "no render mode 'rgb_array'" in sentence_of(capsys)

    assert train(monkeypatch, tmp_path, "pg", "--env", PROBE) == 2
    assert "already holds a run: add --resume" in sentence_of(capsys)
    changed = ("--resume", "--gamma", "0.9")
    assert train(monkeypatch, tmp_path, "pg", "--env", PROBE, *changed) == 2
    assert "gamma: 0.99 → 0.9" in sentence_of(capsys)
    for seeds in (("--seeds", "0-1"), ("--seeds", "0-1", *changed)):
        assert train(monkeypatch, tmp_path, "pg", "--env", PROBE, *seeds) == 2
        sentence_of(capsys)
    assert not (folder / "log.txt").exists()  # no child was started


def test_evaluate_during_training_then_look_at_the_best(monkeypatch, capsys, tmp_path) -> None:
    words = ("pg", "--env", "CartPole-v1")
    evaluations = ("--eval-every", "1e2", "--eval-episodes", "2")
    assert train(monkeypatch, tmp_path, *words, *evaluations, steps=256) == 0
    run_folder = tmp_path / "CartPole-v1" / "pg" / "seed0"
    said = capsys.readouterr().out
    assert str(RunDirectory.open(run_folder).best) in said
    assert "evaluated" in said
    found = read_metrics(run_folder)["return_deterministic"]
    assert np.isfinite(found).tolist() == [False, True, False, True]

    best = int(np.nanargmax(found))
    looks = ("eval", str(run_folder), "--best", "--episodes", "2")
    assert run(monkeypatch, *looks) == 0
    said = f"PG on CartPole-v1 after {64 * (best + 1)} steps: {found[best]:.1f} ±"
    assert said in capsys.readouterr().out
    film = str(tmp_path / "film.gif")
    assert run(monkeypatch, "video", str(run_folder), "--best", "--to", film) == 0
    picture = tmp_path / "curves.png"
    plot = ("plot", str(tmp_path), "--to", str(picture), "--returns", "deterministic")
    assert run(monkeypatch, *plot) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()

    assert train(monkeypatch, tmp_path, *words, "--resume") == 2
    assert "eval_every: 100 → not set" in sentence_of(capsys)
    assert train(monkeypatch, tmp_path, *words, "--seed", "1", "--quiet") == 0
    capsys.readouterr()
    assert run(monkeypatch, *plot) == 2
    assert "seed1 has no numbers in a column 'return_deterministic': train" in sentence_of(capsys)
    for look in ("eval", "video"):
        assert run(monkeypatch, look, str(run_folder.with_name("seed1")), "--best") == 2
        assert "has no best checkpoint: train with --eval-every to keep it" in sentence_of(capsys)
    assert run(monkeypatch, "eval", str(RunDirectory.open(run_folder).best)) == 0


def test_what_has_not_begun_cannot_be_looked_at(monkeypatch, capsys, tmp_path) -> None:
    path = str(RunDirectory.create(tmp_path, PROBE, "pg", 0, {}).path)
    assert run(monkeypatch, "plot", path) == 2
    assert "has no metrics yet" in sentence_of(capsys)
    assert run(monkeypatch, "eval", path) == 2
    assert "there is no checkpoint" in sentence_of(capsys)


def test_film(monkeypatch, capsys, tmp_path) -> None:
    assert train(monkeypatch, tmp_path, "pg", "--env", "CartPole-v1", steps=64) == 0
    capsys.readouterr()
    folder = tmp_path / "CartPole-v1" / "pg" / "seed0"
    film = tmp_path / "films" / "film.gif"
    assert run(monkeypatch, "video", str(folder), "--to", str(film)) == 0
    assert str(film) in capsys.readouterr().out
    frames = imageio.imread(film)
    assert frames.shape[0] > 1
    assert frames.std() > 0


def test_ctrl_c_saves_and_the_printed_command_goes_on(monkeypatch, capsys, tmp_path) -> None:
    root = tmp_path / "a folder with a rather long name, so that a terminal would break the line"
    with monkeypatch.context() as patched:
        stop_after(patched, 2)
        assert train(patched, root, "pg", "--env", PROBE, steps=256) == 130
    printed = capsys.readouterr()
    assert "saving after this iteration" in printed.err or "nothing is lost" in printed.out
    assert "Stopped at 128 of 256 steps" in printed.out
    assert wng.load(root / "wng-ProbeContextual-v0" / "pg" / "seed0").steps == 128
    command = next(x for x in printed.out.splitlines() if x.startswith("  wng train"))
    assert run(monkeypatch, *shlex.split(command)[1:]) == 0
    assert "Resuming at step 128" in capsys.readouterr().out
    resumed = wng.load(root / "wng-ProbeContextual-v0" / "pg" / "seed0")

    assert train(monkeypatch, tmp_path, "pg", "--env", PROBE, steps=256) == 0
    whole = wng.load(tmp_path / "wng-ProbeContextual-v0" / "pg" / "seed0")
    for name, array in whole.trainer.checkpoint()[0].items():
        np.testing.assert_array_equal(resumed.trainer.checkpoint()[0][name], array, err_msg=name)


def test_quiet_is_quiet(monkeypatch, capsys, tmp_path) -> None:
    assert train(monkeypatch, tmp_path, "pg", "--env", PROBE, "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    folder = tmp_path / "wng-ProbeContextual-v0" / "pg" / "seed0"
    assert wng.load(folder).steps == 128
    assert not (folder / "curve.png").exists()


def test_a_damaged_checkpoint_is_named_and_passed_over(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", -1.0)
    assert train(monkeypatch, tmp_path, "pg", "--env", PROBE) == 0
    folder = tmp_path / "wng-ProbeContextual-v0" / "pg" / "seed0"
    newest, previous = checkpoint.saved(folder / "checkpoints")
    newest.write_bytes(newest.read_bytes()[:-1])
    capsys.readouterr()
    assert run(monkeypatch, "eval", str(folder), "--episodes", "1") == 0
    assert f"using {previous} instead" in capsys.readouterr().out
    more = ("--env", PROBE, "--resume", "--quiet")
    assert train(monkeypatch, tmp_path, "pg", *more, steps=192) == 0
    said = capsys.readouterr().out
    assert f"Note: checkpoint {newest} " in said  # also with --quiet
    assert f"using {previous} instead" in said
    np.testing.assert_array_equal(read_metrics(folder)["iteration"], [1, 2, 3])


def test_a_nan_from_an_environment_stops_the_run(monkeypatch, capsys, tmp_path) -> None:
    (tmp_path / "faulty_module.py").write_text(FAULTY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ("pg", "--env", "faulty_module:Faulty-v0")
    assert train(monkeypatch, tmp_path, *words) == 2
    sentence = "environment 0 of faulty_module:Faulty-v0 returned a reward that is not finite at "
    assert f"{sentence}step 76: " in sentence_of(capsys)
    stopped = wng.load(tmp_path / "faulty_module-Faulty-v0" / "pg" / "seed0")
    assert stopped.steps == 64
    assert all(np.isfinite(x).all() for x in stopped.trainer.checkpoint()[0].values())

    assert train(monkeypatch, tmp_path, *words, "--seeds", "1-2") == 2
    printed = capsys.readouterr()
    for seed in (1, 2):
        assert f"seed {seed} failed: {sentence}step 76" in printed.out
    assert "2 of 2 seeds failed" in printed.err


def test_seeds_stop_together_and_go_on_together(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(LocalExecutor, "cores", lambda self: 2)  # both at once, on any machine
    folders = [tmp_path / "wng-ProbeContextual-v0" / "pg" / f"seed{k}" for k in (0, 1)]

    def interrupt_when_both_run() -> None:
        while not all((f / "metrics.csv").exists() and len(read_metrics(f)) for f in folders):
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)  # this process alone, not its children

    thread = threading.Thread(target=interrupt_when_both_run, daemon=True)
    thread.start()
    words = ("pg", "--env", PROBE, "--seeds", "0-1", "--eval-every", "1e3")
    assert train(monkeypatch, tmp_path, *words, steps=10**9) == 130
    thread.join()
    assert "--seeds 0-1" in capsys.readouterr().out
    steps = [wng.load(folder).steps for folder in folders]
    assert min(steps) >= 64
    for folder, done in zip(folders, steps, strict=True):
        iterations = np.arange(1, done // 64 + 1)
        np.testing.assert_array_equal(read_metrics(folder)["iteration"], iterations)
    more = max(steps) + 64
    assert train(monkeypatch, tmp_path, *words, "--resume", "--quiet", steps=more) == 0
    said = capsys.readouterr().out
    assert "over 2 seeds" in said
    assert "; evaluated -" in said
    for folder in folders:
        best = wng.load(RunDirectory.open(folder).best).evaluate(10).mean()
        assert best == np.nanmax(read_metrics(folder)["return_deterministic"])
    assert "pg seed 0" not in said  # no progress
    assert [wng.load(folder).steps for folder in folders] == [more, more]


def test_seeds_in_a_jax_environment_are_trained_in_blocks(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(LocalExecutor, "cores", lambda self: 2)
    words = ("train", "pg", "--env", PROBE, "--seeds", "0-3", "--steps", "64")
    where = ("--out", str(tmp_path), *TINY, "--backend", "jax")
    assert run(monkeypatch, *words, *where) == 0
    assert "over 4 seeds" in capsys.readouterr().out
    folder = tmp_path / "wng-ProbeContextual-v0" / "pg"
    for k in range(4):
        assert read_metrics(folder / f"seed{k}")["steps"].tolist() == [64]
    alone = wng.load(folder / "seed3")
    with pytest.warns(UserWarning, match="will not match"):  # it was trained beside another seed
        alone.learn(64, progress=False)
    alone.close()
