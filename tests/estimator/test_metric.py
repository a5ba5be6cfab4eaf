import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wng

EPSILONS = [1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1.0, 1e2, 1e5]


def standardized(key: jax.Array, n: int, d: int) -> jax.Array:
    """Noise whose sample mean is 0 and whose sample covariance is I, exactly."""
    z = jax.random.normal(key, (n, d), float)
    z = z - z.mean(axis=0)
    root = jnp.linalg.cholesky(z.T @ z / n)
    return jax.scipy.linalg.solve_triangular(root, z.T, lower=True).T


class Problem(NamedTuple):
    basis: Any
    X: jax.Array
    J: jax.Array
    g: jax.Array

    def metric(self, **options: Any) -> wng.WassersteinMetric:
        return wng.WassersteinMetric(self.basis, self.X, self.J, **options)


@functools.partial(jax.jit, static_argnames=("n", "d", "m", "p"))
def problem_arrays(key: jax.Array, n: int, d: int, m: int, p: int) -> tuple:
    keys = jax.random.split(key, 5)
    Z = jax.random.normal(keys[0], (n, 8), float)
    D = jax.random.normal(keys[1], (8, d, p), float) / 8**0.5
    theta = 0.3 * jax.random.normal(keys[2], (p,), float)

    def behavior_fn(theta: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.einsum("ni,idp,p->nd", Z, D, theta) + Z[:, :1]) + D.sum(0) @ theta

    X = behavior_fn(theta)
    basis = wng.kernel_basis(keys[3], X, m, replace=m > n)
    J = wng.jacobian_reparam(basis, behavior_fn, theta)
    return basis, X, J, jax.random.normal(keys[4], (p,), float)


def problem(seed: int, n: int, d: int, m: int, p: int) -> Problem:
    """A nonlinear sampler with p parameters, and a kernel basis."""
    return Problem(*problem_arrays(jax.random.key(seed), n, d, m, p))


