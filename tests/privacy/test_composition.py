from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import randomised_response_delta

from dprepro.errors import UserError
from dprepro.privacy import composition, pld
from dprepro.privacy.accounting import gaussian_epsilon
from dprepro.privacy.composition import (
    advanced,
    bounded_range,
    optimal_pure,
    tree_mu,
    tree_nodes,
    zcdp_delta,
    zcdp_epsilon,
)


def test_advanced_composition_is_the_formula_of_the_papers():
    epsilon, delta = advanced(0.1, 1e-8, 100, 1e-5)
    assert epsilon == pytest.approx(math.sqrt(200 * math.log(1e5)) * 0.1 + 10 * (math.exp(0.1) - 1))
    assert delta == pytest.approx(100 * 1e-8 + 1e-5)


@pytest.mark.parametrize(
    ("epsilon0", "k", "delta"),
    [(0.1, 100, 1e-6), (0.5, 1000, 1e-12), (2.0, 5, 1e-3), (1.0, 1, 1e-5), (0.01, 100_000, 1e-9)],
)
def test_optimal_pure_equals_the_privacy_loss_of_randomised_response(epsilon0, k, delta):
    composed = pld.pure(epsilon0, epsilon0 / 3).self_compose(k).epsilon(delta)
    assert optimal_pure(epsilon0, k, delta) == pytest.approx(composed, rel=1e-6)


@pytest.mark.parametrize("k", [1, 2, 7, 10])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_optimal_pure_is_the_smallest_epsilon_of_the_listed_outcomes(k, delta):
    epsilon = optimal_pure(0.4, k, delta)
    assert randomised_response_delta([0.4] * k, epsilon) <= delta
    assert randomised_response_delta([0.4] * k, epsilon * (1 - 1e-9)) > delta


def exact_with_room(epsilon0, k, delta, room):
    """The maximum of Theorem 3.3 in high precision, with room for the errors of the two probabilities."""
    with mpmath.workdps(40):
        lie = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon0)))
        p = [mpmath.binomial(k, i) * lie**i * (1 - lie) ** (k - i) for i in range(k + 1)]
        values = [
            mpmath.log((min(1, sum(p[: m + 1]) * mpmath.exp(room)) - delta) / sum(p[k - m :])) + room
            for m in range(k + 1)
            if sum(p[: m + 1]) > delta
        ]
        return max(values)


@pytest.mark.parametrize(
    ("epsilon0", "k", "delta"),
    [(1.0, 1, 0.462), (3.0, 2, 0.89), (6.0, 2, 0.98), (0.05, 20, 0.08), (0.01, 40, 0.02), (0.5, 12, 0.5)],
)
def test_optimal_pure_lies_above_the_exact_value_by_the_room_for_rounding(epsilon0, k, delta):
    """The room is for some ulps of each term of the sums of logarithms, and for a hundred more."""
    room = 1e-15 * (8 * math.lgamma(k + 1) + 8 * k * (1 + epsilon0) + 100)
    exact, expected = (exact_with_room(epsilon0, k, delta, each) for each in (0, room))
    found = optimal_pure(epsilon0, k, delta)
    assert found > exact
    assert float((found - exact) / (expected - exact)) == pytest.approx(1.0, abs=0.05)


@given(st.floats(1e-3, 3.0), st.integers(1, 3000), st.floats(1e-12, 0.1))
def test_optimal_pure_is_never_above_the_sum_or_advanced_composition(epsilon0, k, delta):
    optimal = optimal_pure(epsilon0, k, delta)
    assert optimal <= k * epsilon0 * (1 + 1e-12)
    assert optimal <= advanced(epsilon0, 0.0, k, delta)[0]


@given(st.floats(1e-3, 1.0), st.integers(1, 500), st.floats(1e-9, 0.1))
def test_optimal_pure_grows_with_count_and_budget_and_falls_with_delta(epsilon0, k, delta):
    epsilon = optimal_pure(epsilon0, k, delta)
    room = 1e-9
    assert epsilon <= optimal_pure(epsilon0, k + 2, delta) + room
    assert epsilon <= optimal_pure(1.1 * epsilon0, k, delta) + room
    assert optimal_pure(epsilon0, k, 2 * delta) <= epsilon + room


