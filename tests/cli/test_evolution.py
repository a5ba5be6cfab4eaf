"""The commands, with evolution strategies."""

import os
import shlex
import shutil
import signal
import sys
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
from commands import run, sentence_of, text_of
from PIL import Image, ImageSequence

import wng
from wng import cli
from wng.agents.registry import EVOLUTION
from wng.evolution.methods import METHODS, preset
from wng.evolution.trainer import EvolutionTrainer
from wng.policy_gradient.methods import METHODS as GRADIENT_METHODS
from wng.runs import checkpoint
from wng.runs.metrics import MetricsWriter, read_metrics

POINT, FOLDER = "wng/PointWall-v0", "wng-PointWall-v0"
TINY = shlex.split("--population 8 --hidden 4 --num-basis 4 --dual-features 16 --dual-steps 4")
GENERATION = 8 * 50  # steps


def train(
    monkeypatch: pytest.MonkeyPatch, root: Path, *words: str, generations: int = 5, env: str = POINT
) -> int:
    steps = str(GENERATION * generations)
    where = ("--env", env, "--steps", steps, "--out", str(root))
    return run(monkeypatch, "train", *words, *where, *TINY)


@pytest.fixture(scope="module")
def evolved(tmp_path_factory) -> Path:
    """A run of five generations of WNES on PointWall; to be looked at only."""
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patched:
        assert train(patched, root, "wnes") == 0
    return root / FOLDER / "wnes" / "seed0"


@pytest.fixture
def gradient(tmp_path) -> Path:
    """What a run of policy gradients on the same task leaves behind."""
    made = wng.RunDirectory.create(tmp_path / "gradient", POINT, "pg", 0, {})
    with MetricsWriter(made.path, x="steps") as writer:
        for k in range(1, 5):
            writer.write({"iteration": k, "steps": 500 * k, "return": -1000.0 + k, "kl": 0.01})
    return made.path


def test_train_tells_what_it_did_and_what_to_do_next(monkeypatch, capsys, tmp_path) -> None:
    assert train(monkeypatch, tmp_path, "wnes", generations=2) == 0
    said = capsys.readouterr().out
    folder = tmp_path / FOLDER / "wnes" / "seed0"
    assert "WNES on wng/PointWall-v0: return -" in said
    assert "after 800 steps" in said
    for next_command in (f"wng map {folder}", f"wng video {folder}", "wng train es --env"):
        assert next_command in said
    for picture in ("curve.png", "map.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    np.testing.assert_array_equal(read_metrics(folder)["steps"], [400, 800])

    assert train(monkeypatch, tmp_path, "wnes", generations=3) == 2
    assert "already holds a run: add --resume" in sentence_of(capsys)
    assert train(monkeypatch, tmp_path, "wnes", "--resume", "--sigma", "0.3") == 2
    assert "sigma: 0.05 → 0.3" in sentence_of(capsys)


def test_resumed_is_uninterrupted(monkeypatch, capsys, tmp_path, evolved: Path) -> None:
    iterate, calls = EvolutionTrainer.iterate, 0

    def interrupted(self: EvolutionTrainer) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == 2:
            os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C while the second one is under way
        return iterate(self)

    with monkeypatch.context() as patched:
        patched.setattr(EvolutionTrainer, "iterate", interrupted)
        assert train(patched, tmp_path, "wnes") == 130
    printed = capsys.readouterr().out
    assert "Stopped at 800 of 2,000 steps" in printed
    command = next(x for x in printed.splitlines() if x.startswith("  wng train"))
    assert run(monkeypatch, *shlex.split(command)[1:]) == 0
    assert "Resuming at step 800" in capsys.readouterr().out
    resumed = wng.load(tmp_path / FOLDER / "wnes" / "seed0")
    for name, array in wng.load(evolved).trainer.checkpoint()[0].items():
        np.testing.assert_array_equal(resumed.trainer.checkpoint()[0][name], array, err_msg=name)


def test_methods(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "methods") == 0
    table = capsys.readouterr().out
    for name in (*METHODS, *GRADIENT_METHODS):
        assert f" {name} " in table
    assert "novelty" in table
    assert run(monkeypatch, "methods", "BG-WNES") == 0
    table = capsys.readouterr().out
    assert "BG-WNES, settings tuned" in table
    rows = {words[1]: words[3] for words in map(str.split, table.splitlines()) if len(words) > 4}
    assert rows["--proximity"] == rows["--geometry"] == "wasserstein"
    assert float(rows["--delta"]) == preset("bgwnes").delta
    assert int(rows["--population"]) == preset("bgwnes").population
    assert "--rollout" not in rows
    quadruped = ("--env", "wng/QuadrupedWall-v0", "--settings", "released")
    assert run(monkeypatch, "methods", "wnes", *quadruped) == 0
    table = capsys.readouterr().out
    assert "reward-to-go" in table
    assert "(64, 64)" in table


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("wnes", "wnes"),
        ("BG-WNES", "bgwnes"),
        ("ES-clip", "esclip"),
        ("NSR-ES --seed 3", "nsres"),
        ("wnes --hidden 8 8 --delta -0.5", "wnes"),
        ("nsres --geometry wasserstein", "novelty_wasserstein_fixed"),
        ("es --proximity none", "es"),
        ("esclip --max-norm 2", "esclip"),
    ],
)
def test_names_of_methods_and_combinations(words: str, name: str) -> None:
    command = cli.parse("train", [*words.split(), "--env", "X"])
    assert command.family is EVOLUTION
    assert command.job(0).method == name
    assert command.job(0).family is EVOLUTION
    if name in METHODS:
        axes = METHODS[name].axes
        assert {axis: getattr(command.config, axis) for axis in axes} == axes


