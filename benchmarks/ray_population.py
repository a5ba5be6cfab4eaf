"""An evolution strategy on Ray: the price of it, and how far it scales.

    python benchmarks/ray_population.py

1. Generations of wng/QuadrupedWall-v0 with one Ray worker a core of this machine, and with the
   local evaluator, in turns; the best of `--rounds` counts. The parameters must come out the same.
2. Bytes that travel for a member, for policies of different size.
3. What the process in the middle spends: on a call to a worker, and on `tell`.

From these the time of a generation on more cores follows, as far as the model goes: members run
N/C after each other, calls are made one by one, and `tell` is done in the middle.
"""

import argparse
import hashlib
import pickle
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import wng
from wng.execution.ray import RayExecutor
from wng.experiments.output import markdown_table
from wng.runs.executor import LocalExecutor

QUADRUPED = "wng/QuadrupedWall-v0"
CORES = (2, 8, 32, 128, 512, 2048, 10_000)


class Weighed(LocalExecutor):
    """Two places, here; weighs what would travel."""

    remote = True

    def __init__(self) -> None:
        self.sent = self.returned = 0

    def cores(self) -> int:
        """As many as there are places."""
        return 2

    def call(self, objects: Sequence[Any], method: str, *arguments: Any) -> list[Any]:
        """See `Executor`."""
        self.sent += len(pickle.dumps(arguments))
        found = super().call(objects, method, *arguments)
        self.returned += sum(len(pickle.dumps(result)) for result in found)
        return found


def digest(agent: Any) -> str:
    """Of the parameters."""
    return hashlib.sha256(np.asarray(agent.trainer.state.strategy.center).tobytes()).hexdigest()


def contest(rounds: int, executor: RayExecutor) -> tuple[dict[str, float], int, bool]:
    """Seconds of a generation's episodes, the members, and whether the outcome is the same."""
    agents = {
        "local": wng.Agent(QUADRUPED, "wnes"),
        "ray": wng.Agent(QUADRUPED, "wnes", executor=executor),
    }
    best = dict.fromkeys(agents, np.inf)
    for number in range(rounds + 1):
        for name, agent in agents.items():
            seconds = agent.trainer.iterate()["seconds_episodes"]
            if number:  # the first compiles
                best[name] = min(best[name], seconds)
        print(f"  round {number} of {rounds}", best, flush=True)
    same = digest(agents["local"]) == digest(agents["ray"])
    members = agents["local"].config.population + 1
    for agent in agents.values():
        agent.close()
    return best, members, same


def weigh() -> list[list[str]]:
    """Bytes for policies of different size."""
    rows = []
    for hidden, kind in (((16,), "toeplitz"), ((64, 64), "toeplitz"), ((256, 256), "dense")):
        scale = Weighed()
        agent = wng.Agent(
            QUADRUPED, "es", executor=scale, hidden=hidden, policy=kind, population=40, horizon=2
        )
        agent.trainer.iterate()
        agent.close()
        size = agent.trainer.state.strategy.center.size
        rows.append([f"{size:,}", f"{scale.sent:,}", f"{scale.returned / 41:,.0f}"])
    return rows


class Idle:
    """Answers at once, with as much as a block of two members sends."""

    def run(self, center: np.ndarray) -> tuple:
        """Something like `Episodes`."""
        nothing = np.zeros((2, 0))
        found = np.zeros(2), np.zeros((2, 33)), np.zeros(2), np.zeros((2, 33))
        return *found, nothing, nothing, np.zeros((0, 33))

    def close(self) -> None:
        """Nothing."""


def call_seconds(executor: RayExecutor) -> float:
    """Of the middle, for each call to a worker: processor time, since workers here do nothing."""
    idle = executor.place(Idle, [()] * executor.cores())
    center = np.zeros(1000, np.float32)
    executor.call(idle, "run", center)
    many = idle * 200
    start = time.process_time()
    executor.call(many, "run", center)
    spent = (time.process_time() - start) / len(many)
    executor.release(idle)
    return spent


def tell_seconds(population: int, parameters: int) -> float:
    """Of asking for members and telling what became of them, compiled before."""
    es = wng.WNES(np.zeros(parameters, np.float32), population=population)
    state = es.init(jax.random.key(0), 33)
    rng = np.random.default_rng(0)
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        members, state = es.ask(state)
        state, _ = es.tell(
            state, members, rng.normal(size=population), rng.normal(size=(population, 33))
        )
        jax.block_until_ready(state.center)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Measure, extrapolate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    executor = RayExecutor()
    cores = executor.cores()
    best, members, same = contest(args.rounds, executor)
    call = call_seconds(executor)
    executor.close()
    each = best["ray"] * cores / members
    print(f"\nRay with {cores} workers ÷ local evaluator: {best['local'] / best['ray']:.2f} of its")
    print(f"throughput; sha256 of the parameters the same: {same}\n")
    head = ["parameters", "bytes out, once a machine", "bytes back, for each member"]
    print(markdown_table(head, weigh()))
    print(f"\na member: {each * 1e3:.1f} ms of a core; a call: {call * 1e3:.2f} ms of the middle\n")
    head = ["cores", "members in turn", "episodes [s]", "calls [s]", "tell [s]", "generation [s]",
            "efficiency"]  # fmt: skip
    size, population = 1000, 20_000
    tell = tell_seconds(population, size)
    rows = []
    for number in CORES:
        turn = max(2, -(-population // number))
        places = -(-population // turn)
        parts = turn * each, places * call, tell
        whole = sum(parts)
        ideal = population * each / number
        shown = [f"{part:.2f}" for part in (*parts, whole)]
        rows.append([f"{number:,}", f"{turn:,}", *shown, f"{ideal / whole:.0%}"])
    print(f"{population:,} members of the quadruped, {size:,} parameters:\n")
    print(markdown_table(head, rows))
    sizes = (1000, 10_000)
    tells = [[f"{n:,}", *(f"{tell_seconds(n, p):.2f}" for p in sizes)] for n in (1000, 10_000)]
    print("\nask and tell in the middle [s]:\n")
    print(markdown_table(["members", *(f"{p:,} parameters" for p in sizes)], tells))


if __name__ == "__main__":
    main()
