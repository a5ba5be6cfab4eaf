"""Members of a batch are independent, reproducible bit for bit, and fail on their own."""

import mujoco
import numpy as np
import pytest

from wng.envs.mujoco_batch import STATE, MujocoBatch
from wng.envs.walls.quadruped import QuadrupedTask

CART = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody><body>
    <joint name="x" type="slide" axis="1 0 0"/><geom size="0.1" mass="1"/>
  </body></worldbody>
  <actuator><motor joint="x" gear="{gear}"/></actuator>
  <sensor><jointpos joint="x"/></sensor>
</mujoco>
"""


class CartTask:
    """A cart on a rail. With a large gear, an action breaks the simulation."""

    action_size = 1
    action_low, action_high = (-1.0,), (1.0,)

    def __init__(self, gear: float = 1.0, frame_skip: int = 3) -> None:
        self.model = mujoco.MjModel.from_xml_string(CART.format(gear=gear))
        self.frame_skip = frame_skip

    def initial_state(self, rng):
        return np.array([0.0, rng.uniform(1, 2), rng.uniform(1, 2)])  # time, position, velocity

    def observe(self, states, sensors):
        assert np.isfinite(states).all()
        assert np.isfinite(sensors).all()
        return np.concatenate([states[:, 1:2], sensors], axis=1, dtype=np.float32)

    def reward(self, states, sensors, actions):
        return actions[:, 0].copy()

    def terminated(self, states, sensors):
        return states[:, 1] > 1.5


@pytest.fixture(autouse=True)
def _own_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to a file where it runs


def run(task, seeds, actions, threads=1):
    """Observations [T + 1, n, d] and rewards [T, n] of actions [T, n, a]."""
    batch = MujocoBatch(task, len(seeds), threads)
    observations, rewards = [batch.reset(seeds)], []
    for action in actions:
        observation, reward, _ = batch.step(action)
        observations.append(observation)
        rewards.append(reward)
    batch.close()
    return np.array(observations), np.array(rewards)


def assert_equal(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def walkers():
    """Twenty-one quadrupeds under random actions, on one thread."""
    actions = np.random.default_rng(0).uniform(-1, 1, (40, 21, 8))
    return actions, run(QuadrupedTask(), range(21), actions)


def test_threads_do_not_matter(walkers):
    actions, expected = walkers
    for threads in (2, 5):
        assert_equal(run(QuadrupedTask(), range(21), actions, threads), expected)


def test_other_members_do_not_matter(walkers):
    actions, (observations, rewards) = walkers
    some = [17, 3, 8]
    found = run(QuadrupedTask(), some, actions[:, some], threads=2)
    assert_equal(found, (observations[:, some], rewards[:, some]))
    assert len(np.unique(rewards[-1])) == 21


@pytest.mark.parametrize("warmstart", [False, True])
def test_steps_are_mj_steps_without_memory_of_the_solver(walkers, warmstart):
    actions, _ = walkers
    task = QuadrupedTask()
    if warmstart:
        task.model.opt.disableflags &= ~mujoco.mjtDisableBit.mjDSBL_WARMSTART.value
    found, _ = run(task, range(21), actions, threads=2)
    data = mujoco.MjData(task.model)
    for member in (0, 20):
        state = task.initial_state(np.random.default_rng(member))
        mujoco.mj_setState(task.model, data, state, STATE)
        for step, action in enumerate(actions[:, member]):
            data.qacc_warmstart[:] = 0
            data.ctrl[:] = action
            mujoco.mj_step(task.model, data, 5)
            mujoco.mj_getState(task.model, data, state, STATE)
            expected = task.observe(state[None], data.sensordata[None])[0]
            np.testing.assert_array_equal(found[step + 1, member], expected)


def test_a_cart_moves_as_it_must():
    observations, rewards = run(CartTask(), [5, 6], [[[0.5], [-7.0]]] * 4)
    assert observations.dtype == np.float32
    assert rewards.tolist() == [[0.5, -1.0]] * 4  # clipped
    rng = [np.random.default_rng(seed) for seed in (5, 6)]
    x, v = np.array([(r.uniform(1, 2), r.uniform(1, 2)) for r in rng]).T
    np.testing.assert_allclose(observations[0], np.stack([x, x], axis=1), rtol=1e-6)
    for observation in observations[1:]:
        for _ in range(3):
            sensor, v = x, v + 0.01 * np.array([0.5, -1.0])
            x = x + 0.01 * v
        np.testing.assert_allclose(observation, np.stack([x, sensor], axis=1), rtol=1e-6)


def test_termination_is_the_tasks():
    batch = MujocoBatch(CartTask(), 8, threads=2)
    started = batch.reset(range(8))[:, 0]
    ended = []
    for _ in range(10):
        observations, _, terminated = batch.step(np.zeros((8, 1)))
        np.testing.assert_array_equal(terminated, observations[:, 0] > 1.5)
        ended.append(terminated.sum())
    assert 0 < ended[0] < 8
    assert ended[-1] > ended[0]  # a member that has terminated is stepped on
    assert (observations[:, 0] > started).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("gear", "frame_skip"), [(1e11, 3), (1e14, 3), (1e14, 1)])
def test_a_failure_shows_where_it_is_and_nowhere_else(threads, gear, frame_skip):
    task, seeds = CartTask(gear, frame_skip), range(6)
    still = np.zeros((8, 6, 1))
    expected = run(task, seeds, still, threads)
    actions = still.copy()
    actions[0, 0] = actions[2, 1] = 1.0  # breaks the simulation
    actions[4, 4] = np.nan
    observations, rewards = run(task, seeds, actions, threads)
    failed = np.zeros((8, 6), bool)
    failed[:, 0] = failed[2:, 1] = failed[4:, 4] = True
    np.testing.assert_array_equal(np.isnan(observations[1:]).all(axis=2), failed)
    np.testing.assert_array_equal(np.isnan(rewards), failed)
    np.testing.assert_array_equal(observations[1:][~failed], expected[0][1:][~failed])
    np.testing.assert_array_equal(rewards[~failed], 0.0)


def test_a_failed_member_is_well_after_a_reset():
    batch = MujocoBatch(CartTask(gear=1e12), 2)
    first = batch.reset([0, 1])
    assert np.isnan(batch.step([[1.0], [0.0]])[1]).tolist() == [True, False]
    assert np.isnan(batch.states).any(axis=1).tolist() == [True, False]
    np.testing.assert_array_equal(batch.reset([0, 1]), first)
    assert np.isfinite(batch.step([[0.0], [0.0]])[0]).all()
    assert np.isfinite(batch.states).all()


def test_the_tasks_model_is_left_alone():
    task = CartTask()
    MujocoBatch(task, 2)
    assert task.model.opt.disableflags == 0


def test_a_generator_is_a_seed_too():
    batch = MujocoBatch(QuadrupedTask(), 2, threads=1)
    generators = [np.random.default_rng(seed) for seed in (3, 4)]
    np.testing.assert_array_equal(batch.reset([3, 4]), batch.reset(generators))
    assert (batch.reset(generators) != batch.reset([3, 4])).any(axis=1).all()


def test_threads(monkeypatch):
    monkeypatch.setenv("WNG_THREADS", "3")
    assert MujocoBatch(CartTask(), 10).threads == 3
    assert MujocoBatch(CartTask(), 10, threads=2).threads == 2
    assert MujocoBatch(CartTask(), 2).threads == 2  # no more than members
    monkeypatch.delenv("WNG_THREADS")
    monkeypatch.setattr("wng.envs.mujoco_batch.available_cores", lambda: 4)
    assert MujocoBatch(CartTask(), 10).threads == 4
    for text in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv("WNG_THREADS", text)
        with pytest.raises(ValueError, match=f"WNG_THREADS must be a positive integer.*'{text}'"):
            MujocoBatch(CartTask(), 10)


def test_mistakes_are_told():
    for number, threads in ((0, 1), (2, 0)):
        with pytest.raises(ValueError, match=f"got number={number} and threads={threads}"):
            MujocoBatch(CartTask(), number, threads)
    batch = MujocoBatch(CartTask(), 3)
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        batch.step(np.zeros((3, 1)))
    with pytest.raises(ValueError, match="one seed for each of the 3 members, got 2"):
        batch.reset([0, 1])
    batch.reset([0, 1, 2])
    for shape in ([3], [3, 2], [2, 1]):
        with pytest.raises(ValueError, match=r"must have shape \[3, 1\], got \[" + str(shape[0])):
            batch.step(np.zeros(shape))
    batch.close()
    batch.close()
    with pytest.raises(RuntimeError):
        batch.step(np.zeros((3, 1)))
