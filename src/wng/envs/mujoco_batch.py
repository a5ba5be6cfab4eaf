"""Steps many copies of a MuJoCo task together, on all cores, with `mujoco.rollout`."""

import copy
import os
from collections.abc import Sequence
from typing import Protocol

import mujoco
import numpy as np
from jaxtyping import Bool, Float32, Float64
from mujoco.rollout import Rollout
from numpy.typing import ArrayLike

from wng.envs.workers import available_cores

States = Float64[np.ndarray, "n S"]
Sensors = Float64[np.ndarray, "n K"]
Actions = Float64[np.ndarray, "n a"]
Observations = Float32[np.ndarray, "n d"]
Rewards = Float64[np.ndarray, " n"]
Ends = Bool[np.ndarray, " n"]

STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS.value  # time, positions, velocities, ...
CHUNKS = 16  # chunks of work per thread: more add overhead, fewer leave threads idle


class MujocoTask(Protocol):
    """A MuJoCo model with initial states, observations and rewards, all in batches.

    A Gymnasium environment provides it as an attribute `mujoco_task`; `MujocoBatch` steps it. A
    step holds an action for `frame_skip` steps of the model. Sensor values belong to the last of
    these, and MuJoCo computes them before it advances the state.
    """

    model: mujoco.MjModel
    frame_skip: int
    action_size: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]

    def initial_state(self, rng: np.random.Generator) -> Float64[np.ndarray, " S"]:
        """Draw the first state (mjSTATE_FULLPHYSICS) of an episode."""

    def observe(self, states: States, sensors: Sensors) -> Observations:
        """Compute observations, in a new array."""

    def reward(self, states: States, sensors: Sensors, actions: Actions) -> Rewards:
        """Compute rewards of the clipped actions that led to these states, in a new array."""

    def terminated(self, states: States, sensors: Sensors) -> Ends:
        """Tell which of the states end an episode, in a new array."""


def default_threads() -> int:
    """Number of threads: the environment variable WNG_THREADS, or one per available core."""
    text = os.environ.get("WNG_THREADS", "")
    if not text:
        return available_cores()
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"WNG_THREADS must be a positive integer, got {text!r}.")
    return int(text)


class MujocoBatch:
    """A batch of `number` independent copies of a task, called members.

    A member's trajectory depends only on its seed and actions, bit for bit, not on the number of
    threads or the other members. Each step starts the constraint solver cold for this reason, so
    a member carries nothing but its state from one step to the next.

    If a simulation fails (a value is not finite, or exceeds 1e10) or an action is NaN, the member's
    observations and rewards are NaN until the next reset. Members keep stepping after termination
    and beyond the time limit: the caller decides when to stop.
    """

    def __init__(self, task: MujocoTask, number: int, threads: int | None = None) -> None:
        threads = default_threads() if threads is None else threads
        if number < 1 or threads < 1:
            raise ValueError(
                "a batch needs at least one member and one thread, "
                f"got number={number} and threads={threads}."
            )
        self.task, self.number, self.threads = task, number, min(threads, number)
        model = copy.copy(task.model)
        # By default, MuJoCo silently resets a failed simulation and continues.
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        self._models = [model] * number
        self._data = [mujoco.MjData(model) for _ in range(self.threads)]
        self._pool = Rollout(nthread=self.threads if self.threads > 1 else 0)
        self._chunk = -(-number // (CHUNKS * self.threads))

        self._rest = np.empty(mujoco.mj_stateSize(model, STATE))
        mujoco.mj_getState(model, self._data[0], self._rest, STATE)
        skip = task.frame_skip
        self._states = np.tile(self._rest, (number, 1))
        self._controls = np.zeros((number, skip, task.action_size))
        self._trajectories = np.zeros((number, skip, self._rest.size))
        self._sensors = np.zeros((number, skip, model.nsensordata))
        self._low, self._high = np.array(task.action_low), np.array(task.action_high)
        self._duration = skip * model.opt.timestep
        self._failed = np.zeros(number, bool)
        self._started = False

    @property
    def states(self) -> States:
        """Copy of the current states (mjSTATE_FULLPHYSICS), NaN where a simulation failed."""
        return np.where(self._failed[:, None], np.nan, self._states)

    def reset(self, seeds: Sequence[int | np.random.Generator]) -> Observations:
        """Start an episode for every member, from its own seed."""
        if len(seeds) != self.number:
            raise ValueError(
                f"reset() needs one seed for each of the {self.number} members, got {len(seeds)}."
            )
        model, data = self._models[0], self._data[0]
        for i, seed in enumerate(seeds):
            self._states[i] = self.task.initial_state(np.random.default_rng(seed))
            mujoco.mj_resetData(model, data)
            mujoco.mj_setState(model, data, self._states[i], STATE)
            mujoco.mj_forward(model, data)
            self._sensors[i, -1] = data.sensordata
        self._failed[:] = False
        self._started = True
        return self.task.observe(self._states, self._sensors[:, -1])

    def step(self, actions: ArrayLike) -> tuple[Observations, Rewards, Ends]:
        """Apply actions [n, a], clipped. Returns observations, rewards and terminations."""
        clipped = self._read(actions)
        self._fail(np.asarray(np.isnan(clipped).any(axis=1)))
        clipped[self._failed] = 0.0
        self._controls[:] = clipped[:, None]
        # Rollout stops at MuJoCo's first warning; time then stands still.
        expected = self._states[:, 0] + 0.99 * self._duration
        self._pool.rollout(
            self._models,
            self._data,
            self._states,
            self._controls,
            skip_checks=True,
            nstep=self.task.frame_skip,
            state=self._trajectories,
            sensordata=self._sensors,
            chunk_size=self._chunk,
        )
        self._states[:] = self._trajectories[:, -1]
        sound = np.abs(self._states).max(axis=1) < mujoco.mjMAXVAL
        self._fail(~sound | (self._states[:, 0] < expected))

        sensors = self._sensors[:, -1]
        observations = self.task.observe(self._states, sensors)
        rewards = self.task.reward(self._states, sensors, clipped)
        terminated = self.task.terminated(self._states, sensors)
        observations[self._failed] = rewards[self._failed] = np.nan
        terminated[self._failed] = False
        return observations, rewards, terminated

    def close(self) -> None:
        """Stop the threads. Can be called more than once."""
        self._pool.close()

    def _read(self, actions: ArrayLike) -> Actions:
        given = np.asarray(actions, np.float64)
        if given.shape != (self.number, self.task.action_size):
            raise ValueError(
                f"actions of this batch must have shape {[self.number, self.task.action_size]}, "
                f"got {list(given.shape)}."
            )
        if not self._started:
            raise RuntimeError("no episode has started: call reset() first.")
        return np.clip(given, self._low, self._high)

    def _fail(self, members: Ends) -> None:
        # At rest from now on, so that no NaN enters the simulation.
        self._failed |= members
        self._states[self._failed] = self._rest
        self._sensors[self._failed] = 0.0
