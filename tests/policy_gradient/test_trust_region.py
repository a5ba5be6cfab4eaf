from functools import cache
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
from wng.policy_gradient.trust_region import StdGradient, std_step, trust_region

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
STEPS = (BATCH.observations, BATCH.observations, BATCH.actions, BATCH.log_probs)
WINDOWS = Windows(*(x[:, None] for x in STEPS), ONES, ONES)


class Bowl(Proximity):
    """The loss scale·surrogate + bowl·‖θ − θ_k‖²; the scale is what was prepared."""

    def loss(self, problem: Problem, networks: Networks, data: Data, key: jax.Array) -> jax.Array:
        away = ravel_pytree(networks.policy)[0] - THETA
        surrogate = self.surrogate(problem.config, networks, data.batch)
        return data.prepared * surrogate + data.weight * away @ away


@cache
def stepper(geometry: str, kl_target: float = 1e-3, std_share: float = 0.0, momentum: float = 0.0):
    """One compiled step."""
    problem = Problem(
        Config(
            geometry=geometry,
            step="trust_region",
            damping=EPSILON,
            relative_damping=False,
            cg_iterations=100,
            kl_target=kl_target,
            std_share=std_share,
            momentum=momentum,
        ),
        find_embedding("state-action"),
        observation_size=2,
        action_size=1,
        discrete=False,
    )
    problem.proximity = Bowl()

    @jax.jit
    def run(
        scale: float = 1.0,
        bowl: float = 0.0,
        std: StdGradient | None = None,
        direction: jax.Array | None = None,
    ) -> tuple[Any, jax.Array]:
        data = Data(BATCH, WINDOWS, jnp.asarray(scale), jnp.asarray(bowl))
        state = trust_region.init(problem, NETWORKS)
        state = state if std is None else state._replace(std=std)
        state = state if direction is None else state._replace(direction=direction)
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


BOTH = pytest.mark.parametrize("geometry", ["fisher", "wasserstein-exact"])


def fisher_and_wasserstein(mean: np.ndarray, log_std: np.ndarray) -> dict[str, np.ndarray]:
    """Both metrics, dense."""
    variance = np.exp(-0.6)
    return {
        "fisher": (mean.T @ mean / variance + 2 * log_std.T @ log_std) / 64,
        "wasserstein-exact": (mean.T @ mean + variance * log_std.T @ log_std) / 64,
    }


@BOTH
def test_accepted_step_is_the_dense_natural_gradient_at_the_targets_length(geometry: str) -> None:
    g, mean, log_std = gradient_and_outputs()
    metrics = fisher_and_wasserstein(mean, log_std)
    d = np.linalg.solve(metrics[geometry] + EPSILON * np.eye(len(g)), g)
    expected = -np.sqrt(2 * 1e-3 / (d @ metrics["fisher"] @ d)) * d  # ½ s² dᵀFd = KL
    result, (kl, before, after) = stepper(geometry)()
    moved = flat(result.networks.policy) - flat(NETWORKS.policy)
    np.testing.assert_allclose(moved, expected, atol=0.01 * np.abs(expected).max())
    assert after < before
    assert (failed(result), finite(result)) == (False, True)
    assert result.metrics["fallbacks"] == 0
    assert result.metrics["halvings"] == 0
    assert kl == pytest.approx(1e-3, rel=0.15)
    np.testing.assert_array_equal(flat(result.networks.value), flat(NETWORKS.value))


def test_a_long_step_is_halved_until_kl_allows() -> None:
    result, (kl, before, after) = stepper("fisher", 2.0)()
    assert not failed(result)
    assert result.metrics["halvings"] > 0
    assert 0 < kl <= 1.5 * 2.0
    assert after < before


@BOTH
@pytest.mark.parametrize("std_share", [0.0, 0.5])
@pytest.mark.parametrize(
    ("scale", "bowl", "is_finite"),
    [(1.0, 1e9, True), (0.0, 0.0, True), (np.nan, 0.0, False), (np.inf, 0.0, False)],
    ids=["every-candidate-worse", "zero-advantage", "nan", "infinite"],
)
def test_no_improvement_gives_the_parameters_back_bit_for_bit(
    geometry: str, std_share: float, scale: float, bowl: float, is_finite: bool
) -> None:
    result, _ = stepper(geometry, std_share=std_share)(scale, bowl)
    assert failed(result)
    assert finite(result) is is_finite
    assert flat(result.networks).tobytes() == flat(NETWORKS).tobytes()
    assert np.isfinite(flat(result.state)).all()


def test_euclidean_step_goes_along_the_gradient() -> None:
    result, (kl, before, after) = stepper("euclidean")()
    moved = flat(result.networks.policy) - flat(NETWORKS.policy)
    g, *_ = gradient_and_outputs()
    np.testing.assert_allclose(
        moved / np.linalg.norm(moved), -g / np.linalg.norm(g), rtol=1e-2, atol=1e-5
    )
    assert kl == pytest.approx(1e-3, rel=0.15)
    assert after < before


