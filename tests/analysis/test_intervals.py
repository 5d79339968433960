from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dprepro.analysis.intervals import curves, mean_interval


def test_interval_covers_the_mean_as_often_as_it_says():
    """2000 samples of 10 normals: coverage 0.95 +- 0.005; a false alarm at 5.4 sigma has probability below 1e-7."""
    rng = np.random.default_rng(0)
    hits = [interval.low <= 3.0 <= interval.high for interval in map(mean_interval, rng.normal(3, 2, size=(2000, 10)))]
    assert np.mean(hits) == pytest.approx(0.95, abs=5.4 * np.sqrt(0.95 * 0.05 / 2000))


def test_interval_agrees_with_scipy():
    from scipy import stats

    values = np.array([1.0, 2.0, 4.0, 8.0])
    expected = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    found = mean_interval(values)
    assert (found.low, found.high) == pytest.approx(expected)


def test_one_value_has_no_interval():
    assert np.isnan(mean_interval(np.array([1.0])).low)


def test_curves_leave_out_what_is_not_finite_and_keep_the_order():
    frame = pd.DataFrame({"checkpoint": [2, 1, 1, 1, 2], "gap": [5.0, 1.0, 3.0, np.nan, 7.0]})
    found = curves(frame, ["checkpoint"], "gap")
    assert list(found["checkpoint"]) == [1, 2]
    assert list(found["mean"]) == [2.0, 6.0]
