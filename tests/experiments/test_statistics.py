from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from wng.experiments.statistics import (
    bootstrap_band,
    interquartile_mean,
    on_grid,
    performance_profile,
    probability_of_improvement,
    profile_band,
    rank_correlation,
    stratified_bootstrap,
    welch_interval,
)


def test_curves_are_averaged_in_the_same_bins_up_to_the_shortest() -> None:
    long = (np.arange(1, 9) * 10.0, np.arange(8.0))
    short = (np.arange(1, 5) * 10.0, np.array([1.0, 1.0, 3.0, 3.0]))
    grid, values = on_grid([long, short], bins=2)
    np.testing.assert_allclose(grid, [20, 40])
    np.testing.assert_allclose(values, [[0.5, 2.5], [1.0, 3.0]])


def test_a_bin_without_an_episode_repeats_the_one_before() -> None:
    steps = np.array([10.0, 20.0, 30.0, 40.0])
    grid, values = on_grid([(steps, np.array([np.nan, 5.0, np.nan, 7.0]))], bins=4)
    np.testing.assert_allclose(grid, [20, 30, 40])  # nothing is known before the first
    np.testing.assert_allclose(values, [[5.0, 5.0, 7.0]])


def test_the_bootstrap_interval_covers_the_mean_of_normal_samples() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(3.0, 2.0, size=(30, 400))  # 400 experiments of 30 runs
    low, high = bootstrap_band(samples)
    covered = np.mean((low < 3) & (high > 3))
    assert 0.88 < covered < 0.98
    assert np.mean(high - low) == pytest.approx(2 * 1.96 * 2 / 30**0.5, rel=0.1)


def three_tasks(seed: int = 0, shift: float = 0.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(k + shift, 1 + k, size=n) for k, n in enumerate((4, 7, 10))]


@pytest.mark.parametrize("shape", [(1,), (3,), (4,), (10,), (7, 5), (8, 4)])
def test_the_interquartile_mean_is_scipys_trimmed_mean(shape: tuple[int, ...]) -> None:
    scores = np.random.default_rng(1).standard_cauchy(shape)
    expected = stats.trim_mean(scores, 0.25, axis=None)
    assert interquartile_mean(scores) == pytest.approx(expected)


def test_the_bootstrap_of_one_task_is_scipys() -> None:
    scores = np.random.default_rng(2).exponential(3.0, size=12)
    point, low, high = stratified_bootstrap([scores], np.mean, draws=5000)
    expected = stats.bootstrap(
        (scores,), np.mean, method="percentile", n_resamples=5000, rng=np.random.default_rng(9)
    ).confidence_interval
    assert point == scores.mean()
    width = expected.high - expected.low
    np.testing.assert_allclose([low, high], expected, atol=0.04 * width)


def test_seeds_are_resampled_within_their_task() -> None:
    tasks = [np.array([0.0, 1.0]), np.array([100.0, 101.0, 102.0])]

    def counts(scores: np.ndarray) -> float:
        assert scores.shape == (5,)
        return float((scores[:2] < 50).sum() + (scores[2:] > 50).sum())

    assert stratified_bootstrap(tasks, counts) == (5, 5, 5)


def test_the_stratified_interval_covers_the_mean() -> None:
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        tasks = [rng.normal(k, 1.0, size=20) for k in (0, 5, 10)]
        _, low, high = stratified_bootstrap(tasks, np.mean, draws=200)
        covered += low < 5 < high
    assert 0.88 < covered / 200 < 0.99


def test_with_one_seed_a_task_every_interval_is_the_point() -> None:
    tasks = [np.array([0.1]), np.array([0.7]), np.array([0.2])]
    for statistic in (np.mean, interquartile_mean):
        point, low, high = stratified_bootstrap(tasks, statistic)
        assert low == point == high
    assert probability_of_improvement(tasks, tasks[::-1]) == (0.5, 0.5, 0.5)
    thresholds = np.array([0.0, 0.15, 0.5])
    profile = performance_profile(np.concatenate(tasks), thresholds)
    np.testing.assert_array_equal(profile_band(tasks, thresholds), [profile, profile])


def test_the_probability_of_improvement_is_mann_and_whitneys() -> None:
    a, b = three_tasks(0, shift=1.0), three_tasks(1)
    a, b = [x.round() for x in a], [y.round() for y in b]  # with ties
    shares = [
        stats.mannwhitneyu(x, y).statistic / (len(x) * len(y)) for x, y in zip(a, b, strict=True)
    ]
    p, low, high = probability_of_improvement(a, b)
    assert p == pytest.approx(np.mean(shares))
    assert low < p < high
    # The other way around it is the rest, up to the chance in the resamples.
    np.testing.assert_allclose(
        probability_of_improvement(b, a), 1 - np.array([p, high, low]), atol=0.03
    )


def test_the_interval_of_the_probability_covers_it() -> None:
    covered = 0
    truth = stats.norm.cdf(1 / 2**0.5)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        a, b = [[rng.normal(m, 1.0, 20) for _ in range(2)] for m in (1.0, 0.0)]
        _, low, high = probability_of_improvement(a, b, draws=200)
        covered += low < truth < high
    assert covered >= 85


