"""Generalized advantage estimation, inside the compiled update."""

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
