"""Compares worker processes with `gymnasium.vector.AsyncVectorEnv`.

    python benchmarks/vector_envs.py

Prints steps per second and CPU time per step with 8 environments (median of interleaved rounds, and
the ratio to AsyncVectorEnv), start-up time and memory, then what happens when the parent of a
hanging environment is killed, when a run resumes, and when an environment raises. On a busy machine
only CPU time is meaningful: 8 processes get a larger share of the cores than 2.

AsyncVectorEnv forks (unsafe once JAX has threads), with all environments or one per core stepping
at a time ("cores"), or spawns. Reference results are at the top of `wng/envs/workers.py`.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

ENVS = ("Hopper-v5", "InvertedDoublePendulum-v5", "CartPole-v1")
NUM_ENVS = 8


class Faulty(gymnasium.wrappers.TimeLimit):
    """A CartPole that fails at its third step: it hangs, or raises an exception."""

    def __init__(self, hang: bool) -> None:
        super().__init__(gymnasium.make("CartPole-v1").unwrapped, 500)
        self._hang, self._count = hang, 0

    def step(self, action: Any) -> Any:
        """Fail at the third step."""
        self._count += 1
        if self._count == 3 and self._hang:
            time.sleep(600)
        if self._count == 3:
            raise ArithmeticError("bad luck")
        return super().step(action)


gymnasium.logger.min_level = gymnasium.logger.ERROR + 10  # nothing
gymnasium.register("Hangs-v0", entry_point="vector_envs:Faulty", kwargs={"hang": True})
gymnasium.register("Raises-v0", entry_point="vector_envs:Faulty", kwargs={"hang": False})


def make_ours(env_id: str, backend: str) -> Any:
    """Make our environments, reset."""
    import wng.envs

    env = wng.envs.make(env_id, NUM_ENVS, 0, backend)  # type: ignore[arg-type]
    env.reset()
    return env


def make_async(env_id: str, context: str, limit: int | None = None) -> AsyncVectorEnv:
    """Make Gymnasium's, reset: shared memory, and new episodes in the step that ends one."""
    make = partial(gymnasium.make, gymnasium.spec(env_id), disable_env_checker=True)
    limits: dict[str, Any] = {} if limit is None else {"max_concurrency": limit}  # Gymnasium 1.4
    env = AsyncVectorEnv(
        [make] * NUM_ENVS,
        shared_memory=True,
        context=context,
        autoreset_mode=AutoresetMode.SAME_STEP,
        **limits,
    )
    env.reset(seed=0)
    return env


MAKERS: dict[str, Callable[[str], Any]] = {
    "workers": partial(make_ours, backend="workers"),
    "gymnasium": partial(make_ours, backend="gymnasium"),
    "async fork": partial(make_async, context="fork"),
    "async cores": partial(make_async, context="fork", limit=os.cpu_count()),
    "async spawn": partial(make_async, context="spawn"),
}


def measure(env: Any, actions: np.ndarray, pids: set[int]) -> tuple[float, float]:
    """Return steps per second, and CPU time per step of this process and `pids`."""
    steps, cpu, start = actions.shape[0] * NUM_ENVS, cpu_seconds(pids), time.perf_counter()
    for action in actions:
        env.step(action)
    seconds = time.perf_counter() - start
    return steps / seconds, (cpu_seconds(pids) - cpu) / steps


def cpu_seconds(pids: set[int]) -> float:
    """CPU time of this process and `pids` so far, user and system."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> set[int]:
    """Return all descendants of a process."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()[1:]]
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in pairs if parent in new}
        found |= new
    return found


