"""The nearest valid name, for error messages."""

import difflib
from collections.abc import Iterable


def nearest(name: str, valid: Iterable[str]) -> str:
    """The entry of `valid` that looks most like `name`, whatever the case."""
    options = {option.lower(): option for option in valid}
    return options[difflib.get_close_matches(name.lower(), options, n=1, cutoff=0)[0]]
