"""Evolution strategies on environments: learn, predict, evaluate, save."""

from typing import Any

import jax
import numpy as np

from wng.agents.agent import BaseAgent
from wng.evolution.config import EvolutionConfig
from wng.evolution.methods import METHODS, preset
from wng.evolution.strategy import State
from wng.evolution.trainer import EvolutionTrainer
from wng.runs.directory import RunDirectory
from wng.runs.executor import Executor
from wng.runs.training import Row


class Evolution(BaseAgent):
    """A policy that evolves in an environment; `executor` says where its episodes run."""

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
        """Parameters of the policy, the center of the population."""
        return self._trainer.strategy.params(self._trainer.state)

    def shown(self, row: Row) -> Row:
        """See `EvolutionTrainer.shown`."""
        return self._trainer.shown(row)

    def _keep(self, run: RunDirectory) -> None:
        self._trainer.keep(run.path)

    def _actions(self, state: State, rows: np.ndarray, key: jax.Array | None) -> np.ndarray:
        return self._trainer.actions(state, rows, key)
