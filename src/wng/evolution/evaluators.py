"""Episodes of whole populations: compiled, in MuJoCo batches, or in Gymnasium environments.

All of them run the members of a generation and, last, the policy at the centre without noise on
its actions, which shows how far the run is; or some of these. What a member meets follows from
(seed, generation, member) alone, so results do not depend on who else is run, nor on the number of
threads, workers or machines.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from wng import envs
from wng.behavior.embedding import Embedding, Trajectory
from wng.envs.jax_env import JaxEnv
from wng.envs.mujoco_batch import MujocoBatch, default_threads
from wng.envs.resolve import find
from wng.envs.worker import episode_seed
from wng.envs.workers import why_no_workers
from wng.evolution.policies import Policy

EPISODES = 0  # purpose of the keys here; those of strategy and policy have others


class Episodes(NamedTuple):
    """What became of the members, one row each; the centre comes last."""

    returns: Float[np.ndarray, " n"]
    behaviors: Float[np.ndarray, "n b"]
    lengths: Float[np.ndarray, " n"]
    final_observations: Float[np.ndarray, "n d"]
    path: Float[np.ndarray, "steps d"]  # observations of the last one, after each step


class Rollout(NamedTuple):
    """Episodes of n members, padded to the horizon; `mask` says which steps took place."""

    observations: Float[Array, "n H d"]  # after each step
    actions: Float[Array, "n H a"]
    rewards: Float[Array, "n H"]
    mask: Bool[Array, "n H"]


class Evaluator(Protocol):
    """Who runs episodes."""

    backend: str

    def __call__(self, members: Any, generation: int) -> Episodes:
        """One episode of each member; leaves of `members` have a leading axis."""

    def close(self) -> None:
        """Free what it holds."""


def summarize(embedding: Embedding, discrete: bool, actions: int, rollout: Rollout) -> tuple:
    """Returns, behaviours, lengths and last observations of a rollout.

    After the end of an episode an embedding sees its last observation, and zeros.
    """
    n, horizon = rollout.mask.shape
    lengths = rollout.mask.sum(axis=1)
    final = rollout.observations[jnp.arange(n), jnp.maximum(lengths - 1, 0)]
    taken = rollout.actions
    if discrete:
        taken = jax.nn.one_hot(taken.astype(int), actions)
    steps = rollout.mask[..., None]
    trajectories = Trajectory(
        observations=jnp.where(steps, rollout.observations, final[:, None]),
        actions=jnp.where(steps, taken, 0),
        resampled=jnp.zeros((n, horizon, 0, actions)),
        values=jnp.zeros((n, horizon)),
        rewards=jnp.where(rollout.mask, rollout.rewards, 0),
        mask=rollout.mask.astype(rollout.rewards.dtype),
    )
    # One after the other: a sum over a batch is rounded otherwise in a batch of another size.
    returns, behaviors = jax.lax.map(
        lambda t: (t.rewards.sum(), jnp.ravel(embedding.fn(t))), trajectories
    )
    return returns, behaviors, lengths, final


def behavior_size(policy: Policy, embedding: Embedding, horizon: int) -> int:
    """d, the length of a behaviour."""
    shape = (1, horizon)
    rollout = Rollout(
        jnp.zeros((*shape, policy.observation_size)),
        jnp.zeros(shape if policy.discrete else (*shape, policy.action_size)),
        jnp.zeros(shape),
        jnp.ones(shape, bool),
    )
    found = jax.eval_shape(
        partial(summarize, embedding, policy.discrete, policy.action_size), rollout
    )
    return found[1].shape[1]


class Rows(NamedTuple):
    """Which members an evaluator runs; the one numbered `center` has no noise on its actions."""

    first: int
    number: int
    center: int

    @property
    def members(self) -> range:
        """Their numbers."""
        return range(self.first, self.first + self.number)

    def array(self) -> Int[Array, " n"]:
        """Their numbers, to be made where they are needed: there may be many."""
        return self.first + jnp.arange(self.number)


def _keys(key: PRNGKeyArray, rows: Rows) -> PRNGKeyArray:
    return jax.vmap(lambda n: jax.random.fold_in(key, n))(rows.array())


def _action_noise(policy: Policy, scale: float, horizon: int, key: PRNGKeyArray) -> Array:
    return scale * jax.random.normal(key, (horizon, policy.action_size))


class JaxEvaluator:
    """An environment of pure functions: all episodes in one compiled call."""

    backend = "jax"

    def __init__(
        self,
        env: JaxEnv,
        rows: Rows,
        policy: Policy,
        embedding: Embedding,
        horizon: int,
        action_noise: float,
        seed: int,
    ):
        self._key = jax.random.fold_in(jax.random.key(seed), EPISODES)
        self._run = _compiled(env, rows, policy, embedding, horizon, action_noise)

    def __call__(self, members: Any, generation: int) -> Episodes:
        """See `Evaluator`."""
        returns, behaviors, lengths, final, path = jax.device_get(
            self._run(members, jax.random.fold_in(self._key, generation))
        )
        return Episodes(returns, behaviors, lengths, final, path[: lengths[-1]])

    def close(self) -> None:
        """Nothing to free."""


@lru_cache(maxsize=8)  # runs that differ in the seed alone share what is compiled
def _compiled(
    env: JaxEnv,
    rows: Rows,
    policy: Policy,
    embedding: Embedding,
    horizon: int,
    action_noise: float,
) -> Callable[[Any, PRNGKeyArray], tuple]:
    def episode(params: Any, key: PRNGKeyArray, noisy: Array) -> Rollout:
        layers = policy.layers(params)
        key_env, key_noise = jax.random.split(key)
        noise = noisy * _action_noise(policy, action_noise, horizon, key_noise)
        state, observation = env.reset(key_env)

        def step(carry: tuple, noise: Array) -> tuple[tuple, Rollout]:
            state, observation, alive = carry
            action = policy.act(layers, observation, noise)
            *following, reward, over = env.step(state, action)
            # After the end of an episode its state stays what it was.
            kept = jax.tree.map(
                lambda new, old: jnp.where(alive, new, old),
                tuple(following),
                (state, observation),
            )
            # What is not finite ends the episode, and makes its return so.
            broken = ~(jnp.isfinite(observation).all() & jnp.isfinite(kept[1]).all())
            record = Rollout(kept[1], action, jnp.where(broken, jnp.nan, reward), alive)
            return (*kept, alive & ~over & ~broken), record

        return jax.lax.scan(step, (state, observation, jnp.array(True)), noise)[1]

    @jax.jit
    def run(members: Any, key: PRNGKeyArray) -> tuple:
        noisy = (rows.array() != rows.center).astype(float)
        rollout = jax.vmap(episode)(members, _keys(key, rows), noisy)
        found = summarize(embedding, policy.discrete, policy.action_size, rollout)
        return *found, rollout.observations[-1]

    return run


class Stepper(Protocol):
    """Environments of a population that take one step together."""

    def reset(self, generation: int) -> np.ndarray:
        """Begin the episodes of a generation; their observations."""

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Observations after the step, rewards, and which episodes are over."""

    def close(self) -> None:
        """Free what it holds."""


