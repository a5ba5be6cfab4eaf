"""Iterations in JAX environments: rollout and update are one compiled call."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from wng.envs.jax_vector import JaxEnvs, JaxVector
from wng.policy_gradient.batch import Rollout
from wng.policy_gradient.learner import Program, TrainState
from wng.policy_gradient.rollouts import Ended, Iteration, not_finite
from wng.runs.trees import restore_tree, save_tree


class Outcome(NamedTuple):
    """What the host needs to know of a rollout: [T, n] each."""

    returns: Float[Array, "T n"]  # NaN unless an episode ended
    lengths: Int[Array, "T n"]
    bad_rewards: Bool[Array, "T n"]  # not finite
    bad_observations: Bool[Array, "T n"]


class WholeProgram:
    """The compiled functions of a program in one JAX environment."""

    def __init__(self, learning: Program, vector: JaxVector):
        self._learning, self._vector = learning, vector
        self.begin = jax.jit(self._begin)
        self.collect = jax.jit(self._collect)
        self.iterate = jax.jit(self._iterate)
        self.iterate_block = jax.jit(jax.vmap(self._iterate))

    def _begin(self, key: PRNGKeyArray) -> JaxEnvs:
        return self._vector.begin(key, self._learning.config.num_envs)

    def _collect(
        self, state: TrainState, at: JaxEnvs, key_env: PRNGKeyArray, key: PRNGKeyArray
    ) -> tuple[Rollout, JaxEnvs, Outcome]:
        learning, vector = self._learning, self._vector
        policy, moments = state.networks.policy, state.observation_moments

        def step(at: JaxEnvs, noise: Array) -> tuple[JaxEnvs, tuple[Rollout, Outcome]]:
            seen = at.observations
            actions = learning.actions(policy, moments, seen, noise)
            at, now = vector.step(key_env, at, actions)
            rollout = Rollout(
                seen, actions, now.rewards, now.terminated, now.truncated, now.final_observations
            )
            shown = jnp.stack([seen, now.final_observations, at.observations])
            bad = ~jnp.isfinite(now.rewards), ~jnp.isfinite(shown).all(axis=(0, 2))
            return at, (rollout, Outcome(now.episode_returns, now.episode_lengths, *bad))

        after, (rollout, outcome) = jax.lax.scan(step, at, learning.draw_noise(key))
        return rollout, after, outcome

    def _iterate(
        self, state: TrainState, at: JaxEnvs, key_env: PRNGKeyArray, keys: tuple[Any, Any]
    ) -> tuple[TrainState, JaxEnvs, dict[str, Array], Outcome]:
        key_actions, key_update = keys
        rollout, after, outcome = self._collect(state, at, key_env, key_actions)
        state, metrics = self._learning.one_update(state, rollout, key_update)
        return state, after, metrics, outcome


@lru_cache(maxsize=8)
def whole_program(learning: Program, vector: JaxVector) -> WholeProgram:
    """Runs that differ in the seed or in numbers share what is compiled."""
    return WholeProgram(learning, vector)


class CompiledRollouts:
    """JAX environments inside the compiled program. Where they stand is a `JaxEnvs`."""

    backend = "jax"

    def __init__(self, vector: JaxVector, learning: Program, key: PRNGKeyArray):
        self._vector, self.key = vector, key
        self.program = whole_program(learning, vector)
        self._start = self.program.begin(key)

    def start(self) -> JaxEnvs:
        """Where the environments stand before the first iteration."""
        return self._start

    def iterate(
        self, state: TrainState, at: JaxEnvs, keys: tuple[Any, Any], start: int
    ) -> Iteration:
        """A rollout and an update, with a key for each. Errors count steps from `start`."""
        state, after, metrics, outcome = self.program.iterate(state, at, self.key, keys)
        ended = self.ended(jax.device_get(outcome), start)
        return Iteration(state, after, metrics, ended, np.nan, np.nan)

    def collect(
        self, state: TrainState, at: JaxEnvs, key: Any, start: int
    ) -> tuple[Rollout, JaxEnvs]:
        """A rollout without learning, and where the environments stand after it."""
        rollout, after, outcome = self.program.collect(state, at, self.key, key)
        self.ended(jax.device_get(outcome), start)
        return rollout, after

    def go_to(self, state: TrainState, at: JaxEnvs) -> tuple[TrainState, JaxEnvs, str | None]:
        """Nothing to do: the environments stand wherever they are told."""
        return state, at, None

    def save(self, at: JaxEnvs) -> dict[str, np.ndarray]:
        """Where the environments stand, as named arrays."""
        return save_tree(jax.tree.map(_without_keys, at))

    def load(self, arrays: dict[str, np.ndarray]) -> JaxEnvs:
        """The inverse of `save`."""
        like = jax.tree.map(_without_keys, self._start)
        return jax.tree.map(_as_key, restore_tree(like, arrays), self._start)

    def close(self) -> None:
        """Nothing to stop."""

    def ended(self, found: Outcome, start: int) -> Ended:
        """The episodes that ended, with `found` on the host; an error if one is not finite."""
        bad = found.bad_rewards | found.bad_observations
        if bad.any():
            index = int(np.argmax(bad.ravel()))
            what = "a reward" if found.bad_rewards.ravel()[index] else "an observation"
            number = bad.shape[1]
            raise not_finite(self._vector.spec.id, index % number, what, start + index)
        over = found.lengths > 0
        return Ended(found.returns[over].tolist(), found.lengths[over].tolist())


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_keys(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _as_key(leaf: Any, like: Any) -> Any:
    return jax.random.wrap_key_data(leaf) if _is_key(like) else leaf
