from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_data import flat

from wng.behavior import find_embedding
from wng.behavior.distance import Potentials, random_features
from wng.policy_gradient.config import Config
from wng.policy_gradient.geometry import Behaviors, Windows
from wng.policy_gradient.networks import Networks, init_networks
from wng.policy_gradient.proximity import (
    Batch,
    OldBehaviors,
    adapted_weight,
    improve_potentials,
    penalty,
    standardized,
    steered,
    surrogate_loss,
)

STATES = jax.random.normal(jax.random.key(0), (4, 2))
NETWORKS = init_networks(jax.random.key(1), 2, 1, discrete=False, hidden=(4,), log_std=0.0)


def batch_with_ratios(ratios: list[float], advantages: list[float]) -> Batch:
    """Samples whose π_θ/π_k are given: any actions, with π_k's log-probabilities chosen to fit."""
    policy = NETWORKS.policy(STATES)
    actions = jnp.array([[0.3], [-1.0], [0.8], [2.0]])
    log_probs = policy.log_prob(actions) - jnp.log(jnp.array(ratios))
    return Batch(STATES, actions, log_probs, policy, jnp.array(advantages), jnp.zeros(4))


RATIOS, ADVANTAGES = [1.5, 1.5, 0.5, 0.5], [2.0, -2.0, 2.0, -2.0]


def test_surrogate_by_hand() -> None:
    batch = batch_with_ratios(RATIOS, ADVANTAGES)
    assert surrogate_loss(Config(), NETWORKS, batch) == pytest.approx(0, abs=1e-6)
    one_sided = batch._replace(advantages=jnp.array([2.0, 0.0, 0.0, -1.0]))
    assert surrogate_loss(Config(), NETWORKS, one_sided) == pytest.approx(-(3.0 - 0.5) / 4)


def test_clipped_loss_by_hand() -> None:
    """min(ρA, clip(ρ, 0.8, 1.2)A): 1.2·2, 1.5·−2, 0.5·2, 0.8·−2."""
    batch = batch_with_ratios(RATIOS, ADVANTAGES)
    loss = surrogate_loss(Config(proximity="clip", clip_range=0.2), NETWORKS, batch)
    assert loss == pytest.approx(-(2.4 - 3.0 + 1.0 - 1.6) / 4, rel=1e-5)


def test_clipped_samples_have_no_gradient() -> None:
    config = Config(proximity="clip", clip_range=0.2)
    gradient = jax.jit(jax.grad(lambda n, b: surrogate_loss(config, n, b)))
    clipped = batch_with_ratios(RATIOS, [2.0, 0.0, 0.0, -2.0])
    np.testing.assert_array_equal(flat(gradient(NETWORKS, clipped)), 0)
    worse = batch_with_ratios(RATIOS, [0.0, -2.0, 2.0, 0.0])  # moving back is never clipped
    assert np.abs(flat(gradient(NETWORKS, worse).policy)).max() > 0


def test_an_absurd_ratio_stays_finite() -> None:
    batch = batch_with_ratios(RATIOS, ADVANTAGES)
    far = batch._replace(log_probs=batch.log_probs - jnp.array([200.0, 0, 0, 0]))
    assert np.isfinite(surrogate_loss(Config(), NETWORKS, far))


def test_standardized() -> None:
    x = np.array([1.0, 5.0, -3.0, 7.0])
    np.testing.assert_allclose(standardized(jnp.asarray(x)), (x - x.mean()) / x.std(), rtol=1e-3)
    np.testing.assert_array_equal(standardized(jnp.full(3, 2.0)), 0)
    assert np.abs(standardized(jnp.asarray(1e-7 * x))).max() < 1e-3  # noise is not blown up


def test_kl_penalty_is_weight_times_kl_from_old_to_new() -> None:
    """Means moved by m and σ from 1 to s: KL = ln s + (1 + m²)/(2s²) − ½."""
    batch = batch_with_ratios(RATIOS, ADVANTAGES)
    moved = eqx.tree_at(
        lambda n: (n.policy.net.biases, n.policy.log_std),
        NETWORKS,
        ((NETWORKS.policy.net.biases[0], jnp.array([0.7])), jnp.array([0.4])),
    )
    found = penalty(
        Config(proximity="kl"), moved, batch, jnp.array(3.0), None, None, jax.random.key(0)
    )
    kl = 0.4 + (1 + 0.49) / (2 * np.exp(0.8)) - 0.5
    assert found == pytest.approx(3 * kl, rel=1e-4)


