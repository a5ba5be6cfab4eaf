"""Seeds side by side: the iterations of several trainers as one vmapped program."""

import time
from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from wng.policy_gradient.compiled import CompiledRollouts
from wng.policy_gradient.rollouts import Iteration
from wng.policy_gradient.trainer import Trainer
from wng.runs.record import Row
from wng.runs.stack import Stack
from wng.runs.training import NonFiniteError


class TrainerBlock:
    """Trainers that differ in seeds and numbers alone, in one JAX environment.

    A trainer's results depend on the number of trainers, through rounding, and on its place among
    them, but not on what the others do.
    """

    def __init__(self, trainers: Sequence[Trainer]):
        rollouts = [each.rollouts for each in trainers]
        compiled = [each for each in rollouts if isinstance(each, CompiledRollouts)]
        if len(compiled) < len(rollouts) or len({id(each.program) for each in compiled}) > 1:
            raise ValueError(
                "seeds can only be trained side by side in one JAX environment with one method."
            )
        self.trainers, self._rollouts = list(trainers), compiled
        for each in trainers:
            each.block = [other.seed for other in trainers]
        self._env_keys = jnp.stack([each.key for each in compiled])
        self._stack = Stack()

    def iterate(self, wanted: Collection[int]) -> list[Row | Exception | None]:
        """One iteration of the `wanted` trainers; their rows of metrics, or why they failed.

        The others are computed too, since the program is for all, but they do not move on.
        """
        start = time.perf_counter()
        begun = [each.begin() for each in self.trainers]
        keys = jax.tree.map(lambda *rows: jnp.stack(rows), *(keys for *_, keys, _ in begun))
        states = self._stack.join([(state, at) for state, at, *_ in begun])
        program = self._rollouts[0].program
        state, at, metrics, outcome = program.iterate_block(*states, self._env_keys, keys)
        metrics, outcome = jax.device_get((metrics, outcome))
        seconds = (time.perf_counter() - start) / len(wanted)
        pieces = self._stack.split((state, at), len(self.trainers))
        rows: list[Row | Exception | None] = [None] * len(self.trainers)
        for i in wanted:
            trainer = self.trainers[i]
            own_metrics, own = jax.tree.map(lambda x, i=i: x[i], (metrics, outcome))
            try:
                ended = self._rollouts[i].ended(own, trainer.steps)
                own_state, own_env = pieces[i]
                done = Iteration(own_state, own_env, own_metrics, ended, np.nan, np.nan)
                rows[i] = trainer.accept(done, seconds)
            except NonFiniteError as error:
                rows[i] = error
        return rows
