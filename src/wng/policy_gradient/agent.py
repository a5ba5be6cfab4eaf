"""The face of policy gradients: learn, predict, evaluate, save, load."""

import contextlib
import dataclasses
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wng import envs
from wng.policy_gradient.config import Config
from wng.policy_gradient.methods import METHODS, Settings, check_names, preset
from wng.policy_gradient.trainer import Trainer
from wng.policy_gradient.update import TrainState
from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.interrupt import stop_on_signals
from wng.runs.metrics import MetricsWriter
from wng.runs.progress import TrainingProgress

CHECKPOINT_SECONDS = 15.0
LONGEST_EPISODE = 30_000  # steps after which `evaluate` cuts an episode that has no time limit
Callback = Callable[["Agent", dict[str, float]], bool | None]


class Agent:
    """A policy, its value function and its environments.

    Args:
      env: a Gymnasium id.
      method: such as "wnpg"; `wng methods` lists them. The classes `wng.WNPG`, … fix it.
      seed: of everything random.
      settings: tuned, paper or released; see `wng.policy_gradient.methods.preset`.
      embedding: Φ as a function of a `wng.Trajectory` or a `wng.Embedding`, in place of a name.
      config: a whole configuration, in place of a preset.
      overrides: fields of `wng.Config`.

    Attributes:
      config: every setting.
      steps: environment steps so far.
    """

    def __init__(
        self,
        env: str,
        method: str,
        seed: int = 0,
        *,
        settings: Settings = "tuned",
        embedding: Any = None,
        config: Config | None = None,
        **overrides: Any,
    ):
        if isinstance(embedding, str):
            overrides["embedding"], embedding = embedding, None
        elif embedding is not None:
            overrides["embedding"] = code_name(embedding)
        check_names(overrides)
        self.config: Config = (
            dataclasses.replace(config, **overrides)
            if config is not None
            else preset(method, settings, **overrides)
        )
        self.env, self.method, self.seed = env, method, seed
        self._trainer = Trainer(env, self.config, seed, embedding)
        self._newest: Path | None = None  # checkpoint of a run that this agent continues
        self._draws = 0

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self._trainer.steps

    @property
    def title(self) -> str:
        """The method's name as people write it."""
        return METHODS[self.method].title if self.method in METHODS else self.method

    def learn(
        self,
        steps: int,
        *,
        callback: Callback | None = None,
        progress: bool | TrainingProgress = True,
        run: RunDirectory | None = None,
    ) -> "Agent":
        """Take at least `steps` more environment steps, in whole iterations.

        Args:
          steps: how many more.
          callback: called with the agent and the metrics of each iteration; False stops.
          progress: show a bar, or report to this one.
          run: keep metrics and checkpoints there (`RunDirectory.create`).

        Ctrl-C stops after the iteration under way, a second one at once. However it ends, an
        exception of the callback included, the run then holds the last whole iteration.
        """
        if not (isinstance(steps, int | float) and math.isfinite(steps) and steps >= 0):
            raise ValueError(f"steps must be a number of environment steps, got {steps!r}.")
        total = self.steps + int(steps)
        name = f"{self.title} seed {self.seed}"
        with contextlib.ExitStack() as stack:
            stop = stack.enter_context(stop_on_signals())
            writer = None
            if run is not None:
                stack.enter_context(run.lock())
                self._check_continues(run)
                resume_at = self._trainer.iteration or None
                writer = stack.enter_context(MetricsWriter(run.path, resume_at, x="steps"))
            bar = progress if isinstance(progress, TrainingProgress) else None
            if progress is True:
                bar = stack.enter_context(TrainingProgress())
            if bar is not None:
                bar.add(name, total, self.steps)
            recorded, saved = self._trainer.iteration, time.monotonic()
            try:
                while self.steps < total and not stop.requested:
                    row = self._trainer.iterate()
                    if writer is not None:
                        writer.write(row)
                    recorded = self._trainer.iteration
                    if run is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                        self._save_to(run, writer)
                        saved = time.monotonic()
                    if bar is not None:
                        bar.update(name, self.steps, shown(row))
                    if callback is not None and callback(self, row) is False:
                        break
            finally:
                # Not if the row of the iteration is missing: metrics hold all up to a checkpoint.
                if run is not None and recorded == self._trainer.iteration:
                    self._save_to(run, writer)
        return self

    def _check_continues(self, run: RunDirectory) -> None:
        """A checkpoint deletes later ones: refuse those that this agent does not come from."""
        for newest in checkpoint.saved(run.checkpoints)[:1]:
            if newest.resolve() != self._newest:
                raise ValueError(
                    f"{run.path} holds a run that this agent does not continue: call "
                    "agent.restore(run) first, or create another run."
                )

    def _save_to(self, run: RunDirectory, writer: MetricsWriter | None) -> None:
        if writer is not None:
            writer.sync()
        path = checkpoint.write(run.checkpoints, self.steps, *self._checkpoint())
        self._newest = path.resolve()

    def _checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, info = self._trainer.checkpoint()
        return arrays, info | {"kind": "policy_gradient", "method": self.method}

    def restore(self, run: RunDirectory) -> list[str]:
        """Continue from the newest good checkpoint of a run; sentences about what is amiss."""
        newest = checkpoint.saved(run.checkpoints)
        if not newest:
            return []
        arrays, info, problems = checkpoint.read_latest(run.checkpoints)
        warning = self._trainer.restore(arrays, info)
        self._newest = newest[0].resolve()  # good or not: it may be written over
        return problems + ([warning] if warning else [])

    def predict(self, observation: Any, *, deterministic: bool = True) -> np.ndarray:
        """The action in one state, or actions in several, as the environment takes them."""
        spec = self._trainer.env.spec
        x, size = np.asarray(observation, np.float32), spec.observation_size
        # Flat or in the environment's own shape; [1, size] is a batch of one.
        batch = x.ndim > 1 and math.prod(x.shape[1:]) == size
        if not batch and x.size != size:
            raise ValueError(
                f"an observation of {self.env} has {size} numbers, got an array of shape "
                f"{list(x.shape)}."
            )
        key = None
        if not deterministic:
            self._draws += 1
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), 3), self._draws)
        actions = self._actions(self._trainer.state, x.reshape(-1, size), key)
        if spec.discrete:
            actions = actions + spec.action_start
        else:
            actions = np.clip(actions, spec.action_low, spec.action_high)
            actions = actions.astype(spec.action_dtype).reshape(-1, *spec.action_shape)
        return actions if batch else actions[0]

    def _actions(self, state: TrainState, rows: np.ndarray, key: jax.Array | None) -> np.ndarray:
        """Actions drawn with `key`, or the most likely ones, as `VectorEnv.step` takes them."""
        learner = self._trainer.learner
        noise = np.zeros((len(rows), learner.action_size), np.float32)
        if key is not None:
            draw = jax.random.gumbel if learner.discrete else jax.random.normal
            noise = np.asarray(draw(key, noise.shape))
        moments = state.observation_moments
        act = learner.act(state.networks, moments, rows, noise, deterministic=key is None)
        return np.asarray(act)

    def _next_actions(
        self, state: TrainState, keys: Iterator[jax.Array | None], rows: np.ndarray
    ) -> np.ndarray:
        return self._actions(state, rows, next(keys))

    def evaluate(
        self,
        episodes: int = 10,
        *,
        deterministic: bool = True,
        seed: int = 1_000_000,
        untrained: bool = False,
    ) -> np.ndarray:
        """Returns of whole episodes in environments of their own.

        An episode of an environment without a time limit is cut after 30,000 steps.

        Args:
          episodes: how many.
          deterministic: the most likely action, or a sampled one.
          seed: of the episodes; the same for every agent, so that comparisons are fair.
          untrained: evaluate the policy as it was before learning.
        """
        if episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {episodes}.")
        trainer = self._trainer
        state = trainer.initial_state() if untrained else trainer.state
        returns: list[float] = []
        while len(returns) < episodes:
            number = min(10, episodes - len(returns))
            env = envs.make(self.env, number, seed + len(returns), "gymnasium")
            keys: Iterator[jax.Array | None]
            keys = itertools.repeat(None) if deterministic else _keys(seed + len(returns))
            act = partial(self._next_actions, state, keys)
            try:
                returns += first_returns(env, act)
            finally:
                env.close()
        return np.array(returns)

    def save(self, path: str | Path) -> None:
        """Write everything to one file; `wng.load` reads it. It never holds code."""
        checkpoint.write_file(path, *self._checkpoint())

    def close(self) -> None:
        """Stop the environments; the agent can no longer learn."""
        self._trainer.close()


