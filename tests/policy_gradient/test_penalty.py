"""The Wasserstein penalty has the value, the gradient and the scale of W₂²."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from wng.behavior.embedding import EMBEDDINGS, Embedding, find_embedding
from wng.policy_gradient.batch import Batch, Data
from wng.policy_gradient.behaviors import Windows
from wng.policy_gradient.methods import preset
from wng.policy_gradient.networks import MLP, Categorical, Networks, Policy
from wng.policy_gradient.problem import Problem
from wng.policy_gradient.proximity import wasserstein_penalty

STATES = jax.random.normal(jax.random.key(0), (2048, 2))
SHIFTS = (0.25, 0.5, 1.0, 2.0)
KEY = jax.random.key(3)


def networks(theta: jax.Array) -> Networks:
    """The policy N(μ + vᵀs, σ²) in the state s, θ = (μ, log σ, v); v is 0 if left out."""
    zeros = MLP(jax.random.key(0), (2, 1), 0.0)
    net = MLP.__new__(MLP)
    slope = theta[2:, None] if len(theta) > 2 else jnp.zeros((2, 1))
    object.__setattr__(net, "weights", (slope,))
    object.__setattr__(net, "biases", (theta[:1],))
    return Networks(Policy(net, theta[1:2]), zeros)


@cache
def problem(settings: str, **overrides: Any) -> Problem:
    config = preset("bgpg", settings, **{"num_envs": 1, "horizon": 4, **overrides})
    sizes = {"observation_size": 2, "action_size": 1, "discrete": False}
    return Problem(config, find_embedding(config.embedding), **sizes)


@cache
def penalty_of(
    made: Problem, std: float = 1.0, slope: tuple[float, ...] = ()
) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
    """Value and gradient in θ of the penalty on leaving N(vᵀs, std²), compiled once."""
    old = networks(jnp.array([0.0, np.log(std), *slope]))
    policy = old.policy(STATES)
    actions = policy.mean
    horizon = made.penalty_behaviors.horizon
    windows = Windows(
        STATES.reshape(-1, horizon, 2),
        STATES.reshape(-1, horizon, 2),
        actions.reshape(-1, horizon, 1),
        policy.log_prob(actions).reshape(-1, horizon),
        jnp.zeros((2048 // horizon, horizon)),
        jnp.ones((2048 // horizon, horizon)),
    )
    batch = Batch(STATES, actions, jnp.zeros(2048), policy, jnp.zeros(2048), jnp.zeros(2048))

    @jax.jit
    def compute(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        prepared = wasserstein_penalty.prepare(made, old, windows, KEY)
        prepared = wasserstein_penalty.refine(made, networks(theta), prepared, KEY)
        data = Data(batch, windows, prepared, jnp.asarray(2.0))

        def penalty(theta: jax.Array) -> jax.Array:
            return wasserstein_penalty.penalty(made, networks(theta), data, KEY)

        return jax.value_and_grad(penalty)(theta)

    return compute


def value_and_gradient(made: Problem, shift: float, log_std: float) -> tuple[float, np.ndarray]:
    """The penalty with β = 2, whose value is then W₂², between θ = (0, 0) and (shift, log_std)."""
    value, gradient = penalty_of(made)(jnp.array([shift, log_std]))
    return float(value), np.asarray(gradient)


def closed_form(shift: float, log_std: float) -> tuple[float, np.ndarray]:
    """W₂² = μ² + (σ − 1)², and its gradient in μ and log σ."""
    std = np.exp(log_std)
    return shift**2 + (std - 1) ** 2, np.array([2 * shift, 2 * std * (std - 1)])


@pytest.mark.parametrize(("settings", "steps"), [("tuned", 1), ("paper", 4)])
@pytest.mark.parametrize("shift", SHIFTS)
def test_value_gradient_and_scale(settings: str, steps: int, shift: float) -> None:
    """`paper` compares stretches of trajectory, over whose steps W₂² adds up."""
    made = problem(settings)
    for log_std in (-1.0, -0.5, 0.0, 0.5, 1.0):
        value, gradient = value_and_gradient(made, shift, log_std)
        exact, exact_gradient = closed_form(shift, log_std)
        assert value == pytest.approx(steps * exact, rel=0.2)
        np.testing.assert_allclose(gradient, steps * exact_gradient, rtol=0.2, atol=0.02 * steps)


@pytest.mark.parametrize(("settings", "steps"), [("tuned", 1), ("paper", 4), ("released", 0)])
def test_distances_are_those_of_each_state(settings: str, steps: int) -> None:
    """With v → −v, each state's action moves by 2vᵀs, but the cloud of all actions stays."""
    slope = 0.2, 0.1
    more = {} if steps else {"dual_samples": 2048}
    value, gradient = penalty_of(problem(settings, **more), 1.0, slope)(
        jnp.array([0.0, 0.0, -slope[0], -slope[1]])
    )
    exact = float(jnp.mean((2 * STATES @ jnp.array(slope)) ** 2))
    exact_gradient = -2 * jnp.mean((2 * STATES @ jnp.array(slope))[:, None] * STATES, axis=0)
    if steps:
        assert float(value) == pytest.approx(steps * exact, rel=0.2)
        np.testing.assert_allclose(gradient[2:], steps * exact_gradient, rtol=0.2)
    else:  # the released penalty falls short (see below), but is far from 0
        assert 0.4 * exact < float(value) < 1.2 * exact
        assert (gradient[2:] / exact_gradient > 0.3).all()


