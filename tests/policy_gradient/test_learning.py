"""Each method learns: probes with known values, then a pole to balance. Minutes."""

import numpy as np
import pytest

from wng.agents.agent import Agent
from wng.policy_gradient.methods import METHODS

pytestmark = pytest.mark.slow


def learned(method: str, env: str, steps: int, **settings) -> Agent:
    agent = Agent(env, method, seed=0, **settings)
    return agent.learn(steps, progress=False)


@pytest.mark.parametrize("method", METHODS)
def test_continuous_actions_that_depend_on_the_state(method: str) -> None:
    agent = learned(method, "wng/ProbeContextual-v0", 60 * 2048, backend="gymnasium")
    # Best 0; -0.25 without looking at the state.
    assert agent.evaluate(20).mean() > -0.05
    np.testing.assert_allclose(agent.predict([[-1.0], [1.0]])[:, 0], [-0.5, 0.5], atol=0.25)
    agent.close()


@pytest.mark.parametrize("method", METHODS)
def test_discrete_actions_that_depend_on_the_state(method: str) -> None:
    agent = learned(method, "wng/ProbeDiscreteContextual-v0", 40 * 2048, backend="gymnasium")
    np.testing.assert_array_equal(agent.evaluate(20), 1.0)  # 0.5 without looking
    agent.close()


@pytest.mark.parametrize("method", METHODS)
def test_discounted_values(method: str) -> None:
    agent = learned(
        method,
        "wng/ProbeDiscount-v0",
        20 * 2048,
        backend="gymnasium",
        gamma=0.5,
        normalize_rewards=False,
    )
    state = agent.trainer.state
    seen = state.observation_moments.normalize(np.array([[0.0], [1.0]], np.float32))
    np.testing.assert_allclose(state.networks.values(seen), [0.5, 1.0], atol=0.05)
    agent.close()


@pytest.mark.parametrize("method", METHODS)
def test_cartpole(method: str) -> None:
    agent = learned(method, "CartPole-v1", 100_000, backend="gymnasium")
    assert agent.evaluate(20).mean() > 300  # of 500; 9 to 20 before learning
    agent.close()