def oracle(gradients: jax.Array, J: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """(Q, Λ) of Ĝ = JᵀL†J by dense float64 linear algebra, with the metric's cutoffs."""
    cutoff = 2 * J.shape[0] * np.finfo(J.dtype).eps
    C = np.asarray(gradients, np.float64).reshape(J.shape[0], -1) / gradients.shape[1] ** 0.5
    norms = np.linalg.norm(C, axis=1, keepdims=True)
    U, roots, _ = np.linalg.svd(C / norms, full_matrices=False)
    keep = roots > cutoff * roots[0]
    A = (U[:, keep] / roots[keep]).T @ (np.asarray(J, np.float64) / norms)
    _, roots, Qt = np.linalg.svd(A, full_matrices=False)
    keep = roots > cutoff * roots[0]
    return Qt[keep].T, roots[keep] ** 2


def oracle_solve(
    Q: np.ndarray, values: np.ndarray, g: jax.Array, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """The components of (Ĝ + εI)⁻¹g inside and outside the row space of J."""
    g64 = np.asarray(g, np.float64)
    inside = Q.T @ g64
    outside = g64 - Q @ inside if len(g64) > len(values) else 0 * g64
    return Q @ (inside / (values + eps)), outside / eps


def relative(a: Any, b: Any) -> float:
    return float(np.linalg.norm(np.asarray(a, np.float64) - b) / np.linalg.norm(b))


# --- Ĝ against closed forms -------------------------------------------------------------------


def gaussian_metric(parameterization: str, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Estimated and exact information of a 3-D Gaussian with polynomial basis."""
    mean = jnp.array([0.3, -1.0, 2.0], float)
    std = jnp.array([0.5, 1.0, 2.0], float)
    scale = std if parameterization == "std" else jnp.log(std)
    noise = standardized(jax.random.key(0), n, 3)

    def behavior_fn(params: tuple[jax.Array, jax.Array]) -> jax.Array:
        mean, scale = params
        return mean + (scale if parameterization == "std" else jnp.exp(scale)) * noise

    basis = wng.polynomial_basis(3)
    J = wng.jacobian_reparam(basis, behavior_fn, (mean, scale))
    G = wng.WassersteinMetric(basis, behavior_fn((mean, scale)), J).dense()
    exact = jnp.ones(3) if parameterization == "std" else std**2
    return np.asarray(G), np.diag(np.concatenate([np.ones(3), np.asarray(exact)]))


@pytest.mark.parametrize("parameterization", ["std", "log-std"])
def test_polynomial_basis_gives_the_exact_gaussian_metric(parameterization: str) -> None:
    G, exact = gaussian_metric(parameterization)
    assert G.dtype == np.float32
    np.testing.assert_allclose(G, exact, atol=1e-5)


@pytest.mark.parametrize("parameterization", ["std", "log-std"])
def test_polynomial_basis_gives_the_exact_gaussian_metric_in_float64(
    x64: None, parameterization: str
) -> None:
    G, exact = gaussian_metric(parameterization)
    assert G.dtype == np.float64
    np.testing.assert_allclose(G, exact, atol=1e-10)


def test_kernel_basis_error_falls_as_basis_and_batch_grow() -> None:
    """The exact metric of (μ, σ) is I in any dimension."""

    def error(m: int, n: int) -> float:
        def one(key: jax.Array) -> jax.Array:
            noise_key, basis_key = jax.random.split(key)
            noise = jax.random.normal(noise_key, (n, 2))
            basis = wng.kernel_basis(basis_key, noise, m)
            fn = lambda params: params[:2] + params[2:] * noise  # noqa: E731
            params = jnp.array([0.0, 0.0, 1.0, 1.0])
            J = wng.jacobian_reparam(basis, fn, params)
            return jnp.linalg.norm(wng.WassersteinMetric(basis, noise, J).dense() - jnp.eye(4))

        return float(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 16)).mean())

    by_basis = [error(m, 4000) for m in (4, 8, 16)]
    by_batch = [error(16, n) for n in (60, 400, 4000)]
    assert by_basis[0] > 2 * by_basis[1] > 4 * by_basis[2], by_basis
    assert by_batch[0] > 2 * by_batch[1] > 4 * by_batch[2], by_batch
    assert by_basis[2] < 0.1


def test_quadratic_is_the_squared_w2_of_a_small_step(x64: None) -> None:
    """eq. second_order_exansion, for a Gaussian whose W₂ is known."""
    noise = standardized(jax.random.key(0), 200, 2)
    mean, std = jnp.array([1.0, 2.0]), jnp.array([0.5, 3.0])
    params = jnp.concatenate([mean, jnp.log(std)])
    fn = lambda q: q[:2] + jnp.exp(q[2:]) * noise  # noqa: E731
    basis = wng.polynomial_basis(2)
    metric = wng.WassersteinMetric(basis, fn(params), wng.jacobian_reparam(basis, fn, params))
    u = jnp.array([0.3, -0.1, 0.2, 0.4])
    for scale, tolerance in [(1e-2, 2e-2), (1e-4, 2e-4)]:
        moved = params + scale * u
        exact = wng.estimator.gaussian.wasserstein_squared(
            params[:2], jnp.exp(2 * params[2:]), moved[:2], jnp.exp(2 * moved[2:])
        )
        assert float(metric.quadratic(scale * u) / exact) == pytest.approx(1, rel=tolerance)


# --- the transport field ----------------------------------------------------------------------


def test_transport_of_a_gaussian_is_the_optimal_map(x64: None) -> None:
    """From N(μ, σ²) to N(μ+a, (σ+b)²) the optimal field is a + b (x − μ)/σ."""
    noise = standardized(jax.random.key(0), 200, 1)
    params = jnp.array([2.0, 0.5])
    fn = lambda q: q[0] + q[1] * noise  # noqa: E731
    basis = wng.polynomial_basis(1)
    metric = wng.WassersteinMetric(basis, fn(params), wng.jacobian_reparam(basis, fn, params))
    field = metric.transport(jnp.array([0.7, 0.2]))
    x = jnp.linspace(0, 4, 9)[:, None]
    np.testing.assert_allclose(field(x), 0.7 + 0.2 * (x - 2.0) / 0.5, rtol=1e-9)
    np.testing.assert_allclose(field(x[3]), field(x)[3])


def test_mean_square_of_the_transport_field_is_the_quadratic_form(x64: None) -> None:
    """Proposition WIM: E‖∇f_u‖² = uᵀĜu."""
    task = problem(0, 64, 3, 6, 20)
    metric = task.metric()
    moves = metric.transport(task.g)(task.X)
    np.testing.assert_allclose((moves**2).sum(1).mean(), metric.quadratic(task.g), rtol=1e-9)
    np.testing.assert_allclose(metric.quadratic(task.g), task.g @ metric.dense() @ task.g)


# --- solve against the dense oracle -----------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 4, 5, 40), (64, 3, 8, 6), (200, 3, 12, 60)])
def test_solve_equals_the_dense_inverse_in_float64(x64: None, shape: tuple[int, ...]) -> None:
    task = problem(1, *shape)
    metric, p = task.metric(), shape[-1]
    Q, values = oracle(task.basis.gradients(task.X), task.J)
    for eps in EPSILONS:
        answer = metric.solve(task.g, eps)
        assert relative(answer, sum(oracle_solve(Q, values, task.g, eps))) < 1e-6
        if eps >= 1e-6:  # below, the dense inverse itself loses the digits
            dense = np.linalg.solve(np.asarray(metric.dense()) + eps * np.eye(p), task.g)
            assert relative(answer, dense) < 1e-6


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "shape", [(64, 4, 5, 1000), (64, 1, 5, 200), (256, 2, 10, 500), (64, 2, 20, 500)]
)
def test_solve_in_float32_keeps_the_row_space_component(shape, seed: int) -> None:
    task = problem(seed, *shape)
    metric = task.metric()
    Q, values = oracle(task.basis.gradients(task.X), task.J)
    in_row_space = Q @ (np.sqrt(values) * np.random.default_rng(seed).normal(size=len(values)))
    g_row = jnp.asarray(in_row_space, jnp.float32)
    directions = metric.spectrum.directions[: len(values)]
    np.testing.assert_allclose(directions @ directions.T, np.eye(len(values)), atol=1e-5)
    for eps in EPSILONS:
        answer = metric.solve(task.g, eps)
        inside, outside = oracle_solve(Q, values, task.g, eps)
        assert relative(answer, inside + outside) < 1e-4
        if eps >= 1e-3 * values.max():
            assert relative(Q @ (Q.T @ np.asarray(answer, np.float64)), inside) < 1e-3
        # A gradient in the row space of J: the naive Woodbury form returns noise here.
        assert relative(metric.solve(g_row, eps), oracle_solve(Q, values, g_row, eps)[0]) < 1e-3


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", [(64, 4, 10, 5), (64, 2, 5, 3), (64, 4, 5, 1)])
def test_solve_in_float32_with_fewer_parameters_than_basis_functions(shape, seed: int) -> None:
    task = problem(seed, *shape)
    Q, values = oracle(task.basis.gradients(task.X), task.J)
    for eps in EPSILONS:
        answer = task.metric().solve(task.g, eps)
        assert relative(answer, oracle_solve(Q, values, task.g, eps)[0]) < 1e-3


def test_rescaled_solve_is_the_dense_inverse_with_rescaled_damping(x64: None) -> None:
    task = problem(2, 64, 4, 5, 30)
    metric = task.metric(rescale=True)
    Q, values = oracle(task.basis.gradients(task.X), task.J)
    G = Q * values @ Q.T
    for eps in (1e-5, 1e-2, 1.0):
        damped = G + eps * np.diag(np.sqrt(np.diag(G)) + 1e-8)
        assert relative(metric.solve(task.g, eps), np.linalg.solve(damped, task.g)) < 1e-8


# --- the edges --------------------------------------------------------------------------------


def test_duplicated_basis_functions_change_nothing() -> None:
    task = problem(0, 64, 4, 5, 200)
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x]) if x.ndim else x, task.basis)
    doubled = wng.WassersteinMetric(twice, task.X, jnp.concatenate([task.J, task.J]))
    metric = task.metric()
    row_gradient = task.J.T @ jnp.ones(5)
    for eps in EPSILONS:
        for g in (task.g, row_gradient):
            assert relative(doubled.solve(g, eps), np.asarray(metric.solve(g, eps))) < 1e-3
    np.testing.assert_allclose(doubled.quadratic(task.g), metric.quadratic(task.g), rtol=1e-3)


def test_constant_samples_see_only_the_translation(x64: None) -> None:
    """All noise zero: X = μ, so μ costs 1 a unit along the basis' coordinates and log σ nothing."""
    fn = lambda q: q[:2] + jnp.exp(q[2:]) * jnp.zeros((16, 2))  # noqa: E731
    params = jnp.array([1.0, 2.0, 0.0, 0.0])
    basis = wng.kernel_basis(jax.random.key(0), fn(params), 8)
    metric = wng.WassersteinMetric(basis, fn(params), wng.jacobian_reparam(basis, fn, params))
    np.testing.assert_allclose(metric.dense(), np.diag([1.0, 1.0, 0.0, 0.0]), atol=1e-12)
    np.testing.assert_allclose(metric.solve(jnp.ones(4), 0.5), [1 / 1.5, 1 / 1.5, 2, 2])


@pytest.mark.parametrize("shape", [(3, 2, 5, 50), (2, 1, 8, 20), (1, 1, 3, 4), (40, 1, 10, 7)])
def test_few_samples_and_one_dimension_stay_finite(shape: tuple[int, ...]) -> None:
    task = problem(0, *shape)
    for rescale in (False, True):
        metric = task.metric(rescale=rescale)
        for eps in EPSILONS:
            answer = metric.solve(task.g, eps)
            assert jnp.isfinite(answer).all()
            assert answer @ task.g > 0  # still a descent direction
            np.testing.assert_array_equal(metric.solve(jnp.zeros_like(task.g), eps), 0)


def test_the_scale_of_the_samples_does_not_matter() -> None:
    """Coordinates a million times apart: still the exact metric of (μ, σ), which is I."""
    noise, std = standardized(jax.random.key(0), 400, 2), jnp.array([1e-3, 1e3])
    fn = lambda q: q[:2] + q[2:] * noise  # noqa: E731
    params, basis = jnp.concatenate([jnp.zeros(2), std]), wng.polynomial_basis(2)
    metric = wng.WassersteinMetric(basis, fn(params), wng.jacobian_reparam(basis, fn, params))
    np.testing.assert_allclose(metric.dense(), np.eye(4), atol=1e-3)


def test_a_metric_that_sees_nothing_leaves_the_gradient() -> None:
    task = problem(0, 64, 4, 5, 30)
    metric = wng.WassersteinMetric(task.basis, task.X, jnp.zeros_like(task.J))
    np.testing.assert_allclose(metric.solve(task.g, 0.5), 2 * task.g, rtol=1e-6)


@pytest.mark.parametrize("kind", ["polynomial", "kernel"])
def test_reparameterization_invariance(x64: None, kind: str) -> None:
    """The move in behavior space is the same from (μ, σ) and (μ, log σ) as ε → 0."""
    noise = standardized(jax.random.key(1), 300, 2)
    target = jnp.array([1.0, -2.0])
    from_std = (lambda q: q[:2] + q[2:] * noise, jnp.array([0.1, 0.2, 0.5, 2.0]))
    from_log = (
        lambda q: q[:2] + jnp.exp(q[2:]) * noise,
        from_std[1].at[2:].set(jnp.log(from_std[1][2:])),
    )
    moves: dict[float, list[jax.Array]] = {}
    for fn, params in (from_std, from_log):
        X = fn(params)
        basis = (
            wng.polynomial_basis(2)
            if kind == "polynomial"
            else wng.kernel_basis(jax.random.key(2), X, 30)
        )
        metric = wng.WassersteinMetric(basis, X, wng.jacobian_reparam(basis, fn, params))
        g = jax.grad(lambda q, fn=fn: jnp.mean(jnp.sum((fn(q) - target) ** 4, axis=1)))(params)
        for eps in (1e-1, 1e-3, 1e-6, 1e-9):
            step = metric.solve(g, eps)
            moves.setdefault(eps, []).append(jax.jvp(fn, (params,), (step,))[1])
    gaps = [relative(a, np.asarray(b)) for a, b in moves.values()]
    assert gaps[0] > 0.01  # a damped step does depend on the parameterization
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-7


def test_bad_input_is_refused_in_one_sentence() -> None:
    task = problem(0, 64, 4, 5, 30)
    metric = task.metric()
    cases = [
        (lambda: metric.solve(task.g, -1.0), "damping must be a positive number"),
        (lambda: metric.solve(task.g, 0.0), "damping must be a positive number"),
        (lambda: metric.solve(task.g[:-1]), "flat with 30 entries"),
        (lambda: metric.quadratic(task.J), "flat with 30 entries"),
        (lambda: metric.transport(task.g[:2]), "flat with 30 entries"),
        (lambda: metric.solve({"a": task.g}), "g must be an array of numbers"),
        (lambda: metric.solve(task.g, wng.Damping()), "damping must be a positive number"),
        (lambda: wng.WassersteinMetric(task.X, task.basis, task.J), "basis must be a basis"),
        (lambda: task._replace(J=task.J[:4]).metric(), r"J must have shape \[5, parameters\]"),
        (lambda: task._replace(J=task.J.at[0, 0].set(jnp.nan)).metric(), "J contains a NaN"),
        (lambda: task._replace(X=task.X.at[0, 0].set(jnp.inf)).metric(), "X contains a NaN"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)


def test_memory_stays_linear_in_the_parameters() -> None:
    """No intermediate of a solve reaches p² (or even 8·M·p) numbers."""
    n, d, m, p = 32, 2, 5, 5000

    def solve(X: jax.Array, J: jax.Array, g: jax.Array) -> jax.Array:
        basis = wng.kernel_basis(jax.random.key(0), X, m)
        return wng.WassersteinMetric(basis, X, J).solve(g, 1e-3)

    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((n, d), (m, p), (p,))]
    compiled = jax.jit(solve).lower(*args).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 8 * m * p * 4
