"""Resolves an environment id once per run: everything that callers need to know about it."""

import time
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import gymnasium
from gymnasium.envs.registration import EnvSpec as GymSpec

from wng.behavior.registry import check_choice
from wng.envs.base import Backend, EnvSpec
from wng.envs.envpool import describe_envpool, same_in_envpool
from wng.envs.jax_env import JaxEnv
from wng.envs.lookup import describe, find
from wng.envs.walls.map import Map
from wng.envs.workers import available_cores, why_no_workers

BackendChoice = Literal["auto", "gymnasium", "workers", "envpool", "jax"]


@dataclass(frozen=True, eq=False)
class ResolvedEnv:
    """An environment that was found and can be used.

    Pickling keeps the id and the backend only: the receiving process resolves them again.
    """

    spec: EnvSpec  # with backend "auto", `make` may still choose worker processes
    local_spec: EnvSpec | None = None  # `spec` if Gymnasium runs it, even if it was not chosen
    gym_spec: GymSpec | None = None  # None if only EnvPool has the environment
    jax_env: JaxEnv | None = None  # the environment as pure functions
    mujoco_task: Any = None  # the environment as a `wng.envs.mujoco_batch.MujocoTask`
    map: Map | None = None  # top view of a wall task
    render_modes: tuple[str, ...] = ()
    step_seconds: float | None = None  # median; measured if worker processes may be chosen

    def spec_on(self, backend: Backend) -> EnvSpec:
        """Return the spec of the environment on a backend."""
        if backend == self.spec.backend:
            return self.spec
        if self.local_spec is None or backend in ("envpool", "jax"):
            return resolve(self.spec.id, backend).spec  # or an error that says why not
        return replace(self.local_spec, backend=backend)

    def __reduce__(self) -> tuple[Any, ...]:
        return resolve, (self.spec.id, self.spec.backend)


def resolve(env_id: str, backend: BackendChoice = "auto") -> ResolvedEnv:
    """Look up an environment. Makes at most one copy of it, and closes it.

    Args:
      env_id: Gymnasium id, 'module:id' to import a module first, 'module:name' of a `JaxEnv`, or
        the name of an environment of gymnax, brax or playground, such as 'gymnax/Pendulum-v1'.
      backend: What runs the environment; see `wng.envs.make`.

    Raises:
      ValueError: If the environment cannot be used; the message says what to do.
    """
    check_choice("backend", backend, get_args(BackendChoice))
    if backend != "envpool":
        return _resolve_gymnasium(env_id, backend)
    spec = describe_envpool(env_id)
    try:
        return replace(_resolve_gymnasium(env_id, "gymnasium"), spec=spec)
    except ValueError:  # only EnvPool has it
        return ResolvedEnv(spec)


def _resolve_gymnasium(env_id: str, backend: str) -> ResolvedEnv:
    env, full_id = find(env_id)
    try:
        gym_spec = env.spec
        assert gym_spec is not None
        spec = local_spec = describe(
            full_id,
            "workers" if backend == "workers" else "gymnasium",
            env.observation_space,
            env.action_space,
            replayable=not gym_spec.nondeterministic,
            max_episode_steps=gym_spec.max_episode_steps,
        )
        jax_env: JaxEnv | None = getattr(env.unwrapped, "jax_env", None)
        if backend == "jax" and jax_env is None:
            raise ValueError(
                f"'{full_id}' cannot run on backend 'jax', because it is not written in JAX: use "
                "backend 'auto'."
            )
        if backend in ("auto", "jax") and jax_env is not None:
            spec = replace(local_spec, backend="jax")
        elif backend == "auto" and same_in_envpool(spec):
            spec = describe_envpool(full_id)
        undecided = backend == "auto" and spec is local_spec
        timed = undecided and available_cores() > 1 and not why_no_workers(gym_spec)
        return ResolvedEnv(
            spec=spec,
            local_spec=local_spec,
            gym_spec=gym_spec,
            jax_env=jax_env,
            mujoco_task=getattr(env.unwrapped, "mujoco_task", None),
            map=getattr(env.unwrapped, "map", None),
            render_modes=tuple(env.metadata.get("render_modes") or ()),
            step_seconds=_step_seconds(env) if timed else None,
        )
    finally:
        env.close()


def _step_seconds(env: gymnasium.Env) -> float | None:
    """Median time of 50 steps, or None if the environment fails (training will report that)."""
    seconds = []
    try:
        env.action_space.seed(0)
        env.reset(seed=0)
        for _ in range(50):
            action = env.action_space.sample()
            start = time.perf_counter()
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
            seconds.append(time.perf_counter() - start)
    except (Exception, SystemExit):
        return None
    return sorted(seconds)[len(seconds) // 2]
