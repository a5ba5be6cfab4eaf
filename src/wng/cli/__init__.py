"""The `wng` command."""

import importlib
import os
import sys
from importlib.metadata import version
from typing import Any

import tyro

from wng.behavior.registry import nearest
from wng.runs import setup

# Where each command is. Importing its module imports neither JAX nor other large packages.
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("wng.cli.train", "Train"),
    "eval": ("wng.cli.look", "Eval"),
    "video": ("wng.cli.look", "Video"),
    "plot": ("wng.cli.look", "Plot"),
    "map": ("wng.cli.map", "MapCommand"),
    "diagnose": ("wng.cli.diagnose", "Diagnose"),
    "methods": ("wng.cli.look", "Methods"),
    "reproduce toys": ("wng.cli.reproduce", "Toys"),
    "reproduce transport": ("wng.cli.reproduce", "Transport"),
    "reproduce pg": ("wng.cli.studies", "GradientStudy"),
    "reproduce es": ("wng.cli.studies", "EvolutionStudy"),
    "reproduce conditioning": ("wng.cli.studies", "ConditioningStudy"),
    "reproduce efficiency": ("wng.cli.studies", "EfficiencyStudy"),
    "reproduce all": ("wng.cli.reproduce", "All"),
}


def command_class(name: str) -> Any:
    """The dataclass behind a command."""
    module, attribute = COMMANDS[name]
    return getattr(importlib.import_module(module), attribute)


def summary(words: list[str]) -> str:
    """Help for `wng` and for a command with subcommands."""
    prefix = " ".join(words)
    lines = [
        "Wasserstein natural gradients for reinforcement learning and evolution strategies.",
        "",
    ]
    for name in COMMANDS:
        if name.startswith(prefix):
            first_line = str(command_class(name).__doc__).splitlines()[0]
            lines += [f"  wng {name}", f"      {first_line}"]
    lines += ["", "Add --help to any of them to see its flags. `wng --version` prints the version."]
    return "\n".join(lines)


def find_command(words: list[str]) -> tuple[str, list[str]] | None:
    """The command that `words` begin with, and its flags; None if they ask for help instead."""
    for depth in range(3):
        typed = " ".join(words[:depth])
        if typed in COMMANDS:
            return typed, words[depth:]
        options = sorted({n.split()[depth] for n in COMMANDS if n.split()[:depth] == words[:depth]})
        if depth == len(words) or words[depth] in ("-h", "--help"):
            return None
        if words[depth] not in options:
            here = f"wng {typed}".strip()
            raise ValueError(
                f"'{here}' has no command '{words[depth]}': did you mean "
                f"'{here} {nearest(words[depth], options)}'?"
            )
    return None


def parse(name: str, flags: list[str]) -> Any:
    """The command with its flags. Prints tyro's message and exits with 2 if they are wrong."""
    cls = command_class(name)
    prog = f"wng {name}"
    if hasattr(cls, "for_method"):  # `train METHOD`: each family has flags of its own
        method = flags[0] if flags and not flags[0].startswith("-") else ""
        flags = flags[bool(method) :]
        cls = cls.for_method(method, helps=bool({"-h", "--help"} & {*flags}))
        prog = f"{prog} {method}".rstrip()
    return tyro.cli(cls, prog=prog, args=flags, config=(tyro.conf.OmitArgPrefixes,))


def main() -> None:
    """Entry point: prints one sentence and exits with 2 after a user's mistake."""
    if os.getcwd() not in sys.path:  # for --env module:id and --embedding module:function
        sys.path.append(os.getcwd())
    setup.own_process = True
    try:
        words = sys.argv[1:]
        if words == ["--version"]:
            print(f"wng {version('wng')}")
            return
        found = find_command(words)
        if found is None:
            print(summary([w for w in words if not w.startswith("-")]))
            return
        parse(*found).run()
    except (ValueError, RuntimeError, OSError) as error:
        # One line, also where it quotes what was typed, or what XLA says about memory.
        print(f"wng: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nwng: stopped.", file=sys.stderr)
        sys.exit(130)
