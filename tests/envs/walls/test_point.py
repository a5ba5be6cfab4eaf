"""The disc: free flight, walls that hold at any speed, the trap and the way around it."""

from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import wng.envs  # noqa: F401 (registers the tasks)
from wng.envs.jax_env import JaxEnv
from wng.envs.walls.map import Box
from wng.envs.walls.point import PointState, PointTask, PointWall, cup

IDS = ["wng/PointWall-v0", "wng/PointWallEasy-v0", "wng/PointWallHard-v0"]
TASKS = {name: gymnasium.make(name).unwrapped.jax_env for name in IDS}

KEY = jax.random.key(0)  # the task does not use it


def state(x, y, vx=0.0, vy=0.0):
    return PointState(*(jnp.asarray(v, jnp.float32) for v in (x, y, vx, vy)))


@partial(jax.jit, static_argnums=0)
def fly(env: JaxEnv, start, actions):
    """States after each step of given actions [steps, 2], and the rewards."""

    def step(s, action):
        s, observation, reward, *_ = env.step(KEY, s, action)
        return s, (observation, reward)

    return jax.lax.scan(step, start, actions)[1]


@partial(jax.jit, static_argnums=0)
def paths(task, starts, actions):
    """Positions [n, 1 + steps · substeps, 2] of a population, for actions [n, steps, 2]."""

    def one(start, actions):
        def step(s, action):
            return task.step(KEY, s, action)[0], task.trace(s, action)

        moves = jax.lax.scan(step, start, actions)[1].reshape(-1, 2)
        return jnp.concatenate([jnp.stack(start[:2])[None], moves])

    return jax.vmap(one)(starts, actions)


def distances(task, points):
    """From the nearest wall, 0 inside one."""
    gaps = [np.maximum(np.abs(points - [b.x, b.y]) - [b.half_x, b.half_y], 0) for b in task.walls]
    return np.min([np.hypot(*np.moveaxis(g, -1, 0)) for g in gaps], axis=0)


def crossings(task, points):
    """How many of the paths have a straight piece that touches a wall."""
    a, b = points[:, :-1], points[:, 1:]
    move = np.where(a == b, 1e-12, b - a)
    crossed = np.zeros(a.shape[:2], bool)
    for box in task.walls:
        low, high = np.array(box[:2]) - box[2:], np.array(box[:2]) + box[2:]
        first, last = np.sort([(low - a) / move, (high - a) / move], axis=0)
        crossed |= np.maximum(first.max(-1), 0) <= np.minimum(last.min(-1), 1)
    return int(crossed.any(1).sum())


def attacks(task, n, rng):
    """Starts and full-throttle policies that hit the walls from everywhere at up to top speed."""
    grid = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)])
    corners = np.concatenate([grid * b[2:] + b[:2] for b in task.walls])
    targets = corners[rng.integers(len(corners), size=n)]
    targets += rng.normal(size=(n, 2)) * rng.choice([0, 0.1, 0.5, 1], size=(n, 1))
    push = rng.uniform(-1, 1, (n, 2))
    axis = rng.integers(4, size=n)
    push[axis == 0, 0] = push[axis == 1, 1] = 0  # along an axis
    push /= np.abs(push).max(1, keepdims=True)
    push[axis == 2] = np.sign(push[axis == 2])  # diagonally: the highest speeds
    seconds = rng.uniform(0, task.horizon * task.step_seconds, (n, 1))  # until the impact
    starts = targets - push * task.force / task.mass * seconds**2 / 2
    starts[n // 2 :] = rng.uniform([5, -6], [20, 6], (n - n // 2, 2))  # or near, also in the cup
    actions = np.repeat(push[:, None], task.horizon, axis=1)
    # After the impact: on, back, along, or bang-bang at random.
    late = np.arange(task.horizon)[None, :] > seconds / task.step_seconds
    flip = rng.choice([-1, 1], (n, 1, 2)) * np.ones_like(actions)
    flip[::3] = rng.choice([-1, 1], flip[::3].shape)
    actions = np.where(late[..., None], actions * flip, actions)
    keep = distances(task, starts) > task.radius
    return state(*starts[keep].T, *np.zeros((2, keep.sum()))), jnp.asarray(actions[keep])


def detour(task, observation):
    """Up and around the cup, then toward the goal, braking."""
    x, y, vx, vy = observation
    clear = max(b.y + b.half_y for b in task.walls) + 1
    over = jnp.stack([jnp.where(x < 5, 1.0, 0.2), (clear - y) / 2 - vy / 5])
    home = 0.3 * jnp.stack([task.goal[0] - x - vx, task.goal[1] - y - vy])
    return jnp.clip(jnp.where(x > 14.8, home, over), -1, 1)


@partial(jax.jit, static_argnums=(0, 1))
def episode(task, policy, key):
    def step(carry, _):
        s, observation = carry
        s, observation, reward, terminated, _ = task.step(KEY, s, policy(task, observation))
        return (s, observation), (reward, terminated)

    (_, observation), (rewards, ends) = jax.lax.scan(step, task.reset(key), None, task.horizon)
    return rewards.sum(), observation, ends.any()


@pytest.mark.parametrize("name", IDS)
def test_straight_ahead_is_a_trap_and_the_detour_pays(name):
    task, key = TASKS[name], jax.random.key(3)
    trapped, end, over = episode(task, lambda _, o: jnp.array([1.0, 0.0]) + 0 * o[:2], key)
    assert -810 < trapped < -750
    assert end[0] == pytest.approx(13.2, abs=1e-3)
    assert not task.map.past_wall(*end[:2].tolist())
    around, end, _ = episode(task, detour, key)
    assert around > trapped + 100
    assert task.map.past_wall(*end[:2].tolist())
    assert abs(end[0] - 25) < 4
    assert not over


@pytest.mark.parametrize("name", IDS)
def test_no_wall_lets_the_disc_through(name):
    task = TASKS[name]
    starts, actions = attacks(task, 4000, np.random.default_rng(0))
    points = np.asarray(paths(task, starts, actions), np.float64)
    near = distances(task, points)
    assert near.min() > task.radius - 1e-5
    assert crossings(task, points) == 0
    touched = (near < task.radius + 1e-3).any(1)
    assert touched.sum() > 1500  # or the test would be idle
    moves = np.hypot(*np.moveaxis(np.diff(points, axis=1), -1, 0))
    fast = (moves * task.substeps / task.step_seconds).max(1)
    assert (touched & (fast > 90)).sum() > 50
    assert moves.max() < task.radius


def test_one_substep_would_tunnel():
    class Coarse(PointTask):
        def __post_init__(self):
            """Allow what the task forbids."""

    starts, actions = attacks(PointTask(), 4000, np.random.default_rng(0))
    assert crossings(PointTask(), np.asarray(paths(Coarse(substeps=1), starts, actions))) > 100
    with pytest.raises(ValueError, match="use at least 9 substeps"):
        PointTask(substeps=8)
    PointTask(substeps=9)


def test_walls_that_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="narrower than the disc"):
        PointTask(walls=(Box(13, -2, 1, 0.3), Box(13, -0.5, 1, 0.3)))
    with pytest.raises(ValueError, match="may start inside the wall"):
        PointTask(walls=cup(depth=14.0, half_width=0.7))


