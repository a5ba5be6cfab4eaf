from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from random_data import flat

from wng.estimator.damping import Damping
from wng.policy_gradient.config import Config
from wng.policy_gradient.geometry import OutputMetric
from wng.policy_gradient.networks import Networks, init_networks
from wng.policy_gradient.proximity import Batch, standardized, surrogate_loss
from wng.policy_gradient.trust_region import trust_region_step

EPSILON = 1e-3
NETWORKS = init_networks(jax.random.key(0), 2, 1, discrete=False, hidden=(4,), log_std=-0.3)
THETA, UNRAVEL = ravel_pytree(NETWORKS.policy)


def make_batch() -> Batch:
    states = jax.random.normal(jax.random.key(1), (64, 2))
    policy = NETWORKS.policy(states)
    actions = policy.sample(jax.random.normal(jax.random.key(2), (64, 1)))
    advantages = standardized(jnp.sin(3 * actions[:, 0]) + states[:, 0] * actions[:, 0])
    return Batch(states, actions, policy.log_prob(actions), policy, advantages, jnp.zeros(64))


BATCH = make_batch()


def stepper(geometry: str):
    """One compiled step; the loss is scale·surrogate + bowl·‖θ − θ_k‖²."""
    config = Config(geometry=geometry, step="trust_region", cg_iterations=100)
    control = Damping(EPSILON)

    @jax.jit
    def run(radius: float, scale: float = 1.0, bowl: float = 0.0) -> tuple[Any, jax.Array]:
        def loss(networks: Networks) -> jax.Array:
            away = ravel_pytree(networks.policy)[0] - THETA
            return scale * surrogate_loss(config, networks, BATCH) + bowl * away @ away

        metric = None
        if geometry != "euclidean":
            metric = OutputMetric(NETWORKS, BATCH.observations, geometry == "fisher", 100)
        result = trust_region_step(
            config, control, control.init(), metric, loss, NETWORKS, BATCH, jnp.asarray(radius)
        )
        kl = BATCH.policy.kl(result.networks.policy(BATCH.observations)).mean()
        return result, jnp.array([kl, loss(NETWORKS), loss(result.networks)])

    return run


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
        return -jnp.mean(ratio * BATCH.advantages)

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
    assert (not result.failed, bool(result.finite), not result.fallback) == (True, True, True)
    np.testing.assert_array_equal(flat(result.networks.value), flat(NETWORKS.value))
    if geometry == "fisher":
        assert kl == pytest.approx(radius, rel=0.15)
        assert result.radius == pytest.approx(radius)
    else:
        w2 = BATCH.policy.wasserstein_squared(result.networks.policy(BATCH.observations)).mean()
        assert w2 == pytest.approx(radius, rel=0.15)


def test_a_long_step_is_halved_until_kl_allows(fisher: Any) -> None:
    result, (kl, before, after) = fisher(2.0)
    assert not result.failed
    assert 0 < kl <= 1.5 * 2.0
    assert after < before
    assert result.radius == pytest.approx(2.0)


@pytest.mark.parametrize("geometry", ["fisher", "wasserstein"])
@pytest.mark.parametrize(
    ("scale", "bowl", "finite"),
    [(1.0, 1e9, True), (0.0, 0.0, True), (np.nan, 0.0, False), (np.inf, 0.0, False)],
    ids=["every-candidate-worse", "zero-advantage", "nan", "infinite"],
)
def test_no_improvement_gives_the_parameters_back_bit_for_bit(
    geometry: str, scale: float, bowl: float, finite: bool, fisher: Any, wasserstein: Any
) -> None:
    result, _ = {"fisher": fisher, "wasserstein": wasserstein}[geometry](0.01, scale, bowl)
    assert result.failed
    assert bool(result.finite) is finite
    assert flat(result.networks).tobytes() == flat(NETWORKS).tobytes()


def test_radius_in_w2_is_steered_by_kl(wasserstein: Any) -> None:
    for radius, factor in [(1e-7, 1.3), (10.0, 0.7)]:
        result, _ = wasserstein(radius)
        assert result.radius == pytest.approx(factor * radius)
        assert not result.failed
    # KL ≈ W₂²/(2σ²) for a small step of the mean: near the target of 0.01 the radius stays.
    radius = 0.01
    for _ in range(12):
        result, (kl, *_) = wasserstein(radius)
        if result.radius == pytest.approx(radius):
            break
        radius = float(result.radius)
    assert result.radius == pytest.approx(radius)
    assert 0.01 / 1.5 <= kl <= 0.015


def test_a_refused_step_shrinks_a_radius_in_w2_but_not_one_in_kl(
    fisher: Any, wasserstein: Any
) -> None:
    assert wasserstein(0.01, 1.0, 1e9)[0].radius == pytest.approx(0.007)
    assert fisher(0.01, 1.0, 1e9)[0].radius == pytest.approx(0.01)


def test_euclidean_step_has_the_radius_as_its_squared_length() -> None:
    result, (_, before, after) = stepper("euclidean")(1e-4)
    moved = flat(result.networks.policy) - flat(NETWORKS.policy)
    g, *_ = gradient_and_outputs()
    np.testing.assert_allclose(moved, -0.01 * g / np.linalg.norm(g), rtol=1e-2, atol=1e-6)
    assert after < before
