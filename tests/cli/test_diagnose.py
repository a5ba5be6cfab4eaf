"""`wng diagnose`."""

import shlex
from pathlib import Path

import pytest
from commands import run, sentence_of, text_of

import wng

TINY = shlex.split(
    "--rollout 64 --minibatch 32 --value-minibatch 32 --num-envs 4 --hidden 8 --epochs 1 "
    "--value-epochs 1 --backend gymnasium"
)
PENDULUM = "InvertedPendulum-v5"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run of two iterations; to be looked at only."""
    root = tmp_path_factory.mktemp("runs")
    words = ("train", "pg", "--env", PENDULUM, "--steps", "128", "--out", str(root), *TINY)
    with pytest.MonkeyPatch.context() as patched:
        assert run(patched, *words) == 0
    return root / PENDULUM / "pg" / "seed0"


def test_sentences_a_table_and_a_picture(monkeypatch, capsys, trained, tmp_path) -> None:
    before = {file: file.read_bytes() for file in trained.rglob("*") if file.is_file()}
    assert run(monkeypatch, "diagnose", str(trained), "--rollouts", "2") == 0
    said = capsys.readouterr().out
    assert "PG on InvertedPendulum-v5, seed 0, after 128 steps: the 20 leading" in said
    assert "from 128 steps" in said
    assert "|λ₁|/|λᵢ|" in said
    assert [line.split()[1] for line in said.splitlines() if line.startswith("│")] == (
        ["1", "2", "5", "10", "20"]
    )
    assert (trained / "spectrum.png").stat().st_size > 1000
    (trained / "spectrum.png").unlink()
    assert {file: file.read_bytes() for file in trained.rglob("*") if file.is_file()} == before

    saved, picture = tmp_path / "agent.safetensors", tmp_path / "elsewhere.png"
    agent = wng.load(trained)
    agent.save(saved)
    agent.close()
    words = ("diagnose", str(saved), "--rollouts", "2", "--number", "6", "--to", str(picture))
    assert run(monkeypatch, *words) == 0
    assert "at i = 6" in capsys.readouterr().out
    assert picture.exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--number 1", "number must be a whole number from 2 to 200, got 1"),
        ("--number 1000", "number must be a whole number from 2 to 200, got 1000"),
        ("--rollouts 0", "rollouts must be a whole number, at least 1, got 0"),
    ],
)
def test_a_bad_number_is_one_sentence(monkeypatch, capsys, trained, flags, message) -> None:
    assert run(monkeypatch, "diagnose", str(trained), *flags.split()) == 2
    assert message in sentence_of(capsys)


def test_a_number_that_is_none_names_the_flag(monkeypatch, capsys, trained) -> None:
    assert run(monkeypatch, "diagnose", str(trained), "--number", "ten") == 2
    assert "Error parsing --number: invalid literal for int()" in text_of(capsys)


def test_a_run_that_is_not_there_is_one_sentence(monkeypatch, capsys, tmp_path) -> None:
    assert run(monkeypatch, "diagnose", str(tmp_path / "none")) == 2
    assert "none" in sentence_of(capsys)


def test_an_evolution_strategy_has_no_gradient(monkeypatch, capsys, tmp_path) -> None:
    agent = wng.Agent("wng/PointWall-v0", "wnes", 0, population=4, num_basis=4)
    agent.save(tmp_path / "agent.safetensors")
    agent.close()
    assert run(monkeypatch, "diagnose", str(tmp_path / "agent.safetensors")) == 2
    assert "WNES is an evolution strategy, whose objective has no gradient" in sentence_of(capsys)
