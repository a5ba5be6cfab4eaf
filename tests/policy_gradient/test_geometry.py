from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.linalg import solve_continuous_lyapunov
from scipy.stats import norm

from wng.behavior import Embedding, find_embedding
from wng.behavior.embedding import EMBEDDINGS
from wng.estimator import jacobian_score, kernel_basis
from wng.estimator.basis import KernelBasis
from wng.estimator.jacobian import behaviors_and_pullback
from wng.estimator.metric import LowRank, WassersteinMetric
from wng.policy_gradient.batch import Batch, Data
from wng.policy_gradient.behaviors import Windows, cut_windows
from wng.policy_gradient.config import Config
from wng.policy_gradient.geometry import OutputMetric, wasserstein_exact
from wng.policy_gradient.kernel import HeldFixed, kernel
from wng.policy_gradient.methods import preset
from wng.policy_gradient.networks import MLP, Gaussian, Networks, Policy, init_networks
from wng.policy_gradient.problem import Problem


def make_problem(
    embedding: str | Embedding = "state-action",
    discrete: bool = False,
    action_size: int = 1,
    bounds: tuple = (-np.inf, np.inf),
    **settings,
) -> Problem:
    """A problem whose geometry sees behaviors."""
    if isinstance(embedding, str):
        settings, embedding = settings | {"embedding": embedding}, find_embedding(embedding)
    return Problem(
        Config(**({"geometry": "wasserstein", "basis": "kernel"} | settings)),
        embedding,
        observation_size=2,
        action_size=action_size,
        discrete=discrete,
        action_bounds=bounds,
    )


def linear_policy(weight: list, log_std: list | None) -> Networks:
    """μ = Ws (or logits), no hidden layer: closed forms are short."""
    W = jnp.array(weight, float)
    net = MLP(jax.random.key(0), W.shape, 1.0)
    net = eqx.tree_at(lambda n: n.weights, net, (W,))
    std = None if log_std is None else jnp.array(log_std, float)
    return Networks(Policy(net, std), MLP(jax.random.key(1), (W.shape[0], 1), 1.0))


def single_steps(
    observations: jax.Array,
    actions: jax.Array,
    log_probs: jax.Array,
    successors: jax.Array | None = None,
) -> Windows:
    """Windows of one step each, which lead nowhere unless told otherwise."""
    ones = jnp.ones((len(observations), 1))
    successors = observations if successors is None else successors
    parts = (x[:, None] for x in (observations, successors, actions, log_probs))
    return Windows(*parts, 0 * ones, ones)


# Windows


def test_windows_are_in_order_and_masked_after_an_episodes_end() -> None:
    steps, envs = 5, 2  # horizon 2: the fifth step is left over
    number = jnp.arange(steps * envs).reshape(steps, envs)  # step t of environment e is 2t + e
    done = jnp.zeros((steps, envs), bool).at[2, 0].set(True).at[1, 1].set(True)
    states = number[..., None] * 1.0
    windows = cut_windows(2, states, states + 0.5, 10 * states, -number * 1.0, number * 100.0, done)
    expected = [[0, 2], [4, 6], [1, 3], [5, 7]]
    np.testing.assert_array_equal(windows.observations[..., 0], expected)
    np.testing.assert_array_equal(windows.next_observations[..., 0], 0.5 + np.array(expected))
    np.testing.assert_array_equal(windows.actions[..., 0], 10 * np.array(expected))
    np.testing.assert_array_equal(windows.log_probs, -np.array(expected))
    np.testing.assert_array_equal(windows.rewards, 100 * np.array(expected))
    # Ends at step 4: the 6 after it is another episode. Ends at step 3: that is the window's last.
    np.testing.assert_array_equal(windows.mask, [[1, 1], [1, 0], [1, 1], [1, 1]])
    picked = windows.pick(3, jax.random.key(0))
    rows = [expected.index((row / 100).tolist()) for row in np.asarray(picked.rewards)]
    assert len(set(rows)) == 3
    np.testing.assert_array_equal(picked.mask, np.asarray(windows.mask)[rows])
    assert len(windows.pick(9, jax.random.key(0)).mask) == 4


def test_a_mask_stays_zero_over_later_episodes() -> None:
    done = jnp.array([0, 1, 0, 1, 0, 0], bool)[:, None]
    zeros = jnp.zeros((6, 1))
    states = zeros[..., None]
    windows = cut_windows(6, states, states, states, zeros, zeros, done)
    np.testing.assert_array_equal(windows.mask, [[1, 1, 0, 0, 0, 0]])


