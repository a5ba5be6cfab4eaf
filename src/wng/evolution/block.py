"""Seeds side by side: the generations of several runs as one vmapped program."""

import time
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from wng.evolution.evaluators import JaxEvaluator, read_episodes
from wng.evolution.population import Block
from wng.evolution.trainer import EvolutionTrainer
from wng.runs.record import Row
from wng.runs.stack import Stack
from wng.runs.training import NonFiniteError


class EvolutionBlock:
    """Trainers that differ in seeds alone, in one JAX environment.

    A trainer's results depend on the number of trainers, through rounding, and on its place among
    them, but not on what the others do.
    """

    def __init__(self, trainers: Sequence[EvolutionTrainer]):
        members = [each.population.blocks[0] for each in trainers]
        here = all(isinstance(each, Block) for each in members)
        if (
            not here
            or not all(isinstance(each.evaluator, JaxEvaluator) for each in members)
            or any(each.config != trainers[0].config for each in trainers)
            or len({(each.make, each.evaluator.program) for each in members}) > 1
        ):
            raise ValueError(
                "seeds can only be trained side by side in one JAX environment with one method."
            )
        self.trainers, self._members = list(trainers), members
        for each in trainers:
            each.block = [other.seed for other in trainers]
        self._keys = jnp.stack([each.evaluator.key for each in members])
        self._run = _side_by_side(members[0].make, members[0].evaluator.program)
        self._stack = Stack()

    def iterate(self, wanted: Collection[int]) -> list[Row | Exception | None]:
        """One generation of the `wanted` trainers; their rows of metrics, or why they failed.

        The others are computed too, since the program is for all, but they do not move on.
        """
        start, number = time.perf_counter(), len(self.trainers)
        states = self._stack.join([each.state.strategy for each in self.trainers])
        seen = [each.state.observation_moments for each in self.trainers]
        moments = jax.tree.map(lambda *rows: jnp.stack(rows), *seen)
        sigma = states.sigma
        if sigma is None:
            sigma = np.full(number, self._members[0].sigma, np.float32)
        generations = np.array([each.iteration for each in self.trainers])
        seeds = states.center, sigma, moments, states.key, self._keys, generations
        found = self._run(self._members[0].evaluator.action_noise, *seeds)
        found = jax.device_get(found)
        evaluated = time.perf_counter()
        episodes = [read_episodes(jax.tree.map(lambda x, i=i: x[i], found)) for i in range(number)]
        returns, behaviors = (x[:, :-1] for x in found[:2])
        told, metrics = self.trainers[0].strategy.tell_block(states, returns, behaviors)
        metrics = jax.device_get(metrics)
        pieces = self._stack.split(told, number)
        seconds = {
            "seconds": (time.perf_counter() - start) / len(wanted),
            "seconds_episodes": (evaluated - start) / len(wanted),
        }
        rows: list[Row | Exception | None] = [None] * number
        for i in wanted:
            own = {name: values[i] for name, values in metrics.items()}
            try:
                rows[i] = self.trainers[i].accept(episodes[i], pieces[i], own) | seconds
            except NonFiniteError as error:
                rows[i] = error
        return rows


@lru_cache(maxsize=8)
def _side_by_side(make: Callable[..., Any], run: Callable[..., tuple]) -> Callable[..., tuple]:
    """One generation of several runs: members are made, and their episodes run."""

    def one(
        action_noise: float,
        center: Array,
        sigma: Array,
        moments: Any,
        key: PRNGKeyArray,
        episodes: PRNGKeyArray,
        generation: Array,
    ) -> tuple:
        key_now = jax.random.fold_in(episodes, generation)
        return run(make(center, sigma, key, generation), moments, key_now, action_noise)

    return jax.jit(jax.vmap(one, (None, *[0] * 6)))
