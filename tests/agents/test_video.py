"""Videos of an agent."""

import numpy as np
import pytest
from PIL import Image, ImageSequence
from policy_gradient.tiny import TINY

import wng
from wng.agents.video import film

POINT = "wng/PointWall-v0"


@pytest.fixture(scope="module")
def agent() -> wng.Agent:
    return wng.Agent(POINT, "pg", **TINY)


def test_a_gif_shows_the_frames_at_their_speed(agent: wng.Agent, tmp_path) -> None:
    path = tmp_path / "new" / "film.gif"
    (total,) = film(agent, path, most_frames=10, deterministic=False)
    assert np.isfinite(total)
    with Image.open(path) as shown:
        times = [frame.info["duration"] for frame in ImageSequence.Iterator(shown)]
    assert len(times) > 2
    assert sum(times) == 10 * 40  # ms: frames that are the same are joined


def test_returns_are_those_of_whole_episodes(agent: wng.Agent, tmp_path) -> None:
    totals = film(agent, tmp_path / "film.gif", episodes=2, seed=3)
    assert len(totals) == 2
    assert film(agent, tmp_path / "again.gif", episodes=1, seed=4) == totals[1:]


def test_mistakes_are_one_clear_sentence(agent: wng.Agent, tmp_path) -> None:
    with pytest.raises(ValueError, match=r"an \.mp4 or \.gif file, got 'film.avi'"):
        film(agent, tmp_path / "film.avi")
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        film(agent, tmp_path / "film.gif", episodes=0)
    with pytest.raises(ValueError, match="seed"):
        film(agent, tmp_path / "film.gif", seed=-1)
    blind = wng.Agent("wng/ProbeContextual-v0", "pg", **TINY)
    with pytest.raises(ValueError, match="cannot be recorded: it has no render mode 'rgb_array'"):
        film(blind, tmp_path / "film.gif")
    blind.close()
    assert list(tmp_path.iterdir()) == []
