"""Generations: the same for the same seed, resumed as if never stopped, sound whatever comes."""

import jax
import numpy as np
import pytest

from evolution.small_envs import first_state
from evolution.tiny import ENV, GENERATION, METHODS, TINY, without_times
from wng.agents.registry import EVOLUTION
from wng.behavior.embedding import Embedding
from wng.evolution.episodes import Episodes
from wng.evolution.maps import read_maps
from wng.evolution.methods import preset
from wng.evolution.trainer import FRUITLESS, EvolutionTrainer
from wng.runs.training import NonFiniteError

MODULE = "evolution.small_envs:"


def trainer(
    env: str = ENV, method: str = "wnes", seed: int = 3, function=None, **settings
) -> EvolutionTrainer:
    config = preset(method, **{**TINY, **settings})
    return EvolutionTrainer(EVOLUTION.resolve(env, config), config, seed, function)


def center(trained: EvolutionTrainer) -> np.ndarray:
    return np.asarray(trained.state.strategy.center)


def assert_same(a: EvolutionTrainer, b: EvolutionTrainer) -> None:
    (one, one_info), (other, other_info) = a.checkpoint(), b.checkpoint()
    assert one_info == other_info
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("method", METHODS)
def test_resumed_is_uninterrupted_bit_for_bit(method: str) -> None:
    whole = trainer(method=method)
    start = center(whole)
    for _ in range(2):
        whole.iterate()
    arrays, info = whole.checkpoint()
    rows = [without_times(whole.iterate()) for _ in range(3)]
    assert not np.array_equal(center(whole), arrays["strategy/center"])
    assert not np.array_equal(center(whole), start)

    resumed = trainer(method=method)
    assert resumed.restore(arrays, info) is None
    again = [without_times(resumed.iterate()) for _ in range(3)]
    np.testing.assert_equal(again, rows)
    assert_same(resumed, whole)

    # What the method remembers beside θ matters: without it the run would be another one.
    names = {name.split("/")[1] for name in arrays}
    remembered = {"past"} if method in ("nsres", "bges", "bgwnes", "nsrwnes") else set()
    learned = {"sigma"} if method in ("snes", "wsnes") else {"optimizer"}  # plain steps with σ
    always = {"center", "generation", "skipped", "best", "best_return"}
    assert names == always | learned | remembered
    forgetful = trainer(method=method)
    fresh = forgetful.checkpoint()[0]
    lost = next(iter(remembered or learned))
    forgetful.restore(
        {name: fresh[name] if name.split("/")[1] == lost else x for name, x in arrays.items()}, info
    )
    forgetful.iterate()
    forgetful.iterate()
    assert not np.array_equal(center(forgetful), center(whole))


def test_a_run_with_restarts_resumes_too() -> None:
    settings = {"restart_after": 1, "method": "snes"}
    whole = trainer(**settings)
    rows = [whole.iterate() for _ in range(3)]
    arrays, info = whole.checkpoint()
    rows += [whole.iterate() for _ in range(12)]
    assert rows[-1]["restarts"] > rows[2]["restarts"]
    resumed = trainer(**settings)
    resumed.restore(arrays, info)
    for row in rows[3:]:
        np.testing.assert_equal(without_times(resumed.iterate()), without_times(row))
    assert_same(resumed, whole)


def test_seeds() -> None:
    def end(seed: int) -> tuple[list[dict[str, float]], np.ndarray]:
        trained = trainer(seed=seed)
        rows = [without_times(trained.iterate()) for _ in range(2)]
        return rows, center(trained)

    (rows, one), (same_rows, same), (_, other) = end(3), end(3), end(4)
    np.testing.assert_equal(same_rows, rows)
    np.testing.assert_array_equal(same, one)
    assert not np.isin(one, other).any()
    np.testing.assert_array_equal(
        center(trainer(seed=3)), center(trainer(seed=3, method="es"))
    )  # methods are compared from the same start


