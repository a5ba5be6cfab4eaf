"""Training by policy gradients, one iteration at a time: a rollout, an update."""

import dataclasses
import time
from functools import lru_cache
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wng import envs
from wng.behavior.embedding import Embedding, as_embedding, find_embedding
from wng.policy_gradient.batch import Batch
from wng.policy_gradient.config import Config
from wng.policy_gradient.learner import Learner, TrainState
from wng.policy_gradient.networks import Policy, action_noise
from wng.policy_gradient.problem import find_axes
from wng.policy_gradient.rollouts import collect
from wng.runs.checkpoint import check_info
from wng.runs.settings import check_memory
from wng.runs.training import NonFiniteError, Row
from wng.runs.trees import check_kinds, part, restore_tree, save_tree

RECENT = 100  # episodes in the running mean of the return
FRUITLESS = 3  # iterations in a row without a policy step before training stops
PURPOSES = ("networks", "actions", "update", "predict", "samples")  # of random keys


@lru_cache(maxsize=8)
def shared_learner(config: Config, embedding: Embedding, axes: tuple, **sizes: Any) -> Learner:
    """Agents that differ in the seed or the environment alone share what is compiled."""
    return Learner(config, embedding, axes=axes, **sizes)


class Progress(NamedTuple):
    """Where training stands after a whole iteration: all that a checkpoint holds."""

    state: TrainState
    env: envs.EnvState
    iteration: int
    episodes: int
    recent: tuple[float, ...]  # returns of the last episodes
    fruitless: int  # iterations in a row in which every policy step was dropped


