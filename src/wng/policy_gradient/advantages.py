"""Generalized advantage estimation, and running normalization, inside the compiled update."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def gae(
    rewards: Float[Array, "T n"],
    values: Float[Array, "T n"],
    next_values: Float[Array, "T n"],
    terminated: Bool[Array, "T n"],
    truncated: Bool[Array, "T n"],
    gamma: float,
    gae_lambda: float,
) -> Float[Array, "T n"]:
    """A_t = Σ_k (γλ)^k δ_{t+k} to the end of the episode, δ_t = r_t + γ V(s'_t) − V(s_t).

    `next_values` are of the true successors s'_t (the last observation of an episode where it
    ended, not the first of the next): truncation bootstraps from them, termination does not.
    """
    delta = rewards + gamma * jnp.where(terminated, 0, next_values) - values
    carries_on = gamma * gae_lambda * ~(terminated | truncated)

    def back(after: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta_t, carry_t = now
        advantage = delta_t + carry_t * after
        return advantage, advantage

    _, advantages = jax.lax.scan(
        back, jnp.zeros_like(values[0]), (delta, carries_on), reverse=True, unroll=8
    )
    return advantages


class Moments(NamedTuple):
    """Mean and variance of everything seen so far."""

    mean: Array
    variance: Array
    seen: Array  # how many

    @classmethod
    def empty(cls, size: int) -> "Moments":
        """Mean 0, variance 1, nothing seen."""
        return cls(jnp.zeros(size), jnp.ones(size), jnp.zeros(()))

    def update(self, x: Float[Array, "N d"]) -> "Moments":
        """With the rows of `x` added (Chan's parallel formula)."""
        number = x.shape[0]
        total = self.seen + number
        mean, variance = x.mean(axis=0), x.var(axis=0)
        shift = mean - self.mean
        squares = (
            self.variance * self.seen + variance * number + shift**2 * self.seen * number / total
        )
        new = Moments(self.mean + shift * number / total, squares / total, total)
        finite = jnp.isfinite(new.variance).all() & jnp.isfinite(new.mean).all()
        # A NaN would stay forever.
        return jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, self)

    def normalize(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """Standardized and clipped at ±10."""
        return jnp.clip((x - self.mean) / jnp.sqrt(self.variance + 1e-8), -10, 10)


def discounted_returns(
    start: Float[Array, " n"], rewards: Float[Array, "T n"], done: Bool[Array, "T n"], gamma: float
) -> tuple[Float[Array, " n"], Float[Array, "T n"]]:
    """R_t = γR_{t−1} + r_t, zero again after an episode's end; its spread sets the reward scale."""

    def forward(before: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, ended = now
        total = gamma * before + reward
        return jnp.where(ended, 0, total), total

    end, returns = jax.lax.scan(forward, start, (rewards, done), unroll=8)
    return jnp.where(jnp.isfinite(end), end, 0), returns
