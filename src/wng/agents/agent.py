"""The agent: a trainer, with `learn`, `predict`, `evaluate` and `save` around it."""

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from wng.agents.registry import FAMILIES, METHODS, family_of, title_of
from wng.behavior.embedding import EMBEDDINGS, code_name
from wng.runs import checkpoint, training
from wng.runs.directory import RunDirectory
from wng.runs.executor import Executor
from wng.runs.progress import TrainingProgress
from wng.runs.record import Row
from wng.runs.settings import EVALUATION_SEED, Settings, check_names, check_seed, find_method
from wng.runs.setup import set_up_jax

if TYPE_CHECKING:
    import jax

    from wng.envs.episodes import Act


class Agent:
    """A policy that learns in an environment, by policy gradients or by evolution.

    Args:
      env: id of an environment, such as "Hopper-v5".
      method: name of a method, such as "wnpg" or "wnes"; `wng methods` lists them. The classes
        `wng.WNPG`, `wng.PPO`, … choose it for you.
      seed: random seed.
      settings: preset of all settings: "tuned", "paper" or "released".
      embedding: Φ, given as a function of a `wng.Trajectory`, as a `wng.Embedding`, or by name.
      config: a whole configuration, in place of a preset.
      executor: where the episodes of an evolution strategy run, such as a `wng.RayExecutor`. The
        default is this process.
      overrides: fields of `wng.Config` or `wng.EvolutionConfig` to set on top of the preset.

    Attributes:
      config: every setting.
      trainer: the object that trains the policy; `trainer.state` holds the parameters.
    """

    def __init__(
        self,
        env: str,
        method: str,
        seed: int = 0,
        *,
        settings: Settings = "tuned",
        embedding: Any = None,
        config: Any = None,
        executor: Executor | None = None,
        **overrides: Any,
    ):
        if not isinstance(method, str):
            raise ValueError(f"method must be a name, such as 'wnpg', got {method!r}.")
        if isinstance(embedding, str):
            overrides["embedding"], embedding = embedding, None
        elif embedding is not None:
            overrides["embedding"] = code_name(embedding)
        self.family = family_of(method)
        if config is None:
            find_method(method, METHODS)
            config = self.family.preset(method, settings, env, **overrides)
        else:
            families = [family for family in FAMILIES if type(config) is family.config]
            if not families:
                names = " or a ".join(family.config.__name__ for family in FAMILIES)
                raise ValueError(f"config must be a {names}, got a {type(config).__name__}.")
            (self.family,) = families
            check_names(overrides, self.family.config)
            config = dataclasses.replace(config, **overrides) if overrides else config
        self.env, self.method, self.config = env, method, config
        # Mistakes that can be seen without JAX, which takes a second to import, are reported now.
        seed = check_seed(seed)
        if embedding is None:
            EMBEDDINGS.check(config.embedding)
        resolved = self.family.resolve(env, config)
        set_up_jax()
        where = {"executor": executor} if self.family.distributes else {}
        self.trainer = self.family.make_trainer(resolved, config, seed, embedding, **where)
        self.caveat: str | None = None  # a warning for whoever learns on
        self._draws = 0

    @property
    def title(self) -> str:
        """The method's name as people write it."""
        return title_of(self.method)

    @property
    def seed(self) -> int:
        """The random seed."""
        return self.trainer.seed

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self.trainer.steps

    @property
    def params(self) -> Any:
        """Parameters of the policy, a pytree."""
        return self.trainer.params

    def learn(
        self,
        steps: float,
        *,
        callback: Callable[[Self, Row], bool | None] | None = None,
        progress: bool | TrainingProgress = True,
        run: RunDirectory | None = None,
        eval_every: float = 0,
        eval_episodes: int = 10,
    ) -> Self:
        """Take at least `steps` more environment steps, in whole iterations.

        Ctrl-C stops after the current iteration, and a second Ctrl-C stops at once. In either case,
        the run then holds the last whole iteration. (If it stops during an evaluation, the run
        holds its last checkpoint.)

        Args:
          steps: number of further environment steps.
          callback: called with the agent and the metrics of each iteration; returning False stops.
          progress: whether to show a progress bar, or the display to report to.
          run: where to keep metrics and checkpoints (`RunDirectory.create`).
          eval_every: environment steps between evaluations, which also take place at the end; 0
            for none. The row of metrics then has a column `return_deterministic`, the mean return
            of whole episodes with the most likely actions, and `run.best` is the best checkpoint.
          eval_episodes: number of episodes in an evaluation, the same as the first of `evaluate`.
        """
        if not (isinstance(steps, int | float) and math.isfinite(steps) and steps >= 0):
            raise ValueError(f"steps must be a number of environment steps, got {steps!r}.")
        if self.caveat is not None:
            warnings.warn(self.caveat, stacklevel=2)
            self.caveat = None
        training.train(
            self.trainer,
            self.steps + int(steps),
            f"{self.title} seed {self.seed}",
            identity=self.identity,
            run=run,
            progress=progress,
            callback=None if callback is None else lambda row: callback(self, row),
            eval_every=eval_every,
            eval_episodes=eval_episodes,
        )
        return self

    def restore(self, run: RunDirectory) -> list[str]:
        """Resume from the newest good checkpoint of a run; returns a sentence for each problem."""
        return training.restore(self.trainer, run)

    def save(self, path: str | Path) -> None:
        """Write the agent to one file, which `wng.load` reads. The file never holds code."""
        arrays, info = self.trainer.checkpoint()
        checkpoint.write_file(path, arrays, info | self.identity)

    @property
    def identity(self) -> dict[str, str]:
        """What `wng.load` needs to know, as part of each checkpoint."""
        return {"kind": self.family.kind, "method": self.method}

    def predict(self, observation: Any, *, deterministic: bool = True) -> np.ndarray:
        """The action in one state, or the actions in several, as the environment takes them."""
        import jax

        from wng.envs.episodes import read_observations

        spec = self.trainer.spec
        rows, batch = read_observations(observation, self.env, spec.observation_size)
        key = None
        if not deterministic:
            self._draws += 1
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), 3), self._draws)
        actions = spec.as_taken(self.trainer.actions(self.trainer.state, rows, key))
        return actions if batch else actions[0]

    def evaluate(
        self,
        episodes: int = 10,
        *,
        deterministic: bool = True,
        seed: int = EVALUATION_SEED,
        untrained: bool = False,
    ) -> np.ndarray:
        """Returns of whole episodes, in separate environments.

        If the environment has no time limit, an episode ends after 30,000 steps, or after the
        horizon that the agent was trained with.

        Args:
          episodes: number of episodes.
          deterministic: take the most likely action instead of sampling.
          seed: random seed of the episodes, the same for every agent, so comparisons are fair.
          untrained: evaluate the policy before any learning.
        """
        from wng.envs.episodes import episode_returns

        trainer = self.trainer
        state = trainer.initial_state() if untrained else trainer.state

        def make_act(seed: int) -> "Act":
            keys: Iterator[jax.Array | None]
            keys = itertools.repeat(None) if deterministic else _keys(seed)
            return lambda rows: trainer.actions(state, rows, next(keys))

        return episode_returns(trainer.resolved, make_act, episodes, seed, trainer.horizon)

    def close(self) -> None:
        """Stop the environments; the agent can no longer learn."""
        self.trainer.close()


def _keys(seed: int) -> "Iterator[jax.Array]":
    import jax

    key = jax.random.key(seed)
    return (jax.random.fold_in(key, number) for number in itertools.count())


def _method_class(method: str) -> type[Agent]:
    class Chosen(Agent):
        def __init__(self, env: str, seed: int = 0, **settings: Any):
            super().__init__(env, method, seed, **settings)

    Chosen.__name__ = Chosen.__qualname__ = method.upper()
    Chosen.__doc__ = (
        f"{METHODS[method].title}: {METHODS[method].about}. Arguments as for `wng.Agent`."
    )
    return Chosen


PG, PPO, PPOKL, NPG, TRPO, BGPG, WNPG, BGWNPG, WTRPO = map(
    _method_class, ("pg", "ppo", "ppokl", "npg", "trpo", "bgpg", "wnpg", "bgwnpg", "wtrpo")
)