class SteppedEvaluator:
    """Environments outside JAX: one batched call of the policies for each step."""

    def __init__(
        self,
        backend: str,
        stepper: Stepper,
        rows: Rows,
        policy: Policy,
        embedding: Embedding,
        horizon: int,
        action_noise: float,
        seed: int,
    ):
        self.backend, self._stepper, self._horizon = backend, stepper, horizon
        self._rows = rows
        self._key = jax.random.fold_in(jax.random.key(seed), EPISODES)
        self._discrete = policy.discrete
        self._layers, self._act, self._noise, self._summarize = _compiled_parts(
            policy, embedding, horizon, action_noise
        )

    def __call__(self, members: Any, generation: int) -> Episodes:
        """See `Evaluator`."""
        number = self._rows.number
        layers = self._layers(members)
        noise = np.array(self._noise(jax.random.fold_in(self._key, generation), self._rows))
        if self._rows.center in self._rows.members:
            noise[self._rows.center - self._rows.first] = 0
        noise = np.ascontiguousarray(noise.swapaxes(0, 1))
        observations = self._stepper.reset(generation)
        shape = (self._horizon, number)
        seen = np.zeros((*shape, observations.shape[1]), np.float32)
        actions = np.zeros(shape if self._discrete else (*shape, noise.shape[2]), np.float32)
        rewards, mask = np.zeros(shape, np.float32), np.zeros(shape, bool)
        alive, broken = np.ones(number, bool), ~np.isfinite(observations).all(axis=1)
        for t in range(self._horizon):
            # What is not finite ends the episode, and makes its return so; no policy sees it.
            known = np.where(np.isfinite(observations), observations, 0)
            action = np.asarray(self._act(layers, known, noise[t]))
            observations, reward, over = self._stepper.step(action)
            broken |= ~np.isfinite(observations).all(axis=1)
            with np.errstate(over="ignore"):  # a reward beyond float32 is infinite
                rewards[t] = np.where(broken, np.nan, reward)
            mask[t], seen[t], actions[t] = alive, observations, action
            alive &= ~over & ~broken
            if not alive.any():
                break
        rows = (jnp.asarray(x.swapaxes(0, 1)) for x in (seen, actions, rewards, mask))
        rollout = Rollout(*rows)
        returns, behaviors, lengths, final = jax.device_get(self._summarize(rollout))
        return Episodes(returns, behaviors, lengths, final, seen[: lengths[-1], -1])

    def close(self) -> None:
        """Stop the environments."""
        self._stepper.close()


