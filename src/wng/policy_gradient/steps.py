"""Steps: how a batch is used. This module has epochs of minibatches through an optax optimizer."""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, PRNGKeyArray

from wng.estimator.shuffle import shuffled
from wng.policy_gradient.batch import Batch, Data
from wng.policy_gradient.config import Config
from wng.policy_gradient.networks import Networks
from wng.policy_gradient.problem import Problem

Carry = TypeVar("Carry")
OPTIMIZERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "adam": partial(optax.adam, eps=1e-5),
    "sgd": optax.sgd,
}


class Result(NamedTuple):
    """The networks after a step, the state of the step, and its metrics."""

    networks: Networks
    state: Any
    metrics: dict[str, Array]


class Step(abc.ABC):
    """The base class of steps, which turn a batch into new networks.

    `init` returns the state that the step keeps between iterations, `take` uses a batch, and
    `adapt` updates the state from the KL divergence of the whole iteration.
    """

    joint = False  # whether it can train the value function together with the policy

    @abc.abstractmethod
    def init(self, problem: Problem, networks: Networks) -> Any:
        """The state before the first iteration."""

    @abc.abstractmethod
    def take(
        self, problem: Problem, state: Any, networks: Networks, data: Data, key: PRNGKeyArray
    ) -> Result:
        """Use a batch that `networks` collected.

        Returns:
          The new networks, the new state, and metrics, including 'epsilon' and 'fallbacks'.
        """

    def adapt(self, problem: Problem, state: Any, kl: Array) -> Any:
        """The state for the next iteration, after one that moved the policy by `kl`."""
        return state

    @abc.abstractmethod
    def skipped(self, state: Any) -> Int[Array, ""]:
        """Number of policy steps dropped so far because a number was not finite."""

    def count(self, config: Config) -> int:
        """Number of policy steps in an iteration."""
        return 1


def steered(value: Array, kl: Array, target: float) -> Array:
    """A step length a little shorter after too much KL, a little longer after too little."""
    return value * jnp.where(kl > 1.5 * target, 0.7, jnp.where(kl < target / 1.5, 1.3, 1.0))


def make_optimizer(config: Config, name: str, learning_rate: float) -> optax.GradientTransformation:
    """Clipping and Adam or SGD, on flat parameters: few small kernels instead of some per leaf."""
    clip = optax.clip_by_global_norm(config.max_grad_norm)
    return optax.flatten(optax.chain(clip, OPTIMIZERS[name](learning_rate)))


