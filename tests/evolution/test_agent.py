"""The face of evolution: learn, predict, evaluate, save, go on."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from PIL import Image, ImageSequence

import wng
from evolution.small_envs import first_state
from evolution.tiny import ENV, GENERATION, TINY, assert_same, tiny
from wng.agents.registry import EVOLUTION
from wng.agents.video import film
from wng.evolution.maps import read_maps
from wng.evolution.methods import preset
from wng.runs import checkpoint, record
from wng.runs.metrics import read_metrics
from wng.runs.training import NonFiniteError

LINE = "evolution.small_envs:Line-v0"


def new_run(agent: wng.Agent, root) -> wng.RunDirectory:
    return wng.RunDirectory.create(root, agent.env, agent.method, agent.seed, {})


@pytest.fixture(scope="module")
def trained() -> wng.Agent:
    return tiny().learn(2 * GENERATION, progress=False)


def test_what_an_agent_is(trained: wng.Agent) -> None:
    assert (trained.env, trained.method, trained.seed, trained.title) == (ENV, "wnes", 0, "WNES")
    assert trained.config == preset("wnes", env=ENV, **TINY)
    names = [sorted(layer) for layer in trained.params]
    assert names == [["bias", "weight"], ["weight"]]
    shown = trained.trainer.shown({"return": 1.0, "population_mean": 2.0, "dropped": 0.0})
    assert shown == {"return": 1.0, "population": 2.0}
    bad = {"past_wall": 1.0, "population_past_wall": 0.25, "dropped": 3.0}
    assert trained.trainer.shown({"return": 1.0, "population_mean": 2.0, **bad}) == {
        "return": 1.0,
        "population": 2.0,
        "past wall": 0.25,
        "dropped": 3.0,
    }


def test_learn_takes_whole_generations_and_zero_takes_none(trained: wng.Agent) -> None:
    agent = tiny()
    assert agent.learn(0, progress=False).steps == 0
    assert agent.learn(1, progress=False).steps == GENERATION
    assert agent.learn(float(GENERATION), progress=False).steps == 2 * GENERATION
    assert_same(agent, trained)
    assert not np.array_equal(tiny(seed=1).params[0]["weight"], tiny().params[0]["weight"])


@pytest.mark.parametrize("steps", [-1, "many", float("nan"), float("inf")])
def test_learn_refuses_other_numbers_of_steps(trained: wng.Agent, steps) -> None:
    with pytest.raises(ValueError, match="steps must be a number of environment steps"):
        trained.learn(steps)


def test_predict_is_the_policy_at_the_center(trained: wng.Agent) -> None:
    observations = np.random.default_rng(0).normal(size=(6, 4))
    first, last = trained.params
    # Toeplitz matrices: W_ij = w_{i − j + inputs − 1}.
    lag = np.subtract.outer(np.arange(4), np.arange(4)) + 3
    hidden = np.tanh(observations @ np.asarray(first["weight"])[lag].T + np.asarray(first["bias"]))
    lag = np.subtract.outer(np.arange(2), np.arange(4)) + 3
    expected = np.tanh(hidden @ np.asarray(last["weight"])[lag].T)
    several = trained.predict(observations)
    np.testing.assert_allclose(several, expected, rtol=1e-4, atol=1e-5)
    assert several.dtype == np.float32
    np.testing.assert_allclose(trained.predict(observations[2]), expected[2], rtol=1e-4, atol=1e-5)
    assert trained.predict(observations[:1]).shape == (1, 2)  # a batch of one


def test_noisy_predictions(trained: wng.Agent) -> None:
    zeros = np.zeros((2000, 4))
    plain, noisy = trained.predict(zeros), trained.predict(zeros, deterministic=False)
    moved = noisy - plain
    assert (np.abs(noisy) <= 1).all()
    assert moved.std() == pytest.approx(trained.config.action_noise, rel=0.1)
    assert not np.array_equal(trained.predict(zeros, deterministic=False), noisy)  # anew each time


@pytest.mark.parametrize("observation", [[1.0], [[1.0, 2.0]], np.zeros((2, 3)), []])
def test_predict_says_what_shape_an_observation_has(trained: wng.Agent, observation) -> None:
    with pytest.raises(ValueError, match="PointWall-v0 has 4 numbers, got an array of shape"):
        trained.predict(observation)


def test_discrete_actions_and_shaped_observations() -> None:
    agent = tiny("evolution.small_envs:Endless-v0", "es", horizon=5, backend="gymnasium")
    agent.learn(1, progress=False)
    assert agent.steps == 8 * 5
    for shape, expected in [((2, 1), ()), ((2,), ()), ((3, 2, 1), (3,)), ((3, 2), (3,))]:
        actions = agent.predict(np.zeros(shape), deterministic=False)
        assert actions.shape == expected
        assert np.isin(actions, [3, 4]).all()
    agent.close()


def test_evaluate(trained: wng.Agent) -> None:
    returns = trained.evaluate(11)
    assert returns.shape == (11,)
    np.testing.assert_array_equal(trained.evaluate(11), returns)
    noisy = trained.evaluate(3, deterministic=False)
    np.testing.assert_array_equal(trained.evaluate(3, deterministic=False), noisy)
    assert not np.isin(noisy, returns).any()
    assert not np.isin(trained.evaluate(3, seed=5), returns).any()
    np.testing.assert_array_equal(trained.evaluate(2, untrained=True), tiny().evaluate(2))
    assert not np.array_equal(trained.evaluate(2, untrained=True), returns[:2])
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        trained.evaluate(0)


def test_evaluate_plays_whole_episodes_of_the_policy(trained: wng.Agent) -> None:
    """The returns lie among those of Gymnasium's own loop: starts differ by 0.1 m."""
    env = gymnasium.make(ENV)
    observation, _ = env.reset(seed=0)
    total, over, steps = 0.0, False, 0
    while not over:
        observation, reward, terminated, truncated, _ = env.step(trained.predict(observation))
        total, over, steps = total + float(reward), terminated or truncated, steps + 1
    assert steps == 50
    np.testing.assert_allclose(trained.evaluate(3), total, atol=20)


