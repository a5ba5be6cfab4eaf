"""Specs, transitions and states of vector environments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Float64, Int64, Shaped
    from numpy.typing import ArrayLike

Backend = Literal["gymnasium", "workers", "envpool", "jax"]
MOST_ENVS = 2**17  # even the smallest environment takes 10 kB and 0.1 ms to make


@dataclass(frozen=True)
class EnvSpec:
    """Id and flattened spaces of an environment. Can be written to JSON."""

    id: str
    backend: Backend
    observation_size: int  # length of a flattened observation
    discrete: bool
    action_size: int  # number of action dimensions, or of actions if discrete
    replayable: bool  # if not, a state holds no actions and `restore` starts new episodes
    max_episode_steps: int | None
    action_shape: tuple[int, ...]  # shape of the environment's own actions, () if discrete
    action_dtype: str  # type of the environment's own actions
    action_low: tuple[float, ...]  # empty if discrete
    action_high: tuple[float, ...]  # empty if discrete
    action_start: int  # first action if discrete

    def as_taken(self, actions: np.ndarray) -> np.ndarray:
        """Convert actions, float [n, action_size] or integer [n], to the environment's own."""
        if self.discrete:
            return actions + self.action_start
        clipped = np.clip(actions, *self._bounds).astype(self.action_dtype)
        return clipped.reshape(*actions.shape[:-1], *self.action_shape)

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = (np.array(x, self.action_dtype) for x in (self.action_low, self.action_high))
        return low, high


class Transition(NamedTuple):
    """One step of all environments. Where an episode ended, the next one has already started."""

    observations: Float32[np.ndarray, "n d"]  # next ones to act on
    rewards: Float64[np.ndarray, " n"]
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]  # false where terminated
    final_observations: Float32[np.ndarray, "n d"]  # before any reset
    episode_returns: Float64[np.ndarray, " n"]  # NaN unless an episode ended
    episode_lengths: Int64[np.ndarray, " n"]  # 0 unless an episode ended


class EnvState(NamedTuple):
    """Unfinished episodes: their numbers and actions so far, which suffice to replay them."""

    episodes: Int64[np.ndarray, " n"]  # episode numbers
    steps: Int64[np.ndarray, " n"]  # steps taken so far
    actions: Shaped[np.ndarray, "n longest ..."]  # as passed to step(), zero beyond `steps`
    observations: Float32[np.ndarray, "n d"]  # current observations
    returns: Float64[np.ndarray, " n"]  # sums of rewards so far


class Ledger:
    """Records the current episodes: everything that `EnvState` holds."""

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        self._spec, self._num_envs = spec, num_envs
        self._rows = np.arange(num_envs)
        width = () if spec.discrete else (spec.action_size,)
        dtype = np.int64 if spec.discrete else np.float32
        self.action_shape, self._action_dtype = (num_envs, *width), dtype
        self._actions = np.zeros((num_envs, 64 if spec.replayable else 0, *width), dtype)
        self.episodes = np.full(num_envs, -1)
        self.observations = np.zeros((num_envs, spec.observation_size), np.float32)
        self.begin(self.episodes, self.observations)

    @property
    def started(self) -> bool:
        """Whether the first episode has started."""
        return bool(self.episodes[0] >= 0)

    def begin(self, episodes: np.ndarray, observations: np.ndarray) -> None:
        """Record the start of an episode in every environment."""
        self.episodes, self.observations = episodes, observations
        self.steps = np.zeros(self._num_envs, np.int64)
        self.returns = np.zeros(self._num_envs)

    def read(self, actions: ArrayLike) -> np.ndarray:
        """Check actions and convert them to the recorded type."""
        a = np.asarray(actions)
        if not self.started:
            raise RuntimeError("no episode has started: call reset() first.")
        if a.shape != self.action_shape:
            raise ValueError(
                f"actions for {self._num_envs} environments of {self._spec.id!r} must have shape "
                f"{list(self.action_shape)}, got {list(a.shape)}."
            )
        if self._spec.discrete and (
            a.dtype.kind not in "iu" or a.min() < 0 or a.max() >= self._spec.action_size
        ):
            raise ValueError(
                f"actions of {self._spec.id!r} must be integers from 0 to "
                f"{self._spec.action_size - 1}, got {a.dtype} from {a.min()} to {a.max()}."
            )
        return a.astype(self._action_dtype)

    def record(self, actions: np.ndarray, *outputs: np.ndarray) -> Transition:
        """Record a step and return it; `outputs` are the first five fields of a `Transition`."""
        observations, rewards, terminated, truncated, final = outputs
        if self._spec.replayable:
            if self.steps.max() == self._actions.shape[1]:
                self._actions = np.concatenate([self._actions, np.zeros_like(self._actions)], 1)
            self._actions[self._rows, self.steps] = actions
        ended = terminated | truncated
        steps, returns = self.steps + 1, self.returns + rewards
        finished = np.where(ended, returns, np.nan), np.where(ended, steps, 0)
        transition = Transition(
            observations, rewards, terminated, truncated & ~terminated, final, *finished
        )
        episodes = self.episodes + ended
        steps, returns = np.where(ended, 0, steps), np.where(ended, 0.0, returns)
        # One statement without a call, so that an interrupt cannot split it.
        now = episodes, steps, returns, observations
        self.episodes, self.steps, self.returns, self.observations = now
        return transition

    def state(self) -> EnvState:
        """Return a copy of everything, for a checkpoint."""
        if not self.started:
            raise RuntimeError("there is no state before the first episode: call reset() first.")
        longest = int(self.steps.max()) if self._spec.replayable else 0
        actions = self._actions[:, :longest].copy()
        actions[np.arange(longest) >= self.steps[:, None]] = 0
        episodes, steps = self.episodes.copy(), self.steps.copy()
        return EnvState(episodes, steps, actions, self.observations.copy(), self.returns.copy())

    def restore(self, state: EnvState) -> None:
        """Take over a state of as many environments with the same spec."""
        n, longest = self._num_envs, int(np.max(state.steps, initial=0))
        replayed = (n, longest, *self.action_shape[1:])
        actions = replayed if self._spec.replayable else np.shape(state.actions)
        shapes = (n,), (n,), actions, self.observations.shape, (n,)
        for name, found, shape in zip(state._fields, map(np.shape, state), shapes, strict=True):
            if found != shape:
                raise ValueError(
                    f"the state does not belong to {n} environments of {self._spec.id!r}: its "
                    f"{name} have shape {list(found)} instead of {list(shape)}."
                )
        self.episodes = np.array(state.episodes, np.int64)
        self.observations = np.array(state.observations, np.float32)
        self.steps = np.array(state.steps, np.int64)
        self.returns = np.array(state.returns, np.float64)
        if self._spec.replayable:
            self._actions = np.zeros((n, max(64, longest), *actions[2:]), self._action_dtype)
            self._actions[:, :longest] = state.actions


def check_arguments(num_envs: Any, seed: Any) -> None:
    """Raise a ValueError if the number of environments or the seed is invalid."""
    if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
        raise ValueError(f"num_envs must be a positive integer, got {num_envs!r}.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a non-negative integer, got {seed!r}.")
    if seed >= 2**63:  # limit of JAX and NumPy
        raise ValueError(f"seed must be below 2**63, got {seed}.")
    if num_envs > MOST_ENVS:
        raise ValueError(f"num_envs must be at most {MOST_ENVS}, got {num_envs}.")
