"""Top view of a wall task."""

from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle with sides parallel to the axes."""

    x: float
    y: float
    half_x: float
    half_y: float


class Map(NamedTuple):
    """Walls and goal of a task. Observations of such a task start with the position of the body."""

    walls: tuple[Box, ...]
    goal: tuple[float, float]
    radius: float  # of the body
    extent: tuple[float, float, float, float]  # lowest x, highest x, lowest y, highest y

    def past_wall(self, x: float, y: float) -> bool:
        """Tell whether a position is on the goal's side, beyond the far face of every box."""
        return x > max(box.x + box.half_x for box in self.walls)
