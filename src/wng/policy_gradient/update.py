"""The one compiled update that serves every method."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from wng.behavior.embedding import Embedding
from wng.estimator.damping import DampingState
from wng.policy_gradient.advantages import Moments, discounted_returns, gae
from wng.policy_gradient.config import Config
from wng.policy_gradient.geometry import Windows, cut_windows
from wng.policy_gradient.networks import Gaussian, Networks, init_networks
from wng.policy_gradient.proximity import (
    Batch,
    adapted_weight,
    improve_potentials,
    standardized,
    steered,
    surrogate_loss,
)
from wng.policy_gradient.steps import Loop, Steps
from wng.policy_gradient.trust_region import trust_region_step


class Rollout(NamedTuple):
    """What the environments did: [T, n, ...]."""

    observations: Any
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    next_observations: Any  # true successors, also where an episode ended


class TrainState(NamedTuple):
    """Everything that learning remembers; a checkpoint holds just this and the environments'."""

    networks: Networks
    policy_optimizer: Any
    value_optimizer: Any
    damping: DampingState
    penalty: Float[Array, ""]  # weight β of the proximity term
    radius: Float[Array, ""]  # of the trust region
    rate: Float[Array, ""]  # multiple of the learning rate, if it is steered
    observation_moments: Moments
    return_moments: Moments
    discounted: Float[Array, " n"]  # running discounted return of each environment
    skipped: Int[Array, ""]  # steps dropped for a non-finite number
    iteration: Int[Array, ""]