def test_flags_reach_the_configuration() -> None:
    words = (
        "wnes --env X --delta=-0.5 --beta -0.25 --hidden 8 9 --no-relative-damping --shaping ranks "
        "--policy dense"
    )
    config = cli.parse("train", words.split()).config
    assert (config.delta, config.beta, config.hidden) == (-0.5, -0.25, (8, 9))
    assert (config.relative_damping, config.shaping, config.policy) == (False, "ranks", "dense")


def test_flags_of_search_restarts_and_observations(monkeypatch, capsys, tmp_path) -> None:
    """A run with all three adapts σ, and goes on from its folder with the same flags."""
    words = shlex.split("es --search wasserstein --restart-after 3 --normalize-observations")
    assert train(monkeypatch, tmp_path, *words, "--quiet", generations=2) == 0
    folder = tmp_path / FOLDER / "none_euclidean_wasserstein" / "seed0"
    sigma = read_metrics(folder)["sigma"]
    assert sigma[0] != sigma[1] > 0
    assert train(monkeypatch, tmp_path, *words, "--quiet", "--resume", generations=3) == 0
    assert len(read_metrics(folder)["sigma"]) == 3
    agent = wng.load(folder)
    assert (agent.config.restart_after, agent.config.normalize_observations) == (3, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"train wnse --env {POINT}", "did you mean 'wnes'?"),
        ("train wnes --env wng/PointWal-v0", "did you mean 'wng/PointWall-v0'?"),
        (f"train wnes --env {POINT} --embedding final-sate", "did you mean 'final-state'?"),
        (f"train wnes --env {POINT} --embedding state-action", "looks at single steps"),
        (f"train wnes --env {POINT} --embedding nowhere:f", "'nowhere:f' cannot be imported"),
        (f"train wnes --env {POINT} --population 7", "population=7 must be even"),
        (f"train wnes --env {POINT} --population 7 --seeds 0-1", "population=7 must be even"),
        (f"train wnes --env {POINT} --population 10", "num_basis=20 needs as many behaviors"),
        (f"train wnes --env {POINT} --sigma -1", "sigma must be finite, at least 0"),
        (f"train wnes --env {POINT} --delta 2", "delta must be finite and at most 1"),
        (f"train wnes --env {POINT} --geometry wasserstien", "did you mean 'wasserstein'?"),
        (f"train wnes --env {POINT} --geometry fisher", "there is no geometry 'fisher'"),
        (f"train nsres --env {POINT} --proximity clip", "there is no proximity 'clip'"),
        (f"train wnes --env {POINT} --backend mujoco", "cannot run on backend 'mujoco'"),
        (f"train wnes --env {POINT} --seed -1", "seed must be a whole number from 0"),
        (f"train wnes --env {POINT} --seeds 3-1", "must look like 0-4 or 0,3,7"),
        ("train wnes --env wng/PointWal-v0 --seeds 0-1", "did you mean 'wng/PointWall-v0'?"),
        (f"train wnes --env {POINT} --seeds 0-1 --embedding final-sate", "'final-state'?"),
        ("train wnes --env wng/ProbeCounter-v0", "has no time limit"),
        ("methods wnse", "did you mean 'wnes'?"),
        ("mpa x", "did you mean 'wng map'?"),
        ("map nothing", "nothing does not exist"),
        ("map .", ". is not a run"),
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
        ("train wnes", "Missing from wng train wnes: --env STR"),
        (f"train wnes --env {POINT} --popluation 8", "Unrecognized options: --popluation, 8"),
        (f"train wnes --env {POINT} --popluation 8", "Perhaps you meant: --population INT"),
        (f"train wnes --env {POINT} --rollout 8", "Unrecognized options: --rollout, 8"),
        (f"train wnpg --env {POINT} --population 8", "Unrecognized options: --population, 8"),
        (f"train wnes --env {POINT} --population 8.5", "Error parsing --population: "),
        (f"train wnes --env {POINT} --sigma x", "Error parsing --sigma: "),
        (f"train wnes --env {POINT} --policy toplitz", "'--policy'. Expected one of ('toeplitz'"),
        (f"train wnes --env {POINT} --shaping rank", "('standardize', 'ranks', 'utilities')"),
        (f"train wnes --env {POINT} --backend mujocco", "invalid choice 'mujocco' for argument"),
        (f"train wnes --env {POINT} --settings papr", "('tuned', 'paper', 'released')"),
        (f"train es --env {POINT} --executor rey", "Expected one of ('local', 'ray')"),
        (f"train --env {POINT} wnes", "Unrecognized options: wnes"),  # the method comes first
        ("map", "Missing from wng map: PATH"),
    ],
)
def test_a_wrong_flag_is_named(monkeypatch, capsys, tmp_path, words: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *words.split()) == 2
    assert message in text_of(capsys)
    assert list(tmp_path.iterdir()) == []


