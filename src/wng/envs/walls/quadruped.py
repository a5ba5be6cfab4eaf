"""The quadruped wall task: a four-legged MuJoCo walker with eight motors."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float64

from wng.envs.mujoco_batch import (
    STATE,
    Actions,
    Ends,
    MujocoBatch,
    Observations,
    Rewards,
    Sensors,
    States,
)
from wng.envs.viewer import Viewer
from wng.envs.walls.env import WallEnv
from wng.envs.walls.map import Box, Map

MODEL = Path(__file__).with_name("quadruped.xml")


class QuadrupedTask:
    """The task of reaching a goal behind a cup (paper, section on evolution strategies).

    The reward is minus the horizontal distance from the torso to the goal; episodes never
    terminate. The observation holds positions (15: x, y, z, a quaternion, then hip and knee of the
    legs at 45°, 135°, 225°, 315°), velocities (14) and the normal force on each foot (4) as a
    fraction of the body's weight, clipped to [0, 1]. The paper has Gym's external forces on every
    body (`cfrc_ext`) instead, which `mujoco.rollout` does not provide.
    """

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_path(str(MODEL))
        self.frame_skip, self.action_size = 5, self.model.nu
        self.action_low, self.action_high = (-1.0,) * self.model.nu, (1.0,) * self.model.nu
        self.observation_size = self.model.nq + self.model.nv + self.model.nsensordata
        walls = [self.model.geom(name) for name in ("left", "right", "back")]
        goal = self.model.site("goal").pos
        self.map = Map(
            walls=tuple(Box(*wall.pos[:2].tolist(), *wall.size[:2].tolist()) for wall in walls),
            goal=(float(goal[0]), float(goal[1])),
            radius=float(self.model.geom("torso").size[0]),
            extent=(-2.0, 17.0, -6.0, 6.0),
        )
        self._standing = np.empty(mujoco.mj_stateSize(self.model, STATE))
        mujoco.mj_getState(self.model, mujoco.MjData(self.model), self._standing, STATE)
        self._weight = self.model.body_mass.sum() * np.linalg.norm(self.model.opt.gravity)

    def initial_state(self, rng: np.random.Generator) -> Float64[np.ndarray, " S"]:
        """Stand at the origin with noise: positions ±0.1, velocities N(0, 0.1²)."""
        state = self._standing.copy()
        position, velocity = np.split(state[1:], [self.model.nq])  # state[0] is the time
        position += rng.uniform(-0.1, 0.1, position.size)
        position[3:7] /= np.linalg.norm(position[3:7])
        velocity += rng.normal(0.0, 0.1, velocity.size)
        return state

    def observe(self, states: States, sensors: Sensors) -> Observations:
        """Return positions, velocities and clipped forces on the feet."""
        forces = np.clip(sensors / self._weight, 0.0, 1.0)
        return np.concatenate([states[:, 1:], forces], axis=1, dtype=np.float32)

    def reward(self, states: States, sensors: Sensors, actions: Actions) -> Rewards:
        """Return minus the distance to the goal."""
        return -np.linalg.norm(states[:, 1:3] - self.map.goal, axis=1)

    def terminated(self, states: States, sensors: Sensors) -> Ends:
        """Return False for every state."""
        return np.zeros(len(states), bool)


class QuadrupedWall(WallEnv):
    """`QuadrupedTask` for Gymnasium. Equals `MujocoBatch` with the same seed, bit for bit."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.mujoco_task = task = QuadrupedTask()
        bound = np.full(task.observation_size, np.inf, np.float32)
        super().__init__(task.map, bound, task.action_size, render_mode)
        self._batch = MujocoBatch(task, 1, threads=1)
        self._viewer: Viewer | None = None

    def _begin(self) -> np.ndarray:
        return self._batch.reset([self.np_random])[0]

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Hold an action for 0.05 seconds."""
        observations, rewards, _ = self._batch.step(self.checked(action)[None])
        return observations[0], float(rewards[0]), False, False, {}

    def render(self) -> np.ndarray | None:
        """Render the walker, the cup and the goal; returns None unless `render_mode` is set."""
        if self.render_mode is None:
            return None
        if self._viewer is None:
            self._viewer = Viewer(self.mujoco_task.model)
        return self._viewer.draw(
            lambda model, data: mujoco.mj_setState(model, data, self._batch.states[0], STATE),
            camera=self.mujoco_task.model.camera("overview").id,
        )

    def close(self) -> None:
        """Free the simulator and the renderer. Can be called more than once."""
        self._batch.close()
        if self._viewer is not None:
            self._viewer.close()
            self._viewer = None
