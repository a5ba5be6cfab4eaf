"""A population that is evaluated by number, in as many places as an executor has cores.

Only θ and the number of the generation travel there, and only returns, behaviours and where
episodes ended travel back: the noise of a member follows from (seed, generation, number).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from wng.behavior.embedding import Embedding
from wng.estimator import Damping
from wng.evolution.config import EvolutionConfig
from wng.evolution.evaluators import Episodes, Rows, make_evaluator
from wng.evolution.policies import Policy
from wng.evolution.strategy import State, Strategy
from wng.runs.executor import RETRIES, Executor, LostError


@lru_cache(maxsize=8)  # runs that differ in the seed alone share what is compiled
def shared_strategy(config: EvolutionConfig, policy: Policy) -> Strategy:
    """The strategy that a configuration describes, for the parameters of `policy`."""
    return Strategy(
        policy.init(jax.random.key(0)),
        config.population,
        config.sigma,
        proximity=config.proximity,
        geometry=config.geometry,
        learning_rate=config.learning_rate,
        shaping=config.shaping,
        max_norm=config.max_norm or None,
        delta=config.delta,
        num_basis=config.num_basis,
        damping=Damping(config.damping, relative=config.relative_damping),
        beta=config.beta,
        memory=config.memory,
        dual_features=config.dual_features,
        dual_gamma=config.dual_gamma,
        dual_steps=config.dual_steps,
        archive=config.archive,
        neighbors=config.neighbors,
    )


def strategy_key(seed: int) -> PRNGKeyArray:
    """The key of a run's strategy."""
    return jax.random.fold_in(jax.random.key(seed), 1)


class Task(NamedTuple):
    """What members do, and all that follows from it; can be sent anywhere."""

    env: str
    config: EvolutionConfig
    policy: Policy
    embedding: Embedding
    horizon: int
    seed: int


class Block:
    """Some of the members, generation after generation: makes them, and runs their episodes."""

    def __init__(self, task: Task, rows: Rows):
        self._rows, self._key = rows, strategy_key(task.seed)
        self._make = _compiled(task.config, task.policy, rows)
        self.evaluator = make_evaluator(
            task.env,
            task.policy,
            task.embedding,
            rows,
            horizon=task.horizon,
            action_noise=task.config.action_noise,
            seed=task.seed,
            backend=task.config.backend,
        )

    def run(self, center: Float[np.ndarray, " p"], generation: int) -> Episodes:
        """An episode of each."""
        episodes = self.evaluator(self._make(center, self._key, generation), generation)
        if self._rows.center not in self._rows.members:  # then nobody looks at the path
            episodes = episodes._replace(path=episodes.path[:0])
        return episodes

    def close(self) -> None:
        """Stop the environments."""
        self.evaluator.close()


@lru_cache(maxsize=8)
def _compiled(config: EvolutionConfig, policy: Policy, rows: Rows) -> Callable[..., Any]:
    strategy = shared_strategy(config, policy)

    @jax.jit
    def make(center: Array, key: PRNGKeyArray, generation: Array) -> Any:
        state = State(center, None, generation, key, None, generation)

        def member(number: Array) -> Any:
            return jax.tree.map(
                lambda noisy, still: jnp.where(number == rows.center, still, noisy),
                strategy.member(state, number),
                strategy.params(state),
            )

        return jax.vmap(member)(rows.array())

    return make


class Population:
    """All members, and the centre after them, in blocks of the same size, one a core."""

    def __init__(self, task: Task, executor: Executor):
        self._task, self._executor, self.remote = task, executor, executor.remote
        self._plan()

    def _plan(self) -> None:
        """Place the blocks, on all the cores that there are."""
        number = self._task.config.population + 1
        places = max(1, self._executor.cores()) if self._executor.remote else 1
        size = max(2, -(-number // places))  # XLA rounds a batch of one otherwise
        # The last begins early enough to have as many: what is compiled for one serves them all.
        firsts = [min(first, number - size) for first in range(0, number, size)]
        self._fresh = [k * size - first for k, first in enumerate(firsts)]
        self._rows = [Rows(first, size, center=number - 1) for first in firsts]
        self.blocks = self._place(self._rows)

    def _place(self, rows: list[Rows]) -> list[Any]:
        return self._executor.place(Block, [(self._task, each) for each in rows])

    def __call__(self, state: State, generation: int) -> Episodes:
        """One episode of each, in the order of their numbers."""
        arguments = "run", np.asarray(state.center), generation
        found = self._executor.call(self.blocks, *arguments)
        for _ in range(RETRIES):
            lost = [k for k, result in enumerate(found) if isinstance(result, LostError)]
            if not lost:
                break
            try:
                self._replace(lost)
            except LostError:  # their cores are gone: all is shared out among those that are left
                self.close()
                self._plan()
                found, lost = [None] * len(self.blocks), list(range(len(self.blocks)))
            again = self._executor.call([self.blocks[k] for k in lost], *arguments)
            for k, result in zip(lost, again, strict=True):
                found[k] = result
        return self._merged(found)

    def _replace(self, lost: list[int]) -> None:
        self._executor.release([self.blocks[k] for k in lost])
        for k, block in zip(lost, self._place([self._rows[k] for k in lost]), strict=True):
            self.blocks[k] = block

    def _merged(self, found: list[Any]) -> Episodes:
        for result in found:
            if isinstance(result, LostError):
                raise result
        rows = [
            np.concatenate([x[fresh:] for x, fresh in zip(column, self._fresh, strict=True)])
            for column in zip(*(episodes[:-1] for episodes in found), strict=True)
        ]
        returns, behaviors, lengths, final_observations = rows
        return Episodes(returns, behaviors, lengths, final_observations, found[-1].path)

    def close(self) -> None:
        """Stop the environments."""
        self._executor.release(self.blocks)