def megabytes(pids: set[int]) -> float:
    """Private memory of processes, from /proc."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("Private"))
    return total / 1024


def compare(env_id: str, rounds: int, steps: int) -> None:
    """Print speed, start-up time and memory of each kind."""
    space, rng = gymnasium.make(env_id).action_space, np.random.default_rng(0)
    if isinstance(space, gymnasium.spaces.Discrete):
        actions: np.ndarray = rng.integers(0, int(space.n), (steps, NUM_ENVS))
    else:
        shape = (steps, NUM_ENVS, *space.shape)  # type: ignore[misc]
        actions = rng.uniform(-1, 1, shape).astype(np.float32)
    made, starts, memory, pids = {}, {}, {}, {}
    for name, make in MAKERS.items():
        before, start = children(os.getpid()), time.perf_counter()
        made[name] = make(env_id)
        starts[name] = time.perf_counter() - start
        started = children(os.getpid()) - before
        pids[name] = {p for p in started if os.path.exists(f"/proc/{p}")}
        memory[name] = megabytes(pids[name])
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in MAKERS}
    for _ in range(rounds):
        for name, env in made.items():
            results[name].append(measure(env, actions, pids[name]))
    for env in made.values():
        env.close()
    print(f"\n{env_id}, {NUM_ENVS} environments, median of {rounds} rounds of {steps} vector steps")
    print(f"  {'':12} steps/s (× async fork)   CPU µs/step (× async fork)    start   memory")
    for name, pairs in results.items():
        speed, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
        both = list(zip(pairs, results["async fork"], strict=True))
        faster = statistics.median(ours[0] / theirs[0] for ours, theirs in both)
        costlier = statistics.median(ours[1] / theirs[1] for ours, theirs in both)
        print(
            f"  {name:12} {speed:7,.0f} ({faster:4.2f})  {1e6 * cpu:17.0f} ({costlier:4.2f})"
            f" {starts[name]:18.2f} s {memory[name]:5.0f} MB"
        )
    print(f"  load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def kill_parent(name: str) -> None:
    """Print how many processes outlive a parent that is killed while an environment hangs."""
    code = f"import vector_envs; vector_envs.hang({name!r})"
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    parent.stdout.readline()
    time.sleep(1)  # by now all hang
    started = children(parent.pid)
    parent.kill()
    parent.wait()
    for seconds in (2, 8):
        time.sleep(seconds)
        left = {pid for pid in started if _running(pid)}
    print(f"  {name:12} {len(left)} of {len(started)} processes left after 10 s")
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def _running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def hang(name: str) -> None:
    """Step environments that hang; the parent of `kill_parent`."""
    env = MAKERS[name]("vector_envs:Hangs-v0" if "async" not in name else "Hangs-v0")
    print("ready", flush=True)
    for _ in range(3):
        env.step(np.zeros(NUM_ENVS, np.int64))


def fail(name: str) -> None:
    """Print the error when environments raise, and whether reset() works afterwards."""
    env = MAKERS[name]("vector_envs:Raises-v0" if "async" not in name else "Raises-v0")
    try:
        for _ in range(3):
            env.step(np.zeros(NUM_ENVS, np.int64))
    except Exception as error:
        print(f"  {name:12} {type(error).__name__}: {error}")
    try:
        env.reset()
        print(f"  {name:12} reset() afterwards works")
    except Exception as error:
        print(f"  {name:12} reset() afterwards: {type(error).__name__}: {error}")
    env.close()


def replay() -> None:
    """Print whether unfinished episodes can be rebuilt in new environments."""
    env, actions = make_ours("Hopper-v5", "workers"), np.zeros((NUM_ENVS, 3))
    for _ in range(20):
        env.step(actions)
    state, expected = env.state(), env.step(actions).observations
    env.close()
    env = make_ours("Hopper-v5", "workers")
    start = time.perf_counter()
    env.restore(state)
    seconds = time.perf_counter() - start
    same = np.array_equal(env.step(actions).observations, expected)
    env.close()
    print(f"  {'workers':12} restored in {seconds:.2f} s, next step identical: {same}")
    print(f"  {'async':12} has restore(): {hasattr(AsyncVectorEnv, 'restore')}")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=500, help="vector steps per round")
    arguments = parser.parse_args()
    for env_id in ENVS:
        compare(env_id, arguments.rounds, arguments.steps)
    both = ("workers", "async fork")
    print("\nParent killed while every environment hangs")
    for name in both:
        kill_parent(name)
    print("\nResume")
    replay()
    print("\nEnvironments that raise at their third step")
    for name in both:
        fail(name)


if __name__ == "__main__":
    main()
