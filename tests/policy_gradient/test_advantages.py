import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wng.policy_gradient.advantages import discounted_returns, gae

GAMMA = 0.5
REWARDS = jnp.array([[1.0], [2.0], [3.0], [4.0]])
VALUES = jnp.array([[10.0], [20.0], [30.0], [40.0]])
NEXT = jnp.array([[20.0], [30.0], [40.0], [50.0]])
NEVER = jnp.zeros((4, 1), bool)
AFTER_SECOND = NEVER.at[1].set(True)


def advantages(terminated=NEVER, truncated=NEVER, next_values=NEXT, lam=0.5) -> list[float]:
    found = gae(REWARDS, VALUES, next_values, terminated, truncated, GAMMA, lam)
    return np.asarray(found)[:, 0].tolist()


# With γ = ½, δ = r + V(s')/2 − V(s) = (1, −3, −7, −11), and γλ = ¼.
def test_gae_by_hand() -> None:
    a3 = -11.0
    a2 = -7 + a3 / 4
    a1 = -3 + a2 / 4
    assert advantages() == pytest.approx([1 + a1 / 4, a1, a2, a3])


def test_termination_does_not_bootstrap_and_ends_the_sum() -> None:
    a1 = 2.0 - 20.0
    a2 = -7 - 11 / 4
    assert advantages(terminated=AFTER_SECOND) == pytest.approx([1 + a1 / 4, a1, a2, -11])


def test_truncation_bootstraps_and_ends_the_sum() -> None:
    # The true successor has value 100; the next row of values belongs to another episode.
    a1 = 2 + 0.5 * 100 - 20
    found = advantages(truncated=AFTER_SECOND, next_values=NEXT.at[1].set(100.0))
    assert found == pytest.approx([1 + a1 / 4, a1, -7 - 11 / 4, -11])


def test_both_at_once_is_a_termination() -> None:
    assert advantages(AFTER_SECOND, AFTER_SECOND) == advantages(AFTER_SECOND)


@pytest.mark.parametrize("ended", ["terminated", "truncated"])
def test_nothing_leaks_across_an_episodes_end(ended: str) -> None:
    def first_two(rewards: jax.Array, values: jax.Array) -> jax.Array:
        flags = {"terminated": NEVER, "truncated": NEVER, ended: AFTER_SECOND}
        return gae(rewards, values, NEXT, gamma=GAMMA, gae_lambda=0.9, **flags)[:2].sum()

    by_reward, by_value = jax.jit(jax.grad(first_two, argnums=(0, 1)))(REWARDS, VALUES)
    np.testing.assert_array_equal(by_reward[2:], 0)
    np.testing.assert_array_equal(by_value[2:], 0)
    assert (by_reward[:2] != 0).all()


def test_lambda_zero_is_the_temporal_difference() -> None:
    assert advantages(lam=0.0) == pytest.approx([1, -3, -7, -11])


def test_lambda_one_is_the_discounted_return_minus_the_value() -> None:
    tail = 50.0
    returns = []
    for reward in (4.0, 3.0, 2.0, 1.0):
        tail = reward + GAMMA * tail
        returns.insert(0, tail)
    expected = np.array(returns) - np.array([10.0, 20.0, 30.0, 40.0])
    assert advantages(lam=1.0) == pytest.approx(expected)


def test_environments_are_independent() -> None:
    rng = np.random.default_rng(0)
    rewards, values, following = rng.normal(size=(3, 6, 3))
    terminated, truncated = rng.random(size=(2, 6, 3)) < 0.3
    columns = (rewards, values, following, terminated, truncated)
    together = gae(*map(jnp.asarray, columns), 0.9, 0.8)
    for i in range(3):
        after, expected = 0.0, np.zeros(6)
        for t in reversed(range(6)):
            bootstrap = 0.0 if terminated[t, i] else following[t, i]
            ended = terminated[t, i] or truncated[t, i]
            after = rewards[t, i] + 0.9 * bootstrap - values[t, i] + (not ended) * 0.72 * after
            expected[t] = after
        np.testing.assert_allclose(together[:, i], expected, rtol=1e-4, atol=1e-5)


def test_discounted_returns_by_hand() -> None:
    rewards = jnp.array([[1.0, 0.0], [2.0, 1.0], [4.0, 0.0]])
    done = jnp.array([[False, False], [True, False], [False, True]])
    carried, returns = discounted_returns(jnp.array([8.0, 0.0]), rewards, done, 0.5)
    # First: 8/2 + 1, 5/2 + 2, then an episode ended: 4. Second: 0, 1, 1/2, and it ends.
    np.testing.assert_allclose(returns, [[5.0, 0.0], [4.5, 1.0], [4.0, 0.5]])
    np.testing.assert_allclose(carried, [4.0, 0.0])
