"""The point wall task: a force drives a heavy disc, and a cup-shaped wall blocks the goal.

The cup opens toward the disc. Heading straight for the goal ends in the cup; the way around starts
by moving away from the goal.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from wng.envs.walls.draw import draw
from wng.envs.walls.env import WallEnv
from wng.envs.walls.map import Box, Map

Number = Float[Array, ""]


def cup(depth: float, half_width: float) -> tuple[Box, ...]:
    """Build two arms of length `depth` at y = ±`half_width`, closed at x = 14, 0.6 m thick."""
    middle, half = 14.0 - depth / 2, depth / 2
    return (
        Box(middle, -half_width, half, 0.3),
        Box(middle, half_width, half, 0.3),
        Box(14.0, 0.0, 0.3, half_width),
    )


class PointState(NamedTuple):
    """Position and velocity of the disc as scalars, so that a population is four vectors."""

    x: Number
    y: Number
    vx: Number
    vy: Number


@dataclass(frozen=True)
class PointTask:
    """The task and its physics, a `wng.envs.jax_env.JaxEnv`. The defaults are the paper's task.

    Actions are forces in x and y, in units of `force`, clipped to [−1, 1]. Observations are
    [x, y, vx, vy]. The reward of a step is minus the distance to the goal after it. There is no
    friction. On contact, the disc slides along the wall: only the velocity along the wall remains.

    The disc cannot pass through walls. Even at the highest speed that an episode can reach (about
    101 m/s, diagonally), it moves less than its radius in a substep, so a center that is at least
    a radius away from a wall does not reach it in one substep. Each wall in turn then pushes the
    disc out. One pass is enough: walls are parallel to the axes and no gap is narrower than the
    disc, so the way out of one wall never leads deeper into another.
    """

    walls: tuple[Box, ...] = cup(depth=2.0, half_width=2.0)
    goal: tuple[float, float] = (25.0, 0.0)
    radius: float = 0.5  # m
    mass: float = 56.0  # kg
    force: float = 2000.0  # N for an action of 1
    start_spread: float = 0.1  # m, start uniform within ± this around the origin
    step_seconds: float = 0.04  # the paper's 0.02 with a frame-skip of 2
    substeps: int = 10  # per step
    horizon: int = 50  # steps
    extent: tuple[float, float, float, float] = (-4.0, 28.0, -10.0, 10.0)  # of the map

    def __post_init__(self) -> None:
        move = math.sqrt(2) * self.top_speed * self.step_seconds / self.substeps
        if move >= self.radius:
            raise ValueError(
                f"with {self.substeps} substeps, the disc can move {move:.2f} m at once, more than "
                f"its radius of {self.radius} m, and pass through walls: use at least "
                f"{math.floor(move * self.substeps / self.radius) + 1} substeps."
            )
        start = Box(0.0, 0.0, self.start_spread, self.start_spread)
        for box in self.walls:
            if _between(start, box) < self.radius:
                raise ValueError(f"the disc may start inside the wall {box}: move the wall.")
        for one, other in itertools.combinations(self.walls, 2):
            if 0 < _between(one, other) < 2 * self.radius:
                raise ValueError(
                    f"the gap between {one} and {other} is narrower than the disc: close it, "
                    "or widen it."
                )

    @property
    def top_speed(self) -> float:
        """Speed along an axis after a whole episode at full force, in m/s."""
        return self.force / self.mass * self.horizon * self.step_seconds

    @property
    def max_episode_steps(self) -> int:
        """The horizon."""
        return self.horizon

    @property
    def observation_space(self) -> gymnasium.spaces.Box:
        """Position and velocity, within what full force over a whole episode can reach."""
        far = self.start_spread + self.top_speed * self.horizon * self.step_seconds
        bound = np.array([far, far, self.top_speed, self.top_speed], np.float32)
        return gymnasium.spaces.Box(-bound, bound, dtype=np.float32)

    @property
    def action_space(self) -> gymnasium.spaces.Box:
        """The force in x and y."""
        return gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    @property
    def map(self) -> Map:
        """Top view of the task."""
        return Map(self.walls, self.goal, self.radius, self.extent)

    def reset(self, key: PRNGKeyArray) -> tuple[PointState, Float[Array, " 4"]]:
        """Start at rest, near the origin."""
        spread = self.start_spread
        x, y = jax.random.uniform(key, (2,), jnp.float32, -spread, spread)
        state = PointState(x, y, jnp.zeros_like(x), jnp.zeros_like(y))
        return state, jnp.stack(state)

    def step(
        self, key: PRNGKeyArray, state: PointState, action: Float[Array, " 2"]
    ) -> tuple[PointState, Float[Array, " 4"], Number, Bool[Array, ""], Bool[Array, ""]]:
        """Apply a force for one step. Episodes never terminate; the horizon truncates them."""
        push = self._push(action)
        state = jax.lax.fori_loop(0, self.substeps, lambda _, s: self._substep(s, push), state)
        distance = jnp.hypot(state.x - self.goal[0], state.y - self.goal[1])
        never = jnp.zeros((), bool)
        return state, jnp.stack(state), -distance, never, never

    def trace(self, state: PointState, action: Float[Array, " 2"]) -> Float[Array, "n 2"]:
        """Return the position after each substep of `step`."""
        push = self._push(action)

        def substep(state: PointState, _: None) -> tuple[PointState, Array]:
            state = self._substep(state, push)
            return state, jnp.stack(state[:2])

        return jax.lax.scan(substep, state, None, self.substeps)[1]

    def _push(self, action: Array) -> Array:  # change of velocity in a substep
        seconds = self.step_seconds / self.substeps
        return jnp.clip(action.astype(jnp.float32), -1, 1) * (self.force / self.mass * seconds)

    def _substep(self, state: PointState, push: Array) -> PointState:
        # A semi-implicit Euler step, then out of each wall in turn.
        seconds = self.step_seconds / self.substeps
        vx, vy = state.vx + push[0], state.vy + push[1]
        x, y = state.x + vx * seconds, state.y + vy * seconds
        for box in self.walls:
            distance, nx, ny = _distance(box, x, y)
            depth = jnp.maximum(self.radius - distance, 0)
            inward = jnp.where(depth > 0, jnp.minimum(vx * nx + vy * ny, 0), 0)
            x, y = x + depth * nx, y + depth * ny
            vx, vy = vx - inward * nx, vy - inward * ny
        return PointState(x, y, vx, vy)


def _between(a: Box, b: Box) -> float:
    """Return the distance between two boxes, 0 if they touch or overlap."""
    gap_x, gap_y = abs(a.x - b.x) - a.half_x - b.half_x, abs(a.y - b.y) - a.half_y - b.half_y
    return math.hypot(max(gap_x, 0), max(gap_y, 0))


def _distance(box: Box, x: Number, y: Number) -> tuple[Number, Number, Number]:
    """Return the distance from a box (negative inside), and the direction away from it."""
    dx, dy = x - box.x, y - box.y
    gap_x, gap_y = jnp.abs(dx) - box.half_x, jnp.abs(dy) - box.half_y
    inside = jnp.maximum(gap_x, gap_y)
    # Outside, the direction points away from the nearest point of the box, which rounds the
    # corners; inside, toward the nearest side.
    out_x = jnp.where(inside > 0, jnp.maximum(gap_x, 0), jnp.where(gap_x >= gap_y, 1.0, 0.0))
    out_y = jnp.where(inside > 0, jnp.maximum(gap_y, 0), jnp.where(gap_x < gap_y, 1.0, 0.0))
    length = jnp.sqrt(out_x * out_x + out_y * out_y)
    scale = 1 / length
    nx, ny = jnp.copysign(out_x, dx) * scale, jnp.copysign(out_y, dy) * scale
    return jnp.where(inside > 0, length, inside), nx, ny


_reset = jax.jit(PointTask.reset, static_argnums=0)
_step = jax.jit(PointTask.step, static_argnums=0)
_trace = jax.jit(PointTask.trace, static_argnums=0)


class PointWall(WallEnv):
    """The paper's cup: 2 m deep, arms at y = ±2.

    Wraps a `PointTask` for Gymnasium with the same compiled functions. Gymnasium's wrapper sets the
    time limit, within which the disc cannot pass through walls.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012
    jax_env: PointTask = PointTask()

    def __init__(self, render_mode: str | None = None) -> None:
        task = self.jax_env
        super().__init__(task.map, task.observation_space.high, 2, render_mode)
        self._state: PointState | None = None
        self._path: list[tuple[float, float]] = []

    def _begin(self) -> np.ndarray:
        key = jax.random.key(int(self.np_random.integers(2**31)))
        self._state, observation = _reset(self.jax_env, key)
        self._path = [(float(self._state.x), float(self._state.y))]
        return np.array(observation)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Apply a force for one step."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before the first step().")
        push = self.checked(action).astype(np.float32)
        if self.render_mode is not None:  # record substeps, or the path would cut corners
            self._path += map(tuple, _trace(self.jax_env, self._state, push).tolist())
        self._state, observation, reward, *_ = _step(self.jax_env, None, self._state, push)
        return np.array(observation), float(reward), False, False, {}

    def render(self) -> np.ndarray | None:
        """Draw the task with the path of the episode so far."""
        if self.render_mode is None or not self._path:
            return None
        return draw(self.map, self._path[-1], self._path)


class PointWallEasy(PointWall):
    """A shallower, narrower cup: 1 m deep, arms at y = ±1.2."""

    jax_env = PointTask(walls=cup(depth=1.0, half_width=1.2))


class PointWallHard(PointWall):
    """A deeper, wider cup: 4 m deep, arms at y = ±3.5."""

    jax_env = PointTask(walls=cup(depth=4.0, half_width=3.5))
