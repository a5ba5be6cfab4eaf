"""The one compiled update that serves every method."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from wng.behavior.distance import Potentials, random_features, squared_distances
from wng.behavior.embedding import Embedding
from wng.estimator.damping import Damping, DampingState
from wng.estimator.metric import LowRank
from wng.estimator.transform import Metric, precondition
from wng.policy_gradient.advantages import Moments, discounted_returns, gae
from wng.policy_gradient.config import Config
from wng.policy_gradient.geometry import (
    Behaviors,
    OutputMetric,
    Windows,
    cut_windows,
    kernel_metric,
)
from wng.policy_gradient.networks import Gaussian, Networks, init_networks
from wng.policy_gradient.proximity import (
    Batch,
    OldBehaviors,
    adapted_weight,
    improve_potentials,
    penalty,
    standardized,
    steered,
    surrogate_loss,
)
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


class Loop(NamedTuple):
    """What one minibatch hands to the next."""

    networks: Networks
    policy_optimizer: Any
    value_optimizer: Any
    damping: DampingState
    potentials: Potentials | None
    spectrum: LowRank | None
    skipped: Array
    fallbacks: Array
    epsilon: Array


class Learner:
    """The pure functions of one method on one kind of environment, compiled once."""

    def __init__(
        self,
        config: Config,
        embedding: Embedding,
        *,
        observation_size: int,
        action_size: int,
        discrete: bool,
    ):
        self.config, self.embedding = config, embedding
        self.observation_size, self.action_size = observation_size, action_size
        self.discrete = discrete
        if config.geometry == "wasserstein-exact" and discrete:
            raise ValueError(
                "geometry=wasserstein-exact is the closed form for Gaussian policies and needs "
                "continuous actions: use --geometry wasserstein."
            )
        self.behaviors = Behaviors(embedding, config, discrete, action_size)
        self.horizon = config.horizon if embedding.whole else 1
        steps = config.rollout // config.num_envs
        if self.horizon > steps:
            raise ValueError(
                f"horizon={config.horizon} is longer than the {steps} steps that each of the "
                f"{config.num_envs} environments takes in an iteration: lower horizon or num_envs."
            )
        self.num_windows = steps // self.horizon * config.num_envs
        self.control = Damping(
            config.damping,
            relative=config.relative_damping,
            every=config.adapt_damping,
            step_size=config.learning_rate,
        )
        clip = optax.clip_by_global_norm(config.max_grad_norm)
        adam = partial(optax.adam, eps=1e-5)
        chosen = adam if config.optimizer == "adam" else optax.sgd
        self.policy_optimizer = optax.chain(clip, chosen(config.learning_rate))
        self.value_optimizer = optax.chain(clip, adam(config.value_learning_rate))
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
                return self._policy_step(loop, rows, windows, old, state, key, i)

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
                rate=jnp.clip(steered(state.rate, kl, config.kl_target), 1e-4, 1e4)
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
        if not self.config.normalize_rewards:
            return state, rollout.rewards
        scale = jnp.sqrt(moments.variance + 1e-8)
        return state, jnp.clip(rollout.rewards / scale, -10, 10)

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
            flat(advantages),
            flat(advantages + values),
        )
        done = rollout.terminated | rollout.truncated
        windows = cut_windows(self.horizon, observations, rollout.actions, log_probs, rewards, done)
        return batch, windows

    def _pick(self, windows: Windows, key: PRNGKeyArray) -> Windows:
        """As many windows at random as the metric is estimated from."""
        number = min(self.config.metric_samples, self.num_windows)
        return windows.take(jax.random.permutation(key, self.num_windows)[:number])

    def _old_behaviors(
        self, networks: Networks, windows: Windows, key: PRNGKeyArray
    ) -> OldBehaviors | None:
        config = self.config
        if config.proximity != "wasserstein":
            return None
        key_pick, key_embed, key_features = jax.random.split(key, 3)
        number = min(config.dual_samples, self.num_windows)
        # A set of windows for each minibatch would be closer to the letter; one set an iteration
        # keeps the test functions, which carry over, on the same ground.
        picked = windows.take(jax.random.permutation(key_pick, self.num_windows)[:number])
        samples = self.behaviors.embed(networks, picked, key_embed)
        spread = jnp.sqrt(squared_distances(samples, samples).mean() + 1e-12)
        features = random_features(
            key_features, samples.shape[1], config.dual_features, config.dual_bandwidth * spread
        )
        zeros = jnp.zeros(config.dual_features)
        return OldBehaviors(picked, samples, features, Potentials(zeros, zeros))

    def _policy_loss(
        self, batch: Batch, weight: Array, old: OldBehaviors | None, key: PRNGKeyArray
    ) -> Callable[[Networks], Array]:
        def loss(networks: Networks) -> Array:
            return surrogate_loss(self.config, networks, batch) + penalty(
                self.config, networks, batch, weight, old, self.behaviors, key
            )

        return loss

    def _metric(
        self, networks: Networks, batch: Batch, windows: Windows, key: PRNGKeyArray
    ) -> Metric | None:
        """The geometry at `networks`; None for the Euclidean one."""
        config = self.config
        if config.geometry == "euclidean":
            return None
        if config.geometry == "wasserstein":
            return kernel_metric(self.behaviors, config, networks, windows, key)
        fisher = config.geometry == "fisher"
        return OutputMetric(networks, batch.observations, fisher, config.cg_iterations)

    def _empty_spectrum(self, networks: Networks) -> LowRank | None:
        config = self.config
        if config.geometry != "wasserstein" or config.step == "trust_region":
            return None
        flat, _ = ravel_pytree(networks if self.behaviors.shared else networks.policy)
        samples = min(config.metric_samples, self.num_windows)
        number = min(config.num_basis, samples)
        return LowRank.empty(flat.size, number, flat.dtype, rescale=config.rescale)

    def _epochs(
        self,
        step: Callable[[Loop, Batch, PRNGKeyArray, Array], Loop],
        loop: Loop,
        batch: Batch,
        epochs: int,
        minibatch: int,
        key: PRNGKeyArray,
    ) -> Loop:
        """`epochs` passes over the batch, in minibatches of a new order each."""
        key_order, key_steps = jax.random.split(key)
        orders = jax.vmap(lambda k: jax.random.permutation(k, self.config.rollout))(
            jax.random.split(key_order, epochs)
        )
        index = orders.reshape(-1, minibatch)
        number = index.shape[0]

        def body(loop: Loop, x: tuple[Array, PRNGKeyArray, Array]) -> tuple[Loop, None]:
            index, key, i = x
            return step(loop, batch.take(index), key, i), None

        xs = (index, jax.random.split(key_steps, number), jnp.arange(number))
        return jax.lax.scan(body, loop, xs)[0]

    def _value_loss(self, networks: Networks, batch: Batch) -> Array:
        error = networks.values(batch.observations) - batch.targets
        return self.config.value_weight * jnp.mean(error**2)

    def _value_step(self, loop: Loop, batch: Batch, key: PRNGKeyArray, i: Array) -> Loop:
        gradient = jax.grad(self._value_loss)(loop.networks, batch).value
        return self._apply(loop, None, gradient, jnp.ones(()), jnp.array(True))

    def _policy_step(
        self,
        loop: Loop,
        batch: Batch,
        windows: Windows,
        old: OldBehaviors | None,
        state: TrainState,
        key: PRNGKeyArray,
        i: Array,
    ) -> Loop:
        """One minibatch of step=optimizer: loss, gradient, geometry, optimiser."""
        config, networks, shared = self.config, loop.networks, self.behaviors.shared
        key_metric, key_pick, key_dual = jax.random.split(key, 3)
        batch = batch._replace(advantages=standardized(batch.advantages))
        if old is not None and loop.potentials is not None:
            old = old._replace(potentials=loop.potentials)
            potentials = improve_potentials(config, networks, old, self.behaviors, key_dual)
            old = old._replace(potentials=potentials)
            loop = loop._replace(potentials=potentials)
        policy_loss = self._policy_loss(batch, state.penalty, old, key_dual)

        def loss(theta: Any) -> Array:
            networks = self.behaviors.with_parameters(loop.networks, theta)
            value = self._value_loss(networks, batch) if shared else 0.0
            return policy_loss(networks) + value

        theta = networks if shared else networks.policy
        value, gradient = jax.value_and_grad(loss)(theta)
        finite = jnp.isfinite(value)
        if config.geometry != "euclidean":
            g, unravel = ravel_pytree(gradient)
            if config.geometry == "wasserstein":
                spectrum = jax.lax.cond(
                    i % config.refresh_every == 0,
                    lambda: kernel_metric(
                        self.behaviors, config, networks, self._pick(windows, key_pick), key_metric
                    ),
                    lambda: loop.spectrum,
                )
                loop = loop._replace(spectrum=spectrum)
                metric: Any = spectrum
            else:
                metric = self._metric(networks, batch, windows, key_metric)

            def loss_after(natural: Array) -> Array:
                step = unravel(config.learning_rate * natural)
                return loss(jax.tree.map(lambda x, d: x - d, theta, step))

            result = precondition(
                self.control,
                loop.damping,
                metric,
                g,
                value=value,
                loss_after=loss_after if config.adapt_damping else None,
            )
            gradient = unravel(result.direction)
            finite &= result.finite
            loop = loop._replace(
                damping=result.damping,
                epsilon=result.epsilon,
                fallbacks=loop.fallbacks + result.fallback,
            )
        if shared:
            return self._apply(loop, gradient.policy, gradient.value, state.rate, finite)
        return self._apply(loop, gradient, None, state.rate, finite)

    def _apply(self, loop: Loop, policy: Any, value: Any, rate: Array, finite: Array) -> Loop:
        """An optimiser step, or none where a number is not finite."""
        networks = loop.networks
        total = sum(jnp.sum(x) for x in jax.tree.leaves((policy, value)))
        finite &= jnp.isfinite(total)

        def keep(new: Any, old: Any) -> Any:
            return jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)

        new_policy, policy_optimizer = networks.policy, loop.policy_optimizer
        new_value, value_optimizer = networks.value, loop.value_optimizer
        if policy is not None:
            moved, policy_optimizer = self.policy_optimizer.update(policy, policy_optimizer)
            moved = jax.tree.map(lambda x: rate * x, moved)
            new_policy = optax.apply_updates(new_policy, moved)
        if value is not None:
            moved, value_optimizer = self.value_optimizer.update(value, value_optimizer)
            new_value = optax.apply_updates(new_value, moved)
        kept = keep(
            (new_policy, new_value, policy_optimizer, value_optimizer),
            (networks.policy, networks.value, loop.policy_optimizer, loop.value_optimizer),
        )
        return loop._replace(
            networks=Networks(kept[0], kept[1]),
            policy_optimizer=kept[2],
            value_optimizer=kept[3],
            skipped=loop.skipped + ~finite,
        )
