from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from random_data import flat

from wng.behavior import find_embedding
from wng.policy_gradient.batch import Batch, Data
from wng.policy_gradient.behaviors import Windows
from wng.policy_gradient.config import Config
from wng.policy_gradient.networks import Networks, init_networks
from wng.policy_gradient.problem import Problem
from wng.policy_gradient.proximity import Proximity
from wng.policy_gradient.trust_region import trust_region

EPSILON = 1e-3
NETWORKS = init_networks(jax.random.key(0), 2, 1, discrete=False, hidden=(4,), log_std=-0.3)
THETA, UNRAVEL = ravel_pytree(NETWORKS.policy)


def make_batch() -> Batch:
    states = jax.random.normal(jax.random.key(1), (64, 2))
    policy = NETWORKS.policy(states)
    actions = policy.sample(jax.random.normal(jax.random.key(2), (64, 1)))
    advantages = jnp.sin(3 * actions[:, 0]) + states[:, 0] * actions[:, 0]
    return Batch(states, actions, policy.log_prob(actions), policy, advantages, jnp.zeros(64))


BATCH = make_batch()
ONES = jnp.ones((64, 1))
WINDOWS = Windows(
    BATCH.observations[:, None], BATCH.actions[:, None], BATCH.log_probs[:, None], ONES, ONES
)


class Bowl(Proximity):
    """The loss scale·surrogate + bowl·‖θ − θ_k‖²; the scale is what was prepared."""

    def loss(self, problem: Problem, networks: Networks, data: Data, key: jax.Array) -> jax.Array:
        away = ravel_pytree(networks.policy)[0] - THETA
        surrogate = self.surrogate(problem.config, networks, data.batch)
        return data.prepared * surrogate + data.weight * away @ away


def stepper(geometry: str):
    """One compiled step."""
    problem = Problem(
        Config(
            geometry=geometry,
            step="trust_region",
            damping=EPSILON,
            relative_damping=False,
            cg_iterations=100,
        ),
        find_embedding("state-action"),
        observation_size=2,
        action_size=1,
        discrete=False,
    )
    problem.proximity = Bowl()

    @jax.jit
    def run(radius: float, scale: float = 1.0, bowl: float = 0.0) -> tuple[Any, jax.Array]:
        data = Data(BATCH, WINDOWS, jnp.asarray(scale), jnp.asarray(bowl))
        state = trust_region.init(problem, NETWORKS)._replace(radius=jnp.asarray(radius))
        key = jax.random.key(0)
        result = trust_region.take(problem, state, NETWORKS, data, key)
        seen = data._replace(batch=BATCH.standardized())
        before, after = (
            problem.proximity.loss(problem, networks, seen, key)
            for networks in (NETWORKS, result.networks)
        )
        kl = BATCH.policy.kl(result.networks.policy(BATCH.observations)).mean()
        return result, jnp.array([kl, before, after])

    return run


def failed(result: Any) -> bool:
    return bool(result.metrics["line_search_failed"])


def finite(result: Any) -> bool:
    return not trust_region.skipped(result.state)


@pytest.fixture(scope="module")
def fisher():
    return stepper("fisher")


@pytest.fixture(scope="module")
def wasserstein():
    return stepper("wasserstein-exact")


