"""Two results differ where their intervals say so, and nowhere else."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprepro.analysis.compare import (
    BEYOND,
    IDENTICAL,
    ONLY_A,
    ONLY_B,
    ROUNDING,
    UNJUDGED,
    WITHIN,
    Value,
    compare,
    exact,
    judge,
    stretch,
)
from dprepro.analysis.intervals import mean_interval

TOLERANCE = 1e-6
SWAPPED = {ONLY_A: ONLY_B, ONLY_B: ONLY_A}

numbers = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 1.0, math.nan, math.inf])
widths = st.floats(0.0, 1e3) | st.just(math.nan)


@st.composite
def values(draw: st.DrawFn) -> Value:
    mean = draw(numbers)
    return Value(mean, mean - draw(widths), mean + draw(widths), draw(st.sampled_from([math.nan, 2.0, 8.0, 100.0])))


tables = st.dictionaries(st.integers(0, 20), values(), max_size=15)


@settings(deadline=None)
@given(tables, tables, st.booleans())
def test_the_order_of_the_results_does_not_matter(a: dict[int, Value], b: dict[int, Value], each: bool) -> None:
    forth, back = compare(a, b, TOLERANCE, each), compare(b, a, TOLERANCE, each)
    swapped = {row.key: (SWAPPED.get(row.outcome, row.outcome), row.alone, row.b, row.a) for row in back.rows}
    assert {row.key: (row.outcome, row.alone, row.a, row.b) for row in forth.rows} == swapped
    assert forth.estimates == back.estimates


@settings(deadline=None)
@given(tables)
def test_a_result_is_identical_to_itself(a: dict[int, Value]) -> None:
    found = compare(a, dict(a), TOLERANCE)
    assert {row.outcome for row in found.rows} <= {IDENTICAL}
    assert len(found.rows) == len(a)
    assert found.alone == 0


@settings(deadline=None)
@given(tables, st.randoms())
def test_the_order_of_rows_does_not_matter(a: dict[int, Value], random: object) -> None:
    keys = list(a)
    random.shuffle(keys)  # type: ignore[attr-defined]
    b = {key: a[key] for key in keys}
    assert sorted(compare(a, b, TOLERANCE).counts().items()) == sorted(compare(a, a, TOLERANCE).counts().items())


@settings(deadline=None)
@given(tables, st.integers(0, 20), st.floats(-1e3, 1e3), st.floats(1e-3, 10.0))
def test_a_planted_difference_is_found_among_all_others(
    a: dict[int, Value], key: int, mean: float, half: float
) -> None:
    a = {**a, key: Value(mean, mean - half, mean + half, 16.0)}
    moved = mean + 20.0 * half
    b = {**a, key: Value(moved, moved - half, moved + half, 16.0)}
    found = compare(a, b, TOLERANCE)
    assert [row.key for row in found.having(BEYOND)] == [key]


@settings(deadline=None)
@given(tables, st.integers(0, 20))
def test_a_row_that_one_lacks_is_named(a: dict[int, Value], key: int) -> None:
    b = {name: value for name, value in a.items() if name != key}
    found = compare(a, b, TOLERANCE)
    assert [row.key for row in found.having(ONLY_A)] == ([key] if key in a else [])
    assert found.having(ONLY_B) == []


@pytest.mark.parametrize(
    ("a", "b", "outcome"),
    [
        (Value(1.0, 0.9, 1.1), Value(1.13, 1.03, 1.23), WITHIN),
        (Value(1.0, 0.9, 1.1), Value(1.15, 1.05, 1.25), BEYOND),
        (Value(1.0, 0.9, 1.1), exact(1.05), WITHIN),
        (Value(1.0, 0.9, 1.1), exact(1.15), BEYOND),
        (exact(1.0), exact(1.0 + 1e-9), ROUNDING),
        (exact(1.0), exact(1.0 + 1e-3), BEYOND),
        (exact(0.0), exact(1e-15), ROUNDING),
        (exact(math.nan), exact(math.nan), IDENTICAL),
        (exact(math.inf), exact(math.inf), IDENTICAL),
        (exact(math.inf), exact(3.0), BEYOND),
        (exact(math.nan), exact(3.0), BEYOND),
        (Value(1.0), Value(2.0), UNJUDGED),
        (Value(1.0), Value(1.0), IDENTICAL),
        (Value(1.0), Value(2.0, 1.9, 2.1), UNJUDGED),
    ],
)
def test_pairs_are_judged_by_the_rule(a: Value, b: Value, outcome: str) -> None:
    assert judge(a, b, TOLERANCE) == judge(b, a, TOLERANCE) == outcome


def test_only_the_sides_that_face_each_other_count() -> None:
    low, high = Value(1.0, -5.0, 1.1), Value(2.0, 1.9, 8.0)
    assert judge(low, high, TOLERANCE) == BEYOND
    assert judge(Value(1.0, 0.9, 7.0), Value(2.0, -4.0, 2.1), TOLERANCE) == WITHIN


def test_a_wider_share_of_the_chance_never_finds_less() -> None:
    for replicates in (math.nan, 2.0, 8.0, 1000.0):
        factors = [stretch(share, replicates) for share in (1.0, 0.1, 1e-3, 1e-6)]
        assert factors == sorted(factors)
        assert factors[0] == 1.0
    assert stretch(1e-3, 1e9) == pytest.approx(stretch(1e-3, math.nan), rel=1e-6)
    assert stretch(1e-3, 4.0) > 3 * stretch(1e-3, math.nan), "few replicates have long tails"


def estimates(rng: np.random.Generator, rows: int, replicates: int) -> dict[int, Value]:
    """Return means of normal numbers with mean zero, each with Student's interval."""
    found = {}
    for row in range(rows):
        interval = mean_interval(rng.standard_normal(replicates))
        found[row] = Value(interval.mean, interval.low, interval.high, float(replicates))
    return found


@pytest.mark.parametrize("replicates", [4, 16])
def test_of_independent_runs_one_in_twenty_differs_alone_and_none_among_all(replicates: int) -> None:
    """False alarms: the count of 2000 is within 5 standard deviations of at most 100; a family alarm has 5 percent."""
    rng = np.random.default_rng(7)
    found = compare(estimates(rng, 2000, replicates), estimates(rng, 2000, replicates), TOLERANCE)
    assert found.estimates == 2000
    assert 20 < found.alone < 100 + 5 * math.sqrt(2000 * 0.05 * 0.95)
    assert found.having(BEYOND) == []


def test_chance_is_asked_about_estimates_only() -> None:
    found = compare({1: exact(1.0), 2: Value(1.0, 0.9, 1.1)}, {1: exact(2.0), 2: Value(1.0, 0.9, 1.1)}, TOLERANCE)
    assert (found.estimates, found.alone, len(found.having(BEYOND))) == (1, 0, 1)


def test_each_holds_every_pair_to_five_percent() -> None:
    rng = np.random.default_rng(7)
    a, b = estimates(rng, 500, 16), estimates(rng, 500, 16)
    found = compare(a, b, TOLERANCE, each=True)
    assert len(found.having(BEYOND)) == found.alone > 0
