"""Making vector environments."""

import time
from typing import Any, Literal

import gymnasium

from wng.envs.base import EnvSpec, VectorEnv, check_arguments
from wng.envs.envpool import EnvPoolVectorEnv, describe_envpool, known_to_envpool, same_task
from wng.envs.resolve import describe, find
from wng.envs.seeded import LocalRunner, SeededVectorEnv
from wng.envs.workers import WorkerRunner, available_cores, why_no_workers

# Seconds that a vector step costs more with workers: 140 to 200 µs measured with two workers on a
# busy two-core virtual machine, of which 30 to 60 µs are the messages and the rest waking up.
SIGNALLING = 150e-6

BACKENDS = ("auto", "gymnasium", "workers", "envpool")


def make(
    env_id: str,
    num_envs: int,
    seed: int,
    backend: Literal["auto", "gymnasium", "workers", "envpool"] = "auto",
    offset: int = 0,
) -> VectorEnv:
    """`num_envs` copies of the environment with this Gymnasium id (or 'module:id').

    With an `offset`, those of a larger set from this one on: their episodes are the same. (Not with
    EnvPool, which numbers its environments itself.)

    Backends:
      gymnasium: all in this process.
      workers: in worker processes, one for each core; bit for bit the same results.
      envpool: in EnvPool's threads. Other random initial states, and rounding, than Gymnasium's.
      auto: EnvPool where it is installed and has the same task under this id; otherwise `workers`
        where that is faster than `gymnasium`: 50 steps are timed, and workers are used if the time
        they save in a vector step, n·t·(1 − 1/workers), is over 0.3 ms, twice what they cost.
    """
    check_arguments(num_envs, seed)
    num_envs, seed = int(num_envs), int(seed)
    spec, env = _check(env_id, backend)
    if env is None:
        return EnvPoolVectorEnv(spec, num_envs, seed)
    gym_spec = env.spec
    try:
        obstacle = why_no_workers(gym_spec)
        if backend == "workers" and obstacle:
            raise ValueError(
                f"{env_id!r} cannot run in worker processes: {obstacle}; put it in a module of its "
                "own, or use backend='gymnasium'."
            )
        workers = backend == "workers" or (
            backend == "auto" and not obstacle and workers_are_faster(env, num_envs)
        )
    finally:
        env.close()
    spec = EnvSpec(**{**vars(spec), "backend": "workers" if workers else "gymnasium"})
    runner = (WorkerRunner if workers else LocalRunner)(spec, gym_spec, num_envs, seed, offset)
    return SeededVectorEnv(spec, num_envs, runner)


def check_env(
    env_id: str, backend: Literal["auto", "gymnasium", "workers", "envpool"] = "auto"
) -> EnvSpec:
    """The spec of an environment, or a ValueError that says what to do; makes at most one."""
    spec, env = _check(env_id, backend)
    if env is not None:
        env.close()
    return spec


def workers_are_faster(env: gymnasium.Env, num_envs: int) -> bool:
    """Whether worker processes would save time, from the time of a few steps of `env`."""
    workers = min(available_cores(), num_envs)
    if workers < 2:
        return False
    try:
        seconds = _step_seconds(env)
    except (Exception, SystemExit):  # which training will meet again, and report
        return False
    typical = sorted(seconds)[len(seconds) // 2]
    return num_envs * typical * (1 - 1 / workers) > 2 * SIGNALLING


def _step_seconds(env: gymnasium.Env) -> list[float]:
    env.action_space.seed(0)
    env.reset(seed=0)
    seconds = []
    for _ in range(50):
        action = env.action_space.sample()
        start = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
        seconds.append(time.perf_counter() - start)
    return seconds


def _check(env_id: Any, backend: str) -> tuple[EnvSpec, gymnasium.Env | None]:
    """The spec, and an environment unless EnvPool is to run it."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    if backend == "envpool":
        return describe_envpool(env_id), None
    env, full_id = find(env_id)
    try:
        assert env.spec is not None
        spec = describe(
            full_id,
            "workers" if backend == "workers" else "gymnasium",
            env.observation_space,
            env.action_space,
            replayable=not env.spec.nondeterministic,
            max_episode_steps=env.spec.max_episode_steps,
        )
        if backend == "auto" and known_to_envpool(full_id):
            pooled = describe_envpool(full_id)
            if same_task(spec, pooled):
                env.close()
                return pooled, None
    except BaseException:
        env.close()
        raise
    return spec, env