class Learner(Steps):
    """The pure functions of one method on one kind of environment, compiled once."""

    def __init__(self, config: Config, embedding: Embedding, **sizes: Any):
        super().__init__(config, embedding, **sizes)
        self.act = jax.jit(self._act, static_argnames="deterministic")
        self.noise = jax.jit(self._noise)
        self.update = jax.jit(self._update)
        self.init = jax.jit(self._init)

    def _init(self, key: PRNGKeyArray) -> TrainState:
        """The state before the first step."""
        networks = init_networks(
            key,
            self.observation_size,
            self.action_size,
            discrete=self.discrete,
            hidden=self.config.hidden,
            log_std=self.config.log_std,
        )
        return TrainState(
            networks=networks,
            policy_optimizer=self.policy_optimizer.init(networks.policy),
            value_optimizer=self.value_optimizer.init(networks.value),
            damping=self.control.init(),
            penalty=jnp.asarray(self.config.penalty, float),
            radius=jnp.asarray(self.config.radius, float),
            rate=jnp.ones(()),
            observation_moments=Moments.empty(self.observation_size),
            return_moments=Moments.empty(1),
            discounted=jnp.zeros(self.config.num_envs),
            skipped=jnp.zeros((), int),
            iteration=jnp.zeros((), int),
        )

    def _noise(self, key: PRNGKeyArray) -> Array:
        """The randomness of all actions of one iteration: [T, n, a]."""
        steps = self.config.rollout // self.config.num_envs
        shape = (steps, self.config.num_envs, self.action_size)
        return (jax.random.gumbel if self.discrete else jax.random.normal)(key, shape)

    def _act(
        self,
        networks: Networks,
        moments: Moments,
        observations: Array,
        noise: Array,
        deterministic: bool = False,
    ) -> Array:
        """Actions in the given states."""
        policy = networks.policy(self._seen(moments, observations))
        return policy.mode() if deterministic else policy.sample(noise)

    def _seen(self, moments: Moments, observations: Array) -> Array:
        return (
            moments.normalize(observations) if self.config.normalize_observations else observations
        )

    def _update(
        self, state: TrainState, rollout: Rollout, key: PRNGKeyArray
    ) -> tuple[TrainState, dict[str, Array]]:
        """One iteration: advantages, all steps on the batch, adaptation, metrics."""
        config = self.config
        key_loop, key_value, key_step, key_old = jax.random.split(key, 4)
        state, rewards = self._scaled_rewards(state, rollout)
        batch, windows = self._batch(state, rollout, rewards)
        old = self._old_behaviors(state.networks, windows, key_old)

        networks, metrics = state.networks, {}
        radius, damping, skipped = state.radius, state.damping, state.skipped
        epsilon = fallbacks = jnp.zeros(())
        if config.step == "trust_region":
            if old is not None:
                potentials = improve_potentials(config, networks, old, self.behaviors, key_old)
                old = old._replace(potentials=potentials)
            whole = batch._replace(advantages=standardized(batch.advantages))
            loss = self._policy_loss(whole, state.penalty, old, key_step)
            metric = self._metric(networks, whole, self._pick(windows, key_step), key_step)
            result = trust_region_step(
                config, self.control, damping, metric, loss, networks, whole, radius
            )
            networks, radius, damping = result.networks, result.radius, result.damping
            skipped = skipped + ~result.finite
            epsilon, fallbacks = result.epsilon, result.fallback.astype(float)
            metrics = {"radius": radius, "line_search_failed": result.failed.astype(float)}

        loop = Loop(
            networks,
            state.policy_optimizer,
            state.value_optimizer,
            damping,
            None if old is None else old.potentials,
            self._empty_spectrum(networks),
            skipped,
            fallbacks,
            epsilon,
        )
        if config.step == "optimizer":

            def policy_step(loop: Loop, rows: Batch, key: PRNGKeyArray, i: Array) -> Loop:
                return self._policy_step(
                    loop, rows, windows, old, state.penalty, state.rate, key, i
                )

            loop = self._epochs(policy_step, loop, batch, config.epochs, config.minibatch, key_loop)
        if not self.behaviors.shared:
            loop = self._epochs(
                self._value_step,
                loop,
                batch,
                config.value_epochs,
                config.value_minibatch,
                key_value,
            )
        new_policy = loop.networks.policy(batch.observations)
        kl = batch.policy.kl(new_policy).mean()
        values = loop.networks.values(batch.observations)
        metrics |= {
            "kl": kl,
            "entropy": new_policy.entropy().mean(),
            "policy_loss": surrogate_loss(config, loop.networks, batch),
            "value_error": jnp.mean((values - batch.targets) ** 2),
            "explained_variance": 1
            - jnp.var(batch.targets - values) / (jnp.var(batch.targets) + 1e-12),
            "epsilon": loop.epsilon,
            "penalty": state.penalty,
            "rate": state.rate,
            "fallbacks": loop.fallbacks,
            "skipped": loop.skipped,
        }
        if isinstance(batch.policy, Gaussian) and isinstance(new_policy, Gaussian):
            metrics["wasserstein_squared"] = batch.policy.wasserstein_squared(new_policy).mean()
            metrics["std"] = jnp.exp(new_policy.log_std).mean()
        flat = rollout.observations.reshape(-1, self.observation_size)
        return (
            TrainState(
                networks=loop.networks,
                policy_optimizer=loop.policy_optimizer,
                value_optimizer=loop.value_optimizer,
                damping=loop.damping,
                penalty=adapted_weight(config, state.penalty, kl),
                radius=radius,
                rate=jnp.clip(steered(state.rate, kl, config.kl_target), 1e-2, 10)
                if config.steer
                else state.rate,
                observation_moments=state.observation_moments.update(flat),
                return_moments=state.return_moments,
                discounted=state.discounted,
                skipped=loop.skipped,
                iteration=state.iteration + 1,
            ),
            metrics,
        )

    def _scaled_rewards(self, state: TrainState, rollout: Rollout) -> tuple[TrainState, Array]:
        done = rollout.terminated | rollout.truncated
        discounted, returns = discounted_returns(
            state.discounted, rollout.rewards, done, self.config.gamma
        )
        moments = state.return_moments.update(returns.reshape(-1, 1))
        state = state._replace(return_moments=moments, discounted=discounted)
        # One reward that is not finite spoils the whole batch: none of it is learned from.
        rewards = jnp.where(jnp.isfinite(rollout.rewards).all(), rollout.rewards, jnp.nan)
        if not self.config.normalize_rewards:
            return state, rewards
        spread = jnp.sqrt(moments.variance + 1e-8)
        return state, jnp.clip(rewards / spread, -10, 10)

    def _reward_unit(self, state: TrainState) -> Array:
        """The spread of returns, in the units that rewards are learned in."""
        if self.config.normalize_rewards:
            return jnp.ones(())
        return jnp.sqrt(state.return_moments.variance + 1e-8)

    def _batch(self, state: TrainState, rollout: Rollout, rewards: Array) -> tuple[Batch, Windows]:
        config = self.config
        observations = self._seen(state.observation_moments, rollout.observations)
        successors = self._seen(state.observation_moments, rollout.next_observations)
        values = state.networks.values(observations)
        advantages = gae(
            rewards,
            values,
            state.networks.values(successors),
            rollout.terminated,
            rollout.truncated,
            config.gamma,
            config.gae_lambda,
        )
        policy = state.networks.policy(observations)
        log_probs = policy.log_prob(rollout.actions)

        def flat(x: Array) -> Array:
            return x.reshape(config.rollout, *x.shape[2:])

        batch = Batch(
            flat(observations),
            flat(rollout.actions),
            flat(log_probs),
            jax.tree.map(flat, policy),
            flat(advantages / self._reward_unit(state)),
            flat(advantages + values),
        )
        done = rollout.terminated | rollout.truncated
        windows = cut_windows(self.horizon, observations, rollout.actions, log_probs, rewards, done)
        return batch, windows
