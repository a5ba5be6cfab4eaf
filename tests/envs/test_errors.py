"""Errors are one sentence that says what to do, not a traceback or a hang."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from killing import running

from wng.envs import EnvState, VectorEnv, make, resolve
from wng.envs.make import workers_are_faster
from wng.envs.workers import WorkerRunner

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Hoper-v5", "there is no environment 'Hoper-v5': did you mean 'Hopper-v5'?"),
        ("hopper-v5", "there is no environment 'hopper-v5': did you mean 'Hopper-v5'?"),
        ("Hopper-v7", "there is no environment 'Hopper-v7': did you mean 'Hopper-v5'?"),
        ("ProbeConstant-v0", "no environment 'ProbeConstant-v0': did you mean 'wng/Probe"),
        ("Zzzzzz-v0", "no environment 'Zzzzzz-v0': if another package registers it, name that"),
        ("no_module:Foo-v0", "cannot import the module 'no_module' of the environment id 'no_mod"),
        ("custom_envs:Foo-v0", "there is no environment 'custom_envs:Foo-v0'"),
        ("", "env must be an environment id"),
        (5, "env must be an environment id"),
        ("FrozenLake-v1", "'FrozenLake-v1' has observations of Discrete(16), but only Box"),
        ("custom_envs:DictObservations-v0", "has observations of Dict('a': Box(-1.0, 1.0, (2,)"),
        ("custom_envs:ManyActions-v0", "has actions of MultiDiscrete([2 3]), but only Box and"),
        ("custom_envs:Broken-v0", "cannot make 'custom_envs:Broken-v0': AttributeError"),
    ],
)  # fmt: skip
def test_ids_and_spaces(env_id, message):
    with pytest.raises(ValueError, match=r".") as error:
        resolve(env_id)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_old_versions():
    for env_id in ("Hopper-v2", "Hopper-v3"):
        with pytest.raises(ValueError, match=f"'{env_id}' is no longer part.*use 'Hopper-v5'"):
            resolve(env_id)
    assert resolve("CartPole-v0").spec.max_episode_steps == 200


@pytest.mark.filterwarnings("ignore:.*latest versioned:UserWarning")
def test_ids_are_completed():
    assert resolve("CartPole", "gymnasium").spec.id == "CartPole-v1"
    assert resolve("custom_envs:Class-v0").spec.id == "custom_envs:Class-v0"


def test_missing_packages(monkeypatch):
    def missing(*args, **kwargs):
        raise gymnasium.error.DependencyNotInstalled('run `pip install "gymnasium[box2d]"`')

    with monkeypatch.context() as patch:
        patch.setattr(gymnasium, "make", missing)
        with pytest.raises(ValueError, match=r"needs a package.*pip install 'gymnasium\[box2d\]'"):
            resolve("LunarLander-v3")
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ValueError, match=r"needs PyBullet: pip install 'wng\[pybullet\]'"):
            resolve("HopperBulletEnv-v0")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "envpool", None)
        assert resolve("CartPole-v1").spec.backend == "gymnasium"
        with pytest.raises(ValueError, match=r"pip install 'wng\[envpool\]'"):
            resolve("CartPole-v1", "envpool")


def test_arguments():
    with pytest.raises(ValueError, match="num_envs must be a positive integer, got 0"):
        make("CartPole-v1", 0, 0)
    with pytest.raises(ValueError, match="seed must be a non-negative integer, got -1"):
        make("CartPole-v1", 1, -1)
    with pytest.raises(ValueError, match="backend 'threads' is unknown"):
        make("CartPole-v1", 1, 0, "threads")


def test_actions_and_states():
    env = make("CartPole-v1", 2, 0, "gymnasium")
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        env.step(np.array([0, 1]))
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        env.state()
    env.reset()
    with pytest.raises(ValueError, match=r"must have shape \[2\], got \[3\]"):
        env.step(np.array([0, 1, 0]))
    with pytest.raises(ValueError, match="integers from 0 to 1, got int64 from 0 to 2"):
        env.step(np.array([0, 2]))
    with pytest.raises(ValueError, match="integers from 0 to 1, got float64"):
        env.step(np.array([0.0, 1.0]))
    other = make("CartPole-v1", 3, 0, "gymnasium")
    other.reset()
    with pytest.raises(ValueError, match=r"not belong to 2 environments of 'CartPole-v1': its epi"):
        env.restore(other.state())
    state = other.state()
    with pytest.raises(ValueError, match=r"its observations have shape \[3, 5\]"):
        other.restore(EnvState(*state[:3], np.zeros((3, 5), np.float32), state.returns))
    seeded = make("CartPole-v1", 3, 1, "gymnasium")
    with pytest.raises(ValueError, match=r"cannot replay .* of 'CartPole-v1'.*the seed"):
        seeded.restore(state)
    env.close()
    with pytest.raises(RuntimeError, match="'CartPole-v1' are closed"):
        env.step(np.array([0, 1]))


@pytest.mark.parametrize("backend", ["gymnasium", "workers"])
def test_an_environment_that_fails(backend):
    env = make("custom_envs:Fails-v0", 4, 0, backend)
    env.reset()
    env.step(np.zeros((4, 1)))
    env.step(np.zeros((4, 1)))
    before = env.state()
    with pytest.raises(
        RuntimeError, match=r"environment 3 of 'custom_envs:Fails-v0' failed at "
    ) as e:
        env.step(np.array([[0], [0], [0], [1]]))
    assert str(e.value).endswith("at step 3 of episode 0: ArithmeticError: bad luck")
    # The failed step leaves no trace: the state is the one before it, and training can continue.
    for x, y in zip(before, env.state(), strict=True):
        np.testing.assert_array_equal(x, y)
    assert env.step(np.zeros((4, 1))).rewards.tolist() == [1] * 4
    assert env.state().steps.tolist() == [3] * 4
    env.close()


def processes(env: VectorEnv) -> list[subprocess.Popen[bytes]]:
    assert isinstance(env._runner, WorkerRunner)
    return env._runner._processes


def test_a_worker_that_is_killed():
    env = make("CartPole-v1", 4, 0, "workers")
    env.reset()
    workers = list(processes(env))
    last = len(workers) - 1
    workers[last].kill()
    workers[last].wait()
    message = rf"worker {last}, with environments \d to 3 of 'CartPole-v1', was killed by signal 9"
    with pytest.raises(RuntimeError, match=message):
        env.step(np.zeros(4, int))
    assert all(w.poll() is not None for w in workers)
    env.close()


def test_a_worker_that_is_killed_while_awaited():
    env = make("CartPole-v1", 4, 0, "workers")
    env.reset()
    worker = processes(env)[0]
    os.kill(worker.pid, signal.SIGSTOP)
    timer = threading.Timer(0.3, worker.kill)
    timer.start()
    with pytest.raises(
        RuntimeError, match=r"worker 0, with environments 0 to .* killed by signal 9"
    ):
        env.step(np.zeros(4, int))
    timer.join()


def test_an_environment_that_exits_the_worker():
    env = make("custom_envs:Exits-v0", 2, 0, "workers")
    env.reset()
    with pytest.raises(RuntimeError, match=r"worker 0, .*'custom_envs:Exits-v0', exited \(3\)"):
        env.step(np.array([[1], [0]]))


def test_what_workers_cannot_make(monkeypatch):
    with pytest.raises(
        ValueError, match="'custom_envs:Lambda-v0' cannot run in worker processes: its"
    ):
        make("custom_envs:Lambda-v0", 2, 0, "workers")
    import custom_envs

    with monkeypatch.context() as patch:
        patch.setattr(custom_envs.EndsBothWays, "__module__", "__main__")
        with pytest.raises(ValueError, match="defined in the running script"):
            make("custom_envs:Class-v0", 2, 0, "workers")
    monkeypatch.setattr(sys, "path", [p for p in sys.path if Path(p or ".").resolve() != HERE])
    with pytest.raises(ValueError, match=r"in a worker process.*use backend='gymn"):
        make("custom_envs:Exits-v0", 2, 0, "workers")


SCRIPT = """
import os, sys, numpy as np, wng.envs
env = wng.envs.make("CartPole-v1", 4, 0, "workers")  # without an `if __name__ == "__main__"`
env.reset()
print("ready", *(p.pid for p in env._runner._processes), flush=True)
try:
    while True:
        env.step(np.zeros(4, int))
