"""`wng reproduce toys|transport|all`: the studies that need no runs, and all studies together."""

from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from wng.cli.console import command_line, console
from wng.cli.studies import (
    ConditioningStudy,
    EfficiencyStudy,
    EvolutionStudy,
    GradientStudy,
    Study,
    StudyFlags,
    finished,
    results,
)
from wng.experiments.es import study as es
from wng.experiments.pg import study as pg
from wng.experiments.report import Claim, claims_table, provenance, write_report
from wng.experiments.study import Clock, Scale
from wng.experiments.toys.settings import ToySettings
from wng.experiments.transport.settings import TransportSettings
from wng.runs.setup import set_up_jax


@dataclass(frozen=True)
class Toys:
    """The Gaussian study: Fisher against Wasserstein (the paper's Figure 1). About 100 seconds.

    Runs every method on a smoothed sinc in 100 dimensions, and compares each claim of the paper
    with our measurements. Writes figures/, data/, report.md and report.html.
    """

    settings: ToySettings = field(default_factory=ToySettings)
    out: Path | None = None
    """Folder of the report. If it is not given, wng uses results/toys, or runs/smoke/toys at scale
    smoke."""
    scale: Scale = "paper"
    """Size of the study: smoke (100 iterations in 3 dimensions), or as the settings say (short,
    paper)."""

    def run(self) -> list[Claim]:
        """Run the study."""
        out = self.out or results(self.scale) / "toys"
        out.mkdir(parents=True, exist_ok=True)  # a bad folder fails now, not in 2 minutes
        from wng.experiments.toys import figures, report, study

        set_up_jax()
        settings = self.settings
        if self.scale == "smoke":
            few = {"iterations": 100, "dim": 3, "num_samples": 20}
            settings = replace(
                settings, **{k: min(n, getattr(settings, k)) for k, n in few.items()}
            )
        found = study.run_study(settings)
        study.write_data(found, out / "data")
        figures.paper_figure(found, out / "figures" / "toys.png")
        figures.extension_figure(found, out / "figures" / "beyond.png")
        text = report.report(found, command_line())
        write_report(text, out, "wng: the Gaussian study")
        return finished(out, report.claims(found))


@dataclass(frozen=True)
class Transport:
    """The behavioral transport function of a Gaussian and of a banana. Takes seconds."""

    settings: TransportSettings = field(default_factory=TransportSettings)
    out: Path = Path("results/transport")
    """Folder of the report."""

    def run(self) -> list[Claim]:
        """Draw the picture."""
        self.out.mkdir(parents=True, exist_ok=True)
        with console.status("Transport"):
            from wng.experiments.transport import study

            set_up_jax()
            study.reproduce(self.settings, self.out, command_line())
        return finished(self.out, [])


@dataclass(frozen=True)
class All(StudyFlags):
    """Reproduce every figure and table of the paper, and write a page with every claim."""

    clock: Clock = "wall"
    """Time that the efficiency study measures: wall-clock time (wall) or CPU time (cpu)."""

    def run(self) -> None:
        """Run all studies, then write the page."""
        out = self.out or results(self.scale)
        out.mkdir(parents=True, exist_ok=True)
        studies: dict[str, Toys | Transport | Study] = {
            "toys": Toys(scale=self.scale, out=out / "toys"),
            "transport": Transport(out=out / "transport"),
        }
        efficiency = partial(EfficiencyStudy, clock=self.clock)
        kinds: list[Any] = [GradientStudy, EvolutionStudy, ConditioningStudy, efficiency]
        flags = {f.name: getattr(self, f.name) for f in fields(StudyFlags)}
        for name, kind in zip(("pg", "es", "conditioning", "efficiency"), kinds, strict=True):
            studies[name] = kind(**flags | {"out": out / name})
        abouts = {"pg": pg.SCALES[self.scale].about, "es": es.SCALES[self.scale].about}
        sections = []
        for name, study in studies.items():
            console.rule(name)
            claims = study.run()
            table = claims_table(claims) if claims else "A picture, no claim."
            heading = f"## {(study.__doc__ or name).splitlines()[0]}"
            about = abouts.get(name, "")
            sections.append(f"{heading}\n\n[Report]({name}/report.html) {about}\n\n{table}")
        text = ["# The paper's claims, one by one", *sections, provenance(command_line())]
        write_report("\n\n".join(text), out, "wng: the paper's claims")
        finished(out, [])
