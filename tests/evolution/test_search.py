"""The search distribution: gradients against closed forms, natural steps, and what holds always."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wng
from wng.evolution.axes import GEOMETRIES, PROXIMITIES, SEARCHES
from wng.evolution.fitness import Sample, es_gradient, es_gradients
from wng.evolution.members import Noise
from wng.evolution.methods import preset
from wng.evolution.search import Search

LEARNED = [name for name in SEARCHES if name != "fixed"]
H, B = np.array([3.0, 0.5, 20.0]), np.array([1.0, -2.0, 0.5])
MEAN, SIGMA = np.array([0.3, -1.0, 0.1]), np.array([0.5, 2.0, 0.1])


def quadratic(x):
    """f(x) = b·x − ½ Σ h_i x_i²: ∇_μ E f = b − hμ and ∇_σ E f = −hσ, for every μ and σ."""
    return x @ B - 0.5 * x**2 @ H


def gradients(noise, fitness, sigma) -> tuple[np.ndarray, np.ndarray]:
    noise, fitness = jnp.asarray(noise), jnp.asarray(fitness)
    kept = jnp.ones(len(noise), bool)
    sample = Sample(fitness, Noise(lambda first: noise, kept, len(noise)), noise, kept, sigma)
    of_mean, of_sigma = es_gradients(sample, fitness)
    np.testing.assert_allclose(of_mean, es_gradient(sample, fitness), rtol=1e-9)
    return np.array(of_mean), np.array(of_sigma)


@pytest.mark.parametrize("shift", [0.0, 7.0])
def test_the_gradients_are_exact_under_quadrature(x64: None, shift: float) -> None:
    """Three Gauss–Hermite nodes in each coordinate integrate these polynomials without error."""
    nodes, weights = [0, 3**0.5, -(3**0.5)], [2 / 3, 1 / 6, 1 / 6]
    noise = SIGMA * np.array(list(itertools.product(nodes, repeat=3)))
    weight = np.prod(list(itertools.product(weights, repeat=3)), axis=1)
    values = quadratic(MEAN + noise) + shift  # a constant changes nothing
    of_mean, of_sigma = gradients(noise, len(weight) * weight * values, jnp.array(SIGMA))
    np.testing.assert_allclose(of_mean, B - H * MEAN, rtol=1e-10)
    np.testing.assert_allclose(of_sigma, -H * SIGMA, rtol=1e-10)


@pytest.mark.parametrize("antithetic", [True, False])
def test_the_gradients_are_unbiased(x64: None, antithetic: bool) -> None:
    """The members of `ask`, with pairs and without, at a σ of its own for each parameter."""
    number = 100_000
    es = wng.SNES(jnp.array(MEAN), population=number, antithetic=antithetic)
    state = es.init(jax.random.key(0))._replace(sigma=jnp.array(SIGMA))
    noise = np.array(es.ask(state)[0]) - MEAN
    values = quadratic(MEAN + noise)
    fitness = values - values.mean()
    eps = noise / SIGMA
    each = fitness[:, None] * eps / SIGMA, fitness[:, None] * (eps**2 - 1) / SIGMA
    found = gradients(noise, fitness, jnp.array(SIGMA))
    for one, terms, exact in zip(found, each, (B - H * MEAN, -H * SIGMA), strict=True):
        if antithetic:  # the two of a pair are not independent
            terms = terms.reshape(-1, 2, 3).mean(axis=1)
        scatter = terms.std(axis=0) / len(terms) ** 0.5
        assert np.all(np.abs(one - exact) < 4 * scatter)
        assert np.all(scatter < 0.1 * np.abs(exact).max())  # it could have failed


def test_the_gradient_of_sigma_is_the_slope_of_the_mean_return(x64: None) -> None:
    """Value, gradient and scale: E f by a million common samples, differentiated by JAX."""
    eps = jax.random.normal(jax.random.key(1), (1_000_000, 3))

    def mean_return(mean, sigma):
        x = mean + sigma * eps
        return jnp.mean(jnp.sin(x).sum(axis=1) + 0.1 * x[:, 0] * x[:, 1])

    value, slopes = jax.value_and_grad(mean_return, (0, 1))(jnp.array(MEAN), jnp.array(SIGMA))
    x = MEAN + SIGMA * np.array(eps)
    values = np.sin(x).sum(axis=1) + 0.1 * x[:, 0] * x[:, 1]
    assert values.mean() == pytest.approx(float(value), rel=1e-9)
    found = gradients(SIGMA * np.array(eps), values - values.mean(), jnp.array(SIGMA))
    for one, exact in zip(found, slopes, strict=True):
        np.testing.assert_allclose(one, exact, atol=0.02)


# Steps


def told(search: str, sigma=SIGMA, rate: float = 0.0, seed: int = 0, **settings):
    """One generation on the quadratic: θ and σ before and after, ε and shaped returns."""
    es = wng.Strategy(
        jnp.array(MEAN),
        search=search,
        population=50,
        learning_rate=1.0,
        sigma_rate=rate,
        **{"shaping": "utilities"} | settings,
    )
    state = es.init(jax.random.key(seed))._replace(sigma=jnp.asarray(sigma, float))
    candidates, state = es.ask(state)
    returns = quadratic(np.array(candidates))
    after, metrics = es.tell(state, candidates, returns)
    eps = (np.array(candidates) - MEAN) / sigma
    return after, metrics, eps, returns


def shaped(returns: np.ndarray) -> np.ndarray:
    """Utilities times N, as Wierstra et al. print them."""
    number = len(returns)
    ranks = np.argsort(np.argsort(-returns)) + 1
    weights = np.maximum(0, np.log(number / 2 + 1) - np.log(ranks))
    return number * (weights / weights.sum() - 1 / number)


def test_fisher_is_separable_nes(x64: None) -> None:
    after, metrics, eps, returns = told("fisher")
    u, rate = shaped(returns) / 50, (3 + np.log(3)) / (5 * 3**0.5)
    np.testing.assert_allclose(after.center, MEAN + SIGMA * (u @ eps), rtol=1e-6)
    expected = SIGMA * np.exp(0.5 * rate * u @ (eps**2 - 1))
    np.testing.assert_allclose(after.sigma, expected, rtol=1e-6)
    assert float(metrics["sigma"]) == pytest.approx(np.sqrt(np.mean(SIGMA**2)))


@pytest.mark.parametrize("c", [3.0, 0.0])
def test_wasserstein_solves_with_the_damped_metric(x64: None, c: float) -> None:
    """Against the dense metric in (θ, σ): (I/s² + cF)/(1 + c), F = diag(1/σ², 2/σ²)."""
    # At c = 0 the steps of θ and ln σ are long: a small rate keeps σ within its bound.
    rate = 0.1 if c else 1e-4
    after, _, eps, returns = told("wasserstein", rate=rate, search_damping=c)
    u = shaped(returns) / 50
    g = np.concatenate([u @ eps / SIGMA, u @ (eps**2 - 1) / SIGMA])
    fisher = np.diag(np.concatenate([1 / SIGMA**2, 2 / SIGMA**2]))
    step = np.linalg.solve((np.eye(6) / np.mean(SIGMA**2) + c * fisher) / (1 + c), g)
    np.testing.assert_allclose(np.array(after.center) - MEAN, step[:3], rtol=1e-6)
    np.testing.assert_allclose(np.log(after.sigma / SIGMA), rate * step[3:] / SIGMA, rtol=1e-6)


@pytest.mark.parametrize(
    ("rate", "c", "ratio"), [(0.1, 3.0, 8 / 7), (0.0, 3.0, 1.0), (0.0, 1.0, 1.0), (0.0, 0.0, 1.0)]
)
def test_where_all_sigma_are_equal_the_searches_agree(
    x64: None, rate: float, c: float, ratio: float
) -> None:
    """The metrics of θ are the same there, and by default so is the speed of σ."""
    settings = {"sigma": np.full(3, 0.4), "rate": rate, "search_damping": c}
    ends = [told(name, **settings)[0] for name in LEARNED]
    np.testing.assert_allclose(ends[0].center, ends[1].center, rtol=1e-9)
    steps = [np.log(np.array(end.sigma) / 0.4) for end in ends]
    np.testing.assert_allclose(steps[1], ratio * steps[0], rtol=1e-9)


@pytest.mark.parametrize("search", LEARNED)
def test_the_unit_of_the_parameters_does_not_matter(x64: None, search: str) -> None:
    """f(x/c) from (cμ, cσ) is the same search, times c: steps stay finite as σ → 0."""
    ends = []
    for unit in (1.0, 1e-9, 1e9):
        es = wng.Strategy(
            jnp.array(unit * MEAN), search=search, learning_rate=1.0, sigma=0.5 * unit
        )
        state = es.init(jax.random.key(0))
        for _ in range(20):
            candidates, state = es.ask(state)
            state, _ = es.tell(state, candidates, quadratic(np.array(candidates) / unit))
        ends.append(np.concatenate([state.center, state.sigma]) / unit)
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)
    np.testing.assert_allclose(ends[0], ends[2], rtol=1e-6)


@pytest.mark.parametrize("cls", [wng.SNES, wng.WSNES])
def test_sigma_falls_to_the_optimum(x64: None, cls) -> None:
    """Condition 10⁴; a fixed σ stays where its noise is."""
    scales = np.logspace(0, 4, 5)

    def error(es, generations: int) -> tuple[float, np.ndarray]:
        state = es.init(jax.random.key(0))

        def step(state, _):
            candidates, state = es.ask(state)
            return es.tell(state, candidates, -(candidates**2) @ scales)[0], None

        state = jax.lax.scan(step, state, None, length=generations)[0]
        return float(np.array(state.center) ** 2 @ scales), state.sigma

    start = jnp.full(5, 3.0)
    found, sigma = error(cls(start, population=16, sigma=1.0), 1200)
    assert found < 1e-12
    assert np.array(sigma).max() < 1e-6
    assert error(wng.ES(start, population=16, sigma=1.0), 1200)[0] > 1e-2


# What holds always


@pytest.mark.parametrize("search", LEARNED)
@pytest.mark.parametrize("sign", [1, -1])
def test_sigma_stays_positive_and_finite(search: str, sign: int) -> None:
    """The return is ∓‖x − θ‖², so that σ only ever falls, or only ever grows."""
    settings = {"search": search, "population": 10, "learning_rate": 0.1, "sigma_rate": 5.0}
    es = wng.Strategy(jnp.ones(3), **settings)

    @jax.jit
    def step(state):
        candidates, state = es.ask(state)
        return es.tell(state, candidates, -sign * jnp.sum((candidates - state.center) ** 2, 1))[0]

    state = es.init(jax.random.key(0))
    for _ in range(300):
        state = step(state)
        for array in (state.center, state.sigma, 1 / state.sigma**2, state.sigma**2):
            assert np.isfinite(np.array(array)).all()
        assert np.array(state.sigma).min() > 0


@pytest.mark.parametrize("search", LEARNED)
def test_a_generation_without_a_finite_return_changes_nothing(search: str) -> None:
    es = wng.Strategy(jnp.ones(3), search=search, population=10)
    candidates, state = es.ask(es.init(jax.random.key(0)))
    after, metrics = es.tell(state, candidates, np.full(10, np.nan))
    np.testing.assert_array_equal(after.sigma, state.sigma)
    np.testing.assert_array_equal(after.center, state.center)
    assert int(after.skipped) == 1
    assert float(metrics["sigma"]) == pytest.approx(0.05)


@pytest.mark.parametrize("search", LEARNED)
def test_what_is_not_finite_in_sigma_alone_is_skipped(search: str) -> None:
    es = wng.Strategy(jnp.ones(3), search=search, population=10)
    candidates, state = es.ask(es.init(jax.random.key(0)))
    broken = state._replace(sigma=state.sigma.at[1].set(jnp.nan))
    after, _ = es.tell(broken, candidates, np.arange(10.0))
    assert int(after.skipped) == 1
    np.testing.assert_array_equal(after.center, state.center)


@pytest.mark.parametrize("search", list(SEARCHES))
@pytest.mark.parametrize("geometry", list(GEOMETRIES))
@pytest.mark.parametrize("proximity", list(PROXIMITIES))
def test_every_combination_climbs(proximity: str, geometry: str, search: str) -> None:
    learned = search in LEARNED
    small = {"num_basis": 4, "dual_features": 16, "dual_steps": 5, "archive": 8, "neighbors": 2}
    es = wng.Strategy(
        jnp.full(4, 2.0),
        proximity=proximity,
        geometry=geometry,
        search=search,
        population=20,
        sigma=0.3,
        beta=0.1,
        delta=0.5,
        learning_rate=1.0 if learned else 0.05,
        **small,
    )

    def step(state, _):
        candidates, state = es.ask(state)
        return es.tell(state, candidates, -jnp.sum(candidates**2, axis=1), candidates[:, :2])

    state = es.init(jax.random.key(0), behavior_size=2)
    state, metrics = jax.lax.scan(step, state, None, length=60)
    assert float(jnp.sum(state.center**2)) < 2
    assert int(state.skipped) == 0
    assert (metrics["sigma"][-1] != metrics["sigma"][0]) == learned


def test_the_jacobian_takes_a_sigma_for_each_parameter() -> None:
    rng = np.random.default_rng(0)
    noise, sigma = rng.normal(size=(50, 3)) * SIGMA, jnp.array(SIGMA, jnp.float32)
    X = noise[:, :2]
    basis = wng.polynomial_basis(2, degree=2)
    found = wng.jacobian_perturbation(basis, X, noise, sigma)
    for j in range(3):
        alone = wng.jacobian_perturbation(basis, X, noise[:, j : j + 1], float(SIGMA[j]))
        np.testing.assert_allclose(found[:, j : j + 1], alone, rtol=1e-4, atol=1e-5)
    for bad in (jnp.ones(2), sigma.at[1].set(0)):
        with pytest.raises(ValueError, match="sigma must be a positive number"):
            wng.jacobian_perturbation(basis, X, noise, bad)


class Halving(Search):
    """σ is halved in each generation, and θ follows the gradient."""

    def start(self, config, center):
        return jnp.full_like(center, config.sigma)

    def step(self, config, sigma, direction, of_sigma):
        return direction, sigma / 2


def test_a_search_of_ones_own(monkeypatch) -> None:
    monkeypatch.setitem(SEARCHES, "halving", Halving())
    es = wng.ES(jnp.ones(3), search="halving", sigma=0.8)
    state = es.init(jax.random.key(0))
    for _ in range(3):
        candidates, state = es.ask(state)
        state, _ = es.tell(state, candidates, -jnp.sum(candidates**2, axis=1))
    np.testing.assert_allclose(state.sigma, 0.1, rtol=1e-6)
    with pytest.raises(ValueError, match="did you mean 'halving'"):
        wng.ES(jnp.ones(3), search="halvin")


@pytest.mark.parametrize("settings", ["tuned", "paper", "released"])
def test_presets_do_not_limit_the_natural_step(settings) -> None:
    for name in ("snes", "wsnes"):
        config = preset(name, settings, "wng/QuadrupedWall-v0")
        assert (config.learning_rate, config.max_norm, config.shaping) == (1.0, 0.0, "utilities")
        assert config.sigma == 0.05
