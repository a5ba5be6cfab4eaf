import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wng.estimator.float64 import in_float64


@in_float64
def difference(x: jax.Array) -> jax.Array:
    """(1 + x²) − 1: zero in float32 for x = 1e-4, and 1e-8 in float64."""
    wide = x.astype(jnp.float64)
    return ((1 + wide @ wide) - 1).astype(x.dtype)


def scanned(x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda carry, _: (carry, difference(carry)), x, None, length=2)[1][1]


def conditional(x: jax.Array) -> jax.Array:
    return jax.lax.cond(x[0] > 0, lambda: difference(x), lambda: jnp.zeros(()))


@pytest.mark.parametrize("fn", [difference, scanned, conditional], ids=lambda f: f.__name__)
def test_precision_survives_every_transformation(fn) -> None:
    x = jnp.array([1e-4])
    assert ((1 + x @ x) - 1) == 0  # in float32 the digits are gone
    jit, vmap = jax.jit, jax.vmap
    for transformed in (fn, jit(fn)):
        assert transformed(x) == pytest.approx(1e-8, rel=1e-6)
    for transformed in (vmap(fn), vmap(jit(fn)), jit(vmap(jit(fn)))):
        result = transformed(jnp.stack([x, 2 * x]))
        assert result.dtype == jnp.float32
        np.testing.assert_allclose(result, [1e-8, 4e-8], rtol=1e-6)
    nested = vmap(jit(vmap(fn)))(jnp.stack([x, 2 * x])[None])
    np.testing.assert_allclose(nested, [[1e-8, 4e-8]], rtol=1e-6)
