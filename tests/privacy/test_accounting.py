from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprepro.errors import UserError
from dprepro.privacy.accounting import (
    account,
    advanced_composition_epsilon,
    confirms,
    gaussian_delta,
    gaussian_epsilon,
)
from dprepro.privacy.composition import optimal_pure
from dprepro.privacy.events import (
    ConditionEvent,
    GaussianEvent,
    LaplaceEvent,
    ParallelEvent,
    QueryPart,
    SelectionEvent,
    TreeEvent,
    UnprotectedEvent,
    event_from_json,
    event_to_json,
)


def hockey_stick(mu, epsilon):
    """delta(epsilon) of N(0,1) against N(mu,1), integrated where the density ratio exceeds e^epsilon."""
    cut = epsilon / mu + mu / 2
    density = lambda x: mpmath.npdf(x, mu, 1) - mpmath.exp(epsilon) * mpmath.npdf(x, 0, 1)  # noqa: E731
    return mpmath.quad(density, [cut, cut + 2, cut + 6, cut + 20])


@pytest.mark.parametrize("mu", [0.05, 0.388, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 5.0])
def test_gaussian_delta_agrees_with_integration_of_the_hockey_stick(mu, epsilon):
    with mpmath.workdps(40):
        exact = float(hockey_stick(mpmath.mpf(mu), mpmath.mpf(epsilon)))
    assert gaussian_delta(mu, epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-40)


@pytest.mark.parametrize(("mu", "delta"), [(0.01, 1e-5), (0.26805, 1e-5), (1.0, 1e-3), (5.0, 1e-8), (300.0, 1e-5)])
def test_gaussian_epsilon_agrees_with_dp_accounting(mu, delta):
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

    assert gaussian_epsilon(mu, delta) == pytest.approx(get_epsilon_gaussian(1.0 / mu, delta), rel=1e-8, abs=1e-10)


@given(st.floats(1e-3, 1e3), st.floats(1e-12, 0.5))
def test_gaussian_epsilon_is_never_below_the_truth(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, epsilon) <= delta * (1 + 1e-12)
    if epsilon > 1e-9:
        assert gaussian_delta(mu, epsilon * (1 - 1e-6)) > delta * (1 - 1e-9)


@pytest.mark.parametrize("mu", [1e-15, 1e-9, 1e-6, 1e-4, 0.0099, 0.01, 0.02, 1.0, 40.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-8, 1e-20, 1e-100])
def test_gaussian_epsilon_is_right_to_twelve_digits_however_small_mu_is(mu, delta):
    """For a small mu the two terms of delta are nearly equal: their plain difference would be all rounding."""
    epsilon = gaussian_epsilon(mu, delta)
    with mpmath.workdps(60):
        spent = lambda e: mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)  # noqa: E731
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        assert spent(epsilon * (1 + mpmath.mpf("1e-12"))) <= delta
        assert epsilon == 0 or spent(epsilon * (1 - mpmath.mpf("1e-12"))) > delta


@given(st.floats(1e-17, 1e-1), st.floats(0.0, 1e3))
def test_gaussian_delta_is_a_probability_and_falls_with_epsilon(mu, ratio):
    larger, smaller = gaussian_delta(mu, 0.9 * ratio * mu), gaussian_delta(mu, ratio * mu)
    assert 1.0 >= larger >= smaller * (1 - 1e-9) >= 0.0


@given(st.floats(1e9, 1e15), st.floats(-5.0, 5.0))
def test_gaussian_delta_is_a_probability_where_rounding_decides(mu, ratio):
    """An epsilon of 1e18 and more is known to hundreds only."""
    assert 0.0 <= gaussian_delta(mu, mu * (mu / 2 + ratio)) <= 1.0


def test_gaussian_epsilon_at_the_ends():
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf
    # total variation of N(0,1) and N(mu,1) already below delta
    assert gaussian_epsilon(1e-3, 0.1) == 0.0


@pytest.mark.parametrize(("mu", "delta"), [(-1.0, 0.1), (math.nan, 0.1), (1.0, 0.0), (1.0, 1.0), (1.0, math.nan)])
def test_gaussian_epsilon_refuses_bad_input(mu, delta):
    with pytest.raises(UserError, match="give a number"):
        gaussian_epsilon(mu, delta)


def full(sigma, sensitivity, count, label="step"):
    return GaussianEvent(label, sigma, (QueryPart(sensitivity, 100, 100),), count)


def test_full_batch_releases_compose_as_gaussian_dp():
    events = (full(2.0, 0.1, 9), full(1.0, 0.3, 4, "other"))
    mu = math.sqrt(9 * 0.05**2 + 4 * 0.3**2)
    accounted = account(events, 1e-5)
    assert accounted.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-12)
    assert accounted.tight


