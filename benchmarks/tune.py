"""How the `tuned` settings are found: one protocol, with the same budget for every method.

    python benchmarks/tune.py                              # everything that is missing
    python benchmarks/tune.py --methods ppo trpo wtrpo     # these first
    python benchmarks/tune.py --report                     # the tables, without training

Candidates come in groups of six: two groups for the methods that `benchmarks/evaluate.py` compares,
one for the others. (The second was added for all when WTRPO's first turned out to be damped too
much.) Each candidate is trained for 300,000 steps on each of four tasks with seed 100. The best two
of a group by mean rank run again with seeds 101 and 102, and among these finalists the mean rank
over all tasks and seeds decides, if the candidate also learns CartPole-v1. Ranks are of the
deterministic return, the mean of 20 episodes after training. No other task, and no seed below 100,
is used here. Rows that are in the file are not repeated, so it can be stopped at any time. A run
takes one to two minutes on one core; all nine methods about nine hours on two.
"""

import argparse
import itertools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from pool import append, read, run_missing, train
from scipy.stats import rankdata

import wng
from wng.policy_gradient.methods import METHODS

TASKS = ("Hopper-v5", "InvertedDoublePendulum-v5", "Walker2d-v5", "Reacher-v5")
FIRST, MORE = 100, (101, 102)  # seeds
STEPS = 300_000
GROUP = 6  # candidates
HEADER = [
    *("method", "candidate", "settings", "env", "seed"),
    *("deterministic", "training", "std", "kl", "seconds"),
]
Settings = dict[str, Any]

