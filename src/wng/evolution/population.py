"""A population that is evaluated by number, on as many cores as an executor has.

Only θ, σ if it learns, the moments of observations if they are normalized, and the number of the
generation are sent, and only the outcome of the episodes comes back: the noise of a member follows
from (seed, generation, number).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from wng.envs.moments import Moments
from wng.envs.resolve import ResolvedEnv
from wng.evolution.config import EvolutionConfig
from wng.evolution.episodes import Episodes, Rows, Setup
from wng.evolution.evaluators import make_evaluator
from wng.evolution.members import Sigma, map_rows, member
from wng.evolution.policies import Policy
from wng.runs.executor import RETRIES, Executor, LostError
from wng.runs.setup import set_up_jax


def strategy_key(seed: int) -> PRNGKeyArray:
    """Derive the key of a run's strategy."""
    return jax.random.fold_in(jax.random.key(seed), 1)


class Assignment(NamedTuple):
    """What members do; can be sent to any machine."""

    env: ResolvedEnv
    config: EvolutionConfig
    setup: Setup
    seed: int
    backend: str  # the same everywhere: results depend on it


class Block:
    """Some of the members, generation after generation: makes them and runs their episodes."""

    def __init__(self, assignment: Assignment, rows: Rows):
        set_up_jax()  # where this is another process than the agent's
        self._rows, self._key = rows, strategy_key(assignment.seed)
        config = assignment.config
        self.sigma = config.sigma  # unless it learns
        self.make = _compiled(config.antithetic, assignment.setup.policy, rows)
        self.evaluator = make_evaluator(
            assignment.env, assignment.setup, rows, assignment.seed, assignment.backend
        )

    def run(
        self,
        center: Float[np.ndarray, " p"],
        sigma: Float[np.ndarray, " p"] | None,
        moments: Moments | None,
        generation: int,
    ) -> Episodes:
        """Run one episode of each member."""
        spread = self.sigma if sigma is None else sigma
        members = self.make(center, spread, self._key, generation)
        episodes = self.evaluator(members, moments, generation)
        if self._rows.center not in self._rows.members:  # then nobody needs the path
            episodes = episodes._replace(path=episodes.path[:0])
        return episodes

    def close(self) -> None:
        """Stop the environments."""
        self.evaluator.close()


@lru_cache(maxsize=8)
def _compiled(antithetic: bool, policy: Policy, rows: Rows) -> Callable[..., Any]:
    _, unravel = ravel_pytree(policy.init(jax.random.key(0)))

    @jax.jit
    def make(center: Array, sigma: Sigma, key: PRNGKeyArray, generation: Array) -> Any:
        def one(number: Array) -> Any:
            noisy = member(antithetic, key, generation, center, sigma, number)
            return unravel(jnp.where(number == rows.center, center, noisy))

        return map_rows(one)(rows.array())

    return make


class Population:
    """All members, and the center after them, in blocks of the same size, one per core."""

    def __init__(self, assignment: Assignment, executor: Executor):
        self._assignment, self._executor, self.remote = assignment, executor, executor.remote
        self._plan()

    def _plan(self) -> None:
        number = self._assignment.config.population + 1
        places = max(1, self._executor.cores()) if self._executor.remote else 1
        size = max(2, -(-number // places))
        # The last block starts early enough to be as large: all share one compiled function.
        firsts = [min(first, number - size) for first in range(0, number, size)]
        self._fresh = [k * size - first for k, first in enumerate(firsts)]
        self._rows = [Rows(first, size, center=number - 1) for first in firsts]
        self.blocks = self._place(self._rows)

    def _place(self, rows: list[Rows]) -> list[Any]:
        return self._executor.place(Block, [(self._assignment, each) for each in rows])

    def __call__(
        self, center: Array, sigma: Array | None, moments: Moments | None, generation: int
    ) -> Episodes:
        """Run one episode of each member, in the order of their numbers."""
        arrays = jax.tree.map(np.asarray, (center, sigma, moments))
        arguments = "run", *arrays, generation
        found: list[Any] = self._executor.call(self.blocks, *arguments)
        for _ in range(RETRIES):
            lost = [k for k, result in enumerate(found) if isinstance(result, LostError)]
            if not lost:
                break
            try:
                self._executor.release([self.blocks[k] for k in lost])
                new = self._place([self._rows[k] for k in lost])
                for k, block in zip(lost, new, strict=True):
                    self.blocks[k] = block
            except LostError:  # their cores are gone: distribute everything over the others
                self.close()
                self._plan()
                lost = list(range(len(self.blocks)))
                found = [LostError()] * len(lost)
            again = self._executor.call([self.blocks[k] for k in lost], *arguments)
            for k, result in zip(lost, again, strict=True):
                found[k] = result
        for result in found:
            if isinstance(result, LostError):
                raise result
        rows = [
            np.concatenate([x[fresh:] for x, fresh in zip(column, self._fresh, strict=True)])
            for column in zip(*(episodes[:-1] for episodes in found), strict=True)
        ]
        return Episodes._make([*rows, found[-1].path])

    def close(self) -> None:
        """Stop the environments."""
        self._executor.release(self.blocks)
