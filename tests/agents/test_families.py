import pytest

import wng
from wng.agents.registry import EVOLUTION, FAMILIES, GRADIENT, METHODS, family_of, title_of


def test_families_and_methods() -> None:
    assert set(METHODS) == set(GRADIENT.methods) | set(EVOLUTION.methods)
    assert len(METHODS) == len(GRADIENT.methods) + len(EVOLUTION.methods)
    assert len({family.kind for family in FAMILIES}) == 2
    for name, method in METHODS.items():
        assert method.key == name
        assert title_of(name) == method.title
        assert name in family_of(name).methods


@pytest.mark.parametrize(
    ("name", "family"),
    [("wnpg", GRADIENT), ("BG-WNES", EVOLUTION), ("clip_fisher_optimizer", GRADIENT)],
)
def test_the_family_of_a_name(name: str, family) -> None:
    assert family_of(name) is family


def test_a_combination_of_ones_own_is_its_own_title() -> None:
    assert title_of("clip_fisher_optimizer") == "clip_fisher_optimizer"


def test_every_groups_first_setting_exists() -> None:
    for family, config in ((GRADIENT, wng.Config()), (EVOLUTION, wng.EvolutionConfig())):
        assert family.config is type(config)
        for first in family.groups:
            assert hasattr(config, first)
