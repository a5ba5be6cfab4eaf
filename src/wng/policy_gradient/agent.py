"""The face of policy gradients: learn, predict, evaluate, save, load."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wng import envs
from wng.policy_gradient.config import Config
from wng.policy_gradient.methods import METHODS, Settings, find_method, preset
from wng.policy_gradient.trainer import Trainer
from wng.policy_gradient.update import TrainState
from wng.runs import checkpoint
from wng.runs.directory import RunDirectory
from wng.runs.interrupt import stop_on_signals
from wng.runs.metrics import MetricsWriter
from wng.runs.progress import TrainingProgress

CHECKPOINT_SECONDS = 15.0
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
            overrides["embedding"] = getattr(embedding, "__name__", "custom")
        self.config: Config = (
            dataclasses.replace(config, **overrides)
            if config is not None
            else preset(method, settings, **overrides)
        )
        self.env, self.method, self.seed = env, method, seed
        self._trainer = Trainer(env, self.config, seed, embedding)

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

        Ctrl-C stops after the iteration under way.
        """
        if not (isinstance(steps, int | float) and math.isfinite(steps) and steps >= 0):
            raise ValueError(f"steps must be a number of environment steps, got {steps!r}.")
        total = self.steps + int(steps)
        name = f"{self.title} seed {self.seed}"
        with contextlib.ExitStack() as stack:
            stop = stack.enter_context(stop_on_signals())
            bar = progress if isinstance(progress, TrainingProgress) else None
            if progress is True:
                bar = stack.enter_context(TrainingProgress())
            if bar is not None:
                bar.add(name, total, self.steps)
            writer = None
            if run is not None:
                stack.enter_context(run.lock())
                resume_at = self._trainer.iteration or None
                writer = stack.enter_context(MetricsWriter(run.path, resume_at, x="steps"))
            saved = time.monotonic()
            while self.steps < total and not stop.requested:
                row = self._trainer.iterate()
                if writer is not None:
                    writer.write(row)
                due = time.monotonic() - saved > CHECKPOINT_SECONDS
                if run is not None and due:
                    self._save_to(run, writer)
                    saved = time.monotonic()
                if bar is not None:
                    bar.update(name, self.steps, shown(row))
                if callback is not None and callback(self, row) is False:
                    break
            if run is not None:
                self._save_to(run, writer)
        return self

    def _save_to(self, run: RunDirectory, writer: MetricsWriter | None) -> None:
        if writer is not None:
            writer.sync()
        checkpoint.write(run.checkpoints, self.steps, *self._checkpoint())

    def _checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, info = self._trainer.checkpoint()
        return arrays, info | {"kind": "policy_gradient", "method": self.method}

    def restore(self, run: RunDirectory) -> list[str]:
        """Continue from the newest good checkpoint of a run; sentences about what is amiss."""
        if not checkpoint.saved(run.checkpoints):
            return []
        arrays, info, problems = checkpoint.read_latest(run.checkpoints)
        warning = self._trainer.restore(arrays, info)
        return problems + ([warning] if warning else [])

    def predict(self, observation: Any, *, deterministic: bool = True) -> np.ndarray:
        """The action in one state, or actions in several, as the environment takes them."""
        spec = self._trainer.env.spec
        x = np.asarray(observation, np.float32)
        single = x.size == spec.observation_size
        try:
            rows = x.reshape(-1, spec.observation_size)
        except ValueError:
            raise ValueError(
                f"an observation of {self.env} has {spec.observation_size} numbers, got an array "
                f"of shape {list(x.shape)}."
            ) from None
        actions = self._actions(self._trainer.state, rows, deterministic)
        if spec.discrete:
            actions = actions + spec.action_start
        else:
            actions = np.clip(actions, spec.action_low, spec.action_high)
            actions = actions.astype(spec.action_dtype).reshape(-1, *spec.action_shape)
        return actions[0] if single else actions

    def _actions(self, state: TrainState, rows: np.ndarray, deterministic: bool) -> np.ndarray:
        learner = self._trainer.learner
        noise = np.zeros((len(rows), learner.action_size), np.float32)
        if not deterministic:
            self._draws = getattr(self, "_draws", 0) + 1
            key = jax.random.fold_in(jax.random.key(self.seed + 2**31), self._draws)
            draw = jax.random.gumbel if learner.discrete else jax.random.normal
            noise = np.asarray(draw(key, noise.shape))
        return np.asarray(
            learner.act(
                state.networks, state.observation_moments, rows, noise, deterministic=deterministic
            )
        )

    def evaluate(
        self,
        episodes: int = 10,
        *,
        deterministic: bool = True,
        seed: int = 1_000_000,
        untrained: bool = False,
    ) -> np.ndarray:
        """Returns of whole episodes in environments of their own.

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
            try:
                returns += first_returns(
                    env, lambda rows: self._actions(state, rows, deterministic)
                )
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
        arrays, info, _ = checkpoint.read_latest(run.checkpoints)
    else:
        arrays, info = checkpoint.read(path)
    if info.get("kind") != "policy_gradient":
        raise ValueError(f"{path} is not an agent of wng.")
    settings = info["config"] | {"hidden": tuple(info["config"]["hidden"])}
    if embedding is None and (":" in settings["embedding"] or settings["embedding"] == "custom"):
        raise ValueError(
            f"{path} was trained with the embedding '{settings['embedding']}', code that no file "
            "holds: pass it as embedding=…"
        )
    agent = Agent(
        info["env"], info["method"], info["seed"], embedding=embedding, config=Config(**settings)
    )
    agent._trainer.restore(arrays, info)
    return agent


def first_returns(env: envs.VectorEnv, act: Callable[[np.ndarray], np.ndarray]) -> list[float]:
    """The return of the first episode of each environment, short or long."""
    observations = env.reset()
    returns = np.full(env.num_envs, np.nan)
    while np.isnan(returns).any():
        step = env.step(act(observations))
        observations = step.observations
        fresh = np.isnan(returns) & (step.episode_lengths > 0)
        returns[fresh] = step.episode_returns[fresh]
        if np.isnan(step.rewards).any():
            raise ValueError(f"{env.spec.id} returned a reward that is not finite.")
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

__all__ = ["Agent", "find_method", "load"]
