"""The face of evolution strategies on environments: learn, predict, evaluate, save."""

from functools import partial
from typing import Any

import jax
import numpy as np

from wng.agents.agent import BaseAgent
from wng.evolution.config import EvolutionConfig
from wng.evolution.maps import keep_map
from wng.evolution.methods import METHODS, preset
from wng.evolution.strategy import State
from wng.evolution.trainer import EvolutionTrainer
from wng.runs.directory import RunDirectory
from wng.runs.executor import Executor
from wng.runs.training import Row


class Evolution(BaseAgent):
    """A policy that evolves in an environment. For a black box of your own see `wng.WNES`, ….

    Its most likely action is that of the policy at the centre without noise.

    Args:
      env: a Gymnasium id.
      method: such as "wnes"; `wng methods` lists them.
      seed: of everything random.
      settings: tuned, paper or released; see `wng.evolution.methods.preset`.
      embedding: Φ as a function of a `wng.Trajectory`, in place of a name. It sees a whole
        episode; `observations[t]` is what step t led to.
      config: a whole configuration, in place of a preset.
      executor: where episodes run, such as a `wng.RayExecutor`; by default here.
      overrides: fields of `wng.EvolutionConfig`.

    Attributes:
      config: every setting.
      steps: environment steps so far.
    """

    kind = "evolution"

    def __init__(self, *arguments: Any, executor: Executor | None = None, **settings: Any):
        self._executor = executor
        super().__init__(*arguments, **settings)

    def _make_trainer(self, embedding: Any) -> EvolutionTrainer:
        return EvolutionTrainer(self.env, self.config, self.seed, embedding, self._executor)

    config_class, methods, trainer_class = EvolutionConfig, METHODS, EvolutionTrainer
    preset = staticmethod(preset)
    config: EvolutionConfig
    _trainer: EvolutionTrainer

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

    def _actions(self, state: State, rows: np.ndarray, key: jax.Array | None) -> np.ndarray:
        trainer = self._trainer
        noise: np.ndarray = np.zeros((len(rows), trainer.spec.action_size), np.float32)
        if key is not None:
            noise = self.config.action_noise * np.asarray(jax.random.normal(key, noise.shape))
        return np.asarray(_act(trainer.policy, trainer.strategy.params(state), rows, noise))


@partial(jax.jit, static_argnums=0)
def _act(policy: Any, params: Any, rows: Any, noise: Any) -> Any:
    layers = policy.layers(params)
    return jax.vmap(lambda row, eps: policy.act(layers, row, eps))(rows, noise)
