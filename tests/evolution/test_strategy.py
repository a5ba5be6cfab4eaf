import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import wng
from evolution.tiny import ENV, TINY
from wng import envs
from wng.evolution.axes import GEOMETRIES, PROXIMITIES
from wng.evolution.config import StrategyConfig
from wng.evolution.geometry import Geometry
from wng.evolution.methods import preset
from wng.evolution.proximity import Proximity, mixed
from wng.evolution.trainer import EvolutionTrainer

PARAMS = {"a": jnp.array([1.0, -2.0]), "b": {"c": jnp.arange(3.0).reshape(1, 3)}}
LEARNED = [wng.SNES, wng.WSNES]
CLASSES = [wng.ES, wng.NSRES, wng.BGES, wng.WNES, wng.BGWNES, wng.NSRWNES, *LEARNED]
SMALL = {"num_basis": 4, "dual_features": 16, "dual_steps": 5, "archive": 8, "neighbors": 2}


def flat(tree) -> np.ndarray:
    return np.array(ravel_pytree(tree)[0])


def rows(tree) -> np.ndarray:
    return np.array(jax.vmap(lambda t: ravel_pytree(t)[0])(tree))


def sphere(candidates) -> jax.Array:
    return -jax.vmap(lambda t: jnp.sum(ravel_pytree(t)[0] ** 2))(candidates)


def first_two(candidates) -> jax.Array:
    return jax.vmap(lambda t: ravel_pytree(t)[0][:2])(candidates)


def generation(es, state, returns=sphere, behaviors=first_two):
    candidates, state = es.ask(state)
    return es.tell(state, candidates, returns(candidates), behaviors(candidates))


def two_generations(es) -> np.ndarray:
    state = es.init(jax.random.key(0))
    for _ in range(2):
        state, _ = generation(es, state)
    return np.array(state.center)


# Asking


def test_members_have_the_shape_of_the_parameters_and_the_right_scale() -> None:
    es = wng.ES(PARAMS, population=2000, sigma=0.1)
    candidates, _ = es.ask(es.init(jax.random.key(0)))
    assert candidates["b"]["c"].shape == (2000, 1, 3)
    noise = rows(candidates) - flat(PARAMS)
    np.testing.assert_allclose(noise[::2], -noise[1::2], atol=1e-6)  # antithetic
    np.testing.assert_allclose(noise.std(axis=0), 0.1, rtol=0.1)
    assert np.abs(np.corrcoef(noise[::2].T) - np.eye(5)).max() < 0.15


def test_a_member_follows_from_key_generation_and_number_alone() -> None:
    es = wng.ES(PARAMS, population=8)
    state = es.init(jax.random.key(3))
    candidates, asked = es.ask(state)
    again, _ = es.ask(asked)
    np.testing.assert_array_equal(rows(candidates), rows(again))
    for number in range(8):
        np.testing.assert_array_equal(flat(es.member(state, number)), rows(candidates)[number])
    state, _ = es.tell(state, candidates, sphere(candidates))
    following, _ = es.ask(state)
    other, _ = es.ask(es.init(jax.random.key(4)))
    for different in (following, other):
        assert np.abs(rows(different) - rows(candidates)).min() > 0


def test_independent_noise() -> None:
    es = wng.ES(PARAMS, population=7, antithetic=False)
    candidates, _ = es.ask(es.init(jax.random.key(0)))
    noise = rows(candidates) - flat(PARAMS)
    assert len(np.unique(np.abs(noise).round(6), axis=0)) == 7


# Telling


@pytest.mark.parametrize("cls", CLASSES)
def test_every_method_climbs(cls) -> None:
    weight = {} if cls in (wng.ES, wng.WNES) else {"beta": 0.2}
    rate = {} if cls in LEARNED else {"learning_rate": 0.05}
    es = cls(PARAMS, population=40, sigma=0.1, **SMALL, **weight, **rate)
    state = es.init(jax.random.key(0))
    for _ in range(80):
        state, metrics = generation(es, state)
    assert np.sum(flat(es.params(state)) ** 2) < 0.2 * np.sum(flat(PARAMS) ** 2)
    assert int(state.generation) == 80
    assert int(metrics["dropped"]) == 0


