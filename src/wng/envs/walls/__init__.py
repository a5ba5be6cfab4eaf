"""Tasks with a wall between start and goal, where the straight path is a trap."""

WALLS = {  # entry points and time limits
    "wng/PointWall-v0": ("wng.envs.walls.point:PointWall", 50),
    "wng/PointWallEasy-v0": ("wng.envs.walls.point:PointWallEasy", 50),
    "wng/PointWallHard-v0": ("wng.envs.walls.point:PointWallHard", 50),
    "wng/QuadrupedWall-v0": ("wng.envs.walls.quadruped:QuadrupedWall", 400),
}
