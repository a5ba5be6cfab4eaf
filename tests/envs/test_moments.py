import jax.numpy as jnp
import numpy as np

from wng.envs.moments import Moments


def test_moments_are_those_of_all_batches_together() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(m, s, size=(n, 2)) for m, s, n in [(3, 2, 50), (-5, 0.1, 7), (0, 9, 200)]]
    moments = Moments.empty(2)
    for i, batch in enumerate(batches):
        moments = moments.update(jnp.asarray(batch))
        seen = np.concatenate(batches[: i + 1])
        np.testing.assert_allclose(moments.mean, seen.mean(axis=0), rtol=1e-4)
        np.testing.assert_allclose(moments.variance, seen.var(axis=0), rtol=1e-4)
        assert moments.seen == len(seen)
    x = jnp.asarray(batches[0])
    standardized = (batches[0] - seen.mean(axis=0)) / seen.std(axis=0)
    np.testing.assert_allclose(moments.normalize(x), standardized, rtol=1e-4, atol=1e-5)


def test_normalization_clips_at_ten_and_changes_nothing_before_any_data() -> None:
    moments = Moments.empty(1)
    x = jnp.array([[-50.0], [-1.0], [0.0], [2.0], [11.0]])
    np.testing.assert_allclose(moments.normalize(x), [[-10], [-1], [0], [2], [10]], rtol=1e-6)
    constant = moments.update(jnp.full((4, 1), 7.0))
    np.testing.assert_array_equal(constant.normalize(jnp.array([[7.0]])), 0)
