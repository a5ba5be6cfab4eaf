"""What both families' settings have in common: named methods, presets, checks of values."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from wng.names import nearest

Settings = Literal["tuned", "paper", "released"]


@dataclass(frozen=True)
class Method:
    """A named point on the axes."""

    title: str
    axes: dict[str, str]  # proximity, geometry and, for policy gradients, step
    about: str

    @property
    def key(self) -> str:
        """The name in the table, on the command line and in folders."""
        return self.title.lower().replace("-", "")


def find_method(name: str, methods: Mapping[str, Method]) -> Method:
    """The method called `name`, in any case and with or without its hyphen."""
    plain = name.lower().replace("-", "")
    if plain not in methods:
        raise ValueError(
            f"there is no method '{name}': did you mean '{nearest(name, methods)}'? "
            "`wng methods` lists them."
        )
    return methods[plain]


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise, with the nearest choice, if `value` is none."""
    if value not in choices:
        raise ValueError(
            f"{name} '{value}' is unknown: did you mean '{nearest(str(value), choices)}'?"
        )


def check_preset(settings: str) -> None:
    """Raise if there are no presets of this name."""
    check_choice("settings", settings, get_args(Settings))


def check_names(names: Iterable[str], config: type) -> None:
    """Raise, with the nearest name, if one of `names` is not a field of the configuration."""
    fields = [f.name for f in dataclasses.fields(config)]
    for name in names:
        if name not in fields:
            raise ValueError(
                f"there is no setting '{name}': did you mean '{nearest(name, fields)}'?"
            )


@dataclass(frozen=True)
class Limits:
    """What the numbers of a configuration may be: by default whole ones ≥ 1, others > 0."""

    choices: dict[str, tuple[str, ...]]
    at_least: dict[str, int] = field(default_factory=dict)  # of whole numbers
    any_sign: tuple[str, ...] = ()
    at_most_one: tuple[str, ...] = ()
    may_be_zero: tuple[str, ...] = ()
    free: tuple[str, ...] = ("embedding",)

    def check(self, config: Any) -> None:
        """One clear sentence for a value that makes no sense; whole numbers become floats."""
        for f in dataclasses.fields(config):
            value = getattr(config, f.name)
            if f.type is float and isinstance(value, int) and not isinstance(value, bool):
                object.__setattr__(config, f.name, float(value))
            elif f.type is int and (isinstance(value, bool) or not isinstance(value, int)):
                raise ValueError(f"{f.name} must be a whole number, got {value!r}.")
            self._check(f.name, getattr(config, f.name))

    def _check(self, name: str, value: Any) -> None:
        if name in self.choices:
            check_choice(name, value, self.choices[name])
        elif name == "hidden":
            widths = value if isinstance(value, tuple | list) else ()
            if not widths or any(not isinstance(w, int) or w < 1 for w in widths):
                raise ValueError(f"hidden must be one or more widths of at least 1, got {value!r}.")
        elif isinstance(value, bool) or name in self.free:
            pass
        elif not isinstance(value, int | float):
            raise ValueError(f"{name} must be a number, got {value!r}.")
        elif isinstance(value, int):
            least = self.at_least.get(name, 1)
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}.")
        else:
            signed = name in self.any_sign
            low_enough = value <= 1 or name not in self.at_most_one
            high_enough = signed or (value >= 0 if name in self.may_be_zero else value > 0)
            if not (math.isfinite(value) and high_enough and low_enough):
                least_of = (
                    "" if signed else ", at least 0" if name in self.may_be_zero else ", positive"
                )
                most = " and at most 1" if name in self.at_most_one else ""
                raise ValueError(f"{name} must be finite{least_of}{most}, got {value}.")
