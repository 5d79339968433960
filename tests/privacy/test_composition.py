from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprepro.errors import UserError
from dprepro.privacy import pld
from dprepro.privacy.accounting import gaussian_epsilon
from dprepro.privacy.composition import (
    advanced,
    basic,
    bounded_range,
    heterogeneous_pure,
    optimal_pure,
    parallel,
    tree_mu,
    tree_nodes,
    zcdp_epsilon,
)


def randomised_response_delta(epsilons, epsilon):
    """Exact delta of randomised responses, by listing all outcomes in high precision."""
    with mpmath.workdps(40):
        outcomes = [(mpmath.mpf(1), mpmath.mpf(1))]
        for each in epsilons:
            truth = 1 / (1 + mpmath.exp(-mpmath.mpf(each)))
            outcomes = [
                (p * a, q * b) for p, q in outcomes for a, b in ((truth, 1 - truth), (1 - truth, truth))
            ]  # fmt: skip
        return float(sum(max(mpmath.mpf(0), p - mpmath.exp(mpmath.mpf(epsilon)) * q) for p, q in outcomes))


def test_basic_composition_adds():
    assert basic([0.1, 0.2, 0.3], [1e-6, 0.0, 2e-6]) == (pytest.approx(0.6), pytest.approx(3e-6))
    with pytest.raises(UserError, match="one delta for each"):
        basic([0.1], [])


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


@given(st.floats(1e-3, 3.0), st.integers(1, 3000), st.floats(1e-12, 0.1))
def test_optimal_pure_is_never_above_basic_or_advanced_composition(epsilon0, k, delta):
    optimal = optimal_pure(epsilon0, k, delta)
    assert optimal <= basic([epsilon0] * k, [0.0] * k)[0] * (1 + 1e-12)
    assert optimal <= advanced(epsilon0, 0.0, k, delta)[0]


@given(st.floats(1e-3, 1.0), st.integers(1, 500), st.floats(1e-9, 0.1))
def test_optimal_pure_grows_with_count_and_budget_and_falls_with_delta(epsilon0, k, delta):
    epsilon = optimal_pure(epsilon0, k, delta)
    room = 1e-9
    assert epsilon <= optimal_pure(epsilon0, k + 2, delta) + room
    assert epsilon <= optimal_pure(1.1 * epsilon0, k, delta) + room
    assert optimal_pure(epsilon0, k, 2 * delta) <= epsilon + room


def test_heterogeneous_pure_is_just_above_the_exact_value():
    budgets = [0.9, 0.45, 0.3, 0.225, 0.18, 0.15, 0.1286, 0.1125, 0.1]
    for delta in (1e-2, 1e-5):
        epsilon = heterogeneous_pure(budgets, delta)
        assert randomised_response_delta(budgets, epsilon) <= delta
        assert randomised_response_delta(budgets, epsilon * 0.995) > delta
        assert epsilon <= sum(budgets)


def test_heterogeneous_pure_of_equal_budgets_is_the_closed_form():
    assert heterogeneous_pure([0.1] * 100, 1e-6) == optimal_pure(0.1, 100, 1e-6)
    nearly = heterogeneous_pure([0.1] * 99 + [0.1 + 1e-9], 1e-6)
    assert nearly == pytest.approx(optimal_pure(0.1, 100, 1e-6), rel=0.002)
    assert heterogeneous_pure([], 1e-6) == 0.0
    assert heterogeneous_pure([0.1, math.inf], 1e-6) == math.inf


@pytest.mark.parametrize(("rho", "delta"), [(0.01, 1e-5), (0.5, 1e-6), (20.0, 1e-3)])
def test_zcdp_conversion_is_the_minimum_over_orders_and_covers_the_gaussian(rho, delta):
    orders = 1 + np.geomspace(1e-3, 1e5, 200_001)
    bounds = orders * rho + np.log1p(-1 / orders) - np.log(orders * delta) / (orders - 1)
    epsilon = zcdp_epsilon(rho, delta)
    assert epsilon == pytest.approx(bounds.min(), rel=1e-6)
    # N(0, 1) at distance sqrt(2 rho) is rho-zCDP
    assert gaussian_epsilon(math.sqrt(2 * rho), delta) <= epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


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


def test_disjoint_batches_cost_the_largest_of_them():
    assert parallel([0.3, 1.2, 0.7]) == 1.2
    assert parallel([]) == 0.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: optimal_pure(-0.1, 3, 1e-5), "epsilon0 is -0.1"),
        (lambda: optimal_pure(0.1, 2.5, 1e-5), "k is 2.5"),
        (lambda: optimal_pure(0.1, 3, 1.0), "delta is 1.0"),
        (lambda: heterogeneous_pure([0.1, math.nan], 1e-5), "epsilon is nan"),
        (lambda: parallel([-1.0]), "epsilon is -1.0"),
        (lambda: tree_nodes(0), "leaves is 0"),
        (lambda: zcdp_epsilon(-1.0, 1e-5), "rho is -1.0"),
    ],
)
def test_bad_input_is_refused_with_what_was_given(call, words):
    with pytest.raises(UserError, match=words):
        call()


def test_very_many_pure_releases_are_bounded_without_listing_them():
    exact, bounded = optimal_pure(1e-5, 10**7, 1e-6), optimal_pure(1e-5, 10**7 + 1, 1e-6)
    assert exact < bounded < 1.3 * exact
    assert optimal_pure(1.0, 4 * 10**9, 1e-6) <= 4 * 10**9
