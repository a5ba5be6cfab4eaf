"""`wng reproduce es`: all evolution strategies on the wall tasks (Figure `fig:es_exps`).

The paper's claim: WNES and BG-WNES overcome the local maximum behind the wall more reliably than
ES, clipped ES, NSR-ES and BGES, also than BGES with more repulsion (β = 0.75).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from wng.envs.resolve import find
from wng.experiments.study import LAST, Job, Run, Scale
from wng.runs.settings import Settings

POINT, QUADRUPED = "wng/PointWall-v0", "wng/QuadrupedWall-v0"
BETAS = (0.5, 0.75)  # of BGES, in the paper
Variant = tuple[str, str, dict[str, Any]]  # method, name of the variant, overrides
VARIANTS: tuple[Variant, ...] = (
    ("es", "", {}),
    ("esclip", "", {}),
    ("nsres", "", {}),
    *(("bges", f"beta{beta:g}", {"beta": beta}) for beta in BETAS),
    ("wnes", "", {}),
    ("bgwnes", "", {}),
)
BASELINES = ("es", "esclip", "nsres", "bges")
OURS = ("wnes", "bgwnes")


class EvolutionTask(NamedTuple):
    """A wall task in the study."""

    env: str
    seeds: int
    steps: int
    settings: tuple[Settings, ...]
    overrides: dict[str, Any] = {}  # noqa: RUF012 (never changed)


class EvolutionScale(NamedTuple):
    """How much is run."""

    tasks: tuple[EvolutionTask, ...]
    about: str


BOTH: tuple[Settings, ...] = ("released", "tuned")
SCALES: dict[Scale, EvolutionScale] = {
    "smoke": EvolutionScale(
        (
            EvolutionTask(POINT, 2, 3000, ("tuned",), {"population": 20}),
            EvolutionTask(QUADRUPED, 1, 6400, ("tuned",), {"population": 8, "num_basis": 4}),
        ),
        "Far too short to learn anything: every part works, and no verdict means a thing.",
    ),
    "short": EvolutionScale(
        (
            EvolutionTask(POINT, 10, 1_000_000, BOTH),
            EvolutionTask(QUADRUPED, 3, 1_000_000, ("tuned",), {"population": 100}),
        ),
        "The point task in full. The quadruped much shorter than it takes to get anywhere: 25 "
        "generations of 100 members, where the paper has 502 members and plots no number of steps.",
    ),
    "paper": EvolutionScale(
        (EvolutionTask(POINT, 10, 1_000_000, BOTH), EvolutionTask(QUADRUPED, 5, 100_000_000, BOTH)),
        "The paper does not say for how long its runs went on; here 10⁶ and 10⁸ steps.",
    ),
}


def jobs(tasks: Sequence[EvolutionTask]) -> list[Job]:
    """The runs of all methods on these tasks."""
    return [
        Job(task.env, method, seed, task.steps, settings, variant, {**task.overrides, **more})
        for task in tasks
        for settings in task.settings
        for method, variant, more in _methods(settings)
        for seed in range(task.seeds)
    ]


def _methods(settings: Settings) -> tuple[Variant, ...]:
    """Where the preset has another β than the paper's, BGES with that one too."""
    return (*VARIANTS, ("bges", "", {})) if settings == "tuned" else VARIANTS


@lru_cache
def stuck_return(env: str) -> float:
    """The return of going straight at the goal, into the cup: what success has to exceed.

    Of the point tasks; the quadruped cannot be told to go straight, so any return will do.
    """
    if "PointWall" not in env:
        return -np.inf
    made, _ = find(env)
    made.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        _, reward, terminated, truncated, _ = made.step(np.array([1.0, 0.0], np.float32))
        total, ended = total + float(reward), terminated or truncated
    made.close()
    return total


def overcomes_wall(run: Run) -> bool:
    """Whether the mean policy ended past the wall in most of the last generations, and does better
    than one that is stuck in the cup: some get past it by running away.
    """
    past = run.rows["past_wall"]
    often = past[-max(1, int(LAST * len(past))) :].mean() > 0.5
    return bool(often and run.final > stuck_return(run.job.env))


def steps_until_past(run: Run) -> float:
    """Steps from which on nine generations in ten end past the wall; infinite if never."""
    past = run.rows["past_wall"]
    share = np.cumsum(past[::-1])[::-1] / np.arange(len(past), 0, -1)
    good = (share >= 0.9) & (past > 0)
    return float(run.rows["steps"][np.argmax(good)]) if good.any() else np.inf
