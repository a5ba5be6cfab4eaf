import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_data import (
    ACTION_SIZE,
    OBSERVATION_SIZE,
    flat,
    make_learner,
    one_update,
    random_rollout,
    small_learner,
    small_method,
)

from wng.behavior import find_embedding
from wng.policy_gradient.config import Config
from wng.policy_gradient.learner import Learner

SLOW_TRPO, SLOW_BGPG = (pytest.param(m, marks=pytest.mark.slow) for m in ("trpo", "bgpg"))


@pytest.mark.parametrize("method", ["pg", SLOW_TRPO, "wnpg", "wtrpo"])
def test_a_nan_reward_changes_no_parameter_and_is_counted(method: str) -> None:
    learner = small_method(method)
    state = learner.init(jax.random.key(0))
    rollout = random_rollout(learner, state)
    bad = rollout._replace(rewards=rollout.rewards.at[3, 0].set(jnp.nan))
    after, metrics = learner.update(state, bad, jax.random.key(1))
    assert flat(after.networks).tobytes() == flat(state.networks).tobytes()
    # Reward normalization spreads the NaN: every one of 4 × 2 policy steps, or the one natural
    # step, and the 4 × 2 value steps.
    expected = (1 if learner.config.step == "trust_region" else 8) + 8
    assert after.skipped == metrics["skipped"] == expected


def test_learning_goes_on_after_a_nan_reward() -> None:
    learner = small_method("pg")
    state = learner.init(jax.random.key(0))
    rollout = random_rollout(learner, state)
    bad = rollout._replace(rewards=rollout.rewards.at[3, 0].set(jnp.nan))
    state, _ = learner.update(state, bad, jax.random.key(1))
    after, _ = learner.update(state, rollout, jax.random.key(2))
    assert after.skipped == state.skipped
    assert (flat(after.networks.policy) != flat(state.networks.policy)).any()


@pytest.mark.parametrize("method", ["pg", SLOW_TRPO, "wnpg", SLOW_BGPG])
def test_update_compiles_once(method: str) -> None:
    learner = small_method(method)
    state = learner.init(jax.random.key(0))
    for i in range(3):
        rollout = random_rollout(learner, state, seed=i)
        state, _ = learner.update(state, rollout, jax.random.key(i))
    assert state.iteration == 3
    assert learner.update._cache_size() == 1


def test_other_numbers_are_arguments_of_the_same_update() -> None:
    first, second = (small_method("pg", learning_rate=rate) for rate in (1e-3, 2e-3))
    assert first.update is second.update
    for learner in (first, second):
        state = learner.init(jax.random.key(0))
        learner.update(state, random_rollout(learner, state), jax.random.key(1))
    assert first.update._cache_size() == 1


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("deterministic", [False, True])
def test_acting_on_the_host_is_acting_in_the_compiled_program(
    discrete: bool, deterministic: bool
) -> None:
    learner = small_learner(discrete)
    state = learner.init(jax.random.key(0))
    state, _ = learner.update(state, random_rollout(learner, state), jax.random.key(1))
    program, rng = learner.program, np.random.default_rng(0)
    observations = (5 * rng.normal(size=(32, OBSERVATION_SIZE))).astype(np.float32)
    noise = rng.gumbel(size=(32, ACTION_SIZE)).astype(np.float32)
    host = learner.actor(state, deterministic)(observations, noise)
    assert isinstance(host, np.ndarray)
    compiled = jax.jit(program.actions, static_argnums=4)(
        state.networks.policy, state.observation_moments, observations, noise, deterministic
    )
    np.testing.assert_allclose(host, compiled, rtol=1e-4, atol=1e-5)
    assert discrete or host.dtype == np.float32


def test_many_states_are_acted_in_by_the_compiled_program(monkeypatch) -> None:
    learner = small_learner()
    state = learner.init(jax.random.key(0))
    observations = np.random.default_rng(0).normal(size=(8, OBSERVATION_SIZE)).astype(np.float32)
    noise = np.zeros((8, ACTION_SIZE), np.float32)
    few = learner.actor(state)(observations, noise)
    monkeypatch.setattr("wng.policy_gradient.learner.MOST_ON_HOST", 0)
    np.testing.assert_allclose(learner.actor(state)(observations, noise), few, rtol=1e-5)
    assert learner.program._act._cache_size() == 1


