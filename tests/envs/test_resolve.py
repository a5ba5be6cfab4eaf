"""An environment is resolved once: one copy is made, and everything else follows from it."""

import pickle
import sys

import gymnasium
import numpy as np
import pytest

from wng.envs import make, resolve
from wng.envs.episodes import episode_returns, first_returns
from wng.envs.walls.point import PointTask


@pytest.fixture
def made(monkeypatch):
    """Environments made by `resolve`, and whether each is closed."""
    made, make_one = [], gymnasium.make

    def make_and_note(env_id, **kwargs):
        env = make_one(env_id, **kwargs)
        if isinstance(env_id, str):  # not a copy, which is made from a spec
            close = env.close
            made.append([env_id, False])
            env.close = lambda: (made[-1].__setitem__(1, True), close())
        return env

    monkeypatch.setattr(gymnasium, "make", make_and_note)
    return made


def test_what_is_known_about_wall_tasks():
    point, quadruped = resolve("wng/PointWall-v0", "gymnasium"), resolve("wng/QuadrupedWall-v0")
    assert point.jax_env == PointTask()
    assert point.map == PointTask().map
    assert point.mujoco_task is None
    assert point.render_modes == ("rgb_array",)
    assert point.gym_spec.id == point.spec.id == "wng/PointWall-v0"
    assert point.step_seconds is None
    assert quadruped.jax_env is None
    assert quadruped.mujoco_task.action_size == 8
    assert quadruped.map.goal == (15, 0)


def test_one_environment_per_run(made):
    resolved = resolve("wng/ProbeCounter-v0")
    for backend in ("auto", "gymnasium", "workers"):
        env = make(resolved, 2, 0, backend)
        env.reset()
        env.close()
    zeros = lambda seed: lambda observations: np.zeros((len(observations), 1))  # noqa: E731
    returns = episode_returns(resolved, zeros, 12, 5)
    assert made == [["wng/ProbeCounter-v0", True]]
    np.testing.assert_array_equal(returns, episode_returns("wng/ProbeCounter-v0", zeros, 12, 5))
    assert made == [["wng/ProbeCounter-v0", True]] * 3  # once per batch of ten episodes


def test_the_same_episodes_again_in_the_same_environments():
    env = make("wng/ProbeCounter-v0", 20, 5, "gymnasium")
    returns = first_returns(env, lambda observations: np.zeros((20, 1)))
    assert len(set(returns)) > 1
    assert first_returns(env, lambda observations: np.zeros((20, 1))) == returns
    env.close()


@pytest.mark.parametrize("backend", ["auto", "gymnasium", "workers"])
def test_a_resolved_environment_equals_its_id(backend):
    resolved = resolve("custom_envs:Shaped-v0", backend)
    by_id, by_record = make(resolved.spec.id, 3, 1, backend), make(resolved, 3, 1)
    assert by_id.spec == by_record.spec
    np.testing.assert_array_equal(by_id.reset(), by_record.reset())
    by_id.close()
    by_record.close()


def test_steps_are_timed_only_where_workers_can_be_chosen(monkeypatch):
    module = sys.modules["wng.envs.resolve"]
    monkeypatch.setattr(module, "available_cores", lambda: 2)
    assert 0 < resolve("custom_envs:Class-v0").step_seconds < 1
    assert resolve("custom_envs:Class-v0", "workers").step_seconds is None
    assert resolve("custom_envs:Class-v0", "gymnasium").step_seconds is None
    assert resolve("custom_envs:Lambda-v0").step_seconds is None
    monkeypatch.setattr(gymnasium.Wrapper, "step", lambda self, action: 1 / 0)
    assert resolve("custom_envs:Class-v0").step_seconds is None  # training reports it
    monkeypatch.undo()
    monkeypatch.setattr(module, "available_cores", lambda: 1)
    assert resolve("custom_envs:Class-v0").step_seconds is None


def test_pickling_resolves_again():
    resolved = pickle.loads(pickle.dumps(resolve("custom_envs:Lambda-v0", "gymnasium")))
    assert resolved.spec == resolve("custom_envs:Lambda-v0").spec


def test_unknown_backend():
    resolved = resolve("CartPole-v1", "gymnasium")
    with pytest.raises(ValueError, match="backend 'threads' is unknown"):
        make(resolved, 1, 0, "threads")


def test_envpool_and_gymnasium_from_one_record(made):
    pytest.importorskip("envpool")
    for backend in ("auto", "envpool"):
        made.clear()
        resolved = resolve("CartPole-v1", backend)
        assert resolved.spec.backend == "envpool"
        assert not resolved.spec.replayable
        pooled, local = make(resolved, 2, 0), make(resolved, 2, 0, "gymnasium")
        assert (pooled.spec.backend, local.spec.backend) == ("envpool", "gymnasium")
        assert local.spec == resolve("CartPole-v1", "gymnasium").spec
        pooled.close()
        local.close()
        assert len(made) == 2
    only = resolve("Pong-v5", "envpool")
    assert only.gym_spec is None
    with pytest.raises(ValueError, match="there is no environment 'Pong-v5'"):
        make(only, 1, 0, "gymnasium")
