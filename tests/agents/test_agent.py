import inspect

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from policy_gradient.tiny import TINY

import wng
from wng.agents.agent import Agent
from wng.envs import episodes
from wng.policy_gradient.methods import METHODS, preset
from wng.runs import checkpoint, record
from wng.runs.metrics import read_metrics

PROBE = "wng/ProbeContextual-v0"


class FromFive(gymnasium.Env):
    """Observations [2, 2], actions 5 to 7, no end and no time limit."""

    observation_space = Box(-1, 1, (2, 2), np.float32)
    action_space = Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((2, 2), np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.ones((2, 2), np.float32), 1.0, False, False, {}


gymnasium.register("FromFive-v0", entry_point=FromFive)


def tiny(env: str = PROBE, method: str = "wnpg", seed: int = 0, **settings) -> Agent:
    return Agent(env, method, seed, **{**TINY, **settings})


def new_run(agent: Agent, root) -> wng.RunDirectory:
    return wng.RunDirectory.create(root, agent.env, agent.method, agent.seed, {})


def assert_same(a: Agent, b: Agent) -> None:
    one, other = a.trainer.checkpoint(), b.trainer.checkpoint()
    assert one[1] == other[1]
    assert one[0].keys() == other[0].keys()
    for name in one[0]:
        np.testing.assert_array_equal(one[0][name], other[0][name], err_msg=name)


@pytest.fixture(scope="module")
def trained() -> Agent:
    return tiny().learn(128, progress=False)


def test_the_nine_classes_are_the_nine_methods() -> None:
    for name, method in METHODS.items():
        cls = getattr(wng, name.upper())
        assert issubclass(cls, wng.Agent)
        assert method.title in inspect.getdoc(cls)
    agent = wng.WNPG(PROBE, seed=1, **TINY)
    assert (agent.method, agent.seed, agent.title) == ("wnpg", 1, "WNPG")
    assert agent.config == preset("wnpg", **TINY)
    agent.close()


def test_learn_takes_whole_iterations_and_zero_takes_none(trained: Agent) -> None:
    agent = tiny()
    assert agent.learn(0, progress=False).steps == 0
    assert agent.learn(1, progress=False).steps == 64
    assert agent.learn(64.0, progress=False).steps == 128
    assert_same(agent, trained)
    agent.close()


@pytest.mark.parametrize("steps", [-1, "many", float("nan"), float("inf")])
def test_learn_refuses_other_numbers_of_steps(trained: Agent, steps) -> None:
    with pytest.raises(ValueError, match="steps must be a number of environment steps"):
        trained.learn(steps)


def test_predict_one_and_several(trained: Agent) -> None:
    one = trained.predict([0.5])
    assert one.shape == (1,)
    assert one.dtype == np.float32
    several = trained.predict([[0.5], [-0.5], [0.5]])
    assert several.shape == (3, 1)
    np.testing.assert_allclose(several[0], one, rtol=1e-6)
    np.testing.assert_array_equal(several[0], several[2])
    assert trained.predict([[0.5]]).shape == (1, 1)  # a batch of one
    assert trained.predict(0.5).shape == (1,)
    assert np.all(np.abs(several) <= 1)
    drawn = [trained.predict([0.5], deterministic=False) for _ in range(3)]
    assert len({float(a[0]) for a in drawn}) > 1


@pytest.mark.parametrize("observation", [[1.0, 2.0], [[1.0, 2.0]], np.zeros((2, 3, 1)), []])
def test_predict_says_what_shape_an_observation_has(trained: Agent, observation) -> None:
    with pytest.raises(ValueError, match="ProbeContextual-v0 has 1 numbers, got an array of shape"):
        trained.predict(observation)


def test_shaped_observations_discrete_actions_and_no_time_limit(monkeypatch) -> None:
    monkeypatch.setattr(episodes, "LONGEST_EPISODE", 7)
    agent = tiny("FromFive-v0", "pg").learn(64, progress=False)
    for shape, expected in [((2, 2), ()), ((4,), ()), ((3, 2, 2), (3,)), ((3, 4), (3,))]:
        actions = agent.predict(np.zeros(shape), deterministic=False)
        assert actions.shape == expected
        assert np.isin(actions, [5, 6, 7]).all()
    np.testing.assert_array_equal(agent.evaluate(2), 7.0)
    agent.close()


def test_evaluate(trained: Agent) -> None:
    returns = trained.evaluate(13)
    assert returns.shape == (13,)
    np.testing.assert_array_equal(trained.evaluate(13), returns)
    sampled = trained.evaluate(13, deterministic=False)
    np.testing.assert_array_equal(trained.evaluate(13, deterministic=False), sampled)
    assert not np.array_equal(sampled, returns)
    fresh = tiny()
    np.testing.assert_array_equal(trained.evaluate(4, untrained=True), fresh.evaluate(4))
    fresh.close()
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        trained.evaluate(0)


def test_save_and_load_go_on_bit_for_bit(trained: Agent, tmp_path) -> None:
    path = tmp_path / "agent"
    trained.save(path)
    loaded = wng.load(path)
    assert_same(loaded, trained)
    np.testing.assert_array_equal(loaded.predict([0.3]), trained.predict([0.3]))
    loaded.learn(64, progress=False)
    whole = tiny().learn(192, progress=False)
    assert_same(loaded, whole)
    for agent in (loaded, whole):
        agent.close()


def test_load_says_what_is_not_an_agent(tmp_path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        wng.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="is not a run"):
        wng.load(tmp_path)
    (tmp_path / "file").write_text("hello")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        wng.load(tmp_path / "file")
    checkpoint.write_file(tmp_path / "other", {}, {"kind": "something else"})
    with pytest.raises(ValueError, match="does not hold an agent"):
        wng.load(tmp_path / "other")


def test_a_run_in_two_sessions_is_the_run_in_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", -1.0)
    whole = tiny()
    whole_run = new_run(whole, tmp_path / "whole")
    whole.learn(256, progress=False, run=whole_run)

    first = tiny()
    run = new_run(first, tmp_path / "parts")
    first.learn(128, progress=False, run=run)
    second = tiny()
    assert second.restore(run) == []
    second.learn(128, progress=False, run=run)
    assert_same(second, whole)
    assert_same(wng.load(run.path), whole)
    for name, column in read_metrics(run.path).items():
        if not name.startswith("seconds"):
            np.testing.assert_array_equal(column, read_metrics(whole_run.path)[name], name)


def test_a_damaged_checkpoint_is_refused_by_name_and_the_previous_one_used(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", -1.0)
    whole = tiny().learn(256, progress=False)
    for damage in ("cut", "altered"):
        agent = tiny()
        run = new_run(agent, tmp_path / damage)
        agent.learn(192, progress=False, run=run)
        newest, previous = checkpoint.saved(run.checkpoints)
        raw = bytearray(newest.read_bytes())
        if damage == "cut":
            del raw[-100:]
        else:
            raw[-100] ^= 1
        newest.write_bytes(raw)
        with pytest.warns(UserWarning, match=newest.name):
            wng.load(run.path).close()
        again = tiny()
        (problem,) = again.restore(run)
        assert str(newest) in problem
        assert f"using {previous} instead" in problem
        assert again.steps == 128
        again.learn(128, progress=False, run=run)
        assert_same(again, whole)
        np.testing.assert_array_equal(read_metrics(run.path)["iteration"], [1, 2, 3, 4])


def test_a_run_is_not_overwritten_by_an_agent_that_does_not_continue_it(tmp_path) -> None:
    agent = tiny()
    run = new_run(agent, tmp_path)
    agent.learn(128, progress=False, run=run)
    agent.learn(64, progress=False, run=run)  # its own
    wng.load(run.path).learn(64, progress=False, run=run)
    with pytest.raises(ValueError, match=r"does not continue: call agent.restore\(run\) first"):
        tiny().learn(64, progress=False, run=run)
    with pytest.raises(ValueError, match="does not continue"):
        agent.learn(64, progress=False, run=run)  # another has gone on since
    assert wng.load(run.path).steps == 256
    np.testing.assert_array_equal(read_metrics(run.path)["iteration"], [1, 2, 3, 4])


def test_a_callback_sees_each_iteration_and_may_stop() -> None:
    seen = []

    def callback(agent: Agent, row: dict[str, float]) -> bool:
        seen.append((agent.steps, row["steps"], row["iteration"]))
        return len(seen) < 2

    assert tiny().learn(6400, progress=False, callback=callback).steps == 128
    assert seen == [(64, 64, 1), (128, 128, 2)]


@pytest.mark.parametrize("error", [ArithmeticError, KeyboardInterrupt])
def test_an_error_in_a_callback_leaves_a_run_that_goes_on(tmp_path, trained, error) -> None:
    agent = tiny()
    run = new_run(agent, tmp_path)

    def callback(agent: Agent, row: dict[str, float]) -> None:
        if agent.steps == 128:
            raise error("oh")

    with pytest.raises(error):
        agent.learn(640, progress=False, callback=callback, run=run)
    assert_same(wng.load(run.path), trained)
    np.testing.assert_array_equal(read_metrics(run.path)["iteration"], [1, 2])


def test_a_full_disk_leaves_metrics_and_checkpoints_that_agree(tmp_path, monkeypatch) -> None:
    agent = tiny()
    run = new_run(agent, tmp_path)
    write = record.MetricsWriter.write

    def full(self, row) -> None:
        if row["iteration"] == 3:
            raise OSError("no space left")
        write(self, row)

    monkeypatch.setattr(record, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(record.MetricsWriter, "write", full)
    with pytest.raises(OSError, match="no space left"):
        agent.learn(640, progress=False, run=run)
    assert wng.load(run.path).steps == 128
    np.testing.assert_array_equal(read_metrics(run.path)["iteration"], [1, 2])


def state_only(trajectory: wng.Trajectory):
    return jnp.concatenate([trajectory.observations[-1], trajectory.actions[-1]])


def test_an_embedding_of_ones_own(tmp_path) -> None:
    agent = tiny(embedding=state_only, horizon=4).learn(64, progress=False)
    agent.save(tmp_path / "agent")
    sentence = "trained with the embedding <state_only>, a function"
    with pytest.raises(ValueError, match=sentence) as error:
        wng.load(tmp_path / "agent")
    assert "embedding=" in str(error.value)
    loaded = wng.load(tmp_path / "agent", embedding=state_only)
    assert_same(loaded, agent)
    assert_same(loaded.learn(64, progress=False), agent.learn(64, progress=False))
    anonymous = tiny(embedding=wng.Embedding(lambda t: t.actions[0], whole=False))
    anonymous.save(tmp_path / "anonymous")
    with pytest.raises(ValueError, match="<lambda>, a function"):
        wng.load(tmp_path / "anonymous")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lerning_rate": 1e-3}, "no setting 'lerning_rate': did you mean 'learning_rate'"),
        ({"geometry": "wassertein"}, "did you mean 'wasserstein'"),
        ({"settings": "papers"}, "did you mean 'paper'"),
        ({"embedding": "state-actoin"}, "no embedding 'state-actoin': did you mean 'state-action'"),
        ({"embedding": 3}, "an embedding is a name, a function"),
        ({"env": "Hoper-v5"}, "did you mean 'Hopper-v5'"),
        ({"method": "wnpgs"}, "did you mean 'wnpg'"),
        ({"env": "Blackjack-v1"}, "only Box observations"),
        ({"rollout": 66}, "must be a multiple of num_envs=4"),
        ({"seed": -1}, "seed must be a whole number from 0 to 4294967295, got -1"),
    ],
)
def test_mistakes_are_one_clear_sentence(settings: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        tiny(**settings)


def test_a_setting_that_does_not_exist_beside_a_whole_config() -> None:
    with pytest.raises(ValueError, match="did you mean 'learning_rate'"):
        Agent(PROBE, "wnpg", config=preset("wnpg", **TINY), learning_rat=1.0)


def test_one_class_serves_both_families() -> None:
    settings = {"population": 8, "hidden": (4,), "num_basis": 4}
    strategy = Agent("wng/PointWall-v0", "WNES", **settings)
    assert (strategy.title, strategy.family.title) == ("WNES", "evolution strategies")
    # The kind of the configuration decides, so a run's name may be a combination of its own.
    named = Agent("wng/PointWall-v0", "clip_fisher_optimizer", config=strategy.config)
    assert named.family is strategy.family
    assert named.title == "clip_fisher_optimizer"
    gradient = tiny()
    assert gradient.family.title == "policy gradients"
    for agent in (strategy, named, gradient):
        agent.close()
    with pytest.raises(ValueError, match="must be a Config or a EvolutionConfig, got a dict"):
        Agent(PROBE, "wnpg", config={})
    with pytest.raises(ValueError, match="method must be a name"):
        Agent(PROBE, 3)
