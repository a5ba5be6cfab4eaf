"""JAX environments: as a vector, as Gymnasium environments, and found by their ids."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wng
from wng.envs import make, resolve
from wng.envs.jax_vector import JaxVector
from wng.envs.lookup import find

KEY = jax.random.key(3)


def vector(env_id: str) -> JaxVector:
    found = resolve(env_id, "jax")
    assert found.jax_env is not None
    return JaxVector(found.jax_env, found.spec)


def skip_without(env_id: str) -> None:
    pytest.importorskip({"brax": "brax", "playground": "mujoco_playground"}[env_id.split("/")[0]])


def run(vec: JaxVector, key, actions):
    """Observations before each step, and transitions, for actions [T, n, ...]."""

    def step(at, action):
        after, transition = vec.step(key, at, action)
        return after, (at.observations, transition)

    return jax.lax.scan(step, vec.begin(key, actions.shape[1]), actions)


def test_ends_of_episodes():
    last, (seen, t) = run(vector("wng/ProbeCounter-v0"), KEY, jnp.zeros((60, 3, 1)))
    steps, length = np.moveaxis(np.asarray(t.final_observations), 2, 0)
    np.testing.assert_array_equal(steps, seen[..., 0] + 1)
    np.testing.assert_array_equal(length, seen[..., 1])
    ended = steps == length
    np.testing.assert_array_equal(t.terminated, ended & (length % 2 == 1))
    np.testing.assert_array_equal(t.truncated, ended & (length % 2 == 0))
    following = np.concatenate([seen[1:], last.observations[None]])
    np.testing.assert_array_equal(following[..., 0], np.where(ended, 0, steps))
    np.testing.assert_array_equal(t.episode_returns, np.where(ended, length, np.nan))
    np.testing.assert_array_equal(t.episode_lengths, np.where(ended, length, 0))
    assert set(length[ended]) == {1, 2, 3, 4, 5, 6}
    np.testing.assert_array_equal(last.episodes, ended.sum(axis=0))


@pytest.mark.parametrize("env_id", ["wng/ProbeCounter-v0", "wng/PointWall-v0", "jax_tasks:Walk"])
def test_seeds_side_by_side_are_seeds_alone(env_id):
    vec = vector(env_id)
    shape = (60, 3) if vec.spec.discrete else (60, 3, vec.spec.action_size)
    actions = jax.random.randint(KEY, shape, 0, 2)
    keys = jax.random.split(KEY, 4)
    together = jax.jit(jax.vmap(lambda k: run(vec, k, actions)[1]))(keys)
    alone = [jax.jit(lambda k: run(vec, k, actions)[1])(key) for key in keys]
    jax.tree.map(
        lambda *x: np.testing.assert_allclose(x[0], np.stack(x[1:]), rtol=1e-5, atol=1e-5),
        together,
        *alone,
    )
    assert np.ptp(together[0], axis=0).max() > 0  # seeds differ


def test_what_an_episode_meets_depends_on_key_environment_and_episode():
    vec = vector("wng/PointWall-v0")
    starts = [vec.begin(key, 3).observations for key in jax.random.split(KEY)]
    _, (seen, _) = run(vec, KEY, jnp.zeros((101, 3, 2)))
    firsts = np.concatenate([*starts, seen[0], seen[50], seen[100]])[:, 0]
    assert len(set(firsts.tolist())) == 15
    np.testing.assert_array_equal(
        vec.begin(KEY, 5).observations[:3], vec.begin(KEY, 3).observations
    )


def test_time_limits_truncate_and_actions_are_those_of_the_space():
    _, (seen, t) = run(vector("jax_tasks:Walk"), KEY, jnp.ones((200, 4), int))
    assert seen.shape == (200, 4, 2)  # flat
    x = np.asarray(t.final_observations)[..., 0]
    np.testing.assert_array_equal(t.terminated, x == 3)
    np.testing.assert_array_equal(t.rewards, x == 3)
    lengths = np.asarray(t.episode_lengths)
    assert lengths.max() <= 7
    assert lengths[np.asarray(t.terminated)].min() == 3  # each action 1 is a step to the right
    assert (lengths[np.asarray(t.truncated)] == 7).all()
    _, (_, pushed) = run(vector("jax_tasks:Push"), KEY, jnp.full((3, 2, 2), 9.0))
    np.testing.assert_array_equal(pushed.rewards, 1.5)  # clipped to 1 and 0.5


def test_gymnasium_steps_the_same_functions():
    env, full_id = find("jax_tasks:Walk", render_mode="rgb_array")
    assert full_id == "jax_tasks:Walk"
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert env.render().shape == (16, 16, 3)
    totals = []
    for _ in range(20):
        _, reward, terminated, truncated, _ = env.step(2)
        totals.append(reward)
        if terminated or truncated:
            assert terminated == (reward == 1)
            env.reset()
    assert sum(totals) >= 2
    assert resolve("jax_tasks:Walk").render_modes == ("rgb_array",)
    assert resolve("jax_tasks:Push").render_modes == ()
    vec = make("jax_tasks:Push", 2, 0)
    vec.reset()
    assert vec.step(np.full((2, 2), -9)).rewards.tolist() == [-1.5, -1.5]
    vec.close()


def test_backends():
    assert resolve("wng/PointWall-v0").spec.backend == "jax"
    assert resolve("jax_tasks:Walk").spec.backend == "jax"
    assert resolve("wng/PointWall-v0", "gymnasium").spec.backend == "gymnasium"
    with pytest.raises(ValueError, match="'CartPole-v1' cannot run on backend 'jax'"):
        resolve("CartPole-v1", "jax")


def test_mistakes(monkeypatch):
    with pytest.raises(ValueError, match="no attribute 'observation_space': add it"):
        resolve("jax_tasks:NoSpaces")
    with pytest.raises(ValueError, match="there is no environment 'jax_tasks:Wolk'"):
        resolve("jax_tasks:Wolk")
    find_spec = importlib.util.find_spec
    missing = ("gymnax", "brax", "mujoco_playground")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find_spec(name)
    )
    for package in ("gymnax", "brax", "playground"):
        with pytest.raises(ValueError, match=rf"pip install 'wng\[{package}\]'"):
            resolve(f"{package}/Anything")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("WithArguments", "a class whose constructor takes no arguments."),
        ("FourResults", "must return (state, observation, reward, terminated, truncated)."),
        ("OtherObservation", "observations of shape [1], that of its observation_space, but"),
        ("OtherState", "must return a state of the same structure and shapes as 'reset'."),
        ("TwoRewards", "must return one number as reward, but it returned shape [2]."),
        ("Branching", "failed: TracerBoolConversionError"),
        ("Unhashable", "cannot be hashed"),
        ("NumberOfActions", "Box or gymnasium.spaces.Discrete, got 3."),
        ("ShapeOfObservations", "must be a gymnasium.spaces.Box, got (1,)."),
    ],
)
def test_faults_of_your_own_environment_are_named(name, sentence):
    with pytest.raises(ValueError, match="jax_tasks:" + name) as found:
        resolve(f"jax_tasks:{name}")
    assert sentence in str(found.value)
    assert "\n" not in str(found.value)


def test_a_picture_without_colors_is_refused():
    env, _ = find("jax_tasks:Gray", render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(
        ValueError, match=r"picture of shape \[height, width, 3\], but .* \[16, 16\]"
    ):
        env.render()


def test_gymnax_environments_that_cannot_be_used(monkeypatch):
    gymnax = pytest.importorskip("gymnax")
    with pytest.raises(ValueError, match=r"observation_space .*Box, got Discrete\(16\)"):
        resolve("gymnax/FrozenLake-misc")

    def fail(name):
        raise OSError("no network")

    monkeypatch.setattr(gymnax, "make", fail)
    with pytest.raises(
        ValueError, match="cannot make 'gymnax/MNISTBandit-bsuite': OSError: no net"
    ):
        resolve("gymnax/MNISTBandit-bsuite")


def test_gymnax():
    gymnax = pytest.importorskip("gymnax")
    with pytest.raises(ValueError, match="did you mean 'gymnax/Pendulum-v1'"):
        resolve("gymnax/Pendulum-v2")
    spec = resolve("gymnax/Pendulum-v1").spec
    assert (spec.observation_size, spec.action_size, spec.max_episode_steps) == (3, 1, 200)
    assert (spec.action_low, spec.action_high) == ((-2.0,), (2.0,))
    vec = vector("gymnax/CartPole-v1")
    _, (seen, t) = run(vec, KEY, jnp.zeros((40, 3), int))
    env, params = gymnax.make("CartPole-v1")
    state, _ = vec.reset_one(KEY)
    _, _, reward, *_ = env.step(KEY, state, 0, params)
    assert reward == t.rewards[0, 0] == 1
    ended = np.asarray(t.terminated)
    assert ended.any()
    final = np.asarray(t.final_observations)[ended]
    assert ((np.abs(final[:, 2]) > 0.2) | (np.abs(final[:, 0]) > 2.4)).all()  # not the reset one
    assert (np.abs(seen[0]) <= 0.05).all()
    _, (seen, t) = run(vector("gymnax/Pendulum-v1"), KEY, jnp.zeros((201, 2, 1)))
    assert not t.terminated.any()
    np.testing.assert_array_equal(np.flatnonzero(t.truncated[:, 0]), [199])
    angle, start = t.final_observations[199], seen[200]
    assert np.abs(angle - start).max() > 1e-3
    np.testing.assert_array_equal(t.final_observations[:199], seen[1:200])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of brax, and of what it imports
@pytest.mark.parametrize("env_id", ["brax/inverted_double_pendulum", "playground/CartpoleBalance"])
def test_brax_and_playground(env_id):
    """Episodes end, here by a time limit of 20 steps, with an observation that is not the next."""
    skip_without(env_id)
    vec = vector(env_id)
    assert vec.env.max_episode_steps == vec.spec.max_episode_steps == 1000
    short = type("Short", (type(vec.env),), {"max_episode_steps": 20})
    vec = JaxVector(short(vec.env.name), vec.spec)
    last, (seen, t) = jax.jit(lambda k, a: run(vec, k, a))(
        KEY, jnp.ones((60, 2, vec.spec.action_size))
    )
    assert np.isfinite(seen).all()
    assert np.isfinite(t.rewards).all()
    ended = np.asarray(t.terminated | t.truncated)
    assert (ended.sum(axis=0) >= 3).all()  # in 60 steps
    np.testing.assert_array_equal(last.episodes, ended.sum(axis=0))
    final, following, over = np.asarray(t.final_observations)[:-1], seen[1:], ended[:-1]
    np.testing.assert_array_equal(final[~over], following[~over])
    assert (np.abs(final[over] - following[over]).max(axis=1) > 1e-3).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["ppo", "wnes"])
@pytest.mark.parametrize("env_id", ["brax/inverted_pendulum", "playground/CartpoleBalance"])
def test_brax_and_playground_from_training_to_evaluation(env_id, method, tmp_path):
    """Past the end of episodes, saved and resumed bit for bit."""
    skip_without(env_id)
    small = {
        "ppo": {"num_envs": 2, "rollout": 512, "minibatch": 64, "epochs": 1, "hidden": (8,)},
        "wnes": {"population": 4, "hidden": (4,), "num_basis": 4},
    }[method]
    whole = wng.Agent(env_id, method, **small)
    whole.learn(2048, progress=False).save(tmp_path / "agent.safetensors")
    resumed = wng.load(tmp_path / "agent.safetensors")
    assert resumed.steps == whole.steps
    returns = [agent.learn(2048, progress=False).evaluate(2) for agent in (whole, resumed)]
    np.testing.assert_array_equal(*returns)
    assert np.isfinite(returns[0]).all()
    one, other = (agent.trainer.checkpoint()[0] for agent in (whole, resumed))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], name)
    whole.close()
    resumed.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("env_id", ["brax/inverted_pendulum", "playground/CartpoleBalance"])
def test_brax_and_playground_are_drawn(env_id):
    """After MuJoCo was imported without a choice of OpenGL, and a second time after closing."""
    skip_without(env_id)
    env, _ = find(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    assert (first.shape, first.dtype) == ((480, 640, 3), np.uint8)
    for _ in range(5):
        env.step(np.ones(1, np.float32))
    moved = env.render()
    assert (moved != first).any()
    assert env.metadata["render_fps"] == round(1 / float(env.unwrapped.jax_env._env.dt))
    env.close()
    np.testing.assert_array_equal(env.render(), moved)
    env.close()
