"""Settings of a strategy that learns little, but at once."""

from typing import Any

import numpy as np

from wng.agents.agent import Agent

ENV = "wng/PointWall-v0"
METHODS = ("es", "esclip", "nsres", "bges", "wnes", "bgwnes", "nsrwnes", "snes", "wsnes")
TINY: dict[str, Any] = {
    "population": 8,
    "hidden": (4,),
    "num_basis": 4,
    "dual_features": 16,
    "dual_steps": 4,
    "archive": 3,  # overwritten after three generations
    "neighbors": 2,
}
GENERATION = 8 * 50  # steps


def tiny(env: str = ENV, method: str = "wnes", seed: int = 0, **settings: Any) -> Agent:
    return Agent(env, method, seed, **{**TINY, **settings})


def assert_same(a: Agent, b: Agent) -> None:
    """All that a checkpoint holds is equal, bit for bit."""
    (one, one_info), (other, other_info) = a.trainer.checkpoint(), b.trainer.checkpoint()
    assert one_info == other_info
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def without_times(row: dict[str, float]) -> dict[str, float]:
    return {name: x for name, x in row.items() if not name.startswith("seconds")}
