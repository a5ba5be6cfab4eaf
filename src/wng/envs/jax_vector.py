"""Vector environments inside a compiled program: n JAX environments as one state."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from wng.envs.base import EnvSpec
from wng.envs.jax_env import JaxEnv, State
from wng.estimator.branching import cond_any


class JaxEnvs(NamedTuple):
    """The present state of n environments, all that is needed to continue."""

    states: State  # leaves [n, ...]
    observations: Float[Array, "n d"]
    episodes: Int[Array, " n"]  # numbers of the current episodes
    steps: Int[Array, " n"]  # taken in them so far
    returns: Float[Array, " n"]  # sums of rewards so far


class JaxTransition(NamedTuple):
    """One step of all environments; see `wng.envs.Transition`."""

    rewards: Float[Array, " n"]
    terminated: Bool[Array, " n"]
    truncated: Bool[Array, " n"]  # false where terminated
    final_observations: Float[Array, "n d"]  # before any reset
    episode_returns: Float[Array, " n"]  # NaN unless an episode ended
    episode_lengths: Int[Array, " n"]  # 0 unless an episode ended


@dataclass(frozen=True)
class JaxVector:
    """Copies of an environment that step together and reset themselves, as pure functions.

    The randomness of an episode derives from the key, the index of the environment and the number
    of the episode.
    """

    env: JaxEnv
    spec: EnvSpec

    def begin(self, key: PRNGKeyArray, number: int) -> JaxEnvs:
        """Start the first episode in each of `number` environments."""
        nothing = jnp.zeros(number, jnp.int32)
        states, observations = self._start(key, nothing)
        return JaxEnvs(states, observations, nothing, nothing, jnp.zeros(number, jnp.float32))

    def step(
        self, key: PRNGKeyArray, envs: JaxEnvs, actions: Array
    ) -> tuple[JaxEnvs, JaxTransition]:
        """Step all environments; where an episode ends, start the next one in the same call."""
        keys = jax.vmap(jax.random.fold_in)(_episode_keys(key, envs.episodes), envs.steps + 1)
        states, final, rewards, terminated, truncated = jax.vmap(self.step_one)(
            keys, envs.states, actions
        )
        steps, returns = envs.steps + 1, envs.returns + rewards
        if self.env.max_episode_steps is not None:
            truncated |= steps >= self.env.max_episode_steps
        ended = terminated | truncated
        episodes = envs.episodes + ended

        def restart() -> Any:
            def choose(new: Array, old: Array) -> Array:
                return jnp.where(ended.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

            return jax.tree.map(choose, self._start(key, episodes), (states, final))

        # Resets can be expensive, so nothing is reset while no episode ends.
        states, observations = cond_any(ended.any(), restart, lambda: (states, final))
        after = JaxEnvs(
            states, observations, episodes, jnp.where(ended, 0, steps), jnp.where(ended, 0, returns)
        )
        lengths = jnp.where(ended, steps, 0)
        return after, JaxTransition(
            rewards,
            terminated,
            truncated & ~terminated,
            final,
            jnp.where(ended, returns, jnp.nan),
            lengths,
        )

    def reset_one(self, key: PRNGKeyArray) -> tuple[State, Float[Array, " d"]]:
        """Start an episode of one environment; its observation is flat."""
        state, observation = self.env.reset(key)
        # Arrays without weak types: those after a step would have others, and compile again.
        return jax.tree.map(_strong, state), _flat(observation)

    def step_one(
        self, key: PRNGKeyArray, state: State, action: Array
    ) -> tuple[State, Float[Array, " d"], Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Step one environment with an action as in `VectorEnv.step`; its observation is flat."""
        spec = self.spec
        if spec.discrete:
            taken = action + spec.action_start
        else:
            low, high = jnp.asarray(spec.action_low), jnp.asarray(spec.action_high)
            taken = jnp.clip(action, low, high).reshape(spec.action_shape)
        copied = jax.tree.map(lambda leaf: leaf, state)  # brax changes dictionaries in its argument
        after, observation, reward, terminated, truncated = self.env.step(key, copied, taken)
        after = jax.tree.map(_as, after, state)  # a scan needs the types that `reset` returned
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        terminated, truncated = (jnp.asarray(x, bool).reshape(()) for x in (terminated, truncated))
        return after, _flat(observation), reward, terminated, truncated

    def _start(self, key: PRNGKeyArray, episodes: Int[Array, " n"]) -> tuple[State, Array]:
        keys = jax.vmap(lambda k: jax.random.fold_in(k, 0))(_episode_keys(key, episodes))
        return jax.vmap(self.reset_one)(keys)


def _episode_keys(key: PRNGKeyArray, episodes: Int[Array, " n"]) -> PRNGKeyArray:
    def fold(index: Array, episode: Array) -> PRNGKeyArray:
        return jax.random.fold_in(jax.random.fold_in(key, index), episode)

    return jax.vmap(fold)(jnp.arange(episodes.shape[0]), episodes)


def _strong(leaf: Any) -> Any:
    leaf = jnp.asarray(leaf)
    typed_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf if typed_key else jax.lax.convert_element_type(leaf, leaf.dtype)


def _as(new: Any, old: Any) -> Any:
    new = jnp.asarray(new)
    return new if new.dtype == old.dtype else new.astype(old.dtype)


def _flat(observation: Any) -> Float[Array, " d"]:
    return jnp.ravel(jnp.asarray(observation, jnp.float32))
