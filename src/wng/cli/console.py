"""What all commands share: the console, and the command as typed."""

import sys

from rich.console import Console

console = Console()


def command_line() -> str:
    """The command as typed, for reports."""
    return " ".join(["wng", *sys.argv[1:]])


def note(text: str) -> None:
    """Print `text` as it is: no markup, and no line broken where a command is to be copied."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
