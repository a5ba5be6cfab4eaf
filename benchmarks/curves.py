"""Learning curves of all methods on one task, from the runs that `wng train` left.

    for method in ppo trpo wnpg wtrpo; do
      wng train $method --env InvertedDoublePendulum-v5 --steps 1e6 --seeds 0-4
    done
    python benchmarks/curves.py runs/InvertedDoublePendulum-v5 --out results/policy_gradient

Writes curves.csv (each run's mean return in 100 bins of steps), final.csv (the deterministic
policy over 20 episodes), curves.png and table.md. With --peer it adds the curves that
`benchmarks/sb3_ppo.py` wrote.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

import wng
from wng.cli.look import find_runs
from wng.experiments.drawing import draw_panels
from wng.experiments.output import markdown_table, write_csv
from wng.experiments.statistics import bootstrap_band, on_grid
from wng.policy_gradient.methods import METHODS
from wng.runs.directory import RunDirectory
from wng.runs.metrics import read_metrics

Curves = dict[str, list[tuple[np.ndarray, np.ndarray]]]
PEER = "SB3 PPO"


def collect(folder: Path) -> tuple[Curves, list[list[object]]]:
    """Curves by method, and a row of evaluation for each run."""
    curves: Curves = {}
    final: list[list[object]] = []
    for path in find_runs(folder):
        run = RunDirectory.open(path)
        rows = read_metrics(path)
        title = METHODS[run.record["method"]].title
        curves.setdefault(title, []).append((rows["steps"], rows["return"]))
        agent = wng.load(path)
        returns = agent.evaluate(20)
        agent.close()
        final.append([title, run.record["seed"], agent.steps, returns.mean(), returns.std()])
        print(*final[-1], flush=True)
    return curves, final


def peer_curves(folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Stable-Baselines3's episodes, averaged per 2048 steps as ours are."""
    found = []
    for path in sorted(folder.glob("seed*.csv")):
        with path.open() as file:
            rows = np.array([[float(x) for x in row] for row in list(csv.reader(file))[1:]])
        iteration = np.ceil(rows[:, 0] / 2048).astype(int)
        steps = np.unique(iteration)
        means = np.array([rows[iteration == i, 1].mean() for i in steps])
        found.append((steps * 2048.0, means))
    return found


def at(curves: list[tuple[np.ndarray, np.ndarray]], until: float) -> np.ndarray:
    """Each run's mean return over the tenth of the steps before `until`."""
    tails = [(steps > 0.9 * until) & (steps <= until) for steps, _ in curves]
    return np.array([np.nanmean(r[t]) for (_, r), t in zip(curves, tails, strict=True)])


def spread(values: np.ndarray) -> str:
    """Mean ± std, and the 95% bootstrap interval of the mean."""
    low, high = bootstrap_band(values[:, None])
    return f"{values.mean():.0f} ± {values.std():.0f} [{low[0]:.0f}, {high[0]:.0f}]"


def draw(curves: Curves, env: str, to: Path) -> None:
    """Draw the methods in one panel, up to the end of the shortest run."""
    shortest = min(steps[-1] for runs in curves.values() for steps, _ in runs)
    cut = {
        title: [(steps[steps <= shortest], values[steps <= shortest]) for steps, values in runs]
        for title, runs in curves.items()
    }
    draw_panels({env: cut}, to, bins=40)


def main() -> None:
    """Collect, evaluate, draw, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/policy_gradient"))
    args = parser.parse_args()
    curves, final = collect(args.runs)
    curves = {m.title: curves[m.title] for m in METHODS.values() if m.title in curves}
    env = RunDirectory.open(find_runs(args.runs)[0]).record["env"]
    write_csv(args.out / "final.csv", ["method", "seed", "steps", "mean", "std"], final)
    if args.peer:
        curves[PEER] = peer_curves(args.peer)
    binned = [
        (title, k, grid, value)
        for title, runs in curves.items()
        for k, run in enumerate(runs)
        for grid, value in zip(*(x.ravel() for x in on_grid([run])), strict=True)
    ]
    write_csv(args.out / "curves.csv", ["method", "run", "steps", "return"], binned)
    draw(curves, env, args.out / "curves.png")
    shortest = min(steps[-1] for runs in curves.values() for steps, _ in runs)
    table = []
    for title, runs in curves.items():
        ends = [steps[-1] for steps, _ in runs]
        evaluated = np.array([float(str(row[3])) for row in final if row[0] == title])
        early = [(s, r) for s, r in runs if s[-1] >= shortest]
        late = [(s, r) for s, r in runs if s[-1] >= 0.99 * max(ends)]
        table.append(
            [
                title,
                len(early),
                spread(at(early, shortest)),
                f"{max(ends) / 1e3:.0f}k ({len(late)})",
                spread(at(late, min(s[-1] for s, _ in late))),
                spread(evaluated) if len(evaluated) else "–",
            ]
        )
    header = [
        "method",
        "seeds",
        f"return at {shortest / 1e3:.0f}k steps",
        "steps at the end (seeds)",
        "return at the end",
        "deterministic, 20 episodes a seed",
    ]
    (args.out / "table.md").write_text(markdown_table(header, table) + "\n")
    print(markdown_table(header, table))


if __name__ == "__main__":
    main()
