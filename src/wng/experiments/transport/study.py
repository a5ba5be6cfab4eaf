"""The behavioral transport function (`wng reproduce transport`, Figure 6).

Shows samples of q_θ, samples of q_{θ+u}, and the field ∇f_u that, according to the metric, carries
one to the other, for a Gaussian and for a curved ("banana") behavior distribution.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from wng.estimator import WassersteinMetric, jacobian_reparam, kernel_basis
from wng.experiments.output import BLUE, GRAY, RED, figure, markdown_table, save, write_csv
from wng.experiments.report import write_report
from wng.experiments.transport.settings import TransportSettings


class Example(NamedTuple):
    """A behavior distribution X = B_θ(Z) and a step u."""

    name: str
    behavior: Callable[[jax.Array, jax.Array], jax.Array]  # (θ, Z) ↦ X
    theta: tuple[float, ...]
    step: tuple[float, ...]


def gaussian_behavior(theta: jax.Array, noise: jax.Array) -> jax.Array:
    """Sample a Gaussian: θ is the mean, two log standard deviations, and the angle of the axes."""
    cos, sin = jnp.cos(theta[4]), jnp.sin(theta[4])
    return theta[:2] + noise * jnp.exp(theta[2:4]) @ jnp.array([[cos, sin], [-sin, cos]])


def banana_behavior(theta: jax.Array, noise: jax.Array) -> jax.Array:
    """Sample a Gaussian bent into a parabola: θ is the mean, the bend and the log width."""
    x = noise[:, 0]
    y = theta[2] * (x**2 - 1) + jnp.exp(theta[3]) * noise[:, 1]
    return theta[:2] + jnp.stack([x, y], axis=1)


EXAMPLES = (
    Example("Gaussian", gaussian_behavior, (0.0, 0.0, 0.2, -0.6, 0.4), (0.5, 0.3, 0.15, 0.3, 0.25)),
    Example("banana", banana_behavior, (0.0, 0.0, 0.35, -1.2), (0.3, 0.45, 0.12, 0.2)),
)


class Result(NamedTuple):
    """Samples before and after the step, the field, and distances."""

    example: Example
    before: np.ndarray
    after: np.ndarray
    arrows: np.ndarray  # positions and moves, [n, 4]
    quadratic: float
    distance: float  # W₂² from the samples of q_θ to fresh samples of q_{θ+u}
    left: float  # the same after the field has moved the samples
    floor: float  # the same between two samples of q_{θ+u}


def squared_distance(X: ArrayLike, Y: ArrayLike) -> float:
    """Return W₂² between two equally large sets of points, by optimal assignment."""
    cost = cdist(np.asarray(X), np.asarray(Y), "sqeuclidean")
    return float(cost[linear_sum_assignment(cost)].mean())


def compute(settings: TransportSettings, example: Example) -> Result:
    """Estimate the metric at θ from samples, and compute the transport field of the step u."""
    keys = jax.random.split(jax.random.key(settings.seed))
    noise, fresh = jax.random.normal(keys[0], (2, settings.num_samples, 2))

    def behavior_fn(theta: jax.Array) -> jax.Array:
        return example.behavior(theta, noise)

    theta, step = jnp.array(example.theta), jnp.array(example.step)
    X = behavior_fn(theta)
    basis = kernel_basis(keys[1], X, settings.num_basis)
    metric = WassersteinMetric(basis, X, jacobian_reparam(basis, behavior_fn, theta))
    field = metric.transport(step)
    after, other = (example.behavior(theta + step, z) for z in (noise, fresh))
    at = X[:: max(1, settings.num_samples // 60)]
    return Result(
        example,
        np.asarray(X),
        np.asarray(after),
        np.concatenate([at, field(at)], axis=1),
        float(metric.quadratic(step)),
        *(squared_distance(Y, other) for Y in (X, X + field(X), after)),
    )


def draw(axis: Axes, result: Result) -> None:
    """Draw the samples before and after the step, and the field."""
    sets = ((result.before, GRAY, 0.5, r"q_\theta"), (result.after, BLUE, 0.35, r"q_{\theta+u}"))
    for points, color, alpha, name in sets:
        axis.plot(*points.T, ".", color=color, ms=3, alpha=alpha, label=f"samples of ${name}$")
    arrows: Any = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.0045, "zorder": 3}
    axis.quiver(*result.arrows.T, color=RED, **arrows)
    axis.plot([], [], color=RED, marker=r"$\rightarrow$", ls="", ms=12, label=r"$\nabla f_u$")
    axis.set_aspect("equal")
    distances = rf"$W_2^2$ to $q_{{\theta+u}}$: {result.distance:.2f} → {result.left:.2f}"
    axis.set_title(f"{result.example.name}, {distances}")
    axis.legend(frameon=False, fontsize=9, loc="best")


def reproduce(settings: TransportSettings, out: Path, command: str) -> list[Result]:
    """Write the figure, the data and the report."""
    results = [compute(settings, example) for example in EXAMPLES]
    fig, axes = figure(1, 2, (13, 5))
    for axis, result in zip(axes, results, strict=True):
        draw(axis, result)
        to = out / "data" / f"{result.example.name.lower()}.csv"
        write_csv(to, ["x", "y", "move_x", "move_y"], result.arrows.tolist())
    save(fig, out / "figures" / "transport.png")
    rows = [
        (r.example.name, *(f"{x:.3f}" for x in (r.quadratic, r.distance, r.left, r.floor)))
        for r in results
    ]
    header = ("behavior", "uᵀĜu", "W₂² before", "W₂² after", "W₂² of two samples of q_{θ+u}")
    write_report(
        f"""# The behavioral transport function

`{command}`

Samples of a behavior distribution q_θ, samples of q_{{θ+u}}, and the field ∇f_u that
`WassersteinMetric.transport(u)` estimates from the samples of q_θ alone
(N = {settings.num_samples}, M = {settings.num_basis} kernel basis functions).

![Transport of a Gaussian and of a banana](figures/transport.png)

W₂² is measured by optimal assignment to *fresh* samples of q_{{θ+u}}, before and after the field
moves the samples of q_θ. The last column is the distance between two independent samples of
q_{{θ+u}}, the least that can be expected. uᵀĜu is the metric's own W₂² of the step; the distance
between sets of {settings.num_samples} samples deviates from the true one by tenths.

{markdown_table(header, rows)}

Data: the arrows in the figure, as `data/*.csv`.
""",
        out,
        "wng: the behavioral transport function",
    )
    return results