def test_delta_zero_is_es_bit_for_bit() -> None:
    pairs = (wng.WNES, wng.ES), (wng.BGWNES, wng.BGES), (wng.NSRWNES, wng.NSRES)
    for with_metric, without in pairs:
        same = {"population": 10, "beta": 0.2, "sigma": 0.1, "learning_rate": 0.05} | SMALL
        a, b = with_metric(PARAMS, delta=0, **same), without(PARAMS, **same)
        state_a, state_b = a.init(jax.random.key(1)), b.init(jax.random.key(1))
        for _ in range(5):
            state_a, _ = generation(a, state_a)
            state_b, _ = generation(b, state_b)
        np.testing.assert_array_equal(state_a.center, state_b.center)


def test_novelty_of_no_weight_leaves_wnes_bit_for_bit() -> None:
    same = {"population": 10, "delta": -1.3, "learning_rate": 0.05} | SMALL
    a, b = wng.NSRWNES(PARAMS, beta=0, **same), wng.WNES(PARAMS, **same)
    state_a, state_b = a.init(jax.random.key(1)), b.init(jax.random.key(1))
    for _ in range(5):
        state_a, _ = generation(a, state_a)
        state_b, _ = generation(b, state_b)
    np.testing.assert_array_equal(state_a.center, state_b.center)


def balanced(theta: np.ndarray, sigma: float) -> np.ndarray:
    """Perturbations ±√p·σ·e_i, whose second moment is σ²I without error."""
    axes = theta.size**0.5 * sigma * np.eye(theta.size)
    return theta + np.concatenate([axes, -axes])