def test_the_row_is_what_the_episodes_were() -> None:
    trained = trainer()
    evaluate = trained.population.blocks[0].evaluator
    rng = np.random.default_rng(0)
    told = []

    class Known:
        def __call__(self, members, moments, generation: int) -> Episodes:
            returns = rng.normal(size=9).astype(np.float32)
            x = rng.uniform(0, 28, size=(9, 4)).astype(np.float32)
            told.append((generation, returns, x))
            real = evaluate(members, moments, generation)
            lengths = np.arange(1, 10)
            return real._replace(returns=returns, final_observations=x, lengths=lengths)

    trained.population.blocks[0].evaluator = Known()
    for number in (1, 2, 3):
        row = trained.iterate()
        generation, returns, x = told[-1]
        assert generation == number - 1
        # The policy at the center, the last one, is not counted.
        assert (row["iteration"], row["steps"], row["episodes"]) == (
            number,
            36 * number,
            8 * number,
        )
        assert row["return"] == row["return_recent"] == returns[-1]
        assert row["population_mean"] == pytest.approx(returns[:-1].mean(), rel=1e-4)
        assert row["population_best"] == returns[:-1].max()
        assert row["population_std"] == pytest.approx(returns[:-1].std(), rel=1e-4)
        assert row["dropped"] == row["skipped"] == row["distance"] == 0
        assert min(row["gradient_norm"], row["direction_norm"], row["epsilon"]) > 0
        assert -1.001 <= row["alignment"] <= 1.001
        past = x[:, 0] > 14.3  # the far face of the cup
        assert row["past_wall"] == float(past[-1])
        assert row["population_past_wall"] == pytest.approx(past[:-1].mean())
        assert row["seconds"] >= row["seconds_episodes"] > 0
    assert (trained.iteration, trained.steps) == (3, 108)


def test_members_are_the_center_and_noise_of_size_sigma() -> None:
    trained = trainer(method="es")
    evaluate, seen = trained.population.blocks[0].evaluator, []

    class Watch:
        def __call__(self, members, moments, generation: int) -> Episodes:
            rows = [x.reshape(9, -1) for x in jax.tree.leaves(members)]
            seen.append(np.concatenate(rows, axis=1))
            return evaluate(members, moments, generation)

    trained.population.blocks[0].evaluator = Watch()
    noise = []
    for _ in range(4):
        before = center(trained)
        trained.iterate()
        *members, last = seen[-1]
        np.testing.assert_array_equal(last, before)
        noise.append(np.array(members) - before)
        np.testing.assert_allclose(noise[-1][::2], -noise[-1][1::2], atol=1e-6)  # pairs
    drawn = np.concatenate(noise)[::2].ravel() / trained.config.sigma
    assert drawn.std() == pytest.approx(1, abs=5 / (2 * drawn.size) ** 0.5)
    assert len(set(drawn.tolist())) > 0.9 * drawn.size


def test_what_is_not_finite_is_dropped_and_counted() -> None:
    # So many that some go to the left, where rewards are not finite, and some to the right.
    settings = {"backend": "gymnasium", "sigma": 1.0, "population": 64}
    trained = trainer(f"{MODULE}Line-reward-v0", "es", **settings)
    dropped = []
    for _ in range(3):
        row = trained.iterate()
        assert trained.episodes is not None
        returns = trained.episodes.returns[:-1]
        assert row["dropped"] == np.sum(~np.isfinite(returns))
        assert row["population_mean"] == pytest.approx(np.nanmean(returns), rel=1e-4)
        assert np.isfinite(center(trained)).all()
        dropped.append(row["dropped"])
    assert 0 < min(dropped) <= max(dropped) < 64
    assert int(trained.state.strategy.skipped) == trained.fruitless == 0


def test_observations_are_normalized_by_what_all_members_saw() -> None:
    """Those whose episodes broke are left out; the center counts like a member."""
    settings = {"backend": "gymnasium", "sigma": 1.0, "population": 64}
    trained = trainer(f"{MODULE}Line-observation-v0", "es", normalize_observations=True, **settings)
    batches: list[np.ndarray] = []
    for _ in range(3):
        row = trained.iterate()
        assert 0 < row["dropped"] < 64
        found = trained.episodes
        assert found is not None
        for mean, variance, length, value in zip(
            found.means, found.variances, found.lengths, found.returns, strict=True
        ):
            if np.isfinite(value):  # any two numbers with this mean and variance stand for all
                spread = np.sqrt(variance)
                batches += [mean + spread, mean - spread] * int(length)
        moments = trained.state.observation_moments
        assert moments is not None
        np.testing.assert_allclose(moments.mean, np.mean(batches, axis=0), rtol=1e-4)
        np.testing.assert_allclose(moments.variance, np.var(batches, axis=0), rtol=1e-4)
        assert moments.seen == len(batches) / 2

    rows = np.array([[0.5, 3.0]], np.float32)
    layers = trained.policy.layers(trained.params)
    seen = (rows[0] - np.asarray(moments.mean)) / np.sqrt(moments.variance)
    expected = trained.policy.act(layers, seen, np.zeros(1, np.float32))
    np.testing.assert_allclose(trained.actions(trained.state, rows, None)[0], expected, rtol=1e-4)

    resumed = trainer(f"{MODULE}Line-observation-v0", "es", normalize_observations=True, **settings)
    resumed.restore(*trained.checkpoint())
    assert_same(resumed, trained)
    np.testing.assert_equal(without_times(resumed.iterate()), without_times(trained.iterate()))


