r"""The Gaussian study (Figure 1): Fisher against Wasserstein on a smoothed sinc.

    L(θ) = E_{x∼N(μ,Σ)} Σ_i (1 − sin(x_i)/x_i),      Σ diagonal, θ = (μ, v)

has its minimum at a point mass at 0. (The paper prints the negative of this, with a sign error.)
The Gaussian expectation is E[sin(x)/x] = ∫₀¹ cos(tμ) e^{−t²Σ/2} dt, computed exactly by
Gauss–Legendre quadrature in float64, so every curve is deterministic.

Each method is one point on the grid {no penalty, KL, W₂} × {Euclidean, Fisher, Wasserstein} ×
{diagonal, log-diagonal}, and one loop, `descend`, runs them all. A run that leaves |μ| ≤ 40, σ ≤ 40
has diverged.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from wng.estimator import gaussian
from wng.estimator.gaussian import Parameterization
from wng.experiments.toys.axes import (
    GEOMETRIES,
    PROXIMITIES,
    GeometryName,
    ProximityName,
    Theta,
)
from wng.experiments.toys.settings import ToySettings

NODES, WEIGHTS = (a / 2 for a in np.polynomial.legendre.leggauss(24))
NODES = NODES + 0.5  # on [0, 1]
CONVERGED = 1e-30  # errors below count as zero: the variance is about to underflow
FAR = 40.0  # beyond |μ| = 40 the run has diverged, and 24 nodes no longer resolve cos(tμ)
STATUS = ("running", "variance not positive", "diverged", "converged")
BROKEN = STATUS[1:3]


class Run(NamedTuple):
    """Path of one run after 0, 1, …, `iterations` steps, and how it ended."""

    error: Float[Array, " iterations+1"]
    mean: Float[Array, " iterations+1"]  # first component
    std: Float[Array, " iterations+1"]  # first component
    status: Array  # index into STATUS
    stopped: Array  # iteration at which the status was reached


def versine_and_sine(x: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Compute 1 − cos(x), without cancellation, and sin(x).

    Uses Taylor polynomials at x/16 and four doublings: XLA's float64 sin and cos are scalar library
    calls on CPU and would take 90% of this study's time.
    """
    y = (x - 2 * jnp.pi * jnp.round(x / (2 * jnp.pi))) / 16
    y2 = y * y
    versine = y2 / 2 * (1 - y2 / 12 * (1 - y2 / 30 * (1 - y2 / 56 * (1 - y2 / 90))))
    sine = y * (1 - y2 / 6 * (1 - y2 / 20 * (1 - y2 / 42 * (1 - y2 / 72))))
    for _ in range(4):
        versine, sine = 2 * versine * (2 - versine), 2 * sine * (1 - versine)
    return versine, sine


def objective(
    mean: Float[Array, " dim"], variance: Float[Array, " dim"]
) -> tuple[Float[Array, ""], Float[Array, " dim"], Float[Array, " dim"]]:
    """Return L and its derivatives with respect to μ and Σ, exact to rounding even as L → 0."""
    t = jnp.asarray(NODES)[:, None]
    versine, sine = versine_and_sine(t * mean)
    x = t**2 * variance / 2
    decay = jnp.exp(-x)
    series = x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4)))
    rest = jnp.where(x < 1e-3, series, 1 - decay)  # 1 − e^{−x}
    weights = jnp.asarray(WEIGHTS)
    value = jnp.sum(weights @ (versine + (1 - versine) * rest))
    return value, weights @ (t * sine * decay), weights @ (t**2 / 2 * (1 - versine) * decay)


def initial(settings: ToySettings, parameterization: Parameterization) -> Theta:
    """Return the initial parameters: the same Gaussian in either parameterization."""
    noise = jax.random.normal(jax.random.key(settings.seed), (settings.dim,), float)
    v = gaussian.PARAMETERIZATIONS[parameterization].from_std(settings.std)
    return Theta(settings.mean + settings.spread * noise, jnp.full((settings.dim,), v, float))


