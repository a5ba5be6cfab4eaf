import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from wng.estimator import gaussian
from wng.experiments.toys.axes import Theta, estimated_direction
from wng.experiments.toys.descent import STATUS, initial, objective, sweep, versine_and_sine
from wng.experiments.toys.settings import ToySettings

SMALL = ToySettings(dim=3, iterations=60)
BOTH = pytest.mark.parametrize("parameterization", ["diagonal", "log-diagonal"])


def run(settings: ToySettings, *method: str, step_size: float = 0.9, beta: float = 0.1):
    runs = sweep(settings, *method)(np.array([step_size]), np.array([beta]))
    return jax.tree.map(lambda a: a[0], runs)


def test_versine_and_sine_to_full_precision(x64: None) -> None:
    x = np.concatenate([np.linspace(-60, 60, 4001), np.logspace(-12, 0, 50)])
    versine, sine = versine_and_sine(jnp.asarray(x))
    np.testing.assert_allclose(versine, 2 * np.sin(x / 2) ** 2, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(sine, np.sin(x), rtol=1e-12, atol=1e-13)
    tiny = x[-50:]
    np.testing.assert_allclose(versine[-50:], 2 * np.sin(tiny / 2) ** 2, rtol=1e-13)


@pytest.mark.parametrize(
    ("mean", "std"), [(0.0, 1.0), (2.0, 0.5), (-3.0, 2.0), (7.0, 0.1), (40.0, 1.0)]
)
def test_objective_is_the_gaussian_expectation(x64: None, mean: float, std: float) -> None:
    def integrand(x: float) -> float:
        return stats.norm.pdf(x, mean, std) * (1 - np.sinc(x / np.pi))

    expected, _ = integrate.quad(
        integrand, mean - 12 * std, mean + 12 * std, epsabs=1e-12, limit=200
    )
    value, _, _ = objective(jnp.array([mean]), jnp.array([std**2]))
    np.testing.assert_allclose(value, expected, atol=1e-10)


def test_objective_near_the_optimum_keeps_its_digits(x64: None) -> None:
    """1 − sin(x)/x = x²/6 − …, so L = (μ² + Σ)/6 down to the smallest numbers."""
    for scale in (1e-3, 1e-6, 1e-12):
        value, _, _ = objective(jnp.array([scale]), jnp.array([scale**2]))
        np.testing.assert_allclose(value, scale**2 / 3, rtol=1e-5)


def test_derivatives_equal_autodiff(x64: None) -> None:
    mean, variance = jnp.array([0.3, 2.0]), jnp.array([0.5, 1e-5])
    _, *closed = objective(mean, variance)
    autodiff = jax.grad(lambda m, s: objective(m, s)[0], argnums=(0, 1))(mean, variance)
    for a, b in zip(closed, autodiff, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


@BOTH
@pytest.mark.parametrize("geometry", ["euclidean", "fisher", "wasserstein"])
def test_first_step_is_the_natural_gradient_by_hand(x64: None, parameterization, geometry) -> None:
    settings = dataclasses.replace(SMALL, iterations=1)
    theta = initial(settings, parameterization)
    sigma = np.asarray(gaussian.variance(theta.v, parameterization))
    _, d_mean, d_sigma = (np.asarray(a) for a in objective(theta.mean, jnp.asarray(sigma)))
    d_v = d_sigma * (2 * sigma if parameterization == "log-diagonal" else 1)
    n_mean, n_v = gaussian.natural_gradient(geometry, parameterization, theta.v, d_mean, d_v)
    result = run(settings, "none", geometry, parameterization, step_size=0.1)
    v = np.asarray(theta.v - 0.1 * n_v)
    expected_std = np.sqrt(v) if parameterization == "diagonal" else np.exp(v)
    assert result.mean[1] == pytest.approx(float((theta.mean - 0.1 * n_mean)[0]), rel=1e-12)
    assert result.std[1] == pytest.approx(float(expected_std[0]), rel=1e-12)


@pytest.mark.parametrize("proximity", ["kl", "wasserstein"])
def test_a_penalty_acts_and_vanishes_with_beta(proximity: str) -> None:
    plain = run(SMALL, "none", "euclidean", "log-diagonal")
    zero = run(SMALL, proximity, "euclidean", "log-diagonal", beta=0.0)
    some = run(SMALL, proximity, "euclidean", "log-diagonal", beta=0.1)
    np.testing.assert_allclose(zero.error, plain.error, rtol=1e-9)
    assert some.error[1] == pytest.approx(plain.error[1], rel=1e-12)  # no pull at θ_k itself
    assert some.error[10] > 1.05 * plain.error[10]  # then it holds back


@BOTH
@pytest.mark.parametrize("proximity", ["kl", "wasserstein"])
def test_penalized_descent_by_hand(parameterization: str, proximity: str) -> None:
    """Seven steps with three inner steps, unrolled in numpy with derivatives by hand."""
    settings = ToySettings(dim=1, iterations=7, inner_steps=3, spread=0.0)
    log, rate, beta = parameterization == "log-diagonal", 0.3, 0.4
    result = run(settings, proximity, "euclidean", parameterization, step_size=rate, beta=beta)
    mean, v = 2.0, 0.0 if log else 1.0
    for k in range(8):
        sigma = np.exp(2 * v) if log else v
        assert result.mean[k] == pytest.approx(mean, rel=1e-9)
        assert result.std[k] == pytest.approx(np.sqrt(sigma), rel=1e-9)
        if k % 3 == 0:
            old_mean, old_sigma = mean, sigma
        with jax.enable_x64(True):
            _, d_mean, d_sigma = objective(jnp.array([mean]), jnp.array([sigma]))
        if proximity == "kl":  # KL(old ‖ new)
            pull_mean = (mean - old_mean) / sigma
            pull_sigma = 0.5 * (1 / sigma - (old_sigma + (mean - old_mean) ** 2) / sigma**2)
        else:  # ½W₂²
            pull_mean = mean - old_mean
            pull_sigma = 0.5 * (1 - np.sqrt(old_sigma / sigma))
        mean -= rate * (float(d_mean[0]) + beta * pull_mean)
        v -= rate * (float(d_sigma[0]) + beta * pull_sigma) * (2 * sigma if log else 1)


def test_wasserstein_converges_where_fisher_stalls() -> None:
    """Near the optimum FNG has Σ' = −λΣ²/3, so Σ ≈ 3/(λk); WNG has σ' = −λσ/3."""
    settings = dataclasses.replace(SMALL, iterations=4000)
    wasserstein = run(settings, "none", "wasserstein", "log-diagonal")
    fisher = run(settings, "none", "fisher", "log-diagonal")
    assert wasserstein.error[100] < 1e-8
    assert STATUS[wasserstein.status] == "converged"
    assert fisher.std[-1] ** 2 == pytest.approx(3 / (0.9 * 4000), rel=0.05)
    assert fisher.error[-1] > 1e-4


def test_breakdowns_are_recorded_with_the_last_valid_state() -> None:
    variance = run(SMALL, "none", "euclidean", "diagonal")
    assert STATUS[variance.status] == "variance not positive"
    before = int(variance.stopped)  # the step from here would have crossed zero
    assert 0 < before < 60
    shorter = run(dataclasses.replace(SMALL, iterations=before), "none", "euclidean", "diagonal")
    assert STATUS[shorter.status] == "running"  # one step fewer: nothing happens
    assert (variance.error[int(variance.stopped) :] == variance.error[-1]).all()
    assert np.isfinite(variance.error).all()
    diverged = run(SMALL, "kl", "euclidean", "log-diagonal", beta=1e6)
    assert STATUS[diverged.status] == "diverged"
    assert np.isfinite(diverged.error).all()
    bouncing = run(SMALL, "wasserstein", "euclidean", "log-diagonal", beta=10.0)
    assert STATUS[bouncing.status] == "diverged"  # finite, but far outside where L is resolved
    assert abs(bouncing.mean).max() <= 40


@BOTH
def test_estimated_direction_approaches_the_closed_form(x64: None, parameterization) -> None:
    theta = Theta(jnp.array([0.5, 2.0]), jnp.array([0.6, 0.3]))
    grad = Theta(jnp.array([1.0, -1.0]), jnp.array([0.5, 2.0]))
    exact = np.concatenate(
        gaussian.natural_gradient("wasserstein", parameterization, theta.v, *grad)
    )

    def error(num_samples: int, num_basis: int) -> float:
        settings = ToySettings(dim=2, num_samples=num_samples, num_basis=num_basis)
        keys = jax.random.split(jax.random.key(0), 20)
        estimate = jax.jit(
            jax.vmap(lambda k: estimated_direction(settings, parameterization, k, theta, grad))
        )(keys)
        gaps = np.concatenate(estimate, axis=1) - exact
        # The median draw: with 50 samples, one in 20 is so ill-conditioned that rounding decides.
        return float(np.median(np.linalg.norm(gaps, axis=1)) / np.linalg.norm(exact))

    assert error(4000, 10) < 0.25 * error(50, 10) < 0.25
    assert error(4000, 10) < 0.05


@pytest.mark.parametrize(("divergence", "factor"), [("wasserstein", 1.0), ("kl", 2.0)])
def test_proximal_limit_of_the_paper(x64: None, divergence: str, factor: float) -> None:
    """Proposition `proximal_limit`: as β → ∞ the penalized step becomes the natural gradient.

    With D = W₂² exactly, with D = KL up to the factor 2 that the paper drops; error O(1/β).
    """
    theta = jnp.array([1.5, -0.7, 0.2, -0.4])  # μ, v of a log-diagonal Gaussian

    def loss(t: jax.Array) -> jax.Array:
        return objective(t[:2], jnp.exp(2 * t[2:]))[0]

    def distance(t: jax.Array) -> jax.Array:
        args = (theta[:2], jnp.exp(2 * theta[2:]), t[:2], jnp.exp(2 * t[2:]))
        return (gaussian.kl if divergence == "kl" else gaussian.wasserstein_squared)(*args)

    geometry = "fisher" if divergence == "kl" else "wasserstein"
    g = jax.grad(loss)(theta)
    natural = -factor * jnp.concatenate(
        gaussian.natural_gradient(geometry, "log-diagonal", theta[2:], g[:2], g[2:])
    )

    @jax.jit
    def penalized_step(beta: float) -> jax.Array:
        def proximal(u: jax.Array) -> jax.Array:
            there = theta + u / beta
            return beta * (loss(there) - loss(theta) + beta / 2 * distance(there))

        def newton(_: int, u: jax.Array) -> jax.Array:
            return u - jnp.linalg.solve(jax.hessian(proximal)(u), jax.grad(proximal)(u))

        return jax.lax.fori_loop(0, 20, newton, natural)

    betas = np.array([1e1, 1e2, 1e3, 1e4])
    errors = np.array([float(jnp.linalg.norm(penalized_step(b) - natural)) for b in betas])
    rates = -np.diff(np.log10(errors))
    np.testing.assert_allclose(rates[1:], 1.0, atol=0.1)
    assert errors[-1] < 1e-3 * float(jnp.linalg.norm(natural))


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="iterations must be positive"):
        ToySettings(iterations=0)
    with pytest.raises(ValueError, match="must not exceed num_samples"):
        ToySettings(num_basis=200)
