"""`scale_by_wasserstein` inside every wrapper of optax that a training loop may have."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import wng
from wng.estimator.transform import ScaleByMetricState

KEY = jax.random.key(0)
INPUTS = jax.random.normal(jax.random.key(1), (16, 3))
TARGETS = jnp.sin(INPUTS.sum(axis=1, keepdims=True))
PARAMS = {"a": {"w": 0.5 * jnp.ones((3, 4))}, "b": {"w": 0.5 * jnp.ones((4, 1)), "c": jnp.zeros(1)}}


def predict(params: Any) -> jax.Array:
    hidden = jnp.tanh(INPUTS @ params["a"]["w"])
    return hidden @ params["b"]["w"] + params["b"]["c"]


def behavior_fn(params: Any) -> jax.Array:
    return jnp.concatenate([INPUTS, predict(params)], axis=1).astype(jnp.float32)


def loss_fn(params: Any) -> jax.Array:
    return jnp.mean((predict(params) - TARGETS) ** 2)


def wasserstein(**settings: Any) -> optax.GradientTransformationExtraArgs:
    return wng.scale_by_wasserstein(5, wng.Damping(0.3, relative=True), **settings)


# With a damping of its own, and without arguments, as most people use it.
BOTH = pytest.mark.parametrize("make", [wasserstein, wng.scale_by_wasserstein])


def visible(params: Any) -> Any:
    """Behaviors as a wrapper sees them: hidden parameters are those of the start."""
    return behavior_fn(wng.fill_masked(params, PARAMS))


WRAPPED = {
    "alone": (lambda: wasserstein(), behavior_fn),
    "chain": (lambda: optax.chain(wasserstein(), optax.clip_by_global_norm(1.0)), behavior_fn),
    "refreshed": (lambda: wasserstein(refresh_every=3), behavior_fn),
    "masked": (lambda: optax.masked(wasserstein(), {"a": True, "b": False}), visible),
    "masked, refreshed": (
        lambda: optax.masked(wasserstein(refresh_every=2), {"a": True, "b": False}),
        visible,
    ),
    "partition": (
        lambda: optax.partition(
            {"natural": wasserstein(), "plain": optax.identity()},
            {"a": "natural", "b": "plain"},
        ),
        visible,
    ),
    "inject_hyperparams": (
        lambda: optax.inject_hyperparams(
            wng.scale_by_wasserstein, static_args=("num_basis", "refresh_every")
        )(num_basis=5, damping=0.1),
        behavior_fn,
    ),
    "default": (lambda: wng.scale_by_wasserstein(), behavior_fn),
    "default, refreshed": (lambda: wng.scale_by_wasserstein(refresh_every=3), behavior_fn),
    "default, masked": (
        lambda: optax.masked(wng.scale_by_wasserstein(), {"a": True, "b": False}),
        visible,
    ),
    "default, inject_hyperparams": (
        lambda: optax.inject_hyperparams(
            wng.scale_by_wasserstein, static_args=("num_basis", "refresh_every")
        )(),
        behavior_fn,
    ),
    "default, partition": (
        lambda: optax.partition(
            {"natural": wng.scale_by_wasserstein(), "plain": optax.identity()},
            {"a": "natural", "b": "plain"},
        ),
        visible,
    ),
    "apply_if_finite": (lambda: optax.apply_if_finite(wasserstein(), 3), behavior_fn),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_contract(name: str) -> None:
    make, behaviors = WRAPPED[name]
    tx = make()
    traced = []

    @jax.jit
    def step(params: Any, state: Any, key: jax.Array) -> tuple[Any, Any]:
        traced.append(name)
        grads = jax.grad(loss_fn)(params)
        updates, state = tx.update(
            grads, state, params, key=key, behavior_fn=behaviors, unrelated="ignored"
        )
        assert jax.tree.structure(updates) == jax.tree.structure(params)
        updates = jax.tree.map(lambda u: -0.05 * u, updates)
        return optax.apply_updates(params, updates), state

    params, state = PARAMS, tx.init(PARAMS)
    for i in range(4):
        before = state
        params, state = step(params, state, jax.random.fold_in(KEY, i))
        assert jax.tree.structure(before) == jax.tree.structure(state)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), before) == jax.tree.map(
            lambda x: (x.shape, x.dtype), state
        )
    assert len(traced) == 1  # nothing is compiled twice
    assert loss_fn(params) < loss_fn(PARAMS)


@BOTH
def test_scan_and_vmap(make) -> None:
    tx = optax.chain(make(refresh_every=2), optax.sgd(0.05))

    def train(params: Any, key: jax.Array) -> jax.Array:
        def body(carry: Any, key: jax.Array) -> tuple[Any, None]:
            params, state = carry
            grads = jax.grad(loss_fn)(params)
            updates, state = tx.update(grads, state, params, key=key, behavior_fn=behavior_fn)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(body, (params, tx.init(params)), jax.random.split(key, 5))
        return loss_fn(params)

    starts = jax.tree.map(lambda x: jnp.stack([x, 1.1 * x]), PARAMS)
    together = jax.jit(jax.vmap(train))(starts, jax.random.split(KEY))
    for i, key in enumerate(jax.random.split(KEY)):
        alone = train(jax.tree.map(lambda x, i=i: x[i], starts), key)
        np.testing.assert_allclose(together[i], alone, rtol=1e-4)


@BOTH
def test_multi_steps(make) -> None:
    tx = optax.MultiSteps(optax.chain(make(), optax.sgd(0.01)), every_k_schedule=2)
    traced = []

    @jax.jit
    def step(params: Any, state: Any, key: jax.Array) -> tuple[Any, Any]:
        traced.append(key)
        grads = jax.grad(loss_fn)(params)
        updates, state = tx.update(grads, state, params, key=key, behavior_fn=behavior_fn)
        return optax.apply_updates(params, updates), state

    params, state = PARAMS, tx.init(PARAMS)
    losses = [float(loss_fn(params))]
    for i in range(4):
        params, state = step(params, state, jax.random.fold_in(KEY, i))
        losses.append(float(loss_fn(params)))
    assert len(traced) == 1
    assert losses[0] == losses[1] > losses[2] == losses[3] > losses[4]  # a step at every second


def test_counts_are_static_in_inject_hyperparams() -> None:
    tx = optax.inject_hyperparams(wng.scale_by_wasserstein)(5, 0.1)
    with pytest.raises(ValueError, match="put 'num_basis' into static_args"):
        tx.init(PARAMS)


def test_an_injected_damping_takes_effect_at_every_step() -> None:
    tx = optax.inject_hyperparams(
        wng.scale_by_wasserstein, static_args=("num_basis", "refresh_every")
    )(num_basis=5, damping=0.1)
    state, grads = tx.init(PARAMS), jax.grad(loss_fn)(PARAMS)
    _, state = tx.update(grads, state, PARAMS, key=KEY, behavior_fn=behavior_fn)
    state.hyperparams["damping"] = jnp.asarray(10.0)
    late, state = tx.update(grads, state, PARAMS, key=KEY, behavior_fn=behavior_fn)
    fixed = wng.scale_by_wasserstein(5, 10.0)
    expected, _ = fixed.update(grads, fixed.init(PARAMS), PARAMS, key=KEY, behavior_fn=behavior_fn)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), late, expected)


@BOTH
@pytest.mark.parametrize("refresh_every", [1, 3])
def test_map_params_of_a_masked_transformation(make, refresh_every: int) -> None:
    tx = optax.masked(make(refresh_every=refresh_every), {"a": True, "b": False})
    state = tx.init(PARAMS)
    mapped = optax.tree.map_params(tx, lambda x: x + 1, state)
    assert jax.tree.structure(mapped) == jax.tree.structure(state)


@BOTH
@pytest.mark.parametrize("refresh_every", [1, 3])
def test_map_params_reaches_nothing_but_leaves_the_state_as_it_is(make, refresh_every: int) -> None:
    tx = optax.chain(make(refresh_every=refresh_every), optax.adam(0.1))
    state = tx.init(PARAMS)
    doubled = optax.tree.map_params(tx, lambda x: x + 1, state)
    assert jax.tree.structure(doubled) == jax.tree.structure(state)
    assert isinstance(doubled[0], ScaleByMetricState)
    jax.tree.map(np.testing.assert_array_equal, doubled[0], state[0])
    moments = optax.tree_utils.tree_get(doubled, "mu")
    jax.tree.map(lambda x: np.testing.assert_array_equal(x, np.ones_like(x)), moments)


@BOTH
def test_bfloat16_parameters(make) -> None:
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), PARAMS)
    tx = make(refresh_every=2)
    grads = jax.grad(loss_fn)(params)
    updates, _ = tx.update(grads, tx.init(params), params, key=KEY, behavior_fn=behavior_fn)
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(updates))
    exact, _ = tx.update(
        jax.grad(loss_fn)(PARAMS), tx.init(PARAMS), PARAMS, key=KEY, behavior_fn=behavior_fn
    )
    flat, other = (
        np.concatenate([np.ravel(np.asarray(x, np.float32)) for x in jax.tree.leaves(tree)])
        for tree in (updates, exact)
    )
    assert flat @ other > 0.95 * np.linalg.norm(flat) * np.linalg.norm(other)


def test_hidden_parameters_are_one_clear_sentence() -> None:
    tx = optax.masked(wasserstein(), {"a": True, "b": False})
    grads = jax.grad(loss_fn)(PARAMS)
    with pytest.raises(ValueError, match=r"hides some parameters .*wng\.fill_masked"):
        tx.update(grads, tx.init(PARAMS), PARAMS, key=KEY, behavior_fn=behavior_fn)


def test_an_error_of_the_behavior_itself_stays_as_it_is() -> None:
    tx = wasserstein()

    def wrong(params: Any) -> jax.Array:
        return params["missing"]

    with pytest.raises(KeyError, match="missing"):
        tx.update(PARAMS, tx.init(PARAMS), PARAMS, key=KEY, behavior_fn=wrong)


def test_all_parameters_hidden() -> None:
    tx = optax.masked(wasserstein(), {"a": False, "b": False})
    grads = jax.grad(loss_fn)(PARAMS)
    updates, _ = tx.update(grads, tx.init(PARAMS), PARAMS, key=KEY, behavior_fn=visible)
    jax.tree.map(np.testing.assert_array_equal, updates, grads)
