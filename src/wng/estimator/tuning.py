r"""Damping and gain that tune themselves: the default of `scale_by_wasserstein`.

    d = γ (λ_max + ε)(G + εI)⁻¹ g,    ε = κ λ_max

The eigenvalues of the matrix before g lie between γ and γ(1 + 1/κ), so d tends to γg as κ grows: a
path from the natural gradient to SGD, at SGD's learning rate. κ and γ follow from two numbers. With
g_t the current gradient, g_{t−1} and d_{t−1} the last gradient and direction,

    u(v) = 1 − ⟨g_t, v⟩ / ⟨g_{t−1}, v⟩

is the share of the slope along v that the last step used up: 0 where nothing changed, 1 where the
step ended at the lowest point of its line, 2 where it went twice as far (exact for a quadratic).

* u(d_{t−1}) = `TARGET` is what γ aims at: the step of Barzilai and Borwein, a little shorter.
* u(d_{t−1}) > u(g_{t−1}) says that the directions which the metric calls cheap were used up first:
  κ rises. Otherwise κ falls.
* u(d_{t−1}) > 2, a step that raised the loss, is taken back to the lowest point of its line.

Where minibatches are mostly noise, both shares are near 1: κ stays, and γ falls to its floor.

With γ = κ/(1 + κ), as at the first step, no step is longer than SGD's in any direction, so on a
smooth loss it lowers the loss wherever SGD is sure to. γ keeps this value, and no step is taken
back, once the parameters have moved otherwise than against d: momentum or Adam follow in the chain.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from wng.estimator.precondition import Metric, Preconditioned, solve_or_fall_back

TARGET = 0.75  # share of the slope that a step should use up
START = 1.0  # κ of the first step
EPSILONS = (0.01, 100.0)  # bounds of κ
GAINS = (1e-6, 100.0)  # bounds of γ
MOVE = 1.5  # factor by which κ moves at most, and γ rises at most
DROP = 0.2  # factor by which γ falls at most
FLOOR = 0.25  # lowest γ unless a step raised the loss; κ/(1 + κ) where that is more
RECOVERY = 1.2  # factor by which γ returns to its floor
LEAST_SHARE = 0.02  # smaller shares are compared as this
ANGLE = 0.1  # sine of the angle up to which a step counts as one against d


class TuningState(NamedTuple):
    """What the rule remembers of the last step."""

    gain: Float[Array, ""]  # γ
    epsilon: Float[Array, ""]  # κ, ε as a multiple of λ_max
    direction: Float[Array, " p"]  # zero if there is nothing to compare with
    gradient: Float[Array, " p"]
    params: Float[Array, " p"]  # before the step
    against: Bool[Array, ""]  # all steps so far were against the direction

    @classmethod
    def start(cls, params: Float[Array, " p"]) -> "TuningState":
        """The state before the first step."""
        zero = jnp.zeros(params.shape, jnp.promote_types(params.dtype, jnp.float32))
        start = jnp.asarray(START, zero.dtype)
        return cls(start / (1 + start), start, zero, zero, zero, jnp.ones((), bool))


def tune(
    state: TuningState,
    metric: Metric,
    g: Float[Array, " p"],
    params: Float[Array, " p"],
    *,
    value: Float[Array, ""] | None = None,
) -> Preconditioned[TuningState]:
    """Compute d, with the fallback of `precondition`, and tune κ and γ.

    A gradient, loss or direction that is not finite takes the last step back as a whole.

    Args:
      state: what the rule remembers.
      metric: G.
      g: gradient, flat.
      params: θ, flat.
      value: loss at θ.
    """
    dtype = state.gradient.dtype
    gradient, theta = g.astype(dtype), params.astype(dtype)
    against, moved = _follow(state, theta, float(jnp.finfo(params.dtype).eps))
    share = _used(state, gradient, state.direction, moved)
    plain = _used(state, gradient, state.gradient, moved)
    overshot = against & (share > 2)

    ratio = jnp.maximum(share, LEAST_SHARE) / jnp.maximum(plain, LEAST_SHARE)
    kappa = jnp.clip(state.epsilon * jnp.clip(ratio, 1 / MOVE, MOVE), *EPSILONS)
    safe = kappa / (1 + kappa)
    gain = state.gain * jnp.clip(TARGET / jnp.maximum(share, LEAST_SHARE), DROP, MOVE)
    floor = jnp.minimum(jnp.maximum(safe, FLOOR), RECOVERY * state.gain)
    gain = jnp.where(overshot, gain, jnp.maximum(gain, floor))
    gain = jnp.where(against, jnp.clip(gain, *GAINS), safe)

    largest = metric.largest_eigenvalue
    natural, slope, fallback = solve_or_fall_back(
        metric, gradient, kappa * largest, largest, (1 + kappa) * largest
    )
    proposed = (gain * natural).astype(g.dtype)
    finite = jnp.isfinite(slope) & jnp.isfinite(proposed).all()
    if value is not None:
        finite &= jnp.isfinite(value)

    returns = overshot | ~finite
    back = jnp.where(against, 1 - jnp.where(finite, 1 / share, 0), 0)  # part of the last step
    return Preconditioned(
        jnp.where(returns, (-back * state.direction).astype(g.dtype), proposed),
        TuningState(
            gain=jnp.where(finite, gain, jnp.maximum(DROP * state.gain, GAINS[0])).astype(dtype),
            epsilon=jnp.where(finite, kappa, state.epsilon).astype(dtype),
            direction=jnp.where(returns, 0, proposed).astype(dtype),
            gradient=jnp.where(finite, gradient, 0),
            params=theta,
            against=against,
        ),
        (kappa * largest).astype(dtype),
        fallback & finite & (slope > 0),
        finite,
    )


def _follow(
    state: TuningState, theta: Float[Array, " p"], rounding: float
) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """Whether all steps so far were against their directions, and whether the last one moved θ."""
    step, last = state.params - theta, state.direction
    length, along = step @ step, step @ last
    aside = (along <= 0) | (along**2 < (1 - ANGLE**2) * length * (last @ last))
    # A step near the level of rounding has no direction of its own.
    clear = (length > (30 * rounding) ** 2 * (theta @ theta)) & (last @ last > 0)
    return state.against & ~(clear & aside), length > 0


def _used(
    state: TuningState, gradient: Float[Array, " p"], v: Float[Array, " p"], moved: Array
) -> Float[Array, ""]:
    """u(v), and `TARGET` where there is nothing to compare."""
    before = state.gradient @ v
    known = moved & (before > 0) & (state.gradient @ state.direction > 0)
    return jnp.where(known, 1 - (gradient @ v) / jnp.where(known, before, 1), TARGET)
