"""Policies against NumPy and SciPy."""

from functools import partial

import jax
import numpy as np
import pytest
from scipy.linalg import toeplitz

from wng.evolution.policies import Policy


def shapes(policy: Policy):
    return jax.eval_shape(policy.init, jax.random.key(0))


def drawn(policy: Policy):
    """Parameters that are all non-zero, biases too."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes(policy))


def matrices(policy: Policy, params) -> list[tuple[np.ndarray, np.ndarray | float]]:
    """Weights and biases, Toeplitz ones by SciPy: first column from w[in − 1] on, row backward."""
    widths = [policy.observation_size, *policy.hidden, policy.action_size]
    found = []
    for layer, inputs in zip(params, widths[:-1], strict=True):
        w = np.asarray(layer["weight"], np.float64)
        if policy.kind == "toeplitz":
            w = toeplitz(w[inputs - 1 :], w[inputs - 1 :: -1])
        found.append((w, np.asarray(layer["bias"], np.float64) if "bias" in layer else 0.0))
    return found


def outputs(policy: Policy, params, observation: np.ndarray) -> np.ndarray:
    """What the last layer says, in float64."""
    *hidden, (last, _) = matrices(policy, params)
    x = observation
    for weight, bias in hidden:
        x = np.tanh(weight @ x + bias)
    return last @ x


@partial(jax.jit, static_argnums=0)
def _act(policy: Policy, params, observations, noise):
    return jax.vmap(policy.act, (None, 0, 0))(policy.layers(params), observations, noise)


def act(policy: Policy, params, observations, noise=0.0) -> np.ndarray:
    """Actions in several states."""
    observations = np.asarray(observations, np.float32)
    noise = np.broadcast_to(np.float32(noise), (len(observations), policy.action_size))
    return np.asarray(_act(policy, params, observations, noise))


@pytest.mark.parametrize(("inputs", "width", "actions"), [(5, 3, 2), (2, 7, 4), (1, 1, 1)])
def test_toeplitz_matrices_are_those_of_scipy(inputs: int, width: int, actions: int) -> None:
    policy = Policy(inputs, actions, "toeplitz", (width,))
    params = drawn(policy)
    layers = jax.jit(policy.layers)(params)
    for (found, _), (weight, _) in zip(layers, matrices(policy, params), strict=True):
        np.testing.assert_array_equal(found, weight.astype(np.float32))
    assert [weight.shape for weight, _ in layers] == [(width, inputs), (actions, width)]


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("toeplitz", 502),  # of the paper's released run on the quadruped
        ("dense", 113 * 64 + 64 + 64 * 64 + 64 + 64 * 8),
    ],
)
def test_the_number_of_parameters(kind, count: int) -> None:
    policy = Policy(113, 8, kind, (64, 64))
    assert sum(x.size for x in jax.tree.leaves(shapes(policy))) == count


@pytest.mark.parametrize(("kind", "hidden"), [("toeplitz", (5, 4, 3)), ("dense", (6, 4))])
def test_bounded_actions_are_those_of_numpy(kind, hidden: tuple[int, ...]) -> None:
    low, high = (-2.0, 0.0), (4.0, 0.5)
    policy = Policy(3, 2, kind, hidden, low=low, high=high)
    params = drawn(policy)
    rng = np.random.default_rng(1)
    observations, noise = rng.normal(size=(20, 3)), 0.05 * rng.normal(size=(20, 2))
    raw = np.array([np.tanh(outputs(policy, params, o)) for o in observations]) + noise
    expected = np.clip(np.array([1.0, 0.25]) + np.array([3.0, 0.25]) * raw, low, high)
    np.testing.assert_allclose(
        act(policy, params, observations, noise), expected, rtol=1e-4, atol=1e-5
    )


def test_noise_never_leaves_the_bounds_and_is_in_units_of_half_the_range() -> None:
    policy = Policy(2, 2, "dense", (3,), low=(-2.0, 0.0), high=(4.0, 0.5))
    params = drawn(policy)
    ones = np.ones((200, 2))
    noise = np.random.default_rng(0).normal(size=(200, 2), scale=3.0)
    actions = act(policy, params, ones, noise)
    np.testing.assert_array_equal(actions.min(axis=0), [-2.0, 0.0])
    np.testing.assert_array_equal(actions.max(axis=0), [4.0, 0.5])
    middle = jax.tree.map(np.zeros_like, params)  # in the middle of the range
    moved = act(policy, middle, ones, [0.1, -0.2]) - act(policy, middle, ones)
    np.testing.assert_allclose(moved[0], [0.1 * 3, -0.2 * 0.25], rtol=1e-5)


def test_unbounded_actions_are_not_squashed_and_half_bounded_ones_are_clipped() -> None:
    inf = np.inf
    policy = Policy(2, 4, "dense", (3,), low=(-inf, 0.0, -inf, -1.0), high=(inf, inf, 0.5, 1.0))
    params = drawn(policy)
    params[-1]["weight"] *= 50
    observations = np.random.default_rng(0).normal(size=(50, 2))
    raw = np.array([outputs(policy, params, o) for o in observations])
    assert np.abs(raw[:, 0]).max() > 20
    for column in (1, 2):
        assert raw[:, column].min() < -1 < 1 < raw[:, column].max()
    expected = np.stack(
        [raw[:, 0] + 0.5, raw[:, 1].clip(0), raw[:, 2].clip(None, 0.5), np.tanh(raw[:, 3])], axis=1
    )
    np.testing.assert_allclose(
        act(policy, params, observations, [0.5, 0, 0, 0]), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("kind", ["toeplitz", "dense"])
def test_discrete_actions_have_the_largest_output(kind) -> None:
    policy = Policy(3, 5, kind, (4,), discrete=True)
    params = drawn(policy)
    observations = np.random.default_rng(0).normal(size=(40, 3))
    actions = act(policy, params, observations)
    assert actions.dtype.kind == "i"
    expected = [np.argmax(outputs(policy, params, o)) for o in observations]
    np.testing.assert_array_equal(actions, expected)
    assert len(set(expected)) > 1
    # Noise on the outputs makes others possible.
    np.testing.assert_array_equal(
        act(policy, params, np.ones((5, 3)), 100 * np.eye(5)), [0, 1, 2, 3, 4]
    )


@pytest.mark.parametrize("kind", ["toeplitz", "dense"])
def test_the_start_is_random_of_variance_one_over_inputs(kind) -> None:
    policy = Policy(100, 80, kind, (900,))
    init = jax.jit(policy.init)
    first, last = init(jax.random.key(0))
    for layer, inputs in ((first, 100), (last, 900)):
        weight = np.asarray(layer["weight"]).ravel()
        assert weight.std() * inputs**0.5 == pytest.approx(1, abs=4 / (2 * weight.size) ** 0.5)
    np.testing.assert_array_equal(first["bias"], np.zeros(900))
    assert "bias" not in last
    assert not np.array_equal(first["weight"], init(jax.random.key(1))[0]["weight"])
    a, b = (np.asarray(x["weight"]).ravel()[:900] for x in (first, last))
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.2  # the layers do not share their numbers


@pytest.mark.parametrize("kind", ["toeplitz", "dense"])
def test_a_uniform_start_is_positive_and_has_biases(kind) -> None:
    layers = Policy(30, 20, kind, (900, 800), start="uniform").init(jax.random.key(0))
    assert ["bias" in layer for layer in layers] == [True, True, False]
    vectors = [np.asarray(x).ravel() for layer in layers for x in layer.values()]
    for x in vectors:
        scaled = x * x.size**0.5
        assert 0 <= scaled.min() < 0.02 < 0.98 < scaled.max() <= 1
        assert scaled.mean() == pytest.approx(0.5, abs=4 / (12 * x.size) ** 0.5)
    a, b = (x[:800] / x[:800].std() for x in (vectors[1], vectors[3]))
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.2


@pytest.mark.parametrize("kind", ["toeplitz", "dense"])
def test_layers_that_are_drawn_together_are_those_drawn_apart(kind) -> None:
    key = jax.random.key(4)
    for number, layer in enumerate(Policy(7, 3, kind, (5, 6)).init(key)):
        inputs = (7, 5, 6)[number]
        drawn = jax.random.normal(jax.random.fold_in(key, number), layer["weight"].shape)
        np.testing.assert_allclose(layer["weight"], drawn / inputs**0.5, rtol=1e-6)
