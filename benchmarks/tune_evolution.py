"""How the `tuned` settings of evolution strategies were found: the same small search for each.

    python benchmarks/tune_evolution.py --out results/evolution/tuning.csv

Four candidates a method on wng/PointWall-v0, tuning seeds that no other result here uses, a million
steps (200 generations of 100). The score of a run is the mean return of the mean policy over the
last tenth of the generations; that of a candidate, the mean over seeds. Candidates that are in the
file already are not repeated. About ten minutes on one idle core; prints all, best first.
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

import wng
from wng.evolution.methods import METHODS

ENV, SEEDS, STEPS = "wng/PointWall-v0", range(100, 106), 1_000_000
CANDIDATES: dict[str, list[dict[str, Any]]] = {
    "es": [
        {"learning_rate": 0.02},
        {"learning_rate": 0.05},
        {"learning_rate": 0.02, "sigma": 0.1},
        {"learning_rate": 0.05, "sigma": 0.1},
    ],
    "esclip": [
        {"max_norm": 1.0, "learning_rate": 0.02},
        {"max_norm": 1.0, "learning_rate": 0.05},
        {"max_norm": 10.0, "learning_rate": 0.02},
        {"max_norm": 10.0, "learning_rate": 0.05},
    ],
    "nsres": [
        {"beta": 0.5, "learning_rate": 0.02},
        {"beta": 0.2, "learning_rate": 0.02},
        {"beta": 0.2, "learning_rate": 0.05},
        {"beta": 0.05, "learning_rate": 0.02},
    ],
    "bges": [
        {"beta": 0.3, "learning_rate": 0.02},
        {"beta": 0.1, "learning_rate": 0.02},
        {"beta": 0.1, "learning_rate": 0.05},
        {"beta": 0.05, "learning_rate": 0.02},
    ],
    "wnes": [
        {"delta": -1.3, "learning_rate": 0.02},
        {"delta": -1.3, "learning_rate": 0.05},
        {"delta": -4.0, "learning_rate": 0.02},
        {"delta": 0.5, "learning_rate": 0.02},
    ],
    "bgwnes": [
        {"delta": -1.3, "beta": 0.3, "learning_rate": 0.02},
        {"delta": -1.3, "beta": 0.1, "learning_rate": 0.02},
        {"delta": -1.3, "beta": 0.1, "learning_rate": 0.05},
        {"delta": -4.0, "beta": 0.1, "learning_rate": 0.02},
    ],
    "nsrwnes": [
        {"delta": -1.3, "beta": 0.2, "learning_rate": 0.02},
        {"delta": -1.3, "beta": 0.2, "learning_rate": 0.05},
        {"delta": -10.0, "beta": 0.2, "learning_rate": 0.02},
        {"delta": -10.0, "beta": 0.4, "learning_rate": 0.02, "sigma": 0.1},
    ],
}
HEADER = ["method", "settings", "seed", "score", "past_wall"]


def run(method: str, settings: dict[str, Any], seed: int) -> list[object]:
    """Train one candidate on one seed; its row."""
    # From the configuration's own defaults: a candidate is what it says and nothing else.
    chosen: dict[str, Any] = {**METHODS[method].axes, **settings}
    config = wng.EvolutionConfig(**chosen)
    agent = wng.Agent(ENV, method, seed, config=config)
    rows: list[dict[str, float]] = []
    agent.learn(STEPS, progress=False, callback=lambda _, row: rows.append(row))
    agent.close()
    if agent.steps < STEPS:
        raise SystemExit("stopped before the end: no score.")
    score = float(np.mean([row["return"] for row in rows[-len(rows) // 10 :]]))
    return [method, json.dumps(settings), seed, score, rows[-1]["past_wall"]]


def main() -> None:
    """Run what is missing, then print the candidates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/evolution/tuning.csv"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if not args.out.exists():
        args.out.write_text(",".join(HEADER) + "\n")
    with args.out.open() as file:
        done = {(r["method"], r["settings"], r["seed"]) for r in csv.DictReader(file)}
    for method, candidates in CANDIDATES.items():
        for settings in candidates:
            for seed in SEEDS:
                if (method, json.dumps(settings), str(seed)) not in done:
                    with args.out.open("a", newline="") as file:
                        csv.writer(file).writerow(run(method, settings, seed))
            print(method, settings, flush=True)
    with args.out.open() as file:
        rows = list(csv.DictReader(file))
    for method, candidates in CANDIDATES.items():
        table = []
        for settings in candidates:
            mine = [
                r for r in rows if (r["method"], r["settings"]) == (method, json.dumps(settings))
            ]
            past = sum(float(r["past_wall"]) for r in mine)
            table.append((np.mean([float(r["score"]) for r in mine]), past, len(mine), settings))
        for score, past, number, settings in sorted(table, key=lambda row: -row[0]):
            print(f"{method:7} {score:8.1f}  past the wall {past:.0f}/{number}  {settings}")


if __name__ == "__main__":
    main()
