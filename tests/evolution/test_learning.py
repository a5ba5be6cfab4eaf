"""Each method learns: the way toward the goal in seconds, around the wall and a pole in minutes."""

import pytest

from evolution.tiny import ENV, METHODS
from wng.agents.agent import Agent


def before_and_after(method: str, seed: int, steps: int) -> tuple[float, float]:
    """Mean returns of 10 episodes; full throttle into the cup is worth about −780."""
    agent = Agent(ENV, method, seed).learn(steps, progress=False)
    return agent.evaluate(10, untrained=True).mean(), agent.evaluate(10).mean()


@pytest.mark.parametrize("method", [pytest.param("es", marks=pytest.mark.slow), "wnes"])
def test_the_way_toward_the_goal_is_found_at_once(method: str) -> None:
    for seed in (0, 1):
        before, after = before_and_after(method, seed, 150_000)
        assert before < -1200
        assert after > -900


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(method: str) -> None:
    results = [before_and_after(method, seed, 500_000) for seed in range(4)]
    for before, after in results:
        assert after > before + 300
    assert max(after for _, after in results) > -700  # some find the way around the wall


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_cartpole(seed: int) -> None:
    settings = {"hidden": (8,), "sigma": 0.2, "learning_rate": 0.1, "backend": "gymnasium"}
    agent = Agent("CartPole-v1", "es", seed, **settings).learn(450_000, progress=False)
    assert agent.evaluate(20).mean() > 400  # of 500; 9 to 30 before
    agent.close()