def test_generations_without_a_finite_return_stop_the_run() -> None:
    trained = trainer(f"{MODULE}Line-start-v0", "bgwnes", backend="gymnasium")
    start = trained.checkpoint()[0]
    for number in range(1, FRUITLESS):
        row = trained.iterate()
        assert (row["dropped"], row["skipped"]) == (8, number)
    sentence = r"no member of 3 generations on .*Line-start-v0, up to step 24, led to a finite step"
    for _ in range(2):  # and again, if one insists
        with pytest.raises(NonFiniteError, match=sentence):
            trained.iterate()
        assert trained.iteration == FRUITLESS - 1
    end = trained.checkpoint()[0]
    for name in end:
        if name.split("/")[1] not in ("generation", "skipped"):
            np.testing.assert_array_equal(end[name], start[name], err_msg=name)
    trained.close()


def test_a_good_generation_is_a_new_start() -> None:
    """Three in a row stop a run, not three in all."""
    trained = trainer()
    evaluate, bad = (
        trained.population.blocks[0].evaluator,
        iter([True, True, False, True, True, False]),
    )

    class Sometimes:
        def __call__(self, members, moments, generation):
            episodes = evaluate(members, moments, generation)
            returns = np.full_like(episodes.returns, np.nan)
            return episodes._replace(returns=returns) if next(bad) else episodes

    trained.population.blocks[0].evaluator = Sometimes()
    rows = [trained.iterate() for _ in range(6)]
    assert [row["skipped"] for row in rows] == [1, 2, 2, 3, 4, 4]


def test_a_generation_that_was_broken_off_is_begun_again() -> None:
    whole, broken = (trainer(f"{MODULE}Line-v0", "es", backend="gymnasium") for _ in range(2))
    evaluator = broken.population.blocks[0].evaluator
    step, calls = evaluator._stepper.step, 0

    def interrupted(actions):
        nonlocal calls
        calls += 1
        if calls == 14:
            raise KeyboardInterrupt
        return step(actions)

    evaluator._stepper = evaluator._stepper._replace(step=interrupted)
    broken.iterate()
    with pytest.raises(KeyboardInterrupt):
        broken.iterate()
    assert broken.iteration == 1
    for _ in range(2):
        whole.iterate()
    broken.iterate()
    assert_same(broken, whole)
    for trained in (whole, broken):
        trained.close()


def test_steps_are_counted_as_they_were_taken() -> None:
    """Episodes of random length from 1 to 6, and a horizon of 4."""
    trained = trainer("wng/ProbeCounter-v0", "es", backend="gymnasium", horizon=4)
    row = trained.iterate()
    assert trained.episodes is not None
    lengths = np.minimum(trained.episodes.final_observations[:, 1], 4)
    np.testing.assert_array_equal(trained.episodes.lengths, lengths)
    assert row["steps"] == lengths[:-1].sum()
    assert "past_wall" not in row
    trained.close()


def test_what_does_not_go_on_forever() -> None:
    for env in (f"{MODULE}Endless-v0", "wng/ProbeCounter-v0"):
        with pytest.raises(ValueError, match=f"'{env}' has no time limit: .*--horizon"):
            trainer(env)
    trained = trainer(f"{MODULE}Endless-v0", "es", backend="gymnasium", horizon=5)
    assert trained.iterate()["steps"] == 8 * 5
    trained.close()
    longer = trainer(method="es", horizon=1000)  # than the environment's own limit
    assert longer.iterate()["steps"] == GENERATION


