"""The policy-gradient study (`wng reproduce pg`, Figure 2, Table 1).

The settings `released` test the paper's claims: each method uses, on each task, the best learning
rate of a sweep with its own random seeds. The settings `tuned` are the defaults that users get, and
include methods beyond the paper's.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wng.agents.registry import METHODS
from wng.experiments.report import SMOKE
from wng.experiments.study import TUNING_SEED, Run, Scale, Task, Trial, best_rate, only, run_trials

PAPER_METHODS = ("pg", "ppo", "bgpg", "wnpg", "bgwnpg")
BEYOND = ("ppokl", "trpo", "wtrpo")
Candidates = dict[tuple[str, str], list[Trial]]  # trials of the sweep, by task and method
RATES = (1e-5, 5e-5, 1e-4, 3e-4)

WALKER, CHEETAH, ANT = "Walker2DBulletEnv-v0", "HalfCheetahBulletEnv-v0", "AntBulletEnv-v0"
REACHER, PENDULUM, HOPPER = "ReacherBulletEnv-v0", "InvertedDoublePendulum-v5", "Hopper-v5"
TABLE: dict[str, dict[str, float]] = {  # `table:pg_results`
    env: dict(zip(("bgwnpg", "wnpg", "bgpg", "ppo", "pg"), row, strict=True))
    for env, row in {
        WALKER: (739.51, 683.38, 652.53, 516.47, 529.60),
        CHEETAH: (1817.68, 1655.04, 1668.75, 1412.57, 1334.27),
        ANT: (2072.56, 1844.14, 1735.98, 1627.01, 1566.63),
        REACHER: (4.37, 2.13, 0.46, -0.37, -6.46),
        PENDULUM: (7254.98, 6740.96, 6526.48, 4401.24, 3964.51),
        HOPPER: (2439.56, 2235.23, 1934.43, 1890.12, 1816.58),
    }.items()
}


class GradientScale(NamedTuple):
    """Tasks and budgets of a scale of the study."""

    released: tuple[Task, ...]
    tuned: tuple[Task, ...]
    rates: tuple[float, ...] = RATES
    methods: tuple[str, ...] = (*PAPER_METHODS, *BEYOND)  # with the settings `tuned`
    overrides: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    about: str = ""


SIX = tuple(Task(env, 5, 1_000_000) for env in TABLE)
SCALES: dict[Scale, GradientScale] = {
    "smoke": GradientScale(
        released=(Task(PENDULUM, 2, 2048),),
        tuned=(Task(PENDULUM, 1, 2048),),
        rates=RATES[3:],
        methods=("wnpg", "trpo", "wtrpo"),  # few, because compilation dominates
        overrides={"num_envs": 2, "rollout": 1024, "epochs": 1, "hidden": (16, 16)},
        about=SMOKE,
    ),
    "short": GradientScale(
        released=(Task(PENDULUM, 5, 150_000), Task(HOPPER, 5, 150_000), Task(REACHER, 3, 100_000)),
        tuned=(Task(PENDULUM, 5, 150_000), Task(HOPPER, 5, 150_000)),
        overrides={"num_envs": 8},
        about=(
            "Smaller than the paper's study: three of its six tasks, 100,000 or 150,000 steps "
            "instead of a million, a sweep with one seed, and 8 environments instead of 1 (with "
            "the same 2048 steps per iteration)."
        ),
    ),
    "paper": GradientScale(
        released=SIX,
        tuned=SIX,
        about="The paper's tasks, budgets and number of seeds.",
    ),
}


def sweep(scale: GradientScale, tasks: Sequence[Task]) -> Candidates:
    """Return a trial per learning rate, by task and method.

    Every method has the same budget, that of the evaluation: the fastest start need not be the best
    end.
    """
    # One optimizer for policy and value, as in the released code.
    both = {rate: {"learning_rate": rate, "value_learning_rate": rate} for rate in scale.rates}
    return {
        (task.env, method): [
            Trial(
                task.env,
                method,
                TUNING_SEED,
                task.steps,
                "released",
                f"lr{rate:g}",
                chosen | scale.overrides,
            )
            for rate, chosen in both.items()
        ]
        for task in tasks
        for method in PAPER_METHODS
    }


def released(tasks: Sequence[Task], candidates: Candidates, root: Path) -> list[Trial]:
    """Return the evaluation of each method at its best rate; without a sweep there is none."""
    best_of = {key: best_rate(options, root) for key, options in candidates.items()}
    return [
        dataclasses.replace(best, seed=seed, steps=task.steps, eval_every=task.steps)
        for task in tasks
        for method in PAPER_METHODS
        if (best := best_of.get((task.env, method))) is not None
        for seed in range(task.seeds)
    ]


def tuned(scale: GradientScale, tasks: Sequence[Task]) -> list[Trial]:
    """Return the runs with the settings that users get."""
    return [
        Trial(
            task.env,
            method,
            seed,
            task.steps,
            "tuned",
            overrides=scale.overrides,
            eval_every=task.steps,
        )
        for task in tasks
        for method in scale.methods
        for seed in range(task.seeds)
    ]


def normalized(run: Run) -> float:
    """Return the final return, scaled to 0 at the paper's PG and 1 at its BG-WNPG."""
    row = TABLE.get(run.trial.env)
    return (run.final - row["pg"]) / (row["bgwnpg"] - row["pg"]) if row else np.nan


class Plan(NamedTuple):
    """Trials of the study."""

    candidates: Candidates
    evaluation: list[Trial]

    @property
    def trials(self) -> list[Trial]:
        """All trials, of the sweep and of the evaluation."""
        return [*itertools.chain(*self.candidates.values()), *self.evaluation]

    def never_planned(self) -> list[str]:
        """Return a line for each task of the paper's study that lacks methods."""
        planned = {(t.env, t.method) for t in self.evaluation if t.settings == "released"}
        lines = []
        for env in dict.fromkeys((*TABLE, *(env for env, _ in self.candidates))):
            lacking = [METHODS[m].title for m in PAPER_METHODS if (env, m) not in planned]
            if lacking:
                every = len(lacking) == len(PAPER_METHODS)
                missing = "no method was run" if every else f"{', '.join(lacking)} not run"
                lines.append(f"- {env}, settings released: {missing}")
        return lines


def run(
    scale: GradientScale,
    root: Path,
    tasks: Sequence[str] = (),
    *,
    methods: Sequence[str] = (),
    execute: bool = True,
    **how: Any,
) -> Plan | None:
    """Run the unfinished trials of the sweep, then of the evaluation.

    Args:
      scale: Tasks and budgets.
      root: Folder of the runs.
      tasks: Environments to run; all of the scale's if empty.
      methods: Methods to run with the settings `released`; if given, nothing `tuned` is run.
      execute: Whether to run trials; if False, the plan is made from finished runs.
      **how: Options of `run_trials`.

    Returns:
      The plan, or None if it was interrupted.
    """
    chosen = only(scale.released, tasks)
    swept = sweep(scale, chosen)
    candidates = {key: swept[key] for key in swept if not methods or key[1] in methods}
    options = list(itertools.chain(*candidates.values()))
    if execute and not run_trials(options, root, "pg: learning rates", **how):
        return None
    evaluation = released(chosen, candidates, root)
    if not methods:
        evaluation += tuned(scale, only(scale.tuned, tasks))
    if execute and not run_trials(evaluation, root, "pg", **how):
        return None
    return Plan(candidates, evaluation)
