"""The `wng` command."""

import difflib
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from wng.experiments import toys_figures, toys_report, toys_study, transport
from wng.experiments.toys import ToySettings
from wng.experiments.transport import TransportSettings

console = Console()


@dataclass(frozen=True)
class Toys:
    """The Gaussian study: Fisher against Wasserstein (the paper's Figure 1). About 100 seconds.

    Writes figures/, data/ and report.md: every method on a smoothed sinc in 100 dimensions, each
    claim of the paper with what is measured here beside it.
    """

    settings: ToySettings = field(default_factory=ToySettings)
    out: Path = Path("results/toys")
    """Folder to write to."""
    scale: Literal["smoke", "short", "paper"] = "paper"
    """smoke: 100 iterations, to see that everything works. short and paper: as set."""

    def run(self) -> None:
        """Run the study."""
        self.out.mkdir(parents=True, exist_ok=True)  # a bad folder ends it here, not in 2 minutes
        settings = self.settings
        if self.scale == "smoke":
            settings = replace(settings, iterations=min(100, settings.iterations))
        study = toys_study.run_study(settings)
        toys_study.write_data(study, self.out / "data")
        toys_figures.paper_figure(study, self.out / "figures" / "toys.png")
        toys_figures.extension_figure(study, self.out / "figures" / "beyond.png")
        toys_report.write_report(study, command_line(), self.out / "report.md")
        for claim in toys_report.claims(study):
            console.print(f"  [bold]{claim.verdict:>14}[/]  {claim.claim}", highlight=False)
        finished(self.out)


@dataclass(frozen=True)
class Transport:
    """The picture of the behavioural transport function, for a Gaussian and a banana. Seconds."""

    settings: TransportSettings = field(default_factory=TransportSettings)
    out: Path = Path("results/transport")
    """Folder to write to."""

    def run(self) -> None:
        """Draw the picture."""
        self.out.mkdir(parents=True, exist_ok=True)
        with console.status("Transport"):
            transport.reproduce(self.settings, self.out, command_line())
        finished(self.out)


def command_line() -> str:
    """The command as typed, for reports."""
    return " ".join(["wng", *sys.argv[1:]])


def finished(out: Path) -> None:
    """Say where the results are."""
    console.print(f"\nReport:  {out / 'report.md'}\nFigures: {out / 'figures'}", highlight=False)


Command = type[Toys] | type[Transport]
COMMANDS: dict[str, Command] = {"reproduce toys": Toys, "reproduce transport": Transport}


def summary(words: list[str]) -> str:
    """Help for `wng` and for a command with subcommands."""
    prefix = " ".join(words)
    lines = ["Wasserstein natural gradients for reinforcement learning.", ""]
    for name, command in COMMANDS.items():
        if name.startswith(prefix):
            first_line = str(command.__doc__).splitlines()[0]
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
            nearest = difflib.get_close_matches(words[depth], options, n=1, cutoff=0)[0]
            here = f"wng {typed}".strip()
            raise ValueError(
                f"'{here}' has no command '{words[depth]}': did you mean '{here} {nearest}'?"
            )
    return None


def main() -> None:
    """Entry point: exit code 2 and one sentence for a user's mistake."""
    try:
        words = sys.argv[1:]
        found = find_command(words)
        if found is None:
            print(summary([w for w in words if not w.startswith("-")]))
            return
        name, flags = found
        command = tyro.cli(
            COMMANDS[name], prog=f"wng {name}", args=flags, config=(tyro.conf.OmitArgPrefixes,)
        )
        command.run()
    except (ValueError, OSError) as error:
        print(f"wng: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nwng: stopped.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