@pytest.mark.parametrize(("ax", "ay"), [(7.0, 0.0), (-0.3, 0.8)])
def test_free_flight_is_the_closed_form(ax, ay):
    task, steps = PointTask(walls=()), 20
    seen, rewards = fly(task, state(0.05, -0.02), jnp.tile(jnp.array([ax, ay]), (steps, 1)))
    n, h = np.arange(1, steps + 1) * task.substeps, task.step_seconds / task.substeps
    gain = np.clip([ax, ay], -1, 1) * task.force / task.mass  # actions are clipped
    place = np.array([0.05, -0.02]) + gain * (h**2 * n * (n + 1) / 2)[:, None]
    np.testing.assert_allclose(seen[:, 2:], gain * (n * h)[:, None], rtol=1e-4)
    np.testing.assert_allclose(seen[:, :2], place, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rewards, -np.hypot(25 - place[:, 0], place[:, 1]), rtol=1e-5)
    # The kinetic energy is the work done, but for the order of the integrator.
    energy = task.mass * (np.asarray(seen[:, 2:]) ** 2).sum(1) / 2
    work = task.mass * (place - [0.05, -0.02]) @ gain
    np.testing.assert_allclose(energy, work * n / (n + 1), rtol=1e-4)


def test_sliding_keeps_what_is_along_the_wall():
    task = PointTask()
    # Pressed against the back of the cup while moving along it.
    seen, _ = fly(task, state(13.2, -0.5, 0, 1), jnp.tile(jnp.array([1.0, 0.0]), (10, 1)))
    np.testing.assert_allclose(seen[:, 0], 13.2, atol=1e-5)
    np.testing.assert_allclose(seen[:, 1], -0.5 + 0.04 * np.arange(1, 11), rtol=1e-4)
    np.testing.assert_allclose(seen[:, 2:], [[0, 1]] * 10, atol=1e-5)
    # An oblique impact on the outer side of an arm, without a force.
    seen, _ = fly(task, state(12.5, 3.2, 1.0, -20), jnp.zeros((3, 2)))
    np.testing.assert_allclose(seen[-1], [12.5 + 0.12, 2.8, 1, 0], atol=1e-5)
    # Already on its way out of a contact, the disc is not held back.
    seen, _ = fly(task, state(13.25, 0, -2, 0), jnp.zeros((1, 2)))
    np.testing.assert_allclose(seen[-1], [13.2 - 9 * 0.008, 0, -2, 0], atol=1e-5)


