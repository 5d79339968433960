"""Poisson-sampled releases: the dominating pair, its discretisation, its place in accounting and the batches drawn."""

from __future__ import annotations

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dprepro.errors import LedgerMismatch, UserError
from dprepro.privacy import pld
from dprepro.privacy.accounting import account, gaussian_epsilon, probability_sampled
from dprepro.privacy.calibrate import smallest_scale
from dprepro.privacy.events import GaussianEvent, QueryPart, event_from_json, event_to_json
from dprepro.privacy.mechanisms import BLOCK_STEPS, GaussianMechanism, Ledger, PoissonBatch, Slots

REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE


def poisson(sigma, sensitivity, batch, population, count, label="inner"):
    return GaussianEvent(label, sigma, (QueryPart(sensitivity, batch, population, poisson=True),), count)


def exact_delta(q, r, epsilon):
    """delta of (1-q) N(0,1) + q N(r,1) against (1-q) N(0,1) + q N(-r,1), with 40 digits."""
    with mpmath.workdps(40):
        q, r, order = mpmath.mpf(q), mpmath.mpf(r), mpmath.exp(epsilon)

        def excess(x):
            """Of the probabilities beyond x; its derivative vanishes where the loss is epsilon."""
            other = (1 - q) * mpmath.ncdf(-x) + q * mpmath.ncdf(-x - r)
            return (1 - q) * mpmath.ncdf(-x) + q * mpmath.ncdf(r - x) - order * other

        # largest over x: ternary search, the excess has one maximum because the loss grows with x
        low, high = mpmath.mpf(-40), mpmath.mpf(40)
        for _ in range(80):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, right) if excess(left) > excess(right) else (left, high)
        return float(excess((low + high) / 2))


# --- one step ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "r"), [(0.01, 1.0), (0.3, 0.5), (0.001, 4.0), (0.2, 0.02)])
@pytest.mark.parametrize("epsilon", [0.0, 0.011, 0.4, 1.5])
def test_one_step_has_the_delta_of_the_pair_and_is_never_below(q, r, epsilon):
    exact = exact_delta(q, r, epsilon)
    bound = pld.poisson_gaussian(1.0, r, round(1000 * q), 1000, 1e-3).delta(epsilon)
    assert exact * (1 - 1e-12) <= bound <= exact * (1 + 2e-3) + 1e-15


@pytest.mark.parametrize(("n", "r", "interval"), [(200_000, 3.0, 1e-4), (200_000, 0.3, 1e-7), (10**6, 6.0, 1e-4)])
def test_rare_records_and_fine_grids_do_not_lose_mass_to_rounding(n, r, interval):
    loss = pld.poisson_gaussian(1.0, r, 1, n, interval, slack=1e-14, epsilon=2.0)
    # at grid points, where the discrete profile touches that of the pair
    for epsilon in (0.0, interval, 250 * interval, 0.9):
        exact = exact_delta(1 / n, r, epsilon)
        assert exact * (1 - 1e-12) <= loss.delta(epsilon) <= exact * (1 + 1e-3) + 3e-14


def test_the_point_of_a_loss_is_right_also_where_numbers_overflow():
    for q, r in ((1e-5, 600.0), (0.3, 40.0), (1e-6, 0.01), (1.0, 2.0)):
        losses = np.array([0.0, 1e-9, 1e-3, 1.0, 50.0, 3000.0, 2e5])
        with mpmath.workdps(50):
            for loss, x in zip(losses, pld._poisson_point(losses, r, q), strict=True):
                up, down = (mpmath.exp(s * mpmath.mpf(r) * mpmath.mpf(x) - mpmath.mpf(r) ** 2 / 2) for s in (1, -1))
                at = mpmath.log((1 - q + q * up) / (1 - q + q * down))
                assert abs(at - loss) <= 1e-14 * (r * r + r * x + loss + 30)


def divergence_in_the_plane(q, u, v, epsilon, points=361, reach=9.0):
    """Hockey-stick divergence of (1-q) N(0,I) + q N(u,I) from (1-q) N(0,I) + q N(v,I), by the midpoint rule."""
    x = np.linspace(-reach, reach, points)
    gauss = lambda m: np.exp(-0.5 * (x - m) ** 2) / math.sqrt(2 * math.pi)  # noqa: E731
    zero = (1 - q) * np.outer(gauss(0.0), gauss(0.0))
    first = zero + q * np.outer(gauss(u[0]), gauss(u[1]))
    second = zero + q * np.outer(gauss(v[0]), gauss(v[1]))
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum() * (x[1] - x[0]) ** 2)


