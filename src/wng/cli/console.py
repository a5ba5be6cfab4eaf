"""What all commands share: the console, and the command as typed."""

import sys

from rich.console import Console

console = Console()


def command_line() -> str:
    """The command as typed, for reports."""
    return " ".join(["wng", *sys.argv[1:]])
