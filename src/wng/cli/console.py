"""What all commands share: the console, and the command as typed."""

import shlex
import sys
from typing import NoReturn

from rich.console import Console

console = Console()
STOPPED = 130  # exit code after Ctrl-C or SIGTERM


def command_line() -> str:
    """The command as typed, for reports."""
    return shlex.join(["wng", *sys.argv[1:]])


def note(text: str) -> None:
    """Print `text` as it is: no markup, and no line breaks in a command to be copied."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def exit_stopped(what: str, *flags: str) -> NoReturn:
    """Print the command that resumes, with `flags` added, and exit."""
    again = [word for word in sys.argv[1:] if word not in flags]
    note(f"\n{what}; nothing is lost. Resume with\n  {shlex.join(['wng', *again, *flags])}")
    sys.exit(STOPPED)
