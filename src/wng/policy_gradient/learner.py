"""The one compiled update that every method uses."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from wng.behavior.embedding import Embedding
from wng.envs.moments import Moments
from wng.policy_gradient.advantages import discounted_returns, gae
from wng.policy_gradient.batch import Batch, Data, Rollout
from wng.policy_gradient.behaviors import Windows, cut_windows
from wng.policy_gradient.config import Config
from wng.policy_gradient.networks import (
    Gaussian,
    Networks,
    Policy,
    action_noise,
    init_networks,
)
from wng.policy_gradient.problem import Axes, Problem, find_axes
from wng.policy_gradient.steps import count_skipped, fit_value, value_optimizer
from wng.runs.settings import numbers_of

MOST_PROGRAMS = 16  # kept for agents that are made later
MOST_ON_HOST = 2**19  # products of a layer; NumPy starts threads of its own at about twice as many


class TrainState(NamedTuple):
    """Everything that learning remembers; a checkpoint holds this and the environments' state."""

    numbers: dict[str, Float[Array, ""]]  # settings that are arguments, not compiled in
    networks: Networks
    step: Any  # what the step remembers, such as its optimizer
    value_optimizer: Any  # None where the step trains the value function too
    penalty: Float[Array, ""]  # weight β of the proximity's penalty
    observation_moments: Moments
    return_moments: Moments
    discounted: Float[Array, " n"]  # running discounted return of each environment
    skipped: Int[Array, ""]  # steps dropped because a number was not finite
    iteration: Int[Array, ""]


