"""The vector environment, on top of a runner that steps the environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from wng.envs.base import EnvSpec, EnvState, Ledger, Transition
from wng.envs.worker import Buffers, EnvFailedError, EnvSlice

if TYPE_CHECKING:
    from jaxtyping import Float32
    from numpy.typing import ArrayLike


class Runner(Protocol):
    """Steps the environments: in this process, in workers or in EnvPool."""

    buffers: Buffers

    def run(self, command: str, *arrays: np.ndarray) -> None:
        """Run 'reset', 'step' or 'restore'; see the methods of `EnvSlice`."""

    def close(self) -> None:
        """Free everything."""


class LocalRunner:
    """Runs all environments in this process."""

    def __init__(
        self, spec: EnvSpec, gym_spec: Any, num_envs: int, seed: int, offset: int, once: bool
    ) -> None:
        self.buffers = Buffers.local(spec, num_envs)
        self._environments = EnvSlice(gym_spec, seed, 0, self.buffers, offset, once)
        self.close = self._environments.close

    def run(self, command: str, *arrays: np.ndarray) -> None:
        """Call a method of `EnvSlice`."""
        getattr(self._environments, command)(*arrays)


class ReplayError(ValueError):
    """Unfinished episodes cannot be replayed; `reset` continues with new ones."""


class VectorEnv:
    """`num_envs` copies of an environment that step together and reset themselves.

    Actions are float [n, action_size], clipped to the bounds, or integer [n] from 0.

    Every episode of a Gymnasium environment starts with `reset(seed=…)`. The seed derives from the
    run's seed, the index of the environment and the number of the episode, so results do not
    depend on the runner, and unfinished episodes can be replayed.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, runner: Runner) -> None:
        self.spec, self.num_envs = spec, num_envs
        self._runner, self._ledger = runner, Ledger(spec, num_envs)
        self._closed = False
        self._whole = True  # the environments agree with the ledger

    def reset(self, episode: int | None = None) -> Float32[np.ndarray, "n d"]:
        """Start the next episode in every environment, or the one with the given number."""
        self._check_open()
        episodes = self._ledger.episodes + 1
        if episode is not None:
            episodes[:] = episode
        self._runner.buffers.episodes[:] = episodes
        self._run("reset")
        return self._begin(episodes)

    def step(self, actions: ArrayLike) -> Transition:
        """Step all environments; where an episode ends, start the next one in the same call.

        (Those that were made with `once` wait for `reset` instead.)
        """
        self._check_open()
        taken = self._ledger.read(actions)
        if not self._whole:  # a step was interrupted, for example by Ctrl-C in a notebook
            if not self.spec.replayable:
                raise RuntimeError(
                    f"a step of {self.spec.id!r} was interrupted and cannot be undone: call "
                    "reset(), or restore(state()), to continue with new episodes."
                )
            self.restore(self.state())
        b = self._runner.buffers
        b.episodes[:] = self._ledger.episodes
        b.actions[:] = self.spec.as_taken(taken)
        self._run("step")
        outputs = b.observations, b.rewards, b.terminated, b.truncated, b.final_observations
        transition = self._ledger.record(taken, *(array.copy() for array in outputs))
        self._whole = True
        return transition

    def state(self) -> EnvState:
        """Return the unfinished episodes. Does not simulate: safe after an interrupted step."""
        return self._ledger.state()

    def restore(self, state: EnvState) -> Float32[np.ndarray, "n d"]:
        """Replay the episodes of `state`, or start the next ones if `spec.replayable` is false.

        Raises:
          ValueError: If a replay differs from `state`. `reset` then starts the episodes that
            follow those of `state`.
        """
        self._check_open()
        self._ledger.restore(state)
        b = self._runner.buffers
        b.episodes[:] = self._ledger.episodes + (not self.spec.replayable)
        steps = self._ledger.steps * self.spec.replayable
        self._run("restore", steps, self.spec.as_taken(np.asarray(state.actions)))
        if not self.spec.replayable:
            return self._begin(b.episodes.copy())
        same = _same(b.observations, state.observations).all(axis=1)
        same &= _same(b.rewards, state.returns)
        if not same.all():
            i = int(np.argmin(same))
            raise ReplayError(
                f"cannot replay the unfinished episodes of {self.spec.id!r}, because environment "
                f"{i} differs after {int(state.steps[i])} actions: the simulator is not "
                "deterministic, or the seed, the machine or a version has changed."
            )
        self._whole = True
        return self._ledger.observations.copy()

    def close(self) -> None:
        """Free processes and simulators. Can be called more than once."""
        if not self._closed:
            self._closed = True
            self._runner.close()

    def _begin(self, episodes: np.ndarray) -> np.ndarray:
        self._ledger.begin(episodes, self._runner.buffers.observations.copy())
        self._whole = True
        return self._ledger.observations.copy()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"the environments of {self.spec.id!r} are closed: make new ones.")

    def _run(self, command: str, *arguments: np.ndarray) -> None:
        self._whole = False
        try:
            self._runner.run(command, *arguments)
        except EnvFailedError as error:
            i = error.index
            episode, steps = int(self._ledger.episodes[i]), int(self._ledger.steps[i])
            where = {
                "reset": f"at the start of episode {episode + 1}",
                "step": f"at step {steps + 1} of episode {episode}",
                "restore": f"in the replay of episode {episode}",
            }[command]
            raise RuntimeError(
                f"environment {i} of {self.spec.id!r} failed {where}: {error.message}"
            ) from error


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) | (np.isnan(a) & np.isnan(b))
