"""A wall task seen from above."""

from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle with sides along the axes."""

    x: float
    y: float
    half_x: float
    half_y: float


class Map(NamedTuple):
    """What a picture of the task shows. A body's position is the start of its observation."""

    walls: tuple[Box, ...]
    goal: tuple[float, float]
    radius: float  # of the body
    extent: tuple[float, float, float, float]  # lowest and highest x, lowest and highest y

    def past_wall(self, x: float, y: float) -> bool:
        """Whether a position is on the goal's side: beyond the far face of every box."""
        return x > max(box.x + box.half_x for box in self.walls)