def descend(
    settings: ToySettings,
    proximity: ProximityName,
    geometry: GeometryName,
    parameterization: Parameterization,
    step_size: Float[Array, ""],
    beta: Float[Array, ""],
) -> Run:
    """Run one method: the loop that all methods share."""
    coordinates = gaussian.PARAMETERIZATIONS[parameterization]
    divergence = PROXIMITIES[proximity].divergence

    def moments(theta: Theta) -> tuple[Array, Array]:
        return theta.mean, coordinates.variance(theta.v)

    def direction(theta: Theta, reference: Theta, key: Array) -> tuple[Array, Theta]:
        mean, sigma = moments(theta)
        error, d_mean, d_sigma = objective(mean, sigma)
        grad = Theta(d_mean, d_sigma * coordinates.slope(sigma))
        if divergence:
            pull = jax.grad(lambda t: divergence(*moments(reference), *moments(t)))(theta)
            grad = jax.tree.map(lambda g, p: g + beta * p, grad, pull)
        natural = GEOMETRIES[geometry].direction(settings, parameterization, key, theta, grad)
        return error, natural

    def step(carry: tuple, k: Array) -> tuple[tuple, tuple]:
        theta, reference, status, stopped = carry
        reference = jax.tree.map(
            lambda new, old: jnp.where(k % settings.inner_steps == 0, new, old), theta, reference
        )
        key = jax.random.fold_in(jax.random.key(settings.seed), k + 1)
        still = jnp.full((), jnp.inf), jax.tree.map(jnp.zeros_like, theta)
        error, natural = jax.lax.cond(
            status == 0, lambda: direction(theta, reference, key), lambda: still
        )
        moved = jax.tree.map(lambda t, d: t - step_size * d, theta, natural)
        sigma = coordinates.variance(moved.v)
        near = (jnp.abs(moved.mean) <= FAR).all() & (sigma <= FAR**2).all()  # false for NaN
        broken = (sigma <= 0).any()
        if coordinates.always_positive:  # Σ = e^{2v}: zero means underflow
            near, broken = near & ~broken, jnp.zeros((), bool)
        found = jnp.where(error < CONVERGED, 3, jnp.where(~near, 2, jnp.where(broken, 1, 0)))
        stopped = jnp.where((status == 0) & (found != 0), k, stopped)
        status = jnp.where(status == 0, found, status)
        theta = jax.tree.map(lambda new, old: jnp.where(status == 0, new, old), moved, theta)
        return (theta, reference, status, stopped), observe(carry[0])

    def observe(theta: Theta) -> tuple[Array, Array, Array]:
        mean, sigma = moments(theta)
        return objective(mean, sigma)[0], mean[0], jnp.sqrt(sigma[0])

    start = initial(settings, parameterization)
    carry = (start, start, jnp.zeros((), int), jnp.full((), settings.iterations, int))
    carry, path = jax.lax.scan(step, carry, jnp.arange(settings.iterations))
    last = observe(carry[0])
    error, mean, std = (jnp.append(a, b) for a, b in zip(path, last, strict=True))
    return Run(error, mean, std, carry[2], carry[3])


def sweep(
    settings: ToySettings,
    proximity: ProximityName,
    geometry: GeometryName,
    parameterization: Parameterization,
) -> Callable[[np.ndarray, np.ndarray], Run]:
    """Compile `descend` and map it over arrays of step sizes and of β."""
    run = partial(descend, settings, proximity, geometry, parameterization)
    if GEOMETRIES[geometry].closed_form:
        compiled = jax.jit(jax.vmap(run))
    else:  # one after the other, so a run that has stopped costs nothing
        compiled = jax.jit(lambda *pairs: jax.lax.map(lambda pair: run(*pair), pairs))

    def call(step_sizes: np.ndarray, betas: np.ndarray) -> Run:
        with jax.enable_x64(True):
            runs = compiled(jnp.asarray(step_sizes, float), jnp.asarray(betas, float))
            return jax.tree.map(np.asarray, runs)

    return call
