"""A user's own geometry, proximity and step, without a change to the package."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from random_data import flat
from tiny import TINY

import wng
from wng.policy_gradient.axes import GEOMETRIES, PROXIMITIES, STEPS
from wng.policy_gradient.geometry import Geometry
from wng.policy_gradient.networks import Networks
from wng.policy_gradient.proximity import Proximity
from wng.policy_gradient.steps import Result, Step

PROBE = "wng/ProbeContextual-v0"


class DiagonalMetric(eqx.Module):
    diagonal: jax.Array

    @property
    def largest_eigenvalue(self) -> jax.Array:
        return self.diagonal.max()

    def solve(self, g: jax.Array, damping: jax.Array) -> jax.Array:
        return g / (self.diagonal + damping)


class Diagonal(Geometry):
    """The mean square of each parameter's score."""

    def metric(self, problem, networks, data, key) -> DiagonalMetric:
        def score(observation, action):
            gradient = jax.grad(lambda policy: policy(observation).log_prob(action))
            return ravel_pytree(gradient(networks.policy))[0]

        scores = jax.vmap(score)(data.batch.observations, data.batch.actions)
        return DiagonalMetric(jnp.mean(scores**2, axis=0))

    def transform(self, problem):
        return wng.scale_by_metric(problem.control)


class LogRatio(Proximity):
    """(β/2) E[log²ρ]; β is tripled after each batch."""

    def penalty(self, problem, networks, data, key):
        batch = data.batch
        log_ratio = networks.policy(batch.observations).log_prob(batch.actions) - batch.log_probs
        return data.weight / 2 * jnp.mean(log_ratio**2)

    def adapt(self, config, weight, kl):
        return 3 * weight


class OneStep(Step):
    """One step of the whole batch along the geometry's direction; remembers how many."""

    def init(self, problem, networks):
        return jnp.zeros((), int)

    def take(self, problem, state, networks, data, key) -> Result:
        data = data._replace(batch=data.batch.standardized())
        theta, unravel = ravel_pytree(networks.policy)

        def loss(theta):
            return problem.proximity.loss(problem, Networks(unravel(theta), None), data, key)

        metric = problem.geometry.metric(problem, networks, data, key)
        direction = metric.solve(jax.grad(loss)(theta), jnp.asarray(problem.config.damping))
        moved = Networks(unravel(theta - problem.config.learning_rate * direction), networks.value)
        zero = jnp.zeros(())
        return Result(moved, state + 1, {"epsilon": zero, "fallbacks": zero, "own": zero + 7})

    def skipped(self, state):
        return jnp.zeros((), int)


diagonal, log_ratio, one_step = Diagonal(), LogRatio(), OneStep()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setitem(GEOMETRIES, "diagonal", diagonal)
    monkeypatch.setitem(PROXIMITIES, "log-ratio", log_ratio)
    monkeypatch.setitem(STEPS, "one", one_step)
    return {"geometry": "diagonal", "proximity": "log-ratio", "step": "one"}


IMPORTED = {
    "geometry": f"{__name__}:diagonal",
    "proximity": f"{__name__}:log_ratio",
    "step": f"{__name__}:one_step",
}


def tiny(**settings: Any) -> wng.Agent:
    return wng.Agent(PROBE, "pg", 0, **(TINY | {"learning_rate": 0.01} | settings))


def policy_of(agent: wng.Agent) -> np.ndarray:
    return flat(agent.trainer.state.networks.policy)


def test_an_agent_trains_with_axes_of_ones_own(registered: dict[str, str], tmp_path) -> None:
    rows: list[dict[str, float]] = []
    agents = [tiny(**axes) for axes in (registered, IMPORTED)]
    for agent in agents:
        agent.learn(128, progress=False, callback=lambda _, row: rows.append(row))
        state = agent.trainer.state
        assert state.step == 2
        assert state.penalty == 9
        assert np.isfinite(policy_of(agent)).all()
    assert [row["own"] for row in rows] == [7.0] * 4
    assert [row["penalty"] for row in rows] == [1.0, 3.0] * 2
    one, other = map(policy_of, agents)
    np.testing.assert_array_equal(one, other)
    start = flat(agents[0].trainer.initial_state().networks.policy)
    assert (one != start).any()

    agents[1].save(tmp_path / "agent")  # the file names the parts, and needs no more to find them
    loaded = wng.load(tmp_path / "agent")
    np.testing.assert_array_equal(policy_of(loaded), other)
    for agent in (*agents, loaded):
        agent.close()


def test_one_step_is_the_diagonal_solve_by_hand(registered: dict[str, str]) -> None:
    """At π_k the penalty is flat: the direction is g/(E[score²] + ε)."""
    agent = tiny(**registered)
    learner, before = agent.trainer.learner, agent.trainer.state
    seen = []
    update = learner.update

    def spy(state, rollout, key):
        seen.append(rollout)
        return update(state, rollout, key)

    learner.update = spy
    try:
        agent.learn(64, progress=False)
    finally:
        learner.update = update
    _, batch, *_ = learner.batch(before, seen[0])
    theta, unravel = ravel_pytree(before.networks.policy)
    scores = jax.jit(jax.jacobian(lambda t: unravel(t)(batch.observations).log_prob(batch.actions)))
    s = np.asarray(scores(theta), np.float64)
    advantages = np.asarray(batch.standardized().advantages, np.float64)
    g = -(s * advantages[:, None]).mean(axis=0)
    expected = -0.01 * g / ((s**2).mean(axis=0) + agent.config.damping)
    step = policy_of(agent) - np.asarray(theta)
    np.testing.assert_allclose(step, expected, atol=1e-3 * np.abs(expected).max())
    agent.close()


def test_a_geometry_of_ones_own_in_the_optimizers_chain(registered: dict[str, str]) -> None:
    settings = {"geometry": registered["geometry"], "proximity": registered["proximity"]}
    agent, plain = tiny(**settings), tiny()
    rows: list[dict[str, float]] = []
    agent.learn(64, progress=False, callback=lambda _, row: rows.append(row))
    plain.learn(64, progress=False)
    assert rows[0]["epsilon"] > 0
    assert rows[0]["skipped"] == 0
    start = flat(plain.trainer.initial_state().networks.policy)
    moves = [policy_of(each) - start for each in (agent, plain)]
    assert np.abs(moves[0] - moves[1]).max() > 0.1 * np.abs(moves[1]).max()
    for each in (agent, plain):
        each.close()


def test_a_name_that_is_assigned_anew_is_the_new_part(
    registered: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tiny(**registered)
    other = Diagonal()
    monkeypatch.setitem(GEOMETRIES, "diagonal", other)
    second = tiny(**registered)
    assert first.trainer.learner.problem.geometry is diagonal
    assert second.trainer.learner.problem.geometry is other
    for agent in (first, second):
        agent.close()


def test_mistakes_are_one_clear_sentence(registered: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="no geometry 'diagonl': did you mean 'diagonal'"):
        tiny(geometry="diagonl")
    with pytest.raises(ValueError, match="the step 'no_such_module:x' cannot be imported"):
        tiny(step="no_such_module:x")
