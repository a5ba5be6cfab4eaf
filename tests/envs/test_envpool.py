"""EnvPool behind the same interface, checked against known tasks and Gymnasium."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from wng.envs import VectorEnv, make
from wng.envs.envpool import EnvPoolEpisodes, EnvPoolRunner, describe_envpool

pytest.importorskip("envpool")


def test_pendulum_is_truncated_at_200_steps():
    env = make("Pendulum-v1", 3, 0)
    assert env.spec.backend == "envpool"
    assert not env.spec.replayable
    env.reset()
    total = np.zeros(3)
    for t in range(1, 401):
        step = env.step(np.full((3, 1), 9.0))
        total += step.rewards
        ended = t % 200 == 0
        assert not step.terminated.any()
        assert (step.truncated == ended).all()
        if ended:
            assert (step.episode_lengths == 200).all()
            np.testing.assert_array_equal(step.episode_returns, total)
            assert (step.observations != step.final_observations).all(axis=1).all()
            assert (abs(step.observations[:, 2]) <= 1).all()  # initial speeds
            total = np.zeros(3)
        else:
            np.testing.assert_array_equal(step.observations, step.final_observations)
    env.close()
    env.close()


def test_cartpole_falls_when_always_pushed():
    env = make("CartPole-v1", 4, 1, "envpool")
    env.reset()
    steps, ends = np.zeros(4), 0
    for _ in range(60):
        steps += 1
        step = env.step(np.ones(4, int))
        out = (abs(step.final_observations[:, 2]) > 0.2095) | (
            abs(step.final_observations[:, 0]) > 2.4
        )
        np.testing.assert_array_equal(step.terminated, out)
        assert not step.truncated.any()
        np.testing.assert_array_equal(step.episode_lengths, np.where(out, steps, 0))
        np.testing.assert_array_equal(step.episode_returns, np.where(out, steps, np.nan))
        assert (abs(step.observations[out]) <= 0.05).all()  # already the next episode's first
        steps[out] = 0
        ends += int(out.sum())
    assert ends > 15
    env.close()


def test_termination_at_the_time_limit_is_termination():
    spec = describe_envpool("CartPole-v1")
    env = VectorEnv(spec, 1, EnvPoolRunner(spec, None, 1, 0))
    env.reset()
    length = 1
    while not env.step(np.array([1])).terminated[0]:
        length += 1
    env.close()
    for limit, terminated in ((length, True), (length - 1, False)):
        limited = replace(spec, max_episode_steps=limit)
        env = VectorEnv(limited, 1, EnvPoolRunner(limited, None, 1, 0))
        env.reset()
        steps = [env.step(np.array([1])) for _ in range(limit)]
        assert not any(s.terminated[0] or s.truncated[0] for s in steps[:-1])
        assert steps[-1].terminated[0] == terminated
        assert steps[-1].truncated[0] != terminated
        assert steps[-1].episode_lengths[0] == limit
        env.close()


def test_double_pendulum_agrees_with_gymnasium():
    env = make("InvertedDoublePendulum-v5", 1, 0, "envpool")
    peer = gymnasium.make("InvertedDoublePendulum-v5", disable_env_checker=True)
    rng = np.random.default_rng(0)

    def place(observation: np.ndarray) -> None:
        peer.reset()
        o = observation.astype(np.float64)
        angles = np.arctan2(o[1:3], o[3:5])
        peer.unwrapped.set_state(np.array([o[0], *angles]), o[5:8])

    place(env.reset()[0])
    ends = 0
    for _ in range(60):
        action = rng.uniform(-1, 1, (1, 1)).astype(np.float32)
        step = env.step(action)
        observation, reward, terminated, truncated, _ = peer.step(action[0])
        np.testing.assert_allclose(step.final_observations[0], observation, atol=1e-3)
        np.testing.assert_allclose(step.rewards[0], reward, atol=1e-3)
        assert (step.terminated[0], step.truncated[0]) == (terminated, truncated)
        if terminated:
            ends += 1
            place(step.observations[0])
    assert ends > 3
    env.close()
    peer.close()


def test_restore_starts_fresh_episodes():
    env = make("Hopper-v5", 2, 0, "envpool")
    first = env.reset()
    env.step(np.zeros((2, 3)))
    state = env.state()
    assert state.actions.shape == (2, 0, 3)
    assert state.steps.tolist() == [1, 1]
    other = make("Hopper-v5", 2, 0, "envpool")
    np.testing.assert_array_equal(other.reset(), first)
    a, b = env.restore(state), other.restore(state)
    np.testing.assert_array_equal(a, b)
    assert (a != first).any()
    assert other.state().episodes.tolist() == [1, 1]
    assert other.state().steps.tolist() == [0, 0]
    env.close()
    other.close()
    with pytest.raises(RuntimeError, match="closed"):
        env.reset()


def test_adjacent_seeds_share_nothing():
    starts = []
    for seed in (0, 1):
        env = make("Hopper-v5", 4, seed, "envpool")
        starts.append(env.reset())
        env.close()
    assert len(np.unique(np.concatenate(starts), axis=0)) == 8


def test_unknown_to_envpool():
    with pytest.raises(ValueError, match=r"EnvPool has no environment 'Hoper-v5'.*'Hopper-v5'"):
        make("Hoper-v5", 1, 0, "envpool")
    env = make("wng/ProbeConstant-v0", 1, 0)
    assert env.spec.backend == "gymnasium"
    env.close()


def episodes(seeds: list[int], steps: int = 60):
    """Cart-poles that are pushed to one side: observations [t, n, 4], rewards and what is over."""
    pool = EnvPoolEpisodes(describe_envpool("CartPole-v1"), len(seeds))
    observations = [pool.reset(seeds)]
    rewards, over = [], []
    for _ in range(steps):
        found = pool.step(np.ones(len(seeds), int))
        for column, values in zip((observations, rewards, over), found, strict=True):
            column.append(values)
    pool.close()
    return np.array(observations), np.array(rewards), np.array(over)


def test_an_episode_follows_from_its_seed_alone():
    observations, rewards, _ = episodes([2**32 - 1, 12345, 99999])
    again, _, _ = episodes([12345, 2**32 - 1])
    np.testing.assert_array_equal(again, observations[:, [1, 0]])
    assert len({tuple(x) for x in observations[0]}) == 3
    assert (rewards.sum(axis=0) < 15).all()


def test_an_episode_ends_once_and_then_waits():
    observations, rewards, over = episodes([4, 4000])
    env = gymnasium.make("CartPole-v1").unwrapped
    for i in range(2):
        env.reset()
        env.state = tuple(observations[0, i].astype(float))
        length, terminated = 0, False
        while not terminated:
            found, _, terminated, _, _ = env.step(1)
            np.testing.assert_allclose(observations[length + 1, i], found, atol=1e-4)
            assert over[length, i] == terminated
            length += 1
        np.testing.assert_array_equal(rewards[:, i], np.arange(60) < length)
        assert over[length:, i].all()
        assert (observations[length + 1 :, i] == observations[length, i]).all()


def test_an_episode_ends_at_the_time_limit():
    spec = replace(describe_envpool("Pendulum-v1"), max_episode_steps=3)
    pool = EnvPoolEpisodes(spec, 2)
    pool.reset([0, 1])
    over = [pool.step(np.zeros((2, 1)))[2].tolist() for _ in range(4)]
    assert over == [[False, False]] * 2 + [[True, True]] * 2
    pool.reset([0, 1])
    assert not pool.step(np.zeros((2, 1)))[2].any()
    pool.close()
