"""Pictures of MuJoCo models without a screen."""

import os
import sys
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np


class Viewer:
    """Draws states of a model with Gymnasium's renderer.

    MuJoCo's own picks its OpenGL when it is imported, which is too early to choose one here.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        from gymnasium.envs.mujoco.mujoco_rendering import OffScreenViewer

        if sys.platform == "linux" and "DISPLAY" not in os.environ:
            os.environ.setdefault("MUJOCO_GL", "egl")  # headless
        self._viewer: Any = OffScreenViewer(model, mujoco.MjData(model), width=640, height=480)

    def draw(
        self, place: Callable[[mujoco.MjModel, mujoco.MjData], None], camera: int | None = None
    ) -> np.ndarray:
        """Draw the state in which `place(model, data)` leaves `data`."""
        model, data = self._viewer.model, self._viewer.data
        place(model, data)
        mujoco.mj_forward(model, data)
        self._viewer.make_context_current()  # other viewers may exist
        return self._viewer.render("rgb_array", camera_id=camera)

    def close(self) -> None:
        """Free the renderer."""
        self._viewer.make_context_current()  # or it would free another viewer's buffers
        self._viewer.con.free()
        self._viewer.free()
