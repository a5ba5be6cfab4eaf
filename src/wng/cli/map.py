"""`wng map`: a wall task from above, generation by generation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from wng.cli.console import console, note
from wng.runs.directory import RunDirectory


@dataclass(frozen=True)
class MapCommand:
    """Draw a map of a wall task: where each generation ended, and the mean policy's path.

    `wng map runs/wng-PointWall-v0/wnes/seed0` writes map.png and map.gif to that folder.
    """

    run_path: Annotated[Path, tyro.conf.Positional]
    """Folder of a run."""
    to: Path | None = None
    """Folder for map.png and map.gif. If it is not given, wng uses the run's folder."""

    def run(self) -> None:
        """Draw the picture and the animation."""
        run, to = RunDirectory.open(self.run_path), self.to or self.run_path
        with console.status("Drawing"):
            from wng.experiments.es.maps import animate_map, draw_map

            picture, film = draw_map(run, to / "map.png"), animate_map(run, to / "map.gif")
        note(f"{picture}\n{film}")
