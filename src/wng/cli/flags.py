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


def with_settings(command: type, family: Family, defaults: Any) -> type:
    """The dataclass `command` with a flag for each setting of the family.

    A flag that is not given leaves the preset's value, so `settings(parsed)` holds only what the
    user typed; --help shows the values of `defaults`.
    """
    texts = setting_help(family.config)
    groups: dict[str, dict[str, Any]] = {}
    for field in dataclasses.fields(family.config):
        if field.name in family.groups:
            flags = groups[family.groups[field.name]] = {}
        value = getattr(defaults, field.name)
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
        flags[field.name] = Annotated[
            field.type,
            tyro.conf.arg(help=texts[field.name], help_behavior_hint=f"(preset: {shown})"),
        ]
    fields = [
        (f"{title} settings", TypedDict(title, flags, total=False))  # type: ignore[operator]
        for title, flags in groups.items()
    ]
    return dataclasses.make_dataclass(
        command.__name__,
        [
            (name.replace(" ", "_"), kind, dataclasses.field(default_factory=dict))
            for name, kind in fields
        ],
        bases=(command,),
        frozen=True,
        namespace={"__doc__": command.__doc__},
    )


def given_settings(command: Any, family: Family) -> dict[str, Any]:
    """The settings that the user typed."""
    names = [f"{title} settings".replace(" ", "_") for title in family.groups.values()]
    return {name: value for group in names for name, value in getattr(command, group).items()}