def test_corners_are_round():
    """Above the middle of an arm's corner, the disc is deflected upward and stays outside."""
    seen, _ = fly(PointTask(), state(11.0, 2.6, 10, 0), jnp.zeros((8, 2)))
    assert np.hypot(seen[:, 0] - 12, seen[:, 1] - 2.3).min() > 0.5 - 1e-3
    x, y, vx, vy = seen[-1]
    assert min(x - 12, y - 2.6, vx - 1, vy - 1) > 0
    assert np.hypot(vx, vy) < 10
    seen, _ = fly(PointTask(), state(11.0, 2.85, 10, 0), jnp.zeros((8, 2)))  # just above: a miss
    np.testing.assert_allclose(seen[-1], [14.2, 2.85, 10, 0], rtol=1e-5)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [((13.9, 0.2), (13.2, 0.2)), ((14.1, 0.2), (14.8, 0.2)), ((12.5, 2.1), (12.5, 2.8))],
)
def test_a_center_inside_a_wall_leaves_by_the_nearest_side(inside, outside):
    seen, _ = fly(PointTask(), state(*inside), jnp.zeros((1, 2)))
    np.testing.assert_allclose(seen[-1], [*outside, 0, 0], atol=1e-5)


def test_where_walls_meet_the_disc_stays_outside_both_and_can_leave():
    task = PointTask()
    into, away = jnp.full((15, 2), 1.0), jnp.full((10, 2), -1.0)
    seen, _ = fly(task, state(12.5, 0.5), jnp.concatenate([into, away]))
    np.testing.assert_allclose(seen[5:15], [[13.2, 1.2, 0, 0]] * 10, atol=1e-4)
    np.testing.assert_allclose(seen[-1, 0], seen[-1, 1] + 12, atol=1e-4)
    assert seen[-1, 0] < 11
    # The notch behind, between two round corners.
    seen, _ = fly(task, state(17.0, 5.0), jnp.concatenate([away, into]))
    near = distances(task, np.asarray(seen[:, :2]))
    assert 0.5 - 1e-5 < near.min() < 0.51
    assert seen[-1, 0] > 16


def test_the_face_equals_the_functions_bit_for_bit():
    env = gymnasium.make("wng/PointWall-v0")
    task = env.unwrapped.jax_env
    observation, _ = env.reset(seed=5)
    s = state(*observation)
    actions = np.random.default_rng(1).uniform(-1.5, 1.5, (50, 2)).astype(np.float32)
    actions[:, 0] += 0.7
    seen, rewards = fly(task, s, jnp.asarray(actions))
    many, _ = jax.vmap(partial(fly, task), (0, None))(
        jax.tree.map(lambda v: jnp.stack([v, v + 1]), s), jnp.asarray(actions)
    )
    np.testing.assert_allclose(many[0], seen, rtol=1e-5, atol=1e-5)
    compiled = jax.jit(task.step)
    for k, action in enumerate(actions):
        s, here, reward, *_ = compiled(KEY, s, action)
        observation, face_reward, terminated, truncated, _ = env.step(action)
        np.testing.assert_array_equal(observation, here)
        assert face_reward == float(reward)
        np.testing.assert_array_equal(observation, seen[k])
        assert face_reward == float(rewards[k])
        assert (terminated, truncated) == (False, k == 49)
    assert observation.dtype == np.float32


def test_seeds_are_reproducible():
    env = PointWall()
    first = env.reset(seed=7)[0]
    second = env.reset()[0]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(env.reset(seed=7)[0], first)
    np.testing.assert_array_equal(env.reset()[0], second)
    starts = jax.vmap(lambda k: env.jax_env.reset(k)[1])(jax.random.split(jax.random.key(0), 500))
    assert (np.abs(starts[:, :2]) <= 0.1).all()
    assert (starts[:, :2].max(0) > 0.09).all()
    assert (starts[:, :2].min(0) < -0.09).all()
    assert (starts[:, 2:] == 0).all()


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_accepts_the_variants(env_id):
    env = gymnasium.make(env_id, render_mode="rgb_array")
    assert env.spec.max_episode_steps == env.unwrapped.jax_env.horizon == 50
    assert env.unwrapped.map == env.unwrapped.jax_env.map
    check_env(env.unwrapped)


def test_the_variants_differ_in_depth_and_width():
    sizes = [(2 * t.walls[1].half_x, t.walls[1].y) for t in TASKS.values()]
    assert sizes == [(2.0, 2.0), (1.0, 1.2), (4.0, 3.5)]
    assert PointTask().walls == ((13, -2, 1, 0.3), (13, 2, 1, 0.3), (14, 0, 0.3, 2))
    assert PointTask() == PointTask()
    assert len({hash(t) for t in TASKS.values()}) == 3


def test_the_observation_space_holds_the_furthest_flight():
    env = gymnasium.make("wng/PointWall-v0")
    env.reset(seed=0)
    for _ in range(50):
        observation = env.step(np.array([-1, 1], np.float32))[0]
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize("action", [[0.0], [0.0, 0.0, 0.0], 0.0, [[0.0, 0.0]], [np.nan, 0.0]])
def test_a_bad_action_is_one_sentence(action):
    env = PointWall()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="PointWall must be 2 numbers, got"):
        env.step(np.array(action))


def test_a_step_before_the_reset_is_told():
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        PointWall().step(np.zeros(2))