# Natural gradients through an optimizer: few, large minibatches, plain steps steered by KL.
SGD: Settings = {"optimizer": "sgd", "learning_rate": 0.01, "minibatch": 1024, "epochs": 5}
NATURAL: Settings = SGD | {"steer": True, "kl_target": 0.02}
FISHER: Settings = {"damping": 0.1, "relative_damping": False}
STEERED: Settings = {"steer": True, "kl_target": 0.02}
KERNEL: Settings = NATURAL | {"basis": "kernel", "num_basis": 100, "refresh_every": 2}
POLICY: Settings = KERNEL | {"basis": "policy", "damping": 0.1}
EXACT: Settings = NATURAL | {"geometry": "wasserstein-auto", "damping": 0.1}
SHORT: Settings = EXACT | {"rollout": 1024, "minibatch": 512, "kl_target": 0.01}
APART: Settings = {"damping": 0.1, "basis": "policy", "kl_target": 0.02, "std_share": 0.015}
LIGHT: Settings = {"damping": 0.01, "basis": "policy", "kl_target": 0.02}
CANDIDATES: dict[str, list[Settings]] = {
    "ppo": [
        {"learning_rate": 3e-4},
        {"learning_rate": 1e-3, "minibatch": 256},
        {"learning_rate": 3e-4, "rollout": 1024},
        {"learning_rate": 3e-4} | STEERED,
        {"learning_rate": 3e-4} | STEERED | {"kl_target": 0.01},
        {"learning_rate": 1e-4},
        {"learning_rate": 3e-4, "minibatch": 128},
        {"learning_rate": 3e-4, "minibatch": 256},
        {"learning_rate": 3e-4, "epochs": 5},
        {"learning_rate": 3e-4, "clip_range": 0.1},
        {"learning_rate": 3e-4, "rollout": 1024, "minibatch": 128},
        {"learning_rate": 1e-4, "rollout": 1024},
    ],
    "trpo": [
        FISHER | {"kl_target": 0.01},
        FISHER | {"kl_target": 0.02},
        FISHER | {"kl_target": 0.01, "momentum": 0.9},
        FISHER | {"kl_target": 0.02, "momentum": 0.9},
        {"damping": 0.1, "kl_target": 0.02},
        {"damping": 0.1, "kl_target": 0.02, "momentum": 0.9},
        {"damping": 0.01, "kl_target": 0.02},
        {"damping": 0.01, "kl_target": 0.01},
        FISHER | {"kl_target": 0.01, "rollout": 1024},
        FISHER | {"kl_target": 0.01, "rollout": 1024, "momentum": 0.9},
        {"damping": 0.01, "kl_target": 0.01, "rollout": 1024},
        FISHER | {"kl_target": 0.005, "rollout": 1024},
    ],
    "npg": [
        NATURAL | FISHER,
        NATURAL | FISHER | {"kl_target": 0.01},
        NATURAL | FISHER | {"damping": 0.01},
        NATURAL | {"damping": 0.1},
        NATURAL | FISHER | {"minibatch": 512},
        {"learning_rate": 1e-4} | FISHER,
        NATURAL | {"damping": 0.01},
        NATURAL | {"damping": 0.01, "kl_target": 0.01},
        NATURAL | FISHER | {"rollout": 1024, "minibatch": 512},
        NATURAL | FISHER | {"rollout": 1024, "minibatch": 512, "kl_target": 0.01},
        NATURAL | {"damping": 0.01, "rollout": 1024, "minibatch": 512, "kl_target": 0.01},
        NATURAL | FISHER | {"rollout": 1024, "minibatch": 512, "kl_target": 0.005},
    ],
    "wnpg": [
        KERNEL,
        KERNEL | {"damping": 0.1},
        POLICY,
        POLICY | {"kl_target": 0.01},
        POLICY | {"damping": 0.03},
        POLICY | {"rollout": 1024, "minibatch": 512, "kl_target": 0.01},
        EXACT,
        EXACT | {"kl_target": 0.01},
        EXACT | {"damping": 0.01},
        EXACT | {"damping": 0.01, "kl_target": 0.01},
        SHORT,
        SHORT | {"damping": 0.01},
    ],
    "wtrpo": [
        APART,
        APART | {"std_share": 0.05},
        APART | {"std_share": 0.0},
        APART | {"kl_target": 0.01},
        APART | {"momentum": 0.9},
        APART | {"momentum": 0.9, "damping": 0.3},
        LIGHT,
        LIGHT | {"kl_target": 0.01},
        LIGHT | {"kl_target": 0.01, "rollout": 1024},
        LIGHT | {"kl_target": 0.01, "rollout": 1024, "momentum": 0.9},
        LIGHT | {"kl_target": 0.01, "rollout": 1024, "damping": 0.003},
        LIGHT | {"damping": 0.1, "relative_damping": False},
    ],
    "pg": [
        {"learning_rate": 1e-4},
        {"learning_rate": 3e-4},
        {"learning_rate": 3e-5},
        {"learning_rate": 1e-4} | STEERED,
        {"learning_rate": 3e-4} | STEERED,
        {"learning_rate": 3e-4} | STEERED | {"kl_target": 0.01},
    ],
    "ppokl": [
        {"learning_rate": 3e-4},
        {"learning_rate": 1e-3},
        {"learning_rate": 3e-4, "kl_target": 0.02},
        {"learning_rate": 1e-3, "minibatch": 256},
        {"learning_rate": 3e-4, "kl_target": 0.005},
        {"learning_rate": 1e-4, "kl_target": 0.02},
    ],
    "bgpg": [
        {"learning_rate": 1e-4},
        {"learning_rate": 3e-4},
        {"learning_rate": 3e-4, "penalty": 10.0},
        {"learning_rate": 3e-4, "penalty": 0.1},
        {"learning_rate": 1e-4} | STEERED,
        {"learning_rate": 3e-4} | STEERED,
    ],
    "bgwnpg": [  # WNPG's winner and its runners-up, with penalties
        SHORT | {"penalty": 0.1},
        SHORT | {"penalty": 1.0},
        SHORT | {"penalty": 10.0},
        EXACT | {"kl_target": 0.01, "damping": 0.01, "penalty": 1.0},
        POLICY | {"penalty": 0.1},
        POLICY | {"penalty": 1.0},
    ],
}
Job = tuple[str, int, str, int]  # method, candidate, task, seed


def run(job: Job) -> list[object]:
    """Train one candidate; its row."""
    method, index, env, seed = job
    settings = CANDIDATES[method][index]
    # From the configuration's own defaults: a candidate is what it says and nothing else.
    chosen: Settings = {**METHODS[method].axes, **settings}
    agent = wng.Agent(env, method, seed, config=wng.Config(**chosen))
    found = train(agent, STEPS)
    agent.close()
    return [method, index, json.dumps(settings), env, seed, *map(float, found.values())]


