"""What the Gymnasium environments of all wall tasks share."""

import abc
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from wng.envs.walls.map import Map


class WallEnv(gymnasium.Env, abc.ABC):
    """A wall task; subclasses define `step`, `render` and how an episode begins."""

    def __init__(self, map: Map, bound: np.ndarray, actions: int, render_mode: str | None) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be 'rgb_array' or None, got {render_mode!r}.")
        self.map, self.render_mode, self._actions = map, render_mode, actions
        self.observation_space = Box(-bound, bound, dtype=np.float32)
        self.action_space = Box(-1.0, 1.0, (actions,), np.float32)

    @abc.abstractmethod
    def _begin(self) -> np.ndarray:
        """Start an episode; its first observation."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        return self._begin(), {}

    def checked(self, action: Any) -> np.ndarray:
        """Return an action as an array, or raise a ValueError if it is not one."""
        given = np.asarray(action, np.float64)
        if given.shape != (self._actions,) or np.isnan(given).any():
            raise ValueError(
                f"an action of {type(self).__name__} must be {self._actions} numbers, "
                f"got {given.tolist()}."
            )
        return given
