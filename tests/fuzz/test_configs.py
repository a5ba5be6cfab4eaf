"""Settings of all kinds make an agent, or end in one sentence."""

import dataclasses
from typing import Any, Literal, get_args, get_origin

import pytest
from edges import NUMBERS, ODD, TEXTS, VALUES, fuzz, refused
from hypothesis import given
from hypothesis import strategies as st

import wng
from wng.agents.registry import EVOLUTION, FAMILIES, GRADIENT, METHODS, Family
from wng.evolution import config as evolution_config
from wng.policy_gradient import config as gradient_config
from wng.runs.settings import config_from

POINT = "wng/PointWall-v0"
SMALL: dict[str, dict[str, Any]] = {
    GRADIENT.title: {"num_envs": 2, "rollout": 8, "minibatch": 8, "value_minibatch": 8,
                     "hidden": (3,), "num_basis": 3, "metric_samples": 8, "backend": "gymnasium"},
    EVOLUTION.title: {"population": 6, "hidden": (3,), "num_basis": 3, "dual_features": 5},
}  # fmt: skip
families = st.sampled_from(FAMILIES)
LIMITS = {GRADIENT.kind: gradient_config.LIMITS, EVOLUTION.kind: evolution_config.LIMITS}


def likely(family: Family, name: str) -> st.SearchStrategy:
    """A value that may be right for a field, as often as one of any kind."""
    (kind,) = (field.type for field in dataclasses.fields(family.config) if field.name == name)
    choices = (
        get_args(kind)
        if get_origin(kind) is Literal
        else tuple(LIMITS[family.kind].registries.get(name, ()))
    )
    if choices:
        return st.one_of(st.sampled_from(choices), VALUES)
    if name == "hidden":
        return st.one_of(st.lists(NUMBERS, max_size=3).map(tuple), VALUES)
    return st.one_of(NUMBERS, VALUES)


def changes(family: Family, most: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """Values for a few fields of a family's configuration."""
    one = st.sampled_from([f.name for f in dataclasses.fields(family.config)]).flatmap(
        lambda name: st.tuples(st.just(name), likely(family, name))
    )
    return st.lists(one, max_size=most).map(dict)


@fuzz(600)
@given(st.data())
def test_configurations(data: st.DataObject) -> None:
    family = data.draw(families)
    given_values = data.draw(changes(family))
    made: list[Any] = []
    said = refused(lambda: made.append(family.config(**given_values)))
    if said is None:
        for field in dataclasses.fields(family.config):
            value = getattr(made[0], field.name)
            if field.type in (int, float, bool, str):
                assert type(value) is field.type, (field.name, value)


@fuzz(200)
@given(families, st.one_of(st.sampled_from([*METHODS, "WNPG", "ppoo"]), VALUES),
       st.one_of(st.sampled_from(["tuned", "paper", "released"]), VALUES), VALUES,
       st.dictionaries(st.one_of(st.sampled_from(["hidden", "gama", "population"]), TEXTS), VALUES,
                       max_size=2))  # fmt: skip
def test_presets(family: Family, method: Any, settings: Any, env: Any, more: dict) -> None:
    for name in {"name", "settings", "env"} & set(more):
        del more[name]
    refused(lambda: family.preset(method, settings, env, **more))


@fuzz(200)
@given(families, st.dictionaries(TEXTS, VALUES, max_size=2), st.one_of(st.none(), VALUES))
def test_configurations_from_files(family: Family, more: dict, instead: Any) -> None:
    whole = dataclasses.asdict(family.config()) | more if instead is None else instead
    assert (refused(lambda: config_from(whole, family.config)) is None) == (
        instead is None and not more
    )


@fuzz(20)
@given(st.data())
def test_agents(data: st.DataObject) -> None:
    """Small ones with a few fields of any kind: huge ones are refused before they take memory."""
    family = data.draw(families)
    base = SMALL[family.title]
    method = data.draw(st.sampled_from(list(family.methods)))
    env = data.draw(st.sampled_from([POINT, "CartPole-v1"]))
    more = data.draw(changes(family, most=2))
    if isinstance(more.get("backend"), str) and more["backend"] == "workers":
        del more["backend"]  # processes
    made: list[Any] = []
    refused(lambda: made.append(wng.Agent(env, method, 0, **{**base, **more})))
    for one in made:
        one.close()


@fuzz(60)
@given(families, st.one_of(TEXTS, ODD, NUMBERS, st.just("Hopper-v9")), VALUES, VALUES, VALUES)
def test_agents_of_anything(family: Family, env: Any, method: Any, seed: Any, config: Any) -> None:
    """Environment, method, seed or configuration of any kind; the others as they should be."""
    make, right = wng.Agent, family.config(**SMALL[family.title])
    named = next(iter(family.methods))
    assert refused(lambda: make(env, named, config=right)) is not None
    if config is not None:
        assert refused(lambda: make(POINT, named, config=config)) is not None
    refused(lambda: make(POINT, named, seed, config=right).close())
    refused(lambda: make(POINT, method, config=right).close())
    refused(lambda: make(POINT, named, settings=method, **SMALL[family.title]).close())
    if not callable(method):
        refused(lambda: make(POINT, named, embedding=method, **SMALL[family.title]).close())


@pytest.mark.parametrize(
    ("family", "huge"),
    [
        (EVOLUTION, {"population": 10**12}),
        (EVOLUTION, {"population": 2 * 10**9}),
        (EVOLUTION, {"hidden": (10**9, 10**9)}),
        (EVOLUTION, {"hidden": (10**5, 10**7), "policy": "dense"}),
        (EVOLUTION, {"archive": 2**31 - 1, "proximity": "novelty"}),
        (EVOLUTION, {"memory": 10**9, "proximity": "wasserstein"}),
        (EVOLUTION, {"population": 10**6, "backend": "gymnasium"}),
        (GRADIENT, {"hidden": (10**9, 10**9)}),
        (GRADIENT, {"num_envs": 10**6, "rollout": 10**6, "minibatch": 10, "value_minibatch": 10}),
        (GRADIENT, {"rollout": 10**12}),
        (GRADIENT, {"dual_features": 10**9, "proximity": "wasserstein"}),
        (EVOLUTION, {"dual_features": 10**8, "proximity": "wasserstein", "population": 10**4}),
    ],
    ids=lambda x: x.title.split()[0] if isinstance(x, Family) else "-".join(x),
)
def test_what_no_machine_can_hold(family: Family, huge: dict[str, Any]) -> None:
    def make() -> None:
        made = wng.Agent(POINT, next(iter(family.methods)), **{**SMALL[family.title], **huge})
        made.learn(1)

    said = refused(make)
    assert said is not None
    assert "at most" in said or "memory" in said


def test_a_population_for_another_machine_can_be_looked_at_but_not_trained() -> None:
    family, population = EVOLUTION, 5 * 10**8
    large = wng.Agent(POINT, "es", **{**SMALL[family.title], "population": population})
    assert large.evaluate(1).shape == (1,)
    said = refused(lambda: large.learn(1))
    assert said is not None
    assert "memory" in said
