"""Policy gradients on the point's wall task, many seeds side by side in one compiled program.

    python benchmarks/point_wall_pg.py             # all methods, 100 seeds, 200,000 steps
    python benchmarks/point_wall_pg.py --report    # the table and the picture of what is there

Writes, for each seed, the return of the most likely actions in one episode, and whether it ends
past the wall and above the return of standing in the cup. The kernel methods also run with the
embedding `final-state` over a whole episode. Finished methods are kept and not repeated.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pool import read
from scipy.stats import binomtest

from wng import envs
from wng.envs.jax_vector import JaxVector
from wng.experiments.es.paths import draw_paths
from wng.experiments.es.study import stuck_return
from wng.experiments.output import markdown_table, write_csv
from wng.policy_gradient.block import TrainerBlock
from wng.policy_gradient.methods import METHODS, preset
from wng.policy_gradient.trainer import Trainer

ENV = "wng/PointWall-v0"
FINAL: dict[str, Any] = {"embedding": "final-state", "horizon": 50}  # a whole episode
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{method.title: (key, {}) for key, method in METHODS.items()},
    "WNPG, final state": ("wnpg", FINAL),
    "BG-WNPG, final state": ("bgwnpg", FINAL),
    "WTRPO, final state": ("wtrpo", FINAL),
}
HEADER = ["variant", "seed", "return", "past_wall", "training_return", "std", "seconds"]


def train(name: str, seeds: Sequence[int], steps: int) -> tuple[list[list[Any]], np.ndarray]:
    """Train a block of seeds; their rows, and the path of each one's last policy."""
    method, settings = VARIANTS[name]
    config = preset(method, **settings)
    resolved = envs.resolve(ENV, "jax")
    assert resolved.map is not None
    block = TrainerBlock([Trainer(resolved, config, seed) for seed in seeds])
    start, rows = time.perf_counter(), []
    for _ in range(-(-steps // config.rollout)):
        rows = block.iterate(range(len(seeds)))
    seconds = (time.perf_counter() - start) / len(seeds)
    returns, paths = play(block.trainers)
    found = []
    for i, seed in enumerate(seeds):
        past = resolved.map.past_wall(*paths[i, -1]) and returns[i] > stuck_return(ENV)
        row = rows[i]
        assert isinstance(row, dict), row
        ends = [float(returns[i]), int(past), row["return_recent"], row["std"], seconds]
        found.append([name, seed, *ends])
    return found, paths


def play(trainers: Sequence[Trainer]) -> tuple[np.ndarray, np.ndarray]:
    """Play an episode of each, most likely actions; returns, and paths [seeds, steps, 2]."""
    first = trainers[0]
    assert first.resolved.jax_env is not None
    vector = JaxVector(first.resolved.jax_env, first.spec)
    program, horizon = first.learner.program, first.spec.max_episode_steps

    def episode(policy: Any, moments: Any) -> tuple[jax.Array, jax.Array]:
        key, zero = jax.random.key(0), jnp.zeros(())

        def step(carry: Any, t: jax.Array) -> tuple[Any, Any]:
            state, seen = carry
            action = program.actions(policy, moments, seen[None], zero, deterministic=True)[0]
            *after, reward, _, _ = vector.step_one(jax.random.fold_in(key, t), state, action)
            return tuple(after), (reward, after[1][:2])

        _, (rewards, path) = jax.lax.scan(step, vector.reset_one(key), jnp.arange(horizon))
        return rewards.sum(), path

    states = [(each.params, each.state.observation_moments) for each in trainers]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    return jax.device_get(jax.jit(jax.vmap(episode))(*stacked))


def report(out: Path) -> None:
    """Write and print the table, and draw the paths."""
    rows = read(out / "point_wall.csv")
    table, paths = [], {}
    for name in VARIANTS:
        own = [row for row in rows if row["variant"] == name]
        if not own:
            continue
        past = np.array([int(row["past_wall"]) for row in own])
        share = binomtest(int(past.sum()), len(past)).proportion_ci(method="wilson")
        returns, std = (np.array([float(row[c]) for row in own]) for c in ("return", "std"))
        interval = f"[{share.low:.0%}, {share.high:.0%}]"
        mean = f"{returns.mean():.0f} ± {returns.std():.0f}"
        seconds = f"{np.mean([float(row['seconds']) for row in own]):.1f}"
        count = f"{past.sum()} of {len(past)}"
        table.append([name, count, interval, mean, f"{std.mean():.2f}", seconds])
        found = np.load(out / "point_wall.npz")[name]
        paths[name] = list(zip(found, past.astype(bool).tolist(), strict=True))
    header = ["method", "past the wall", "95% (Wilson)", "return", "σ", "seconds per seed"]
    text = markdown_table(header, table)
    (out / "point_wall.md").write_text(text + "\n")
    draw_paths(ENV, paths, out / "point_wall.png")
    print(text)


def main() -> None:
    """Train what is missing, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--block", type=int, default=50, help="seeds in one program")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=Path("results/policy_gradient"))
    parser.add_argument("--report", action="store_true", help="report what is there and stop")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    data, kept = args.out / "point_wall.csv", args.out / "point_wall.npz"
    rows = [list(row.values()) for row in read(data)]
    for name in () if args.report else VARIANTS:
        paths: dict[str, Any] = dict(np.load(kept)) if kept.exists() else {}
        if name in paths and any(row[0] == name for row in rows):
            continue
        blocks = [
            range(k, min(k + args.block, args.seeds)) for k in range(0, args.seeds, args.block)
        ]
        results = [train(name, seeds, args.steps) for seeds in blocks]
        paths[name] = np.concatenate([path for _, path in results]).astype(np.float32)
        np.savez_compressed(kept, **paths)
        rows += [row for found, _ in results for row in found]
        write_csv(data, HEADER, rows)
        print(name, "done", flush=True)
    report(args.out)


if __name__ == "__main__":
    main()
