"""Global terms of the fitness: how far a member's behaviour is from earlier ones.

A strategy maximises (1 − β)·return + β·distance, each standardised over the population. The
distance is

* novelty (NSR-ES, Conti et al. 2018): the mean distance to the nearest neighbours in an archive of
  past behaviours;
* wasserstein (BGES, Pacchiano et al. 2020): the test function f of the Wasserstein distance
  between the population's behaviours and those of the last few populations, at the member's
  behaviour. f(x) is what x contributes to the distance.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from wng.behavior.distance import (
    Potentials,
    dual_ascent,
    dual_value,
    random_features,
    squared_distances,
)


class Archive(NamedTuple):
    """Behaviours of past populations, one of each, the oldest overwritten first."""

    behaviors: Float[Array, "A d"]
    added: Int[Array, ""]  # ever, more than there is room for

    @classmethod
    def empty(cls, size: int, dim: int) -> "Archive":
        """Room for `size` behaviours."""
        return cls(jnp.zeros((size, dim)), jnp.zeros((), int))

    def novelty(self, X: Float[Array, "N d"], neighbors: int) -> Float[Array, " N"]:
        """Mean distance to the k nearest behaviours in the archive; 0 if it is empty."""
        size = self.behaviors.shape[0]
        known = jnp.arange(size) < self.added
        distances = jnp.sqrt(squared_distances(X, self.behaviors))
        nearest = -jax.lax.top_k(jnp.where(known, -distances, -jnp.inf), min(neighbors, size))[0]
        found = jnp.isfinite(nearest)
        return jnp.where(found, nearest, 0).sum(axis=1) / jnp.maximum(found.sum(axis=1), 1)

    def add(self, behavior: Float[Array, " d"]) -> "Archive":
        """With one behaviour more."""
        place = self.added % self.behaviors.shape[0]
        return Archive(self.behaviors.at[place].set(behavior), self.added + 1)


class Memory(NamedTuple):
    """Behaviours of the last n populations, and the test functions, which carry over."""

    behaviors: Float[Array, "n N d"]
    added: Int[Array, ""]  # ever, more than there is room for
    potentials: Potentials

    @classmethod
    def empty(cls, size: int, population: int, dim: int, features: int) -> "Memory":
        """Room for `size` populations."""
        zeros = jnp.zeros((features,))
        return cls(jnp.zeros((size, population, dim)), jnp.zeros((), int), Potentials(zeros, zeros))

    def distance(
        self,
        key: PRNGKeyArray,
        X: Float[Array, "N d"],
        kept: Bool[Array, " N"],
        *,
        gamma: float,
        steps: int,
    ) -> tuple[Float[Array, " N"], Float[Array, ""], Potentials]:
        """f at each behaviour, the distance of the two clouds, and the improved test functions.

        Behaviours are measured in units of their root-mean-square distance, so that γ, the width
        of the features and the step size fit whatever a behaviour is. `key` must stay the same,
        or the test functions would mean something else in each generation.
        """
        past = self.behaviors.reshape(-1, X.shape[1])
        squares = squared_distances(X, past)
        count = jnp.maximum(kept.sum(), 1)
        weights = jnp.where(kept, X.shape[0] / count, 0.0)
        mean_square = weights @ squares.mean(axis=1) / X.shape[0]
        scale = jnp.sqrt(jnp.where(mean_square > 0, mean_square, 1))
        origin = past.mean(axis=0)
        X, past = (X - origin) / scale, (past - origin) / scale
        features = random_features(key, X.shape[1], self.potentials.f.size)
        potentials = dual_ascent(self.potentials, features, X, past, gamma, steps, weights=weights)
        value = dual_value(potentials, features, X, past, gamma, weights) * scale**2
        empty = self.added == 0
        f = jnp.where(empty, 0, features(X) @ potentials.f)
        potentials = jax.tree.map(
            lambda new, old: jnp.where(empty, old, new), potentials, self.potentials
        )
        return f, jnp.where(empty, 0, value), potentials

    def add(self, X: Float[Array, "N d"], potentials: Potentials) -> "Memory":
        """With one population more; the first one fills every place."""
        place = self.added % self.behaviors.shape[0]
        first = jnp.broadcast_to(X, self.behaviors.shape)
        behaviors = jnp.where(self.added == 0, first, self.behaviors.at[place].set(X))
        return Memory(behaviors, self.added + 1, potentials)