def durations(path: Path) -> list[int]:
    """Of the frames of an animation, in ms."""
    with Image.open(path) as shown:
        return [frame.info["duration"] for frame in ImageSequence.Iterator(shown)]


def test_map(monkeypatch, capsys, tmp_path, evolved: Path) -> None:
    assert run(monkeypatch, "map", str(evolved), "--to", str(tmp_path / "new")) == 0
    picture, animation = tmp_path / "new" / "map.png", tmp_path / "new" / "map.gif"
    assert capsys.readouterr().out.split() == [str(picture), str(animation)]
    assert imageio.imread(picture).std() > 0
    # A frame for each generation; the last one is held for two seconds more.
    assert durations(animation) == [100, 100, 100, 100, 2100]
    assert not (evolved / "map.gif").exists()


def test_a_map_shows_some_generations_of_many(monkeypatch, tmp_path, evolved: Path) -> None:
    monkeypatch.setattr("wng.experiments.es.maps.FRAMES", 3)
    folder = tmp_path / "copy"
    shutil.copytree(evolved, folder)
    assert run(monkeypatch, "map", str(folder)) == 0  # beside the run
    assert (folder / "map.png").stat().st_size > 0
    assert durations(folder / "map.gif") == [100, 100, 2100]
    (folder / "maps" / "000005.safetensors").write_bytes(b"")
    assert run(monkeypatch, "map", str(folder)) == 2


def test_what_has_no_map(monkeypatch, capsys, gradient: Path, tmp_path) -> None:
    assert run(monkeypatch, "map", str(gradient)) == 2
    assert "only runs of evolution strategies on wall tasks do" in sentence_of(capsys)
    other = wng.RunDirectory.create(tmp_path, "CartPole-v1", "es", 0, {})
    assert run(monkeypatch, "map", str(other.path)) == 2
    assert "CartPole-v1 has no map: only the wall tasks have one" in sentence_of(capsys)
    unbegun = wng.RunDirectory.create(tmp_path, POINT, "es", 0, {})
    assert run(monkeypatch, "map", str(unbegun.path)) == 2
    assert "metrics" in sentence_of(capsys)