def test_save_and_load_go_on_bit_for_bit(trained: wng.Agent, tmp_path) -> None:
    path = tmp_path / "agent"
    trained.save(path)
    loaded = wng.load(path)
    assert loaded.family is EVOLUTION
    assert_same(loaded, trained)
    assert loaded.config == trained.config
    observation = [0.3, 0.1, -1.0, 2.0]
    np.testing.assert_array_equal(loaded.predict(observation), trained.predict(observation))
    np.testing.assert_array_equal(loaded.evaluate(2), trained.evaluate(2))
    loaded.learn(1, progress=False)
    assert_same(loaded, tiny().learn(3 * GENERATION, progress=False))


def test_what_normalizes_and_sigma_are_saved_with_an_agent(tmp_path) -> None:
    settings = {"normalize_observations": True, "search": "fisher", "restart_after": 5}
    agent = tiny(method="es", **settings).learn(2 * GENERATION, progress=False)
    agent.save(tmp_path / "agent")
    loaded = wng.load(tmp_path / "agent")
    assert_same(loaded, agent)
    observation = np.array([0.3, 0.1, -1.0, 2.0])
    np.testing.assert_array_equal(loaded.predict(observation), agent.predict(observation))
    plain = tiny(method="es", search="fisher").learn(0, progress=False)
    # The same policy, on observations as they are.
    plain.trainer.state = agent.trainer.state._replace(observation_moments=None)
    assert not np.array_equal(plain.predict(observation), agent.predict(observation))
    np.testing.assert_array_equal(loaded.evaluate(2), agent.evaluate(2))
    assert_same(loaded.learn(GENERATION, progress=False), agent.learn(GENERATION, progress=False))