class Program:
    """The pure functions of one method on one kind of environment, compiled once.

    `noise`, `update` and `batch` are the compiled forms of `draw_noise`, `one_update` and
    `as_batch`, which are also parts of larger programs, as is `actions`; `actor` gives it to the
    host. Numbers among the settings come from the state, so that programs for other numbers are the
    same program.
    """

    def __init__(self, problem: Problem):
        self.problem, self.config = problem, problem.config
        self._act = jax.jit(self.actions, static_argnums=4)
        self.noise = jax.jit(self.draw_noise)
        self.update = jax.jit(self.one_update)
        self.init = jax.jit(self._init)
        self.batch = jax.jit(self.as_batch)

    def _init(self, key: PRNGKeyArray, numbers: dict[str, Array]) -> TrainState:
        """The state before the first iteration."""
        numbers = {name: jnp.asarray(x, float) for name, x in numbers.items()}
        problem = self.problem.at(numbers)
        config = problem.config
        networks = init_networks(
            key,
            problem.observation_size,
            problem.action_size,
            discrete=problem.discrete,
            hidden=config.hidden,
            log_std=config.log_std,
        )
        alone = not problem.behaviors.joint
        return TrainState(
            numbers=numbers,
            networks=networks,
            step=problem.step.init(problem, networks),
            value_optimizer=value_optimizer(config).init(networks.value) if alone else None,
            penalty=jnp.asarray(config.penalty, float),
            observation_moments=Moments.empty(problem.observation_size),
            return_moments=Moments.empty(1),
            discounted=jnp.zeros(config.num_envs),
            skipped=jnp.zeros((), int),
            iteration=jnp.zeros((), int),
        )

    def draw_noise(self, key: PRNGKeyArray) -> Array:
        """The randomness of all actions of one iteration: [T, n, a]."""
        steps = self.config.rollout // self.config.num_envs
        shape = (steps, self.config.num_envs, self.problem.action_size)
        return action_noise(self.problem.discrete, key, shape)

    def actions(
        self,
        policy: Policy,
        moments: Moments,
        observations: Any,
        noise: Any,
        deterministic: bool = False,
    ) -> Any:
        """Actions in the given states, in NumPy if all arrays are NumPy's."""
        chosen = policy(self._seen(moments, observations))
        return chosen.mode() if deterministic else chosen.sample(noise)

    def actor(self, state: TrainState, deterministic: bool = False) -> Callable[..., np.ndarray]:
        """Make the function (observations, noise) ↦ actions, for many calls on the host.

        On a few states at a time, NumPy is several times as fast as a compiled program, and wakes
        no threads that would compete with the environments'.
        """
        acting = state.networks.policy, state.observation_moments
        policy, moments = host = jax.tree.map(np.asarray, acting)
        widest = max(weight.size for weight in policy.net.weights)

        def act(observations: np.ndarray, noise: np.ndarray) -> np.ndarray:
            if observations.size // observations.shape[-1] * widest > MOST_ON_HOST:
                return np.asarray(self._act(*host, observations, noise, deterministic))
            with np.errstate(all="ignore"):  # what is not finite is noticed where it matters
                return self.actions(policy, moments, observations, noise, deterministic)

        return act

    def _seen(self, moments: Moments, observations: Array) -> Array:
        normalize = self.config.normalize_observations
        return moments.normalize(observations) if normalize else observations

    def one_update(
        self, state: TrainState, rollout: Rollout, key: PRNGKeyArray
    ) -> tuple[TrainState, dict[str, Array]]:
        """One iteration: advantages, the step, the value function, adaptation, metrics."""
        problem = self.problem.at(state.numbers)
        config = problem.config
        key_minibatches, key_value, key_region, key_prepare = jax.random.split(key, 4)
        state, batch, windows, compared = self.as_batch(state, rollout)
        prepared = problem.proximity.prepare(problem, state.networks, compared, key_prepare)
        data = Data(batch, windows, prepared, state.penalty)
        # Each kind of step has a key of its own.
        key_step = key_minibatches if problem.step.joint else key_region
        networks, step_state, metrics = problem.step.take(
            problem, state.step, state.networks, data, key_step
        )
        value_state = state.value_optimizer
        if value_state is not None:
            networks, value_state = fit_value(config, networks, value_state, batch, key_value)
        skipped = problem.step.skipped(step_state) + count_skipped(value_state)
        policy = networks.policy(batch.observations)
        kl = batch.policy.kl(policy).mean()
        values = networks.values(batch.observations)
        residual = jnp.var(batch.targets - values) / (jnp.var(batch.targets) + 1e-12)
        metrics |= {
            "kl": kl,
            "entropy": policy.entropy().mean(),
            "policy_loss": problem.proximity.surrogate(config, networks, batch),
            "value_error": jnp.mean((values - batch.targets) ** 2),
            "explained_variance": 1 - residual,
            "penalty": state.penalty,
            "skipped": skipped,
        }
        if isinstance(batch.policy, Gaussian) and isinstance(policy, Gaussian):
            metrics["wasserstein_squared"] = batch.policy.wasserstein_squared(policy).mean()
            metrics["std"] = jnp.exp(policy.log_std).mean()
        flat = rollout.observations.reshape(-1, problem.observation_size)
        new = state._replace(
            networks=networks,
            step=problem.step.adapt(problem, step_state, kl),
            value_optimizer=value_state,
            penalty=problem.proximity.adapt(config, state.penalty, kl),
            observation_moments=state.observation_moments.update(flat),
            skipped=skipped,
            iteration=state.iteration + 1,
        )
        return new, metrics

    def as_batch(
        self, state: TrainState, rollout: Rollout
    ) -> tuple[TrainState, Batch, Windows, Windows]:
        """The state with new return moments, and the rollout as a batch and as windows.

        The first windows are for the metric, the others for the proximity.
        """
        config = self.problem.at(state.numbers).config
        state, rewards = self._scaled_rewards(state, rollout, config.gamma)
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
            flat(advantages if config.normalize_rewards else advantages / self._spread(state)),
            flat(advantages + values),
        )
        done = rollout.terminated | rollout.truncated
        parts = (observations, successors, rollout.actions, log_probs, rewards, done)
        windows, compared = (
            cut_windows(behaviors.horizon, *parts)
            for behaviors in (self.problem.behaviors, self.problem.penalty_behaviors)
        )
        return state, batch, windows, compared

    def _scaled_rewards(
        self, state: TrainState, rollout: Rollout, gamma: float
    ) -> tuple[TrainState, Array]:
        done = rollout.terminated | rollout.truncated
        discounted, returns = discounted_returns(state.discounted, rollout.rewards, done, gamma)
        moments = state.return_moments.update(returns.reshape(-1, 1))
        state = state._replace(return_moments=moments, discounted=discounted)
        # One reward that is not finite spoils the whole batch: nothing is learned from it.
        rewards = jnp.where(jnp.isfinite(rollout.rewards).all(), rollout.rewards, jnp.nan)
        if not self.config.normalize_rewards:
            return state, rewards
        return state, jnp.clip(rewards / self._spread(state), -10, 10)

    def _spread(self, state: TrainState) -> Array:
        """The spread of discounted returns."""
        return jnp.sqrt(state.return_moments.variance + 1e-8)


class Learner:
    """One method with all its settings: its `problem`, and the `program` that it shares."""

    def __init__(
        self, config: Config, embedding: Embedding, axes: Axes | None = None, **sizes: Any
    ):
        axes = axes or find_axes(config)
        self.config, self.problem = config, Problem(config, embedding, axes=axes, **sizes)
        key = (self.problem.shape, embedding, axes, *sorted(sizes.items()))
        self.program = program = _shared_program(self.problem, key)
        self.actor, self.noise = program.actor, program.noise
        self.update, self.batch = program.update, program.batch

    def init(self, key: PRNGKeyArray) -> TrainState:
        """The state before the first iteration."""
        return self.program.init(key, numbers_of(self.config))


_programs: dict[Hashable, Program] = {}  # the latest last


def _shared_program(problem: Problem, key: Hashable) -> Program:
    """The program of a problem, or of one with the same `key`, which differs in numbers alone."""
    _programs[key] = found = _programs.pop(key, None) or Program(problem)
    if len(_programs) > MOST_PROGRAMS:
        _programs.pop(next(iter(_programs)), None)
    return found
