"""Would it help to choose actions for one half of the environments while the other half steps?

    python benchmarks/overlap.py

EnvPool steps 8 copies of Hopper-v5 on all cores. The policy is a loop that keeps one core busy for
some microseconds; for half of the environments it takes 70% of the time that it takes for all, as
most of it is the cost of a call. `together`: all step, then the policy acts for all. `halves`: two
pools in turn, so that one steps while the policy acts for the other.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from wng.experiments.output import markdown_table

ENVS, STEPS, ROUNDS = 8, 512, 6
ACTIONS = np.random.default_rng(0).uniform(-1, 1, (STEPS, ENVS, 3)).astype(np.float32)


def policy(microseconds: float) -> None:
    """Keep a core busy."""
    end = time.perf_counter() + microseconds * 1e-6
    while time.perf_counter() < end:
        pass


def make(number: int, seed: int) -> Any:
    """A pool of environments that have been reset."""
    import envpool

    pool = envpool.make_gymnasium("Hopper-v5", num_envs=number, seed=seed)
    pool.reset()
    return pool


def best(run: Callable[[], None]) -> float:
    """Microseconds per step of all environments, in the best round."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return 1e6 * min(seconds) / STEPS


def together(microseconds: float) -> float:
    """One pool."""
    pool = make(ENVS, 0)

    def run() -> None:
        for actions in ACTIONS:
            pool.step(actions)
            policy(microseconds)

    return best(run)


def halves(microseconds: float) -> float:
    """Two pools in turn."""
    half = ENVS // 2
    pools, numbers = [make(half, 0), make(half, half)], np.arange(half, dtype=np.int32)

    def run() -> None:
        for k, pool in enumerate(pools):
            pool.send(ACTIONS[0, k * half : (k + 1) * half], numbers)
        for actions in ACTIONS[1:]:
            for k, pool in enumerate(pools):
                pool.recv()
                policy(0.7 * microseconds)
                pool.send(actions[k * half : (k + 1) * half], numbers)
        for pool in pools:
            pool.recv()

    return best(run)


def main() -> None:
    """Print a table."""
    warnings.simplefilter("ignore")
    rows = [[us, *(f"{f(us):.0f}" for f in (together, halves))] for us in (0, 60, 120)]
    print(markdown_table(["policy [μs]", "together [μs per step]", "halves [μs per step]"], rows))


if __name__ == "__main__":
    main()
