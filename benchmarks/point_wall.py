"""Evolution strategies on the point's wall task, many seeds at once.

All seeds of a method are one compiled program: generations are scanned, seeds vmapped. Writes, for
each seed, when the mean policy first got past the wall, whether it is past it at the end, and its
final return; and a table with intervals for the share of seeds. Rows of other methods that are in
the file stay.

    python benchmarks/point_wall.py --settings released --seeds 100
    python benchmarks/point_wall.py --settings tuned --seeds 100 --env wng/PointWallHard-v0
    python benchmarks/point_wall.py --methods    # the table of what is there
"""

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pool import read
from scipy.stats import binomtest

import wng
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

HORIZON = 50  # steps of an episode
HEADER = ["settings", "env", "method", "seed", "first_steps", "past_wall", "final_return"]


def train(config: wng.EvolutionConfig, env_id: str, seeds: range, generations: int) -> np.ndarray:
    """Final position and return of each seed's mean policy, [seeds, generations, 3]."""
    env = envs.resolve(env_id, "gymnasium")
    spec, horizon = env.spec, env.spec.max_episode_steps
    assert horizon is not None
    assert env.jax_env is not None
    bounds = spec.discrete, spec.action_low, spec.action_high
    sizes = spec.observation_size, spec.action_size
    policy = Policy(*sizes, config.policy, config.hidden, *bounds, config.start)
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
            found = Episodes._make(play(rows, None, key, config.action_noise))
            told = found.returns[:-1], found.behaviors[:-1]
            state, _ = strategy.tell(state, members, *told)
            return state, jnp.append(found.final_observations[-1, :2], found.returns[-1])

        return jax.lax.scan(generation, state, jnp.arange(generations))[1]

    return np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(seeds)))


def outcomes(config: wng.EvolutionConfig, env_id: str, found: np.ndarray) -> list[list[str]]:
    """Steps until each seed's first passage, whether it ends past the wall, its final return."""
    shown = envs.resolve(env_id, "gymnasium").map
    assert shown is not None
    x, y, returns = found.transpose(2, 0, 1)
    past = np.vectorize(shown.past_wall)(x, y) & (returns > stuck_return(env_id))
    each = config.population * HORIZON  # steps of a generation
    first = each * (1 + np.where(past.any(axis=1), past.argmax(axis=1), np.inf))
    ends = zip(first, past[:, -1], returns[:, -1], strict=True)
    return [[f"{steps:.6e}", str(int(over)), f"{final:.6e}"] for steps, over, final in ends]


def table(rows: list[dict[str, str]]) -> str:
    """Shares of seeds, with intervals, and how they differ from ES."""
    methods = [m for m in EVOLUTION.methods if any(row["method"] == m for row in rows)]

    def column(method: str, name: str) -> np.ndarray:
        return np.array([float(row[name]) for row in rows if row["method"] == method])

    lines = []
    for method in methods:
        past, first = column(method, "past_wall"), column(method, "first_steps")
        final, base = column(method, "final_return"), column("es", "past_wall")
        low, high = wilson(past)
        apart = later = "–"
        if method != "es" and len(base):
            apart = "{:+.0%} [{:+.0%}, {:+.0%}]".format(*difference(past, base))
            later = delay(first, column("es", "first_steps"))
        lines.append(
            [
                EVOLUTION.methods[method].title,
                f"{past.sum():.0f} of {len(past)}",
                f"[{low:.0%}, {high:.0%}]",
                apart,
                int(np.isfinite(first).sum()),
                median(first),
                later,
                f"{final.mean():.0f} ± {final.std():.0f}",
            ]
        )
    header = ["method", "past the wall at the end", "95% (Wilson)", "minus ES (Newcombe)"]
    header += ["ever past", "median steps until then", "minus ES", "final return"]
    return markdown_table(header, lines)


def wilson(past: np.ndarray) -> tuple[float, float]:
    """95% interval of a share."""
    share = binomtest(int(past.sum()), len(past)).proportion_ci(method="wilson")
    return share.low, share.high


def difference(a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """Share in `a` minus that in `b`, and its 95% interval (Newcombe 1998, method 10)."""
    (low_a, high_a), (low_b, high_b) = wilson(a), wilson(b)
    share_a, share_b = a.mean(), b.mean()
    below = np.hypot(share_a - low_a, high_b - share_b)
    above = np.hypot(high_a - share_a, share_b - low_b)
    apart = share_a - share_b
    return apart, apart - below, apart + above


def median(first: np.ndarray) -> str:
    """Median over all seeds, those that never get past the wall last, and its 95% interval."""
    low, high = np.percentile(medians(first, 0), [2.5, 97.5], method="nearest")
    if not np.isfinite(low):
        return "never"
    return f"{count(np.median(first))} [{count(low)}, {count(high)}]"


def delay(first: np.ndarray, base: np.ndarray) -> str:
    """Difference of the medians, and its 95% interval."""
    one, other = medians(first, 0), medians(base, 1)
    if not np.isfinite([one, other]).all():
        return "–"
    apart = one - other
    low, high = np.percentile(apart, [2.5, 97.5], method="nearest")
    return f"{np.median(first) - np.median(base):+,.0f} [{low:+,.0f}, {high:+,.0f}]"


def medians(first: np.ndarray, seed: int) -> np.ndarray:
    """Medians of bootstrap samples."""
    drawn = np.random.default_rng(seed).choice(first, (2000, len(first)))
    return np.median(drawn, axis=1)


def count(steps: float) -> str:
    """A number of steps, or that it was never reached."""
    return f"{steps:,.0f}" if np.isfinite(steps) else "never"


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
    name = f"{args.env.split('/')[-1]}_{args.settings}"
    data, stop = args.out / f"{name}.csv", args.first + args.seeds
    for method in args.methods:
        start, rows = time.monotonic(), []
        config = EVOLUTION.preset(method, args.settings, args.env)
        for first in range(args.first, stop, args.block):
            block = range(first, min(first + args.block, stop))
            ends = outcomes(config, args.env, train(config, args.env, block, args.generations))
            named = [args.settings, args.env, method]
            rows += [[*named, str(seed), *end] for seed, end in zip(block, ends, strict=True)]
        others = [list(row.values()) for row in read(data) if row["method"] != method]
        write_csv(data, HEADER, [*others, *rows])  # finished methods are kept
        print(f"{method}: {time.monotonic() - start:.0f} s", flush=True)
    shown = table(read(data))
    (args.out / f"{name}.md").write_text(f"{shown}\n")
    print(shown)


if __name__ == "__main__":
    main()
