"""Collecting rollouts and learning from them, one iteration at a time."""

import dataclasses
import time
from collections import deque
from functools import lru_cache
from operator import mul
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wng import envs
from wng.behavior.embedding import Embedding, as_embedding, find_embedding
from wng.estimator.checks import check_memory
from wng.policy_gradient.config import Config
from wng.policy_gradient.proximity import Batch, standardized
from wng.policy_gradient.update import Learner, Rollout, TrainState
from wng.runs.checkpoint import check_info
from wng.runs.training import NonFiniteError
from wng.runs.trees import check_kinds, restore_tree, save_tree

RECENT = 100  # episodes in the running mean of the return
FRUITLESS = 3  # iterations in a row without a policy step before training stops
LARGEST = float(np.finfo(np.float32).max)

# Agents that differ in the seed or the environment alone share what is compiled.
shared_learner = lru_cache(maxsize=8)(Learner)


class Trainer:
    """Environments and learner of one run. All that it remembers fits in a checkpoint.

    All randomness comes from keys folded with (iteration, purpose), so that an iteration depends
    on the state before it and on nothing else.
    """

    def __init__(self, env: str, config: Config, seed: int, embedding: Any = None):
        if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:  # what JAX keys hold
            raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1}, got {seed!r}.")
        self.config, self.seed = config, int(seed)
        chosen: Embedding = (
            find_embedding(config.embedding) if embedding is None else as_embedding(embedding)
        )
        spec = envs.check_env(env, config.backend)
        widths = [spec.observation_size, *config.hidden, spec.action_size]
        # Policy, value function, and the two moments of Adam, which the latter always has.
        weights = 4 * sum(map(mul, widths, widths[1:-1]))
        check_memory(f"networks with hidden={config.hidden}", weights)
        self.learner = shared_learner(
            # Where environments run is nothing to the learner; a list cannot be looked up.
            dataclasses.replace(config, backend="auto", hidden=tuple(config.hidden)),
            chosen,
            observation_size=spec.observation_size,
            action_size=spec.action_size,
            discrete=spec.discrete,
        )
        self.env = envs.make(env, config.num_envs, seed, config.backend)
        try:
            self.state = self.initial_state()
            self.observations = self.env.reset()
        except BaseException:
            self.env.close()
            raise
        self.iteration = self.episodes = self.fruitless = 0
        self.recent: deque[float] = deque(maxlen=RECENT)
        # A checkpoint is of the last whole iteration, also after one that was broken off.
        self._boundary = self.env.state()
        self._torn = False

    horizon = None  # of an episode: the environment's own limit

    @property
    def spec(self) -> envs.EnvSpec:
        """The environment's description."""
        return self.env.spec

    def initial_state(self) -> TrainState:
        """The state before any learning; it depends on the seed alone."""
        return self.learner.init(self._key("networks", 0))

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self.iteration * self.config.rollout

    def check_memory(self) -> None:
        """Raise if a rollout cannot fit: observations before and after each step."""
        config = self.config
        check_memory(
            f"a rollout of {config.rollout}", 2 * config.rollout * self.spec.observation_size
        )
        if config.proximity == "wasserstein":
            features = config.dual_features * config.dual_samples
            check_memory(f"dual_features={config.dual_features} of dual_samples", features)

    def iterate(self) -> dict[str, float]:
        """One iteration: a rollout, an update. Returns its row of metrics."""
        if self._torn:
            self._restore_env(self._boundary)
        self._torn = True
        start = time.perf_counter()
        rollout, returns, lengths, env_seconds = self._collect(self._key("actions"))
        collected = time.perf_counter()
        state, metrics = self.learner.update(self.state, rollout, self._key("update"))
        numbers = {name: float(value) for name, value in jax.device_get(metrics).items()}
        updated = time.perf_counter()
        if not np.isfinite([numbers["kl"], numbers["value_error"]]).all():
            raise NonFiniteError(
                f"the policy of iteration {self.iteration + 1} is not finite: lower the learning "
                "rate or raise the damping, and resume from the last checkpoint."
            )
        fruitless = self._count_fruitless(state)
        boundary, iteration = self.env.state(), self.iteration + 1
        episodes, recent = self.episodes + len(returns), deque([*self.recent, *returns], RECENT)
        # One statement without a call: an interrupt cannot come between its parts.
        (
            self.state,
            self._boundary,
            self.iteration,
            self.episodes,
            self.recent,
            self.fruitless,
            self._torn,
        ) = (state, boundary, iteration, episodes, recent, fruitless, False)
        return {
            "iteration": self.iteration,
            "steps": self.steps,
            "episodes": self.episodes,
            "return": float(np.mean(returns)) if returns else np.nan,
            "return_recent": float(np.mean(self.recent)) if self.recent else np.nan,
            "length": float(np.mean(lengths)) if lengths else np.nan,
            **numbers,
            "seconds": updated - start,
            "seconds_env": env_seconds,
            "seconds_policy": collected - start - env_seconds,
            "seconds_update": updated - collected,
        }

    def sample_batch(self, rollouts: int) -> Batch:
        """`rollouts` rollouts with the present policy as one batch, without learning from them.

        Advantages are those of training, were the policy held fixed, standardised once over the
        whole batch. What has been learned, the running moments included, stays as it is; only the
        environments move on. The next iteration, or call, first takes them back to the last whole
        iteration, by replay; where they cannot be replayed it begins fresh episodes.
        """
        if self._torn:
            self._restore_env(self._boundary)
        self._torn = True

        @jax.jit
        def learned_from(state: TrainState, rollout: Rollout) -> tuple[TrainState, Batch]:
            state, rewards = self.learner._scaled_rewards(state, rollout)
            return state, self.learner._batch(state, rollout, rewards)[0]

        state, batches, key = self.state, [], self._key("samples")
        for number in range(rollouts):
            rollout, *_ = self._collect(jax.random.fold_in(key, number))
            state, batch = learned_from(state, rollout)
            batches.append(batch)
        whole = jax.tree.map(lambda *parts: jnp.concatenate(parts), *batches)
        return whole._replace(advantages=standardized(whole.advantages))

    def _collect(self, key: jax.Array) -> tuple[Rollout, list[float], list[int], float]:
        config, spec = self.config, self.env.spec
        steps, number = config.rollout // config.num_envs, config.num_envs
        noise = np.asarray(self.learner.noise(key))
        shape = (steps, number, spec.observation_size)
        observations, successors = np.empty(shape, np.float32), np.empty(shape, np.float32)
        if spec.discrete:
            actions = np.empty((steps, number), np.int32)
        else:
            actions = np.empty((steps, number, spec.action_size), np.float32)
        rewards = np.empty((steps, number), np.float32)
        terminated, truncated = np.empty((2, steps, number), bool)
        returns: list[float] = []
        lengths: list[int] = []
        env_seconds = 0.0
        networks, moments = self.state.networks, self.state.observation_moments
        first = np.isfinite(self.observations).all(axis=1)
        if not first.all():
            self._refuse(int(np.argmin(first)), "an observation", self.steps)
        for t in range(steps):
            observations[t] = self.observations
            actions[t] = self.learner.act(networks, moments, self.observations, noise[t])
            before = time.perf_counter()
            result = self.env.step(actions[t])
            env_seconds += time.perf_counter() - before
            self._check_finite(t, result)
            rewards[t], terminated[t], truncated[t] = (
                result.rewards,
                result.terminated,
                result.truncated,
            )
            successors[t] = result.final_observations
            self.observations = result.observations
            ended = result.terminated | result.truncated
            if ended.any():
                returns += result.episode_returns[ended].tolist()
                lengths += result.episode_lengths[ended].tolist()
        return (
            Rollout(observations, actions, rewards, terminated, truncated, successors),
            returns,
            lengths,
            env_seconds,
        )

    def _check_finite(self, t: int, result: envs.Transition) -> None:
        """Stop before the policy acts on, or learns from, what is not a number in float32."""
        bad_reward = ~(np.abs(result.rewards) <= LARGEST)
        seen = result.observations, result.final_observations
        bad = bad_reward | ~np.isfinite(seen).all(axis=(0, 2))
        if bad.any():
            index = int(np.argmax(bad))
            what = "a reward" if bad_reward[index] else "an observation"
            self._refuse(index, what, self.steps + t * self.config.num_envs + index)

    def _refuse(self, index: int, what: str, step: int) -> None:
        raise NonFiniteError(
            f"environment {index} of {self.env.spec.id} returned {what} that is not finite at step "
            f"{step}: training stopped before learning from it; mend the environment and resume "
            "from the last checkpoint."
        )

    def _count_fruitless(self, state: TrainState) -> int:
        """Iterations in a row in which as many steps were dropped as the policy takes."""
        config = self.config
        steps = config.epochs * config.rollout // config.minibatch
        policy_steps = steps if config.step == "optimizer" else 1
        dropped = int(state.skipped) - int(self.state.skipped)
        fruitless = self.fruitless + 1 if dropped >= policy_steps else 0
        if fruitless == FRUITLESS:
            raise NonFiniteError(
                f"every step of {FRUITLESS} iterations on {self.env.spec.id}, up to step "
                f"{self.steps + config.rollout}, was dropped because its gradient or direction is "
                "not finite: lower the learning rate or raise the damping."
            )
        return fruitless

    def _key(self, purpose: str, iteration: int | None = None) -> jax.Array:
        numbers = ("networks", "actions", "update", "predict", "samples")
        key = jax.random.fold_in(jax.random.key(self.seed), numbers.index(purpose))
        return jax.random.fold_in(key, self.iteration if iteration is None else iteration)

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All that is needed to go on from the last whole iteration: arrays, and counters as JSON.

        Needs no simulation, so that it can be taken after an error or a second Ctrl-C.
        """
        arrays = {f"learner/{name}": x for name, x in save_tree(self.state).items()}
        arrays |= {f"env/{name}": x for name, x in self._boundary._asdict().items()}
        arrays["recent"] = np.array(self.recent, np.float64)
        counters = ("iteration", "episodes", "fruitless", "seed")
        info = {name: getattr(self, name) for name in counters}
        return arrays, info | {"config": dataclasses.asdict(self.config), "env": self.env.spec.id}

    def restore(self, arrays: dict[str, np.ndarray], info: dict[str, Any]) -> str | None:
        """Go back to a checkpoint; a sentence if episodes had to be started afresh."""

        def part(prefix: str) -> dict[str, np.ndarray]:
            begin = prefix + "/"
            return {k.removeprefix(begin): x for k, x in arrays.items() if k.startswith(begin)}

        check_info(info, iteration=int, episodes=int, fruitless=int)
        others = part("env") | {"recent": arrays.get("recent")}
        # Their kinds; how long they are differs.
        check_kinds(others, self._boundary._asdict() | {"recent": np.zeros(0)})
        self.state = restore_tree(self.state, part("learner"))
        self.iteration, self.episodes = info["iteration"], info["episodes"]
        self.fruitless = info["fruitless"]
        self.recent = deque(arrays["recent"].tolist(), maxlen=RECENT)
        return self._restore_env(envs.EnvState(**part("env")))

    def _restore_env(self, saved: envs.EnvState) -> str | None:
        why = f"{self.env.spec.id} on {self.env.spec.backend} cannot be replayed"
        fresh = not self.env.spec.replayable
        try:
            self.observations = self.env.restore(saved)
        except ValueError as error:
            self.observations, fresh = self.env.reset(), True
            why = str(error).partition("; call reset()")[0].rstrip(".")
        self._boundary, self._torn = self.env.state(), False
        if not fresh:
            return None
        self.state = self.state._replace(discounted=self.state.discounted * 0)
        return f"{why}: unfinished episodes start afresh, so this is not the uninterrupted run."

    def close(self) -> None:
        """Stop the environments."""
        self.env.close()
