"""Which method is best on tasks and seeds that tuning has not seen?

    python benchmarks/evaluate.py             # everything that is missing, then the tables
    python benchmarks/evaluate.py --report    # the tables of what is there
    python benchmarks/evaluate.py --methods wtrpo trpo ppo    # these first, and compare only them

Settings `tuned`, 300,000 steps, seeds 20 to 24, on the four tuning tasks and on HalfCheetah-v5 and
Swimmer-v5, which no setting was tuned on (they have been looked at during development: validation,
not proof). The score of a run is the deterministic return (20 episodes), scaled so that 0 is the
untrained policy and 1 the best method's mean on that task. Methods are compared by the
interquartile mean of their scores with 95% intervals that resample seeds within tasks. Rows that
are in the file are not repeated, unless `tuned` has changed since. A run takes one to two minutes
on one core.
"""

import argparse
import itertools
import json
import os
from pathlib import Path

import numpy as np
from pool import append, read, run_missing, train

import wng
from wng.experiments.output import markdown_table
from wng.experiments.statistics import interquartile_mean, stratified_bootstrap
from wng.policy_gradient.methods import TUNED

METHODS = ("wtrpo", "trpo", "ppo", "npg", "wnpg")
UNSEEN = ("HalfCheetah-v5", "Swimmer-v5")
TASKS = (*UNSEEN, "Hopper-v5", "InvertedDoublePendulum-v5", "Walker2d-v5", "Reacher-v5")
SEEDS = range(20, 25)
STEPS = 300_000
DRAWS = 2000
COLUMNS = ["untrained", "deterministic", "training", "std", "kl", "seconds"]
Returns = dict[str, dict[str, np.ndarray]]  # by method and task, an array of seeds


def run(method: str, env: str, seed: int) -> list[object]:
    """Train one method; its row."""
    agent = wng.Agent(env, method, seed)
    found = {"untrained": agent.evaluate(20, untrained=True).mean()} | train(agent, STEPS)
    agent.close()
    return [method, env, seed, settings(method), *(float(found[name]) for name in COLUMNS)]


def settings(method: str) -> str:
    """What a row was trained with."""
    return json.dumps(TUNED[method])


def valid(path: Path) -> list[dict[str, str]]:
    """The rows that were trained with the present settings."""
    return [row for row in read(path) if row["settings"] == settings(row["method"])]


def column(rows: list[dict[str, str]], name: str, methods: list[str]) -> Returns:
    """A column by method and task, for the methods and tasks with all seeds."""
    found: Returns = {}
    for method, env in itertools.product(methods, TASKS):
        values = [float(r[name]) for r in rows if (r["method"], r["env"]) == (method, env)]
        if len(values) == len(SEEDS):
            found.setdefault(method, {})[env] = np.array(values)
    return found


def difference(a: list[np.ndarray], b: list[np.ndarray]) -> tuple[float, float, float]:
    """Interquartile mean of `a` minus that of `b`, and its 95% interval; seeds are paired."""
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(DRAWS):
        index = [rng.integers(len(x), size=len(x)) for x in a]
        means = (
            interquartile_mean(np.concatenate([x[i] for x, i in zip(scores, index, strict=True)]))
            for scores in (a, b)
        )
        drawn.append(next(means) - next(means))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return interquartile_mean(np.concatenate(a)) - interquartile_mean(np.concatenate(b)), low, high


def report(rows: list[dict[str, str]], methods: list[str]) -> None:
    """Print returns, scores, differences and speed."""
    returns, untrained = (column(rows, name, methods) for name in ("deterministic", "untrained"))
    seconds, std = (column(rows, name, methods) for name in ("seconds", "std"))
    complete = [task for task in TASKS if all(task in returns.get(m, {}) for m in methods)]
    print(f"Complete tasks: {', '.join(complete) or 'none'}\n")
    table = [
        [
            m,
            *(
                f"{_number(returns[m][task].mean())} ± {_number(returns[m][task].std(ddof=1))} "
                f"(σ {std[m][task].mean():.2f})"
                for task in complete
            ),
        ]
        for m in methods
        if m in returns
    ]
    print(markdown_table(["deterministic return (and σ at the end)", *complete], table), "\n")
    if not complete:
        return
    scores: dict[str, list[np.ndarray]] = {m: [] for m in methods}
    for task in complete:
        low = np.mean([untrained[m][task].mean() for m in methods])
        best = max(returns[m][task].mean() for m in methods)
        for m in methods:
            scores[m].append((returns[m][task] - low) / (best - low))
    table = []
    for m in methods:
        mean, low, high = stratified_bootstrap(scores[m], interquartile_mean, DRAWS)
        away, least, most = difference(scores[methods[0]], scores[m])
        speed = STEPS / np.mean([seconds[m][task].mean() for task in complete])
        table.append(
            [
                m,
                f"{mean:.3f} [{low:.3f}, {high:.3f}]",
                f"{away:+.3f} [{least:+.3f}, {most:+.3f}]",
                f"{speed:.0f}",
            ]
        )
    print(
        markdown_table(["score", "interquartile mean", f"{methods[0]} minus it", "steps/s"], table)
    )


def _number(x: float) -> str:
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.1f}"


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/policy_gradient/evaluation.csv"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", action="store_true", help="print the tables and stop")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # train one and append its row
    args = parser.parse_args()
    if args.one:
        method, env, seed = args.one
        append(args.out, run(method, env, int(seed)))
        return

    def missing() -> list[tuple[str, str, int]]:
        done = {(r["method"], r["env"], int(r["seed"])) for r in valid(args.out)}
        jobs = [(m, env, seed) for seed, env, m in itertools.product(SEEDS, TASKS, args.methods)]
        return [job for job in jobs if job not in done]

    if not args.report:
        header = ["method", "env", "seed", "settings", *COLUMNS]
        run_missing(__file__, args.out, header, missing, args.cores)
    report(valid(args.out), args.methods)


if __name__ == "__main__":
    main()
