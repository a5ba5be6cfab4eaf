"""What the settings of both families share: named methods, presets, checks of values."""

import copy
import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

import numpy as np

from wng.behavior.registry import Registry, check_choice, nearest

Settings = Literal["tuned", "paper", "released"]
EVALUATION_SEED = 1_000_000  # of the episodes of evaluations, the same for every agent
KINDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text"}
MOST = 2**31 - 1  # JAX counts in 32 bits
LARGEST = float(np.finfo(np.float32).max)  # and computes in 32 bits as well


@dataclass(frozen=True)
class Method:
    """A named point on the axes."""

    title: str
    axes: dict[str, Any]  # proximity, geometry and, for policy gradients, step
    about: str
    or_geometry: str = ""  # another form of the same metric, which presets may choose

    def covers(self, axes: dict[str, Any]) -> bool:
        """Whether these axes are the method's."""
        other = self.axes | {"geometry": self.or_geometry or self.axes["geometry"]}
        return axes in (self.axes, other)

    @property
    def key(self) -> str:
        """The name in the table, on the command line and in folders."""
        return plain(self.title)


def plain(name: str) -> str:
    """A method's name without capitals and hyphens: 'BG-WNPG' becomes 'bgwnpg'."""
    return name.lower().replace("-", "")


def find_method(name: str, methods: Mapping[str, Method]) -> Method:
    """The method called `name`, in any case and with or without its hyphen."""
    if plain(str(name)) not in methods:
        raise ValueError(
            f"there is no method {str(name)!r}: did you mean '{nearest(str(name), methods)}'? "
            "`wng methods` lists them."
        )
    return methods[plain(name)]


def check_preset(settings: str) -> None:
    """Raise a ValueError if there are no presets of this name."""
    check_choice("settings", settings, get_args(Settings))


def check_names(names: Iterable[str], config: type) -> None:
    """Raise a ValueError if one of `names` is not a field of the configuration."""
    fields = [f.name for f in dataclasses.fields(config)]
    for name in names:
        if name not in fields:
            raise ValueError(
                f"there is no setting {name!r}: did you mean '{nearest(name, fields)}'?"
            )


@dataclass(frozen=True)
class Limits:
    """Valid values of a configuration: by default whole numbers ≥ 1, other numbers > 0.

    Fields with a `Literal` type must have one of its values.
    """

    registries: dict[str, Registry[Any]]  # fields that name a part
    at_least: dict[str, int] = field(default_factory=dict)  # of whole numbers
    any_sign: tuple[str, ...] = ()
    at_most_one: tuple[str, ...] = ()
    may_be_zero: tuple[str, ...] = ()

    def check(self, config: Any) -> None:
        """Raise a ValueError for a value that makes no sense; whole numbers become floats."""
        for f in dataclasses.fields(config):
            value = getattr(config, f.name)
            if isinstance(value, np.generic):
                value = value.item()
            if f.type is float and type(value) is int and abs(value) <= LARGEST:
                value = float(value)
            object.__setattr__(config, f.name, value)
            if f.name in self.registries:
                self.registries[f.name].check(value)
            elif get_origin(f.type) is Literal:
                check_choice(f.name, value, get_args(f.type))
            elif f.type in KINDS and type(value) is not f.type:
                raise ValueError(f"{f.name} must be {KINDS[f.type]}, got {value!r}.")
            elif f.name == "hidden":
                object.__setattr__(config, f.name, _widths(value))
            elif f.type in (int, float):
                self._check_number(f.name, value)

    def _check_number(self, name: str, value: Any) -> None:
        if isinstance(value, int):
            least = self.at_least.get(name, 1)
            if not least <= value <= MOST:
                most = f" and at most {MOST}" if value > MOST else ""
                raise ValueError(f"{name} must be at least {least}{most}, got {value}.")
        else:
            signed = name in self.any_sign
            low_enough = value <= 1 or name not in self.at_most_one
            high_enough = signed or (value >= 0 if name in self.may_be_zero else value > 0)
            if not (abs(value) <= LARGEST and high_enough and low_enough):
                least_of = (
                    "" if signed else ", at least 0" if name in self.may_be_zero else ", positive"
                )
                most = " and at most 1" if name in self.at_most_one else ""
                raise ValueError(f"{name} must be finite{least_of}{most}, got {value}.")


def numbers_of(config: Any) -> dict[str, float]:
    """The settings that can be arguments of a compiled program: numbers, except whole ones and 0.

    (A setting that is 0 often turns something off.)
    """
    found = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.type is float}
    return {name: value for name, value in found.items() if value != 0}


def is_off(value: Any) -> bool:
    """Whether a setting is 0, which turns something off. (Other numbers may be traced.)"""
    return isinstance(value, int | float) and value == 0


def shape_of(config: Any) -> Any:
    """The settings that a compiled program depends on: all `numbers_of` the configuration are 1."""
    return with_numbers(config, dict.fromkeys(numbers_of(config), 1.0))


def with_numbers(config: Any, numbers: Mapping[str, Any]) -> Any:
    """A copy with other numbers, which may be traced, so they are not checked."""
    found = copy.copy(config)
    for name, value in numbers.items():
        object.__setattr__(found, name, value)
    return found


def check_seed(seed: Any) -> int:
    """The seed as an int; ValueError if a JAX key cannot hold it."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1}, got {seed!r}.")
    return int(seed)


def check_memory(what: str, numbers: float) -> None:
    """Raise a ValueError if this many 32-bit numbers exceed the memory of this machine.

    Args:
      what: what takes the memory, in words that name the settings to lower.
      numbers: a lower bound, so that nothing that would work is refused.
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 4 * numbers > available:
        raise ValueError(
            f"{what} would take at least {4 * numbers / 1e9:,.0f} GB of memory, but this machine "
            f"has {available / 1e9:,.0f} GB: lower it."
        )


def config_from(saved: Any, config: type) -> Any:
    """A configuration from the dict in a file, which must have every setting and no other."""
    names = {f.name for f in dataclasses.fields(config)}
    if not isinstance(saved, dict) or set(saved) != names:
        raise ValueError(
            f"the settings in the file are not those of a {config.__name__}: it was written by "
            "another version or configuration."
        )
    return config(**saved)


def _widths(value: Any) -> tuple[int, ...]:
    widths = tuple(value) if isinstance(value, tuple | list) else ()
    if not widths or any(type(w) is not int or not 1 <= w <= MOST for w in widths):
        raise ValueError(
            f"hidden must be one or more widths of at least 1 and at most {MOST}, got {value!r}."
        )
    return widths
