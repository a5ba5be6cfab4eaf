import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from random_data import (
    SMALL,
    flat,
    make_learner,
    one_update,
    random_rollout,
    small_learner,
    small_method,
)

import wng
from wng.policy_gradient.axes import GEOMETRIES, PROXIMITIES, STEPS
from wng.policy_gradient.batch import Batch, Data, Rollout
from wng.policy_gradient.behaviors import Windows
from wng.policy_gradient.config import Config
from wng.policy_gradient.methods import METHODS, nearest_method, preset
from wng.runs.settings import find_method

# The table


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("PG", "none euclidean optimizer"),
        ("PPO", "clip euclidean optimizer"),
        ("PPO-KL", "kl euclidean optimizer"),
        ("NPG", "none fisher optimizer"),
        ("TRPO", "none fisher trust_region"),
        ("BGPG", "wasserstein euclidean optimizer"),
        ("WNPG", "none wasserstein optimizer"),
        ("BG-WNPG", "wasserstein wasserstein optimizer"),
        ("WTRPO", "none wasserstein-auto trust_region"),
    ],
)
def test_every_name_is_a_point_on_the_axes(name: str, axes: str) -> None:
    for settings in ("tuned", "paper", "released"):
        config = preset(name, settings)
        found = f"{config.proximity} {config.geometry} {config.step}"
        if name in ("WNPG", "BG-WNPG") and settings == "tuned":  # the same metric, not estimated
            found = found.replace("wasserstein-auto", "wasserstein")
        assert found == axes
    assert METHODS[find_method(name, METHODS).key].title == name
    assert find_method(name.replace("-", "").lower(), METHODS) is find_method(name, METHODS)


def test_settings_have_the_papers_numbers() -> None:
    released, paper, tuned = (preset("wnpg", s) for s in ("released", "paper", "tuned"))
    assert released.embedding == "actions-value"
    assert paper.embedding == "trajectory-actions"
    assert (released.rescale, paper.rescale) == (True, False)
    for config in (released, paper):
        assert (config.num_envs, config.rollout, config.epochs, config.minibatch) == (
            1,
            2048,
            10,
            64,
        )
        assert (config.num_basis, config.damping, config.adapt_damping) == (5, 1e-5, 5)
        assert not config.relative_damping
        assert (config.gamma, config.gae_lambda, config.max_grad_norm) == (0.99, 0.95, 0.5)
        assert (config.dual_features, config.dual_steps, config.dual_gamma) == (100, 25, 1.0)
        rates = config.learning_rate, config.value_learning_rate
        assert (*rates, config.value_weight) == (5e-5, 5e-5, 0.25)
    assert tuned.embedding == "state-action"
    matched = preset("bgpg", "released")
    assert (matched.penalty, matched.penalty_form, matched.dual_actions) == (0.1, "matched", 10)
    assert matched.dual_bandwidth == 0.1
    assert [preset("bgpg", s).penalty_form for s in ("tuned", "paper")] == ["exact", "exact"]
    assert preset("ppokl", "released").penalty == 1.0
    assert preset("trpo", "released").adapt_damping == 0