# Metrics in the policy's outputs

NETWORKS = {
    discrete: init_networks(jax.random.key(3), 2, 3, discrete=discrete, hidden=(4,), log_std=-0.3)
    for discrete in (False, True)
}
# The usual 0.01 of the last layer would make the mean, and so half of the metric, trivial.
NETWORKS = {
    discrete: eqx.tree_at(
        lambda n: n.policy.net.weights, n, replace_fn=lambda w: (w[0], 100 * w[1])
    )
    for discrete, n in NETWORKS.items()
}
STATES = jax.random.normal(jax.random.key(4), (10, 2))


def dense_output_metric(networks: Networks, kind: str) -> np.ndarray:
    """E_s[(∂o/∂θ)ᵀ H (∂o/∂θ)] with H by hand and ∂o/∂θ by `jax.jacobian`."""
    theta, unravel = ravel_pytree(networks.policy)
    jac = jax.jit(jax.jacobian(lambda t: jax.tree.leaves(unravel(t)(STATES))))(theta)
    jac = [np.asarray(j) for j in jac]
    if kind == "categorical":
        p = np.asarray(jax.nn.softmax(networks.policy(STATES).logits))
        H = np.stack([np.diag(row) - np.outer(row, row) for row in p])
        return np.einsum("nap,nab,nbq->pq", jac[0], H, jac[0]) / len(STATES)
    std = np.exp(np.asarray(networks.policy.log_std))
    of_mean, of_log = (std**-2, 0 * std + 2) if kind == "fisher" else (0 * std + 1, std**2)
    mean = np.einsum("nap,a,naq->pq", jac[0], of_mean, jac[0])
    return (mean + np.einsum("nap,a,naq->pq", jac[1], of_log, jac[1])) / len(STATES)


