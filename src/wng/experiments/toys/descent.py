r"""The Gaussian study (Figure `toys`): Fisher against Wasserstein on a smoothed sinc.

    L(θ) = E_{x∼N(μ,Σ)} Σ_i (1 − sin(x_i)/x_i),      Σ diagonal, θ = (μ, v)

is minimised by a point mass at 0. (The paper prints the negative of this, and a sign error.) The
Gaussian expectation is exact, E[sin(x)/x] = ∫₀¹ cos(tμ) e^{−t²Σ/2} dt, by Gauss–Legendre
quadrature, so every curve is deterministic; all of it in float64.

Every method is one point on the grid {no penalty, KL, W₂} × {Euclidean, Fisher, Wasserstein} ×
{diagonal, log-diagonal}, and one loop, `descend`, serves them all. A run that leaves |μ| ≤ 40,
σ ≤ 40 has diverged.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from wng.envs.base import check_arguments
from wng.estimator import WassersteinMetric, gaussian, jacobian_reparam, kernel_basis
from wng.estimator.checks import check_memory
from wng.estimator.gaussian import Parameterization
from wng.runs.settings import LARGEST

Proximity = Literal["none", "kl", "wasserstein"]
Geometry = Literal["euclidean", "fisher", "wasserstein", "wasserstein-estimated"]

NODES, WEIGHTS = (a / 2 for a in np.polynomial.legendre.leggauss(24))
NODES = NODES + 0.5  # on [0, 1]
CONVERGED = 1e-30  # an error below is zero: the variance is about to underflow
FAR = 40.0  # beyond |μ| = 40 the run has diverged, and 24 nodes no longer resolve cos(tμ)
STATUS = ("running", "variance not positive", "diverged", "converged")


@dataclasses.dataclass(frozen=True)
class ToySettings:
    """Settings of the Gaussian study. What the paper leaves open is chosen here and said so."""

    dim: int = 100
    """Number of dimensions (paper: 100)."""
    iterations: int = 4000
    """Gradient evaluations of every run (paper: 4000)."""
    step_size: float = 0.9
    """λ, where it is not varied (paper: 0.9)."""
    beta: float = 0.1
    """β, weight of the penalty, where it is not varied (paper: 0.1)."""
    inner_steps: int = 10
    """Gradient steps of a penalised method before its reference θ_k moves (paper: not given). The
    gradient of a divergence vanishes at θ_k, so with 1 a penalty would do nothing."""
    mean: float = 2.0
    """Centre of the initial means (paper: not given)."""
    spread: float = 0.5
    """Standard deviation of the initial means around it (paper: not given)."""
    std: float = 1.0
    """Initial standard deviation of the Gaussian (paper: not given)."""
    num_basis: int = 5
    """M of the estimated Wasserstein geometry."""
    num_samples: int = 100
    """N of the estimated Wasserstein geometry, per iteration."""
    damping: float = 1e-10
    """ε of the estimated Wasserstein geometry (the closed forms need none)."""
    seed: int = 0
    """Seed of the initial means and of the estimator's samples."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in ("mean", "spread", "seed") and not value > 0:
                raise ValueError(f"{field.name} must be positive, got {value}.")
            if not abs(value) <= LARGEST:
                raise ValueError(f"{field.name} must be finite, got {value}.")
        check_arguments(1, self.seed)
        check_memory(f"iterations={self.iterations}", 2 * 3 * 17 * self.iterations)  # in float64
        check_memory(
            f"num_samples={self.num_samples} in dim={self.dim}", 2 * self.num_samples * self.dim
        )
        if self.num_basis > self.num_samples:
            raise ValueError(
                f"num_basis ({self.num_basis}) must not exceed num_samples ({self.num_samples})."
            )


class Theta(NamedTuple):
    """Parameters of the Gaussian."""

    mean: Float[Array, " dim"]
    v: Float[Array, " dim"]


class Run(NamedTuple):
    """What one run leaves: after 0, 1, …, `iterations` steps, and how it ended."""

    error: Float[Array, " iterations+1"]
    mean: Float[Array, " iterations+1"]  # of the first component
    std: Float[Array, " iterations+1"]
    status: Array  # index into STATUS
    stopped: Array  # iteration at which the status was reached


