"""A conditional that runs its expensive branch only if some row of a vmap needs it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wng.estimator.branching import cond_any


def doubled(needed, x, key):
    y = x + 1  # both branches refer to what is around them

    def compute():
        return 2 * y, jax.random.fold_in(key, 1)

    return cond_any(needed, compute, lambda: (x, key))


@pytest.mark.parametrize("needed", [[True, False, True], [False] * 3, [True] * 3])
def test_rows_are_those_of_cond(needed):
    keys, x = jax.random.split(jax.random.key(0), 3), jnp.arange(3.0)
    found, new_keys = jax.jit(jax.vmap(doubled))(jnp.array(needed), x, keys)
    np.testing.assert_array_equal(found, np.where(needed, 2 * (x + 1), x))
    folded = jax.vmap(lambda k: jax.random.fold_in(k, 1))(keys)
    expected = np.where(np.array(needed)[:, None], *map(jax.random.key_data, (folded, keys)))
    np.testing.assert_array_equal(jax.random.key_data(new_keys), expected)


def test_nested_and_in_a_scan():
    def total(x, needed):
        return jax.lax.scan(lambda c, n: (cond_any(n, lambda: 2 * c, lambda: c), None), x, needed)[
            0
        ]

    needed = jnp.array([[[True, False], [True, True]], [[False, False], [False, True]]])
    found = jax.vmap(jax.vmap(total))(jnp.ones((2, 2)), needed)
    np.testing.assert_array_equal(found, [[2, 4], [1, 2]])
    same = jax.vmap(total, in_axes=(0, None))(jnp.arange(3.0), jnp.array([True, False]))
    np.testing.assert_array_equal(same, [0, 2, 4])


def test_the_expensive_branch_runs_only_if_a_row_needs_it():
    calls = []

    def one(needed, x):
        def compute():
            jax.debug.callback(lambda: calls.append(1))
            return x + 1

        return cond_any(needed, compute, lambda: x)

    rows = jax.jit(jax.vmap(one))
    rows(jnp.zeros(4, bool), jnp.zeros(4))
    jax.effects_barrier()
    assert not calls
    rows(jnp.array([False, True, False, False]), jnp.zeros(4))
    jax.effects_barrier()
    assert calls
