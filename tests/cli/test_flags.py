"""Flags of `wng train`: one for each setting of the method's family."""

import dataclasses

import pytest
from commands import run, without_boxes

from wng import cli
from wng.agents.registry import FAMILIES, Family, family_of
from wng.cli.flags import given_settings, setting_help

QUADRUPED = "wng/QuadrupedWall-v0"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.kind)
def test_every_setting_is_explained_in_sentences(family: Family) -> None:
    texts = setting_help(family.config)
    assert list(texts) == [field.name for field in dataclasses.fields(family.config)]
    for name, text in texts.items():
        assert text.endswith("."), name
        assert " " in text, name
        assert "\n" not in text, name
        assert text[0].isupper() or text[0] in "λσβδε" or text.startswith("proximity="), name


@pytest.mark.parametrize("method", ["wnpg", "bgwnes"])
def test_help_shows_every_flag_with_its_preset(monkeypatch, capsys, method: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # in one column
    assert run(monkeypatch, "train", method, "--help") == 0
    text, family = without_boxes(capsys.readouterr().out), family_of(method)
    assert f"usage: wng train {method} " in text
    for title in family.groups.values():
        assert text.count(f" {title.replace('_', '-')} options ") == 1
    preset, texts = family.preset(method), setting_help(family.config)
    for field in dataclasses.fields(family.config):
        value = getattr(preset, field.name)
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
        assert f" --{field.name.replace('_', '-')}" in text
        assert f"{texts[field.name]} (preset: {shown})" in text
    assert f"Number of environment steps in all. (default: {family.steps})" in text
    assert "--env STR" in text
    (other,) = (each for each in FAMILIES if each is not family)
    own = {field.name for field in dataclasses.fields(family.config)}
    for field in dataclasses.fields(other.config):
        if field.name not in own:
            assert f" --{field.name.replace('_', '-')} " not in text


@pytest.mark.parametrize("method", ["ppo", "wnpg", "wnes"])
@pytest.mark.parametrize("settings", ["tuned", "paper", "released"])
def test_only_what_was_typed_overrides_the_preset(method: str, settings: str) -> None:
    """A flag that was not typed has the value of the chosen preset, not that shown in --help."""
    family, env = family_of(method), QUADRUPED  # which has presets of its own
    words = [method, "--env", env, "--settings", settings]
    untouched = cli.parse("train", words)
    assert given_settings(untouched, family) == {}
    preset = family.preset(method, settings, env)
    assert untouched.config == preset
    typed = cli.parse("train", [*words, "--learning-rate", "0.125", "--no-relative-damping"])
    expected = {"learning_rate": 0.125, "relative_damping": False}
    assert given_settings(typed, family) == expected
    assert typed.config == dataclasses.replace(preset, **expected)


@pytest.mark.parametrize("method", ["wnpg", "wnes"])
def test_a_preset_changes_the_settings_that_were_not_typed(method: str) -> None:
    words = [method, "--env", QUADRUPED, "--hidden", "8", "9"]
    tuned = cli.parse("train", words).config
    released = cli.parse("train", [*words, "--settings", "released"]).config
    assert tuned.hidden == released.hidden == (8, 9)
    assert tuned.damping != released.damping
    assert tuned.num_basis != released.num_basis


def test_a_flag_that_repeats_its_default_counts_as_typed() -> None:
    """The preset of WNPG has another optimizer than the default of `wng.Config`."""
    command = cli.parse("train", ["wnpg", "--env", "X", "--optimizer", "adam", "--seed", "3"])
    assert given_settings(command, command.family) == {"optimizer": "adam"}
    assert command.config.optimizer == "adam"
    assert (command.seed, command.job(5).seed) == (3, 5)


def test_steps_of_a_run_depend_on_the_family() -> None:
    for family in FAMILIES:
        method = next(iter(family.methods))
        assert cli.parse("train", [method, "--env", "X"]).job(0).steps == family.steps
    assert cli.parse("train", ["es", "--env", "X", "--steps", "2e6"]).job(0).steps == 2_000_000
