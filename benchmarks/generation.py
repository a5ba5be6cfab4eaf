"""Time and memory of a generation, ours beside evosax's OpenAI-ES.

    pip install -e '.[peers]'
    python benchmarks/generation.py

A generation is ask and tell with given returns, and behaviors of two numbers. `regenerated` drops
what ask has made, and tell makes it again in blocks (`tell(state, None, …)`). All perturb in
antithetic pairs and move with Adam. Each measurement is a process of its own, in turns for
`--rounds` rounds; the best of three generations after the first one, and of all rounds, counts.
Memory is the peak of the process, less that of importing JAX and wng.
"""

import argparse
import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from wng.experiments.output import markdown_table

SIZES = ((100, 1_000), (1_000, 10_000), (1_000, 100_000), (5_000, 100_000))
PEER = "evosax OpenAI-ES"
CONTENDERS = (PEER, "ES", "ES regenerated", "WNES", "WNES regenerated")
GENERATIONS = 3


def peak() -> float:
    """Peak memory of this process in GB."""
    unit = 1e9 if sys.platform == "darwin" else 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def ours(name: str, members: int, parameters: int) -> Callable[[], Any]:
    """A generation of one of our strategies."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import wng

    method, _, regenerated = name.partition(" ")
    es = getattr(wng, method)(jnp.zeros(parameters), population=members)
    rng = np.random.default_rng(0)
    returns, behaviors = rng.normal(size=members), rng.normal(size=(members, 2))
    state = es.init(jax.random.key(0), behavior_size=2)

    def run() -> Any:
        nonlocal state
        candidates, state = es.ask(state)
        if regenerated:
            jax.block_until_ready(candidates)
            candidates = None
        state, _ = es.tell(state, candidates, returns, behaviors)
        return state

    return run


def peer(members: int, parameters: int) -> Callable[[], Any]:
    """A generation of evosax's OpenAI-ES."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from evosax.algorithms import Open_ES

    mean = jnp.zeros(parameters)
    es = Open_ES(population_size=members, solution=mean)
    params, ask, tell = es.default_params, jax.jit(es.ask), jax.jit(es.tell)
    state = es.init(jax.random.key(1), mean, params)
    fitness = jnp.asarray(np.random.default_rng(0).normal(size=members))

    def run() -> Any:
        nonlocal state
        candidates, state = ask(jax.random.key(2), state, params)
        state, _ = tell(jax.random.key(3), candidates, fitness, state, params)
        return state

    return run


def measure(name: str, members: int, parameters: int) -> None:
    """Print seconds and GB of a generation."""
    import jax

    before = peak()
    run = peer(members, parameters) if name == PEER else ours(name, members, parameters)
    jax.block_until_ready(run())  # compiles
    best = float("inf")
    for _ in range(GENERATIONS):
        start = time.perf_counter()
        jax.block_until_ready(run())
        best = min(best, time.perf_counter() - start)
    print(best, peak() - before)


def main() -> None:
    """Take turns, print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # measure one, in this process
    args = parser.parse_args()
    if args.one:
        measure(args.one[0], int(args.one[1]), int(args.one[2]))
        return
    seconds: dict[Any, float] = {}
    memory: dict[Any, float] = {}
    for _, size, name in itertools.product(range(args.rounds), SIZES, CONTENDERS):
        command = [sys.executable, __file__, "--one", name, *map(str, size)]
        found = subprocess.check_output(command, text=True).split()[-2:]
        seconds[name, size] = min(seconds.get((name, size), float("inf")), float(found[0]))
        memory[name, size] = float(found[1])
    for title, of, unit in (("seconds", seconds, "s"), ("memory", memory, "GB")):
        rows = [
            [name, *(f"{of[name, s] / of[PEER, s]:.2f} ({of[name, s]:.3g} {unit})" for s in SIZES)]
            for name in CONTENDERS
        ]
        header = [f"{title}, ratio to evosax", *(f"{n:,} × {p:,}" for n, p in SIZES)]
        print(markdown_table(header, rows), "\n", flush=True)


if __name__ == "__main__":
    main()
