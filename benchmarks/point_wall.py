"""Evolution strategies on the point's wall task, many seeds at once.

All seeds of a method are one compiled program: generations are scanned, seeds vmapped. Writes, for
each seed, when the mean policy first got past the wall, whether it is past it at the end, and its
final return; and a table with Wilson intervals for the share of seeds.

    python benchmarks/point_wall.py --settings released --seeds 100
"""

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import binomtest

from wng import envs
from wng.agents.registry import EVOLUTION
from wng.behavior.embedding import find_embedding
from wng.envs.jax_vector import JaxVector
from wng.evolution.episodes import Episodes, Rows, Setup, behavior_size, episodes_key
from wng.evolution.evaluators import compiled_episodes
from wng.evolution.policies import Policy
from wng.evolution.population import strategy_key
from wng.evolution.state import State
from wng.evolution.strategy import Strategy
from wng.experiments.es.study import stuck_return
from wng.experiments.output import markdown_table, write_csv

HEADER = ["settings", "env", "method", "seed", "first_steps", "past_wall", "final_return"]


def train(method: str, settings: str, env_id: str, seeds: range, generations: int) -> np.ndarray:
    """Return and final position of each seed's mean policy, [seeds, generations, 3]."""
    env = envs.resolve(env_id, "gymnasium")
    config = EVOLUTION.preset(method, settings, env_id)
    spec, horizon = env.spec, env.spec.max_episode_steps
    assert horizon is not None
    assert env.jax_env is not None
    bounds = spec.discrete, spec.action_low, spec.action_high
    policy = Policy(spec.observation_size, spec.action_size, config.policy, config.hidden, *bounds)
    setup = Setup(policy, find_embedding(config.embedding), horizon, config.action_noise)
    strategy = Strategy(policy.init(jax.random.key(0)), config)
    population = config.population
    vector = JaxVector(env.jax_env, spec)
    play = compiled_episodes(vector, Rows(0, population + 1, population), setup)

    def one(seed: Any) -> jax.Array:
        params = policy.init(jax.random.fold_in(jax.random.key(seed), 2))
        state = strategy.init(strategy_key(seed), behavior_size(setup), params)

        def generation(state: State, number: jax.Array) -> tuple[State, jax.Array]:
            members, state = strategy.ask(state)
            center = strategy.params(state)
            rows = jax.tree.map(lambda m, c: jnp.concatenate([m, c[None]]), members, center)
            key = jax.random.fold_in(episodes_key(seed), number)
            found = Episodes._make(play(rows, None, key))
            told = found.returns[:-1], found.behaviors[:-1]
            state, _ = strategy.tell(state, members, *told)
            return state, jnp.append(found.final_observations[-1, :2], found.returns[-1])

        return jax.lax.scan(generation, state, jnp.arange(generations))[1]

    return np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(seeds)))


def main() -> None:
    """Train, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", default="released")
    parser.add_argument("--env", default="wng/PointWall-v0")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--block", type=int, default=25, help="seeds in one program")
    parser.add_argument("--generations", type=int, default=200)
    parser.add_argument("--methods", nargs="*", default=list(EVOLUTION.methods))
    parser.add_argument("--out", type=Path, default=Path("results/evolution"))
    args = parser.parse_args()
    shown = envs.resolve(args.env, "gymnasium").map
    assert shown is not None
    lines, rows = [], []
    stop = args.first + args.seeds
    for method in args.methods:
        start, found = time.monotonic(), []
        for first in range(args.first, stop, args.block):
            block = range(first, min(first + args.block, stop))
            found.append(train(method, args.settings, args.env, block, args.generations))
        x, y, returns = np.concatenate(found).transpose(2, 0, 1)
        past = np.vectorize(partial(shown.past_wall))(x, y) & (returns > stuck_return(args.env))
        members = EVOLUTION.preset(method, args.settings, args.env).population
        steps = members * 50 * (1 + np.where(past.any(axis=1), past.argmax(axis=1), np.inf))
        for k, seed in enumerate(range(args.first, stop)):
            ends = (float(steps[k]), int(past[k, -1]), float(returns[k, -1]))
            lines.append((args.settings, args.env, method, seed, *ends))
        share = binomtest(int(past[:, -1].sum()), len(past)).proportion_ci(method="wilson")
        title = EVOLUTION.methods[method].title
        count = f"{past[:, -1].sum()} of {len(past)}"
        ever = np.isfinite(steps)
        median = f"{np.median(steps[ever]):,.0f}" if ever.any() else "–"
        interval = f"[{share.low:.0%}, {share.high:.0%}]"
        mean = f"{returns[:, -1].mean():.0f} ± {returns[:, -1].std():.0f}"
        rows.append([title, count, interval, ever.sum(), median, mean])
        print(title, count, interval, f"{time.monotonic() - start:.0f} s", flush=True)
        write(args, lines, rows)  # finished methods are kept
    print((args.out / f"{file_name(args)}.md").read_text())


def file_name(args: argparse.Namespace) -> str:
    """The name of both files, without their endings."""
    return f"{args.env.split('/')[-1]}_{args.settings}"


def write(args: argparse.Namespace, lines: list[tuple], rows: list[list[Any]]) -> None:
    """Write a line for each seed as CSV, and the table as Markdown."""
    write_csv(args.out / f"{file_name(args)}.csv", HEADER, lines)
    header = ["method", "past the wall at the end", "95% (Wilson)", "ever past", "median steps"]
    table = markdown_table([*header, "final return"], rows)
    (args.out / f"{file_name(args)}.md").write_text(table + "\n")


if __name__ == "__main__":
    main()
