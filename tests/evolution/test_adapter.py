"""Our strategies behind the interface of evosax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evosax.problems import BBOBProblem

import wng

MEAN = {"a": jnp.array([2.0, -1.0]), "b": jnp.full((1, 2), 3.0)}


def sphere(population) -> jax.Array:
    return jnp.sum(population["a"] ** 2, axis=1) + jnp.sum(population["b"] ** 2, axis=(1, 2))


@pytest.mark.parametrize("cls", [wng.SNES, wng.WSNES, wng.BGWNES])
def test_a_loop_written_for_evosax(cls) -> None:
    settings = {"num_basis": 4, "dual_features": 16, "dual_steps": 5, "sigma": 0.5}
    rate = {"learning_rate": 0.1, "beta": 0.05} if cls is wng.BGWNES else {}
    strategy = cls(jax.tree.map(jnp.zeros_like, MEAN), population=20, **settings, **rate)
    es = wng.EvosaxAdapter(strategy)
    params = es.default_params
    key = jax.random.key(0)
    state = es.init(key, MEAN, params)
    np.testing.assert_array_equal(es.get_mean(state)["a"], MEAN["a"])

    def step(state, key):
        population, state = es.ask(key, state, params)
        return es.tell(key, population, sphere(population), state, params)

    state, metrics = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(key, 80)))(state)
    best = np.array(metrics["best_fitness"])
    assert best[0] > 1 > 0.3 > best[-1]
    assert np.all(np.diff(best) <= 0)
    assert float(sphere(jax.tree.map(lambda x: x[None], es.get_mean(state)))[0]) < 1


def test_it_is_the_strategy_itself_with_the_sign_changed() -> None:
    strategy = wng.WNES(MEAN, population=10, num_basis=4)
    es = wng.EvosaxAdapter(strategy, behavior_fn=lambda population: population["a"])
    a, b = es.init(jax.random.key(1), MEAN), strategy.init(jax.random.key(1))
    for _ in range(3):
        population, a = es.ask(jax.random.key(7), a)
        same, b = strategy.ask(b)
        a, _ = es.tell(jax.random.key(8), population, sphere(population), a)
        b, _ = strategy.tell(b, same, -sphere(same), same["a"])
    np.testing.assert_array_equal(a.center, b.center)


def test_an_evosax_problem_is_solved_by_our_strategies_and_by_the_adapter() -> None:
    """On the sphere of BBOB, both reach the optimum; returns are the negative values."""
    sphere_of_bbob = BBOBProblem("sphere", num_dims=3, seed=1)
    key = jax.random.key(0)
    strategy = wng.SNES(jnp.zeros(3), population=20, sigma=2.0)

    problem = wng.EvosaxProblem(sphere_of_bbob)
    candidates, _ = strategy.ask(strategy.init(key))
    values, _, _ = sphere_of_bbob.eval(key, candidates, sphere_of_bbob.init(key))
    returns, behaviors, _ = problem.evaluate(key, candidates, problem.init(key))
    np.testing.assert_array_equal(returns, -values)
    np.testing.assert_array_equal(behaviors, candidates)
    upward = wng.EvosaxProblem(sphere_of_bbob, behavior_fn=lambda x: x[:, :1], maximize=True)
    returns, behaviors, _ = upward.evaluate(key, candidates, upward.init(key))
    np.testing.assert_array_equal(returns, values)
    assert behaviors.shape == (20, 1)

    def step(carry, key):
        state, problem_state = carry
        candidates, state = strategy.ask(state)
        returns, behaviors, problem_state = problem.evaluate(key, candidates, problem_state)
        state, _ = strategy.tell(state, candidates, returns, behaviors)
        return (state, problem_state), returns.max()

    start = strategy.init(key, 3), problem.init(key)
    (state, _), best = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(key, 100)))(start)
    assert best[0] < -sphere_of_bbob.f_opt - 0.1
    assert float(best[-1]) == pytest.approx(float(-sphere_of_bbob.f_opt), abs=1e-3)
    np.testing.assert_allclose(strategy.params(state), sphere_of_bbob.x_opt, atol=1e-2)

    es = wng.EvosaxAdapter(strategy)
    state, problem_state = es.init(key, jnp.zeros(3)), sphere_of_bbob.init(key)
    for each in jax.random.split(key, 100):
        population, state = es.ask(each, state)
        fitness, problem_state, _ = sphere_of_bbob.eval(each, population, problem_state)
        state, _ = es.tell(each, population, fitness, state)
    np.testing.assert_allclose(es.get_mean(state), sphere_of_bbob.x_opt, atol=1e-2)