@pytest.mark.parametrize("proximity", ["none", "clip"])
def test_no_penalty(proximity: str) -> None:
    batch = batch_with_ratios(RATIOS, ADVANTAGES)
    config = Config(proximity=proximity)
    found = penalty(config, NETWORKS, batch, jnp.array(3.0), None, None, jax.random.key(0))
    assert found == 0


def test_adapted_weight_doubles_halves_and_stays() -> None:
    config = Config(proximity="kl", kl_target=0.01)

    def adapted(weight: float, kl: float) -> float:
        return float(adapted_weight(config, jnp.array(weight), jnp.array(kl)))

    assert adapted(1.0, 0.016) == 2.0
    assert adapted(1.0, 0.006) == 0.5
    assert [adapted(1.0, kl) for kl in (0.007, 0.01, 0.0149)] == [1.0, 1.0, 1.0]
    assert adapted(8e3, 1.0) == pytest.approx(1e4)
    assert adapted(1.5e-4, 0.0) == pytest.approx(1e-4)
    other = adapted_weight(Config(proximity="wasserstein"), jnp.array(1.0), jnp.array(1.0))
    assert other == 1.0


def test_steered() -> None:
    lengths = [float(steered(jnp.array(2.0), jnp.array(kl), 0.01)) for kl in (1.0, 0.01, 1e-4)]
    assert lengths == pytest.approx([1.4, 2.0, 2.6])
    assert steered(jnp.array(2.0), jnp.array(jnp.inf), 0.01) == pytest.approx(1.4)


# The Wasserstein penalty


class Penalized(NamedTuple):
    value: jax.Array
    gradient: Networks


CONFIG = Config(proximity="wasserstein", dual_steps=3000)


def wasserstein_penalty(discrete: bool, embedding: str):
    """Bias of the last layer ↦ the penalty after ascent, and its gradient; 64 states."""
    size = 3 if discrete else 1
    start = init_networks(jax.random.key(1), 2, size, discrete=discrete, hidden=(4,), log_std=-0.5)
    behaviors = Behaviors(find_embedding(embedding), CONFIG, discrete, size)
    states = jax.random.normal(jax.random.key(2), (64, 1, 2))
    policy = start.policy(states)
    noise = policy.noise(jax.random.key(3), (64, 1, size))
    actions = policy.sample(noise)
    log_probs, zeros = policy.log_prob(actions), jnp.zeros((64, 1))
    windows = Windows(states, actions, log_probs, zeros, zeros + 1)

    @jax.jit
    def run(bias: jax.Array) -> Penalized:
        samples = behaviors.embed(start, windows, jax.random.key(4))
        features = random_features(jax.random.key(5), samples.shape[1], 100, 2.0)
        zero = Potentials(jnp.zeros(100), jnp.zeros(100))
        old = OldBehaviors(windows, samples, features, zero)
        biases = (start.policy.net.biases[0], bias)
        networks = eqx.tree_at(lambda n: n.policy.net.biases, start, biases)
        key = jax.random.key(6)
        improved = improve_potentials(CONFIG, networks, old, behaviors, key)
        old = old._replace(potentials=improved)

        def value(networks: Networks) -> jax.Array:
            return penalty(CONFIG, networks, None, jnp.array(2.0), old, behaviors, key)

        return Penalized(*jax.value_and_grad(value)(networks))

    return run


def test_wasserstein_penalty_grows_with_the_distance_and_pulls_back() -> None:
    run = wasserstein_penalty(discrete=False, embedding="state-action")
    near, far, further = (run(jnp.array([b])) for b in (0.0, 1.0, 2.0))
    assert near.value < far.value < further.value
    # A shift by m adds m² to W₂² (β = 2: β/2 = 1).
    assert further.value - near.value == pytest.approx(4.0, rel=0.25)
    pull = further.gradient.policy.net.biases[-1][0]
    assert pull == pytest.approx(4.0, rel=0.25)
    np.testing.assert_array_equal(flat(further.gradient.value), 0)


def test_wasserstein_penalty_of_discrete_actions_has_a_gradient_through_weights() -> None:
    run = wasserstein_penalty(discrete=True, embedding="state-action")
    moved = run(jnp.array([1.0, 0.0, 0.0]))
    assert np.isfinite(flat(moved.gradient)).all()
    assert np.abs(flat(moved.gradient.policy)).max() > 1e-4
