"""Training by policy gradients, one iteration at a time: a rollout, an update."""

import dataclasses
import time
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wng import envs
from wng.behavior.embedding import as_embedding, find_embedding
from wng.envs.jax_vector import JaxVector
from wng.policy_gradient.batch import Batch
from wng.policy_gradient.compiled import CompiledRollouts
from wng.policy_gradient.config import Config
from wng.policy_gradient.learner import Learner, TrainState
from wng.policy_gradient.networks import Policy, action_noise
from wng.policy_gradient.problem import find_axes
from wng.policy_gradient.rollouts import Iteration, SteppedRollouts
from wng.runs.checkpoint import check_info
from wng.runs.record import Row
from wng.runs.settings import check_memory
from wng.runs.training import NonFiniteError, other_block
from wng.runs.trees import check_kinds, part, restore_tree, save_tree

RECENT = 100  # episodes in the running mean of the return
FRUITLESS = 3  # iterations in a row without a policy step before training stops
PURPOSES = ("networks", "actions", "update", "predict", "samples", "environments")  # of keys


class Progress(NamedTuple):
    """Where training stands after a whole iteration: all that a checkpoint holds."""

    state: TrainState
    env: Any  # where the environments stand
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
        self.block = [seed]  # seeds in the same compiled program
        chosen = find_embedding(config.embedding) if embedding is None else as_embedding(embedding)
        self.resolved = resolved
        self.spec = spec = resolved.spec
        widths = [spec.observation_size, *config.hidden, spec.action_size]
        # Policy, value function, and the two moments of Adam, which the latter always has.
        weights = 4 * sum(map(mul, widths, widths[1:-1]))
        check_memory(f"networks with hidden={config.hidden}", weights)
        self.learner = Learner(
            dataclasses.replace(config, backend="auto"),  # the learner does not depend on it
            chosen,
            find_axes(config),
            observation_size=spec.observation_size,
            action_size=spec.action_size,
            discrete=spec.discrete,
            action_bounds=(spec.action_low, spec.action_high),
        )
        self.rollouts = self._make_rollouts()
        try:
            start = self.rollouts.start()
            # A checkpoint is of the last whole iteration, also after one that was interrupted.
            self._progress = Progress(self.initial_state(), start, 0, 0, (), 0)
        except BaseException:
            self.close()
            raise

    def _make_rollouts(self) -> SteppedRollouts | CompiledRollouts:
        if self.spec.backend == "jax":
            assert self.resolved.jax_env is not None
            vector = JaxVector(self.resolved.jax_env, self.spec)
            return CompiledRollouts(vector, self.learner.program, self._key("environments", 0))
        env = envs.make(self.resolved, self.config.num_envs, self.seed)
        try:
            return SteppedRollouts(env, self.learner)
        except BaseException:
            env.close()
            raise

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
        start = time.perf_counter()
        done = self.rollouts.iterate(*self.begin())
        metrics = jax.device_get(done.metrics)
        return self.accept(done._replace(metrics=metrics), time.perf_counter() - start)

    def begin(self) -> tuple[TrainState, Any, tuple[jax.Array, jax.Array], int]:
        """What the next iteration needs: learner, environments, keys, and steps so far."""
        keys = self._key("actions"), self._key("update")
        return self._progress.state, self._progress.env, keys, self.steps

    def accept(self, done: Iteration, seconds: float) -> Row:
        """Take over what an iteration leaves behind, with metrics on the host; returns its row."""
        before = self._progress
        numbers = {name: float(value) for name, value in done.metrics.items()}
        if not np.isfinite([numbers["kl"], numbers["value_error"]]).all():
            raise NonFiniteError(
                f"the policy of iteration {self.iteration + 1} is not finite: lower the learning "
                "rate or raise the damping, and resume from the last checkpoint."
            )
        returns, lengths = done.ended
        recent = (*before.recent, *returns)[-RECENT:]
        self._progress = progress = Progress(
            done.state,
            done.env,
            before.iteration + 1,
            before.episodes + len(returns),
            recent,
            self._count_fruitless(done.state),
        )
        outside = np.nansum([done.seconds_env, done.seconds_policy])
        return {
            "iteration": self.iteration,
            "steps": self.steps,
            "episodes": progress.episodes,
            "return": float(np.mean(returns)) if returns else np.nan,
            "return_recent": float(np.mean(recent)) if recent else np.nan,
            "length": float(np.mean(lengths)) if lengths else np.nan,
            **numbers,
            "seconds": seconds,
            "seconds_env": done.seconds_env,
            "seconds_policy": done.seconds_policy,
            "seconds_update": float(seconds - outside),
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
        return self.learner.actor(state, deterministic=key is None)(rows, noise)

    def sample_batch(self, rollouts: int) -> Batch:
        """Several rollouts with the current policy as one batch, without learning from them.

        Advantages are those of training with the policy held fixed, standardized over the whole
        batch. What has been learned, the running moments included, stays as it is, and the next
        iteration starts where the last one ended. (Where environments cannot be replayed, it begins
        fresh episodes.)
        """
        state, at, key, batches = self.state, self._progress.env, self._key("samples"), []
        source: Any = self.rollouts
        for number in range(rollouts):
            key_actions = jax.random.fold_in(key, number)
            rollout, at = source.collect(self.state, at, key_actions, self.steps)
            state, batch, *_ = self.learner.batch(state, rollout)
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
        arrays |= {f"env/{name}": x for name, x in self.rollouts.save(now.env).items()}
        arrays["recent"] = np.array(now.recent, np.float64)
        counters = {n: getattr(now, n) for n in ("iteration", "episodes", "fruitless")}
        config = dataclasses.asdict(self.config)
        more = {"seed": self.seed, "block": self.block, "config": config, "env": self.spec.id}
        return arrays, counters | more

    def restore(self, arrays: dict[str, np.ndarray], info: dict[str, Any]) -> str | None:
        """Go back to a checkpoint; returns a sentence if episodes had to start over."""
        check_info(info, iteration=int, episodes=int, fruitless=int, block=list)
        check_kinds({"recent": arrays.get("recent")}, {"recent": np.zeros(0)})
        at: Any = self.rollouts.load(part(arrays, "env"))
        state = restore_tree(self.state, part(arrays, "learner"))
        state, at, warning = self.rollouts.go_to(state, at)
        counters = info["iteration"], info["episodes"]
        recent = tuple(arrays["recent"].tolist())
        self._progress = Progress(state, at, *counters, recent, info["fruitless"])
        if warning is None and info["block"] != self.block:
            warning = other_block(self.seed)
        return warning

    def close(self) -> None:
        """Stop the environments."""
        self.rollouts.close()
