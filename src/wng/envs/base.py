"""What every vector environment is: its description, its transitions, its state."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Shaped
from numpy.typing import ArrayLike

Backend = Literal["gymnasium", "workers", "envpool"]
MOST_ENVS = 2**17  # even the smallest takes 10 kB and 0.1 ms to make


@dataclass(frozen=True)
class EnvSpec:
    """An environment's id and spaces, flattened. Plain numbers only, so it can be written to JSON.

    `observation_size` is the length of a flattened observation. `action_size` is the number of
    action dimensions, or of actions where `discrete`. The remaining `action_*` fields say how an
    action is handed to the environment. Where `replayable` is false, a state holds no actions, and
    `restore` starts fresh episodes.
    """

    id: str
    backend: Backend
    observation_size: int
    discrete: bool
    action_size: int
    replayable: bool
    max_episode_steps: int | None
    action_shape: tuple[int, ...]  # of the environment's own action; () if discrete
    action_dtype: str
    action_low: tuple[float, ...]  # empty if discrete
    action_high: tuple[float, ...]
    action_start: int  # the first of the discrete actions

    def as_taken(self, actions: np.ndarray) -> np.ndarray:
        """Actions, float [n, action_size] or whole numbers [n] from 0, as the environment's own."""
        if self.discrete:
            return actions + self.action_start
        low, high = (np.array(x, self.action_dtype) for x in (self.action_low, self.action_high))
        clipped = np.clip(actions, low, high).astype(self.action_dtype)
        return clipped.reshape(*actions.shape[:-1], *self.action_shape)


class Transition(NamedTuple):
    """One step of all environments. Where an episode ended the next one has begun already."""

    observations: Float32[np.ndarray, "n d"]  # to act on next
    rewards: Float64[np.ndarray, " n"]
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]  # false where terminated
    final_observations: Float32[np.ndarray, "n d"]  # successors: `observations` but at an end
    episode_returns: Float64[np.ndarray, " n"]  # of the episodes that ended, NaN elsewhere
    episode_lengths: Int64[np.ndarray, " n"]  # of the episodes that ended, 0 elsewhere


class EnvState(NamedTuple):
    """Unfinished episodes: their numbers and actions so far, from which they can be replayed."""

    episodes: Int64[np.ndarray, " n"]  # number of the present episode
    steps: Int64[np.ndarray, " n"]  # taken in it
    actions: Shaped[np.ndarray, "n longest ..."]  # as passed to step(), zero beyond `steps`
    observations: Float32[np.ndarray, "n d"]  # the present ones
    returns: Float64[np.ndarray, " n"]  # of the present episodes so far


class VectorEnv(Protocol):
    """`num_envs` copies of an environment that step together and begin new episodes at once.

    Actions are float [n, action_size], clipped to the bounds, or whole numbers [n] from 0.
    """

    spec: EnvSpec
    num_envs: int

    def reset(self) -> Float32[np.ndarray, "n d"]:
        """Begin the next episode everywhere (the first one at the first call)."""

    def step(self, actions: ArrayLike) -> Transition:
        """Step all environments; where an episode ends, begin the next one in the same call."""

    def state(self) -> EnvState:
        """The unfinished episodes. Needs no simulation: safe after an interrupted step."""

    def restore(self, state: EnvState) -> Float32[np.ndarray, "n d"]:
        """Rebuild the episodes by replay, or begin fresh ones if `spec.replayable` is false.

        Raises a ValueError where a replay differs from `state`; `reset` then begins the episodes
        that follow those of `state`.
        """

    def close(self) -> None:
        """Free processes and simulators; harmless when repeated."""


