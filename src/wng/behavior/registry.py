"""Named parts: embeddings, proximities, geometries and steps are looked up in registries."""

import difflib
import importlib
from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def nearest(name: str, valid: Iterable[str]) -> str:
    """The entry of `valid` that looks most like `name`, ignoring case."""
    options = {option.lower(): option for option in valid}
    return options[difflib.get_close_matches(name.lower(), options, n=1, cutoff=0)[0]]


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise a ValueError that suggests the nearest choice if `value` is not one of them."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"{name} {str(value)!r} is unknown: did you mean '{nearest(str(value), choices)}'?"
        )


class Registry(dict[str, T | str]):
    """Parts of one kind by name. Assign to it to add your own part.

    A value is the part itself, or the text `module:attribute` that says where it is. Such a part is
    imported when it is first used, so its name is known without importing it.

    Args:
      kind: what the parts are, for error messages.
      parts: the parts by name.
    """

    def __init__(self, kind: str, parts: dict[str, T | str]):
        super().__init__(parts)
        self.kind = kind

    def check(self, name: Any) -> None:
        """Raise a ValueError unless `name` is registered or has the form `module:attribute`."""
        if not isinstance(name, str) or (name not in self and ":" not in name):
            raise ValueError(
                f"there is no {self.kind} {str(name)!r}: did you mean "
                f"'{nearest(str(name), self)}'? Give your own as module:name."
            )

    def find(self, name: str) -> T:
        """The part called `name`, or the one at `name` = `module:attribute`."""
        self.check(name)
        part = self.get(name, name)
        if not isinstance(part, str):
            return part
        module, _, attribute = part.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            # TypeError and ValueError: '.a' and '' are not names of modules.
            raise ValueError(f"the {self.kind} {name!r} cannot be imported: {error}.") from None
