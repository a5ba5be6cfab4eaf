"""Gymnasium environments whose episodes are seeded one by one, so that they can be replayed."""

from typing import Any, Protocol

import numpy as np
from jaxtyping import Float32
from numpy.typing import ArrayLike

from wng.envs.base import EnvSpec, EnvState, Ledger, Transition, check_whole
from wng.envs.worker import Buffers, EnvFailedError, EnvSlice, buffer_bytes


class Runner(Protocol):
    """Who steps the environments: this process, or workers."""

    buffers: Buffers

    def reset(self) -> None:
        """See `EnvSlice`."""

    def step(self) -> None:
        """See `EnvSlice`."""

    def restore(self, steps: np.ndarray, actions: np.ndarray) -> None:
        """See `EnvSlice`."""

    def close(self) -> None:
        """Free everything; harmless when repeated."""


class LocalRunner:
    """All environments in this process."""

    def __init__(self, spec: EnvSpec, gym_spec: Any, num_envs: int, seed: int, offset: int) -> None:
        layout = Buffers.layout(
            num_envs, spec.observation_size, spec.action_shape, spec.action_dtype
        )
        self.buffers = Buffers.over(bytearray(buffer_bytes(layout)), layout)
        self._environments = EnvSlice(gym_spec, seed, 0, self.buffers, offset)
        self.reset, self.step = self._environments.reset, self._environments.step
        self.restore, self.close = self._environments.restore, self._environments.close


class SeededVectorEnv:
    """A `VectorEnv` of Gymnasium environments.

    The n-th episode of an environment begins with reset(seed=…), a seed that derives from the run's
    seed, the environment's index and n alone. The results are hence the same whoever runs it.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, runner: Runner) -> None:
        self.spec, self.num_envs = spec, num_envs
        self._runner, self._ledger = runner, Ledger(spec, num_envs)
        self._closed = False
        self._whole = True  # the environments are where the ledger says

    def reset(self, episode: int | None = None) -> Float32[np.ndarray, "n d"]:
        """Begin the next episode everywhere (the first one at the first call), or this one."""
        self._check_open()
        episodes = self._ledger.episodes + 1
        if episode is not None:
            episodes[:] = episode
        self._runner.buffers.episodes[:] = episodes
        self._run("reset")
        self._ledger.begin(episodes, self._runner.buffers.observations.copy())
        self._whole = True
        return self._ledger.observations.copy()

    def step(self, actions: ArrayLike) -> Transition:
        """Step all environments; where an episode ends, begin the next one in the same call."""
        self._check_open()
        taken = self._ledger.read(actions)
        if not self._whole:  # a step was interrupted, by Ctrl-C in a notebook for example
            check_whole(self.spec)
            self.restore(self.state())
        b = self._runner.buffers
        b.episodes[:] = self._ledger.episodes
        b.actions[:] = self._ledger.to_env(taken)
        self._run("step")
        transition = self._ledger.record(taken, *(array.copy() for array in b[1:6]))
        self._whole = True
        return transition

    def state(self) -> EnvState:
        """The unfinished episodes. Needs no simulation: safe after an interrupted step."""
        return self._ledger.state()

    def restore(self, state: EnvState) -> Float32[np.ndarray, "n d"]:
        """Rebuild the episodes by replay; see `VectorEnv.restore`."""
        self._check_open()
        self._ledger.restore(state)
        if not self.spec.replayable:
            return self.reset()
        b = self._runner.buffers
        b.episodes[:] = self._ledger.episodes
        self._run("restore", self._ledger.steps, self._ledger.to_env(np.asarray(state.actions)))
        same = np.all((b.observations == state.observations) | _both_nan(b, state), axis=1)
        same &= (b.rewards == state.returns) | (np.isnan(b.rewards) & np.isnan(state.returns))
        if not same.all():
            i = int(np.argmin(same))
            raise ValueError(
                f"the unfinished episodes of {self.spec.id!r} cannot be rebuilt: environment {i} "
                f"arrives elsewhere after replaying {int(state.steps[i])} actions, so the "
                "simulator is not deterministic, or the seed, the machine or a version is not "
                "that of the saved state; call reset() to go on with fresh episodes."
            )
        self._whole = True
        return self._ledger.observations.copy()

    def close(self) -> None:
        """Free processes and simulators; harmless when repeated."""
        self._closed = True
        self._runner.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"the environments of {self.spec.id!r} have been closed.")

    def _run(self, command: str, *arguments: np.ndarray) -> None:
        self._whole = False
        try:
            getattr(self._runner, command)(*arguments)
        except EnvFailedError as error:
            i, ledger = error.index, self._ledger
            where = {
                "reset": f"at the start of episode {int(ledger.episodes[i]) + 1}",
                "step": f"at step {int(ledger.steps[i]) + 1} of episode {int(ledger.episodes[i])}",
                "restore": f"in the replay of episode {int(ledger.episodes[i])}",
            }[command]
            raise RuntimeError(
                f"environment {i} of {self.spec.id!r} failed {where}: {error.message}"
            ) from error


def _both_nan(b: Buffers, state: EnvState) -> np.ndarray:
    return np.isnan(b.observations) & np.isnan(state.observations)
