"""`wng reproduce`: the paper's studies."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from wng.cli.console import command_line, console, note
from wng.experiments import toys_figures, toys_report, toys_study, transport, walls
from wng.experiments.toys import ToySettings
from wng.experiments.transport import TransportSettings
from wng.experiments.walls import WallSettings


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


@dataclass(frozen=True)
class EvolutionStudy:
    """All evolution strategies on a wall task (the paper's ES figure). About five minutes.

    Writes figures/, data/ and report.md. Stopped, it goes on where it was when it is called again.
    """

    settings: WallSettings = field(default_factory=WallSettings)
    out: Path = Path("results/evolution/pointwall")
    """Folder to write to."""
    scale: Literal["smoke", "short", "paper"] = "paper"
    """smoke: 2 seeds of 25,000 steps, to see that everything works. short and paper: as set."""

    def run(self) -> None:
        """Run the study."""
        settings = self.settings
        if self.scale == "smoke":
            settings = replace(settings, seeds=2, steps=25_000)
        study = walls.run_study(settings, self.out)
        walls.draw_curves(study, settings.env, self.out / "figures" / "curves.png")
        walls.draw_paths(study, settings.env, self.out / "figures" / "paths.png")
        walls.write_report(study, settings, command_line(), self.out)
        note(walls.table(study))
        finished(self.out)


def finished(out: Path) -> None:
    """Say where the results are."""
    console.print(f"\nReport:  {out / 'report.md'}\nFigures: {out / 'figures'}", highlight=False)