@lru_cache(maxsize=8)
def _compiled_parts(
    policy: Policy, embedding: Embedding, horizon: int, action_noise: float
) -> tuple[Any, Any, Any, Any]:
    draw = partial(_action_noise, policy, action_noise, horizon)
    return (
        jax.jit(jax.vmap(policy.layers)),
        jax.jit(jax.vmap(policy.act)),
        jax.jit(lambda key, rows: jax.vmap(draw)(_keys(key, rows)), static_argnums=1),
        jax.jit(partial(summarize, embedding, policy.discrete, policy.action_size)),
    )


class GymStepper:
    """Any Gymnasium environment, a copy for each member."""

    def __init__(self, env_id: str, rows: Rows, seed: int, backend: str):
        if backend == "auto":
            env, _ = find(env_id)
            alone = default_threads() == 1 or why_no_workers(env.spec)
            backend = "gymnasium" if alone else "workers"
            env.close()
        self.backend = backend
        self._env: Any = envs.make(
            env_id,
            rows.number,
            seed,
            backend,  # type: ignore[arg-type]
            offset=rows.first,
        )

    def reset(self, generation: int) -> np.ndarray:
        """See `Stepper`."""
        return self._env.reset(generation)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `Stepper`."""
        step = self._env.step(actions)
        return step.final_observations, step.rewards, step.terminated | step.truncated

    def close(self) -> None:
        """Stop the environments."""
        self._env.close()


class MujocoStepper:
    """A MuJoCo task, stepped in batches on all cores."""

    def __init__(self, task: Any, rows: Rows, seed: int):
        self._batch, self._rows, self._seed = MujocoBatch(task, rows.number), rows, seed

    def reset(self, generation: int) -> np.ndarray:
        """See `Stepper`."""
        return self._batch.reset(
            [episode_seed(self._seed, member, generation) for member in self._rows.members]
        )

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `Stepper`."""
        return self._batch.step(actions)

    def close(self) -> None:
        """Stop the threads."""
        self._batch.close()


def make_evaluator(
    env_id: str,
    policy: Policy,
    embedding: Embedding,
    rows: Rows,
    *,
    horizon: int,
    action_noise: float,
    seed: int,
    backend: str = "auto",
) -> Evaluator:
    """The fastest evaluator that the environment allows, or the one that is asked for.

    An environment says what it allows by attributes of `env.unwrapped`: `jax_env` (a
    `wng.envs.jax_env.JaxEnv`), `mujoco_task` (a `wng.envs.mujoco_batch.MujocoTask`).
    """
    env, _ = find(env_id)
    try:
        pure = getattr(env.unwrapped, "jax_env", None)
        task = getattr(env.unwrapped, "mujoco_task", None)
    finally:
        env.close()
    if backend == "auto":
        backend = "jax" if pure is not None else "mujoco" if task is not None else "auto"
    shared = (rows, policy, embedding, horizon, action_noise, seed)
    if backend == "jax":
        if pure is None:
            raise ValueError(_cannot(env_id, backend, "jax_env"))
        return JaxEvaluator(pure, *shared)
    if backend == "mujoco":
        if task is None:
            raise ValueError(_cannot(env_id, backend, "mujoco_task"))
        return SteppedEvaluator(backend, MujocoStepper(task, rows, seed), *shared)
    stepper = GymStepper(env_id, rows, seed, backend)
    return SteppedEvaluator(stepper.backend, stepper, *shared)


def _cannot(env_id: str, backend: str, attribute: str) -> str:
    return (
        f"'{env_id}' cannot run on backend '{backend}': its environment has no attribute "
        f"'{attribute}'; leave the backend 'auto'."
    )


def map_of(env: gymnasium.Env) -> Any:
    """The map of a wall task, or None."""
    return getattr(env.unwrapped, "map", None)