def test_load_finds_the_family(trained: wng.Agent, tmp_path) -> None:
    trained.save(tmp_path / "evolved")
    small = {"num_envs": 2, "rollout": 8, "minibatch": 8, "value_minibatch": 8, "hidden": (2,)}
    gradient = wng.PPO("wng/ProbeContextual-v0", **small, backend="gymnasium")
    gradient.save(tmp_path / "gradient")
    gradient.close()
    assert wng.load(tmp_path / "evolved").family is EVOLUTION
    loaded = wng.load(tmp_path / "gradient")
    assert isinstance(loaded, wng.Agent)
    assert (loaded.method, loaded.title) == ("ppo", "PPO")
    loaded.close()
    checkpoint.write_file(tmp_path / "other", {}, {"kind": "revolution"})
    with pytest.raises(ValueError, match="other does not hold an agent of wng"):
        wng.load(tmp_path / "other")


def test_a_run_in_two_sessions_is_the_run_in_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", -1.0)
    whole, first, second = tiny(), tiny(), tiny()
    whole_run = new_run(whole, tmp_path / "whole")
    whole.learn(4 * GENERATION, progress=False, run=whole_run)
    run = new_run(first, tmp_path / "parts")
    first.learn(2 * GENERATION, progress=False, run=run)
    assert second.restore(run) == []
    second.learn(2 * GENERATION, progress=False, run=run)
    assert_same(second, whole)
    assert_same(wng.load(run.path), whole)
    for name, column in read_metrics(run.path).items():
        if not name.startswith("seconds"):
            np.testing.assert_array_equal(column, read_metrics(whole_run.path)[name], name)
    one, other = read_maps(run.path, until=9), read_maps(whole_run.path, until=9)
    assert [g.number for g in one] == [g.number for g in other] == [1, 2, 3, 4]
    for mine, its in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine.finals, its.finals)
        np.testing.assert_array_equal(mine.path, its.path)


def test_a_damaged_checkpoint_is_passed_over(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", -1.0)
    agent = tiny()
    run = new_run(agent, tmp_path)
    agent.learn(3 * GENERATION, progress=False, run=run)
    newest, previous = checkpoint.saved(run.checkpoints)
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=newest.name):
        assert wng.load(run.path).steps == 2 * GENERATION
    again = tiny()
    (problem,) = again.restore(run)
    assert f"using {previous} instead" in problem
    again.learn(GENERATION, progress=False, run=run)
    assert_same(again, agent)
    np.testing.assert_array_equal(read_metrics(run.path)["iteration"], [1, 2, 3])


def test_a_run_is_not_overwritten_by_an_agent_that_does_not_continue_it(tmp_path) -> None:
    agent = tiny()
    run = new_run(agent, tmp_path)
    agent.learn(1, progress=False, run=run)
    agent.learn(1, progress=False, run=run)  # its own
    wng.load(run.path).learn(1, progress=False, run=run)
    with pytest.raises(ValueError, match="does not continue"):
        tiny().learn(1, progress=False, run=run)
    assert wng.load(run.path).steps == 3 * GENERATION
    with pytest.raises(ValueError, match="has seed 0, but this agent has seed 1"):
        tiny(seed=1).restore(run)


def test_a_callback_sees_each_generation_and_may_stop() -> None:
    seen = []

    def callback(agent: wng.Agent, row: dict[str, float]) -> bool:
        seen.append((agent.steps, row["steps"], row["iteration"]))
        return len(seen) < 2

    agent = tiny().learn(10**6, progress=False, callback=callback)
    assert agent.steps == 2 * GENERATION
    assert seen == [(GENERATION, GENERATION, 1), (2 * GENERATION, 2 * GENERATION, 2)]


@pytest.mark.parametrize("error", [ArithmeticError, KeyboardInterrupt])
def test_an_error_in_a_callback_leaves_a_run_that_goes_on(tmp_path, trained, error) -> None:
    agent = tiny()
    run = new_run(agent, tmp_path)

    def callback(agent: wng.Agent, row: dict[str, float]) -> None:
        if agent.steps == 2 * GENERATION:
            raise error("oh")

    with pytest.raises(error):
        agent.learn(10**6, progress=False, callback=callback, run=run)
    assert_same(wng.load(run.path), trained)
    np.testing.assert_array_equal(read_metrics(run.path)["iteration"], [1, 2])


