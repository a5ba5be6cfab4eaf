import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import wng
from wng.policy_gradient.networks import MLP, Categorical, Gaussian, init_networks

RNG = np.random.default_rng(0)
MEAN, OTHER_MEAN = RNG.normal(size=(2, 5, 3))
LOG_STD, OTHER_LOG_STD = RNG.normal(size=(2, 5, 3)) * 0.5
LOGITS, OTHER_LOGITS = RNG.normal(size=(2, 5, 4))
GAUSSIAN = Gaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD))
OTHER_GAUSSIAN = Gaussian(jnp.asarray(OTHER_MEAN), jnp.asarray(OTHER_LOG_STD))
CATEGORICAL, OTHER_CATEGORICAL = (
    Categorical(jnp.asarray(LOGITS)),
    Categorical(jnp.asarray(OTHER_LOGITS)),
)


def probabilities(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


def test_gaussian_log_prob_and_entropy_are_scipys() -> None:
    actions = RNG.normal(size=(5, 3))
    expected = stats.norm.logpdf(actions, MEAN, np.exp(LOG_STD)).sum(axis=1)
    np.testing.assert_allclose(GAUSSIAN.log_prob(jnp.asarray(actions)), expected, rtol=1e-5)
    entropy = stats.norm.entropy(MEAN, np.exp(LOG_STD)).sum(axis=1)
    np.testing.assert_allclose(GAUSSIAN.entropy(), entropy, rtol=1e-5)


def test_gaussian_divergences_are_the_closed_forms_in_the_right_order() -> None:
    variance, other = np.exp(2 * LOG_STD), np.exp(2 * OTHER_LOG_STD)
    kl = [
        wng.estimator.gaussian.kl(*row)
        for row in zip(MEAN, variance, OTHER_MEAN, other, strict=True)
    ]
    np.testing.assert_allclose(GAUSSIAN.kl(OTHER_GAUSSIAN), kl, rtol=1e-5)
    squared = [
        wng.estimator.gaussian.wasserstein_squared(*row)
        for row in zip(MEAN, variance, OTHER_MEAN, other, strict=True)
    ]
    np.testing.assert_allclose(GAUSSIAN.wasserstein_squared(OTHER_GAUSSIAN), squared, rtol=1e-5)


def test_gaussian_samples_are_mean_plus_std_times_noise() -> None:
    noise = jnp.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(
        GAUSSIAN.sample(noise), MEAN + np.exp(LOG_STD) * np.asarray(noise), rtol=1e-6
    )
    draws = Gaussian.noise(jax.random.key(0), (20_000,))
    assert stats.kstest(np.asarray(draws), "norm").pvalue > 1e-3
    np.testing.assert_array_equal(GAUSSIAN.mode(), GAUSSIAN.mean)


def test_categorical_log_prob_entropy_and_kl_are_scipys() -> None:
    p, q = probabilities(LOGITS), probabilities(OTHER_LOGITS)
    actions = np.array([0, 3, 1, 2, 3])
    np.testing.assert_allclose(
        CATEGORICAL.log_prob(jnp.asarray(actions)), np.log(p[np.arange(5), actions]), rtol=1e-5
    )
    np.testing.assert_allclose(CATEGORICAL.entropy(), stats.entropy(p, axis=1), rtol=1e-5)
    np.testing.assert_allclose(
        CATEGORICAL.kl(OTHER_CATEGORICAL), stats.entropy(p, q, axis=1), rtol=1e-5
    )
    np.testing.assert_array_equal(CATEGORICAL.mode(), LOGITS.argmax(axis=1))


def test_gumbel_max_samples_have_the_right_frequencies() -> None:
    number = 20_000
    noise = Categorical.noise(jax.random.key(0), (number, 5, 4))
    drawn = np.asarray(CATEGORICAL.sample(noise))
    for state, p in enumerate(probabilities(LOGITS)):
        counts = np.bincount(drawn[:, state], minlength=4)
        assert stats.chisquare(counts, number * p / p.sum()).pvalue > 1e-3


CURVATURES = {
    "gaussian-fisher": (GAUSSIAN, "fisher", "kl", 1.0),
    "gaussian-wasserstein": (GAUSSIAN, "wasserstein", "wasserstein_squared", 0.5),
    "categorical-fisher": (CATEGORICAL, "fisher", "kl", 1.0),
}


@pytest.mark.parametrize("case", CURVATURES)
def test_curvature_products_are_hessians_of_divergences(case: str) -> None:
    distribution, product, divergence, factor = CURVATURES[case]
    at, unravel = ravel_pytree(jax.tree.map(lambda x: x[0], distribution))

    @jax.jit
    def both(at: jax.Array) -> tuple[jax.Array, jax.Array]:
        here = unravel(at)
        hessian = jax.hessian(lambda x: getattr(here, divergence)(unravel(x)))(at)
        columns = jax.vmap(lambda e: ravel_pytree(getattr(here, product)(unravel(e)))[0])
        return factor * hessian, columns(jnp.eye(at.size))

    hessian, columns = both(at)
    np.testing.assert_allclose(columns, hessian, rtol=1e-4, atol=1e-5)


def test_networks_are_tanh_matrix_products() -> None:
    networks = init_networks(jax.random.key(0), 3, 2, discrete=False, hidden=(8, 5), log_std=-0.5)
    x = RNG.normal(size=(4, 3))
    for net in (networks.policy.net, networks.value):
        h = x
        for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
            h = np.tanh(h @ np.asarray(weight) + np.asarray(bias))
        expected = h @ np.asarray(net.weights[-1]) + np.asarray(net.biases[-1])
        np.testing.assert_allclose(net(jnp.asarray(x)), expected, rtol=1e-4, atol=1e-6)
    assert networks.values(jnp.asarray(x)).shape == (4,)
    policy = networks.policy(jnp.asarray(x))
    np.testing.assert_array_equal(policy.log_std, np.full((4, 2), -0.5, np.float32))


def test_initialization_is_orthogonal_with_the_stated_scales() -> None:
    make = partial(init_networks, jax.random.key(0), 6, 2, hidden=(8,), log_std=0.0)
    networks = make(discrete=False)
    for net, last in ((networks.policy.net, 0.01), (networks.value, 1.0)):
        for weight, scale in zip(net.weights, (2**0.5, last), strict=True):
            np.testing.assert_allclose(
                np.linalg.svd(np.asarray(weight), compute_uv=False), scale, rtol=1e-4
            )
        assert all((np.asarray(bias) == 0).all() for bias in net.biases)
    discrete = make(discrete=True).policy
    assert discrete.log_std is None
    assert isinstance(discrete(jnp.zeros((3, 6))), Categorical)


def test_layers_that_are_drawn_together_are_those_of_jax() -> None:
    sizes, scales, key = (3, 8, 8, 5, 9), (2**0.5, 2**0.5, 2**0.5, 0.01), jax.random.key(4)
    layers = zip(jax.random.split(key, 4), scales, itertools.pairwise(sizes), strict=True)
    expected = [jax.nn.initializers.orthogonal(scale)(k, shape) for k, scale, shape in layers]
    for weight, layer in zip(MLP(key, sizes, 0.01).weights, expected, strict=True):
        np.testing.assert_allclose(weight, layer, rtol=1e-5, atol=1e-6)