def test_a_policy_accepts_constant_observations_inside_a_gradient() -> None:
    learner = small_learner()
    policy = learner.init(jax.random.key(0)).networks.policy
    seen = np.ones((4, OBSERVATION_SIZE), np.float32)
    gradient = jax.grad(lambda p: p(seen).mean.sum())(policy)
    assert np.isfinite(flat(gradient)).all()


def test_the_same_key_gives_the_same_bits_and_another_does_not() -> None:
    learner = small_method("wnpg")
    state = learner.init(jax.random.key(0))
    rollout = random_rollout(learner, state)
    first, again, other = (
        flat(learner.update(state, rollout, jax.random.key(k))[0].networks) for k in (1, 1, 2)
    )
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_metrics_are_of_the_new_policy() -> None:
    learner = small_method("trpo")
    before, after, metrics = one_update(learner)
    rollout = random_rollout(learner, before)
    states = rollout.observations.reshape(-1, 3)  # no moments yet: normalization is the identity
    old, new = before.networks.policy(states), after.networks.policy(states)
    assert metrics["kl"] == pytest.approx(float(old.kl(new).mean()), rel=1e-3)
    w2 = float(old.wasserstein_squared(new).mean())
    assert metrics["wasserstein_squared"] == pytest.approx(w2, rel=1e-3)
    assert metrics["entropy"] == pytest.approx(float(new.entropy().mean()), rel=1e-5)
    np.testing.assert_allclose(
        after.observation_moments.mean, np.asarray(states).mean(axis=0), atol=1e-6
    )
    assert after.observation_moments.seen == 32


def test_value_function_learns_the_targets() -> None:
    """Before the update its error is the advantage."""
    learner = small_method("pg")
    before, _, metrics = one_update(learner)
    _, batch, *_ = learner.batch(before, random_rollout(learner, before))
    assert metrics["value_error"] < 0.99 * jnp.mean(batch.advantages**2)


def test_rewards_are_divided_by_the_spread_of_discounted_returns() -> None:
    learner = small_method("pg")
    state = learner.init(jax.random.key(0))
    rollout = random_rollout(learner, state)
    done = np.asarray(rollout.terminated | rollout.truncated)
    running, returns = np.zeros(2), []
    for reward, ended in zip(np.asarray(rollout.rewards), done, strict=True):
        running = 0.99 * running + reward
        returns.append(running)
        running = np.where(ended, 0, running)
    new, _, windows, _ = learner.batch(state, rollout)
    rewards = windows.rewards.reshape(2, 16).T  # windows of one step, one environment first
    expected = np.asarray(rollout.rewards) / np.std(returns)
    np.testing.assert_allclose(rewards, np.clip(expected, -10, 10), rtol=1e-4)
    np.testing.assert_allclose(new.discounted, running, rtol=1e-4, atol=1e-6)


def test_a_shared_metric_moves_policy_and_value_together() -> None:
    learner = small_learner(geometry="wasserstein", embedding="actions-value")
    assert learner.problem.behaviors.joint
    before, after, metrics = one_update(learner)
    for new, old in [
        (after.networks.policy, before.networks.policy),
        (after.networks.value, before.networks.value),
    ]:
        assert (flat(new) != flat(old)).any()
        assert np.isfinite(flat(new)).all()
    assert metrics["skipped"] == 0


def test_impossible_settings_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="use --geometry wasserstein"):
        make_learner(Config(geometry="wasserstein-exact"), discrete=True)
    with pytest.raises(ValueError, match="lower horizon or num_envs"):
        Learner(
            Config(embedding="final-state", horizon=300, num_envs=8),
            find_embedding("final-state"),
            observation_size=3,
            action_size=2,
            discrete=False,
        )
