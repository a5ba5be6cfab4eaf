"""The `wng` command."""

import contextlib
import dataclasses
import importlib
import io
import os
import re
import sys
from typing import Any

import jax
import tyro

from wng.behavior.registry import nearest

# Where each command is: imported only when it is asked for, so that `wng --help` is quick.
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
    "reproduce pg": ("wng.cli.reproduce", "GradientStudy"),
    "reproduce es": ("wng.cli.reproduce", "EvolutionStudy"),
    "reproduce conditioning": ("wng.cli.reproduce", "ConditioningStudy"),
    "reproduce efficiency": ("wng.cli.reproduce", "EfficiencyStudy"),
    "reproduce all": ("wng.cli.reproduce", "All"),
}

# What tyro says, and what we say.
PLAIN_WORDS = {
    r"^Error parsing (config|settings): ": "",
    r"^Error parsing (\S+): ": r"\1: ",
    r": could not convert string to float: ": " takes a number, got ",
    r": invalid literal for int\(\).*?: ": " takes a whole number, got ",
    r"^Unrecognized options:$": "there is no place for an empty word",
    r"^Unrecognized options: ": "there is no place for ",
    r"^Missing value for argument '(.+?)'.*": r"\1 needs a value",
    r"^Missing from [^:]+: (\S+) (.+?)\.? \(required\).*": r"\1 is missing (\2)",
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
    lines += ["", "Add --help to any of them for all its flags."]
    return "\n".join(lines)


def find_command(words: list[str]) -> tuple[str, list[str]] | None:
    """The command that `words` begin with, and its flags; None if help is asked for instead."""
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
    """The command with its flags; ValueError with one sentence where tyro would draw a box."""
    cls = command_class(name)
    default = cls.before(flags) if hasattr(cls, "before") else None
    cls = cls if default is None else type(default)  # `train` has flags for each family
    output = io.StringIO()
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "90"  # on a wider terminal tyro sets groups side by side
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            return tyro.cli(
                cls,
                prog=f"wng {name}",
                args=flags,
                default=default,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as end:
        if not end.code:  # --help
            sys.stdout.write(with_headings(output.getvalue(), getattr(cls, "headings", {})))
            raise
        raise ValueError(complaint(name, cls, flags, output.getvalue())) from None
    finally:
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns


def with_headings(text: str, headings: dict[str, str]) -> str:
    """Help with a heading above the first flag of each group, and without empty defaults."""
    for first, heading in headings.items():
        above = rf"\n  {heading}\n\1\2"
        text = re.sub(rf"^([ │|]{{1,4}})(--{first}\b)", above, text, count=1, flags=re.M)
    return re.sub(r"\s*\(default: ''\)", "", text)


def complaint(name: str, cls: Any, flags: list[str], output: str) -> str:
    """One sentence about flags that could not be understood."""
    known = ["--help", *sorted(f"--{field}" for field in field_names(cls))]
    for flag in flags:
        word = flag.split("=")[0].replace("_", "-")
        if word.startswith("--") and word not in known:
            return (
                f"'wng {name}' has no flag '{word}': did you mean '{nearest(word, known)}'? "
                f"`wng {name} --help` lists them."
            )
    # tyro draws a box, of other characters where there is no terminal: a title, a rule, what is
    # the matter, a rule, and help that is not wanted here.
    lines = [line.strip(" \t│|") for line in output.splitlines()]
    rules = [i for i, line in enumerate(lines) if line and not line.strip("─-╭╮╰╯├┤+ ")]
    title, *rest = [*rules, len(lines)] if rules else [-1, len(lines)]
    said = " ".join(" ".join(lines[title + 1 : rest[0]]).split())
    choice = re.match(r"invalid choice '(.*?)' for argument '(.*?)'.*\((.*)\)", said)
    if choice is not None:
        close = nearest(choice[1], re.findall(r"'(.+?)'", choice[3]))
        return f"{choice[2]} '{choice[1]}' is unknown: did you mean '{close}'?"
    for pattern, plain in PLAIN_WORDS.items():
        said = re.sub(pattern, plain, said)
    return f"{said.rstrip('.') or 'these flags cannot be understood'}; see `wng {name} --help`."


def field_names(cls: Any) -> list[str]:
    """All flags of a command, nested dataclasses included; not what is given by its place."""
    names = []
    for field in dataclasses.fields(cls):
        kind = field.type
        if tyro.conf.Positional in getattr(kind, "__metadata__", ()):
            continue
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            names += field_names(kind)
        else:
            flag = field.name.replace("_", "-")
            names += [flag, f"no-{flag}"] if kind is bool else [flag]
    return names


def main() -> None:
    """Entry point: exit code 2 and one sentence for a user's mistake."""
    if os.getcwd() not in sys.path:  # for --env module:id and --embedding module:function
        sys.path.append(os.getcwd())
    try:
        words = sys.argv[1:]
        found = find_command(words)
        if found is None:
            print(summary([w for w in words if not w.startswith("-")]))
            return
        name, flags = found
        command = parse(name, flags)
        # The policy acts on a few states at a time: handing each to a thread would double its time.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        command.run()
    except (ValueError, RuntimeError, OSError) as error:
        # One line, also where it quotes what was typed, or what XLA has to say about memory.
        print(f"wng: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nwng: stopped.", file=sys.stderr)
        sys.exit(130)
