"""Evaluators of whole populations: compiled, in batches, or in Gymnasium environments."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from wng.envs.envpool import EnvPoolEpisodes, same_in_envpool
from wng.envs.jax_vector import JaxVector
from wng.envs.moments import Moments
from wng.envs.mujoco_batch import MujocoBatch, default_threads
from wng.envs.resolve import ResolvedEnv
from wng.envs.workers import why_no_workers
from wng.evolution.episodes import Episodes, Rollout, Rows, Setup, episodes_key, summarize
from wng.evolution.members import map_rows
from wng.evolution.steppers import SteppedEvaluator, batch_stepper, gym_stepper

# What an environment must have for a backend (attributes of `env.unwrapped`), the fastest first.
ATTRIBUTES = {"jax": "jax_env", "mujoco": "mujoco_task"}
CHUNK = 64  # most steps of compiled episodes between two looks at whether all are over


class JaxEvaluator:
    """Runs all episodes in one compiled call, in an environment of pure functions."""

    backend = "jax"

    def __init__(self, env: JaxVector, rows: Rows, setup: Setup, seed: int):
        self.key, self.action_noise = episodes_key(seed), setup.action_noise
        self.program = compiled_episodes(env, rows, setup.shape)

    def __call__(self, members: Any, moments: Moments | None, generation: int) -> Episodes:
        """Run one episode of each member; leaves of `members` have a leading axis."""
        key = jax.random.fold_in(self.key, generation)
        found = self.program(members, moments, key, self.action_noise)
        return read_episodes(jax.device_get(found))

    def close(self) -> None:
        """Do nothing: there are no environments to stop."""


def read_episodes(found: tuple) -> Episodes:
    """Name what the program of `compiled_episodes` returned."""
    episodes = Episodes._make(found)
    return episodes._replace(path=episodes.path[: episodes.lengths[-1]])


@lru_cache(maxsize=8)  # runs that differ in the seed or in numbers share the compiled function
def compiled_episodes(
    env: JaxVector, rows: Rows, setup: Setup
) -> Callable[[Any, Moments | None, PRNGKeyArray, float], tuple]:
    """The function (members, moments, key, action noise) ↦ what `summarize` returns, and a path.

    The path is that of the last member.
    """

    horizon, chunks = setup.horizon, -(-setup.horizon // CHUNK)
    chunk = -(-horizon // chunks)

    def begin(params: Any, key: PRNGKeyArray, noisy: Array) -> tuple[Any, Any, Array, tuple]:
        key_env, key_noise = jax.random.split(key)
        noise = noisy * setup.draw_noise(key_noise)
        now = *env.reset_one(key_env), jnp.array(True)
        return key_env, setup.policy.layers(params), noise, now

    def play(
        moments: Moments | None,
        times: Array,
        key_env: PRNGKeyArray,
        layers: Any,
        noise: Array,
        now: tuple,
    ) -> tuple[tuple, Rollout]:
        def step(carry: tuple, now: tuple[Array, Array]) -> tuple[tuple, Rollout]:
            (state, observation, alive), (t, noise) = carry, now
            action = setup.act(layers, moments, observation, noise)
            *following, reward, terminated, truncated = env.step_one(
                jax.random.fold_in(key_env, t), state, action
            )
            # After the end of an episode its state no longer changes.
            kept = jax.tree.map(
                lambda new, old: jnp.where(alive, new, old), tuple(following), (state, observation)
            )
            # A non-finite observation ends the episode and makes its return non-finite.
            broken = ~(jnp.isfinite(observation).all() & jnp.isfinite(kept[1]).all())
            record = Rollout(kept[1], action, jnp.where(broken, jnp.nan, reward), alive)
            return (*kept, alive & ~(terminated | truncated | broken)), record

        return jax.lax.scan(step, now, (times, noise))

    @jax.jit
    def run(members: Any, moments: Moments | None, key: PRNGKeyArray, action_noise: float) -> tuple:
        noisy = (rows.array() != rows.center) * jnp.asarray(action_noise, float)
        keys, layers, noise, now = map_rows(begin)(members, rows.keys(key), noisy)
        noise = jnp.pad(noise, ((0, 0), (0, chunks * chunk - horizon), (0, 0)))

        def play_chunk(number: Array, now: tuple) -> tuple[tuple, Rollout]:
            part = jax.lax.dynamic_slice_in_dim(noise, number * chunk, chunk, axis=1)
            times = number * chunk + jnp.arange(1, chunk + 1)
            return map_rows(partial(play, moments, times))(keys, layers, part, now)

        def go_on(carry: tuple) -> tuple:
            number, now, whole = carry
            now, part = play_chunk(number, now)
            place = partial(jax.lax.dynamic_update_slice_in_dim, axis=1)
            whole = jax.tree.map(lambda w, x: place(w, x, number * chunk), whole, part)
            return number + 1, now, whole

        start = jnp.zeros((), int)
        if chunks == 1:
            rollout = play_chunk(start, now)[1]
        else:  # until every episode is over
            empty = jax.tree.map(
                lambda x: jnp.zeros((rows.number, chunks * chunk, *x.shape[2:]), x.dtype),
                jax.eval_shape(play_chunk, start, now)[1],
            )
            rollout = jax.lax.while_loop(
                lambda carry: (carry[0] < chunks) & carry[1][2].any(), go_on, (start, now, empty)
            )[2]
            rollout = jax.tree.map(lambda x: x[:, :horizon], rollout)
        return *summarize(setup, rollout), rollout.observations[-1]

    return run


def find_backend(env: ResolvedEnv, backend: str) -> str:
    """The requested backend, or the fastest that the environment allows here.

    Results depend on it, but not on whether Gymnasium runs in this process or in workers: for both,
    "auto" becomes "local".
    """
    parts: dict[str, Any] = {name: getattr(env, attr) for name, attr in ATTRIBUTES.items()}
    if backend == "auto":
        allowed = [name for name, part in parts.items() if part is not None]
        return [*allowed, *(["envpool"] * same_in_envpool(env.spec)), "local"][0]
    if parts.get(backend, env) is None:
        raise ValueError(
            f"'{env.spec.id}' cannot run on backend '{backend}': its environment has no attribute "
            f"'{ATTRIBUTES[backend]}'; use backend 'auto'."
        )
    return backend


def make_evaluator(
    env: ResolvedEnv, setup: Setup, rows: Rows, seed: int, backend: str = "auto"
) -> JaxEvaluator | SteppedEvaluator:
    """Make the evaluator of a backend; see `find_backend`."""
    backend = find_backend(env, backend)
    if backend == "jax":
        assert env.jax_env is not None
        return JaxEvaluator(JaxVector(env.jax_env, env.spec), rows, setup, seed)
    if backend == "mujoco":
        stepper = batch_stepper(MujocoBatch(env.mujoco_task, rows.number), rows, seed)
    elif backend == "envpool":
        batch = EnvPoolEpisodes(env.spec_on("envpool"), rows.number)
        stepper = batch_stepper(batch, rows, seed)
    else:
        if backend == "local":
            alone = default_threads() == 1 or why_no_workers(env.gym_spec)
            backend = "gymnasium" if alone else "workers"
        stepper = gym_stepper(env, rows, seed, backend)
    return SteppedEvaluator(backend, stepper, rows, setup, seed)
