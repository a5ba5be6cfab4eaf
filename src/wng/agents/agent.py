"""What agents of both families have in common: made from a preset, asked for actions, evaluated."""

import abc
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import numpy as np

from wng.behavior.embedding import code_name
from wng.envs.episodes import Act, episode_returns, read_observations
from wng.runs.settings import Method, Settings, check_names
from wng.runs.training import Trainable


class BaseAgent(Trainable):
    """An agent of either family. A family sets the class variables, and says how it acts."""

    config_class: ClassVar[type[Any]]
    methods: ClassVar[dict[str, Method]]
    preset: ClassVar[Callable[..., Any]]  # (method, settings, env, **overrides)
    trainer_class: ClassVar[Callable[..., Any]]  # (env, config, seed, embedding)
    _trainer: Any

    def __init__(
        self,
        env: str,
        method: str,
        seed: int = 0,
        *,
        settings: Settings = "tuned",
        embedding: Any = None,
        config: Any = None,
        **overrides: Any,
    ):
        if isinstance(embedding, str):
            overrides["embedding"], embedding = embedding, None
        elif embedding is not None:
            overrides["embedding"] = code_name(embedding)
        check_names(overrides, self.config_class)
        if config is not None and not isinstance(config, self.config_class):
            raise ValueError(
                f"config must be a {self.config_class.__name__}, got a {type(config).__name__}."
            )
        if not isinstance(method, str):
            raise ValueError(f"a method is given by its name, such as 'wnpg', got {method!r}.")
        self.config: Any = (
            dataclasses.replace(config, **overrides)
            if config is not None
            else type(self).preset(method, settings, env, **overrides)
        )
        self.env, self.method, self.seed = env, method, seed
        self._trainer = self._make_trainer(embedding)
        self._draws = 0

    def _make_trainer(self, embedding: Any) -> Any:
        return type(self).trainer_class(self.env, self.config, self.seed, embedding)

    @property
    def title(self) -> str:
        """The method's name as people write it."""
        return self.methods[self.method].title if self.method in self.methods else self.method

    @abc.abstractmethod
    def _actions(self, state: Any, rows: np.ndarray, key: jax.Array | None) -> np.ndarray:
        """Actions drawn with `key`, or the most likely ones, as `VectorEnv.step` takes them."""

    def predict(self, observation: Any, *, deterministic: bool = True) -> np.ndarray:
        """The action in one state, or actions in several, as the environment takes them."""
        spec = self._trainer.spec
        rows, batch = read_observations(observation, self.env, spec.observation_size)
        key = None
        if not deterministic:
            self._draws += 1
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), 3), self._draws)
        actions = spec.as_taken(self._actions(self._trainer.state, rows, key))
        return actions if batch else actions[0]

    def evaluate(
        self,
        episodes: int = 10,
        *,
        deterministic: bool = True,
        seed: int = 1_000_000,
        untrained: bool = False,
    ) -> np.ndarray:
        """Returns of whole episodes in environments of their own.

        An episode of an environment without a time limit is cut after 30,000 steps, or after the
        horizon that the agent was trained with.

        Args:
          episodes: how many.
          deterministic: the most likely action, or a sampled one.
          seed: of the episodes; the same for every agent, so that comparisons are fair.
          untrained: evaluate the policy as it was before learning.
        """
        trainer = self._trainer
        state = trainer.initial_state() if untrained else trainer.state

        def make_act(seed: int) -> Act:
            keys: Iterator[jax.Array | None]
            keys = itertools.repeat(None) if deterministic else _keys(seed)
            return lambda rows: self._actions(state, rows, next(keys))

        return episode_returns(self.env, make_act, episodes, seed, trainer.horizon)


def _keys(seed: int) -> Iterator[jax.Array]:
    key = jax.random.key(seed)
    return (jax.random.fold_in(key, number) for number in itertools.count())