def versine_and_sine(x: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """1 − cos(x), without cancellation, and sin(x).

    By Taylor polynomials at x/16 and four doublings. XLA's float64 sin and cos are scalar library
    calls on CPU and would take nine tenths of this study's time.
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
    """L and its derivatives with respect to μ and Σ, exact to rounding even as L → 0."""
    t = jnp.asarray(NODES)[:, None]
    versine, sine = versine_and_sine(t * mean)
    x = t**2 * variance / 2
    decay = jnp.exp(-x)
    series = x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4)))
    rest = jnp.where(x < 1e-3, series, 1 - decay)  # 1 − e^{−x}
    weights = jnp.asarray(WEIGHTS)
    value = jnp.sum(weights @ (versine + (1 - versine) * rest))
    return value, weights @ (t * sine * decay), weights @ (t**2 / 2 * (1 - versine) * decay)


def penalty(
    proximity: Proximity, parameterization: Parameterization, reference: Theta, theta: Theta
) -> Float[Array, ""]:
    """KL(q_{θ_k} ‖ q_θ) (eq. `KL_PPO`) or ½W₂² (eq. `proximal_expression_wasserstein`)."""
    here, there = ((t.mean, gaussian.variance(t.v, parameterization)) for t in (reference, theta))
    if proximity == "kl":
        return gaussian.kl(*here, *there)
    return gaussian.wasserstein_squared(*here, *there) / 2


def estimated_direction(
    settings: ToySettings, parameterization: Parameterization, key: Array, theta: Theta, grad: Theta
) -> Theta:
    """The natural gradient from samples, as a user would get it: no closed form is used.

    The Gaussian factorises over coordinates, so its metric is block-diagonal: one estimate from N
    samples for each coordinate's (μ_i, v_i).
    """

    def coordinate(key: Array, params: Array, g: Array) -> Array:
        noise_key, basis_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, (settings.num_samples, 1), params.dtype)

        def behavior_fn(params: Array) -> Array:
            return params[0] + jnp.sqrt(gaussian.variance(params[1], parameterization)) * noise

        X = behavior_fn(params)
        basis = kernel_basis(basis_key, X, settings.num_basis)
        J = jacobian_reparam(basis, behavior_fn, params)
        return WassersteinMetric(basis, X, J).solve(g, settings.damping)

    keys = jax.random.split(key, settings.dim)
    natural = jax.vmap(coordinate)(keys, jnp.stack(theta, axis=1), jnp.stack(grad, axis=1))
    return Theta(*natural.T)


def initial(settings: ToySettings, parameterization: Parameterization) -> Theta:
    """The same Gaussian in either parameterisation."""
    noise = jax.random.normal(jax.random.key(settings.seed), (settings.dim,), float)
    v = settings.std**2 if parameterization == "diagonal" else float(np.log(settings.std))
    return Theta(settings.mean + settings.spread * noise, jnp.full((settings.dim,), v, float))


def descend(
    settings: ToySettings,
    proximity: Proximity,
    geometry: Geometry,
    parameterization: Parameterization,
    step_size: Float[Array, ""],
    beta: Float[Array, ""],
) -> Run:
    """One run of one method: the loop that all share."""

    def direction(theta: Theta, reference: Theta, key: Array) -> tuple[Array, Theta]:
        sigma = gaussian.variance(theta.v, parameterization)
        error, d_mean, d_sigma = objective(theta.mean, sigma)
        chain = 2 * sigma if parameterization == "log-diagonal" else 1.0  # ∂Σ/∂v
        grad = Theta(d_mean, d_sigma * chain)
        if proximity != "none":  # the proximity axis
            pull = jax.grad(partial(penalty, proximity, parameterization, reference))(theta)
            grad = jax.tree.map(lambda g, p: g + beta * p, grad, pull)
        if geometry == "wasserstein-estimated":  # the geometry axis
            return error, estimated_direction(settings, parameterization, key, theta, grad)
        return error, Theta(*gaussian.natural_gradient(geometry, parameterization, theta.v, *grad))

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
        sigma = gaussian.variance(moved.v, parameterization)
        near = (jnp.abs(moved.mean) <= FAR).all() & (sigma <= FAR**2).all()  # false for NaN
        broken = (sigma <= 0).any()
        if parameterization == "log-diagonal":  # Σ = e^{2v} is positive: zero means underflow
            near, broken = near & ~broken, jnp.zeros((), bool)
        found = jnp.where(error < CONVERGED, 3, jnp.where(~near, 2, jnp.where(broken, 1, 0)))
        stopped = jnp.where((status == 0) & (found != 0), k, stopped)
        status = jnp.where(status == 0, found, status)
        theta = jax.tree.map(lambda new, old: jnp.where(status == 0, new, old), moved, theta)
        return (theta, reference, status, stopped), observe(carry[0])

    def observe(theta: Theta) -> tuple[Array, Array, Array]:
        sigma = gaussian.variance(theta.v, parameterization)
        return objective(theta.mean, sigma)[0], theta.mean[0], jnp.sqrt(sigma[0])

    start = initial(settings, parameterization)
    carry = (start, start, jnp.zeros((), int), jnp.full((), settings.iterations, int))
    carry, path = jax.lax.scan(step, carry, jnp.arange(settings.iterations))
    last = observe(carry[0])
    error, mean, std = (jnp.append(a, b) for a, b in zip(path, last, strict=True))
    return Run(error, mean, std, carry[2], carry[3])


def sweep(
    settings: ToySettings,
    proximity: Proximity,
    geometry: Geometry,
    parameterization: Parameterization,
) -> Callable[[np.ndarray, np.ndarray], Run]:
    """`descend`, compiled, and mapped over arrays of step sizes and of β."""
    run = partial(descend, settings, proximity, geometry, parameterization)
    if geometry == "wasserstein-estimated":  # one after the other: a run that stopped costs nothing
        compiled = jax.jit(lambda *pairs: jax.lax.map(lambda pair: run(*pair), pairs))
    else:
        compiled = jax.jit(jax.vmap(run))

    def call(step_sizes: np.ndarray, betas: np.ndarray) -> Run:
        with jax.enable_x64(True):
            runs = compiled(jnp.asarray(step_sizes, float), jnp.asarray(betas, float))
            return jax.tree.map(np.asarray, runs)

    return call
