from __future__ import annotations

import numpy as np
import pytest

from dprepro.analysis.intervals import Interval, differ
from dprepro.analysis.rates import count_verdict, exact_exponent, exponent, rate_verdict

X = [1e3, 2e3, 4e3, 8e3]


def test_exponent_of_a_power_law_is_found_and_its_interval_covers_it():
    """Over 200 draws the 95 % interval covers the truth at least 170 times (false alarm below 1e-6)."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        samples = [x**-1.5 * rng.exponential(size=64) for x in X]
        found = exponent(X, samples)
        assert found.low < found.mean < found.high
        covered += found.low <= -1.5 <= found.high
    assert covered >= 170


def test_the_interval_of_few_replicates_covers_the_exponent_as_often_as_it_says():
    """Of 400 draws at 95 % fewer than 357 would occur with a chance below 1e-6 (binomial)."""
    rng = np.random.default_rng(2)
    found = [exponent(X[:3], [x**-0.5 * (1.0 + 0.3 * rng.standard_normal(4)) for x in X[:3]]) for _ in range(400)]
    assert sum(each.low <= -0.5 <= each.high for each in found) >= 357


def test_exponent_without_noise_is_exact():
    found = exponent(X, [np.full(3, 2.0 * x**0.7) for x in X])
    assert (found.mean, found.low, found.high) == pytest.approx((0.7, 0.7, 0.7))
    assert exact_exponent(X, [5 * x**2 for x in X]) == pytest.approx(2.0)


def test_points_without_usable_values_are_left_out_and_too_few_give_nan():
    samples = [np.full(3, x**-1.0) for x in X]
    samples[1] = np.array([np.nan, np.inf, np.nan])
    assert exponent(X, samples).mean == pytest.approx(-1.0)
    assert np.isnan(exponent(X[:2], samples[:2]).mean)
    assert np.isnan(exact_exponent([1.0, 2.0], [np.nan, 3.0]))


@pytest.mark.parametrize(
    ("measured", "theory", "printed", "verdict"),
    [
        ((-2.0, -2.1, -1.9), -2.0, np.nan, "agrees"),
        ((-1.7, -1.75, -1.65), -2.0, np.nan, "not reached"),
        ((-1.7, -1.75, -1.65), -2.0, -1.85, "agrees"),
        ((-2.6, -2.7, -2.5), -2.0, -1.85, "faster than the bound"),
        ((-2.6, -2.7, -2.5), np.nan, np.nan, "no exponent to compare"),
        ((np.nan, np.nan, np.nan), -2.0, np.nan, "not measurable"),
        ((-0.9, -2.5, 1.4), -2.0, np.nan, "too wide to tell"),
        ((2.2, 2.1, 2.3), 1.0, 2.3, "not reached"),
    ],
)
def test_rate_verdicts(measured, theory, printed, verdict):
    assert rate_verdict(Interval(*measured), theory, printed) == verdict


def test_count_verdicts():
    assert count_verdict(1.16, 1.0) == "agrees"
    assert count_verdict(1.5, 1.0) == "more than stated"
    assert count_verdict(0.5, 1.0) == "fewer than stated"
    assert count_verdict(2.6, 3.0, 2.63) == "agrees"
    assert count_verdict(0.5, float("nan")) == "no exponent to compare"


def test_two_means_differ_when_welchs_interval_says_so():
    rng = np.random.default_rng(0)
    one = rng.normal(size=40)
    assert not differ(one, one + 0.1)
    assert differ(one, one + 2.0)
    assert differ(np.ones(3), np.full(3, 2.0))
    assert not differ(np.ones(3), np.ones(3))
    from scipy.stats import ttest_ind

    for shift in np.linspace(0.0, 1.5, 16):
        other = 2.0 * rng.normal(size=25) + shift
        assert differ(one, other) == (ttest_ind(one, other, equal_var=False).pvalue < 0.05)


def test_the_exponent_of_a_family_is_that_of_its_worst_member_in_every_resample():
    rng = np.random.default_rng(0)
    x = [1.0, 10.0, 100.0]
    steep = [rng.normal(1.0 / at, 0.1 / at, size=40) for at in x]
    flat = [rng.normal(0.1, 0.01, size=40) for _ in x]
    found = exponent(x, [[a, b] for a, b in zip(steep, flat, strict=True)])
    worst = [max(a.mean(), b.mean()) for a, b in zip(steep, flat, strict=True)]
    assert found.mean == pytest.approx(np.polyfit(np.log(x), np.log(worst), 1)[0])
    assert found.low < found.mean < found.high
    # At x = 10 the members are level: the larger of two resampled means is above either in the mean.
    alone = [exponent(x, [steep[0], member, flat[2]]).high for member in (steep[1], flat[1])]
    assert found.high >= min(alone)
    assert exponent(x, [[values] for values in steep]) == exponent(x, steep)


def test_a_point_with_a_value_that_is_not_finite_is_left_out_as_a_whole():
    good = [np.array([4.0, 4.0]), np.array([2.0, 2.0]), np.array([1.0, 1.0])]
    bad = np.array([4.0, np.nan])
    assert exponent([1.0, 2.0, 4.0], good).mean == pytest.approx(-1.0)
    assert exponent([1.0, 2.0, 4.0, 8.0], [*good, bad]).mean == pytest.approx(-1.0)
    assert exponent([1.0, 2.0, 4.0, 8.0], [*([each] for each in good), [good[0], bad]]).mean == pytest.approx(-1.0)
    assert np.isnan(exponent([1.0, 2.0], [good[0], bad]).mean)


@pytest.mark.parametrize(
    ("theory", "measured", "verdict"),
    [
        (-2.0, -1.86, "agrees"),
        (-2.0, -1.84, "not reached"),
        (-1.0 / 3.0, -0.24, "agrees"),
        (-1.0 / 3.0, -0.22, "not reached"),
        (-1.0 / 3.0, -0.45, "faster than the bound"),
        (0.2, 0.25, "agrees"),
        (0.2, 0.27, "not reached"),
        (0.0, 0.14, "agrees"),
        (0.0, 0.16, "not reached"),
    ],
)
def test_a_small_exponent_leaves_less_room_for_agreement(theory: float, measured: float, verdict: str) -> None:
    assert rate_verdict(Interval(measured, measured, measured), theory) == verdict
