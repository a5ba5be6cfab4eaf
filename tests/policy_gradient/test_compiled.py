"""In JAX environments an iteration is one compiled call, resumes exactly, and shares programs."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tiny import TINY

import wng
from wng.agents.registry import GRADIENT
from wng.policy_gradient.block import TrainerBlock
from wng.policy_gradient.methods import preset
from wng.policy_gradient.trainer import Trainer
from wng.runs.training import NonFiniteError

POINT = "wng/PointWall-v0"
PAST_RESETS = {"rollout": 256}  # 64 steps per environment and iteration; episodes have 50


def trainer(env: str = POINT, method: str = "ppo", seed: int = 3, **settings) -> Trainer:
    config = preset(method, **{**TINY, "backend": "jax", **settings})
    return Trainer(GRADIENT.resolve(env, config), config, seed)


def parameters(trained: Trainer) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(trained.state.networks)])


def without_times(row: dict[str, float]) -> dict[str, float]:
    return {name: x for name, x in row.items() if not name.startswith("seconds")}


def test_the_rollout_and_the_update_are_those_of_two_calls() -> None:
    trained = trainer("wng/ProbeCounter-v0", "pg")
    before, at, (key_actions, key_update), start = trained.begin()
    rollout, _ = trained.rollouts.collect(before, at, key_actions, start)
    expected, metrics = trained.learner.update(before, rollout, key_update)
    row = trained.iterate()
    np.testing.assert_allclose(row["kl"], metrics["kl"], rtol=1e-3)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5),
        trained.state.networks,
        expected.networks,
    )
    steps, length = np.moveaxis(np.asarray(rollout.next_observations), 2, 0)
    np.testing.assert_array_equal(steps, np.asarray(rollout.observations)[..., 0] + 1)
    ended = steps == length
    np.testing.assert_array_equal(rollout.truncated, ended & (length % 2 == 0))
    assert row["episodes"] == ended.sum()
    np.testing.assert_allclose(row["return"], length[ended].mean(), rtol=1e-6)
    np.testing.assert_allclose(row["length"], length[ended].mean(), rtol=1e-6)


def test_resumed_is_uninterrupted_bit_for_bit() -> None:
    whole, resumed = trainer(**PAST_RESETS), trainer(**PAST_RESETS)
    whole.iterate()
    arrays, info = whole.checkpoint()
    assert arrays["env/steps"].min() > 0  # in mid-episode
    rows = [without_times(whole.iterate()) for _ in range(2)]
    assert resumed.restore(arrays, info) is None
    np.testing.assert_equal([without_times(resumed.iterate()) for _ in range(2)], rows)
    one, other = whole.checkpoint()[0], resumed.checkpoint()[0]
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    with pytest.raises(ValueError, match="another version or configuration"):
        resumed.restore({**arrays, "env/steps": arrays["env/steps"][:2]}, info)


def test_an_environment_of_gymnax_from_training_to_evaluation(tmp_path: Path) -> None:
    pytest.importorskip("gymnax")
    whole = wng.Agent("gymnax/CartPole-v1", "ppo", **TINY | {"backend": "auto"})
    assert whole.trainer.spec.backend == "jax"
    whole.learn(128, progress=False).save(tmp_path / "agent.safetensors")
    resumed = wng.load(tmp_path / "agent.safetensors")
    assert resumed.steps == 128
    returns = [agent.learn(128, progress=False).evaluate(2) for agent in (whole, resumed)]
    np.testing.assert_array_equal(*returns)
    assert returns[0].min() >= 8  # a reward of 1 per step, and no pole falls sooner
    one, other = (agent.trainer.checkpoint()[0] for agent in (whole, resumed))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], name)


def test_states_of_environments_may_hold_keys() -> None:
    rollouts = trainer("jax_tasks:Walk").rollouts
    at = rollouts.start()
    saved = rollouts.save(at)
    assert saved["states/key"].shape == (4, 2)
    again = rollouts.load(saved)
    jax.tree.map(np.testing.assert_array_equal, rollouts.save(again), saved)
    np.testing.assert_array_equal(
        *map(jax.random.uniform, (again.states["key"][1], at.states["key"][1]))
    )


def test_nothing_is_learned_from_a_number_that_is_not_finite() -> None:
    trained = trainer("jax_tasks:broken", "pg", num_envs=4)
    before = trained.checkpoint()[0]
    sentence = "environment 0 of jax_tasks:broken returned a reward that is not finite at step 16: "
    for _ in range(2):
        with pytest.raises(NonFiniteError, match=sentence):
            trained.iterate()
        after = trained.checkpoint()[0]
        for name in before:
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)


@pytest.mark.slow
def test_thousands_of_environments() -> None:
    trained = trainer(num_envs=2048, rollout=4096, minibatch=2048, value_minibatch=2048)
    row = trained.iterate()
    assert row["steps"] == 4096
    assert np.isfinite(row["kl"])


def test_other_numbers_are_the_same_program() -> None:
    """Twice the learning rate of one step of SGD is twice the step."""
    one_step = {"optimizer": "sgd", "minibatch": 64, "max_grad_norm": 1e9}
    found = [
        trainer(method="pg", learning_rate=rate, **one_step, gamma=gamma)
        for rate, gamma in ((1e-3, 0.9), (2e-3, 0.9), (1e-3, 0.5))
    ]
    assert len({id(each.learner.program) for each in found}) == 1
    start = np.concatenate([np.ravel(x) for x in jax.tree.leaves(found[0].params)])
    moved = []
    for each in found:
        each.iterate()
        moved.append(np.concatenate([np.ravel(x) for x in jax.tree.leaves(each.params)]) - start)
    program = found[0].rollouts.program  # type: ignore[union-attr]
    assert program.iterate._cache_size() == 1
    np.testing.assert_allclose(moved[1], 2 * moved[0], rtol=0.01, atol=1e-6)
    assert np.abs(moved[2] - moved[0]).max() > 1e-3 * np.abs(moved[0]).max()
    other = trainer(method="pg", learning_rate=1e-3, epochs=2, **one_step)
    assert other.learner.program is not found[0].learner.program
    assert found[1].learner.problem.config.learning_rate == 2e-3


@pytest.mark.parametrize(
    ("method", "name", "values"),
    [
        ("wnpg", "damping", (0.1, 0.2)),
        ("trpo", "kl_target", (0.01, 0.02)),
        ("ppo", "clip_range", (1e-3, 0.2)),
        ("bgpg", "penalty", (0.5, 1.0)),
        ("bgwnpg", "penalty", (0.5, 5.0)),
        ("ppo", "value_learning_rate", (1e-3, 1e-4)),
    ],
)
def test_each_number_of_a_method_is_an_argument(method: str, name: str, values: tuple) -> None:
    """Runs that differ in it share their programs, and yet differ."""
    runs = [trainer(method=method, **{name: value}) for value in values]
    assert runs[0].learner.program is runs[1].learner.program
    ends = []
    for each in runs:
        each.iterate()
        each.iterate()
        ends.append(np.concatenate([np.ravel(x) for x in jax.tree.leaves(each.params)]))
    assert np.abs(ends[0] - ends[1]).max() > 1e-7


ESTIMATED = {"geometry": "wasserstein", "num_basis": 5, "metric_samples": 32, "refresh_every": 2}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("ppo", {"learning_rate": 3e-3}),
        ("wnpg", ESTIMATED),  # in float64, and used for two minibatches
        pytest.param("wnpg", ESTIMATED | {"adapt_damping": 2}, marks=pytest.mark.slow),
        *(pytest.param(method, {}, marks=pytest.mark.slow) for method in GRADIENT.methods),
    ],
)
def test_seeds_side_by_side_are_seeds_alone(method: str, settings: dict[str, Any]) -> None:
    """To rounding, after three iterations in which episodes end."""

    def make(seed: int) -> Trainer:
        return trainer(method=method, seed=seed, **settings, **PAST_RESETS)

    alone, block = [make(5), make(6)], TrainerBlock([make(5), make(6)])
    starts = [parameters(each) for each in alone]
    for _ in range(3):
        rows = block.iterate(range(2))
        for row, each in zip(rows, alone, strict=True):
            expected = each.iterate()
            assert isinstance(row, dict)
            assert row["episodes"] == expected["episodes"] > 0
            for name in ("return", "kl", "value_error"):
                np.testing.assert_allclose(
                    row[name], expected[name], rtol=1e-3, atol=1e-6, err_msg=name
                )
    for one, other, start in zip(block.trainers, alone, starts, strict=True):
        moved = np.linalg.norm(parameters(other) - start)
        assert moved > 0.01
        assert np.linalg.norm(parameters(one) - parameters(other)) < 1e-3 * moved


def test_a_block_resumes_as_a_block_bit_for_bit_and_a_seed_alone_says_that_it_does_not() -> None:
    seeds = (1, 2)
    whole = TrainerBlock([trainer(seed=seed, **PAST_RESETS) for seed in seeds])
    whole.iterate(range(2))
    saved = [each.checkpoint() for each in whole.trainers]
    resumed = TrainerBlock([trainer(seed=seed, **PAST_RESETS) for seed in seeds])
    for each, (arrays, info) in zip(resumed.trainers, saved, strict=True):
        assert each.restore(arrays, info) is None
    for block in (whole, resumed):
        block.iterate(range(2))
        block.iterate(range(2))
    for one, other in zip(whole.trainers, resumed.trainers, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one.checkpoint()[0], other.checkpoint()[0])
    message = trainer(seed=1, **PAST_RESETS).restore(*saved[0])
    assert message is not None
    assert "not match an uninterrupted run bit for bit" in message


def test_a_trainer_that_is_not_wanted_stays_where_it_is() -> None:
    block = TrainerBlock([trainer(seed=seed) for seed in (1, 2)])
    rows = block.iterate([1])
    assert rows[0] is None
    assert [each.iteration for each in block.trainers] == [0, 1]
    both = TrainerBlock([trainer(seed=seed) for seed in (1, 2)])
    expected = both.iterate([0, 1])[0]
    late = block.iterate([0, 1])[0]
    assert isinstance(late, dict)
    assert isinstance(expected, dict)
    np.testing.assert_equal(without_times(late), without_times(expected))


def test_only_jax_environments_of_one_method_make_a_block() -> None:
    with pytest.raises(ValueError, match="side by side"):
        TrainerBlock([trainer(seed=1), trainer(seed=1, method="trpo")])
    with pytest.raises(ValueError, match="side by side"):
        TrainerBlock([trainer(seed=1), trainer(seed=2, backend="gymnasium")])