def load(path: str | Path, *, embedding: Any = None) -> Agent:
    """The agent in a file of `Agent.save`, or in the folder of a run, ready to go on.

    Args:
      path: the file or folder.
      embedding: the function, if the agent was made with one (files never hold code).
    """
    path = Path(path)
    if path.is_dir():
        run = RunDirectory.open(path)
        arrays, info, problems = checkpoint.read_latest(run.checkpoints)
        for problem in problems:
            warnings.warn(problem, stacklevel=2)
    else:
        arrays, info = checkpoint.read(path)
    if info.get("kind") != "policy_gradient":
        raise ValueError(f"{path} is not an agent of wng.")
    settings = info["config"] | {"hidden": tuple(info["config"]["hidden"])}
    name = settings["embedding"]
    if embedding is None and name.startswith("<"):
        raise ValueError(
            f"{path} was trained with the embedding {name}, a function, and files hold no code: "
            "pass it as embedding=…"
        )
    agent = Agent(
        info["env"], info["method"], info["seed"], embedding=embedding, config=Config(**settings)
    )
    agent._trainer.restore(arrays, info)
    if path.is_dir():
        agent._newest = checkpoint.saved(run.checkpoints)[0].resolve()
    return agent


def code_name(embedding: Any) -> str:
    """How a configuration names a function: in brackets, as no embedding of ours is."""
    fn = getattr(embedding, "fn", embedding)
    return f"<{getattr(fn, '__name__', type(fn).__name__).strip('<>')}>"


