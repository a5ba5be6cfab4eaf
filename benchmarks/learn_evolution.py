"""ES with normalized observations on three environments, with the same settings for all.

    python benchmarks/learn_evolution.py             # half an hour on one core
    python benchmarks/learn_evolution.py --report    # the table and the picture of what is there

Each run is what `wng train es --env ENV --steps STEPS --seed SEED` does with the flags
--normalize-observations --sigma 0.1 --learning-rate 0.05 --population 64. Evaluations are of the
mean policy without noise: 10 episodes during training and 20 new ones at the end. The settings were
chosen on seeds 100 to 103, after dense policies with σ = 0.05 had failed on Pendulum-v1 with the
seeds 0 and 1; the seeds here are 0, 1 and 2. Finished runs are not repeated.
"""

import argparse
from pathlib import Path

import numpy as np
from pool import Job, append, read, run_missing

import wng
from wng.experiments.output import markdown_table

# Task: steps of the budget, between evaluations, and the return to reach.
TASKS = {
    "CartPole-v1": (2e6, 2e5, 475),
    "Pendulum-v1": (2e7, 1e6, -250),
    "HalfCheetah-v5": (5e6, 5e5, 1000),
}
SEEDS = range(3)
SETTINGS = {
    "normalize_observations": True,
    "sigma": 0.1,
    "learning_rate": 0.05,
    "population": 64,
}
HEADER = ["env", "seed", "steps", "return", "final"]


def run(path: Path, env: str, seed: int) -> None:
    """Train and write all evaluations, the last one with other episodes."""
    steps, every, _ = TASKS[env]
    agent = wng.Agent(env, "es", seed, **SETTINGS)
    seen: list[tuple[float, float]] = []

    def note(trained: wng.Agent, row: dict[str, float]) -> None:
        if np.isfinite(row["return_deterministic"]):
            seen.append((trained.steps, row["return_deterministic"]))

    agent.learn(int(steps), progress=False, eval_every=int(every), callback=note)
    if agent.steps < steps:
        raise SystemExit("stopped before the end: no row.")
    for at, value in seen:
        append(path, [env, seed, at, value, 0])
    append(path, [env, seed, agent.steps, agent.evaluate(20).mean(), 1])
    agent.close()


def report(path: Path) -> None:
    """Write the table and the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows, lines = read(path), []
    figure, axes = plt.subplots(1, len(TASKS), figsize=(3.4 * len(TASKS), 3))
    for ax, (env, (_, _, goal)) in zip(axes, TASKS.items(), strict=True):
        finals = []
        for seed in SEEDS:
            own = [r for r in rows if (r["env"], r["seed"]) == (env, str(seed))]
            curve = [(float(r["steps"]), float(r["return"])) for r in own if r["final"] == "0"]
            finals += [float(r["return"]) for r in own if r["final"] == "1"]
            ax.plot(*np.transpose(curve), label=f"seed {seed}")
        ax.axhline(goal, color="0.5", linestyle="--", linewidth=1)
        ax.set(title=env, xlabel="environment steps")
        shown = [f"{value:.0f}" for value in finals]
        lines.append([env, f"{TASKS[env][0]:,.0f}", str(goal), ", ".join(shown)])
    axes[0].set_ylabel("return of the mean policy")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path.with_suffix(".png"), dpi=150)
    head = ["environment", "steps", "goal", "final returns (seeds 0, 1, 2)"]
    text = markdown_table(head, lines)
    path.with_suffix(".md").write_text(text + "\n")
    print(text)


def main() -> None:
    """Run what is missing, then write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/evolution/learning.csv"))
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("ENV", "SEED"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        run(args.out, args.one[0], int(args.one[1]))
        return

    def missing() -> list[Job]:
        done = {(r["env"], int(r["seed"])) for r in read(args.out) if r["final"] == "1"}
        return [(env, seed) for env in TASKS for seed in SEEDS if (env, seed) not in done]

    if not args.report:
        run_missing(__file__, args.out, HEADER, missing, args.cores)
    report(args.out)


if __name__ == "__main__":
    main()