@pytest.mark.parametrize("kind", ["fisher", "wasserstein", "categorical"])
def test_output_metric_solves_like_the_dense_matrix(kind: str) -> None:
    networks = NETWORKS[kind == "categorical"]
    G = dense_output_metric(networks, kind)
    g = np.random.default_rng(0).normal(size=len(G))

    @jax.jit
    def run(networks: Networks, g: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        geometry = "wasserstein-exact" if kind == "wasserstein" else "fisher"
        problem = make_problem(geometry=geometry, cg_iterations=100)
        batch = Batch(STATES, None, None, None, None, None)
        metric: Any = problem.geometry.metric(
            problem, networks, Data(batch, None, None, None), jax.random.key(0)
        )
        columns = jax.vmap(metric.products())(jnp.eye(g.size))
        return metric.solve(g, 0.05), columns, metric.largest_eigenvalue

    solution, columns, largest = run(networks, jnp.asarray(g))
    # Ten power iterations come close from below, also where the leading eigenvalues do.
    assert 0.9 < largest / np.linalg.eigvalsh(G)[-1] < 1.0001
    np.testing.assert_allclose(columns, G, rtol=1e-3, atol=1e-5 * np.abs(G).max())
    expected = np.linalg.solve(G + 0.05 * np.eye(len(G)), g)
    np.testing.assert_allclose(solution, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_solve_of_a_metric_of_low_rank_is_finite_and_right() -> None:
    """Two actions in two states: conjugate gradients are done after a few steps of many."""
    networks = init_networks(jax.random.key(0), 1, 2, discrete=True, hidden=(8,), log_std=0.0)
    states = jnp.tile(jnp.array([[-1.0], [1.0]]), (512, 1))
    theta, unravel = ravel_pytree(networks.policy)
    J = np.asarray(jax.jacobian(lambda t: unravel(t)(states[:2]).logits)(theta), np.float64)
    p = np.asarray(jax.nn.softmax(networks.policy(states[:2]).logits), np.float64)
    H = np.stack([np.diag(row) - np.outer(row, row) for row in p])
    G = np.einsum("nap,nab,nbq->pq", J, H, J) / 2
    g = np.einsum("nap,na->p", J, [[1.0, -1.0], [-1.0, 1.0]])

    @jax.jit
    def solve(networks: Networks, g: jax.Array) -> jax.Array:
        return OutputMetric(networks, states, lambda o, v: o.fisher(v), 50).solve(
            g, jnp.asarray(0.1)
        )

    expected = np.linalg.solve(G + 0.1 * np.eye(len(G)), g)
    found = solve(networks, jnp.asarray(g, jnp.float32))
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


# The kernel metric


def matrix(spectrum: LowRank) -> jax.Array:
    return (spectrum.directions.T * spectrum.eigenvalues) @ spectrum.directions


def exact_matrix(networks: Networks, states: np.ndarray) -> np.ndarray:
    """E_s W₂² of a linear policy with one action; order of `ravel_pytree`: W, bias, log_std."""
    extended = np.concatenate([states, np.ones((len(states), 1))], axis=1)
    G = np.zeros((extended.shape[1] + 1,) * 2)
    G[:-1, :-1] = extended.T @ extended / len(states)
    G[-1, -1] = np.exp(2 * float(networks.policy.log_std[0]))
    return G


def estimated(networks: Networks, states: jax.Array, num_basis: int, form: str) -> jax.Array:
    """Ĝ with states held fixed, or joint with all coordinates free; the mean of four draws."""
    problem = make_problem(num_basis=num_basis)
    config, behaviors = problem.config, problem.behaviors
    number = len(states)
    windows = single_steps(states, jnp.zeros((number, 1)), jnp.zeros(number))

    def joint(networks: Networks, key: jax.Array) -> LowRank:
        key_behavior, key_basis = jax.random.split(key)

        def embed(policy: Policy) -> jax.Array:
            return behaviors.embed(Networks(policy, networks.value), windows, key_behavior)

        X, pullback = behaviors_and_pullback(embed, networks.policy)
        basis = kernel_basis(key_basis, X, num_basis)
        basis = KernelBasis(basis.centers, basis.indices, config.bandwidth * basis.bandwidth)
        return WassersteinMetric(basis, X, pullback(basis)).spectrum

    @jax.jit
    def mean(networks: Networks) -> jax.Array:
        def one(key: jax.Array) -> jax.Array:
            if form == "joint":
                return matrix(joint(networks, key))
            return matrix(kernel.metric(problem, networks, Data(None, windows, None, None), key))

        return jax.lax.map(one, jax.random.split(jax.random.key(0), 4)).mean(axis=0)

    return mean(networks)


@pytest.mark.parametrize("geometry", ["fisher", "wasserstein-exact"])
def test_largest_eigenvalue_is_exact_where_it_stands_out(geometry: str) -> None:
    networks, states = linear_policy([[0.5], [-0.3]], [0.2]), STATES + 5
    G = exact_matrix(networks, np.asarray(states))
    if geometry == "fisher":
        G /= np.exp(0.4)
        G[-1, -1] = 2
    batch = Batch(states, None, None, None, None, None)
    problem = make_problem(geometry=geometry)
    metric = problem.geometry.metric(
        problem, networks, Data(batch, None, None, None), jax.random.key(0)
    )
    eigenvalues = np.linalg.eigvalsh(G)
    assert eigenvalues[-1] > 10 * eigenvalues[-2]
    assert metric.largest_eigenvalue == pytest.approx(eigenvalues[-1], rel=1e-4)


def test_kernel_metric_converges_to_the_exact_one_per_state() -> None:
    """Quadratic forms along the axes and three random directions, within 5 %."""
    networks = linear_policy([[0.5], [-0.3]], [0.2])
    states = jax.random.normal(jax.random.key(1), (512, 2))
    directions = np.concatenate([np.eye(4), np.random.default_rng(0).normal(size=(3, 4))])

    def errors(number: int, num_basis: int) -> np.ndarray:
        held = estimated(networks, states[:number], num_basis, "held")
        exact = exact_matrix(networks, np.asarray(states[:number]))
        ratio = np.einsum("ki,ij,kj->k", directions, held, directions) / np.einsum(
            "ki,ij,kj->k", directions, exact, directions
        )
        return np.abs(ratio - 1)

    few, many = errors(64, 8), errors(512, 100)
    print("few:", few, "many:", many)
    assert (many < 0.05).all()
    assert (few > 0.2).any()
    assert few.mean() > 4 * many.mean()


def test_holding_states_fixed_keeps_sight_of_sigma_where_the_policy_is_steep() -> None:
    """Jointly, a change of σ is made up for by shifting states by a fraction of it."""
    networks = linear_policy([[4.0]], [np.log(0.5)])
    states = jax.random.normal(jax.random.key(1), (512, 1))
    held, joint = (estimated(networks, states, 100, form) for form in ("held", "joint"))
    exact = exact_matrix(networks, np.asarray(states))
    held_ratio, joint_ratio = np.diag(held) / np.diag(exact), np.diag(joint) / np.diag(exact)
    print("held:", held_ratio, "joint:", joint_ratio)
    np.testing.assert_allclose(held_ratio, 1, atol=0.15)
    assert joint_ratio[-1] < 0.2


def test_held_fixed_zeroes_the_gradient_along_what_is_held() -> None:
    X = jax.random.normal(jax.random.key(0), (6, 3))
    basis = kernel_basis(jax.random.key(1), X, 4)
    held = HeldFixed(basis, jnp.array([False, True, True]))
    np.testing.assert_array_equal(held.values(X), basis.values(X))
    gradients = np.asarray(held.gradients(X))
    np.testing.assert_array_equal(gradients[..., 0], 0)
    np.testing.assert_array_equal(gradients[..., 1:], basis.gradients(X)[..., 1:])
    assert held.size == 4


@pytest.mark.parametrize(
    ("embedding", "moved"),
    [
        ("state-action", [False, False, True]),
        ("actions", [True] * 10),
        ("actions-value", [True] * 11),
        ("trajectory-actions", [True]),
        ("clipped-action", [False, False, True]),
        ("state-change", [False, False, True, True]),
        ("final-state", [True, True]),  # θ moves states through the environment
    ],
)
def test_which_coordinates_move(embedding: str, moved: list[bool]) -> None:
    networks = linear_policy([[0.5], [-0.3]], [0.2])
    behaviors = make_problem(embedding).behaviors
    windows = single_steps(STATES, jnp.zeros((10, 1)), jnp.zeros(10))
    sample = jax.jit(behaviors.sample)(networks, windows, jax.random.key(0))
    np.testing.assert_array_equal(sample[2], [moved] * 10)


def test_what_follows_the_end_of_an_episode_does_not_move() -> None:
    behaviors = make_problem("trajectory-actions").behaviors
    states, mask = jnp.zeros((2, 3, 2)), jnp.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    windows = Windows(states, states, states[..., :1], mask, mask, mask)
    networks = linear_policy([[0.5], [-0.3]], [0.2])
    _, _, moved = jax.jit(behaviors.sample)(networks, windows, jax.random.key(0))
    np.testing.assert_array_equal(moved, mask == 1)


def test_a_value_that_the_step_cannot_move_is_held_fixed() -> None:
    networks = linear_policy([[0.5], [-0.3]], [0.2])
    behaviors = make_problem("actions-value", step="trust_region").behaviors
    assert not behaviors.joint
    assert make_problem("actions-value").behaviors.joint
    windows = single_steps(STATES, jnp.zeros((10, 1)), jnp.zeros(10))
    _, _, moved = jax.jit(behaviors.sample)(networks, windows, jax.random.key(0))
    np.testing.assert_array_equal(moved, [[True] * 10 + [False]] * 10)


def test_reparameterized_behaviors_are_the_policys_in_the_windows_states() -> None:
    networks = linear_policy([[0.5], [-0.3]], [-0.7])
    behaviors = make_problem().behaviors
    states = jnp.tile(jnp.array([[1.0, 2.0]]), (4000, 1))
    windows = single_steps(states, jnp.full((4000, 1), 9.0), jnp.zeros(4000))
    X = np.asarray(jax.jit(behaviors.embed)(networks, windows, jax.random.key(0)))
    np.testing.assert_array_equal(X[:, :2], states)
    error = np.exp(-0.7) / np.sqrt(4000)
    assert abs(X[:, 2].mean() - (0.5 - 0.6)) < 4 * error
    assert X[:, 2].std() == pytest.approx(np.exp(-0.7), rel=0.05)


# Behaviors whose metric is not that of the policy's own actions


def mean_metric(problem: Problem, networks: Networks, windows: Windows) -> np.ndarray:
    """Ĝ, the mean of four draws."""

    @jax.jit
    def run(networks: Networks) -> jax.Array:
        def one(key: jax.Array) -> jax.Array:
            return matrix(kernel.metric(problem, networks, Data(None, windows, None, None), key))

        return jax.lax.map(one, jax.random.split(jax.random.key(0), 4)).mean(axis=0)

    return np.asarray(run(networks))


def clipped_exact(networks: Networks, states: np.ndarray, low: float, high: float) -> np.ndarray:
    """E_s W₂² of clip(μ + σz): monotone in z, so W₂² is that of equal z, and
    G = E[1(low < a < high) (∂a/∂θ)(∂a/∂θ)ᵀ], ∂a/∂θ = (s, 1, σz). Parameters as in `exact_matrix`.
    """
    nodes = np.linspace(-6, 6, 2001)
    weights = np.exp(-(nodes**2) / 2)
    std = np.exp(float(networks.policy.log_std[0]))
    extended = np.concatenate([states, np.ones((len(states), 1))], axis=1)
    mean = np.asarray(networks.policy(jnp.asarray(states)).mean)
    actions = mean + std * nodes
    inside = (low < actions) & (actions < high)
    each = np.concatenate(
        [
            np.broadcast_to(extended[:, None], (len(states), len(nodes), 3)),
            np.broadcast_to(std * nodes[:, None], (len(states), len(nodes), 1)),
        ],
        axis=2,
    )
    weight = inside * weights / weights.sum() / len(states)
    return np.einsum("nk,nki,nkj->ij", weight, each, each)


def ratios(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Quadratic forms relative to the exact ones, along the axes and three random directions."""
    size = len(exact)
    directions = np.concatenate([np.eye(size), np.random.default_rng(0).normal(size=(3, size))])
    forms = (np.einsum("ki,ij,kj->k", directions, G, directions) for G in (found, exact))
    found_forms, exact_forms = forms
    return found_forms / exact_forms


def test_clipped_actions_have_the_metric_of_what_the_environment_receives() -> None:
    networks = linear_policy([[0.5], [-0.3]], [0.2])
    states = jax.random.normal(jax.random.key(1), (512, 2))
    windows = single_steps(states, jnp.zeros((512, 1)), jnp.zeros(512))
    low, high = -0.8, 1.2
    problem = make_problem("clipped-action", bounds=((low,), (high,)), num_basis=100)
    exact = clipped_exact(networks, np.asarray(states), low, high)
    unclipped = exact_matrix(networks, np.asarray(states))
    print("clipped / unclipped:", np.diag(exact) / np.diag(unclipped))
    assert (np.diag(exact) < 0.7 * np.diag(unclipped)).all()
    found = ratios(mean_metric(problem, networks, windows), exact)
    print("found / exact:", found)
    np.testing.assert_allclose(found, 1, atol=0.06)


def test_the_closed_form_for_clipped_actions() -> None:
    """Against quadrature, with bounds that cut off much, little or nothing, on one side or both."""
    networks = linear_policy([[0.5], [-0.3]], [0.2])
    for low, high in ((-0.8, 1.2), (0.5, 0.6), (-np.inf, 0.3), (-np.inf, np.inf), (40.0, 50.0)):
        problem = make_problem(
            "clipped-action", bounds=((low,), (high,)), geometry="wasserstein-exact"
        )
        data = Data(Batch(STATES, None, None, None, None, None), None, None, None)
        metric: Any = problem.geometry.metric(problem, networks, data, jax.random.key(0))
        found = jax.jit(lambda m=metric: jax.vmap(m.products())(jnp.eye(4)))()
        exact = clipped_exact(networks, np.asarray(STATES), low, high)
        np.testing.assert_allclose(found, exact, atol=2e-3 * max(1.0, np.abs(exact).max()))


def test_the_closed_form_far_beyond_the_bounds_is_the_same_on_both_sides() -> None:
    tangent = Gaussian(jnp.ones(2), jnp.zeros(2))
    there = Gaussian(jnp.array([3.8, -3.8]), jnp.log(jnp.full(2, 0.5)))
    found = np.asarray(there.clipped_wasserstein(tangent, -1.0, 1.0).mean)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)
    np.testing.assert_allclose(found[0], norm.sf(5.6) - norm.sf(9.6), rtol=1e-3)


def test_the_closed_form_is_of_actions_alone() -> None:
    with pytest.raises(ValueError, match="'final-state' is not one of actions"):
        make_problem("final-state", geometry="wasserstein-exact")
    assert make_problem("final-state", geometry="wasserstein-auto").geometry is kernel
    scaled = Embedding(lambda t: 10 * t.actions[0], whole=False, of_actions=True)
    assert make_problem(scaled, geometry="wasserstein-auto").geometry is kernel
    automatic = make_problem("clipped-action", geometry="wasserstein-auto")
    assert automatic.geometry is wasserstein_exact


def test_clipping_hides_the_parameters_of_saturated_actions_alone() -> None:
    """Two actions: the first is beyond its bound almost surely, the second never."""
    networks = linear_policy([[0.1, 0.5], [0.0, -0.3]], [-1.0, -1.0])
    networks = eqx.tree_at(lambda n: n.policy.net.biases[-1], networks, jnp.array([5.0, 0.0]))
    states = jax.random.normal(jax.random.key(1), (256, 2))
    windows = single_steps(states, jnp.zeros((256, 2)), jnp.zeros(256))

    def diagonal(embedding: str, bounds: tuple) -> np.ndarray:
        problem = make_problem(embedding, action_size=2, bounds=bounds, num_basis=100)
        return np.diag(mean_metric(problem, networks, windows))

    clipped = diagonal("clipped-action", ((-1.0, -9.0), (1.0, 9.0)))
    plain = diagonal("state-action", ((-1.0, -9.0), (1.0, 9.0)))
    first = np.array([0, 2, 4, 6])  # its weights, bias and log-std, in the order of `ravel_pytree`
    np.testing.assert_allclose(clipped[first], 0, atol=1e-6)
    np.testing.assert_allclose(clipped[first + 1], plain[first + 1], rtol=0.1)
    assert (plain[first] > 0.05).all()
    # Bounds that are never reached change nothing.
    wide = diagonal("clipped-action", ((-99.0, -99.0), (99.0, 99.0)))
    np.testing.assert_allclose(wide, plain, rtol=1e-5)


def test_a_policy_beyond_all_bounds_has_a_metric_of_zero() -> None:
    networks = linear_policy([[0.0], [0.0]], [-1.0])
    networks = eqx.tree_at(lambda n: n.policy.net.biases[-1], networks, jnp.array([50.0]))
    windows = single_steps(STATES, jnp.zeros((10, 1)), jnp.zeros(10))
    problem = make_problem("clipped-action", bounds=((-1.0,), (1.0,)), num_basis=5)
    np.testing.assert_array_equal(mean_metric(problem, networks, windows), np.zeros((4, 4)))


def outcome_exact(networks: Networks, states: np.ndarray, B: np.ndarray, Q: np.ndarray):
    """E_s W₂² of s' ~ N(As + Bμ(s), Σ), Σ = B diag(σ²) Bᵀ + Q, for two actions.

    The mean gives E_s[(∂μ)ᵀBᵀB(∂μ)]. The covariance gives tr(V_i Σ V_j) with
    V_i Σ + Σ V_i = ∂Σ/∂log σ_i, the metric of Bures.
    """
    extended = np.concatenate([states, np.ones((len(states), 1))], axis=1)
    variances = np.exp(2 * np.asarray(networks.policy.log_std, float))
    covariance = B * variances @ B.T + Q
    G = np.zeros((8, 8))
    G[:6, :6] = np.kron(extended.T @ extended / len(states), B.T @ B)
    V = [
        solve_continuous_lyapunov(covariance, 2 * v * np.outer(b, b))
        for v, b in zip(variances, B.T, strict=True)
    ]
    G[6:, 6:] = [[np.trace(v @ covariance @ w) for w in V] for v in V]
    return G


def test_outcomes_of_a_linear_system_have_the_metric_of_its_inputs_effect() -> None:
    """s' = As + Ba + noise, seen through samples alone: BᵀB in place of I."""
    number = 40_000
    A, B = np.array([[0.9, 0.2], [-0.1, 0.8]]), np.array([[2.4, 1.0], [0.6, -1.8]])
    networks = linear_policy([[0.5, 0.2], [-0.3, 0.4]], [0.0, -0.3])
    keys = jax.random.split(jax.random.key(2), 3)
    states = jax.random.normal(keys[0], (number, 2))
    policy = networks.policy(states)
    actions = policy.sample(jax.random.normal(keys[1], (number, 2)))
    noise = 0.3 * jax.random.normal(keys[2], (number, 2))
    successors = states @ A.T + actions @ B.T + noise
    windows = single_steps(states, actions, policy.log_prob(actions), successors)
    problem = make_problem("state-change", action_size=2, num_basis=60, bandwidth=1.0)
    assert not problem.behaviors.reparam
    exact = outcome_exact(networks, np.asarray(states), B, 0.09 * np.eye(2))
    found = ratios(mean_metric(problem, networks, windows), exact)
    print("found / exact:", found, "BᵀB:", B.T @ B)
    np.testing.assert_allclose(found, 1, atol=0.12)


# The basis of policies


def test_policy_basis_comes_near_the_exact_metric_without_action_noise() -> None:
    """Against E_s W₂² formed densely, for one hidden layer and three actions."""
    networks = NETWORKS[False]
    exact = dense_output_metric(networks, "wasserstein")
    windows = single_steps(STATES, jnp.zeros((10, 3)), jnp.zeros(10))
    data = Data(None, windows, None, None)

    def errors(**settings) -> float:
        problem = make_problem(action_size=3, **settings)
        drawn = [
            matrix(kernel.metric(problem, networks, data, jax.random.key(k))) for k in range(3)
        ]
        return max(np.linalg.norm(G - exact) / np.linalg.norm(exact) for G in drawn)

    few, all_states = errors(basis="policy", num_basis=6), errors(basis="policy", num_basis=36)
    assert all_states < 1e-3
    assert few > 0.05
    assert errors(basis="kernel", num_basis=10) > 10 * all_states


def test_policy_basis_of_discrete_actions_measures_probabilities() -> None:
    """With as many centers as states it is E_s[(∂π/∂θ)ᵀ(∂π/∂θ)]."""
    networks = NETWORKS[True]
    theta, unravel = ravel_pytree(networks.policy)
    J = jax.jacobian(lambda t: jax.nn.softmax(unravel(t)(STATES).logits))(theta)
    J = np.asarray(J).reshape(-1, theta.size)
    windows = single_steps(STATES, jnp.zeros(10, int), jnp.zeros(10))
    problem = make_problem(discrete=True, action_size=3, basis="policy", num_basis=33)
    found = kernel.metric(problem, networks, Data(None, windows, None, None), jax.random.key(0))
    exact = J.T @ J / len(STATES)
    assert np.linalg.norm(matrix(found) - exact) < 1e-3 * np.linalg.norm(exact)
    assert found.eigenvalues.shape == (min(kernel.rank(problem), theta.size),)


def test_policy_basis_needs_single_states() -> None:
    with pytest.raises(ValueError, match="--embedding state-action, or --basis kernel"):
        make_problem("actions", basis="policy")
    with pytest.raises(ValueError, match="raise num_basis=5"):
        make_problem(action_size=3, basis="policy", num_basis=5)


def test_the_basis_fits_the_embedding_unless_it_is_named() -> None:
    assert kernel.of_policies(make_problem(basis="auto"))
    assert kernel.of_policies(make_problem(basis="auto", discrete=True))
    assert not kernel.of_policies(make_problem(basis="kernel"))
    assert not kernel.of_policies(make_problem(basis="auto", action_size=3, num_basis=5))
    for embedding in set(EMBEDDINGS) - {"state-action"}:
        assert not kernel.of_policies(make_problem(embedding, basis="auto"))


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("method", ["wnpg", "bgwnpg", "wtrpo"])
def test_tuned_presets_take_every_embedding(method: str, discrete: bool) -> None:
    for name in EMBEDDINGS:
        embedding = find_embedding(name)
        if not (discrete and embedding.resamples):  # draws of discrete actions have no gradient
            config = preset(method, embedding=name)
            sizes = {"observation_size": 2, "action_size": 2, "discrete": discrete}
            assert Problem(config, embedding, **sizes).behaviors.embedding is embedding


# The score form


def discrete_case(
    weight: list, old_weight: list, number: int, key: int = 0
) -> tuple[Networks, Windows]:
    """States, and actions that the old policy took in them."""
    networks, old = linear_policy(weight, None), linear_policy(old_weight, None)
    key_state, key_action = jax.random.split(jax.random.key(key))
    states = jax.random.normal(key_state, (number, 2))
    policy = old.policy(states)
    actions = policy.sample(jax.random.gumbel(key_action, (number, 3)))
    return networks, single_steps(states, actions, policy.log_prob(actions))


WEIGHT = [[0.8, -0.5, 0.1], [0.3, 0.4, -0.9]]
OLD_WEIGHT = [[-0.4, 0.6, 0.1], [0.9, -0.4, -0.2]]


@pytest.fixture(scope="module")
def score_jacobian():
    """J at θ from windows, with or without importance weights, and by enumerating the actions."""
    behaviors = make_problem(discrete=True, action_size=3).behaviors
    centers = np.random.default_rng(0).normal(size=(4, 5))
    basis = KernelBasis(jnp.asarray(centers), jnp.array([0, 2, 3, 4]), jnp.asarray(2.0))

    @jax.jit
    def run(networks: Networks, windows: Windows) -> tuple[jax.Array, jax.Array, jax.Array]:
        X, more, _ = behaviors.sample(networks, windows, jax.random.key(0))
        weights = behaviors.weights(networks, windows, more)

        def log_probs(policy: Policy) -> jax.Array:
            return behaviors.log_probs(Networks(policy, networks.value), windows, more)

        def expectation(policy: Policy) -> jax.Array:
            states = windows.observations[:, 0]
            p = jnp.exp(policy(states).log_probs())
            total = jnp.zeros(basis.size)
            for action in range(3):
                one_hot = jnp.tile(jnp.eye(3)[action], (len(states), 1))
                h = basis.values(jnp.concatenate([states, one_hot], axis=1))
                total += h @ p[:, action] / len(states)
            return total

        exact = jax.vmap(lambda tree: ravel_pytree(tree)[0])(
            jax.jacobian(expectation)(networks.policy)
        )
        plain = jacobian_score(basis, X, log_probs, networks.policy)
        return plain, jacobian_score(basis, X, log_probs, networks.policy, weights), exact

    return run


def relative(found: jax.Array, exact: jax.Array) -> float:
    return float(jnp.linalg.norm(found - exact) / jnp.linalg.norm(exact))


def test_score_jacobian_of_discrete_actions_is_the_enumerated_one(score_jacobian) -> None:
    plain, weighted, exact = score_jacobian(*discrete_case(WEIGHT, WEIGHT, 40_000))
    print(relative(plain, exact))
    assert relative(plain, exact) < 0.05
    np.testing.assert_allclose(weighted, plain, rtol=1e-3, atol=1e-6)  # all weights are 1


def test_importance_weights_correct_for_an_older_policy(score_jacobian) -> None:
    plain, weighted, exact = score_jacobian(*discrete_case(WEIGHT, OLD_WEIGHT, 40_000))
    print(relative(weighted, exact), relative(plain, exact))
    assert relative(weighted, exact) < 0.1
    assert relative(plain, exact) > 0.4


def test_weights_are_ratios_clipped_and_one_where_behaviors_are_resampled() -> None:
    networks, windows = discrete_case(WEIGHT, OLD_WEIGHT, 50)
    score = make_problem(discrete=True, action_size=3).behaviors
    states, actions = windows.observations[:, 0], windows.actions[:, 0]
    new = networks.policy(states).log_prob(actions)
    log_ratio = np.asarray(new) - np.asarray(windows.log_probs[:, 0])
    expected = np.exp(np.clip(log_ratio, -3, 3))
    np.testing.assert_allclose(score.weights(networks, windows, actions), expected, rtol=1e-4)
    far = windows._replace(log_probs=windows.log_probs - 50)
    np.testing.assert_allclose(score.weights(networks, far, actions), np.exp(3), rtol=1e-5)
    resampled = make_problem("actions", discrete=True, action_size=3).behaviors
    np.testing.assert_array_equal(resampled.weights(networks, far, actions), 1)


def test_log_probs_of_a_window_sum_up_to_the_episodes_end() -> None:
    networks = linear_policy([[0.5], [-0.3]], [-0.7])
    states = jax.random.normal(jax.random.key(0), (2, 3, 2))
    actions = jax.random.normal(jax.random.key(1), (2, 3, 1))
    mask = jnp.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    windows = Windows(states, states, actions, mask, mask, mask)
    behaviors = make_problem("final-state").behaviors
    each = np.asarray(networks.policy(states).log_prob(actions))
    np.testing.assert_allclose(
        behaviors.log_probs(networks, windows, actions),
        [each[0, :2].sum(), each[1].sum()],
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("embedding", "discrete", "jacobian", "message"),
    [
        ("state-action", True, "reparam", "needs continuous actions"),
        ("final-state", False, "reparam", "needs an embedding of actions"),
        ("actions-value", True, "auto", "discrete actions do not have: use --embedding"),
        ("actions-value", False, "score", "needs the reparameterized"),
    ],
)
def test_impossible_jacobians_say_what_to_use(
    embedding: str, discrete: bool, jacobian: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        make_problem(embedding, discrete, jacobian=jacobian)
    assert "\n" not in str(error.value)
    make_problem(embedding, discrete, jacobian=jacobian, geometry="fisher")  # which sees none


def test_auto_takes_the_reparameterized_form_where_it_applies() -> None:
    own = Embedding(lambda t: t.observations[-1])
    for embedding, discrete, expected in [
        ("state-action", False, True),
        ("state-action", True, False),
        ("reward-to-go", False, False),
        (own, False, False),
    ]:
        assert make_problem(embedding, discrete, 2).behaviors.reparam is expected
