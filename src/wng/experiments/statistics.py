"""Statistics over seeds and tasks.

Scores of several tasks are a list with one array of seeds per task. Intervals are 95% percentile
intervals of a bootstrap with a fixed random seed. The bootstraps are not scipy's, which refuses
tasks with a single seed. Functions raise a ValueError for missing scores and for scores that are
not finite: the caller decides what a run that broke down is worth.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

BINS = 100  # points per curve
DRAWS = 2000  # resamples per interval
EXACT = 7  # up to this many points, p-values are over all permutations (5040)


def on_grid(
    curves: list[tuple[np.ndarray, np.ndarray]], bins: int = BINS
) -> tuple[np.ndarray, np.ndarray]:
    """Average each run's returns in shared bins of steps, up to the end of the shortest run.

    A bin without an episode repeats the previous one; bins before the first episode are dropped.
    Each curve is a pair of steps and returns. Returns the upper edges of the bins, and the averages
    [runs, bins].
    """
    end = min(steps[-1] for steps, _ in curves)
    number = min(bins, max(1, min(len(steps) for steps, _ in curves)))
    edges = np.linspace(0, end, number + 1)
    values = np.full((len(curves), number), np.nan)
    for row, (steps, returns) in zip(values, curves, strict=True):
        known = np.isfinite(returns) & (steps <= end)
        place = np.clip(np.digitize(steps[known], edges[1:-1], right=True), 0, number - 1)
        for i in range(number):
            inside = returns[known][place == i]
            row[i] = inside.mean() if len(inside) else (row[i - 1] if i else np.nan)
    known_to_all = np.isfinite(values).all(axis=0)
    return edges[1:][known_to_all], values[:, known_to_all]


def bootstrap_band(values: np.ndarray, draws: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95% interval of the mean over runs (axis 0), by resampling runs."""
    return _interval(_resamples(np.random.default_rng(0), values, draws).mean(axis=1))


def interquartile_mean(scores: np.ndarray) -> float:
    """Return the mean of the middle half of all scores, of any shape."""
    flat = _checked(scores).ravel()
    cut = len(flat) // 4  # at either end
    # As scipy's trim_mean, whose checks take ten times as long: a bootstrap calls this thousands
    # of times.
    ordered = np.partition(flat, (cut, len(flat) - cut - 1))
    return float(ordered[cut : len(flat) - cut].mean())


def stratified_bootstrap(
    scores_by_task: Sequence[np.ndarray],
    statistic: Callable[[np.ndarray], Any],
    draws: int = DRAWS,
) -> tuple[Any, Any, Any]:
    """Return a statistic and its interval, resampling the seeds within each task.

    The statistic is a function of the scores of all tasks in one flat array, in which a task with
    more seeds weighs more.
    """
    tasks, rng = _checked_tasks(scores_by_task), np.random.default_rng(0)
    resamples = np.hstack([_resamples(rng, scores, draws) for scores in tasks])
    found = np.array([statistic(scores) for scores in resamples])
    return (statistic(np.concatenate(tasks)), *_interval(found))


def probability_of_improvement(
    a: Sequence[np.ndarray], b: Sequence[np.ndarray], draws: int = DRAWS
) -> tuple[float, float, float]:
    """Return the probability that a run of `a` beats one of `b` on the same task, and its interval.

    The probability is P(A > B) + P(A = B)/2, averaged over tasks with equal weights.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} tasks cannot be compared with {len(b)}: give the same tasks.")
    rng = np.random.default_rng(0)
    points, found = [], []
    for x, y in zip(_checked_tasks(a), _checked_tasks(b), strict=True):
        wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
        rows, columns = (_resamples(rng, np.arange(len(z)), draws) for z in (x, y))
        points.append(wins.mean())
        found.append(wins[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2)))
    return (float(np.mean(points)), *_interval(np.mean(found, axis=0)))


def performance_profile(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the fraction of the scores, of any shape, that exceed each threshold."""
    return (_checked(scores).reshape(-1, 1) > _checked(thresholds, "threshold")).mean(axis=0)


def profile_band(
    scores_by_task: Sequence[np.ndarray], thresholds: np.ndarray, draws: int = DRAWS
) -> tuple[np.ndarray, np.ndarray]:
    """Return the interval of the performance profile, resampled as in `stratified_bootstrap`."""
    profile = partial(performance_profile, thresholds=thresholds)
    return stratified_bootstrap(scores_by_task, profile, draws)[1:]


def welch_interval(a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """Return the mean of `a` minus the mean of `b`, and its 95% interval by Welch's t.

    Verdicts use this interval because a bootstrap over three or five seeds is too narrow: with
    equal means it excludes 0 in one case out of five or nine. The interval is infinite with fewer
    than two runs on a side.
    """
    from scipy import stats

    a, b = _checked(a), _checked(b)
    difference = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return difference, -np.inf, np.inf
    if np.ptp(a) == np.ptp(b) == 0:
        return difference, difference, difference
    with warnings.catch_warnings():  # equal scores on one side are fine
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    return difference, float(low), float(high)


def rank_correlation(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return Spearman's ρ and its two-sided p-value, which is exact for up to seven points.

    Both are NaN with fewer than three points, or if all of `x` or all of `y` are equal.
    """
    x, y = np.asarray(x, float).ravel(), np.asarray(y, float).ravel()
    if len(x) != len(y):
        raise ValueError(f"{len(x)} values cannot be paired with {len(y)}: give equally many.")
    if len(x) < 3 or any(np.ptp(_checked(values, "value")) == 0 for values in (x, y)):
        return np.nan, np.nan
    from scipy import stats

    rho, p = stats.spearmanr(x, y)
    if len(x) <= EXACT:
        # A permutation changes ρ only through this sum, which is exact: mean ranks are multiples
        # of a half.
        ranks = stats.rankdata(y) - (len(y) + 1) / 2
        p = stats.permutation_test(
            (stats.rankdata(x),),
            lambda order, axis: np.abs(order @ ranks),
            permutation_type="pairings",
            alternative="greater",
            vectorized=True,
        ).pvalue
    return float(rho), float(p)


def _checked(values: np.ndarray, name: str = "score") -> np.ndarray:
    array = np.asarray(values, float)
    if not array.size:
        raise ValueError(f"there is no {name}: give at least one.")
    if not np.isfinite(array).all():
        raise ValueError(f"a {name} is not finite: replace it or leave it out.")
    return array


def _checked_tasks(scores_by_task: Sequence[np.ndarray]) -> list[np.ndarray]:
    if not len(scores_by_task):
        raise ValueError("there is no task: give the scores of at least one task.")
    return [_checked(scores).ravel() for scores in scores_by_task]


def _resamples(rng: np.random.Generator, values: np.ndarray, draws: int) -> np.ndarray:
    """Resample the values with replacement, in each of `draws` rows."""
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}.")
    return values[rng.integers(len(values), size=(draws, len(values)))]


def _interval(found: np.ndarray) -> tuple[Any, Any]:
    low, high = np.percentile(found, [2.5, 97.5], axis=0)
    return low, high
