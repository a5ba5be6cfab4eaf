"""Makes vector environments."""

from dataclasses import replace

from wng.envs.base import Backend, EnvSpec, VectorEnv, check_arguments
from wng.envs.envpool import EnvPoolVectorEnv, describe_envpool
from wng.envs.resolve import BackendChoice, ResolvedEnv, check_backend, resolve
from wng.envs.seeded import LocalRunner, SeededVectorEnv
from wng.envs.workers import WorkerRunner, available_cores, why_no_workers

# Extra seconds per vector step with workers: 140 to 200 µs with two workers on a busy two-core
# virtual machine. Messages account for 30 to 60 µs of it, waking up for the rest.
SIGNALING = 150e-6


def make(
    env: str | ResolvedEnv,
    num_envs: int,
    seed: int,
    backend: BackendChoice = "auto",
    offset: int = 0,
) -> VectorEnv:
    """Make a vector environment.

    Backends:
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
      offset: Number of the first copy. Copies with the same number have the same episodes. EnvPool
        ignores it.
    """
    check_arguments(num_envs, seed)
    check_backend(backend)
    num_envs, seed = int(num_envs), int(seed)
    resolved = as_resolved(env, backend)
    chosen = _choose(resolved, num_envs) if backend == "auto" else backend
    return MAKERS[chosen](resolved, num_envs, seed, offset)


def as_resolved(env: str | ResolvedEnv, backend: BackendChoice) -> ResolvedEnv:
    """Resolve an environment for a backend unless that has been done."""
    if not isinstance(env, ResolvedEnv):
        return resolve(env, backend)
    if env.gym_spec is None and backend not in ("auto", env.spec.backend):
        return resolve(env.spec.id, backend)  # says why Gymnasium does not have it
    return env


def check_env(env_id: str, backend: BackendChoice = "auto") -> EnvSpec:
    """Return the spec of an environment, or raise a ValueError that says what to do."""
    return resolve(env_id, backend).spec


def workers_are_faster(step_seconds: float, num_envs: int) -> bool:
    """Tell whether worker processes save time, given the time of one step."""
    workers = min(available_cores(), num_envs)
    return num_envs * step_seconds * (1 - 1 / workers) > 2 * SIGNALING


def _choose(resolved: ResolvedEnv, num_envs: int) -> Backend:
    seconds = resolved.step_seconds
    if seconds is not None and workers_are_faster(seconds, num_envs):
        return "workers"
    return resolved.spec.backend


def _in_process(resolved: ResolvedEnv, num_envs: int, seed: int, offset: int) -> VectorEnv:
    assert resolved.local_spec is not None
    spec = replace(resolved.local_spec, backend="gymnasium")
    runner = LocalRunner(spec, resolved.gym_spec, num_envs, seed, offset)
    return SeededVectorEnv(spec, num_envs, runner)


def _in_workers(resolved: ResolvedEnv, num_envs: int, seed: int, offset: int) -> VectorEnv:
    assert resolved.local_spec is not None
    obstacle = why_no_workers(resolved.gym_spec)
    if obstacle:
        raise ValueError(
            f"{resolved.spec.id!r} cannot run in worker processes: {obstacle}; move it to a module "
            "of its own, or use backend='gymnasium'."
        )
    spec = replace(resolved.local_spec, backend="workers")
    runner = WorkerRunner(spec, resolved.gym_spec, num_envs, seed, offset)
    return SeededVectorEnv(spec, num_envs, runner)


def _in_envpool(resolved: ResolvedEnv, num_envs: int, seed: int, offset: int) -> VectorEnv:
    pooled = resolved.spec.backend == "envpool"
    spec = resolved.spec if pooled else describe_envpool(resolved.spec.id)
    return EnvPoolVectorEnv(spec, num_envs, seed)


MAKERS = {"gymnasium": _in_process, "workers": _in_workers, "envpool": _in_envpool}