def gradient_and_outputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """g, ∂μ/∂θ [N, p] and ∂log σ/∂θ [N, p]."""

    def outputs(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        policy = UNRAVEL(theta)(BATCH.observations)
        return policy.mean[:, 0], policy.log_std[:, 0]

    def loss(theta: jax.Array) -> jax.Array:
        policy = UNRAVEL(theta)(BATCH.observations)
        ratio = jnp.exp(policy.log_prob(BATCH.actions) - BATCH.log_probs)
        return -jnp.mean(ratio * BATCH.standardized().advantages)

    g, (mean, log_std) = jax.jit(lambda t: (jax.grad(loss)(t), jax.jacobian(outputs)(t)))(THETA)
    return (np.asarray(x, np.float64) for x in (g, mean, log_std))


@pytest.mark.parametrize("geometry", ["fisher", "wasserstein"])
def test_accepted_step_is_length_times_the_dense_natural_gradient(
    geometry: str, fisher: Any, wasserstein: Any
) -> None:
    radius, variance = 1e-3, np.exp(-0.6)
    g, mean, log_std = gradient_and_outputs()
    if geometry == "fisher":  # ½ s² gᵀd = KL
        G, twice, run = mean.T @ mean / variance + 2 * log_std.T @ log_std, 2, fisher
    else:  # s² gᵀd = W₂²
        G, twice, run = mean.T @ mean + variance * log_std.T @ log_std, 1, wasserstein
    d = np.linalg.solve(G / 64 + EPSILON * np.eye(len(g)), g)
    expected = -np.sqrt(twice * radius / (g @ d)) * d
    result, (kl, before, after) = run(radius)
    moved = flat(result.networks.policy) - flat(NETWORKS.policy)
    np.testing.assert_allclose(moved, expected, atol=0.01 * np.abs(expected).max())
    assert after < before
    assert (failed(result), finite(result)) == (False, True)
    assert result.metrics["fallbacks"] == 0
    np.testing.assert_array_equal(flat(result.networks.value), flat(NETWORKS.value))
    if geometry == "fisher":
        assert kl == pytest.approx(radius, rel=0.15)
        assert result.state.radius == pytest.approx(radius)
    else:
        w2 = BATCH.policy.wasserstein_squared(result.networks.policy(BATCH.observations)).mean()
        assert w2 == pytest.approx(radius, rel=0.15)


def test_a_long_step_is_halved_until_kl_allows(fisher: Any) -> None:
    result, (kl, before, after) = fisher(2.0)
    assert not failed(result)
    assert 0 < kl <= 1.5 * 2.0
    assert after < before
    assert result.state.radius == pytest.approx(2.0)


@pytest.mark.parametrize("geometry", ["fisher", "wasserstein"])
@pytest.mark.parametrize(
    ("scale", "bowl", "is_finite"),
    [(1.0, 1e9, True), (0.0, 0.0, True), (np.nan, 0.0, False), (np.inf, 0.0, False)],
    ids=["every-candidate-worse", "zero-advantage", "nan", "infinite"],
)
def test_no_improvement_gives_the_parameters_back_bit_for_bit(
    geometry: str, scale: float, bowl: float, is_finite: bool, fisher: Any, wasserstein: Any
) -> None:
    result, _ = {"fisher": fisher, "wasserstein": wasserstein}[geometry](0.01, scale, bowl)
    assert failed(result)
    assert finite(result) is is_finite
    assert flat(result.networks).tobytes() == flat(NETWORKS).tobytes()


def test_radius_in_w2_is_steered_by_kl(wasserstein: Any) -> None:
    for radius, factor in [(1e-7, 1.3), (10.0, 0.7)]:
        result, _ = wasserstein(radius)
        assert result.state.radius == pytest.approx(factor * radius)
        assert not failed(result)
    # KL ≈ W₂²/(2σ²) for a small step of the mean: near the target of 0.01 the radius stays.
    radius = 0.01
    for _ in range(12):
        result, (kl, *_) = wasserstein(radius)
        if result.state.radius == pytest.approx(radius):
            break
        radius = float(result.state.radius)
    assert result.state.radius == pytest.approx(radius)
    assert 0.01 / 1.5 <= kl <= 0.015


def test_a_refused_step_shrinks_a_radius_in_w2_but_not_one_in_kl(
    fisher: Any, wasserstein: Any
) -> None:
    assert wasserstein(0.01, 1.0, 1e9)[0].state.radius == pytest.approx(0.007)
    assert fisher(0.01, 1.0, 1e9)[0].state.radius == pytest.approx(0.01)


def test_euclidean_step_has_the_radius_as_its_squared_length() -> None:
    result, (_, before, after) = stepper("euclidean")(1e-4)
    moved = flat(result.networks.policy) - flat(NETWORKS.policy)
    g, *_ = gradient_and_outputs()
    np.testing.assert_allclose(moved, -0.01 * g / np.linalg.norm(g), rtol=1e-2, atol=1e-6)
    assert after < before
