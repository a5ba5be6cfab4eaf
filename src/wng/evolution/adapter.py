"""Adapters to evosax: our strategies in code for evosax, and its problems for our strategies."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from wng.evolution.generation import Metrics
from wng.evolution.state import State
from wng.evolution.strategy import Strategy


def flat_members(population: Any) -> Float[Array, "N p"]:
    """Return the parameters of each member as one vector: the behavior x."""
    return jax.vmap(lambda tree: ravel_pytree(tree)[0])(population)


class EvosaxAdapter:
    """A strategy that minimizes, with the methods of an evosax algorithm.

    All methods are pure functions, for `jit`, `vmap` and `scan`.

    Args:
      strategy: Any strategy, such as `wng.WSNES(solution, population=50)`.
      behavior_fn: Function from the population to behaviors [N, d]. The default returns the
        parameters.
    """

    default_params = None  # settings belong to the strategy

    def __init__(
        self, strategy: Strategy, behavior_fn: Callable[[Any], Float[Array, "N d"]] = flat_members
    ):
        self.strategy, self.behavior_fn = strategy, behavior_fn
        self.population_size = strategy.config.population

    def init(self, key: PRNGKeyArray, mean: Any, params: Any = None) -> State:
        """Return the state before the first generation, with θ at `mean`.

        `key` determines all random numbers; the keys of `ask` and `tell` are not used.
        """
        copies = jax.tree.map(lambda x: jnp.stack([x] * self.population_size), mean)
        size = jax.eval_shape(self.behavior_fn, copies).shape[1]
        return self.strategy.init(key, size, mean)

    def ask(self, key: PRNGKeyArray, state: State, params: Any = None) -> tuple[Any, State]:
        """Return the members of this generation, and the state."""
        return self.strategy.ask(state)

    def tell(
        self,
        key: PRNGKeyArray,
        population: Any,
        fitness: Float[Array, " N"],
        state: State,
        params: Any = None,
    ) -> tuple[State, Metrics]:
        """Move θ toward members of low fitness; return the state, and metrics of the generation."""
        behaviors = self.behavior_fn(population) if self.strategy.needs_behaviors else None
        state, metrics = self.strategy.tell(state, population, -jnp.asarray(fitness), behaviors)
        return state, metrics | {"best_fitness": -state.best_return}

    def get_mean(self, state: State) -> Any:
        """Return θ as a pytree."""
        return self.strategy.params(state)


class EvosaxProblem:
    """A problem of evosax, such as `BBOBProblem("rastrigin", 10)`, for the strategies of wng.

    All methods are pure functions, for `jit`, `vmap` and `scan`.

    Args:
      problem: Any object with the methods `init` and `eval` of an evosax problem.
      behavior_fn: Function from the population to behaviors [N, d]. The default returns the
        parameters.
      maximize: Whether high values are good, as in evosax's reinforcement-learning problems.
    """

    def __init__(
        self,
        problem: Any,
        behavior_fn: Callable[[Any], Float[Array, "N d"]] = flat_members,
        maximize: bool = False,
    ):
        self.problem, self.behavior_fn = problem, behavior_fn
        self.sign = 1.0 if maximize else -1.0

    def init(self, key: PRNGKeyArray) -> Any:
        """Return the state of the problem before the first generation."""
        return self.problem.init(key)

    def evaluate(
        self, key: PRNGKeyArray, candidates: Any, state: Any
    ) -> tuple[Float[Array, " N"], Float[Array, "N d"], Any]:
        """Evaluate candidates; return returns and behaviors for `tell`, and the problem's state."""
        values, state, _ = self.problem.eval(key, candidates, state)
        return self.sign * values, self.behavior_fn(candidates), state
