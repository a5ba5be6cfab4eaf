import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from wng.estimator import shuffle
from wng.estimator.shuffle import shuffled


@pytest.mark.parametrize("number", [1, 2, 3, 64, 1000, 2**16, 2**16 + 1])
def test_every_number_once(number: int) -> None:
    orders = jax.vmap(lambda key: shuffled(key, number))(jax.random.split(jax.random.key(0)))
    assert orders.dtype == jnp.int32
    np.testing.assert_array_equal(np.sort(orders, axis=1), [np.arange(number)] * 2)
    if number > 3:
        assert (orders[0] != orders[1]).mean() > 0.5


def test_all_orders_are_equally_likely() -> None:
    keys = jax.random.split(jax.random.key(1), 24_000)
    orders = np.asarray(jax.jit(jax.vmap(lambda key: shuffled(key, 4)))(keys))
    _, counts = np.unique(orders @ [64, 16, 4, 1], return_counts=True)
    assert len(counts) == 24
    assert chisquare(counts).pvalue > 1e-3


def test_large_orders_do_not_favor_neighbors(monkeypatch) -> None:
    """Also with as few random bits as there are."""
    order = np.asarray(shuffled(jax.random.key(2), 2**16)).astype(float)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 4 / 2**8
    assert abs(np.corrcoef(order, np.arange(2**16))[0, 1]) < 4 / 2**8
    rises = (np.diff(order) > 0).mean()
    assert abs(rises - 0.5) < 0.1
    monkeypatch.setattr(shuffle, "MOST_BITS", 2)
    expected = jax.random.permutation(jax.random.key(3), 9)
    np.testing.assert_array_equal(shuffled(jax.random.key(3), 9), expected)
