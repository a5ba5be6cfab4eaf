"""Each method learns: probes with known values, then a pole to balance. Minutes."""

import numpy as np
import pytest

from wng.agents.agent import Agent
from wng.policy_gradient.methods import METHODS

pytestmark = pytest.mark.slow
on_each_backend = pytest.mark.parametrize("backend", ["gymnasium", "jax"])


def learned(method: str, env: str, steps: int, **settings) -> Agent:
    agent = Agent(env, method, seed=0, **settings)
    return agent.learn(steps, progress=False)


@on_each_backend
@pytest.mark.parametrize("method", METHODS)
def test_continuous_actions_that_depend_on_the_state(method: str, backend: str) -> None:
    agent = learned(method, "wng/ProbeContextual-v0", 60 * 2048, backend=backend)
    # Best 0; -0.25 without looking at the state.
    assert agent.evaluate(20).mean() > -0.05
    np.testing.assert_allclose(agent.predict([[-1.0], [1.0]])[:, 0], [-0.5, 0.5], atol=0.25)
    agent.close()


@on_each_backend
@pytest.mark.parametrize("method", METHODS)
def test_discrete_actions_that_depend_on_the_state(method: str, backend: str) -> None:
    agent = learned(method, "wng/ProbeDiscreteContextual-v0", 40 * 2048, backend=backend)
    np.testing.assert_array_equal(agent.evaluate(20), 1.0)  # 0.5 without looking
    agent.close()


@on_each_backend
@pytest.mark.parametrize("method", METHODS)
def test_discounted_values(method: str, backend: str) -> None:
    agent = learned(
        method,
        "wng/ProbeDiscount-v0",
        20 * 2048,
        backend=backend,
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


@on_each_backend
def test_truncation_bootstraps_and_termination_does_not(backend: str) -> None:
    settings = {"backend": backend, "gamma": 0.5, "normalize_rewards": False}

    def values(env: str, steps: int, rows: np.ndarray) -> np.ndarray:
        agent = learned("ppo", env, steps, **settings)
        state = agent.trainer.state
        agent.close()
        return np.asarray(state.networks.values(state.observation_moments.normalize(rows)))

    # Cut after 5 steps that are worth 1 each, but could go on: 1/(1 − γ) = 2.
    cut = values("wng/ProbeTruncation-v0", 30 * 2048, np.zeros((1, 1), np.float32))
    np.testing.assert_allclose(cut, 2.0, atol=0.1)
    # Episodes of odd lengths terminate: Σ_{t < n} γᵗ with n steps to go.
    rows = np.array([[t, length] for length in (1, 3, 5) for t in range(length)], np.float32)
    found = values("wng/ProbeCounter-v0", 60 * 2048, rows)
    np.testing.assert_allclose(found, 2 * (1 - 0.5 ** (rows[:, 1] - rows[:, 0])), atol=0.15)


def test_the_released_penalty_holds_the_policy_back() -> None:
    """At the same rate and seed, BGPG moves at most half as far as PG, in KL per iteration."""
    rates = {"learning_rate": 3e-4, "value_learning_rate": 3e-4}
    mean = {}
    for method in ("pg", "bgpg"):
        agent = Agent("InvertedDoublePendulum-v5", method, 100, settings="released", **rates)
        kl: list[float] = []
        agent.learn(40_000, progress=False, callback=lambda _, row, kl=kl: kl.append(row["kl"]))
        mean[method] = np.mean(kl)
        agent.close()
    print(mean)
    assert mean["bgpg"] < 0.5 * mean["pg"]
