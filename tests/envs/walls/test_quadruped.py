"""The quadruped before its wall: the same in a batch, sound, and a trap for who goes straight."""

import gymnasium
import numpy as np
import pytest
from gait import DETOUR, STRAIGHT, Walk
from gymnasium.utils.env_checker import check_env

import wng.envs  # noqa: F401 (registers the task)
from wng.envs.mujoco_batch import MujocoBatch
from wng.envs.walls.quadruped import QuadrupedTask, QuadrupedWall

EPISODES = 12


def walk(waypoints):
    """Observations [401, n, d] and rewards [400, n] of a scripted walk."""
    batch, policy = MujocoBatch(QuadrupedTask(), EPISODES), Walk(waypoints, EPISODES)
    observations, rewards = [batch.reset(range(EPISODES))], []
    for _ in range(400):
        observation, reward, _ = batch.step(policy(observations[-1]))
        observations.append(observation)
        rewards.append(reward)
    batch.close()
    return np.array(observations), np.array(rewards)


@pytest.fixture(scope="module")
def straight():
    return walk(STRAIGHT)


@pytest.fixture(scope="module")
def detour():
    return walk(DETOUR)


def test_straight_ahead_is_a_trap(straight):
    observations, rewards = straight
    x, y = observations[..., 0], observations[..., 1]
    assert (x[-1] > 3.0).all()  # it arrived ...
    assert (x < 4.7).all()  # ... and neither pushed through nor climbed over
    assert (np.abs(y[-1]) < 1.4).all()
    returns = rewards.sum(axis=0)
    assert -4900 < returns.mean() < -4500


def test_a_detour_is_clearly_better(straight, detour):
    observations, rewards = detour
    past = [QuadrupedTask().map.past_wall(*o[:2]) for o in observations[-1]]
    assert all(past)
    distances = np.hypot(observations[-1, :, 0] - 15, observations[-1, :, 1])
    assert np.median(distances) < 1.0
    assert rewards.sum(axis=0).max() < -1500
    assert rewards.sum(axis=0).min() > straight[1].sum(axis=0).max() + 1000


def test_walls_and_floor_are_solid(straight, detour):
    task = QuadrupedTask()
    for observations, _ in (straight, detour):
        x, y, z = np.moveaxis(observations[..., :3], -1, 0)
        assert (z > 0.24).all()
        assert (z < 1.3).all()  # the walls are 2 high
        for wall in task.map.walls:
            inside = (abs(x - wall.x) < wall.half_x) & (abs(y - wall.y) < wall.half_y)
            assert not inside.any()


def test_random_actions_of_full_range_are_borne():
    batch, rng = MujocoBatch(QuadrupedTask(), 200), np.random.default_rng(0)
    observations = batch.reset(range(200))
    start, fastest = observations[:, :2], 0.0
    for step in range(400):
        # Half of the episodes shake, half push one way for a while, as policies do.
        if step % 10 == 0:
            held = rng.choice([-1.0, 1.0], (100, 8))
        actions = np.concatenate([rng.uniform(-1, 1, (100, 8)), held])
        observations, rewards, terminated = batch.step(actions)
        assert np.isfinite(observations).all()
        assert np.isfinite(rewards).all()
        assert not terminated.any()
        fastest = max(fastest, abs(observations[:, 15:29]).max())
    assert fastest < 100
    assert (observations[:, 2] > 0.2).all()
    assert np.hypot(*(observations[:, :2] - start).T).mean() > 0.3  # actions move it
    batch.close()


def test_gymnasium_equals_the_batch_bit_for_bit():
    env = gymnasium.make("wng/QuadrupedWall-v0")
    seeds = [2, 77, 1_000_003]
    batch, policy = MujocoBatch(env.unwrapped.mujoco_task, 3, threads=2), Walk(STRAIGHT, 3)
    observations, actions, rewards = [batch.reset(seeds)], [], []
    rng = np.random.default_rng(0)
    for _ in range(400):
        noise = rng.normal(0, 0.3, (3, 8))
        actions.append((policy(observations[-1]) + noise).astype(np.float32))
        step = batch.step(actions[-1])
        observations.append(step[0])
        rewards.append(step[1])
    for member, seed in enumerate(seeds):
        observation, _ = env.reset(seed=seed)
        for t in range(400):
            np.testing.assert_array_equal(observation, observations[t][member])
            observation, reward, terminated, truncated, _ = env.step(actions[t][member])
            assert reward == rewards[t][member]
            assert not terminated
            assert truncated == (t == 399)
        np.testing.assert_array_equal(observation, observations[400][member])
    env.close()
    batch.close()


