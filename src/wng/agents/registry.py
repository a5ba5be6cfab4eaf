"""The two families of methods, as the commands and the studies see them."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from wng.evolution import config as evolution_config
from wng.evolution import methods as evolution_methods
from wng.policy_gradient import config as gradient_config
from wng.policy_gradient import methods as gradient_methods
from wng.runs.settings import Limits, Method


class Family(NamedTuple):
    """What `wng train` and `wng methods` need to know of a family."""

    title: str
    config: type
    limits: Limits
    methods: dict[str, Method]
    preset: Callable[..., Any]  # (method, settings, env)
    agent: str  # module:class, imported when a run starts


GRADIENT = Family(
    "policy gradients",
    gradient_config.Config,
    gradient_config.LIMITS,
    gradient_methods.METHODS,
    gradient_methods.preset,
    "wng.policy_gradient.agent:Agent",
)
EVOLUTION = Family(
    "evolution strategies",
    evolution_config.EvolutionConfig,
    evolution_config.LIMITS,
    evolution_methods.METHODS,
    evolution_methods.preset,
    "wng.evolution.agent:Evolution",
)
FAMILIES = (GRADIENT, EVOLUTION)
METHODS: dict[str, Method] = {**GRADIENT.methods, **EVOLUTION.methods}


def family_of(method: str) -> Family:
    """The family of a method; policy gradients for a combination of one's own."""
    return EVOLUTION if method.lower().replace("-", "") in EVOLUTION.methods else GRADIENT


def agent_class(family: Family) -> Any:
    """The class that trains."""
    module, name = family.agent.split(":")
    return getattr(importlib.import_module(module), name)


def title_of(name: str) -> str:
    """A method's name as people write it."""
    return METHODS[name].title if name in METHODS else name
