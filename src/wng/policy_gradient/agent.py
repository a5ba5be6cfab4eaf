"""The face of policy gradients: learn, predict, evaluate, save, load."""

from typing import Any

import jax
import numpy as np

from wng.agents.agent import BaseAgent
from wng.policy_gradient.config import Config
from wng.policy_gradient.methods import METHODS, preset
from wng.policy_gradient.trainer import Trainer
from wng.policy_gradient.update import TrainState
from wng.runs.training import Row


class Agent(BaseAgent):
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
    config_class, methods, trainer_class = Config, METHODS, Trainer
    preset = staticmethod(preset)
    config: Config
    _trainer: Trainer

    def shown(self, row: Row) -> Row:
        """What the progress bar says."""
        fields = {"return": row["return_recent"], "KL": row["kl"]}
        if row["epsilon"]:
            fields["ε"] = row["epsilon"]
        if row["skipped"]:
            fields["skipped"] = row["skipped"]
        return fields

    def _actions(self, state: TrainState, rows: np.ndarray, key: jax.Array | None) -> np.ndarray:
        learner = self._trainer.learner
        noise = np.zeros((len(rows), learner.action_size), np.float32)
        if key is not None:
            draw = jax.random.gumbel if learner.discrete else jax.random.normal
            noise = np.asarray(draw(key, noise.shape))
        moments = state.observation_moments
        act = learner.act(state.networks, moments, rows, noise, deterministic=key is None)
        return np.asarray(act)


def _method_class(method: str) -> type[Agent]:
    title, about = METHODS[method].title, METHODS[method].about

    class Chosen(Agent):
        def __init__(self, env: str, seed: int = 0, **settings: Any):
            super().__init__(env, method, seed, **settings)

    Chosen.__name__ = Chosen.__qualname__ = method.upper()
    Chosen.__doc__ = f"{title}: {about}. Arguments as for `wng.Agent`."
    return Chosen


PG, PPO, PPOKL, NPG, TRPO, BGPG, WNPG, BGWNPG, WTRPO = map(_method_class, METHODS)
