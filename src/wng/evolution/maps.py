"""Maps: where the members of each generation ended, written beside a run for plots."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from wng.evolution.episodes import Episodes
from wng.runs import checkpoint
from wng.runs.trees import check_kinds

POINTS = np.zeros((0, 2), np.float32)  # dtype and rank of both arrays


class Generation(NamedTuple):
    """One generation seen from above."""

    number: int
    finals: np.ndarray  # [N, 2], where the members ended
    path: np.ndarray  # [steps, 2], of the policy at the center


def keep_map(run: Path, generation: int, episodes: Episodes) -> None:
    """Write maps/<generation>.safetensors."""
    arrays = {
        "finals": np.ascontiguousarray(episodes.final_observations[:-1, :2], np.float32),
        "path": np.ascontiguousarray(episodes.path[:, :2], np.float32),
    }
    path = run / "maps" / f"{generation:06d}.safetensors"
    checkpoint.write_file(path, arrays, {}, durable=False)  # a picture: no run depends on it


def read_maps(run: Path, until: int) -> list[Generation]:
    """Read all generations up to `until`, in order; an interrupted session may leave later ones."""
    found = []
    for path in sorted((run / "maps").glob("[0-9]*.safetensors")):
        number = int(path.stem) if path.stem.isdecimal() else 0
        if 1 <= number <= until:
            try:
                arrays, _ = checkpoint.read(path)
                check_kinds(arrays, {"finals": POINTS, "path": POINTS})
                finals, center = (arrays[name].reshape(-1, 2) for name in ("finals", "path"))
                found.append(Generation(number, finals, center))
            except (KeyError, ValueError):
                raise ValueError(f"{path} is damaged: delete it to draw the others.") from None
    if not found:
        raise ValueError(f"{run} has no maps: only runs of evolution strategies on wall tasks do.")
    return found