def _keys(seed: int) -> Iterator[jax.Array]:
    key = jax.random.key(seed)
    return (jax.random.fold_in(key, number) for number in itertools.count())


def first_returns(env: envs.VectorEnv, act: Callable[[np.ndarray], np.ndarray]) -> list[float]:
    """The return of the first episode of each environment, short or long."""
    observations = env.reset()
    returns, running = np.zeros(env.num_envs), np.ones(env.num_envs, bool)
    for _ in range(env.spec.max_episode_steps or LONGEST_EPISODE):
        step = env.step(act(observations))
        observations = step.observations
        if not (np.isfinite(step.rewards).all() and np.isfinite(observations).all()):
            raise ValueError(f"{env.spec.id} returned a reward or observation that is not finite.")
        returns[running] += step.rewards[running]
        running &= step.episode_lengths == 0
        if not running.any():
            break
    return returns.tolist()


def shown(row: dict[str, float]) -> dict[str, float]:
    """What the progress bar says."""
    fields = {"return": row["return_recent"], "KL": row["kl"]}
    if row["epsilon"]:
        fields["ε"] = row["epsilon"]
    if row["skipped"]:
        fields["skipped"] = row["skipped"]
    return fields


def _method_class(method: str) -> type[Agent]:
    title, about = METHODS[method].title, METHODS[method].about

    class Chosen(Agent):
        def __init__(self, env: str, seed: int = 0, **settings: Any):
            super().__init__(env, method, seed, **settings)

    Chosen.__name__ = Chosen.__qualname__ = method.upper()
    Chosen.__doc__ = f"{title}: {about}. Arguments as for `wng.Agent`."
    return Chosen


PG, PPO, PPOKL, NPG, TRPO, BGPG, WNPG, BGWNPG, WTRPO = map(_method_class, METHODS)
