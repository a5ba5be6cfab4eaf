import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_data import flat

from wng.behavior import find_embedding
from wng.policy_gradient.batch import Batch, Data
from wng.policy_gradient.config import Config
from wng.policy_gradient.networks import init_networks
from wng.policy_gradient.problem import Problem
from wng.policy_gradient.proximity import (
    clip,
    kl_penalty,
    none,
    wasserstein_penalty,
)
from wng.policy_gradient.steps import steered

STATES = jax.random.normal(jax.random.key(0), (4, 2))
NETWORKS = init_networks(jax.random.key(1), 2, 1, discrete=False, hidden=(4,), log_std=0.0)


def make_problem(proximity: str) -> Problem:
    return Problem(
        Config(proximity=proximity),
        find_embedding("state-action"),
        observation_size=2,
        action_size=1,
        discrete=False,
    )


def batch_with_ratios(ratios: list[float], advantages: list[float]) -> Batch:
    """Samples whose π_θ/π_k are given: any actions, with π_k's log-probabilities chosen to fit."""
    policy = NETWORKS.policy(STATES)
    actions = jnp.array([[0.3], [-1.0], [0.8], [2.0]])
    log_probs = policy.log_prob(actions) - jnp.log(jnp.array(ratios))
    return Batch(STATES, actions, log_probs, policy, jnp.array(advantages), jnp.zeros(4))


RATIOS, ADVANTAGES = [1.5, 1.5, 0.5, 0.5], [2.0, -2.0, 2.0, -2.0]


def test_surrogate_by_hand() -> None:
    batch = batch_with_ratios(RATIOS, ADVANTAGES)
    assert none.surrogate(Config(), NETWORKS, batch) == pytest.approx(0, abs=1e-6)
    one_sided = batch._replace(advantages=jnp.array([2.0, 0.0, 0.0, -1.0]))
    assert none.surrogate(Config(), NETWORKS, one_sided) == pytest.approx(-(3.0 - 0.5) / 4)


def test_clipped_loss_by_hand() -> None:
    """min(ρA, clip(ρ, 0.8, 1.2)A): 1.2·2, 1.5·−2, 0.5·2, 0.8·−2."""
    batch = batch_with_ratios(RATIOS, ADVANTAGES)
    loss = clip.surrogate(Config(clip_range=0.2), NETWORKS, batch)
    assert loss == pytest.approx(-(2.4 - 3.0 + 1.0 - 1.6) / 4, rel=1e-5)


def test_clipped_samples_have_no_gradient() -> None:
    config = Config(clip_range=0.2)
    gradient = jax.jit(jax.grad(lambda n, b: clip.surrogate(config, n, b)))
    clipped = batch_with_ratios(RATIOS, [2.0, 0.0, 0.0, -2.0])
    np.testing.assert_array_equal(flat(gradient(NETWORKS, clipped)), 0)
    worse = batch_with_ratios(RATIOS, [0.0, -2.0, 2.0, 0.0])  # moving back is never clipped
    assert np.abs(flat(gradient(NETWORKS, worse).policy)).max() > 0


def test_an_absurd_ratio_stays_finite() -> None:
    batch = batch_with_ratios(RATIOS, ADVANTAGES)
    far = batch._replace(log_probs=batch.log_probs - jnp.array([200.0, 0, 0, 0]))
    assert np.isfinite(none.surrogate(Config(), NETWORKS, far))


def test_standardized() -> None:
    x, batch = np.array([1.0, 5.0, -3.0, 7.0]), batch_with_ratios(RATIOS, ADVANTAGES)

    def standardized(x: np.ndarray) -> jax.Array:
        return batch._replace(advantages=jnp.asarray(x)).standardized().advantages

    np.testing.assert_allclose(standardized(x), (x - x.mean()) / x.std(), rtol=1e-3)
    np.testing.assert_array_equal(standardized(np.full(4, 2.0)), 0)
    assert np.abs(standardized(1e-7 * x)).max() < 1e-3  # noise is not blown up


def test_kl_penalty_is_weight_times_kl_from_old_to_new() -> None:
    """Means moved by m and σ from 1 to s: KL = ln s + (1 + m²)/(2s²) − ½."""
    batch = batch_with_ratios(RATIOS, ADVANTAGES)
    moved = eqx.tree_at(
        lambda n: (n.policy.net.biases, n.policy.log_std),
        NETWORKS,
        ((NETWORKS.policy.net.biases[0], jnp.array([0.7])), jnp.array([0.4])),
    )
    data = Data(batch, None, None, jnp.array(3.0))
    found = kl_penalty.penalty(None, moved, data, jax.random.key(0))
    kl = 0.4 + (1 + 0.49) / (2 * np.exp(0.8)) - 0.5
    assert found == pytest.approx(3 * kl, rel=1e-4)


@pytest.mark.parametrize("proximity", [none, clip], ids=["none", "clip"])
def test_no_penalty(proximity) -> None:
    data = Data(batch_with_ratios(RATIOS, ADVANTAGES), None, None, jnp.array(3.0))
    assert proximity.penalty(None, NETWORKS, data, jax.random.key(0)) == 0


def test_the_loss_is_the_surrogate_and_the_penalty() -> None:
    problem = make_problem("kl")
    batch = batch_with_ratios(RATIOS, [2.0, 0.0, 0.0, -1.0])
    moved = eqx.tree_at(lambda n: n.policy.log_std, NETWORKS, jnp.array([0.4]))
    data, key = Data(batch, None, None, jnp.array(3.0)), jax.random.key(0)
    parts = (
        none.surrogate(problem.config, moved, batch),
        kl_penalty.penalty(problem, moved, data, key),
    )
    assert min(map(abs, parts)) > 0.01
    assert kl_penalty.loss(problem, moved, data, key) == pytest.approx(sum(map(float, parts)))


def test_adapted_weight_doubles_halves_and_stays() -> None:
    config = Config(kl_target=0.01)

    def adapted(weight: float, kl: float) -> float:
        return float(kl_penalty.adapt(config, jnp.array(weight), jnp.array(kl)))

    assert adapted(1.0, 0.016) == 2.0
    assert adapted(1.0, 0.006) == 0.5
    assert [adapted(1.0, kl) for kl in (0.007, 0.01, 0.0149)] == [1.0, 1.0, 1.0]
    assert adapted(8e3, 1.0) == pytest.approx(1e4)
    assert adapted(1.5e-4, 0.0) == pytest.approx(1e-4)
    assert wasserstein_penalty.adapt(config, jnp.array(1.0), jnp.array(1.0)) == 1.0


def test_steered() -> None:
    lengths = [float(steered(jnp.array(2.0), jnp.array(kl), 0.01)) for kl in (1.0, 0.01, 1e-4)]
    assert lengths == pytest.approx([1.4, 2.0, 2.6])
    assert steered(jnp.array(2.0), jnp.array(jnp.inf), 0.01) == pytest.approx(1.4)
