"""Facts of KLT25's Table 1 on points of the default configuration's own sweeps: how many samples are needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dprepro.analysis.needed import Needed, needed

Run = Callable[..., tuple[list[Any], list[np.ndarray]]]


def samples(run: Run, job: str) -> Needed:
    """Return the samples that a job needs for half of the error of its start."""
    records, values = run(f"klt25_samples/{job}", lambda point: True)
    start = records[0]["optimum"]["goldstein_stationarity_at_zero"]
    return needed([record["dataset"]["n"] for record in records], values, 0.5 * start)


def exponent_in_d(run: Run, name: str, series: str) -> float:
    """Return how the samples of a method grow from 4 to 16 dimensions."""
    few, many = (samples(run, f"{name}.{series}-{d}.practical").samples.mean for d in (4, 16))
    return math.log(many / few) / math.log(4.0)


def mean(run: Run, job: str, n: int, replicates: int) -> float:
    """Return the mean error at one n over that of the start."""
    (record,), (value,) = run(f"klt25_samples/{job}", lambda point: point["value"] == n, replicates)
    return float(value.mean()) / record["optimum"]["goldstein_stationarity_at_zero"]


def test_with_equal_periods_samples_grow_with_the_dimension_as_the_bounds_do(run: Run) -> None:
    """Seeds are fixed; windows are three standard errors (0.04, 0.06 and 0.07) to each side of 1, 1.5 and 0.5."""
    slopes = {name: exponent_in_d(run, name, "equal") for name in ("first-order", "zhang")}
    assert 0.88 <= slopes["first-order"] <= 1.12
    assert 1.32 <= slopes["zhang"] <= 1.68
    assert 0.29 <= slopes["zhang"] - slopes["first-order"] <= 0.71


def test_with_own_best_periods_a_single_pass_gains_more_than_the_root_of_the_dimension(run: Run) -> None:
    """From 4 to 16 dimensions the exponents are 0.56 and 1.47, the bounds' 1 and 1.5."""
    slopes = {name: exponent_in_d(run, name, "own") for name in ("first-order-own", "zhang-own")}
    assert 0.35 <= slopes["first-order-own"] <= 0.75
    assert 1.3 <= slopes["zhang-own"] <= 1.65
    assert slopes["zhang-own"] - slopes["first-order-own"] >= 0.65


def test_in_32_dimensions_many_passes_need_a_tenth_of_one_and_one_a_tenth_of_zhang(run: Run) -> None:
    """Each mean is on its side of the target at numbers of samples that are ten times apart."""
    assert mean(run, "multi-pass.own-32.practical", 1440, 2) < 0.5
    assert mean(run, "first-order-own.own-32.practical", 14400, 8) > 0.5
    assert mean(run, "first-order-own.own-32.practical", 28800, 8) < 0.5
    assert mean(run, "zhang-own-32.own-32.practical", 302400, 2) > 0.5


def test_printed_noise_needs_more_than_twice_the_samples_of_accounted_noise(run: Run) -> None:
    """The noise itself is 2.9 times as large."""
    ratio = samples(run, "published.equal-8.published").over(samples(run, "first-order.equal-8.practical"))
    assert 2.3 <= ratio.low <= ratio.mean <= 3.2


@pytest.mark.parametrize(
    ("jobs", "factor", "exponent"),
    [
        (("first-order-pinned.epsilon-4", "first-order-pinned.epsilon-1"), 4.0, 0.91),
        (("first-order-pinned-beta-1.beta-1", "first-order-pinned-beta-05.beta-05"), 2.0, 2.0),
    ],
)
def test_samples_of_a_single_pass_grow_with_privacy_and_accuracy_as_the_bound(
    jobs: tuple[str, str], factor: float, exponent: float, run: Run
) -> None:
    """With one period for all values; the noise that is certified grows as epsilon^-0.91 from 4 to 1.

    The accuracies are the smaller ones. From beta = 0.2 to 0.1 the exponent is 2.27.
    """
    few, many = (samples(run, f"{job}.practical").samples.mean for job in jobs)
    assert math.log(many / few) / math.log(factor) == pytest.approx(exponent, abs=0.15)


@pytest.mark.parametrize("epsilon", [1, 4])
def test_with_own_periods_on_both_sides_many_passes_need_a_ninth_and_one_period_for_all_costs_twice(
    epsilon: int, run: Run
) -> None:
    """At d = 8 and windows of 32; measured are 1/15 and 1/13, and 2.6 and 3.1 times."""
    single, many, pinned = (
        samples(run, f"{entry}.epsilon-{epsilon}.practical")
        for entry in ("first-order-own-period", "multi-pass-shorter", "first-order-pinned")
    )
    assert many.over(single).high < 1 / 9
    assert pinned.over(single).low > 2.0


def test_values_of_the_loss_take_2d_times_the_calls_and_somewhat_more_samples(run: Run) -> None:
    ratio = samples(run, "zero-order.equal-4.practical").over(samples(run, "first-order.equal-4.practical"))
    assert 0.9 <= ratio.mean <= 1.8
    (one, *_), _ = run("klt25_samples/zero-order.equal-4.practical", lambda point: point["value"] == 7560, 2)
    (other, *_), _ = run("klt25_samples/first-order.equal-4.practical", lambda point: point["value"] == 4536, 2)
    calls = one["function_evaluations"] / one["samples"], other["gradient_evaluations"] / other["samples"]
    # A gradient along a frame takes 2 d values in place of one gradient, a difference 4 d in place of two.
    assert calls[0] == pytest.approx(2 * 4 * calls[1], rel=0.01)