@pytest.mark.parametrize(("q", "r", "epsilon"), [(0.2, 1.0, 0.1), (0.05, 2.0, 0.5), (0.5, 0.7, 0.0), (0.3, 1.5, 1.0)])
def test_no_pair_of_contributions_in_the_plane_exceeds_the_bound_and_a_search_finds_the_opposite_ones(q, r, epsilon):
    bound = pld.poisson_gaussian(1.0, r, round(1000 * q), 1000, 1e-3).delta(epsilon)
    rng = np.random.default_rng(int(1000 * q))

    def ends(angles_and_lengths):
        a, b, s, t = angles_and_lengths
        lengths = r / (1 + np.exp(-np.array([s, t])))
        return lengths[0] * np.array([np.cos(a), np.sin(a)]), lengths[1] * np.array([np.cos(b), np.sin(b)])

    starts = np.column_stack([rng.uniform(0, 2 * np.pi, (40, 2)), rng.normal(2.0, 2.0, (40, 2))])
    values = [divergence_in_the_plane(q, *ends(start), epsilon) for start in starts]
    room = 1e-4 * q  # the error of the midpoint rule at the kink
    assert max(values) <= bound + room

    start = starts[int(np.argmax(values))]
    found = minimize(
        lambda p: -divergence_in_the_plane(q, *ends(p), epsilon), start, method="Nelder-Mead", options={"maxfev": 160}
    )
    assert 0.97 * bound <= -found.fun <= bound + room
    u, v = ends(found.x)
    assert u @ v < -0.8 * r * r


def test_negative_losses_mirror_the_positive_ones_so_the_discrete_pair_has_both_orders():
    ((law, _),) = pld.poisson_gaussian(1.0, 2.0, 1, 50, 0.01).factors
    losses = law.interval * law.indices
    positive, negative = law.masses[losses > 0], law.masses[losses < 0][::-1]
    np.testing.assert_allclose(negative, positive * np.exp(-losses[losses > 0]), rtol=1e-8)
    assert law.masses.sum() + law.infinity == pytest.approx(1.0, abs=1e-12)
    assert (law.masses * np.exp(-losses)).sum() == pytest.approx(1.0, abs=1e-9)


# --- several steps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_two_steps_agree_with_two_dimensional_integration(epsilon):
    q, r = 0.2, 0.8
    x = np.linspace(-8, 8, 3201)
    gauss = lambda m: np.exp(-0.5 * (x - m) ** 2) / math.sqrt(2 * math.pi)  # noqa: E731
    p, other = (1 - q) * gauss(0) + q * gauss(r), (1 - q) * gauss(0) + q * gauss(-r)
    exact = np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(other, other), 0.0).sum() * (x[1] - x[0]) ** 2
    bound = pld.poisson_gaussian(1.0, r, 1, 5, 1e-3).self_compose(2).delta(epsilon)
    assert exact * (1 - 1e-5) <= bound <= exact * 1.001


@pytest.mark.parametrize(("q", "r", "count"), [(0.01, 1.0, 1000), (0.1, 0.5, 50), (0.001, 2.0, 2000)])
def test_many_steps_agree_with_dp_accounting(q, r, count):
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, r, sampling_prob=q, neighboring_relation=REPLACE_ONE, value_discretization_interval=1e-3
    ).self_compose(count)
    ours = pld.poisson_gaussian(1.0, r, round(1000 * q), 1000, 1e-3).self_compose(count)
    for delta in (1e-3, 1e-5, 1e-8):
        assert ours.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-4)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.3, 5.0), st.integers(1, 50), st.integers(1, 200), st.sampled_from([1e-3, 1e-6]))
def test_epsilon_is_between_its_bounds_and_below_that_of_fixed_size_batches(sigma, batch, count, delta):
    accounted = account((poisson(sigma, 1.0, batch, 100, count),), delta)
    assert accounted.lower <= accounted.epsilon
    assert accounted.epsilon <= pld.known_batches_epsilon(sigma, 2.0, batch, 100, count, delta) * (1 + 1e-9)
    assert accounted.epsilon <= gaussian_epsilon(2.0 * math.sqrt(count) / sigma, delta) * (1 + 1e-9)
    fixed_size = GaussianEvent("inner", sigma, (QueryPart(2.0, batch, 100),), count)
    assert accounted.epsilon <= 1.004 * account((fixed_size,), delta).epsilon
    assert account((poisson(sigma, 1.0, batch, 100, 2 * count),), delta).epsilon * 1.004 >= accounted.epsilon
    assert account((poisson(1.1 * sigma, 1.0, batch, 100, count),), delta).epsilon <= 1.004 * accounted.epsilon


@pytest.mark.parametrize(("sigma", "count"), [(0.5, 1), (0.5, 60), (2.0, 300)])
def test_the_lower_bound_is_that_of_an_event_and_below_the_exact_epsilon(sigma, count):
    exact = privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        1.0,
        sampling_prob=0.05,
        neighboring_relation=REPLACE_ONE,
        value_discretization_interval=1e-3,
        pessimistic_estimate=False,
    ).self_compose(count)
    lower = pld.poisson_gaussian_epsilon_lower(sigma, 1.0, 5, 100, count, 1e-4)
    assert 0.3 * exact.get_epsilon_for_delta(1e-4) < lower <= exact.get_epsilon_for_delta(1e-4)


