"""The face of evolution strategies on environments: learn, predict, evaluate, save."""

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np

from wng.behavior.embedding import code_name
from wng.envs.episodes import Act, episode_returns, read_observations
from wng.evolution.config import EvolutionConfig
from wng.evolution.maps import keep_map
from wng.evolution.methods import METHODS, preset
from wng.evolution.trainer import EvolutionTrainer
from wng.runs.directory import RunDirectory
from wng.runs.training import Row, Trainable
from wng.settings import Settings, check_names


class Evolution(Trainable):
    """A policy that evolves in an environment. For a black box of your own see `wng.WNES`, ….

    Args:
      env: a Gymnasium id.
      method: such as "wnes"; `wng methods` lists them.
      seed: of everything random.
      settings: tuned, paper or released; see `wng.evolution.methods.preset`.
      embedding: Φ as a function of a `wng.Trajectory`, in place of a name. It sees a whole
        episode; `observations[t]` is what step t led to.
      config: a whole configuration, in place of a preset.
      overrides: fields of `wng.EvolutionConfig`.

    Attributes:
      config: every setting.
      steps: environment steps so far.
    """

    kind = "evolution"
    _trainer: EvolutionTrainer

    def __init__(
        self,
        env: str,
        method: str,
        seed: int = 0,
        *,
        settings: Settings = "tuned",
        embedding: Any = None,
        config: EvolutionConfig | None = None,
        **overrides: Any,
    ):
        if isinstance(embedding, str):
            overrides["embedding"], embedding = embedding, None
        elif embedding is not None:
            overrides["embedding"] = code_name(embedding)
        check_names(overrides, EvolutionConfig)
        self.config: EvolutionConfig = (
            dataclasses.replace(config, **overrides)
            if config is not None
            else preset(method, settings, env, **overrides)
        )
        self.env, self.method, self.seed = env, method, seed
        self._trainer = EvolutionTrainer(env, self.config, seed, embedding)
        self._draws = 0

    @property
    def title(self) -> str:
        """The method's name as people write it."""
        return METHODS[self.method].title if self.method in METHODS else self.method

    @property
    def params(self) -> Any:
        """Parameters of the policy, the centre of the population."""
        return self._trainer.strategy.params(self._trainer.state)

    def shown(self, row: Row) -> Row:
        """What the progress bar says."""
        fields = {"return": row["return"], "population": row["population_mean"]}
        if "past_wall" in row:
            fields["past wall"] = row["population_past_wall"]
        if row["dropped"]:
            fields["dropped"] = row["dropped"]
        return fields

    def _keep(self, run: RunDirectory) -> None:
        trainer = self._trainer
        if trainer.map is not None and trainer.episodes is not None:
            keep_map(run.path, trainer.iteration, trainer.episodes)

    def predict(self, observation: Any, *, deterministic: bool = True) -> np.ndarray:
        """The action in one state, or actions in several, as the environment takes them."""
        trainer = self._trainer
        rows, batch = read_observations(observation, self.env, trainer.spec.observation_size)
        noise: np.ndarray = np.zeros((len(rows), trainer.spec.action_size), np.float32)
        if not deterministic:
            self._draws += 1
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), 3), self._draws)
            noise = self.config.action_noise * np.asarray(jax.random.normal(key, noise.shape))
        actions = trainer.spec.as_taken(np.asarray(_act(trainer.policy, self.params, rows, noise)))
        return actions if batch else actions[0]

    def evaluate(
        self,
        episodes: int = 10,
        *,
        deterministic: bool = True,
        seed: int = 1_000_000,
        untrained: bool = False,
    ) -> np.ndarray:
        """Returns of whole episodes of the policy at the centre, in environments of their own.

        Args:
          episodes: how many.
          deterministic: without or with noise on the actions.
          seed: of the episodes; the same for every agent, so that comparisons are fair.
          untrained: evaluate the policy as it was before learning.
        """
        trainer = self._trainer
        state = trainer.initial_state() if untrained else trainer.state
        params = trainer.strategy.params(state)
        scale = 0.0 if deterministic else self.config.action_noise

        def make_act(seed: int) -> Act:
            draw = np.random.default_rng(seed)

            def act(rows: np.ndarray) -> np.ndarray:
                noise = draw.normal(size=(len(rows), trainer.spec.action_size)) * scale
                return np.asarray(_act(trainer.policy, params, rows, noise.astype(np.float32)))

            return act

        return episode_returns(self.env, make_act, episodes, seed, trainer.horizon)

    @classmethod
    def from_checkpoint(
        cls, arrays: dict[str, np.ndarray], info: dict[str, Any], embedding: Any = None
    ) -> "Evolution":
        """The agent of a checkpoint; see `wng.load`."""
        settings = info["config"] | {"hidden": tuple(info["config"]["hidden"])}
        config = EvolutionConfig(**settings)
        agent = cls(info["env"], info["method"], info["seed"], embedding=embedding, config=config)
        agent._trainer.restore(arrays, info)
        return agent


@partial(jax.jit, static_argnums=0)
def _act(policy: Any, params: Any, rows: Any, noise: Any) -> Any:
    layers = policy.layers(params)
    return jax.vmap(lambda row, eps: policy.act(layers, row, eps))(rows, noise)