def if_finite(inner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """`inner`, for gradients that are finite; others leave parameters and state as they are."""
    never = int(np.iinfo(np.int32).max)  # optax would give in after this many
    return optax.with_extra_args_support(optax.apply_if_finite(inner, never))


def count_skipped(optimizer_state: Any) -> Int[Array, ""]:
    """Number of steps that `if_finite` and `scale_by_metric` have dropped."""
    found = [
        value
        for name in ("skipped", "total_notfinite")
        for _, value in optax.tree_utils.tree_get_all_with_path(optimizer_state, name)
    ]
    return sum(found, start=jnp.zeros((), int))


def epochs(
    use: Callable[[Carry, Batch, PRNGKeyArray], Carry],
    carry: Carry,
    batch: Batch,
    number: int,
    minibatch: int,
    key: PRNGKeyArray,
) -> Carry:
    """`number` passes over the batch, in minibatches of a new order each."""
    key_order, key_steps = jax.random.split(key)
    orders = jax.vmap(lambda k: shuffled(k, batch.advantages.shape[0]))(
        jax.random.split(key_order, number)
    )
    index = orders.reshape(-1, minibatch)

    def body(carry: Carry, x: tuple[Array, PRNGKeyArray]) -> tuple[Carry, None]:
        return use(carry, batch.take(x[0]), x[1]), None

    keys = jax.random.split(key_steps, index.shape[0])
    return jax.lax.scan(body, carry, (index, keys))[0]


def value_loss(config: Config, networks: Networks, batch: Batch) -> Array:
    """Weighted squared error of the value function."""
    error = networks.values(batch.observations) - batch.targets
    return config.value_weight * jnp.mean(error**2)


def value_optimizer(config: Config) -> optax.GradientTransformation:
    """The optimizer of the value function."""
    return if_finite(make_optimizer(config, "adam", config.value_learning_rate))


def fit_value(
    config: Config, networks: Networks, state: Any, batch: Batch, key: PRNGKeyArray
) -> tuple[Networks, Any]:
    """Train the value function on its own; the new networks and optimizer state."""
    optimizer = value_optimizer(config)

    def use(carry: tuple[Networks, Any], rows: Batch, _: PRNGKeyArray) -> tuple[Networks, Any]:
        networks, state = carry
        gradient = jax.grad(partial(value_loss, config))(networks, rows).value
        moved, state = optimizer.update(gradient, state)
        value = optax.apply_updates(networks.value, moved)
        return Networks(networks.policy, value), state

    return epochs(use, (networks, state), batch, config.value_epochs, config.value_minibatch, key)


class MinibatchState(NamedTuple):
    """What minibatches remember between iterations."""

    optimizer: Any
    rate: Array  # multiple of the learning rate, where it is steered


class Minibatches(Step):
    """Epochs of minibatches: gradient, geometry, clipping, Adam or SGD, as one optax chain."""

    joint = True

    def optimizer(self, problem: Problem) -> optax.GradientTransformationExtraArgs:
        """The chain: the geometry, then clipping and the optimizer of each network."""
        config = problem.config
        inner = make_optimizer(config, config.optimizer, config.learning_rate)
        if problem.behaviors.joint:
            parts = {
                "policy": inner,
                "value": make_optimizer(config, "adam", config.value_learning_rate),
            }
            labels: Any = Networks("policy", "value")  # type: ignore[arg-type]
            inner = optax.partition(parts, labels)
        return optax.chain(problem.geometry.transform(problem), if_finite(inner))

    def init(self, problem: Problem, networks: Networks) -> MinibatchState:
        """The state before the first iteration."""
        theta = problem.behaviors.parameters(networks)
        return MinibatchState(self.optimizer(problem).init(theta), jnp.ones(()))

    def take(
        self,
        problem: Problem,
        state: MinibatchState,
        networks: Networks,
        data: Data,
        key: PRNGKeyArray,
    ) -> Result:
        """`epochs` passes over the batch."""
        config, behaviors = problem.config, problem.behaviors
        optimizer, joint = self.optimizer(problem), behaviors.joint

        def use(carry: tuple, rows: Batch, key: PRNGKeyArray) -> tuple:
            networks, optimizer_state, prepared = carry
            key_metric, key_pick, key_penalty = jax.random.split(key, 3)
            prepared = problem.proximity.refine(problem, networks, prepared, key_penalty)
            now = data._replace(batch=rows.standardized(), prepared=prepared)

            def loss(theta: Any) -> Array:
                new = behaviors.with_parameters(networks, theta)
                value = value_loss(config, new, rows) if joint else 0.0
                return value + problem.proximity.loss(problem, new, now, key_penalty)

            def metric(theta: Any) -> Any:
                new = behaviors.with_parameters(networks, theta)
                picked = data.windows.pick(problem.num_windows, key_pick)
                return problem.geometry.metric(
                    problem, new, now._replace(windows=picked), key_metric
                )

            theta = behaviors.parameters(networks)
            value, gradient = jax.value_and_grad(loss)(theta)
            # A loss that is not finite drops the step, whatever its gradient is.
            gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(value), g, jnp.nan), gradient)
            moved, optimizer_state = optimizer.update(
                gradient, optimizer_state, theta, metric_fn=metric, value=value, value_fn=loss
            )
            rate = state.rate
            if config.steer:  # stop using the batch once the policy has moved too far
                kl = rows.policy.kl(networks.policy(rows.observations)).mean()
                rate = jnp.where(kl < 1.5 * config.kl_target, rate, 0.0)
            moved_policy = jax.tree.map(lambda x: rate * x, moved.policy if joint else moved)
            moved = Networks(moved_policy, moved.value) if joint else moved_policy
            theta = optax.apply_updates(theta, moved)
            return behaviors.with_parameters(networks, theta), optimizer_state, prepared

        carry = (networks, state.optimizer, data.prepared)
        networks, used, _ = epochs(use, carry, data.batch, config.epochs, config.minibatch, key)
        before, after = (_fallbacks(x) for x in (state.optimizer, used))
        metrics = {
            "epsilon": jnp.asarray(optax.tree_utils.tree_get(used, "epsilon", 0.0)),
            "fallbacks": after - before,
            "rate": state.rate,
        }
        return Result(networks, MinibatchState(used, state.rate), metrics)

    def adapt(self, problem: Problem, state: MinibatchState, kl: Array) -> MinibatchState:
        """Steer the rate, where the configuration says so."""
        config = problem.config
        if not config.steer:
            return state
        return state._replace(rate=jnp.clip(steered(state.rate, kl, config.kl_target), 1e-2, 10))

    def skipped(self, state: MinibatchState) -> Int[Array, ""]:
        """Number of minibatches that were dropped."""
        return count_skipped(state.optimizer)

    def count(self, config: Config) -> int:
        """Number of minibatches in an iteration."""
        return config.epochs * config.rollout // config.minibatch


def _fallbacks(optimizer_state: Any) -> Array:
    return jnp.asarray(optax.tree_utils.tree_get(optimizer_state, "fallbacks", 0), float)


minibatches = Minibatches()