@pytest.mark.parametrize("rescale", [False, True])
@pytest.mark.parametrize("delta", [1.0, 0.5, -1.3])
@pytest.mark.parametrize("damping", [1e-2, 1.0])
def test_linear_behaviors_give_the_exact_natural_step(
    delta: float, damping: float, rescale: bool
) -> None:
    """X = Bθ̃ shifts by Bu when θ moves by u: G = BᵀB, and ĝ is the gradient itself."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=6).astype(np.float32)
    B, b = rng.normal(size=(2, 6)), rng.normal(size=6)
    es = wng.WNES(
        jnp.array(theta),
        population=12,
        sigma=0.1,
        delta=delta,
        damping=damping,
        relative_damping=False,
        rescale=rescale,
        basis=wng.polynomial_basis(2, degree=1),
        optimizer=optax.sgd(1.0),
    )
    candidates = balanced(theta, 0.1)
    returns = candidates @ b
    state, metrics = es.tell(
        es.init(jax.random.key(0)), jnp.array(candidates, jnp.float32), returns, candidates @ B.T
    )
    g = b / returns.std()  # returns are standardized
    d = 1 / np.linalg.norm(B, axis=0) if rescale else np.ones(6)
    natural = damping * np.linalg.solve(B.T @ B + damping * np.diag(1 / d), g)
    expected = (1 - delta) * d * g + delta * natural
    np.testing.assert_allclose(np.array(state.center) - theta, expected, rtol=1e-3, atol=1e-4)
    assert float(metrics["epsilon"]) == pytest.approx(damping)
    cosine = g @ expected / (np.linalg.norm(g) * np.linalg.norm(expected))
    assert float(metrics["alignment"]) == pytest.approx(cosine, abs=1e-4)


@pytest.mark.parametrize("fixed_norm", [False, True])
def test_a_direction_that_is_only_scaled_is_aligned_with_the_gradient(fixed_norm: bool) -> None:
    es = wng.ES(PARAMS, population=20, max_norm=0.01, fixed_norm=fixed_norm)
    _, metrics = generation(es, es.init(jax.random.key(0)))
    assert float(metrics["alignment"]) == pytest.approx(1, abs=1e-5)


def test_relative_damping_ignores_the_unit_of_behaviors() -> None:
    steps = []
    for unit in (1.0, 1000.0):
        es = wng.WNES(PARAMS, population=20, delta=1.0, optimizer=optax.sgd(1.0), **SMALL)
        state, _ = generation(
            es, es.init(jax.random.key(0)), behaviors=lambda c, unit=unit: unit * first_two(c)
        )
        steps.append(np.array(state.center))
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-3, atol=1e-3)


def test_positive_delta_holds_behaviors_back_and_negative_pushes_them() -> None:
    moved = {}
    for delta in (-1.3, 0.0, 0.9):
        es = wng.WNES(PARAMS, population=100, delta=delta, optimizer=optax.sgd(0.01), num_basis=20)
        state, _ = generation(es, es.init(jax.random.key(0)))
        step = np.array(state.center) - flat(PARAMS)
        moved[delta] = np.linalg.norm(step[:2])  # behaviors are the first two parameters
    assert moved[0.9] < moved[0.0] < moved[-1.3]


def test_novelty_and_distance_change_what_is_climbed() -> None:
    """With β = 1 returns do not matter: behaviors leave where they have been."""
    for cls in (wng.NSRES, wng.BGES):
        es = cls(jnp.zeros(2), population=40, sigma=0.1, beta=1.0, learning_rate=0.1)
        state = es.init(jax.random.key(0))
        for _ in range(30):
            state, _ = generation(es, state, returns=lambda c: jnp.zeros(40), behaviors=lambda c: c)
        assert np.linalg.norm(state.center) > 1


def test_max_norm_shortens_the_direction() -> None:
    plain = wng.ES(PARAMS, optimizer=optax.sgd(1.0))
    clipped = wng.ES(PARAMS, optimizer=optax.sgd(1.0), max_norm=0.5)
    steps = [
        np.array(generation(es, es.init(jax.random.key(0)))[0].center) - flat(PARAMS)
        for es in (plain, clipped)
    ]
    assert np.linalg.norm(steps[0]) > 1
    np.testing.assert_allclose(np.linalg.norm(steps[1]), 0.5, rtol=1e-4)
    np.testing.assert_allclose(steps[1] / 0.5, steps[0] / np.linalg.norm(steps[0]), atol=1e-4)


def test_ranks_do_not_see_outliers() -> None:
    es = wng.ES(PARAMS, population=10, shaping="ranks")
    ends = []
    for best in (1.0, 1e20):
        candidates, state = es.ask(es.init(jax.random.key(0)))
        returns = jnp.arange(10.0).at[9].set(9 * best)
        ends.append(np.array(es.tell(state, candidates, returns)[0].center))
    np.testing.assert_array_equal(*ends)


# What is not finite


@pytest.mark.parametrize("cls", CLASSES)
def test_members_that_are_not_finite_are_dropped_and_counted(cls) -> None:
    es = cls(PARAMS, population=20, sigma=0.1, **SMALL)
    state = es.init(jax.random.key(0))
    candidates, state = es.ask(state)
    returns = np.array(sphere(candidates))
    behaviors = np.array(first_two(candidates))
    returns[[2, 7]] = [np.nan, -np.inf]
    dropped = 2
    if es.needs_behaviors:
        behaviors[11, 0] = np.nan
        dropped = 3
    new, metrics = es.tell(state, candidates, returns, behaviors)
    assert int(metrics["dropped"]) == dropped
    assert np.isfinite(np.array(new.center)).all()
    assert (np.array(new.center) != np.array(state.center)).any()
    for name, value in metrics.items():
        assert np.isfinite(float(value)), name
    # What stands in the places of dropped members does not matter.
    returns[[2, 7]] = [np.inf, np.nan]
    same, _ = es.tell(state, candidates, returns, behaviors)
    np.testing.assert_array_equal(new.center, same.center)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_generation_without_any_good_member_is_skipped(cls) -> None:
    es = cls(PARAMS, population=10, **SMALL)
    state, _ = generation(es, es.init(jax.random.key(0)))
    candidates, state = es.ask(state)
    new, metrics = es.tell(state, candidates, np.full(10, np.nan), first_two(candidates))
    np.testing.assert_array_equal(new.center, state.center)
    assert int(new.skipped) == 1
    assert int(metrics["dropped"]) == 10
    state, _ = generation(es, new)  # and the next one is like any other
    assert np.isfinite(np.array(state.center)).all()
    assert int(state.skipped) == 1


def test_equal_behaviors_leave_the_gradient_as_it_is() -> None:
    ends = []
    for cls in (wng.WNES, wng.ES):
        es = cls(PARAMS, population=10, **({"num_basis": 4} if cls is wng.WNES else {}))
        state, _ = generation(es, es.init(jax.random.key(0)), behaviors=lambda c: jnp.ones((10, 2)))
        ends.append(np.array(state.center))
    np.testing.assert_allclose(*ends, rtol=1e-5)


# As functions


@pytest.mark.parametrize("cls", CLASSES)
def test_jit_vmap_and_scan(cls) -> None:
    es = cls(PARAMS, population=10, **SMALL)

    def step(state, _):
        state, metrics = generation(es, state)
        return state, metrics["population_mean"]

    @jax.jit
    def evolve(key):
        return jax.lax.scan(step, es.init(key, behavior_size=2), None, length=3)

    keys = jax.random.split(jax.random.key(0), 2)
    states, means = jax.vmap(evolve)(keys)
    assert means.shape == (2, 3)
    for k in range(2):
        state = es.init(keys[k])
        for _ in range(3):
            state, _ = generation(es, state)
        np.testing.assert_allclose(states.center[k], state.center, rtol=1e-4, atol=1e-5)


# Settings and axes


@pytest.mark.parametrize("cls", CLASSES)
def test_the_defaults_are_those_of_the_command(cls) -> None:
    config, tuned = cls(PARAMS).config, preset(cls.__name__.lower())
    for field in dataclasses.fields(StrategyConfig):
        assert getattr(config, field.name) == getattr(tuned, field.name), field.name
    assert (config.population, config.sigma, config.damping) == (100, 0.05, 0.1)
    assert config.relative_damping
    assert wng.WNES(PARAMS).config.delta == -1.3


def test_settings_override_a_configuration() -> None:
    config = StrategyConfig(geometry="wasserstein", population=30, sigma=0.3)
    es = wng.Strategy(PARAMS, config, sigma=1, num_basis=5)
    assert es.config == dataclasses.replace(config, sigma=1.0, num_basis=5)
    assert wng.Strategy(PARAMS).config == StrategyConfig()
    run = preset("bgwnes", population=30, horizon=9)  # of a whole run
    assert wng.Strategy(PARAMS, run).config == run


class Signs(Geometry):
    """Only the signs of the gradient."""

    def direction(self, config, key, g, sample, basis):
        return jnp.sign(g), jnp.array(0.25)


class Outward(Proximity):
    """The norm of the behavior, more so in each generation."""

    needs_behaviors = True

    def empty(self, config, dim):
        return {"told": jnp.zeros(()), "last": jnp.zeros((config.population, dim))}

    def fitness(self, config, past, keys, sample):
        each = jnp.linalg.norm(sample.behaviors, axis=1)
        new = {"told": past["told"] + 1, "last": sample.behaviors}
        return mixed(config, sample, each), each.mean(), new


SIGNS = Signs()


@pytest.mark.parametrize("geometry", ["signs", f"{__name__}:SIGNS"])
def test_axes_of_ones_own(monkeypatch, geometry: str) -> None:
    monkeypatch.setitem(GEOMETRIES, "signs", SIGNS)
    monkeypatch.setitem(PROXIMITIES, "outward", Outward())
    axes = {"geometry": geometry, "proximity": "outward"}
    es = wng.Strategy(PARAMS, **axes, beta=1.0, optimizer=optax.sgd(0.1), sigma=0.1)
    assert es.needs_behaviors
    state = es.init(jax.random.key(0))
    for number in range(1, 31):
        before = np.array(state.center)
        state, metrics = generation(es, state)
        steps = np.array(state.center) - before
        np.testing.assert_allclose(np.abs(steps), 0.1, rtol=1e-4)  # all of the same length
        assert float(metrics["epsilon"]) == 0.25
        assert float(state.past["told"]) == number
    assert np.linalg.norm(state.center[:2]) > 5  # behaviors; without the term they would shrink
    assert float(metrics["distance"]) > 4
    with pytest.raises(ValueError, match="behaviors have length 3, unlike those that tell"):
        generation(es, state, behaviors=lambda c: jnp.ones((100, 3)))


def test_an_axis_of_ones_own_in_a_run(monkeypatch) -> None:
    class Backward(Geometry):
        def direction(self, config, key, g, sample, basis):
            return -g, jnp.zeros(())

    def end(**axes) -> np.ndarray:
        trainer = EvolutionTrainer(envs.resolve(ENV), preset("es", **TINY, **axes), 0)
        trainer.iterate()
        return np.array(trainer.state.strategy.center - trainer.initial_state().strategy.center)

    monkeypatch.setitem(GEOMETRIES, "mine", Geometry())
    np.testing.assert_array_equal(end(geometry="mine"), end())
    monkeypatch.setitem(GEOMETRIES, "mine", Backward())  # the name now means something else
    np.testing.assert_allclose(end(geometry="mine"), -end(), rtol=1e-3)


def test_strategies_that_differ_in_numbers_share_their_programs() -> None:
    """And come to what they would come to alone."""
    base = {"population": 12, "max_norm": 1.0, **SMALL}
    sweep = [
        {"sigma": 0.1, "learning_rate": 0.1, "delta": -0.5, "beta": 0.2, "damping": 0.3},
        {"sigma": 0.4, "learning_rate": 0.02, "delta": 0.7, "beta": -0.4, "damping": 0.01},
        {"sigma": 0.2, "dual_gamma": 0.5, "max_norm": 0.3},
    ]
    made = [wng.BGWNES(PARAMS, **base | settings) for settings in sweep]
    ends = [two_generations(es) for es in made]
    assert len({es._programs for es in made}) == 1
    assert made[0]._programs.learn._cache_size() == 1
    for settings, end in zip(sweep, ends, strict=True):
        # An optimizer of one's own is never shared.
        rate = settings.get("learning_rate", wng.BGWNES.defaults.learning_rate)
        alone = wng.BGWNES(PARAMS, optimizer=optax.adam(rate), **base | settings)
        assert alone._programs is not made[0]._programs
        np.testing.assert_allclose(two_generations(alone), end, rtol=1e-5, atol=1e-6)
    assert len({tuple(end) for end in ends}) == 3
    searches = [wng.WSNES(PARAMS, search_damping=c, sigma_rate=r) for c, r in ((3, 0.1), (1, 0.2))]
    assert searches[0]._programs is searches[1]._programs
    assert wng.WSNES(PARAMS, search_damping=0)._programs is not searches[0]._programs
    others = [{"delta": 0.0}, {"shaping": "ranks"}, {"population": 14}]  # not numbers, or off
    for settings in others:
        assert wng.BGWNES(PARAMS, **base | settings)._programs is not made[0]._programs


# Bounds and restarts


def test_members_and_center_stay_within_bounds() -> None:
    """The best point is outside: members that are made again are clipped like those of `ask`."""
    low = {"a": jnp.array([0.5, -3.0]), "b": {"c": 0.0}}
    es = wng.SNES(PARAMS, bounds=(low, 2.5), population=20, sigma=0.5)
    floor = flat({"a": low["a"], "b": {"c": jnp.zeros((1, 3))}})
    state = again = es.init(jax.random.key(0))
    for _ in range(20):
        candidates, state = es.ask(state)
        made = rows(candidates)
        assert (made >= floor).all()
        assert (made <= 2.5).all()
        np.testing.assert_array_equal(flat(es.member(state, 7)), made[7])
        again, _ = es.tell(again, None, sphere(candidates))
        state, _ = es.tell(state, candidates, sphere(candidates))
        np.testing.assert_allclose(again.center, state.center, rtol=1e-5, atol=1e-6)
        assert (state.center >= floor).all()
        assert (state.center <= 2.5).all()
    # The nearest point to 0 that is allowed.
    np.testing.assert_allclose(flat(es.params(state)), [0.5, 0, 0, 0, 0], atol=0.1)


def test_a_search_without_progress_starts_over_and_keeps_what_it_found() -> None:
    """After three generations without a member better than the best since the last start."""
    es = wng.SNES(PARAMS, population=10, sigma=0.5, restart_after=3)
    other = jax.tree.map(lambda x: x + 1, PARAMS)
    state = es.init(jax.random.key(0), params=other)
    best = [
        5,
        9,
        9,
        8,
        np.nan,
        9,
        1,
        2,
        3,
        4,
        4,
        4,
        4,
        5,
    ]  # the second is below
    stalled = []
    for number, value in enumerate(best):
        candidates, state = es.ask(state)
        state, metrics = es.tell(state, candidates, jnp.arange(10.0) - 9 + value)
        stalled.append((int(state.restarts.stalled), int(metrics["restarts"])))
        if number in (5, 12):  # just started over
            np.testing.assert_array_equal(state.center, flat(other))
            np.testing.assert_array_equal(state.sigma, 0.5)
        elif number:
            assert not np.array_equal(state.center, flat(other))
    first = [(0, 0), (0, 0), (1, 0), (2, 0), (2, 0), (0, 1)]  # without a member nothing counts
    assert stalled == [*first, (0, 1), (0, 1), (0, 1), (0, 1), (1, 1), (2, 1), (0, 2), (0, 2)]
    assert float(es.best(state)[1]) == 9
    assert int(state.skipped) == 1
    first, second = es.ask(es.init(jax.random.key(0)))[0], es.ask(state)[0]
    assert not np.isclose(rows(first) - flat(PARAMS), rows(second) - flat(other)).any()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_with_bounds_a_restart_begins_somewhere_else(dtype) -> None:
    es = wng.ES(jnp.zeros(50, dtype), bounds=(-1.0, 3.0), population=4, restart_after=1)
    state, starts = es.init(jax.random.key(0)), []
    once, _ = es.tell(state, None, jnp.ones(4))
    state = once
    for number in range(4):
        state, metrics = es.tell(state, None, jnp.full(4, -number))  # each new search has a best
        state, metrics = es.tell(state, None, jnp.full(4, -number))
        assert int(metrics["restarts"]) == number + 1
        assert state.center.dtype == dtype
        starts.append(np.array(state.center, np.float32))
    drawn = np.concatenate(starts)
    assert drawn.min() >= -1
    assert drawn.max() <= 3
    assert drawn.mean() == pytest.approx(1, abs=5 * (4 / 12**0.5) / 200**0.5)
    assert len(np.unique(drawn)) > 50

    def scanned(state):
        returns = jnp.repeat(-jnp.arange(4.0), 2)[:, None] * jnp.ones(4)
        return jax.lax.scan(lambda s, r: es.tell(s, None, r), state, returns)[0]

    np.testing.assert_array_equal(jax.jit(scanned)(once).center, state.center)


def test_parameters_without_both_bounds_go_back_to_their_start() -> None:
    low = jnp.array([-1.0, -1.0, -jnp.inf])
    high = jnp.array([1.0, jnp.inf, jnp.inf])
    es = wng.ES(jnp.zeros(3), bounds=(low, high), population=4, restart_after=1)
    state = es.init(jax.random.key(0), params=jnp.array([0.5, -9.0, 7.0]))
    np.testing.assert_array_equal(es.params(state), [0.5, -1.0, 7.0])  # clipped
    for _ in range(2):
        state, _ = es.tell(state, None, jnp.ones(4))
    assert int(state.restarts.number) == 1
    np.testing.assert_array_equal(state.center[1:], [-1.0, 7.0])
    assert state.center[0] != 0.5


# Mistakes


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: wng.ES({}), "params holds no arrays"),
        (lambda: wng.ES(PARAMS, population=7), "must be even with antithetic pairs: use 8"),
        (lambda: wng.ES(PARAMS, sigma=-1.0), "sigma must be finite, at least 0"),
        (lambda: wng.WNES(PARAMS, delta=1.5), "delta must be finite and at most 1"),
        (lambda: wng.BGES(PARAMS, beta=2.0), "beta must be from -1 to 1"),
        (lambda: wng.WNES(PARAMS, num_basis=200), "the population is only 100"),
        (lambda: wng.ES(PARAMS, shaping="rank"), "did you mean 'ranks'?"),
        (lambda: wng.Strategy(PARAMS, proximity="novel"), "did you mean 'novelty'?"),
        (lambda: wng.Strategy(PARAMS, geometry="wassertein"), "did you mean 'wasserstein'?"),
        (lambda: wng.WNES(PARAMS, damping=wng.Damping()), "damping must be a number"),
        (lambda: wng.ES(PARAMS, max_norm=-1.0), "max_norm must be finite, at least 0"),
        (lambda: wng.BGES(PARAMS, memory=0), "memory must be at least 1"),
        (lambda: wng.ES(PARAMS, sigm=0.1), "no setting 'sigm': did you mean 'sigma'?"),
        (lambda: wng.ES(PARAMS, horizon=9), "no setting 'horizon'"),  # of a run
        (lambda: wng.Strategy(PARAMS, 100), "config must be a StrategyConfig, got a int"),
        (lambda: wng.ES(PARAMS).init(3), "single JAX random key"),
        (lambda: wng.ES(PARAMS, bounds=3.0), "bounds must be a pair, the lowest and the highest"),
        (lambda: wng.ES(PARAMS, bounds=({"a": 0}, 1)), "bounds must be a pair, the lowest"),
        (lambda: wng.ES(PARAMS, bounds=(3, -3)), "each lower bound must be below"),
        (lambda: wng.ES(PARAMS, bounds=(0, 3)), "params must be within the bounds"),
        (lambda: wng.ES(PARAMS).init(jax.random.key(0), params=jnp.ones(5)), "a pytree like"),
    ],
)
def test_bad_settings_are_refused(make, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        make()


def test_bad_results_are_refused() -> None:
    es = wng.BGWNES(PARAMS, population=10, **SMALL)
    candidates, state = es.ask(es.init(jax.random.key(0)))
    returns, X = sphere(candidates), first_two(candidates)
    for arguments, sentence in [
        ((candidates, returns[:9], X), r"returns must have shape \[10\]"),
        ((candidates, returns), "compares behaviors: pass tell"),
        ((candidates, returns, X[:9]), r"behaviors must have shape \[10, d\]"),
        ((PARAMS, returns, X), "candidates must be the parameters of all members"),
        ((rows(candidates), returns, X), "candidates must be the parameters of all members"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            es.tell(state, *arguments)
    state, _ = es.tell(state, candidates, returns, X)
    with pytest.raises(ValueError, match="behaviors have length 3, unlike those that tell"):
        es.tell(state, candidates, returns, jnp.ones((10, 3)))
