from pathlib import Path

import numpy as np
import pytest

from wng.experiments.transport import study as transport
from wng.experiments.transport.settings import TransportSettings


def test_squared_distance_by_hand() -> None:
    X = np.array([[0.0, 0.0], [4.0, 0.0]])
    Y = np.array([[4.0, 1.0], [0.0, 2.0]])  # 0→(0,2): 4, 4→(4,1): 1
    assert transport.squared_distance(X, Y) == pytest.approx(2.5)


def test_the_field_carries_samples_most_of_the_way(tmp_path: Path) -> None:
    settings = TransportSettings(num_samples=300)
    for result in transport.reproduce(settings, tmp_path, "wng reproduce transport"):
        assert result.left - result.floor < 0.2 * (result.distance - result.floor)
    assert (tmp_path / "figures" / "transport.png").stat().st_size > 20_000
    assert (tmp_path / "data" / "banana.csv").read_text().startswith("x,y,move_x,move_y\n")
    assert "| banana |" in (tmp_path / "report.md").read_text()
