"""From a gradient and a metric to a direction, with every safeguard in one place."""

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from wng.estimator.branching import cond_any
from wng.estimator.damping import Damping, DampingState, reduction_ratio


class Metric(Protocol):
    """What `precondition` needs from a metric G.

    A metric that is known only by its products with vectors may also have a method `restricted(g)`:
    the metric on a space in which it can be solved for g, and whose λ_max it then knows.
    """

    def solve(self, g: Float[Array, " p"], damping: Array) -> Float[Array, " p"]:
        """(G + εI)⁻¹ g."""

    @property
    def largest_eigenvalue(self) -> Float[Array, ""]:
        """λ_max(G), the unit of relative damping."""


State = TypeVar("State")


class Preconditioned(NamedTuple, Generic[State]):
    """A direction, and what happened on the way to it."""

    direction: Float[Array, " p"]
    damping: State  # of the rule that chooses ε
    epsilon: Float[Array, ""]
    fallback: Bool[Array, ""]  # the Euclidean gradient was used
    finite: Bool[Array, ""]  # False: skip this step


def solve_or_fall_back(
    metric: Metric,
    g: Float[Array, " p"],
    epsilon: Array,
    largest: Array,
    scale: float | Array = 1.0,
    wanted: Float[Array, " p"] | None = None,
) -> tuple[Float[Array, " p"], Float[Array, ""], Bool[Array, ""]]:
    """scale · (G + εI)⁻¹ g or, where it does not descend or the unit of ε vanishes, g itself.

    Args:
      metric: G.
      g: gradient, flat.
      epsilon: ε.
      largest: unit of ε.
      scale: factor of the direction, not of g.
      wanted: right-hand side of the solve, if it is not g.

    Returns:
      The direction, its inner product with g, and whether it is g.
    """
    natural = scale * metric.solve(g if wanted is None else wanted, epsilon)
    slope = g @ natural
    # A share of a smaller unit would not be a normal number, and the solve would divide by zero.
    vanishes = largest < 1e8 * jnp.finfo(g.dtype).tiny
    fallback = (slope <= 0) | vanishes
    return jnp.where(fallback, g, natural), jnp.where(fallback, g @ g, slope), fallback


def precondition(
    control: Damping,
    state: DampingState,
    metric: Metric,
    g: Float[Array, " p"],
    *,
    previous: Float[Array, " p"] | None = None,
    value: Float[Array, ""] | None = None,
    loss_after: Callable[[Float[Array, " p"]], Float[Array, ""]] | None = None,
) -> Preconditioned[DampingState]:
    """Compute (G + εI)⁻¹ g with its safeguards, and update the control of ε.

    The Euclidean gradient is used where ⟨g, g^W⟩ ≤ 0, and where a relative damping meets a metric
    that vanishes. A direction that is not finite is dropped: it becomes zero, and ε is raised.

    Args:
      control: rule that chooses ε.
      state: state of that rule.
      metric: G.
      g: gradient, flat.
      previous: direction to stay near where the metric says little, such as a multiple of the last
        one: (G + εI)⁻¹(g + ε·previous) minimizes ½dᵀGd − gᵀd + ½ε‖d − previous‖². This is the
        momentum of SPRING (Goldshlager, Abrahamsen and Lin, 2024).
      value: loss at θ; the step is dropped if it is not finite.
      loss_after: maps a direction to the loss on the same batch after a step of
        `control.step_size` against it. Needed by an adaptive `control` only.
    """
    if previous is None and hasattr(metric, "restricted"):
        metric = metric.restricted(g)  # the same products give λ_max and the solution
    # Asked for only where it matters: some metrics have to compute it.
    largest = metric.largest_eigenvalue if control.relative else jnp.ones(())
    epsilon = control.epsilon(state, largest)
    wanted = g if previous is None else g + epsilon * previous
    natural, slope, fallback = solve_or_fall_back(metric, g, epsilon, largest, wanted=wanted)
    natural = natural.astype(g.dtype)

    finite = jnp.isfinite(slope) & jnp.isfinite(natural @ natural)  # also after the cast
    if value is not None:
        finite &= jnp.isfinite(value)
    natural = jnp.where(finite, natural, 0)

    # Nothing measured: a ratio in the range where ε stays.
    ratio = jnp.where(finite, (control.low + control.high) / 2, jnp.nan)
    if value is not None and loss_after is not None:
        due = control.due(state) & finite
        after = cond_any(due, lambda: loss_after(natural), lambda: value)
        # A zero gradient promises nothing and gains nothing: no reason to change ε.
        promised = control.step_size * slope
        measured = jnp.where(slope > 0, reduction_ratio(value, after, promised), 0.5)
        ratio = jnp.where(finite, measured, jnp.nan)
    return Preconditioned(
        natural, control.update(state, ratio), epsilon, fallback & finite & (slope > 0), finite
    )