def test_sampled_releases_are_charged_less_than_full_ones_and_more_than_their_lower_bound():
    sampled = GaussianEvent("inner", 1.0, (QueryPart(0.5, 5, 100),), 50)
    accounted = account((sampled,), 1e-5)
    assert accounted.lower <= accounted.epsilon < 0.2 * account((full(1.0, 0.5, 50),), 1e-5).epsilon
    assert accounted.delta(accounted.epsilon) <= 1e-5 * 1.01


def test_summed_parts_cost_at_least_each_part_and_at_most_separate_noises():
    parts = (QueryPart(0.5, 5, 100), QueryPart(0.02, 100, 100))
    both = account((GaussianEvent("sum", 1.0, parts, 50),), 1e-5).epsilon
    each = [account((GaussianEvent("one", 1.0, (part,), 50),), 1e-5).epsilon for part in parts]
    halves = tuple(GaussianEvent(str(k), 0.5**0.5, (part,), 50) for k, part in enumerate(parts))
    assert max(each) < both <= account(halves, 1e-5).epsilon * 1.01


def test_what_is_not_known_to_be_attained_counts_in_the_upper_bound_alone():
    known, open_ = full(2.0, 0.1, 9), replace(full(1.0, 0.5, 4), attained=False)
    found = account((known, open_), 1e-5)
    assert found.epsilon == account((known, replace(open_, attained=True)), 1e-5).epsilon
    assert found.lower == account((known,), 1e-5).epsilon < 0.3 * found.epsilon
    assert not found.tight
    assert account((open_,), 1e-5).lower == account((open_, UnprotectedEvent("step size", 1)), 1e-5).lower == 0.0
    both = (ParallelEvent("phases", ((known,), (open_,))),)
    assert account(both, 1e-5).lower == account((known,), 1e-5).epsilon
    tree = TreeEvent("t", 1.0, 0.5, 8, 2, attained=False)
    assert account((known, tree), 1e-5).lower == account((known,), 1e-5).epsilon
    assert event_from_json(event_to_json(open_)) == open_


def test_parallel_branches_cost_the_worst_and_conditions_take_their_delta():
    cheap, dear = (full(4.0, 0.3, 1, "a"),), (full(1.0, 0.3, 1, "b"),)
    assert account((ParallelEvent("p", (cheap, dear)),), 1e-5).epsilon == account(dear, 1e-5).epsilon
    conditioned = account((*dear, ConditionEvent("sensitivity", 4e-6)), 1e-5).epsilon
    assert conditioned == gaussian_epsilon(0.3, 6e-6)
    assert account((*dear, ConditionEvent("sensitivity", 2e-5)), 1e-5).epsilon == math.inf


def test_selections_and_trees_use_their_own_bounds():
    laplace = SelectionEvent("max", "laplace", 20.0, 0.5, 30)
    gumbel = SelectionEvent("max", "gumbel", 20.0, 0.5, 30)
    assert account((laplace,), 1e-5).epsilon == pytest.approx(optimal_pure(0.05, 30, 1e-5))
    assert account((gumbel,), 1e-5).epsilon < account((laplace,), 1e-5).epsilon
    tree = TreeEvent("tree", 2.0, 0.5, 8, 1)
    assert account((tree,), 1e-5).epsilon == pytest.approx(gaussian_epsilon(0.25 * 2.0, 1e-5))


def test_laplace_noise_is_pure_dp_at_worst():
    event = LaplaceEvent("noise", 2.0, 1.0, 1)
    assert account((event,), 1e-12).epsilon == pytest.approx(0.5, rel=0.01)
    assert account((LaplaceEvent("noise", 2.0, 1.0, 40),), 1e-5).epsilon < 20.0


def test_charging_a_sampled_release_as_full_is_an_upper_bound():
    """Exact delta of one release with sampling probability q = 1/10 against the bound's."""
    q, shift, epsilon = 0.1, 1.0, 0.2
    x = np.linspace(-12, 13, 400_001)
    phi = lambda m: np.exp(-0.5 * (x - m) ** 2) / math.sqrt(2 * math.pi)  # noqa: E731
    # neighbours whose replaced record moves the mean by +shift/2 or -shift/2 when drawn
    p = (1 - q) * phi(0) + q * phi(shift / 2)
    r = (1 - q) * phi(0) + q * phi(-shift / 2)
    exact = np.trapezoid(np.maximum(p - math.exp(epsilon) * r, 0), x)
    assert 0 < exact <= gaussian_delta(shift, epsilon)


def test_no_noise_and_unprotected_quantities_have_no_finite_epsilon():
    assert account((full(0.0, 0.1, 1),), 1e-5).epsilon == math.inf
    assert account((full(9.0, 0.1, 1), UnprotectedEvent("step size", 1)), 1e-5).epsilon == math.inf