@pytest.mark.parametrize(
    ("embedding", "size"),
    [
        ("final-state", 2),
        ("reward-to-go", 10),
        ("trajectory-actions", 10),
        (f"{MODULE}first_state", 2),
        (first_state, 2),
    ],
)
def test_embeddings(embedding, size: int) -> None:
    """First observations are [a₀, 1]; reward-to-go begins with the return."""
    chosen = {"function" if callable(embedding) else "embedding": embedding}
    trained = trainer(f"{MODULE}Line-v0", "es", backend="gymnasium", **chosen)
    trained.iterate()
    assert trained.episodes is not None
    returns, behaviors, _, finals, *_ = trained.episodes
    assert behaviors.shape == (9, size)
    if embedding == "final-state":
        np.testing.assert_array_equal(behaviors, finals)
    elif embedding == "reward-to-go":
        np.testing.assert_allclose(behaviors[:, 0], returns, rtol=1e-5)
    elif embedding == "trajectory-actions":
        np.testing.assert_allclose(behaviors.sum(axis=1), finals[:, 0], rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(behaviors[:, 1], 1)
        assert len(np.unique(behaviors[:, 0])) > 1
    trained.close()


@pytest.mark.parametrize("embedding", ["reward-to-go", f"{MODULE}first_state"])
def test_the_strategy_is_told_the_behaviors(embedding: str) -> None:
    trained = trainer(f"{MODULE}Line-v0", "nsres", backend="gymnasium", embedding=embedding)
    trained.iterate()
    assert trained.episodes is not None
    kept = np.asarray(trained.state.strategy.past.behaviors)[0]
    assert (np.abs(trained.episodes.behaviors[:-1] - kept).max(axis=1) == 0).sum() >= 1
    trained.close()


@pytest.mark.parametrize("name", ["state-action", "actions", "actions-value"])
def test_embeddings_of_single_steps_are_refused(name: str) -> None:
    sentence = f"embedding '{name}' looks at single steps, .* need final-state, reward-to-go, "
    with pytest.raises(ValueError, match=sentence):
        trainer(embedding=name)
    with pytest.raises(ValueError, match="looks at single steps"):
        trainer(function=Embedding(first_state, whole=False))


def test_seeds_at_the_ends_of_the_range() -> None:
    ends = [center(trainer(seed=seed)) for seed in (0, 2**32 - 1, np.int64(0))]
    assert not np.array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])


def test_another_simulator_after_a_checkpoint_is_told() -> None:
    line = f"{MODULE}Line-v0"
    saved = trainer(line, "es", backend="gymnasium").checkpoint()
    assert trainer(line, "es", backend="workers").restore(*saved) is None
    told = trainer(line, "es").restore(*saved)
    assert told is not None
    assert "earlier episodes ran on backend 'gymnasium', but the next ones run on 'jax'" in told


def test_runs_that_differ_in_the_seed_alone_compile_once() -> None:
    first, second = trainer(seed=0), trainer(seed=1)
    for trained in (first, second):
        trained.iterate()
    run = first.population.blocks[0].evaluator.program
    assert run is second.population.blocks[0].evaluator.program
    assert run._cache_size() == 1


def test_actions_are_those_of_the_center(tmp_path) -> None:
    trained = trainer(method="es")
    rows = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    quiet = trained.actions(trained.state, rows, None)
    layers = trained.policy.layers(trained.strategy.params(trained.state.strategy))
    expected = [trained.policy.act(layers, row, np.zeros(2, np.float32)) for row in rows]
    np.testing.assert_allclose(quiet, expected, rtol=1e-5, atol=1e-6)
    noisy = trained.actions(trained.state, rows, jax.random.key(0))
    assert np.abs(noisy - quiet).max() > 0.01
    trained.keep(tmp_path)  # nothing to write before the first generation
    row = trained.iterate()
    assert trained.shown(row) == {
        "return": row["return"],
        "population": row["population_mean"],
        "past wall": row["population_past_wall"],
    }
    trained.keep(tmp_path)
    assert [generation.number for generation in read_maps(tmp_path, until=9)] == [1]


@pytest.mark.parametrize(
    ("method", "setting"), [("nsres", "archive"), ("bges", "memory"), ("bges", "dual_features")]
)
def test_a_past_that_cannot_fit_is_refused(method: str, setting: str) -> None:
    huge = {setting: 2**31 - 1, "embedding": "reward-to-go"}  # of 50 numbers
    with pytest.raises(ValueError, match=f"{setting}=2147483647 would take at least .* GB"):
        trainer(method=method, **huge)
