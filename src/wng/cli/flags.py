"""Flags of `wng train` from the settings of a family, so that one tyro call parses them all."""

import ast
import dataclasses
import inspect
import textwrap
from typing import Annotated, Any, TypedDict

import tyro

from wng.agents.registry import Family


def setting_help(config: type) -> dict[str, str]:
    """What each setting means: the string below each field of the dataclass."""
    found: dict[str, str] = {}
    for cls in reversed(config.__mro__[:-1]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(definition, ast.ClassDef)
        for line, following in zip(definition.body, definition.body[1:], strict=False):
            if isinstance(line, ast.AnnAssign) and isinstance(following, ast.Expr):
                assert isinstance(line.target, ast.Name)
                found[line.target.id] = " ".join(ast.literal_eval(following.value).split())
    return found


def with_settings(command: type, family: Family, method: str, helps: bool) -> type:
    """The dataclass `command` with a flag for each setting of the method's family.

    A flag that is not given leaves the preset's value, so `given_settings` returns only what the
    user typed. Only if it `helps` are texts and the values of the tuned preset looked up.
    """
    defaults = family.preset(method or "pg") if helps else None
    texts = setting_help(family.config) if helps else {}
    groups: dict[str, dict[str, Any]] = {}
    for field in dataclasses.fields(family.config):
        if field.name in family.groups:
            flags = groups[family.groups[field.name]] = {}
        value = getattr(defaults, field.name, None)
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
        about = tyro.conf.arg(
            help=texts.get(field.name), help_behavior_hint=f"(preset: {shown})" if helps else ""
        )
        kind: Any = field.type
        flags[field.name] = Annotated[kind, about]
    typed: Any = TypedDict  # made at run time, which type checkers do not follow
    parts: list[Any] = [
        (title, typed(title, flags, total=False), dataclasses.field(default_factory=dict))
        for title, flags in groups.items()
    ]
    return dataclasses.make_dataclass(
        command.__name__,
        [("steps", float, dataclasses.field(default=family.steps)), *parts],
        bases=(command,),
        frozen=True,
        namespace={"__doc__": command.__doc__, "method": method},
    )


def given_settings(command: Any, family: Family) -> dict[str, Any]:
    """The settings that the user typed."""
    groups = [getattr(command, title) for title in family.groups.values()]
    return {name: value for group in groups for name, value in group.items()}