class Trainer:
    """Environments and learner of one run. All that it remembers fits in a checkpoint.

    All randomness comes from keys folded with (iteration, purpose), so an iteration depends on the
    state before it and on nothing else. An `embedding` function replaces the name in `config`.
    """

    horizon = None  # of an episode: the environment's own limit
    newest: Path | None = None  # newest checkpoint that it wrote or was restored from

    def __init__(
        self, resolved: envs.ResolvedEnv, config: Config, seed: int, embedding: Any = None
    ):
        self.config, self.seed = config, seed
        chosen = find_embedding(config.embedding) if embedding is None else as_embedding(embedding)
        self.resolved = resolved
        self.spec = spec = resolved.spec
        widths = [spec.observation_size, *config.hidden, spec.action_size]
        # Policy, value function, and the two moments of Adam, which the latter always has.
        weights = 4 * sum(map(mul, widths, widths[1:-1]))
        check_memory(f"networks with hidden={config.hidden}", weights)
        self.learner = shared_learner(
            dataclasses.replace(config, backend="auto"),  # the learner does not depend on it
            chosen,
            find_axes(config),
            observation_size=spec.observation_size,
            action_size=spec.action_size,
            discrete=spec.discrete,
            action_bounds=(spec.action_low, spec.action_high),
        )
        self.env = envs.make(self.resolved, config.num_envs, self.seed)
        try:
            self.observations = self.env.reset()
            # A checkpoint is of the last whole iteration, also after one that was interrupted.
            self._progress = Progress(self.initial_state(), self.env.state(), 0, 0, (), 0)
        except BaseException:
            self.env.close()
            raise
        self._torn = False  # whether the environments have moved on from the last iteration

    @property
    def state(self) -> TrainState:
        """What learning remembers."""
        return self._progress.state

    @property
    def params(self) -> Policy:
        """The policy, whose leaves are its parameters."""
        return self.state.networks.policy

    @property
    def iteration(self) -> int:
        """Whole iterations so far."""
        return self._progress.iteration

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self.iteration * self.config.rollout

    def initial_state(self) -> TrainState:
        """The state before any learning; it depends on the seed alone."""
        return self.learner.init(self._key("networks", 0))

    def check_memory(self) -> None:
        """Raise a ValueError if a rollout cannot fit: observations before and after each step."""
        rollout = self.config.rollout
        check_memory(f"a rollout of {rollout}", 2 * rollout * self.spec.observation_size)

    def iterate(self) -> Row:
        """One iteration: a rollout, an update. Returns its row of metrics."""
        self._rewind()
        before, self._torn = self._progress, True
        start = time.perf_counter()
        found = collect(
            self.env, self.learner, self.state, self.observations, self._key("actions"), self.steps
        )
        collected = time.perf_counter()
        state, metrics = self.learner.update(self.state, found.rollout, self._key("update"))
        numbers = {name: float(value) for name, value in jax.device_get(metrics).items()}
        updated = time.perf_counter()
        if not np.isfinite([numbers["kl"], numbers["value_error"]]).all():
            raise NonFiniteError(
                f"the policy of iteration {self.iteration + 1} is not finite: lower the learning "
                "rate or raise the damping, and resume from the last checkpoint."
            )
        recent = (*before.recent, *found.returns)[-RECENT:]
        progress = Progress(
            state,
            self.env.state(),
            before.iteration + 1,
            before.episodes + len(found.returns),
            recent,
            self._count_fruitless(state),
        )
        # One statement without a call: an interrupt cannot come between its parts.
        self._progress, self.observations, self._torn = progress, found.observations, False
        return {
            "iteration": self.iteration,
            "steps": self.steps,
            "episodes": progress.episodes,
            "return": float(np.mean(found.returns)) if found.returns else np.nan,
            "return_recent": float(np.mean(recent)) if recent else np.nan,
            "length": float(np.mean(found.lengths)) if found.lengths else np.nan,
            **numbers,
            "seconds": updated - start,
            "seconds_env": found.env_seconds,
            "seconds_policy": collected - start - found.env_seconds,
            "seconds_update": updated - collected,
        }

    def shown(self, row: Row) -> Row:
        """What the progress bar shows of an iteration."""
        fields = {"return": row["return_recent"], "KL": row["kl"]}
        return fields | {
            name: row[column]
            for name, column in (("ε", "epsilon"), ("skipped", "skipped"))
            if row[column]
        }

    def keep(self, folder: Path) -> None:
        """Nothing to keep of an iteration beside its metrics."""

    def actions(self, state: TrainState, rows: np.ndarray, key: jax.Array | None) -> np.ndarray:
        """Actions in the states `rows`: sampled with `key`, or the most likely ones without."""
        problem = self.learner.problem
        noise = np.zeros((len(rows), problem.action_size), np.float32)
        if key is not None:
            noise = np.asarray(action_noise(problem.discrete, key, noise.shape))
        moments = state.observation_moments
        act = self.learner.act(state.networks, moments, rows, noise, deterministic=key is None)
        return np.asarray(act)

    def sample_batch(self, rollouts: int) -> Batch:
        """Several rollouts with the present policy as one batch, without learning from them.

        Advantages are those of training with the policy held fixed, standardized over the whole
        batch. What has been learned, the running moments included, stays as it is; only the
        environments move on, and the next iteration first takes them back by replay. (Where they
        cannot be replayed, it begins fresh episodes.)
        """
        self._rewind()
        self._torn = True
        state, batches, key, observations = self.state, [], self._key("samples"), self.observations
        for number in range(rollouts):
            found = collect(
                self.env,
                self.learner,
                self.state,
                observations,
                jax.random.fold_in(key, number),
                self.steps,
            )
            observations = found.observations
            state, batch, *_ = self.learner.batch(state, found.rollout)
            batches.append(batch)
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *batches).standardized()

    def _count_fruitless(self, state: TrainState) -> int:
        """Iterations in a row in which as many steps were dropped as the policy takes."""
        dropped = int(state.skipped) - int(self.state.skipped)
        policy_steps = self.learner.problem.step.count(self.config)
        fruitless = self._progress.fruitless + 1 if dropped >= policy_steps else 0
        if fruitless == FRUITLESS:
            raise NonFiniteError(
                f"every step of {FRUITLESS} iterations on {self.spec.id}, up to step "
                f"{self.steps + self.config.rollout}, was dropped because its gradient or "
                "direction is not finite: lower the learning rate or raise the damping."
            )
        return fruitless

    def _key(self, purpose: str, iteration: int | None = None) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(self.seed), PURPOSES.index(purpose))
        return jax.random.fold_in(key, self.iteration if iteration is None else iteration)

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All that is needed to resume after the last whole iteration: arrays, and JSON.

        It takes no simulation, so it is possible after an error or a second Ctrl-C.
        """
        now = self._progress
        arrays = {f"learner/{name}": x for name, x in save_tree(now.state).items()}
        arrays |= {f"env/{name}": x for name, x in now.env._asdict().items()}
        arrays["recent"] = np.array(now.recent, np.float64)
        counters = {n: getattr(now, n) for n in ("iteration", "episodes", "fruitless")}
        config = dataclasses.asdict(self.config)
        return arrays, counters | {"seed": self.seed, "config": config, "env": self.spec.id}

    def restore(self, arrays: dict[str, np.ndarray], info: dict[str, Any]) -> str | None:
        """Go back to a checkpoint; returns a sentence if episodes had to start over."""
        check_info(info, iteration=int, episodes=int, fruitless=int)
        others = part(arrays, "env") | {"recent": arrays.get("recent")}
        # Names and types must match; lengths may differ.
        check_kinds(others, self._progress.env._asdict() | {"recent": np.zeros(0)})
        self._progress = Progress(
            restore_tree(self.state, part(arrays, "learner")),
            envs.EnvState(**part(arrays, "env")),
            info["iteration"],
            info["episodes"],
            tuple(arrays["recent"].tolist()),
            info["fruitless"],
        )
        return self._restore_env()

    def _rewind(self) -> None:
        if self._torn:
            self._restore_env()

    def _restore_env(self) -> str | None:
        """Take the environments back to the last whole iteration."""
        why = f"{self.spec.id} on {self.env.spec.backend} cannot be replayed."
        fresh = not self.env.spec.replayable
        try:
            self.observations = self.env.restore(self._progress.env)
        except envs.ReplayError as error:
            self.observations, fresh, why = self.env.reset(), True, str(error)
        progress = self._progress._replace(env=self.env.state())
        if fresh:
            state = progress.state
            progress = progress._replace(state=state._replace(discounted=state.discounted * 0))
        self._progress, self._torn = progress, False
        if not fresh:
            return None
        return f"{why} Unfinished episodes start over, so this is not the uninterrupted run."

    def close(self) -> None:
        """Stop the environments."""
        self.env.close()
