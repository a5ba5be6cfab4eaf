"""Proximities: how far the behavior of a member is from earlier ones.

A strategy maximizes (1 − β)·return + β·distance, each standardized over the population. The
distance is

* novelty (NSR-ES, Conti et al. 2018): the mean distance to the nearest neighbors in an archive of
  past behaviors;
* wasserstein (BGES, Pacchiano et al. 2020): the test function f of the Wasserstein distance
  between the population's behaviors and those of the last few populations, at the member's
  behavior. f(x) is what x contributes to the distance.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from wng.behavior.distance import (
    Potentials,
    dual_ascent,
    dual_value,
    random_features,
    squared_distances,
    stochastic_ascent,
)
from wng.estimator.shuffle import shuffled
from wng.evolution.config import StrategyConfig
from wng.evolution.fitness import Sample, standardized

SAMPLE = 4  # members that the distance is reported on, in batches of `dual_batch`
Fitness = tuple[Float[Array, " N"], Float[Array, ""], Any]


class Keys(NamedTuple):
    """Random keys of a proximity."""

    fixed: PRNGKeyArray  # the same in all generations
    fresh: PRNGKeyArray  # a new one in each generation


class Proximity:
    """No proximity: the fitness is the return. Base class of all proximities."""

    needs_behaviors = False

    def empty(self, config: StrategyConfig, dim: int) -> Any:
        """Make the empty memory of past behaviors, a pytree; behaviors have length `dim`."""
        return None

    def memory_size(self, config: StrategyConfig, dim: int) -> dict[str, int]:
        """Count the numbers in memory, by the setting to lower if they are too many."""
        return {}

    def fitness(self, config: StrategyConfig, past: Any, keys: Keys, sample: Sample) -> Fitness:
        """Return the fitness of each member, the distance to the past, and the updated memory."""
        return sample.returns, jnp.zeros(()), past


def mixed(config: StrategyConfig, sample: Sample, each: Float[Array, " N"]) -> Float[Array, " N"]:
    """Compute (1 − β)·return + β·distance from the distance of each member."""
    return (1 - config.beta) * sample.returns + config.beta * standardized(each, sample.kept)


class Archive(NamedTuple):
    """Behaviors of past populations, one of each; the oldest is overwritten first."""

    behaviors: Float[Array, "A d"]
    added: Int[Array, ""]  # total, may exceed the capacity

    def add(self, behavior: Float[Array, " d"]) -> "Archive":
        """Return the archive with one more behavior."""
        place = self.added % self.behaviors.shape[0]
        return Archive(self.behaviors.at[place].set(behavior), self.added + 1)


class _Novelty(Proximity):
    """Novelty: the mean distance to the nearest behaviors in an `Archive`."""

    needs_behaviors = True

    def empty(self, config: StrategyConfig, dim: int) -> Archive:
        return Archive(jnp.zeros((config.archive, dim)), jnp.zeros((), int))

    def memory_size(self, config: StrategyConfig, dim: int) -> dict[str, int]:
        return {f"archive={config.archive}": config.archive * dim}

    def compare(self, config: StrategyConfig, past: Archive, X: Float[Array, "N d"]) -> Array:
        """Compute the novelty of each behavior; 0 if the archive is empty."""
        size = past.behaviors.shape[0]
        distances = jnp.sqrt(squared_distances(X, past.behaviors))
        known = jnp.where(jnp.arange(size) < past.added, -distances, -jnp.inf)
        nearest = -jax.lax.top_k(known, min(config.neighbors, size))[0]
        found = jnp.isfinite(nearest)
        return jnp.where(found, nearest, 0).sum(axis=1) / jnp.maximum(found.sum(axis=1), 1)

    def fitness(self, config: StrategyConfig, past: Archive, keys: Keys, sample: Sample) -> Fitness:
        X, kept = sample.behaviors, sample.kept
        each = self.compare(config, past, X)
        distance = jnp.where(kept, each, 0).sum() / jnp.maximum(kept.sum(), 1)
        chosen = jax.random.randint(keys.fresh, (), 0, X.shape[0])  # represents the population
        return mixed(config, sample, each), distance, past.add(X[chosen])


class Memory(NamedTuple):
    """Behaviors of the last n populations, and the test functions, which carry over."""

    behaviors: Float[Array, "n N d"]
    added: Int[Array, ""]  # total, may exceed the capacity
    potentials: Potentials

    def add(self, X: Float[Array, "N d"], potentials: Potentials) -> "Memory":
        """Return the memory with one more population; the first one fills every place."""
        place = self.added % self.behaviors.shape[0]
        first = jnp.broadcast_to(X, self.behaviors.shape)
        behaviors = jnp.where(self.added == 0, first, self.behaviors.at[place].set(X))
        return Memory(behaviors, self.added + 1, potentials)


class _Wasserstein(Proximity):
    """The Wasserstein distance to the populations in a `Memory`."""

    needs_behaviors = True

    def empty(self, config: StrategyConfig, dim: int) -> Memory:
        behaviors = jnp.zeros((config.memory, config.population, dim))
        zeros = jnp.zeros((config.dual_features,))
        return Memory(behaviors, jnp.zeros((), int), Potentials(zeros, zeros))

    def memory_size(self, config: StrategyConfig, dim: int) -> dict[str, int]:
        size, features = config.population, config.dual_features
        return {
            f"memory={config.memory}": config.memory * size * dim,
            f"dual_features={features}": features * max(size, dim),
        }

    def compare(
        self, config: StrategyConfig, past: Memory, keys: Keys, X: Array, kept: Array
    ) -> tuple[Float[Array, " N"], Float[Array, ""], Potentials]:
        """Compute f at each behavior, the distance to the past, and improved test functions.

        Behaviors are scaled by their root-mean-square distance, so that γ, the width of the
        features and the step size suit any behavior. The test functions are weights on features
        drawn with the fixed key, the same in all generations.
        """
        gamma, old = config.dual_gamma, past.behaviors.reshape(-1, X.shape[1])
        weights = jnp.where(kept, X.shape[0] / jnp.maximum(kept.sum(), 1), 0.0)
        origin = old.mean(axis=0)
        X, old = X - origin, old - origin
        # The mean of ‖x − y‖² over all pairs, since the mean of y is now 0.
        mean_square = weights @ jnp.sum(X**2, axis=1) / X.shape[0] + jnp.sum(old**2) / len(old)
        scale = jnp.sqrt(jnp.where(mean_square > 0, mean_square, 1))
        X, old = X / scale, old / scale
        features = random_features(keys.fixed, X.shape[1], past.potentials.f.size)
        ascent = dual_ascent
        if X.shape[0] > config.dual_batch:
            ascent = partial(stochastic_ascent, keys.fresh, config.dual_batch)
        potentials = ascent(
            past.potentials, features, X, old, gamma, config.dual_steps, weights=weights
        )
        # The distance is only reported, so a sample of large populations is enough.
        most = SAMPLE * config.dual_batch
        key_near, key_far = jax.random.split(keys.fresh)
        near = _some(key_near, most, jnp.column_stack([X, weights]))
        far = _some(key_far, most, old)
        weights = near[:, -1] / jnp.maximum(near[:, -1].mean(), 1e-6)
        value = dual_value(potentials, features, near[:, :-1], far, gamma, weights) * scale**2
        found, nothing = (features(X) @ potentials.f, value, potentials), (0, 0, past.potentials)
        return jax.tree.map(lambda x, y: jnp.where(past.added == 0, y, x), found, nothing)

    def fitness(self, config: StrategyConfig, past: Memory, keys: Keys, sample: Sample) -> Fitness:
        X = sample.behaviors
        each, distance, potentials = self.compare(config, past, keys, X, sample.kept)
        return mixed(config, sample, each), distance, past.add(X, potentials)


def _some(key: PRNGKeyArray, number: int, rows: Array) -> Array:
    """At most so many rows, drawn without replacement."""
    return rows if len(rows) <= number else rows[shuffled(key, len(rows))[:number]]


NONE, NOVELTY, WASSERSTEIN = Proximity(), _Novelty(), _Wasserstein()