except KeyboardInterrupt:
    state = env.state()
    env.step(np.zeros(4, int))  # undoes what the interrupt left
    assert (env.state().episodes + env.state().steps > state.episodes).all()
    print("interrupted", flush=True)
    {ending}
"""


@pytest.mark.parametrize("ending", ["env.close()", "", "sys.stdin.read()"])
def test_interrupt_and_exit_leave_nothing_behind(ending):
    script = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SCRIPT.format(ending=ending)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert script.stdout is not None
    pids = [int(p) for p in script.stdout.readline().split()[1:]]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGINT)  # workers ignore it
    time.sleep(0.2)
    script.send_signal(signal.SIGINT)
    assert script.stdout.readline() == "interrupted\n"
    if "stdin" in ending:
        script.kill()  # without cleanup
    _, errors = script.communicate(timeout=20)
    assert errors == ""
    deadline = time.monotonic() + 10
    while any(running(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker outlives its parent"
        time.sleep(0.05)


def test_auto_chooses_workers_where_they_are_faster(monkeypatch):
    module = sys.modules["wng.envs.make"]
    monkeypatch.setattr(module, "workers_are_faster", lambda seconds, num_envs: num_envs > 2)
    monkeypatch.setattr(sys.modules["wng.envs.resolve"], "available_cores", lambda: 2)
    resolved = resolve("custom_envs:Class-v0")
    for env_id in ("custom_envs:Class-v0", resolved):
        for num_envs, backend in ((2, "gymnasium"), (3, "workers")):
            env = make(env_id, num_envs, 0)
            assert env.spec.backend == backend
            env.close()
    env = make("custom_envs:Lambda-v0", 3, 0)  # cannot run in workers
    assert env.spec.backend == "gymnasium"
    env.close()


def test_workers_are_faster_for_slow_environments(monkeypatch):
    monkeypatch.setattr(sys.modules["wng.envs.make"], "available_cores", lambda: 2)
    assert not workers_are_faster(2e-3, 1)
    assert workers_are_faster(2e-3, 8)
    assert not workers_are_faster(2e-5, 8)
    monkeypatch.setattr(sys.modules["wng.envs.make"], "available_cores", lambda: 1)
    assert not workers_are_faster(2e-3, 8)