def test_the_released_penalty_pulls_back() -> None:
    """Its pull is in the right direction at every shift, though too short at large ones."""
    made = problem("released", dual_samples=2048)
    pulls = {s: value_and_gradient(made, s, 0.0)[1][0] for s in SHIFTS}
    for shift, pull in pulls.items():
        assert 0 < pull < 2 * shift * 1.05
    assert pulls[0.25] > 0.8 * 2 * 0.25
    assert pulls[1.0] > 0.4 * 2 * 1.0
    for log_std in (-1.0, -0.25, 0.25, 1.0):
        assert np.sign(value_and_gradient(made, 0.0, log_std)[1][1]) == np.sign(log_std)


def test_the_dual_is_on_the_scale_of_the_data() -> None:
    """In other units of the actions, the penalty is that of W₂² in these units."""
    made = problem("tuned", penalty_form="dual", dual_samples=512, dual_steps=100)
    for shift in (0.5, 2.0):
        value, gradient = value_and_gradient(made, shift, 0.0)
        assert 0.4 < gradient[0] / (2 * shift) < 1.05  # short of W₂² after a hundred steps
        for unit in (0.01, 100.0):
            theta = jnp.array([unit * shift, np.log(unit)])
            scaled, pull = penalty_of(made, unit)(theta)
            assert float(scaled) == pytest.approx(unit**2 * value, rel=0.03)
            assert float(pull[0]) == pytest.approx(unit * gradient[0], rel=0.03)


@pytest.mark.slow
def test_the_dual_reaches_the_gradient_of_w2_in_the_limit() -> None:
    """Its value exceeds that of W₂² by a constant at least, which does not pull."""
    made = problem("tuned", penalty_form="dual", dual_samples=512, dual_steps=2000)
    for shift, log_std in ((0.5, 0.0), (1.0, 0.5), (2.0, 0.0), (0.0, 0.5)):
        value, gradient = value_and_gradient(made, shift, log_std)
        exact, exact_gradient = closed_form(shift, log_std)
        error = np.linalg.norm(gradient - exact_gradient)
        assert error < 0.15 * np.linalg.norm(exact_gradient)
        assert value > exact


def test_w2_of_categorical_policies_is_optimal_transport() -> None:
    logits = jax.random.normal(jax.random.key(5), (2, 4))
    p, q = (np.asarray(jax.nn.softmax(row), np.float64) for row in logits)
    cost = 2 * (1 - np.eye(4))  # squared distance of one-hot vectors
    rows = np.kron(np.eye(4), np.ones(4))
    columns = np.kron(np.ones(4), np.eye(4))
    plan = linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p, q]))
    found = Categorical(logits[0]).wasserstein_squared(Categorical(logits[1]))
    assert float(found) == pytest.approx(plan.fun, rel=1e-4)


def test_the_closed_form_is_not_used_for_functions_of_actions(monkeypatch) -> None:
    tenfold = Embedding(lambda t: 10 * t.actions[0], whole=False, of_actions=True)
    monkeypatch.setitem(EMBEDDINGS, "tenfold", tenfold)
    with pytest.raises(ValueError, match="penalty's is 'tenfold': use --penalty-form dual"):
        problem("tuned", penalty_embedding="tenfold")


def test_outcomes_need_the_dual() -> None:
    with pytest.raises(ValueError, match="use --penalty-form dual"):
        problem("tuned", penalty_embedding="final-state")
    with pytest.raises(ValueError, match="use --penalty-form dual"):
        problem("tuned", penalty_embedding="clipped-action")
    for embedding in ("final-state", "clipped-action"):
        problem("tuned", penalty_embedding=embedding, penalty_form="dual")
    with pytest.raises(ValueError, match="use --penalty-form dual"):
        problem("tuned", penalty_embedding="actions")
    with pytest.raises(ValueError, match="needs continuous actions"):
        problem("released", penalty_embedding="final-state")
