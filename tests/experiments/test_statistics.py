import numpy as np
import pytest

from wng.experiments.statistics import bootstrap_band, on_grid


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