@pytest.mark.parametrize(("rho", "delta"), [(0.01, 1e-5), (0.5, 1e-6), (20.0, 1e-3)])
def test_zcdp_conversion_is_the_minimum_over_orders_and_covers_the_gaussian(rho, delta):
    orders = 1 + np.geomspace(1e-3, 1e5, 200_001)
    bounds = orders * rho + np.log1p(-1 / orders) - np.log(orders * delta) / (orders - 1)
    epsilon = zcdp_epsilon(rho, delta)
    assert epsilon == pytest.approx(bounds.min(), rel=1e-6)
    # N(0, 1) at distance sqrt(2 rho) is rho-zCDP
    assert gaussian_epsilon(math.sqrt(2 * rho), delta) <= epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


@pytest.mark.parametrize(("rho", "delta"), [(1e-3, 1e-9), (0.5, 1e-6), (20.0, 0.01)])
def test_zcdp_conversions_lie_above_the_exact_minima_by_their_room_for_rounding(rho, delta):
    """The derivatives in a - 1 are rho + (log a - log(1/delta)) / (a - 1)^2 and (2a - 1) rho - epsilon - log(a/(a-1)).

    Both change their sign once.
    """
    epsilon = zcdp_epsilon(rho, delta)
    with mpmath.workdps(40):
        rho, delta = mpmath.mpf(rho), mpmath.mpf(delta)
        x = mpmath.findroot(lambda x: rho * x**2 + mpmath.log1p(x) + mpmath.log(delta), mpmath.sqrt(1 / rho))
        exact = (1 + x) * rho - mpmath.log1p(1 / x) - mpmath.log(delta * (1 + x)) / x
        assert 0.9e-12 < epsilon / exact - 1 < 1.1e-12
        x = mpmath.findroot(lambda x: (1 + 2 * x) * rho - epsilon - mpmath.log1p(1 / x), x)
        exact = mpmath.exp(x * ((1 + x) * rho - epsilon) - (1 + x) * mpmath.log1p(1 / x)) / x
        assert 0.9e-9 < zcdp_delta(float(rho), epsilon) / exact - 1 < 1.1e-9


@pytest.mark.parametrize(("rho", "epsilon"), [(0.01, 0.5), (0.5, 4.0), (20.0, 60.0), (0.5, 0.1)])
def test_the_delta_of_zcdp_is_the_minimum_over_orders_and_the_inverse_of_its_epsilon(rho, epsilon):
    above_one = np.geomspace(1e-4, 1e3, 200_001)
    logs = above_one * ((1 + above_one) * rho - epsilon) - (1 + above_one) * np.log1p(1 / above_one) - np.log(above_one)
    delta = zcdp_delta(rho, epsilon)
    assert delta == pytest.approx(np.exp(logs.min()), rel=1e-6)
    assert delta >= np.exp(logs.min()) * (1 - 1e-6)
    assert zcdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-6)


def test_gumbel_selection_needs_half_the_budget_of_general_pure_selection():
    general, selection = optimal_pure(0.02, 1000, 1e-6), bounded_range(0.02, 1000, 1e-6)
    assert 0.4 * general < selection < 0.6 * general


@settings(max_examples=50)
@given(st.floats(1e-3, 5.0), st.integers(1, 300), st.floats(1e-10, 0.1))
def test_bounded_range_is_never_above_pure_composition(epsilon0, k, delta):
    assert bounded_range(epsilon0, k, delta) <= optimal_pure(epsilon0, k, delta)


