r"""Control of the damping ε: fixed, relative to the metric, or adapted by the reduction ratio.

After a step Δ on some batch, the ratio

    ρ = (L(θ) − L(θ + Δ)) / (−gᵀΔ)

compares the loss that the step saved *on that same batch* with what the gradient promised. A good
ratio (above `high`) lowers ε, a bad one (below `low`, or not finite) raises it.
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from wng.estimator.checks import check_count, check_positive


class DampingState(NamedTuple):
    """State of the control of ε between steps."""

    value: Float[Array, ""]
    steps: Int[Array, ""]


def reduction_ratio(
    loss_before: Float[Array, ""], loss_after: Float[Array, ""], promised: Float[Array, ""]
) -> Float[Array, ""]:
    """ρ, the ratio of actual to promised decrease on one batch; `promised` is −gᵀΔ."""
    return (loss_before - loss_after) / promised


@dataclasses.dataclass(frozen=True)
class Damping:
    """The rule that chooses ε. A plain number in place of a `Damping` means a fixed ε.

    Args:
      initial: ε at the first step, or its multiple of λ_max(Ĝ) with `relative`.
      relative: multiply by the largest eigenvalue of Ĝ (of the rescaled Ĝ with `rescale`), so that
        ε adapts to the scale of the behaviors and of the parameters.
      every: number of steps between adaptations; 0 keeps the value fixed. The paper uses 5.
      factor: factor by which adaptation lowers ε, and by whose inverse it raises ε.
      low, high: the range of the reduction ratio in which the value stays.
      minimum, maximum: bounds of ε (of its multiple of λ_max with `relative`).
      step_size: factor of the direction in the step for which the reduction ratio is measured. Set
        it to the learning rate that follows in the chain.
    """

    initial: float = 1e-3
    relative: bool = False
    every: int = 0
    factor: float = 0.85
    low: float = 0.25
    high: float = 0.75
    minimum: float = 1e-10
    maximum: float = 1e5
    step_size: float = 1.0

    def __post_init__(self) -> None:
        for name in ("initial", "minimum", "maximum", "step_size", "factor"):
            check_positive(getattr(self, name), f"damping {name}")
        check_count(self.every, "damping every", 0)
        if not self.factor < 1:
            raise ValueError(f"damping factor must be smaller than 1, got {self.factor}.")
        if not self.low < self.high:
            raise ValueError(
                f"damping low={self.low} must be smaller than damping high={self.high}."
            )
        if not self.minimum <= self.maximum:
            raise ValueError(
                f"damping minimum={self.minimum} must not exceed damping maximum={self.maximum}."
            )

    def init(self) -> DampingState:
        """The state before the first step."""
        value = jnp.clip(jnp.asarray(self.initial, float), self.minimum, self.maximum)
        return DampingState(value, jnp.zeros((), int))

    def epsilon(
        self, state: DampingState, largest_eigenvalue: Float[Array, ""]
    ) -> Float[Array, ""]:
        """ε for a metric whose largest eigenvalue is given."""
        # A value that is not adapted may be a hyperparameter that changes between steps.
        value = state.value if self.every else self.init().value
        return value * largest_eigenvalue if self.relative else value

    def due(self, state: DampingState) -> Bool[Array, ""]:
        """Whether the coming step's reduction ratio will be used; only for `every` > 0."""
        return (state.steps + 1) % self.every == 0

    def update(self, state: DampingState, ratio: Float[Array, ""]) -> DampingState:
        """The state after a step with the given reduction ratio.

        A non-finite ratio raises ε at once; a finite one counts only when `due`.
        """
        if not self.every:
            return DampingState(state.value, state.steps + 1)
        finite = jnp.isfinite(ratio)
        due = self.due(state)
        better = due & finite & (ratio > self.high)
        worse = ~finite | (due & (ratio < self.low))
        value = state.value * jnp.where(better, self.factor, 1.0)
        value = jnp.where(worse, value / self.factor, value)
        return DampingState(jnp.clip(value, self.minimum, self.maximum), state.steps + 1)


def as_damping(damping: float | Damping) -> Damping:
    """A `Damping` from itself or from a fixed number ε."""
    if isinstance(damping, Damping):
        return damping
    check_positive(damping, "damping")
    return Damping(damping)
