"""The evolution-strategies study on the wall tasks (`wng reproduce es`, Figure 4).

The paper's claim: WNES and BG-WNES overcome the local maximum behind the wall more reliably than
ES, clipped ES, NSR-ES and BGES, including BGES with more repulsion (β = 0.75).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from wng.experiments.report import SMOKE
from wng.experiments.study import LAST, Run, Scale, Trial
from wng.runs.settings import Settings

POINT, QUADRUPED = "wng/PointWall-v0", "wng/QuadrupedWall-v0"
BETAS = (0.5, 0.75)  # values for BGES in the paper
Variant = tuple[str, str, dict[str, Any]]  # method, name of the variant, overrides
VARIANTS: tuple[Variant, ...] = (
    ("es", "", {}),
    ("esclip", "", {}),
    ("nsres", "", {}),
    *(("bges", f"beta{beta:g}", {"beta": beta}) for beta in BETAS),
    ("wnes", "", {}),
    ("bgwnes", "", {}),
)
MORE: dict[str, tuple[Variant, ...]] = {"tuned": (("bges", "", {}),)}  # with the preset's own β
BASELINES = ("es", "esclip", "nsres", "bges")
OURS = ("wnes", "bgwnes")


class EvolutionTask(NamedTuple):
    """A wall task of the study."""

    env: str
    seeds: int
    steps: int
    settings: tuple[Settings, ...]
    overrides: dict[str, Any] = {}  # noqa: RUF012 (never changed)


class EvolutionScale(NamedTuple):
    """Tasks and budgets of a scale of the study."""

    tasks: tuple[EvolutionTask, ...]
    about: str


BOTH: tuple[Settings, ...] = ("released", "tuned")
SCALES: dict[Scale, EvolutionScale] = {
    "smoke": EvolutionScale(
        (
            EvolutionTask(POINT, 2, 3000, ("tuned",), {"population": 20}),
            EvolutionTask(QUADRUPED, 1, 6400, ("tuned",), {"population": 8, "num_basis": 4}),
        ),
        SMOKE,
    ),
    "short": EvolutionScale(
        (
            EvolutionTask(POINT, 10, 1_000_000, BOTH),
            EvolutionTask(QUADRUPED, 3, 1_000_000, ("tuned",), {"population": 100}),
        ),
        "The point task is run in full. The quadruped task is far shorter than it takes to make "
        "progress: 25 generations of 100 members. The paper uses 502 members and does not give "
        "the number of steps.",
    ),
    "paper": EvolutionScale(
        (EvolutionTask(POINT, 10, 1_000_000, BOTH), EvolutionTask(QUADRUPED, 5, 100_000_000, BOTH)),
        "The paper does not give the length of its runs; these have 10⁶ and 10⁸ steps.",
    ),
}


def trials(tasks: Sequence[EvolutionTask]) -> list[Trial]:
    """Return the trials of all methods on these tasks."""
    return [
        Trial(task.env, method, seed, task.steps, settings, variant, {**task.overrides, **more})
        for task in tasks
        for settings in task.settings
        for method, variant, more in (*VARIANTS, *MORE.get(settings, ()))
        for seed in range(task.seeds)
    ]


@lru_cache
def stuck_return(env: str) -> float:
    """Return what running straight at the goal, into the cup, earns: success must exceed it.

    Known for the point tasks only; for the quadruped, which has no action "straight ahead", it is
    −∞.
    """
    if "PointWall" not in env:
        return -np.inf
    from wng.envs.lookup import find

    made, _ = find(env)
    made.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        _, reward, terminated, truncated, _ = made.step(np.array([1.0, 0.0], np.float32))
        total, ended = total + float(reward), terminated or truncated
    made.close()
    return total


def overcomes_wall(run: Run) -> bool:
    """Return whether the mean policy overcomes the wall.

    It must end past the wall in most of the last generations, and earn more than a policy that is
    stuck in the cup: some policies pass the wall by running away.
    """
    past = run.rows["past_wall"]
    often = past[-max(1, int(LAST * len(past))) :].mean() > 0.5
    return bool(often and run.final > stuck_return(run.trial.env))


def steps_until_past(run: Run) -> float:
    """Return the steps after which 90% of the generations end past the wall; infinite if never."""
    past = run.rows["past_wall"]
    share = np.cumsum(past[::-1])[::-1] / np.arange(len(past), 0, -1)
    good = (share >= 0.9) & (past > 0)
    return float(run.rows["steps"][np.argmax(good)]) if good.any() else np.inf
