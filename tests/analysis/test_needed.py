"""The samples that bring an error down to a target, their growth along an axis, and the tables that tell both."""

import numpy as np
import pytest

from dprepro.analysis.needed import difference, growth, needed

N = [100.0, 200.0, 400.0, 800.0]


def replicates(mean, spread=0.0, count=16, seed=0):
    drawn = np.random.default_rng(seed).standard_normal(count)
    return mean * (1.0 + spread * (drawn - drawn.mean()))


def power_law(n, at, exponent=-0.5, target=0.1, **kwargs):
    return [replicates(target * (each / at) ** exponent, seed=index, **kwargs) for index, each in enumerate(n)]


@pytest.mark.parametrize("at", [150.0, 200.0, 777.0])
def test_a_power_law_is_met_exactly_where_it_crosses_the_target(at):
    found = needed(N, power_law(N, at), 0.1)
    assert found.samples.mean == pytest.approx(at, rel=1e-12)
    assert found.samples.low == pytest.approx(at)
    assert found.samples.high == pytest.approx(at)


def test_the_order_of_the_points_does_not_matter():
    values = power_law(N, 300.0, spread=0.2)
    one, other = needed(N, values, 0.1), needed(N[::-1], values[::-1], 0.1)
    assert one.samples == other.samples


def test_the_last_crossing_counts():
    """An error that falls below the target, rises again and falls for good needs the later n."""
    means = [0.05, 0.2, 0.2, 0.05]
    found = needed(N, [replicates(mean) for mean in means], 0.1)
    assert 400.0 < found.samples.mean < 800.0
    assert found.samples.mean == pytest.approx(400.0 * np.sqrt(2.0))


@pytest.mark.parametrize(("at", "side"), [(50.0, "fewer"), (2000.0, "more")])
def test_a_target_outside_the_points_is_not_extrapolated(at, side):
    found = needed(N, power_law(N, at), 0.1)
    assert found.outside == side
    assert np.isnan(found.samples.mean)
    assert np.isnan(found.draws).all()


def test_a_replicate_that_is_not_finite_is_never_averaged_away():
    values = power_law(N, 300.0)
    values[1] = np.append(values[1], np.nan)
    assert needed(N, values, 0.1).outside == "unknown"


@pytest.mark.parametrize(("count", "sizes"), [(32, N), (8, [200.0, 400.0]), (4, [200.0, 400.0])])
def test_the_interval_covers_the_true_number_as_often_as_it_says(count, sizes):
    """Of 400 repetitions at 95 % fewer than 357 would occur with a chance below 1e-6 (binomial).

    Without the allowance for few replicates, four of them at two n covered the truth in 82 %.
    """
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        values = [0.1 * (each / 300.0) ** -0.5 * (1.0 + 0.1 * rng.standard_normal(count)) for each in sizes]
        found = needed(sizes, values, 0.1).samples
        hits += found.low <= 300.0 <= found.high
    assert hits >= 357


def test_one_replicate_has_a_number_and_no_interval():
    found = needed(N, power_law(N, 300.0, count=1), 0.1)
    assert found.samples.mean == pytest.approx(300.0)
    assert np.isnan([found.samples.low, found.samples.high]).all()


def test_growth_is_the_exponent_of_the_samples_and_differences_have_intervals_of_their_own():
    x = [4.0, 8.0, 16.0]
    slow, fast = (
        [needed(N, power_law(N, 120.0 * (each / 4.0) ** power, spread=0.1), 0.1) for each in x] for power in (0.4, 1.2)
    )
    assert growth(x, slow).exponent.mean == pytest.approx(0.4)
    apart = difference(growth(x, fast), growth(x, slow))
    assert apart.mean == pytest.approx(0.8)
    assert apart.low < 0.8 < apart.high
    assert apart.high - apart.low < 0.4


def test_growth_is_unknown_where_one_number_is():
    x = [4.0, 8.0]
    found = [needed(N, power_law(N, at), 0.1) for at in (150.0, 5000.0)]
    assert np.isnan(growth(x, found).exponent.mean)


def test_a_ratio_is_that_of_the_numbers():
    one, other = (needed(N, power_law(N, at, spread=0.1), 0.1) for at in (600.0, 150.0))
    ratio = one.over(other)
    assert ratio.mean == pytest.approx(4.0)
    assert ratio.low < 4.0 < ratio.high