@pytest.mark.parametrize(("epsilon", "ratio"), [(0.2, 0.3675), (0.5, 0.3420), (1.0, 0.3231)])
def test_one_expected_record_of_200000_in_75000_steps_needs_a_third_of_its_norm_as_noise(epsilon, ratio, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPREPRO_CACHE_DIR", str(tmp_path))
        assert smallest_scale((poisson(1.0, 1.0, 1, 200_000, 75_000),), epsilon, 1e-3) == pytest.approx(ratio, rel=3e-3)


def test_a_poisson_part_may_share_its_noise_with_a_full_part():
    part, full = QueryPart(0.25, 5, 100, poisson=True), QueryPart(0.02, 100, 100)
    both = account((GaussianEvent("sum", 1.0, (part, full), 50),), 1e-5).epsilon
    each = [account((GaussianEvent("one", 1.0, (one,), 50),), 1e-5).epsilon for one in (part, full)]
    halves = tuple(GaussianEvent(str(k), 0.5**0.5, (one,), 50) for k, one in enumerate((part, full)))
    assert max(each) < both <= account(halves, 1e-5).epsilon * 1.01


def test_the_ends():
    assert pld.poisson_gaussian(1.0, 0.0, 1, 10, 0.01).epsilon(1e-5) == 0.0
    assert pld.poisson_gaussian(0.0, 1.0, 1, 1000, 0.01).delta(3.0) == pytest.approx(1e-3)
    assert pld.poisson_gaussian_epsilon_lower(0.0, 1.0, 1, 1000, 10, 1e-5) == math.inf
    assert pld.poisson_gaussian_epsilon_lower(1.0, 1.0, 1, 1000, 0, 1e-5) == 0.0
    # with every record drawn the pair is a full release of twice the sensitivity
    full = pld.poisson_gaussian(1.0, 0.4, 7, 7, 1e-3)
    assert full.epsilon(1e-5) == pytest.approx(gaussian_epsilon(0.8, 1e-5), rel=1e-3)
    assert probability_sampled((poisson(1.0, 1.0, 3, 100, 7),)) == pytest.approx(1 - 0.97**7)


def test_poisson_parts_survive_json_and_cannot_hold_every_record():
    event = poisson(1.0, 0.5, 3, 100, 7)
    assert event_from_json(event_to_json(event)) == event
    with pytest.raises(UserError, match="give a fixed-size part"):
        QueryPart(1.0, 5, 5, poisson=True)


# --- the batches ------------------------------------------------------------------------------------------------


def drawing(backend, event, replicates=range(64), d=3):
    return GaussianMechanism(event, d, Slots(5, tuple(replicates), backend))


def segments(backend, batch):
    rows, starts = backend.to_host(batch.rows), backend.to_host(batch.starts)
    return np.split(rows, starts[1:])


@pytest.mark.parametrize(("batch", "population"), [(1, 5000), (3, 40)])
def test_each_segment_is_a_sentinel_and_the_records_of_one_replicate(backend, batch, population):
    steps = BLOCK_STEPS + 9
    event = poisson(0.3, 1.0, batch, population, steps)
    replicates = (0, None, 1, 2, None)
    for step, (index, noise) in enumerate(drawing(backend, event, replicates).sampled(steps)):
        assert isinstance(index, PoissonBatch)
        assert index.size == batch
        assert noise.shape == (5, 3)
        pieces = segments(backend, index)
        assert len(pieces) == 5
        assert all(piece[0] == population for piece in pieces)
        for piece in pieces:
            assert np.all((piece[1:] >= 0) & (piece[1:] < population))
            assert np.unique(piece).size == piece.size
        assert pieces[1].size == pieces[4].size == 1, f"empty slots at step {step}"


def test_batches_and_noise_do_not_depend_on_how_the_releases_are_asked_for(backend):
    event = poisson(0.3, 1.0, 2, 5000, 600)
    together = list(drawing(backend, event).sampled(300))
    mechanism = drawing(backend, event)
    apart = [pair for piece in (5, 200, 95) for pair in mechanism.sampled(piece)]
    for (one, noise), (other, same) in zip(together, apart, strict=True):
        np.testing.assert_array_equal(backend.to_host(one.rows), backend.to_host(other.rows))
        np.testing.assert_array_equal(backend.to_host(one.starts), backend.to_host(other.starts))
        np.testing.assert_array_equal(backend.to_host(noise), backend.to_host(same))


def test_poisson_releases_are_counted_one_by_one(backend):
    event = poisson(0.3, 1.0, 1, 500, 10)
    book = Ledger((event,), 3, 0, [0, 1], backend)
    for position, _ in enumerate(book.gaussian("inner").sampled(10)):
        if position == 2:
            break
    assert book.entries()[0].count == 3
    with pytest.raises(LedgerMismatch, match="planned for 10 releases"):
        list(book.gaussian("inner").sampled(8))
