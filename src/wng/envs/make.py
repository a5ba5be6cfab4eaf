"""Makes vector environments."""

import dataclasses
from collections.abc import Callable
from typing import get_args

from wng.behavior.registry import check_choice
from wng.envs.base import Backend, check_arguments
from wng.envs.envpool import EnvPoolRunner
from wng.envs.resolve import BackendChoice, ResolvedEnv, resolve
from wng.envs.vector import LocalRunner, Runner, VectorEnv
from wng.envs.workers import WorkerRunner, available_cores

# Extra seconds per vector step with workers: 140 to 200 µs with two workers on a busy two-core
# virtual machine. Messages account for 30 to 60 µs of it, waking up for the rest.
SIGNALING = 150e-6

RUNNERS: dict[Backend, Callable[..., Runner]] = {
    "gymnasium": LocalRunner,
    "workers": WorkerRunner,
    "envpool": EnvPoolRunner,
}


def make(
    env: str | ResolvedEnv,
    num_envs: int,
    seed: int,
    backend: BackendChoice = "auto",
    offset: int = 0,
    once: bool = False,
) -> VectorEnv:
    """Make a vector environment.

    Backends (JAX environments, with backend "jax", are stepped by "gymnasium" here):
      gymnasium: Runs all copies in this process.
      workers: Runs them in worker processes, one per core. Same results, bit for bit.
      envpool: Runs them in EnvPool's threads. Initial states and rounding differ from Gymnasium's.
      auto: EnvPool if it is installed and has the same task under this id. Otherwise `workers` if
        faster than `gymnasium`: if the time that w workers save per vector step, n·t·(1 − 1/w)
        with t measured over 50 steps, exceeds 0.3 ms, twice their overhead. For a `ResolvedEnv`,
        "auto" keeps the backend that it was resolved with.

    Args:
      env: Gymnasium id, 'module:id', or the result of `wng.envs.resolve`.
      num_envs: Number of copies.
      seed: Random seed.
      backend: What runs the environment.
      offset: Number of the first copy. Copies with the same number have the same episodes.
      once: Whether a copy whose episode has ended waits for `reset`, as it is and without rewards,
        instead of starting the next one; a state of it cannot be replayed. EnvPool ignores this
        and `offset`.
    """
    check_arguments(num_envs, seed)
    check_choice("backend", backend, get_args(BackendChoice))
    num_envs, seed = int(num_envs), int(seed)
    resolved = env if isinstance(env, ResolvedEnv) else resolve(env, backend)
    chosen: Backend = resolved.spec.backend if backend == "auto" else backend
    if backend == "auto" and resolved.step_seconds is not None:
        chosen = "workers" if workers_are_faster(resolved.step_seconds, num_envs) else chosen
    if chosen == "jax":
        chosen = "gymnasium"
    spec = resolved.spec_on(chosen)
    if once:  # whether a copy waits is not part of a state
        spec = dataclasses.replace(spec, replayable=False)
    runner = RUNNERS[chosen](spec, resolved.gym_spec, num_envs, seed, offset, once)
    return VectorEnv(spec, num_envs, runner)


def workers_are_faster(step_seconds: float, num_envs: int) -> bool:
    """Tell whether worker processes save time, given the time of one step."""
    workers = min(available_cores(), num_envs)
    return num_envs * step_seconds * (1 - 1 / workers) > 2 * SIGNALING
