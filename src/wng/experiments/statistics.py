"""Statistics over seeds and tasks.

Scores of several tasks are a list with one array of seeds for each task. Intervals are 95%
percentile intervals of a bootstrap that is the same at every call. A score that is not finite is
refused: the caller decides what a run that broke down is worth.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

import numpy as np

BINS = 100  # points of a curve
DRAWS = 2000  # resamples of an interval
EXACT = 7  # points up to which all permutations are tried: 5040 of them


def on_grid(
    curves: list[tuple[np.ndarray, np.ndarray]], bins: int = BINS
) -> tuple[np.ndarray, np.ndarray]:
    """Each run's return averaged in the same bins of steps, up to where the shortest run ends.

    A bin without an episode has the value of the one before it; bins before the first are left out.
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
    """95% interval of the mean over runs, by resampling runs."""
    pick = np.random.default_rng(0).integers(len(values), size=(draws, len(values)))
    means = values[pick].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return low, high


def interquartile_mean(scores: np.ndarray) -> float:
    """Mean of the middle half of all scores, whatever their shape.

    A quarter of them, rounded down, is cut at either end. ValueError if there are none, or one is
    not finite.
    """
    ordered = np.sort(_checked(scores).ravel())
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def stratified_bootstrap(
    scores_by_task: Sequence[np.ndarray],
    statistic: Callable[[np.ndarray], float | np.floating],
    draws: int = DRAWS,
) -> tuple[float, float, float]:
    """The statistic and its interval, from resampling the seeds within each task.

    ValueError if there is no task, a task has no score, or a score is not finite.

    Args:
      scores_by_task: the seeds of each task; tasks may differ in their number.
      statistic: takes the scores of all tasks in one flat array, in which a task with more seeds
        weighs more.
      draws: number of resamples.
    """
    tasks = _checked_tasks(scores_by_task)
    found = [statistic(scores) for scores in _resamples(tasks, draws)]
    return (float(statistic(np.concatenate(tasks))), *_interval(np.array(found)))


def probability_of_improvement(
    a: Sequence[np.ndarray], b: Sequence[np.ndarray], draws: int = DRAWS
) -> tuple[float, float, float]:
    """Chance that a run of `a` beats one of `b` on the same task, and its interval.

    P(A > B) + P(A = B)/2, averaged over the tasks, each with the same weight. ValueError if `a` and
    `b` differ in their number of tasks, a task has no score, or a score is not finite.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} tasks cannot be compared with {len(b)}: give the same tasks.")
    rng = _rng()
    points, found = [], []
    for x, y in zip(_checked_tasks(a), _checked_tasks(b), strict=True):
        wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
        rows, columns = _picks(rng, draws, len(x)), _picks(rng, draws, len(y))
        points.append(wins.mean())
        found.append([wins[np.ix_(i, j)].mean() for i, j in zip(rows, columns, strict=True)])
    return (float(np.mean(points)), *_interval(np.mean(found, axis=0)))


def performance_profile(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Share of the scores, whatever their shape, that are above each threshold.

    ValueError if there are no scores or no thresholds, or one is not finite.
    """
    ordered = np.sort(_checked(scores).ravel())
    above = len(ordered) - np.searchsorted(ordered, _checked(thresholds, "threshold"), side="right")
    return above / len(ordered)


def profile_band(
    scores_by_task: Sequence[np.ndarray], thresholds: np.ndarray, draws: int = DRAWS
) -> tuple[np.ndarray, np.ndarray]:
    """Interval of the performance profile at each threshold, as in `stratified_bootstrap`.

    ValueError for what either of the two refuses.
    """
    tasks = _checked_tasks(scores_by_task)
    found = [performance_profile(scores, thresholds) for scores in _resamples(tasks, draws)]
    low, high = np.percentile(found, [2.5, 97.5], axis=0)
    return low, high


def difference_interval(
    a: np.ndarray, b: np.ndarray, draws: int = DRAWS
) -> tuple[float, float, float]:
    """Mean of `a` minus mean of `b`, and its interval, from resampling both on their own.

    ValueError if either has no score, or a score is not finite.
    """
    x, y = _checked_tasks([a, b])
    rng = _rng()
    means = [scores[_picks(rng, draws, len(scores))].mean(axis=1) for scores in (x, y)]
    return (float(x.mean() - y.mean()), *_interval(means[0] - means[1]))


def welch_interval(a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """Mean of `a` minus mean of `b`, and its 95% interval by Welch's t, for verdicts.

    A bootstrap over three or five seeds is too narrow: with equal means it leaves out 0 in one
    case of five or of nine. Infinite with fewer than two runs on a side.
    """
    from scipy import stats

    a, b = _checked(a), _checked(b)
    difference = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return difference, -np.inf, np.inf
    variances = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    total = sum(variances)
    if total == 0:
        return difference, difference, difference
    spread = sum(v**2 / (len(x) - 1) for v, x in zip(variances, (a, b), strict=True))
    half = float(stats.t.ppf(0.975, total**2 / spread) * np.sqrt(total))
    return difference, difference - half, difference + half


def rank_correlation(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Spearman's ρ and its two-sided p-value, which is exact up to seven points.

    Both are NaN with fewer than three points, none included, or if all of `x` or `y` are equal.
    ValueError if the lengths differ or a value is not finite.
    """
    x, y = np.asarray(x, float).ravel(), np.asarray(y, float).ravel()
    if len(x) != len(y):
        raise ValueError(f"{len(x)} values cannot be paired with {len(y)}: give as many of both.")
    if len(x) < 3:
        return np.nan, np.nan
    if np.ptp(_checked(x, "value")) == 0 or np.ptp(_checked(y, "value")) == 0:
        return np.nan, np.nan
    from scipy import stats  # takes a second, which `wng plot` need not wait

    rho, p = stats.spearmanr(x, y)
    if len(x) <= EXACT:
        # ρ is a rising function of this sum, and all that a permutation changes. Mean ranks are
        # multiples of a half: the sums are exact, so that ties with the observed one count.
        rank_x, rank_y = (stats.rankdata(v) - (len(v) + 1) / 2 for v in (x, y))
        sums = np.array(list(permutations(rank_y))) @ rank_x
        p = np.mean(np.abs(sums) >= abs(rank_x @ rank_y))
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
        raise ValueError("there is no task: give the scores of at least one.")
    return [_checked(scores).ravel() for scores in scores_by_task]


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _picks(rng: np.random.Generator, draws: int, number: int) -> np.ndarray:
    """Indices of `number` runs drawn with replacement, in each of `draws` rows."""
    if draws < 1:
        raise ValueError(f"{draws} resamples give no interval: ask for at least one.")
    return rng.integers(number, size=(draws, number))


def _resamples(tasks: list[np.ndarray], draws: int) -> Iterator[np.ndarray]:
    """All tasks in one flat array, the seeds of each resampled."""
    rng = _rng()
    picks = [_picks(rng, draws, len(scores)) for scores in tasks]
    for rows in zip(*picks, strict=True):
        yield np.concatenate([s[row] for s, row in zip(tasks, rows, strict=True)])


def _interval(found: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)