@pytest.mark.filterwarnings("ignore:.*infinity")  # positions have no bounds
def test_gymnasium_approves():
    env = QuadrupedWall()
    check_env(env, skip_render_check=True)
    assert env.mujoco_task.observation_size == 33
    spec = gymnasium.spec("wng/QuadrupedWall-v0")
    assert spec.max_episode_steps == 400
    env.close()
    env.close()


def test_episodes_begin_near_the_origin_and_differ():
    env = QuadrupedWall()
    first, again, other = (env.reset(seed=seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    follow = env.reset()[0]
    for x in (other, follow):
        assert (x[:29] != first[:29]).all()
    starts = np.array([env.reset(seed=seed)[0] for seed in range(50)])
    assert (abs(starts[:, :2]) <= 0.1).all()
    assert (abs(starts[:, 7:15]) <= 0.1).all()
    assert 0.08 < starts[:, 15:29].std() < 0.12
    np.testing.assert_allclose(np.linalg.norm(starts[:, 3:7], axis=1), 1, rtol=1e-6)


def test_rewards_and_forces():
    env = QuadrupedWall()
    env.reset(seed=0)
    for _ in range(60):
        observation, reward, *_ = env.step(np.zeros(8))
        assert reward == pytest.approx(-np.hypot(observation[0] - 15, observation[1]), rel=1e-6)
        assert ((observation[29:] >= 0) & (observation[29:] <= 1)).all()
    assert observation[29:].sum() == pytest.approx(1, abs=0.05)  # it stands: the feet bear it all
    assert (observation[29:] > 0.05).all()


def test_actions_are_clipped():
    a, b = QuadrupedWall(), QuadrupedWall()
    a.reset(seed=0)
    b.reset(seed=0)
    signs = np.array([1, -1, 1, 1, -1, 1, -1, -1])
    large, one, half = a.step(9.0 * signs), b.step(1.0 * signs), b.step(0.5 * signs)
    np.testing.assert_array_equal(large[0], one[0])
    assert (a.step(signs)[0] != half[0]).any()


def test_the_body_has_fourfold_symmetry():
    """With every leg's actions passed on to the next leg, all happens a quarter turn further."""

    class Undisturbed(QuadrupedTask):
        def initial_state(self, rng):
            return self._standing

    actions = np.repeat(np.random.default_rng(1).uniform(-1, 1, (8, 8)), 5, axis=0)
    batch = MujocoBatch(Undisturbed(), 2, threads=1)
    batch.reset([0, 0])
    for action in actions:
        (plain, turned), *_ = batch.step([action, np.roll(action, 2)])
    np.testing.assert_allclose(turned[:2], [-plain[1], plain[0]], atol=1e-3)
    np.testing.assert_allclose(turned[7:15], np.roll(plain[7:15], 2), atol=1e-3)
    assert np.hypot(*plain[:2]) > 0.05


def test_map():
    env = QuadrupedWall()
    assert env.map.goal == (15, 0)
    assert env.map.radius == 0.25
    assert sorted(tuple(wall) for wall in env.map.walls) == [
        (4.5, -1.7, 0.5, 0.3),
        (4.5, 1.7, 0.5, 0.3),
        (5.0, 0.0, 0.3, 2.0),
    ]
    assert env.map.past_wall(5.4, 0)
    assert not env.map.past_wall(4.9, 4)


@pytest.mark.parametrize("action", [np.full(8, np.nan), [0, 0, 0, np.nan, 0, 0, 0, 0], np.zeros(3)])
def test_an_action_that_is_none(action):
    env = QuadrupedWall()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"QuadrupedWall must be 8 numbers, got \[.*\]\.$"):
        env.step(action)


def test_pictures():
    with pytest.raises(ValueError, match="render_mode must be 'rgb_array' or None, got 'human'"):
        QuadrupedWall("human")
    env, other = QuadrupedWall("rgb_array"), QuadrupedWall("rgb_array")
    assert env.metadata["render_fps"] == 20
    for e in (env, other):
        e.reset(seed=0)
    before = env.render()
    assert before.shape == (480, 640, 3)
    assert before.dtype == np.uint8
    red, green, blue = before.astype(int).transpose(2, 0, 1)
    body, goal, wall = red > blue + 60, green > red + 60, blue > red + 30
    columns = [np.nonzero(part)[1].mean() for part in (body, wall, goal)]
    assert columns == sorted(columns)  # from left to right
    for _ in range(20):
        other.step(np.ones(8))
    assert (other.render() != before).any()
    np.testing.assert_array_equal(env.render(), before)
    other.close()
    np.testing.assert_array_equal(env.render(), before)  # a closed one leaves others alone
    env.close()
    env.close()
    assert QuadrupedWall().render() is None