def test_events_survive_json():
    parallel = ParallelEvent("p", ((full(4.0, 0.3, 1, "a"),), (SelectionEvent("max", "gumbel", 1.0, 0.5, 3),)))
    tree, condition = TreeEvent("t", 1.0, 0.5, 8, 2), ConditionEvent("c", 1e-6)
    for event in (full(2.0, 0.1, 9), UnprotectedEvent("step size", 3), parallel, tree, condition):
        assert event_from_json(event_to_json(event)) == event


@pytest.mark.parametrize(
    "make",
    [
        lambda: GaussianEvent("x", 1.0, (), 5),
        lambda: GaussianEvent("x", -1.0, (QueryPart(1.0, 1, 2),), 5),
        lambda: GaussianEvent("x", 1.0, (QueryPart(1.0, 1, 2),), -5),
        lambda: QueryPart(0.0, 1, 2),
        lambda: QueryPart(math.inf, 1, 2),
        lambda: QueryPart(1.0, 3, 2),
        lambda: LaplaceEvent("x", 1.0, -1.0, 1),
        lambda: LaplaceEvent("x", math.nan, 1.0, 1),
        lambda: SelectionEvent("x", "gaussian", 1.0, 1.0, 1),
        lambda: TreeEvent("x", 1.0, 1.0, 0, 1),
        lambda: ConditionEvent("x", 0.0),
    ],
)
def test_an_event_without_a_sane_sensitivity_noise_or_count_is_refused(make):
    with pytest.raises(UserError, match=r"give|declare|use|must be"):
        make()


def test_an_event_that_nobody_accounts_for_is_refused_not_counted_as_free():
    with pytest.raises(UserError, match="No sound accountant"):
        account((object(),), 1e-5)


def test_delta_of_parallel_branches_is_that_of_the_worst_branch_at_each_epsilon():
    branches = ((full(1.0, 1.0, 1, "a"),), (LaplaceEvent("b", 1.0, 3.0, 1),))
    accounted = account((ParallelEvent("p", branches),), 1e-5)
    assert accounted.delta(1.0) >= max(account(branch, 1e-5).delta(1.0) for branch in branches)


def test_the_textbook_composition_is_looser_than_the_exact_one():
    event = full(10.0, 0.1, 20)
    textbook = advanced_composition_epsilon((event,), 1e-5)
    assert textbook > account((event,), 1e-5).epsilon > 0.0
    assert math.isnan(advanced_composition_epsilon((full(0.1, 0.1, 20),), 1e-5)), "epsilon0 above 1"


@pytest.mark.parametrize("mu", [1e-12, 1e-6, 9e-3, 0.3, 1.0, 30.0, 1e5, 9e6, 1e9, 1e12, 1e100, 1e200])
@pytest.mark.parametrize("delta", [1e-3, 1e-12])
def test_a_second_computation_confirms_every_gaussian_certificate_and_none_of_half_the_noise(mu, delta):
    def release(noise):
        return (GaussianEvent("g", noise, (QueryPart(mu, 1, 1),), 1),)

    stated = account(release(1.0), delta).epsilon
    assert confirms(release(1.0), stated, delta) is True
    halved = account(release(0.5), delta).epsilon
    assert confirms(release(0.5), stated, delta) is (stated == halved)
    assert confirms(release(0.0), stated, delta) is math.isinf(stated)


def gaussians(*noises):
    return tuple(GaussianEvent(f"g{noise}", noise, (QueryPart(1.0, 1, 1),), 1) for noise in noises)


def test_a_second_computation_takes_the_costliest_of_several_alternatives():
    for costly in (1.0, 0.0):
        event = ParallelEvent("either", (gaussians(5.0), gaussians(costly)))
        stated = account((event,), 1e-3).epsilon
        assert confirms((event,), stated, 1e-3) is True
        assert confirms((event,), account(gaussians(5.0), 1e-3).epsilon, 1e-3) is False


@pytest.mark.parametrize("share", [0.97, 1.03])
@pytest.mark.parametrize("noise", [0.05, 1.0, 20.0])
def test_a_second_computation_sees_three_per_cent_of_the_noise(noise, share):
    stated = account(gaussians(noise), 1e-6).epsilon
    assert confirms(gaussians(share * noise), stated, 1e-6) is False


def test_without_releases_nothing_is_confirmed_but_zero():
    assert confirms((), 0.0, 1e-3) is True
    assert confirms((), 1.0, 1e-3) is False
    condition = ConditionEvent("c", 1e-3)
    assert account((condition, *gaussians(1.0)), 1e-3).epsilon == math.inf
    assert confirms((condition, *gaussians(1.0)), math.inf, 1e-3) is True
    assert confirms((condition, *gaussians(1.0)), 5.0, 1e-3) is False
