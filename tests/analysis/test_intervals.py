from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dprepro.analysis.intervals import curves, differ, mean_error, mean_interval, worst_members


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


def test_curves_keep_the_order_and_have_no_mean_where_a_replicate_is_not_finite():
    frame = pd.DataFrame({"checkpoint": [3, 2, 1, 1, 1, 2, 3], "gap": [1.0, 5.0, 1.0, 3.0, np.nan, 7.0, 2.0]})
    found = curves(frame, ["checkpoint"], "gap")
    assert list(found["checkpoint"]) == [2, 3]
    assert list(found["mean"]) == [6.0, 1.5]
    nothing = curves(frame.assign(gap=np.inf), ["checkpoint"], "gap")
    assert list(nothing.columns) == ["checkpoint", "mean", "low", "high"]
    assert nothing.empty


@pytest.mark.parametrize("lost", [np.nan, np.inf, -np.inf])
def test_a_mean_with_a_value_that_is_not_finite_is_never_that_of_the_others(lost):
    values = np.array([1.0, 2.0, lost])
    assert mean_error(values) == mean_error(pd.Series(values)) == np.inf
    found = mean_interval(values)
    assert (found.mean, found.high) == (np.inf, np.inf)
    assert np.isnan(found.low)
    assert differ(values, np.array([1.0, 2.0, 3.0]))
    assert not differ(values, values)


def test_the_member_with_a_run_that_is_not_finite_is_the_worst_and_a_refused_one_is_none():
    point = {"problem": "p", "entry": "e", "variant": "v", "axis": "n", "axis_value": 1.0}
    rows = [
        {**point, "member": member, "value": value, "refused": refused}
        for member, values, refused in (("a", (9.0, 9.0), ""), ("b", (1.0, np.nan), ""), ("c", (np.nan,) * 2, "no"))
        for value in values
    ]
    assert set(worst_members(pd.DataFrame(rows))["member"]) == {"b"}
    assert set(worst_members(pd.DataFrame([row for row in rows if row["member"] != "b"]))["member"]) == {"a"}
