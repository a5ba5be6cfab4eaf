"""Every backend resets in the same step, reports ends and returns, and can be restored."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from wng.envs import PROBES, EnvState, Transition, VectorEnv, make, resolve
from wng.envs.worker import episode_seed

SEEDED = ["gymnasium", "workers"]


@pytest.fixture
def build() -> Iterator[Any]:
    made: list[VectorEnv] = []

    def build(env_id: str, num_envs: int, seed: int, backend: Any, **more: Any) -> VectorEnv:
        if backend == "envpool":
            pytest.importorskip("envpool")
        made.append(make(env_id, num_envs, seed, backend, **more))
        assert made[-1].spec.backend == backend
        return made[-1]

    yield build
    for env in made:
        env.close()
        env.close()


def draw(env: VectorEnv, rng: np.random.Generator) -> np.ndarray:
    if env.spec.discrete:
        return rng.integers(0, env.spec.action_size, env.num_envs)
    return rng.uniform(-2, 2, (env.num_envs, env.spec.action_size)).astype(np.float32)


def assert_same(a: tuple, b: tuple) -> None:
    for name, x, y in zip(a._fields, a, b, strict=True):
        assert x.dtype == y.dtype, name
        np.testing.assert_array_equal(x, y, err_msg=name)


def check_types(env: VectorEnv, step: Transition) -> None:
    n, d = env.num_envs, env.spec.observation_size
    types = ["float32", "float64", "bool", "bool", "float32", "float64", "int64"]
    shapes = [(n, d), (n,), (n,), (n,), (n, d), (n,), (n,)]
    assert [str(x.dtype) for x in step] == types
    assert [x.shape for x in step] == shapes


@pytest.mark.parametrize("backend", SEEDED)
def test_ends_of_episodes(build, backend):
    env = build("wng/ProbeCounter-v0", 3, 7, backend)
    observations = env.reset()
    assert (observations[:, 0] == 0).all()
    seen = set()
    for _ in range(60):
        before = observations
        step = env.step(np.zeros((3, 1)))
        check_types(env, step)
        steps, length = step.final_observations.T
        np.testing.assert_array_equal(steps, before[:, 0] + 1)
        np.testing.assert_array_equal(length, before[:, 1])
        ended = steps == length
        np.testing.assert_array_equal(step.terminated, ended & (length % 2 == 1))
        np.testing.assert_array_equal(step.truncated, ended & (length % 2 == 0))
        np.testing.assert_array_equal(step.observations[:, 0], np.where(ended, 0, steps))
        np.testing.assert_array_equal(step.episode_returns, np.where(ended, length, np.nan))
        np.testing.assert_array_equal(step.episode_lengths, np.where(ended, length, 0))
        seen |= set(length[ended])
        observations = step.observations
    assert seen == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("backend", SEEDED)
def test_once_an_episode_has_ended_a_copy_waits_for_the_next_reset(build, backend):
    again, once = (build("CartPole-v1", 5, 7, backend, once=once) for once in (False, True))
    rng = np.random.default_rng(0)
    for episode in (0, 3):
        np.testing.assert_array_equal(once.reset(episode), again.reset(episode))
        over, last = np.zeros(5, bool), np.zeros((5, 4))
        for _ in range(60):
            actions = draw(again, rng)
            expected, found = again.step(actions), once.step(actions)
            for name in ("rewards", "terminated", "final_observations"):
                one, other = getattr(found, name), getattr(expected, name)
                np.testing.assert_array_equal(one[~over], other[~over])
            assert not found.rewards[over].any()
            assert not found.terminated[over].any()
            last[~over] = expected.final_observations[~over]
            over |= expected.terminated
            np.testing.assert_array_equal(found.final_observations, last)
            np.testing.assert_array_equal(found.observations, last)
        assert over.sum() >= 3
    # What waits is not part of a state: the next episodes begin.
    assert not once.spec.replayable
    once.restore(once.state())
    assert once.step(draw(once, rng)).rewards.all()


@pytest.mark.parametrize("backend", SEEDED)
def test_termination_wins_over_truncation(build, backend):
    env = build("custom_envs:EndsBothWays-v0", 2, 0, backend)
    env.reset()
    flags = [env.step(np.zeros((2, 1))) for _ in range(3)]
    assert [f.terminated.tolist() for f in flags] == [[False] * 2, [False] * 2, [True] * 2]
    assert not any(f.truncated.any() for f in flags)
    assert flags[-1].episode_returns.tolist() == [6, 6]
    assert flags[-1].observations.tolist() == [[0], [0]]


@pytest.mark.parametrize(("env_id", "steps"), [("CartPole-v1", 60), ("Hopper-v5", 60)])
def test_workers_equal_gymnasium(build, env_id, steps):
    a, b = (build(env_id, 5, 3, backend) for backend in SEEDED)
    np.testing.assert_array_equal(a.reset(), b.reset())
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(steps):
        actions = draw(a, rng)
        x, y = a.step(actions), b.step(actions)
        assert_same(x, y)
        ends += int((x.terminated | x.truncated).sum())
    assert ends > 5
    assert_same(a.state(), b.state())


def test_episode_seeds_depend_on_run_environment_and_episode(build):
    seeds = {episode_seed(s, i, e) for s in range(5) for i in range(5) for e in range(5)}
    assert len(seeds) == 125
    small, large = build("Pendulum-v1", 2, 0, "gymnasium"), build("Pendulum-v1", 4, 0, "gymnasium")
    np.testing.assert_array_equal(small.reset(), large.reset()[:2])
    first = small.state().observations
    second = small.reset()
    assert (first != second).any()
    assert small.state().episodes.tolist() == [1, 1]


@pytest.mark.parametrize("backend", SEEDED)
@pytest.mark.parametrize(("env_id", "steps"), [("CartPole-v1", 100), ("Hopper-v5", 75)])
def test_restore_continues_exactly(build, env_id, steps, backend):
    env = build(env_id, 3, 11, backend)
    env.reset()
    rng = np.random.default_rng(1)
    for _ in range(steps):
        env.step(draw(env, rng))
    state = env.state()
    assert state.episodes.min() > 0
    assert len(set(state.steps)) > 1
    actions = [draw(env, rng) for _ in range(40)]
    expected = [env.step(a) for a in actions]
    other = build(env_id, 3, 11, "workers" if backend == "gymnasium" else "gymnasium")
    for resumed in (env, other):
        np.testing.assert_array_equal(resumed.restore(state), state.observations)
        assert_same(resumed.state(), state)
        for a, step in zip(actions, expected, strict=True):
            assert_same(resumed.step(a), step)


def test_restore_of_an_untouched_and_of_a_long_episode(build):
    env = build("Pendulum-v1", 2, 0, "gymnasium")
    env.reset()
    np.testing.assert_array_equal(env.restore(env.state()), env.state().observations)
    for _ in range(150):  # beyond the ledger's first allocation
        env.step(np.ones((2, 1)))
    state = env.state()
    assert state.actions.shape == (2, 150, 1)
    fresh = build("Pendulum-v1", 2, 0, "gymnasium")
    fresh.restore(state)
    steps = [fresh.step(np.ones((2, 1))) for _ in range(50)]
    assert steps[-1].truncated.all()
    assert (steps[-1].episode_lengths == 200).all()


def test_restore_after_pybullet_episodes(build):
    pytest.importorskip("pybullet_envs_gymnasium")
    env = build("HopperBulletEnv-v0", 2, 0, "gymnasium")
    env.reset()
    rng = np.random.default_rng(0)
    states = []
    for _ in range(45):
        env.step(draw(env, rng))
        states.append(env.state())
    assert states[-1].episodes.min() > 0
    other = build("HopperBulletEnv-v0", 2, 0, "workers")
    for state in (states[5], states[-1]):  # in first episodes and in later ones
        other.restore(state)
    actions = draw(env, rng)
    assert_same(other.step(actions), env.step(actions))


@pytest.mark.parametrize("backend", SEEDED)
def test_a_simulator_that_is_not_deterministic_is_noticed(build, backend):
    env = build("custom_envs:Unrepeatable-v0", 2, 0, backend)
    env.reset()
    env.step(np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"cannot replay .*Unrepeatable-v0.*not deterministic"):
        env.restore(env.state())
    env.reset()
    assert env.state().episodes.tolist() == [1, 1]


def test_no_replay_where_gymnasium_says_not_deterministic(build):
    env = build("custom_envs:Admitted-v0", 2, 0, "gymnasium")
    assert not env.spec.replayable
    env.reset()
    env.step(np.zeros((2, 1)))
    state = env.state()
    assert state.actions.size == 0
    assert state.steps.tolist() == [1, 1]
    env.restore(state)
    assert env.state().episodes.tolist() == [1, 1]
    assert env.state().steps.tolist() == [0, 0]


@pytest.mark.parametrize("backend", SEEDED)
def test_actions_are_clipped_cast_and_shaped(build, backend):
    env = build("custom_envs:Shaped-v0", 2, 0, backend)
    assert env.reset().shape == (2, 4)
    step = env.step(np.array([[9, 9], [0.1, -9]], np.float32))
    np.testing.assert_array_equal(
        step.observations, np.float32([[0.1, 0.1, 5, 5], [0.1, 0.1, -5, -5]])
    )
    env = build("custom_envs:StartsAtFive-v0", 2, 0, backend)
    env.reset()
    assert env.step(np.array([0, 2])).rewards.tolist() == [5, 7]


def test_transitions_and_states_are_not_overwritten(build):
    env = build("CartPole-v1", 2, 0, "gymnasium")
    first = env.reset()
    kept = first.copy()
    step = env.step(np.array([0, 1]))
    copies = [x.copy() for x in step]
    state = env.state()
    saved = EnvState(*(x.copy() for x in state))
    env.step(np.array([1, 1]))
    np.testing.assert_array_equal(first, kept)
    for x, y in zip(step, copies, strict=True):
        np.testing.assert_array_equal(x, y)
    assert_same(state, saved)


@pytest.mark.parametrize("backend", SEEDED)
def test_numbers_that_are_not_finite_pass_through(build, backend):
    env = build("custom_envs:NotFinite-v0", 2, 0, backend)
    env.reset()
    step = env.step(np.zeros((2, 1)))
    np.testing.assert_array_equal(step.observations, np.float32([[np.nan, np.inf]] * 2))
    assert step.rewards.tolist() == [np.inf, np.inf]
    env.restore(env.state())


def test_probe_values(build):
    assert all(resolve(env_id).spec.replayable for env_id in PROBES)

    def rewards(name: str, action: Any) -> tuple[np.ndarray, Transition]:
        env = build(f"wng/Probe{name}-v0", 8, 0, "gymnasium")
        observations = env.reset()
        return observations[:, 0], env.step(action(observations))

    s, step = rewards("Observation", lambda s: s)
    assert set(s) == {-1, 1}
    np.testing.assert_array_equal(step.rewards, s)
    assert (rewards("Constant", lambda s: s)[1].rewards == 1).all()
    assert (rewards("Action", lambda s: s + 0.5)[1].rewards == 0).all()
    assert (rewards("Contextual", lambda s: s / 2)[1].rewards == 0).all()
    assert (rewards("Contextual", lambda s: 0 * s)[1].rewards == -0.25).all()
    ones = np.ones(8, int)
    assert (rewards("DiscreteAction", lambda s: ones)[1].rewards == 1).all()
    step = rewards("DiscreteContextual", lambda s: (s[:, 0] > 0).astype(int))[1]
    assert (step.rewards == 1).all()
    assert step.terminated.all()

    env = build("wng/ProbeDiscount-v0", 1, 0, "gymnasium")
    env.reset()
    steps = [env.step(np.zeros((1, 1))) for _ in range(2)]
    assert [s.rewards.item() for s in steps] == [0, 1]
    assert [s.terminated.item() for s in steps] == [False, True]
    assert steps[0].observations.item() == 1

    env = build("wng/ProbeTruncation-v0", 1, 0, "gymnasium")
    env.reset()
    steps = [env.step(np.zeros((1, 1))) for _ in range(5)]
    assert [s.truncated.item() for s in steps] == [False] * 4 + [True]
    assert not any(s.terminated.item() for s in steps)
    assert steps[-1].episode_returns.item() == 5
