"""Draws a wall task from above."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from wng.envs.walls.map import Map

GROUND, GRID, WALL = (250, 249, 246), (233, 231, 226), (66, 72, 84)
GOAL, BODY, PATH = (34, 160, 107), (214, 84, 42), (240, 165, 135)

Point = tuple[float, float]

SMOOTHING = 3  # scale of the drawing before it is reduced, for smooth edges


def draw(
    map: Map, position: Point | None = None, path: Sequence[Point] = (), width: int = 640
) -> np.ndarray:
    """Draw walls, goal, body and path as uint8 [height, width, 3]; x points right, y up.

    The map's extent sets the height and crops the picture.
    """
    low_x, high_x, low_y, high_y = map.extent
    scale = SMOOTHING * width / (high_x - low_x)
    height = round((high_y - low_y) / (high_x - low_x) * width)

    def pixel(x: float, y: float) -> Point:
        return (x - low_x) * scale, (high_y - y) * scale

    image = Image.new("RGB", (SMOOTHING * width, SMOOTHING * height), GROUND)
    pen = ImageDraw.Draw(image)

    def disc(center: Point, radius: float, color: tuple[int, int, int]) -> None:
        x, y = pixel(*center)
        r = radius * scale
        pen.ellipse((x - r, y - r, x + r, y + r), fill=color)

    for k in range(int(low_x // 5), int(high_x // 5) + 1):  # grid lines every 5 m
        pen.line([(pixel(5 * k, 0)[0], 0), (pixel(5 * k, 0)[0], image.height)], GRID, SMOOTHING)
    for k in range(int(low_y // 5), int(high_y // 5) + 1):
        pen.line([(0, pixel(0, 5 * k)[1]), (image.width, pixel(0, 5 * k)[1])], GRID, SMOOTHING)
    for radius, color in ((1.0, GOAL), (0.75, GROUND), (0.45, GOAL)):  # a bull's-eye
        disc(map.goal, max(map.radius, 0.5) * radius, color)
    if len(path) > 1:
        line = [pixel(*point) for point in path]
        pen.line(line, PATH, round(max(0.12 * scale, SMOOTHING)), joint="curve")
        disc(path[0], 0.2, PATH)
    for box in map.walls:
        left, top = pixel(box.x - box.half_x, box.y + box.half_y)
        right, bottom = pixel(box.x + box.half_x, box.y - box.half_y)
        pen.rectangle((left, top, right, bottom), fill=WALL)
    if position is not None:
        disc(position, map.radius, BODY)
    return np.asarray(image.reduce(SMOOTHING))
