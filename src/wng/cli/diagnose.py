"""`wng diagnose`: how ill-conditioned a task is."""

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from wng.cli.console import console, note
from wng.cli.look import RunPath, load_agent


@dataclass(frozen=True)
class Diagnose:
    """Measure how ill-conditioned a task is: `wng diagnose runs/Hopper-v5/wnpg/seed0`.

    Prints the leading Hessian eigenvalues of the objective at the policy of the run.
    """

    run_path: RunPath
    """Folder of a policy-gradient run, or the file of a saved agent."""
    rollouts: int = 8
    """Number of rollouts used to estimate the objective, each as long as in training."""
    number: int = 20
    """Number of eigenvalues to compute, in order of decreasing magnitude."""
    to: Path | None = None
    """Image file to write. If it is not given, wng writes spectrum.png to the run's folder."""

    def run(self) -> None:
        """Print a summary and a table, and draw the ratios."""
        folder = self.run_path if self.run_path.is_dir() else self.run_path.parent
        with console.status(f"{self.rollouts} rollouts, {self.number} eigenvalues"):
            agent = load_agent(self.run_path)
            from wng.experiments.conditioning import spectrum as module

            try:
                spectrum = module.diagnose(agent, self.rollouts, self.number)
            finally:
                agent.close()
        note(module.describe(spectrum))
        table = Table()
        for name in ("i", "λᵢ", "|λ₁|/|λᵢ|"):
            table.add_column(name, justify="right")
        shares = module.ratios(spectrum.eigenvalues)
        for i in (1, 2, 5, 10, 20, 50, 100, 200):
            if i <= len(shares):
                table.add_row(str(i), f"{spectrum.eigenvalues[i - 1]:.3g}", f"{shares[i - 1]:.3g}")
        console.print(table)
        note(f"{module.draw_spectrum([spectrum], self.to or folder / 'spectrum.png')}")