def test_eval(monkeypatch, capsys, evolved: Path, tmp_path) -> None:
    for how in ((), ("--sampled",)):
        assert run(monkeypatch, "eval", str(evolved), "--episodes", "2", *how) == 0
        said = capsys.readouterr().out
        assert "WNES on wng/PointWall-v0 after 2,000 steps: -" in said
        assert "(2 episodes, " in said
    wng.load(evolved).save(tmp_path / "saved")
    assert run(monkeypatch, "eval", str(tmp_path / "saved"), "--episodes", "2") == 0
    assert "after 2,000 steps" in capsys.readouterr().out


def test_video(monkeypatch, capsys, evolved: Path, tmp_path) -> None:
    film = tmp_path / "films" / "film.gif"
    assert run(monkeypatch, "video", str(evolved), "--to", str(film)) == 0
    assert f"{film}  (return -" in capsys.readouterr().out
    assert sum(durations(film)) == 50 * 40  # the whole episode, 25 frames a second
    assert imageio.imread(film).std() > 0


def test_plot_of_both_families(
    monkeypatch, capsys, evolved: Path, gradient: Path, tmp_path
) -> None:
    picture = tmp_path / "curves.png"
    assert run(monkeypatch, "plot", str(evolved), str(gradient), "--to", str(picture)) == 0
    assert "(2 runs)" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_embedding_and_an_environment_of_ones_own(monkeypatch, capsys, tmp_path) -> None:
    (tmp_path / "mine_evolved.py").write_text(
        "import gymnasium\n"
        "def speed(trajectory):\n    return trajectory.observations[-1, 2:]\n"
        "gymnasium.register('Mine-v0', entry_point='wng.envs.walls.point:PointWallEasy',"
        " max_episode_steps=50)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ("nsres", "--quiet", "--embedding", "mine_evolved:speed")
    assert train(monkeypatch, tmp_path, *words, generations=1, env="mine_evolved:Mine-v0") == 0
    folder = tmp_path / "mine_evolved-Mine-v0" / "nsres" / "seed0"
    capsys.readouterr()
    assert run(monkeypatch, "eval", str(folder), "--episodes", "1") == 0
    assert "NSR-ES on mine_evolved:Mine-v0 after 400 steps" in capsys.readouterr().out
    arrays, _ = checkpoint.read(checkpoint.saved(folder / "checkpoints")[0])
    assert arrays["strategy/past/behaviors"].shape[1] == 2


@pytest.mark.slow  # test_policy_gradient.py has the like
def test_seeds(monkeypatch, capsys, tmp_path, evolved: Path) -> None:
    assert train(monkeypatch, tmp_path, "wnes", "--seeds", "0-1") == 0
    assert "over 2 seeds (mean policy of each)" in capsys.readouterr().out
    alone = wng.load(evolved).trainer.checkpoint()[0]
    folders = [tmp_path / FOLDER / "wnes" / f"seed{k}" for k in (0, 1)]
    ends = [wng.load(folder).trainer.checkpoint()[0] for folder in folders]
    for name in alone:
        np.testing.assert_array_equal(ends[0][name], alone[name], err_msg=name)
    assert not np.array_equal(ends[0]["strategy/center"], ends[1]["strategy/center"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("pg --env CartPole-v1 --executor ray", "cannot distribute a single run of pg: add --seed"),
        ("es --env wng/PointWall-v0 --ray-address auto", "needs --executor ray: add it"),
        ("es --env wng/PointWall-v0 --executor ray --ray-address 127.0.0.1:9", "no Ray cluster"),
    ],
)
def test_executors_that_cannot_be(monkeypatch, capsys, tmp_path, words, sentence) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "train", *words.split()) == 2
    assert sentence in sentence_of(capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_begun_here_is_resumed_on_ray(monkeypatch, tmp_path) -> None:
    words = ("bgwnes", "--quiet")
    assert train(monkeypatch, tmp_path / "whole", *words) == 0
    assert train(monkeypatch, tmp_path / "parts", *words, generations=2) == 0
    resumed = (*words, "--resume", "--executor", "ray")
    assert train(monkeypatch, tmp_path / "parts", *resumed) == 0
    whole, parts = (
        checkpoint.read_latest(tmp_path / root / FOLDER / "bgwnes" / "seed0" / "checkpoints")[0]
        for root in ("whole", "parts")
    )
    assert whole.keys() == parts.keys()
    for name in whole:
        np.testing.assert_array_equal(whole[name], parts[name], name)