@given(st.integers(1, 200))
def test_a_leaf_is_in_as_many_complete_nodes_as_stated_and_no_leaf_in_more(leaves):
    def complete_nodes(leaf):
        """Intervals of width 2^k that hold the leaf and end within the tree."""
        widths = [2**k for k in range(9)]
        return sum((leaf // width + 1) * width <= leaves for width in widths)

    assert max(complete_nodes(leaf) for leaf in range(leaves)) == tree_nodes(leaves)
    assert tree_nodes(64) == 7
    assert tree_nodes(1) == 1


def test_tree_aggregation_is_one_gaussian_release_of_all_nodes_of_a_leaf():
    assert tree_mu(0.5, 2.0, 64) == pytest.approx(0.25 * math.sqrt(7))
    assert tree_mu(0.0, 0.0, 4) == 0.0
    assert tree_mu(1.0, 0.0, 4) == math.inf
    composed = pld.gaussian(2.0, 0.5, 1e-3).self_compose(tree_nodes(64)).epsilon(1e-5)
    assert gaussian_epsilon(tree_mu(0.5, 2.0, 64), 1e-5) == pytest.approx(composed, rel=1e-3)


def test_tree_aggregation_costs_the_first_leaf_or_the_second():
    """Of 8 leaves the first is in four nodes, the second in three."""
    assert tree_mu(1.0, 2.0, 8, first=0.1) == pytest.approx(math.sqrt(3) / 2.0)
    assert tree_mu(1.0, 2.0, 8, first=3.0) == pytest.approx(3.0 * math.sqrt(4) / 2.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: advanced(math.nan, 0.0, 3, 1e-5), "epsilon0 is nan"),
        (lambda: advanced(0.1, -1e-9, 3, 1e-5), "delta0 is -1e-09"),
        (lambda: advanced(0.1, 0.0, -1, 1e-5), "k is -1"),
        (lambda: advanced(0.1, 0.0, 3, 0.0), "delta is 0.0"),
        (lambda: optimal_pure(-0.1, 3, 1e-5), "epsilon0 is -0.1"),
        (lambda: optimal_pure("0.1", 3, 1e-5), "epsilon0 is '0.1'"),
        (lambda: optimal_pure(True, 3, 1e-5), "epsilon0 is True"),
        (lambda: optimal_pure(0.1, 2.5, 1e-5), "k is 2.5"),
        (lambda: optimal_pure(0.1, True, 1e-5), "k is True"),
        (lambda: optimal_pure(0.1, 3, 1.0), "delta is 1.0"),
        (lambda: bounded_range(math.nan, 3, 1e-5), "epsilon0 is nan"),
        (lambda: bounded_range(0.1, -1, 1e-5), "k is -1"),
        (lambda: bounded_range(0.1, 3, 0.0), "delta is 0.0"),
        (lambda: tree_nodes(0), "leaves is 0"),
        (lambda: tree_nodes(3.0), "leaves is 3.0"),
        (lambda: tree_mu(-1.0, 1.0, 4), "sensitivity is -1.0"),
        (lambda: tree_mu(1.0, math.nan, 4), "sigma is nan"),
        (lambda: tree_mu(1.0, 1.0, 4, first=-1.0), "first is -1.0"),
        (lambda: zcdp_epsilon(-1.0, 1e-5), "rho is -1.0"),
        (lambda: zcdp_epsilon(1.0, 0.0), "delta is 0.0"),
        (lambda: zcdp_delta(-1.0, 1.0), "rho is -1.0"),
        (lambda: zcdp_delta(1.0, -1.0), "epsilon is -1.0"),
    ],
)
def test_bad_input_is_refused_with_what_was_given(call, words):
    with pytest.raises(UserError, match=words):
        call()


def test_very_many_pure_releases_are_bounded_without_listing_them(monkeypatch):
    assert optimal_pure(1.0, 4 * 10**9, 1e-6) <= 4 * 10**9
    monkeypatch.setattr(composition, "MOST_EXACT", 1000)
    exact, bounded = optimal_pure(1e-3, 1000, 1e-6), optimal_pure(1e-3, 1001, 1e-6)
    assert 1.001 * exact < bounded < 1.3 * exact
    assert bounded == zcdp_epsilon(1001 * 1e-3**2 / 2, 1e-6)