def test_a_run_of_nothing_but_nan_ends_with_finite_parameters(tmp_path) -> None:
    agent = tiny("evolution.small_envs:Line-start-v0", "es", backend="gymnasium")
    start = agent.params
    run = new_run(agent, tmp_path)
    with pytest.raises(NonFiniteError, match=r"no member of 3 generations on .*Line-start-v0"):
        agent.learn(10**6, progress=False, run=run)
    agent.close()
    stopped = wng.load(run.path)
    np.testing.assert_array_equal(stopped.params[0]["weight"], start[0]["weight"])
    rows = read_metrics(run.path)
    np.testing.assert_array_equal(rows["dropped"], [8, 8])
    np.testing.assert_array_equal(rows["skipped"], [1, 2])
    stopped.close()


def test_an_embedding_of_ones_own(tmp_path) -> None:
    settings = {"method": "nsres", "backend": "gymnasium"}
    agent = tiny(LINE, embedding=first_state, **settings).learn(1, progress=False)
    assert agent.config.embedding == "<first_state>"
    agent.save(tmp_path / "agent")
    sentence = "trained with the embedding <first_state>, a function"
    with pytest.raises(ValueError, match=sentence) as error:
        wng.load(tmp_path / "agent")
    assert "embedding=" in str(error.value)
    loaded = wng.load(tmp_path / "agent", embedding=first_state)
    assert_same(loaded, agent)
    assert_same(loaded.learn(1, progress=False), agent.learn(1, progress=False))
    assert agent.trainer.episodes.behaviors.shape == (9, 2)

    named = tiny(LINE, embedding="evolution.small_envs:first_state", **settings)
    named.learn(1, progress=False).learn(1, progress=False)
    named.save(tmp_path / "named")
    again = wng.load(tmp_path / "named")  # found by its name
    assert_same(again, named)
    np.testing.assert_array_equal(named.params[0]["weight"], agent.params[0]["weight"])
    for each in (agent, loaded, named, again):
        each.close()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lerning_rate": 1e-3}, "no setting 'lerning_rate': did you mean 'learning_rate'"),
        ({"step": "optimizer"}, "there is no setting 'step'"),  # of the other family
        ({"geometry": "wassertein"}, "did you mean 'wasserstein'"),
        ({"proximity": "novel"}, "did you mean 'novelty'"),
        ({"shaping": "rank"}, "did you mean 'ranks'"),
        ({"policy": "toplitz"}, "did you mean 'toeplitz'"),
        ({"backend": "jx"}, "did you mean 'jax'"),
        ({"settings": "papers"}, "did you mean 'paper'"),
        ({"embedding": "final-sate"}, "no embedding 'final-sate': did you mean 'final-state'"),
        ({"embedding": "state-action"}, "'state-action' looks at single steps"),
        ({"embedding": "nowhere:f"}, "the embedding 'nowhere:f' cannot be imported"),
        ({"embedding": "evolution.small_envs:NOT_A_FUNCTION"}, "an embedding is a name, a func"),
        ({"embedding": 3}, "an embedding is a name, a function"),
        ({"env": "wng/PointWal-v0"}, "did you mean 'wng/PointWall-v0'"),
        ({"method": "wnse"}, "there is no method 'wnse': did you mean 'wnes'"),
        ({"method": "wnpg"}, "there is no setting 'population'"),
        ({"env": "Blackjack-v1"}, "only Box observations"),
        ({"env": "wng/ProbeCounter-v0"}, "'wng/ProbeCounter-v0' has no time limit"),
        ({"backend": "mujoco"}, "cannot run on backend 'mujoco'"),
        ({"population": 7}, "population=7 must be even"),
        ({"population": 0}, "population must be at least 2"),
        ({"population": 8.0}, "population must be a whole number"),
        ({"num_basis": 9}, "num_basis=9 needs as many behaviors, but the population is only 8"),
        ({"sigma": -0.1}, "sigma must be finite, at least 0"),
        ({"sigma": float("nan")}, "sigma must be finite"),
        ({"delta": 1.5}, "delta must be finite and at most 1"),
        ({"beta": -1.5}, "beta must be from -1 to 1"),
        ({"action_noise": -0.1}, "action_noise must be finite, at least 0"),
        ({"horizon": -1}, "horizon must be at least 0"),
        ({"hidden": ()}, "hidden must be one or more widths"),
        ({"learning_rate": "fast"}, "learning_rate must be a number"),
    ],
)
def test_mistakes_are_one_clear_sentence(settings: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as error:
        tiny(**settings)
    assert "\n" not in str(error.value)


def test_a_setting_that_does_not_exist_beside_a_whole_config() -> None:
    with pytest.raises(ValueError, match="did you mean 'learning_rate'"):
        wng.Agent(ENV, "wnes", config=preset("wnes", **TINY), learning_rat=1.0)


def test_presets_by_task() -> None:
    quadruped = "wng/QuadrupedWall-v0"
    for settings in ("tuned", "paper", "released"):
        config = preset("wnes", settings, quadruped)
        assert (config.hidden, config.embedding) == ((64, 64), "reward-to-go")
        assert preset("wnes", settings, ENV).embedding == "final-state"
        assert preset("esclip", settings).max_norm > 0
        assert (preset("es", settings).max_norm == 0) == (settings != "released")
    paper, released = (preset("wnes", settings, quadruped) for settings in ("paper", "released"))
    assert (released.delta, released.num_basis, released.learning_rate) == (-1.3, 5, 0.02)
    assert (released.dual_features, paper.dual_features) == (400, 1000)
    assert (released.rescale, paper.rescale) == (True, False)
    starts = [preset("wnes", settings).start for settings in ("released", "paper", "tuned")]
    assert starts == ["uniform", "uniform", "normal"]
    # Pairs for half the parameters: 33 numbers observed, 8 motors, Toeplitz matrices.
    assert paper.population == (33 + 63 + 64) + (64 + 63 + 64) + (64 + 7)
    hard = "wng/PointWallHard-v0"
    assert (preset("wnes", "tuned", ENV).delta, preset("wnes", "tuned", hard).delta) == (-1.3, -10)
    assert preset("wnes", "paper", hard) == preset("wnes", "paper", ENV)
    assert preset("nsrwnes", env=hard, beta=0.1).beta == 0.1
    point = preset("wnes", "paper", ENV)
    assert (point.hidden, point.sigma, point.learning_rate) == ((16, 16), 0.0, 0.1)


@pytest.mark.parametrize("settings", ["paper", "released"])
def test_the_noise_of_the_papers_runs_has_norm_one(settings: str) -> None:
    """The code divides each perturbation by its norm: σ = 1/√p, from the policy."""
    agent = wng.Agent(ENV, "wnes", 0, settings=settings)
    members, _ = agent.trainer.strategy.ask(agent.trainer.state.strategy)
    noise = [np.ravel(m - c) for m, c in zip(
        *(jax.tree.leaves(tree) for tree in (members, agent.params)), strict=True)]  # fmt: skip
    sizes = sum(leaf.size for leaf in jax.tree.leaves(agent.params))
    assert agent.trainer.strategy.config.sigma == pytest.approx(sizes**-0.5)
    square = sum((each**2).sum() for each in noise) / agent.config.population
    assert square**0.5 == pytest.approx(1, abs=0.05)
    agent.close()


def test_a_fixed_norm_is_that_of_every_direction() -> None:
    for gradient in (1e-3, 1e3):
        es = wng.ES(jnp.zeros(3), population=20, max_norm=0.5, fixed_norm=True,
                    optimizer=optax.sgd(1.0), shaping="ranks")  # fmt: skip
        state = es.init(jax.random.key(0))
        members, state = es.ask(state)
        after, _ = es.tell(state, members, gradient * members[:, 0])
        assert float(jnp.linalg.norm(after.center)) == pytest.approx(0.5, rel=1e-4)
    with pytest.raises(ValueError, match="fixed_norm needs a norm"):
        wng.ES(jnp.zeros(3), fixed_norm=True)


def test_film(trained: wng.Agent, tmp_path) -> None:
    (total,) = film(trained, tmp_path / "film.gif", most_frames=10)
    assert total < 0
    with Image.open(tmp_path / "film.gif") as shown:
        times = [frame.info["duration"] for frame in ImageSequence.Iterator(shown)]
    assert len(times) > 2
    assert sum(times) == 10 * 40  # ms: frames that are the same are joined
