"""How the `tuned` settings were found: the same small search for every method.

    python benchmarks/tune.py --out results/policy_gradient/tuning.csv

Three candidates a method, two tasks, tuning seeds that no other result here uses, 100,000 steps.
The score of a run is the mean return of its last quarter; of a candidate, the mean over the tasks
of its score divided by the best that any method's candidate reached there. Runs that are in the
file already are not repeated. About half an hour on 2 idle cores; prints the winners at the end.
"""

import argparse
import csv
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TASKS = (("InvertedDoublePendulum-v5", 100), ("Hopper-v5", 101))
STEPS = 100_000
# Natural gradients: few, large minibatches, plain steps whose length is steered by KL.
NATURAL = {"optimizer": "sgd", "learning_rate": 0.01, "minibatch": 1024, "epochs": 5} | {
    "steer": True,
    "kl_target": 0.02,
}
KERNEL = NATURAL | {"num_basis": 100, "damping": 0.005, "refresh_every": 2}
CANDIDATES: dict[str, list[dict[str, object]]] = {
    "pg": [
        {"learning_rate": 1e-4},
        {"learning_rate": 3e-4},
        {"learning_rate": 1e-4, "steer": True, "kl_target": 0.02},
    ],
    "ppo": [
        {"learning_rate": 3e-4},
        {"learning_rate": 1e-3},
        {"learning_rate": 3e-4, "steer": True, "kl_target": 0.02},
    ],
    "ppokl": [
        {"learning_rate": 3e-4},
        {"learning_rate": 1e-3},
        {"learning_rate": 3e-4, "kl_target": 0.02},
    ],
    "npg": [
        NATURAL | {"damping": 0.01},
        NATURAL | {"damping": 0.1},
        {"learning_rate": 1e-4, "damping": 0.1},
    ],
    "trpo": [
        {"radius": 0.01, "damping": 0.1},
        {"radius": 0.02, "damping": 0.1},
        {"radius": 0.02, "damping": 0.01},
    ],
    "bgpg": [
        {"penalty": 1.0, "learning_rate": 1e-4},
        {"penalty": 1.0, "learning_rate": 3e-4},
        {"penalty": 1.0, "learning_rate": 1e-4, "steer": True, "kl_target": 0.02},
    ],
    "wnpg": [KERNEL, KERNEL | {"kl_target": 0.01}, KERNEL | {"damping": 0.002}],
    "bgwnpg": [
        KERNEL | {"penalty": 0.1},
        KERNEL | {"penalty": 1.0},
        KERNEL | {"penalty": 0.1, "kl_target": 0.01},
    ],
    "wtrpo": [{"kl_target": 0.01}, {"kl_target": 0.02}, {"kl_target": 0.02, "damping": 0.002}],
}
HEADER = ["method", "candidate", "settings", "env", "seed", "score"]


def run(method: str, index: int, env: str, seed: int) -> list[object]:
    """Train one candidate; its row."""
    import numpy as np

    import wng
    from wng.policy_gradient.methods import METHODS

    settings = CANDIDATES[method][index]
    # From the configuration's own defaults: a candidate is what it says and nothing else.
    chosen: dict[str, Any] = {**METHODS[method].axes, **settings}
    config = wng.Config(**chosen)
    agent = wng.Agent(env, method, seed, config=config)
    returns: list[float] = []
    agent.learn(STEPS, progress=False, callback=lambda _, row: returns.append(row["return"]))
    agent.close()
    if agent.steps < STEPS:
        raise SystemExit("stopped before the end: no score.")
    score = float(np.nanmean(returns[-len(returns) // 4 :]))
    return [method, index, json.dumps(settings), env, seed, score]


def main() -> None:
    """Run what is missing, as many at a time as there are cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/policy_gradient/tuning.csv"))
    parser.add_argument("--one", nargs=4, help="internal: train one candidate and append its row")
    args = parser.parse_args()
    if args.one:
        method, index, env, seed = args.one
        row = run(method, int(index), env, int(seed))
        with args.out.open("a", newline="") as file:
            csv.writer(file).writerow(row)
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if not args.out.exists():
        args.out.write_text(",".join(HEADER) + "\n")
    with args.out.open() as file:
        done = {(r["method"], r["candidate"], r["env"], r["seed"]) for r in csv.DictReader(file)}
    grid = itertools.product(TASKS, range(3), CANDIDATES)
    waiting = [(m, str(i), env, str(seed)) for (env, seed), i, m in grid]
    waiting = [job for job in waiting if job not in done]
    running: list[subprocess.Popen[bytes]] = []
    for number, job in enumerate(waiting):
        print(f"{number + 1}/{len(waiting)}", *job, flush=True)
        command = [sys.executable, __file__, "--out", str(args.out), "--one", *job]
        running.append(subprocess.Popen(command, env=os.environ | {"WNG_THREADS": "1"}))
        while len(running) >= (os.cpu_count() or 1):
            running = [p for p in running if not _ended(p)]
    for process in running:
        process.wait()
    print_winners(args.out)


def print_winners(path: Path) -> None:
    """Each method's candidates, best first, by their normalized score."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    best = {env: max(float(r["score"]) for r in rows if r["env"] == env) for env, _ in TASKS}
    for method in CANDIDATES:
        found: dict[str, list[float]] = {}
        for row in (r for r in rows if r["method"] == method):
            score = float(row["score"]) / best[row["env"]]
            found.setdefault(row["settings"], []).append(score)
        for settings, scores in sorted(found.items(), key=lambda item: -sum(item[1])):
            each = " ".join(f"{score:.3f}" for score in scores)
            print(f"{method:7} {sum(scores) / len(TASKS):.3f} ({each}) {settings}")


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return False
    return True


if __name__ == "__main__":
    main()
