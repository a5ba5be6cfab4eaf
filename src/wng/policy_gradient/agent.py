"""The face of policy gradients: learn, predict, evaluate, save, load."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from wng.behavior.embedding import code_name
from wng.envs.episodes import Act, episode_returns, read_observations
from wng.policy_gradient.config import Config
from wng.policy_gradient.methods import METHODS, preset
from wng.policy_gradient.trainer import Trainer
from wng.policy_gradient.update import TrainState
from wng.runs.training import Row, Trainable
from wng.settings import Settings, check_names


class Agent(Trainable):
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

    kind = "policy_gradient"
    _trainer: Trainer

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
        check_names(overrides, Config)
        self.config: Config = (
            dataclasses.replace(config, **overrides)
            if config is not None
            else preset(method, settings, **overrides)
        )
        self.env, self.method, self.seed = env, method, seed
        self._trainer = Trainer(env, self.config, seed, embedding)
        self._draws = 0

    @property
    def title(self) -> str:
        """The method's name as people write it."""
        return METHODS[self.method].title if self.method in METHODS else self.method

    def shown(self, row: Row) -> Row:
        """What the progress bar says."""
        fields = {"return": row["return_recent"], "KL": row["kl"]}
        if row["epsilon"]:
            fields["ε"] = row["epsilon"]
        if row["skipped"]:
            fields["skipped"] = row["skipped"]
        return fields

    def predict(self, observation: Any, *, deterministic: bool = True) -> np.ndarray:
        """The action in one state, or actions in several, as the environment takes them."""
        spec = self._trainer.env.spec
        rows, batch = read_observations(observation, self.env, spec.observation_size)
        key = None
        if not deterministic:
            self._draws += 1
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), 3), self._draws)
        actions = spec.as_taken(self._actions(self._trainer.state, rows, key))
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
        state = self._trainer.initial_state() if untrained else self._trainer.state

        def make_act(seed: int) -> Act:
            keys: Iterator[jax.Array | None]
            keys = itertools.repeat(None) if deterministic else _keys(seed)
            return lambda rows: self._actions(state, rows, next(keys))

        return episode_returns(self.env, make_act, episodes, seed)

    @classmethod
    def from_checkpoint(
        cls, arrays: dict[str, np.ndarray], info: dict[str, Any], embedding: Any = None
    ) -> "Agent":
        """The agent of a checkpoint; see `wng.load`."""
        settings = info["config"] | {"hidden": tuple(info["config"]["hidden"])}
        agent = Agent(
            info["env"],
            info["method"],
            info["seed"],
            embedding=embedding,
            config=Config(**settings),
        )
        agent._trainer.restore(arrays, info)
        return agent


def _keys(seed: int) -> Iterator[jax.Array]:
    key = jax.random.key(seed)
    return (jax.random.fold_in(key, number) for number in itertools.count())


def _method_class(method: str) -> type[Agent]:
    title, about = METHODS[method].title, METHODS[method].about

    class Chosen(Agent):
        def __init__(self, env: str, seed: int = 0, **settings: Any):
            super().__init__(env, method, seed, **settings)

    Chosen.__name__ = Chosen.__qualname__ = method.upper()
    Chosen.__doc__ = f"{title}: {about}. Arguments as for `wng.Agent`."
    return Chosen


PG, PPO, PPOKL, NPG, TRPO, BGPG, WNPG, BGWNPG, WTRPO = map(_method_class, METHODS)