def test_overrides_win() -> None:
    config = preset("wnpg", "released", num_basis=7, geometry="fisher")
    assert (config.num_basis, config.geometry) == (7, "fisher")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: preset("wnpq"), "did you mean 'wnpg'"),
        (lambda: preset("wnpg", "relased"), "did you mean 'released'"),
        (lambda: preset("wnpg", learning_rat=1.0), "did you mean 'learning_rate'"),
        (lambda: preset("wnpg", geometry="fischer"), "did you mean 'fisher'"),
        (lambda: preset("wnpg", gamma=1.5), "gamma must be finite, at least 0 and at most 1"),
        (lambda: preset("wnpg", learning_rate=float("nan")), "learning_rate must be finite"),
        (lambda: preset("wnpg", num_basis=0), "num_basis must be at least 1"),
        (lambda: preset("wnpg", hidden=()), "hidden must be one or more widths"),
        (lambda: preset("wnpg", rollout=2049), "use 2048"),
        (lambda: preset("wnpg", minibatch=60), "multiple of minibatch=60"),
    ],
)
def test_mistakes_get_the_nearest_name_in_one_sentence(call, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_combination_of_ones_own_takes_the_settings_of_the_nearest_method() -> None:
    assert nearest_method(proximity="clip", geometry="wasserstein") == "wnpg"
    assert nearest_method(proximity="wasserstein", geometry="wasserstein") == "bgwnpg"
    assert nearest_method(geometry="wasserstein-exact", step="trust_region") == "wtrpo"
    assert nearest_method(geometry="wasserstein", step="trust_region") == "wtrpo"
    assert nearest_method(geometry="wasserstein-auto") == "wnpg"
    assert nearest_method(proximity="clip", geometry="fisher", step="trust_region") == "trpo"
    assert nearest_method(proximity="kl", geometry="") == "ppokl"
    assert nearest_method(geometry="my.module:mine", step="trust_region") == "trpo"
    assert nearest_method() == "pg"


# What each does


def moved(learner, **replaced) -> np.ndarray:
    before, after, _ = one_update(learner, **replaced)
    return flat(after.networks.policy) - flat(before.networks.policy)


def test_ppo_goes_less_far_than_pg_along_the_same_gradient() -> None:
    """A few long steps on a batch carry every ratio out of the clipped range."""
    same = {"learning_rate": 3e-4, "steer": False}
    kl = {m: one_update(small_method(m, **same), rate=100.0)[2]["kl"] for m in ("pg", "ppo")}
    assert kl["ppo"] < 0.7 * kl["pg"]


def test_ppokl_adapts_its_weight() -> None:
    learner = small_method("ppokl")
    for rate, penalty in [(1e-3, 0.5), (1e3, 2.0)]:
        _, after, _ = one_update(learner, rate=rate)
        assert after.penalty == pytest.approx(penalty)


@pytest.mark.parametrize(("method", "target"), [("trpo", 0.05), ("wtrpo", 1e-3)])
def test_trust_regions_take_steps_of_their_target_in_kl(method: str, target: float) -> None:
    _, _, metrics = one_update(small_method(method, kl_target=target))
    assert metrics["line_search_failed"] == 0
    assert 0.6 * target < metrics["kl"] <= 1.5 * target


def test_wtrpo_is_exact_for_gaussian_policies_and_estimated_for_discrete_ones() -> None:
    kernel, exact = (GEOMETRIES.find(name) for name in ("wasserstein", "wasserstein-exact"))
    config = preset("wtrpo", **SMALL)
    assert make_learner(config).problem.geometry is exact
    assert make_learner(config, discrete=True).problem.geometry is kernel


def test_bgpg_is_pg_without_its_penalty_and_something_else_with_it() -> None:
    bgpg = small_method("bgpg")
    plain = moved(small_method("pg", learning_rate=bgpg.problem.config.learning_rate))
    np.testing.assert_allclose(moved(bgpg, penalty=0.0), plain, rtol=1e-3, atol=1e-6)
    # After steps this small W₂² is tiny, and only a huge weight shows.
    assert np.abs(moved(bgpg, penalty=1e4) - plain).max() > 0.1 * np.abs(plain).max()


ONE_STEP = {
    "epochs": 1,
    "minibatch": 32,
    "optimizer": "sgd",
    "learning_rate": 1e-3,
    "max_grad_norm": 1e6,
    "damping": 0.1,
}


ESTIMATED = {"geometry": "wasserstein", "basis": "kernel"}


def surrogate_gradient(learner, state, rollout) -> tuple[jax.Array, Batch, Windows]:
    """g of −E[ρA] over the whole batch, by hand up to the advantages."""
    state, batch, windows, _ = learner.batch(state, rollout)
    advantages = batch.standardized().advantages
    theta, unravel = ravel_pytree(state.networks.policy)

    def loss(theta: jax.Array) -> jax.Array:
        ratio = jnp.exp(unravel(theta)(batch.observations).log_prob(batch.actions))
        return -jnp.mean(ratio / jnp.exp(batch.log_probs) * advantages)

    return jax.grad(loss)(theta), batch, windows


def gradient_and_metric(learner, state) -> tuple[jax.Array, Any]:
    """g and the kernel metric at the first minibatch of `one_update`."""
    # The keys of that minibatch, split as the update splits them.
    key_loop = jax.random.split(jax.random.key(1), 4)[0]
    key_steps = jax.random.split(key_loop)[1]
    key_metric, key_pick, _ = jax.random.split(jax.random.split(key_steps, 1)[0], 3)

    @jax.jit
    def both(state, rollout):
        g, batch, windows = surrogate_gradient(learner, state, rollout)
        picked = windows.pick(learner.problem.num_windows, key_pick)
        data = Data(batch, picked, None, state.penalty)
        geometry = GEOMETRIES.find("wasserstein")
        return g, geometry.metric(learner.problem, state.networks, data, key_metric)

    return both(state, random_rollout(learner, state))


def test_wnpg_goes_along_the_metrics_solve_and_not_along_the_gradient() -> None:
    learner = small_method("wnpg", **ONE_STEP, **ESTIMATED)
    g, spectrum = gradient_and_metric(learner, learner.init(jax.random.key(0)))
    g, Q = np.asarray(g, np.float64), np.asarray(spectrum.directions, np.float64)
    eigenvalues = np.asarray(spectrum.eigenvalues, np.float64)
    G = (Q.T * eigenvalues) @ Q
    direction = np.linalg.solve(G + 0.1 * eigenvalues[0] * np.eye(len(g)), g)
    step = moved(learner)
    np.testing.assert_allclose(step, -1e-3 * direction, atol=0.01 * np.abs(step).max())
    assert step @ g / np.linalg.norm(step) / np.linalg.norm(g) > -0.99  # not the gradient's


def test_the_optimizer_of_wnpg_is_a_chain_of_public_transformations() -> None:
    learner = small_method("wnpg", **(ONE_STEP | ESTIMATED | {"max_grad_norm": 0.01}))
    policy = learner.init(jax.random.key(0)).networks.policy
    g, metric = gradient_and_metric(learner, learner.init(jax.random.key(0)))
    chain = optax.chain(
        wng.scale_by_metric(wng.Damping(0.1, relative=True)),
        optax.clip_by_global_norm(0.01),
        optax.sgd(1e-3),
    )
    grads = ravel_pytree(policy)[1](g)
    updates, _ = chain.update(grads, chain.init(policy), policy, metric_fn=lambda _: metric)
    step = moved(learner)
    assert np.linalg.norm(step) == pytest.approx(1e-5, rel=0.01)  # it was clipped
    np.testing.assert_allclose(step, flat(updates), atol=0.01 * np.abs(step).max())


def dense_fisher(learner, state) -> tuple[np.ndarray, np.ndarray]:
    """g and F of the whole batch, by `jax.jacobian`."""
    theta, unravel = ravel_pytree(state.networks.policy)

    @jax.jit
    def dense(state, rollout):
        g, batch, _ = surrogate_gradient(learner, state, rollout)

        def outputs(theta):
            policy = unravel(theta)(batch.observations)
            return policy.mean, policy.log_std

        return g, jax.jacobian(outputs)(theta)

    found = dense(state, random_rollout(learner, state))
    g, (mean, log_std) = jax.tree.map(lambda x: np.asarray(x, np.float64), found)
    # σ = 1 at the start.
    F = np.einsum("nap,naq->pq", mean, mean) + 2 * np.einsum("nap,naq->pq", log_std, log_std)
    return g, F / 32


def test_npg_goes_along_the_dense_fisher_solve() -> None:
    learner = small_method("npg", **ONE_STEP, relative_damping=False, cg_iterations=100)
    g, F = dense_fisher(learner, learner.init(jax.random.key(0)))
    expected = np.linalg.solve(F + 0.1 * np.eye(len(g)), g)
    np.testing.assert_allclose(moved(learner), -1e-3 * expected, atol=1e-5 * np.abs(expected).max())


# Every combination

GRID = [
    (proximity, geometry, step, discrete)
    for proximity, geometry, step in itertools.product(PROXIMITIES, GEOMETRIES, STEPS)
    for discrete in (False, True)
    # The exact metric has no discrete form, and the automatic one is one of the others.
    if geometry != "wasserstein-auto" and not (discrete and geometry == "wasserstein-exact")
]
COVERING = [
    ("clip", "wasserstein-exact", "optimizer", False),
    ("kl", "euclidean", "trust_region", False),
    ("wasserstein", "wasserstein", "trust_region", False),
    ("none", "fisher", "optimizer", True),
    ("wasserstein", "wasserstein", "optimizer", True),
]


@pytest.mark.parametrize(
    ("proximity", "geometry", "step", "discrete"),
    [
        pytest.param(
            *case,
            marks=[] if case in COVERING else pytest.mark.slow,
            id="-".join([*case[:3], "discrete" if case[3] else "continuous"]),
        )
        for case in GRID
    ],
)
def test_every_combination_moves_to_finite_parameters(
    proximity: str, geometry: str, step: str, discrete: bool
) -> None:
    # W₂² of discrete actions is twice their total variation, whose slope does not vanish at the old
    # policy: with a large weight, staying there is best.
    axes = {"proximity": proximity, "geometry": geometry, "step": step}
    learner = small_learner(discrete, penalty=0.01, **axes)
    before, after, metrics = one_update(learner)
    assert np.isfinite(flat(after.networks)).all()
    assert (flat(after.networks.policy) != flat(before.networks.policy)).any()
    assert (flat(after.networks.value) != flat(before.networks.value)).all()
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["skipped"] == 0


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_an_update_with_the_released_settings(method: str) -> None:
    """Traced, not compiled: shapes of policy and value, which share a metric here, must fit."""
    learner = make_learner(preset(method, "released", **(SMALL | {"num_envs": 1})))
    assert learner.problem.behaviors.embedding.uses_value
    state = jax.eval_shape(learner.init, jax.random.key(0))
    steps = jax.ShapeDtypeStruct((32, 1, 3), jnp.float32)
    actions = jax.ShapeDtypeStruct((32, 1, 2), jnp.float32)
    rewards = jax.ShapeDtypeStruct((32, 1), jnp.float32)
    ends = jax.ShapeDtypeStruct((32, 1), bool)
    rollout = Rollout(steps, actions, rewards, ends, ends, steps)
    after, _ = jax.eval_shape(learner.update, state, rollout, jax.random.key(0))
    assert after == state


def test_the_covering_cases_cover_each_axis() -> None:
    for axis, registry in enumerate((PROXIMITIES, GEOMETRIES, STEPS)):
        # The automatic geometry is one of the others.
        assert {case[axis] for case in COVERING} == set(registry) - {"wasserstein-auto"}
    assert len(GRID) == 32 + 24


def test_whole_numbers_are_checked_like_real_ones() -> None:
    assert Config(gae_lambda=0, penalty=0).penalty == 0
    with pytest.raises(ValueError, match="gamma must be"):
        Config(gamma=2)


def test_relative_damping_is_in_units_of_the_fisher_metrics_largest_eigenvalue() -> None:
    learner = small_method("npg", **ONE_STEP, cg_iterations=100, relative_damping=True)
    state = learner.init(jax.random.key(0))
    _, _, metrics = one_update(learner)
    F = dense_fisher(learner, state)[1]
    assert metrics["epsilon"] == pytest.approx(0.1 * np.linalg.eigvalsh(F)[-1], rel=0.02)
