"""What is done with a batch: minibatches, the loss, the geometry, the optimisers."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray

from wng.behavior.distance import Potentials, random_features, squared_distances
from wng.behavior.embedding import Embedding
from wng.estimator.damping import Damping, DampingState
from wng.estimator.metric import LowRank
from wng.estimator.transform import Metric, precondition
from wng.policy_gradient.config import Config
from wng.policy_gradient.geometry import Behaviors, OutputMetric, Windows, kernel_metric
from wng.policy_gradient.networks import Networks
from wng.policy_gradient.proximity import (
    Batch,
    OldBehaviors,
    improve_potentials,
    penalty,
    standardized,
    surrogate_loss,
)


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


class Steps:
    """The steps of one method on one kind of environment; `Learner` puts them in order."""

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
        weight: Array,
        rate: Array,
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
        policy_loss = self._policy_loss(batch, weight, old, key_dual)

        def loss(theta: Any) -> Array:
            networks = self.behaviors.with_parameters(loop.networks, theta)
            value = self._value_loss(networks, batch) if shared else 0.0
            return policy_loss(networks) + value

        theta = networks if shared else networks.policy
        value, gradient = jax.value_and_grad(loss)(theta)
        finite = jnp.isfinite(value)
        if config.geometry != "euclidean":
            g, unravel = ravel_pytree(gradient)

            def fresh() -> Any:
                return self._metric(networks, batch, self._pick(windows, key_pick), key_metric)

            if loop.spectrum is None:
                metric = fresh()
            else:  # kept from one minibatch to the next
                renew = i % config.refresh_every == 0
                metric = jax.lax.cond(renew, fresh, lambda: loop.spectrum)
                loop = loop._replace(spectrum=metric)

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
        if config.steer:  # the batch has been used up: do not go on from too far away
            kl = batch.policy.kl(networks.policy(batch.observations)).mean()
            rate = jnp.where(kl < 1.5 * config.kl_target, rate, 0.0)
        if shared:
            return self._apply(loop, gradient.policy, gradient.value, rate, finite)
        return self._apply(loop, gradient, None, rate, finite)

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