class Ledger:
    """Numbers, lengths, returns and actions of the present episodes: what `EnvState` holds."""

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
        """Whether the first episode has begun."""
        return bool(self.episodes[0] >= 0)

    def begin(self, episodes: np.ndarray, observations: np.ndarray) -> None:
        """Note that the given episodes begin everywhere."""
        self.episodes, self.observations = episodes, observations
        self.steps = np.zeros(self._num_envs, np.int64)
        self.returns = np.zeros(self._num_envs)

    def read(self, actions: ArrayLike) -> np.ndarray:
        """Check actions and give them the type in which they are recorded."""
        a = np.asarray(actions)
        if not self.started:
            raise RuntimeError("the environments have no episode to step: call reset() first.")
        if a.shape != self.action_shape:
            raise ValueError(
                f"actions for {self._num_envs} environments of {self._spec.id!r} must have shape "
                f"{list(self.action_shape)}, got {list(a.shape)}."
            )
        if self._spec.discrete and (
            a.dtype.kind not in "iu" or a.min() < 0 or a.max() >= self._spec.action_size
        ):
            raise ValueError(
                f"actions of {self._spec.id!r} must be whole numbers from 0 to "
                f"{self._spec.action_size - 1}, got {a.dtype} from {a.min()} to {a.max()}."
            )
        return a.astype(self._action_dtype)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Recorded actions [..., a] or [...] as the environment takes them."""
        return self._spec.as_taken(actions)

    def record(
        self,
        actions: np.ndarray,
        observations: np.ndarray,
        final_observations: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> Transition:
        """Note a step and make a `Transition` of it."""
        if self._spec.replayable:
            if self.steps.max() == self._actions.shape[1]:
                self._actions = np.concatenate([self._actions, np.zeros_like(self._actions)], 1)
            self._actions[self._rows, self.steps] = actions
        ended = terminated | truncated
        steps, returns = self.steps + 1, self.returns + rewards
        transition = Transition(
            observations=observations,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated & ~terminated,
            final_observations=final_observations,
            episode_returns=np.where(ended, returns, np.nan),
            episode_lengths=np.where(ended, steps, 0),
        )
        episodes = self.episodes + ended
        steps, returns = np.where(ended, 0, steps), np.where(ended, 0.0, returns)
        # One statement without a call: an interrupt cannot come between its parts.
        self.episodes, self.steps, self.returns, self.observations = (
            episodes,
            steps,
            returns,
            observations,
        )
        return transition

    def state(self) -> EnvState:
        """A copy of everything, for a checkpoint."""
        if not self.started:
            raise RuntimeError("the environments have no state yet: call reset() first.")
        longest = int(self.steps.max()) if self._spec.replayable else 0
        actions = self._actions[:, :longest].copy()
        actions[np.arange(longest) >= self.steps[:, None]] = 0
        return EnvState(
            episodes=self.episodes.copy(),
            steps=self.steps.copy(),
            actions=actions,
            observations=self.observations.copy(),
            returns=self.returns.copy(),
        )

    def restore(self, state: EnvState) -> None:
        """Take over a state (of as many environments of this kind)."""
        steps = np.asarray(state.steps)
        longest = int(steps.max(initial=0)) if self._spec.replayable else 0
        expected = {
            "episodes": (self._num_envs,),
            "steps": (self._num_envs,),
            "actions": (self._num_envs, longest, *self.action_shape[1:]),
            "observations": self.observations.shape,
            "returns": (self._num_envs,),
        }
        for name, shape in expected.items():
            found = np.shape(getattr(state, name))
            if found != shape and not (name == "actions" and not self._spec.replayable):
                raise ValueError(
                    f"the state does not belong to {self._num_envs} environments of "
                    f"{self._spec.id!r}: its {name} have shape {list(found)} instead of "
                    f"{list(shape)}."
                )
        self.episodes = np.array(state.episodes, np.int64)
        self.observations = np.array(state.observations, np.float32)
        self.steps, self.returns = steps.astype(np.int64), np.array(state.returns, np.float64)
        if self._spec.replayable:
            capacity = max(64, longest)
            self._actions = np.zeros(
                (self._num_envs, capacity, *self.action_shape[1:]), self._action_dtype
            )
            self._actions[:, :longest] = state.actions


def check_whole(spec: EnvSpec) -> None:
    """Raise if an interrupted step of this environment cannot be taken back by a replay."""
    if not spec.replayable:
        raise RuntimeError(
            f"a step of {spec.id!r} was interrupted and cannot be taken back: call reset(), or "
            "restore(state()), to go on with fresh episodes."
        )


def check_arguments(num_envs: Any, seed: Any) -> None:
    """Raise if the number of environments or the seed is not usable."""
    if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
        raise ValueError(f"num_envs must be a whole number, at least 1, got {num_envs!r}.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number, at least 0, got {seed!r}.")
    if seed >= 2**63:  # what JAX and NumPy take
        raise ValueError(f"seed must be below 2**63, got {seed}.")
    if num_envs > MOST_ENVS:
        raise ValueError(f"{num_envs} environments are too many: at most {MOST_ENVS} are made.")
