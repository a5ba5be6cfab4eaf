"""Pictures: everything at its place, in the right color."""

import numpy as np
import pytest

from wng.envs.walls.draw import BODY, GOAL, GROUND, PATH, WALL, draw
from wng.envs.walls.map import Box, Map
from wng.envs.walls.point import PointWall

MAP = Map((Box(4.0, 2.0, 1.0, 0.5),), (8.0, -3.0), 0.5, (0.0, 10.0, -4.0, 4.0))


def at(image, x, y):
    """Color at a position of `MAP`, for a picture 320 wide."""
    return tuple(image[round((4 - y) * 32), round(x * 32)].tolist())


def test_everything_is_at_its_place():
    image = draw(MAP, (1.5, -1.0), [(1.5, 3.0), (1.5, -1.0)], width=320)
    assert image.shape == (256, 320, 3)
    assert image.dtype == np.uint8
    assert at(image, 1.5, -1) == BODY
    assert at(image, 8, -3) == GOAL
    assert at(image, 1.5, 1) == PATH
    for x, y in ((4, 2), (3.1, 2.4), (4.9, 1.6)):
        assert at(image, x, y) == WALL
    for x, y in ((2.8, 2), (5.2, 2), (4, 2.7), (4, 1.3), (4, -2), (1.5, 3.5), (1.5, -2)):
        assert at(image, x, y) == GROUND


@pytest.mark.parametrize("path", [[], [(1.0, 1.0)]])
def test_body_and_path_are_optional(path):
    image = draw(MAP, path=path, width=320)
    assert not (image == BODY).all(-1).any()
    assert not (image == PATH).all(-1).any()
    assert (image == WALL).all(-1).sum() == pytest.approx(64 * 32, rel=0.1)


def test_a_body_out_of_sight_is_no_error():
    image = draw(MAP, (500.0, 900.0), [(1.0, 1.0), (500.0, 900.0)])
    assert image.shape == (512, 640, 3)
    assert not (image == BODY).all(-1).any()


def test_rendering_shows_the_path_so_far():
    env = PointWall(render_mode="rgb_array")
    assert env.render() is None
    env.reset(seed=0)
    before = env.render()
    for _ in range(15):
        env.step(np.array([1.0, 0.4]))
    after = env.render()
    assert before.shape == after.shape == (400, 640, 3)
    assert (before != after).any()
    env.reset(seed=0)  # a new episode, a new path
    np.testing.assert_array_equal(env.render(), before)
    env = PointWall()
    env.reset(seed=0)
    assert env.render() is None
    with pytest.raises(ValueError, match="'rgb_array' or None"):
        PointWall(render_mode="human")