def test_momentum_keeps_what_the_metric_says_little_about() -> None:
    """(G + εI)d = g + εμ·previous, by a dense solve, at the target's length."""
    g, mean, log_std = gradient_and_outputs()
    metrics = fisher_and_wasserstein(mean, log_std)
    previous = 10 * np.random.default_rng(0).normal(size=len(g))
    G = metrics["wasserstein-exact"] + EPSILON * np.eye(len(g))
    d = np.linalg.solve(G, g + EPSILON * 0.9 * previous)
    assert np.linalg.norm(d - np.linalg.solve(G, g)) > 0.1 * np.linalg.norm(d)
    result, _ = stepper("wasserstein-exact", momentum=0.9)(direction=jnp.asarray(previous, float))
    np.testing.assert_allclose(result.state.direction, d, atol=0.01 * np.abs(d).max())
    moved = flat(result.networks.policy) - flat(NETWORKS.policy)
    expected = -np.sqrt(2 * 1e-3 / (d @ metrics["fisher"] @ d)) * d
    np.testing.assert_allclose(moved, expected, atol=0.01 * np.abs(expected).max())


def test_a_refused_direction_is_forgotten() -> None:
    result, _ = stepper("wasserstein-exact", momentum=0.9)(1.0, 1e9)
    assert failed(result)
    np.testing.assert_array_equal(result.state.direction, 0)


# The step of σ


def known(mean: float, variance: float, steps: int = 200) -> StdGradient:
    """After many batches with the same gradient and noise."""
    return StdGradient(jnp.array([mean]), jnp.array([variance]), jnp.array(steps))


def log_std_moved(result: Any) -> float:
    return float((result.networks.policy.log_std - NETWORKS.policy.log_std)[0])


def test_sigma_of_its_own_leaves_the_mean_its_whole_target() -> None:
    g, mean, log_std = gradient_and_outputs()
    g[-1] = 0  # that of log σ
    metrics = fisher_and_wasserstein(mean, log_std)
    d = np.linalg.solve(metrics["wasserstein-exact"] + EPSILON * np.eye(len(g)), g)
    expected = -np.sqrt(2 * 1e-3 / (d @ metrics["fisher"] @ d)) * d
    result, _ = stepper("wasserstein-exact", std_share=0.5)()
    moved = flat(result.networks.policy) - flat(NETWORKS.policy)
    np.testing.assert_allclose(moved[:-1], expected[:-1], atol=0.01 * np.abs(expected).max())


def test_sigma_follows_its_average_gradient_times_what_of_it_is_signal() -> None:
    """With one action σ²/E[σ²] = 1: Δlog σ = −0.5 · signal · gradient, by hand."""
    g, *_ = gradient_and_outputs()
    standard = BATCH.standardized()
    z = np.asarray((BATCH.actions - BATCH.policy.mean) / jnp.exp(BATCH.policy.log_std))
    noise = np.var(np.asarray(standard.advantages)[:, None] * (z**2 - 1)) / 64
    mean, variance = 0.9 * 0.02 + 0.1 * g[-1], 0.9 * 1e-4 + 0.1 * noise
    signal = 1 - variance * (0.1 / 1.9) / mean**2
    assert 0.1 < signal < 0.99
    result, _ = stepper("wasserstein-exact", std_share=0.5)(std=known(0.02, 1e-4))
    assert result.metrics["std_confidence"] == pytest.approx(signal, rel=1e-3)
    assert log_std_moved(result) == pytest.approx(-0.5 * signal * mean, rel=1e-3)


def test_sigma_stays_where_its_gradient_may_be_noise() -> None:
    result, _ = stepper("wasserstein-exact", std_share=0.5)(std=known(0.0, 1.0))
    assert not failed(result)
    assert log_std_moved(result) == 0
    assert result.metrics["std_confidence"] == 0


def test_the_first_batch_counts_in_full_against_its_own_noise() -> None:
    std = StdGradient.empty(1).update(jnp.array([3.0]), BATCH)
    mean, signal = std.significant()
    z = np.asarray((BATCH.actions - BATCH.policy.mean) / jnp.exp(BATCH.policy.log_std))
    noise = np.var(np.asarray(BATCH.advantages)[:, None] * (z**2 - 1)) / 64
    assert mean[0] == pytest.approx(3.0, rel=1e-5)
    assert signal[0] == pytest.approx(1 - noise / 9, rel=1e-4)


def test_noise_alone_gets_little_credit() -> None:
    """Over many batches of noise alone the mean share is small; with a drift it nears one."""

    def shares(drift: float) -> jax.Array:
        def more(std: StdGradient, key: jax.Array) -> tuple[StdGradient, jax.Array]:
            gradient = drift + jax.random.normal(key, (50,))
            new = StdGradient(
                0.9 * std.mean + 0.1 * gradient, 0.9 * std.variance + 0.1, std.steps + 1
            )
            return new, new.significant()[1].mean()

        keys = jax.random.split(jax.random.key(0), 200)
        return jax.lax.scan(more, StdGradient.empty(50), keys)[1][20:].mean()

    assert shares(0.0) < 0.2
    assert shares(2.0) > 0.95


def test_steps_of_two_sigmas_are_wasserstein_gradients() -> None:
    """Δσ_i ∝ −∂L/∂σ_i: log σ of the smaller σ moves more."""
    std = StdGradient(jnp.array([0.1, 0.1]), jnp.array([1e-12, 1e-12]), jnp.array(200))
    log_std = jnp.log(jnp.array([0.5, 1.0]))
    moved, confidence = std_step(std, log_std, 1.0)
    mean_square = (0.25 + 1) / 2
    expected = np.array([-0.05 * mean_square / 0.25, -0.05 * mean_square])
    np.testing.assert_allclose(moved, expected, rtol=1e-4)
    assert confidence == pytest.approx(1)
    # Limited in KL: Σ(Δlog σ)², the same direction.
    short, _ = std_step(std, log_std, 1e-4)
    np.testing.assert_allclose(short, expected * 0.01 / np.linalg.norm(expected), rtol=1e-4)
