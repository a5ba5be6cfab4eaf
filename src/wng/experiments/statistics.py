"""Statistics over seeds."""

import numpy as np

BINS = 100  # points of a curve


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
