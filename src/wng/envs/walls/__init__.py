"""Tasks with a wall between start and goal, where the straight path is a trap."""

import gymnasium

from wng.envs.walls.map import Box, Map

WALLS = {
    "wng/PointWall-v0": ("wng.envs.walls.point:PointWall", 50),
    "wng/PointWallEasy-v0": ("wng.envs.walls.point:PointWallEasy", 50),
    "wng/PointWallHard-v0": ("wng.envs.walls.point:PointWallHard", 50),
    "wng/QuadrupedWall-v0": ("wng.envs.walls.quadruped:QuadrupedWall", 400),
}

__all__ = ["WALLS", "Box", "Map", "register_walls"]


def register_walls() -> None:
    """Register the wall tasks with Gymnasium, once."""
    for env_id, (entry_point, limit) in WALLS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=entry_point, max_episode_steps=limit)
