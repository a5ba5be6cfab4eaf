"""A run that is stopped anywhere and goes on is the run that was never stopped."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.spaces import Box
from tiny import TINY

from wng.agents.registry import GRADIENT
from wng.policy_gradient.methods import preset
from wng.policy_gradient.trainer import FRUITLESS, Trainer
from wng.runs.training import NonFiniteError


class Faulty(gymnasium.Env):
    """Goes on for ever; at step `at` of an episode one number is not finite."""

    observation_space = Box(-10, 10, (2,), np.float64)
    action_space = Box(-1, 1, (1,), np.float32)

    def __init__(self, what: str, value: float = np.nan, at: int = 20):
        self.what, self.value, self.at = what, value, at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        first = np.array([0.0, self.value if self.what == "start" else 0.0])
        return first, {}

    def step(self, action):
        assert np.isfinite(action).all()  # a policy never acts on what is not a number
        self.steps += 1
        bad = self.steps == self.at
        observation = np.array([0.0, self.value if bad and self.what == "observation" else 0.5])
        reward = self.value if bad and self.what == "reward" else float(action[0])
        return observation, reward, False, False, {}


for what in ("reward", "observation", "start"):
    gymnasium.register(f"Faulty-{what}-v0", entry_point=Faulty, kwargs={"what": what})
gymnasium.register("Faulty-huge-v0", entry_point=Faulty, kwargs={"what": "reward", "value": 1e300})


def trainer(env: str, method: str = "wnpg", seed: int = 3, **settings) -> Trainer:
    config = preset(method, **{**TINY, **settings})
    return Trainer(GRADIENT.resolve(env, config), config, seed)


def arrays_of(trained: Trainer) -> dict[str, np.ndarray]:
    return trained.checkpoint()[0]


def assert_same(a: Trainer, b: Trainer) -> None:
    (one, one_info), (other, other_info) = a.checkpoint(), b.checkpoint()
    one_info["config"].pop("backend")
    other_info["config"].pop("backend")
    assert one_info == other_info
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def without_times(row: dict[str, float]) -> dict[str, float]:
    return {name: x for name, x in row.items() if not name.startswith("seconds")}


@pytest.mark.parametrize("backend", ["gymnasium", "workers"])
def test_resumed_is_uninterrupted_bit_for_bit(backend: str) -> None:
    whole = trainer("Pendulum-v1", "bgwnpg", steer=True)  # episodes of 200 steps, 16 per iteration
    for _ in range(2):
        whole.iterate()
    arrays, info = whole.checkpoint()
    assert arrays["env/steps"].min() > 0  # in mid-episode
    rows = [without_times(whole.iterate()) for _ in range(2)]
    assert not np.array_equal(arrays_of(whole)["learner/step/rate"], arrays["learner/step/rate"])

    resumed = trainer("Pendulum-v1", "bgwnpg", steer=True, backend=backend)
    assert resumed.restore(arrays, info) is None
    again = [without_times(resumed.iterate()) for _ in range(2)]
    np.testing.assert_equal(again, rows)
    assert_same(resumed, whole)
    whole.close()
    resumed.close()


def test_a_checkpoint_holds_the_optimizers_and_the_moments() -> None:
    trained = trainer("wng/ProbeContextual-v0", "ppo")
    names = arrays_of(trained).keys()
    for part in ("step/optimizer", "value_optimizer", "observation_moments", "return_moments"):
        assert any(part in name for name in names)
    trained.close()


def test_envpool_starts_over_and_says_so() -> None:
    pytest.importorskip("envpool")
    first = trainer("CartPole-v1", "pg", backend="envpool")
    first.iterate()
    arrays, info = first.checkpoint()
    second = trainer("CartPole-v1", "pg", backend="envpool")
    message = second.restore(arrays, info)
    assert message is not None
    assert "CartPole-v1 on envpool cannot be replayed" in message
    assert "start over" in message
    np.testing.assert_array_equal(second.state.discounted, 0)
    assert second.steps == 64
    assert second.iterate()["steps"] == 128
    first.close()
    second.close()


def test_a_simulator_that_is_not_deterministic_starts_over_and_says_so() -> None:
    first = trainer("wng/ProbeCounter-v0", "pg", seed=0)
    first.iterate()
    arrays, info = first.checkpoint()
    arrays["env/observations"] = arrays["env/observations"] + 1
    message = first.restore(arrays, info)
    assert message is not None
    assert "environment 0 differs after 1 actions" in message
    assert "Unfinished episodes start over: the run will differ from an uninterrupted" in message
    first.iterate()
    first.close()


@pytest.mark.parametrize(
    ("env", "what", "step"),
    [
        ("Faulty-reward-v0", "a reward", 64 + 3 * 4),
        ("Faulty-observation-v0", "an observation", 64 + 3 * 4),
        ("Faulty-start-v0", "an observation", 0),
        ("Faulty-huge-v0", "a reward", 64 + 3 * 4),  # finite, but not in float32
    ],
)
def test_nothing_is_learned_from_a_number_that_is_not_finite(env, what: str, step: int) -> None:
    trained = trainer(env, "pg")
    if step:
        trained.iterate()  # 16 steps of each environment; the 20th is bad
    before = arrays_of(trained)
    sentence = f"environment 0 of {env} returned {what} that is not finite at step {step}: "
    for _ in range(2):  # and again, from the same place, if one insists
        with pytest.raises(NonFiniteError, match=sentence):
            trained.iterate()
        after = arrays_of(trained)
        for name in before:
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)
        assert all(np.isfinite(x).all() for n, x in after.items() if n.startswith("learner"))
    trained.close()


def test_an_iteration_that_was_broken_off_is_begun_again() -> None:
    whole = trainer("Pendulum-v1", "bgwnpg", steer=True)
    broken = trainer("Pendulum-v1", "bgwnpg", steer=True)
    step, calls = broken.rollouts.env.step, 0

    def interrupted(actions):
        nonlocal calls
        calls += 1
        if calls == 20:
            raise KeyboardInterrupt
        return step(actions)

    broken.rollouts.env.step = interrupted
    broken.iterate()
    with pytest.raises(KeyboardInterrupt):
        broken.iterate()
    assert broken.iteration == 1
    for _ in range(2):
        whole.iterate()
    broken.iterate()
    assert_same(broken, whole)
    whole.close()
    broken.close()


@pytest.mark.parametrize(("env", "method"), [("Pendulum-v1", "pg"), ("CartPole-v1", "ppo")])
def test_a_batch_is_sampled_without_learning(env: str, method: str) -> None:
    untouched, sampled = trainer(env, method), trainer(env, method)
    untouched.iterate()
    sampled.iterate()
    batch = sampled.sample_batch(3)
    assert len(batch.advantages) == len(batch.observations) == 3 * 64
    np.testing.assert_allclose(batch.advantages.mean(), 0, atol=1e-5)
    np.testing.assert_allclose(batch.advantages.std(), 1, atol=0.01)
    policy = sampled.state.networks.policy(batch.observations)
    np.testing.assert_allclose(policy.log_prob(batch.actions), batch.log_probs, rtol=1e-4)

    one, other = untouched.checkpoint(), sampled.checkpoint()
    assert one[1] == other[1]
    for name in one[0]:
        np.testing.assert_array_equal(other[0][name], one[0][name], err_msg=name)
    # The environments have moved on; the next iteration goes back to where they were.
    there = [each.rollouts.env.state().observations for each in (untouched, sampled)]
    assert not np.array_equal(*there)
    np.testing.assert_equal(without_times(sampled.iterate()), without_times(untouched.iterate()))
    assert_same(sampled, untouched)
    untouched.close()
    sampled.close()


def test_sampled_batches_are_the_same_after_a_restore_and_no_two_rollouts_are() -> None:
    first, second = trainer("Pendulum-v1", "pg"), trainer("Pendulum-v1", "pg")
    first.iterate()
    second.restore(*first.checkpoint())
    one, two = first.sample_batch(2), second.sample_batch(2)
    again = first.sample_batch(2)
    for other in (two, again):
        jax.tree.map(np.testing.assert_array_equal, other, one)
    noise = np.asarray((one.actions - one.policy.mean) / np.exp(one.policy.log_std))
    assert np.abs(noise[:64] - noise[64:]).min() > 1e-4
    first.close()
    second.close()


def test_advantages_of_a_sampled_batch_are_those_of_training(monkeypatch) -> None:
    trained = trainer("Pendulum-v1", "pg")
    state, found, collect = trained.state, [], trained.rollouts.collect
    monkeypatch.setattr(
        trained.rollouts, "collect", lambda *a: found.append(collect(*a)) or found[-1]
    )
    batch, advantages = trained.sample_batch(2), []
    for rollout, _ in found:
        state, rows, *_ = trained.learner.batch(state, rollout)
        advantages.append(rows.advantages)
    expected = np.concatenate(advantages)
    expected = (expected - expected.mean()) / (expected.std() + 1e-3)
    np.testing.assert_allclose(batch.advantages, expected, rtol=1e-3, atol=1e-4)
    trained.close()


def test_steps_that_are_all_dropped_stop_the_run() -> None:
    trained = trainer("wng/ProbeCounter-v0", "pg")
    update = trained.learner.update

    def all_dropped(state, rollout, key):
        new, metrics = update(state, rollout, key)
        return new._replace(skipped=state.skipped + 2), metrics

    trained.learner.update = all_dropped
    for _ in range(FRUITLESS - 1):
        trained.iterate()
    with pytest.raises(NonFiniteError, match=r"ProbeCounter-v0, up to step 192, was dropped"):
        trained.iterate()
    assert trained.iteration == FRUITLESS - 1
    trained.close()


def test_a_policy_that_blows_up_is_not_kept() -> None:
    trained = trainer("wng/ProbeAction-v0", "pg", optimizer="sgd", learning_rate=1e38)
    with pytest.raises(NonFiniteError, match="lower the learning rate"):
        [trained.iterate() for _ in range(20)]
    assert all(np.isfinite(x).all() for x in arrays_of(trained).values())
    trained.close()


@pytest.mark.parametrize("embedding", ["clipped-action", "state-change"])
def test_embeddings_see_the_bounds_and_the_successors_of_the_environment(embedding: str) -> None:
    trained = trainer("Pendulum-v1", embedding=embedding, log_std=1.0, normalize_observations=False)
    trained.iterate()
    learner, (state, at, _, steps) = trained.learner, trained.begin()
    rollout, _ = trained.rollouts.collect(state, at, jax.random.key(0), steps)
    windows = learner.batch(state, rollout)[2]
    X = np.asarray(learner.problem.behaviors.embed(state.networks, windows, jax.random.key(1)))
    rows = [
        np.moveaxis(x, 1, 0).reshape(-1, x.shape[2])
        for x in (rollout.observations, rollout.next_observations)
    ]
    np.testing.assert_array_equal(X[:, :3], rows[0])
    if embedding == "state-change":
        np.testing.assert_allclose(X[:, 3:], rows[1] - rows[0], atol=1e-6)
        assert np.abs(X[:, 5]).max() > 0.1  # angular velocity
    else:
        assert (np.abs(X[:, 3]) == 2).sum() > 10  # torque at its bounds
        assert (np.abs(X[:, 3]) <= 2).all()
    trained.close()