def test_a_run_that_always_wins_has_probability_one() -> None:
    a, b = [np.array([2.0, 3.0])], [np.array([0.0, 1.0, 1.5])]
    assert probability_of_improvement(a, b) == (1, 1, 1)
    assert probability_of_improvement(b, a) == (0, 0, 0)


def test_the_profile_is_scipys_survival_function() -> None:
    scores = np.concatenate(three_tasks()).round()
    thresholds = np.linspace(-5, 8, 27)  # the scores themselves included
    expected = stats.ecdf(scores).sf.evaluate(thresholds)
    np.testing.assert_allclose(performance_profile(scores, thresholds), expected)
    np.testing.assert_array_equal(
        performance_profile(np.array([1, 2, 2, 3]), np.array([2])), [0.25]
    )


def test_the_band_of_a_profile_is_the_interval_of_each_share() -> None:
    tasks, thresholds = three_tasks(), np.linspace(-5, 8, 9)
    low, high = profile_band(tasks, thresholds)
    for i, threshold in enumerate(thresholds):
        _, *interval = stratified_bootstrap(tasks, lambda x, t=threshold: np.mean(x > t))
        np.testing.assert_allclose([low[i], high[i]], interval)


@pytest.mark.parametrize(
    ("x", "y", "rho", "p"),
    [
        ([1, 2, 3], [10, 20, 90], 1.0, 2 / 6),  # in order or in reverse, of 3! orders
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0, 2 / 24),
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8, 8 / 24),  # 1 and 3 orders with ρ ≥ 0.8, and as many below
        ([1, 1, 2], [5, 5, 6], 1.0, 2 / 6),  # ρ of the other orders is -1/2
    ],
)
def test_the_rank_correlation_of_few_points_is_exact(
    x: list[float], y: list[float], rho: float, p: float
) -> None:
    assert rank_correlation(np.array(x), np.array(y)) == pytest.approx((rho, p))


def test_the_rank_correlation_is_scipys() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, 15))
    assert rank_correlation(x, y) == pytest.approx(tuple(stats.spearmanr(x, y)))
    x, y = rng.normal(size=(2, 6))
    exact = stats.permutation_test(
        (x,), lambda z: stats.spearmanr(z, y).statistic, permutation_type="pairings"
    )
    assert rank_correlation(x, y) == pytest.approx((exact.statistic, exact.pvalue))


@pytest.mark.parametrize(("x", "y"), [([], []), ([1, 2], [2, 3]), ([1, 1, 1], [1, 2, 3])])
def test_a_rank_correlation_that_is_not_defined_is_nan(x: list[float], y: list[float]) -> None:
    for pair in ((x, y), (y, x)):
        assert np.isnan(rank_correlation(*map(np.array, pair))).all()


GOOD, EMPTY, NAN = np.arange(4.0), np.array([]), np.array([1.0, np.nan, 2.0])


@pytest.mark.parametrize("bad", [EMPTY, NAN, np.array([1.0, np.inf])])
@pytest.mark.parametrize(
    "call",
    [
        interquartile_mean,
        lambda bad: stratified_bootstrap([GOOD, bad], np.mean),
        lambda bad: probability_of_improvement([GOOD, bad], [GOOD, GOOD]),
        lambda bad: probability_of_improvement([GOOD, GOOD], [GOOD, bad]),
        lambda bad: performance_profile(bad, GOOD),
        lambda bad: performance_profile(GOOD, bad),
        lambda bad: profile_band([GOOD, bad], GOOD),
        lambda bad: profile_band([GOOD], bad),
        lambda bad: welch_interval(bad, GOOD),
        lambda bad: welch_interval(GOOD, bad),
    ],
)
def test_bad_scores_are_refused(call: Callable[[np.ndarray], object], bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"^(there is no|a) (score|threshold)[^.]*\.$"):
        call(bad)


def test_bad_shapes_are_refused() -> None:
    for call in (
        lambda: stratified_bootstrap([], np.mean),
        lambda: profile_band([], GOOD),
        lambda: probability_of_improvement([], []),
    ):
        with pytest.raises(ValueError, match="there is no task"):
            call()
    with pytest.raises(ValueError, match="2 tasks cannot be compared with 1"):
        probability_of_improvement([GOOD, GOOD], [GOOD])
    with pytest.raises(ValueError, match="4 values cannot be paired with 0"):
        rank_correlation(GOOD, EMPTY)
    with pytest.raises(ValueError, match="a value is not finite"):
        rank_correlation(NAN, np.arange(3))
    with pytest.raises(ValueError, match="draws must be at least 1"):
        stratified_bootstrap([GOOD], np.mean, draws=0)


def test_welch_interval() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(1.0, 1.0, 5), rng.normal(0.0, 3.0, 8)
    difference, low, high = welch_interval(a, b)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert difference == pytest.approx(a.mean() - b.mean())
    assert (low, high) == pytest.approx((expected.low, expected.high))
    assert welch_interval(a[:1], b)[1:] == (-np.inf, np.inf)
    assert welch_interval(np.ones(3), np.zeros(3)) == (1, 1, 1)
    _, low, high = welch_interval(np.ones(3), b)  # equal scores on one side
    half = stats.t.ppf(0.975, 7) * b.std(ddof=1) / 8**0.5
    assert (low, high) == pytest.approx((1 - b.mean() - half, 1 - b.mean() + half))