def finished(path: Path) -> dict[Job, float]:
    """Deterministic returns of the rows in the file."""
    rows = read(path)
    for row in rows:
        if json.loads(row["settings"]) != CANDIDATES[row["method"]][int(row["candidate"])]:
            raise SystemExit(
                f"{path}: candidate {row['candidate']} of {row['method']} has other settings now: "
                "delete its rows, or add the new one at the end of the list."
            )
    return {
        (r["method"], int(r["candidate"]), r["env"], int(r["seed"])): float(r["deterministic"])
        for r in rows
    }


def mean_ranks(
    method: str, found: dict[Job, float], indices: list[int], seeds: Iterable[int]
) -> dict[int, float] | None:
    """Mean rank of each candidate over tasks and seeds, 1 being the best; None if rows miss."""
    pairs = list(itertools.product(TASKS, seeds))
    jobs = [[(method, index, env, seed) for index in indices] for env, seed in pairs]
    if not all(job in found for row in jobs for job in row):
        return None
    returns = [[found[job] for job in row] for row in jobs]
    return dict(zip(indices, rankdata(-np.array(returns), axis=1).mean(axis=0), strict=True))


def groups(method: str) -> list[list[int]]:
    """The candidates, in groups of six."""
    indices = list(range(len(CANDIDATES[method])))
    return [indices[i : i + GROUP] for i in indices[::GROUP]]


def finalists(method: str, found: dict[Job, float]) -> list[int]:
    """The candidates that run again: the best two of each group whose first round is complete."""
    chosen: list[int] = []
    for group in groups(method):
        ranks = mean_ranks(method, found, group, [FIRST])
        if ranks is not None:
            chosen += sorted(sorted(ranks, key=lambda index: ranks[index])[:2])
    return chosen


def missing(methods: list[str], found: dict[Job, float]) -> list[Job]:
    """What can run now and has not, in order."""
    jobs: list[Job] = []
    for method in methods:
        indices = range(len(CANDIDATES[method]))
        jobs += [(method, i, env, FIRST) for i in indices for env in TASKS]
        again = itertools.product(finalists(method, found), TASKS, MORE)
        jobs += [(method, i, env, seed) for i, env, seed in again]
    return [job for job in jobs if job not in found]


def report(methods: list[str], found: dict[Job, float]) -> None:
    """Each method's candidates with their ranks, and the winner."""
    for method in methods:
        first: dict[int, float] = {}
        for group in groups(method):
            first |= mean_ranks(method, found, group, [FIRST]) or {}
        again = finalists(method, found)
        final = mean_ranks(method, found, again, [FIRST, *MORE]) if again else None
        print(f"\n{method}")
        for index, settings in enumerate(CANDIDATES[method]):
            returns = [found.get((method, index, env, FIRST), np.nan) for env in TASKS]
            shown = " ".join(f"{x:8.1f}" for x in returns)
            ranks = (f"{r[index]:.2f}" if r and index in r else "  – " for r in (first, final))
            print(f"  {index:2} {' '.join(ranks)} {shown}  {json.dumps(settings)}")
        if final and len(first) == len(CANDIDATES[method]):
            print(f"  winner: {min(final, key=lambda index: final[index])}")


def main() -> None:
    """Run what is missing, as many at a time as there are cores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/policy_gradient/tuning.csv"))
    parser.add_argument("--methods", nargs="+", choices=list(CANDIDATES), default=list(CANDIDATES))
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", action="store_true", help="print the tables and stop")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)  # train one and append its row
    args = parser.parse_args()
    if args.one:
        method, index, env, seed = args.one
        append(args.out, run((method, int(index), env, int(seed))))
        return
    if not args.report:
        run_missing(
            __file__,
            args.out,
            HEADER,
            lambda: missing(args.methods, finished(args.out)),
            args.cores,
        )
    report(args.methods, finished(args.out))


if __name__ == "__main__":
    main()
