"""Objective perturbation: the accounted delta against the exact density of the released minimiser."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chi2, gamma

from dprepro.algorithms import get_algorithm, objective_perturbation
from dprepro.algorithms.base import Setting
from dprepro.errors import LedgerMismatch, UserError
from dprepro.geometry import RealSpace
from dprepro.losses import get_loss
from dprepro.privacy.accounting import (
    _halves_add_up,
    account,
    confirms,
    gaussian_delta,
    objective_perturbation_delta,
    probability_sampled,
)
from dprepro.privacy.calibrate import smallest_scale
from dprepro.privacy.events import (
    ConditionEvent,
    GaussianEvent,
    LaplaceEvent,
    ObjectivePerturbationEvent,
    QueryPart,
    UnprotectedEvent,
    event_from_json,
    event_to_json,
)
from dprepro.privacy.mechanisms import Ledger
from dprepro.problems.erm import ProblemSpec
from dprepro.regularizers import Regularizer


def event(noise, scale, convexity, *, smoothness=0.25, sensitivity=2.0):
    return ObjectivePerturbationEvent("b", noise, scale, sensitivity, smoothness, convexity, 1)


@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
@pytest.mark.parametrize(("scale", "convexity"), [(0.5, 0.01), (2.0, 1.0), (20.0, 30.0)])
def test_a_second_computation_confirms_what_is_accounted_and_nothing_else(noise, scale, convexity):
    """Its epsilon is checked before a run, without SciPy."""
    for delta in (1e-3, 1e-9):
        spent = account([event(noise, scale, convexity)], delta).epsilon
        assert confirms([event(noise, scale, convexity)], spent, delta)
        for factor in (0.1, 0.9, 1.2, 10.0):
            assert confirms([event(noise, scale, convexity)], factor * spent, delta) is not True
        assert confirms([event(noise, 0.1 * scale, convexity)], spent, delta) is False
    plenty = [event("gaussian", 1e4, 1e6)]
    assert account(plenty, 1e-3).epsilon == 0.0
    assert confirms(plenty, 0.0, 1e-3)


@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
@pytest.mark.parametrize("scale", [0.0, 1e-250, 1e-320])
def test_hardly_any_noise_is_confirmed_for_no_finite_epsilon(noise, scale):
    assert confirms([event(noise, scale, 1.0)], 1.0, 1e-3) is False
    assert confirms([event(noise, 0.0, 1.0)], math.inf, 1e-3) is True


def released_density(X, convexity, noise, scale, W):
    """Density at the points W (m, d) of argmin sum log(1 + e^(-<w, x>)) + convexity/2 |w|^2 + <b, w> from that of b."""
    d = X.shape[1]
    slope = expit(-W @ X.T)  # (m, n)
    b = slope @ X - convexity * W
    hessian = np.einsum("mi,ij,ik->mjk", slope * (1 - slope), X, X) + convexity * np.eye(d)
    length = np.linalg.norm(b, axis=1)
    if noise == "gaussian":
        density = np.exp(-0.5 * (length / scale) ** 2) / (scale * math.sqrt(2 * math.pi)) ** d
    else:  # the area of the unit sphere times Gamma(d) scale^d
        area = 2 * math.pi ** (d / 2) / math.gamma(d / 2)
        density = np.exp(-length / scale) / (area * math.gamma(d) * scale**d)
    return density * np.linalg.det(hessian)


def hockey_sticks(X, Y, convexity, noise, scale, epsilons, reach):
    """Exact delta, in the worse order, between the minimisers of two datasets in one or two dimensions."""
    d = X.shape[1]
    axis = np.linspace(-reach, reach, 400_001 if d == 1 else 901)
    W = axis[:, None] if d == 1 else np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    p, q = (released_density(Z, convexity, noise, scale, W) * (axis[1] - axis[0]) ** d for Z in (X, Y))
    assert p.sum() == pytest.approx(1.0, abs=2e-3)
    return [max(np.maximum(a - math.exp(e) * b, 0.0).sum() for a, b in ((p, q), (q, p))) for e in epsilons]


LINE = [
    ([[1.0]], [[0.0]]),
    ([[1.0]], [[-1.0]]),
    ([[1.0], [1.0], [-0.5]], [[1.0], [-1.0], [-0.5]]),
    ([[0.3], [1.0]], [[0.3], [0.2]]),
]
EPSILONS = (0.0, 0.1, 0.4, 0.8, 1.2, 1.6, 2.5)


@pytest.mark.parametrize("datasets", LINE)
@pytest.mark.parametrize(("noise", "scale"), [("gaussian", 2.0), ("gaussian", 12.0), ("gamma", 2.0), ("gamma", 10.0)])
@pytest.mark.parametrize("convexity", [0.1, 1.0])
def test_the_true_delta_on_the_line_is_below_the_accounted_one(datasets, noise, scale, convexity):
    X, Y = (np.array(rows) for rows in datasets)
    reach = (14.0 * scale + 5.0) / convexity
    true = hockey_sticks(X, Y, convexity, noise, scale, EPSILONS, reach)
    accounted = account((event(noise, scale, convexity),), 1e-5)
    for epsilon, delta in zip(EPSILONS, true, strict=True):
        assert delta <= accounted.delta(epsilon) + 1e-7


@pytest.mark.parametrize("angle", [0.0, math.pi / 2, 2.5])
@pytest.mark.parametrize(("noise", "scale"), [("gaussian", 1.5), ("gaussian", 4.0), ("gamma", 1.5)])
def test_the_true_delta_in_the_plane_is_below_the_accounted_one(angle, noise, scale):
    shared = [[0.6, -0.8], [-1.0, 0.0]]
    X, Y = np.array([*shared, [1.0, 0.0]]), np.array([*shared, [-math.cos(angle), math.sin(angle)]])
    true = hockey_sticks(X, Y, 0.5, noise, scale, EPSILONS, (8.0 if noise == "gaussian" else 16.0) * scale / 0.5)
    accounted = account((event(noise, scale, 0.5),), 1e-5)
    for epsilon, delta in zip(EPSILONS, true, strict=True):
        assert delta <= accounted.delta(epsilon) + 1e-4  # of the grid
    assert max(true) > 0.05


@pytest.mark.parametrize(("noise", "scale"), [("gaussian", 20.0), ("gamma", 20.0)])
def test_leaving_out_the_determinants_would_promise_too_much(noise, scale):
    """A record with curvature against one without: next to no noise is missing, yet the Hessians tell them apart."""
    X, Y = np.array([[1.0]]), np.array([[0.0]])
    (true,) = hockey_sticks(X, Y, 0.1, noise, scale, [0.5], (14.0 * scale + 5.0) / 0.1)
    whole = event(noise, scale, 0.1)
    without = event(noise, scale, 0.1, smoothness=0.0)
    assert objective_perturbation_delta(without, 0.5) < 1e-4 < true <= objective_perturbation_delta(whole, 0.5)


# --- what the curvature takes -------------------------------------------------------------------------------------

# A record of curvature 1/4 at w = 0, and one without any, in the place of each other; little convexity beside them, so
# that their Hessians tell them apart, and so much noise that b does not.
CURVED, FLAT = np.array([[1.0]]), np.array([[0.0]])
CONVEXITY, DELTA = 0.02, 1e-4


def true_deltas(noise, scale, convexity, epsilons):
    """The exact delta between the two records, with the noise and the quadratic term that a run has."""
    return hockey_sticks(CURVED, FLAT, convexity, noise, scale, epsilons, (14.0 * scale + 5.0) / convexity)


def planned(noise, variant, epsilon, **letters):
    problem = ProblemSpec(1, 1, get_loss("logistic"), Regularizer(), RealSpace())
    plan = get_algorithm("objective_perturbation").plan
    return plan(Setting(problem, epsilon, DELTA, variant), noise=noise, **letters)


@pytest.mark.parametrize(
    ("noise", "variant", "epsilon", "letters"),
    [
        ("gaussian", "published", 0.4, {"Delta": CONVEXITY}),
        ("gaussian", "certified", 3.0, {"Delta": CONVEXITY}),
        ("gaussian", "certified", 1.0, {}),
        ("gamma", "published", 6.0, {"Delta": CONVEXITY}),
        ("gamma", "certified", 2.0, {}),
    ],
)
def test_what_a_plan_runs_tells_no_more_than_its_event_of_a_record_that_curvature_tells_apart(
    noise, variant, epsilon, letters
):
    """The noise and the quadratic term are those that run, whatever the events of the plan state."""
    plan = planned(noise, variant, epsilon, **letters)
    accounted = account(plan.events, DELTA)
    epsilons = [*np.linspace(0.0, 1.3 * accounted.epsilon, 25), accounted.epsilon]
    true = true_deltas(noise, plan.sigma, plan.Delta, epsilons)
    for at, delta in zip(epsilons, true, strict=True):
        assert delta <= accounted.delta(at) + 1e-7
    assert true[-1] <= DELTA


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_plan_that_declares_a_part_of_the_curvature_breaks_its_claim(share, monkeypatch):
    """The claim is just above what a quarter or half of L = 1/4 takes: calibration finds noise that is too weak."""
    epsilon = math.log1p(share * 0.25 / CONVEXITY) + 0.4
    with pytest.raises(UserError, match="curvature alone takes"):
        planned("gaussian", "certified", epsilon, Delta=CONVEXITY)
    part = dataclasses.replace
    monkeypatch.setattr(
        objective_perturbation,
        "ObjectivePerturbationEvent",
        lambda *fields: part(declared := ObjectivePerturbationEvent(*fields), smoothness=share * declared.smoothness),
    )
    plan = planned("gaussian", "certified", epsilon, Delta=CONVEXITY)
    assert account(plan.events, DELTA).epsilon <= epsilon
    (spent,) = true_deltas("gaussian", plan.sigma, plan.Delta, [epsilon])
    assert spent > 10.0 * DELTA


@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_an_event_with_a_part_of_the_curvature_promises_too_much_and_one_with_all_of_it_does_not(noise, share):
    accounted = [account((event(noise, 20.0, CONVEXITY, smoothness=c),), DELTA) for c in (share * 0.25, 0.25)]
    for at, breaks in zip(accounted, (True, False), strict=True):
        (true,) = true_deltas(noise, 20.0, CONVEXITY, [at.epsilon])
        assert (true > 10.0 * DELTA) if breaks else (true <= DELTA)


# --- the factor of two --------------------------------------------------------------------------------------------


def expectation_of_two(mu, epsilon, rho):
    """E h(mu (|N| + |N'|)/2 + mu^2/2), h(z) = (1 - e^(epsilon - z))_+, for correlation rho, on a grid."""
    x = np.linspace(-9, 9, 1801)
    weights = np.exp(-0.5 * x * x) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    other = rho * x[:, None] + math.sqrt(1 - rho * rho) * x[None, :]
    loss = mu * (np.abs(x)[:, None] + np.abs(other)) / 2 + mu * mu / 2
    return float(weights @ np.maximum(-np.expm1(epsilon - loss), 0.0) @ weights)


@pytest.mark.parametrize(("mu", "epsilon"), [(0.1, 0.3), (0.35, 0.7), (0.35, 1.0), (1.0, 3.0), (2.0, 8.0)])
def test_twice_the_gaussian_delta_covers_two_directions_where_it_is_used(mu, epsilon):
    assert _halves_add_up(mu, epsilon)
    bound = 2.0 * gaussian_delta(mu, epsilon)
    for rho in (-0.9, -0.5, 0.0, 0.3, 0.8, 0.99):
        assert expectation_of_two(mu, epsilon, rho) <= bound * (1 + 1e-4)
    assert expectation_of_two(mu, epsilon, 1.0) == pytest.approx(bound, rel=2e-3), "attained by one direction"


def test_twice_would_be_too_little_elsewhere_and_is_not_used_there():
    assert not _halves_add_up(1.0, 0.5)
    assert expectation_of_two(1.0, 0.5, 0.0) > expectation_of_two(1.0, 0.5, 1.0)
    for mu, epsilon in ((1.0, 0.5), (1.0, 0.0), (0.3, -0.2), (3.0, 4.0)):
        for rho in (0.0, 0.5, 1.0):
            assert expectation_of_two(mu, epsilon, rho) <= 4.0 * gaussian_delta(mu, epsilon)


# --- accounting ---------------------------------------------------------------------------------------------------


def test_gamma_noise_is_pure_dp_whatever_delta():
    curvature = math.log1p(0.25 / 2.0)
    for delta in (1e-3, 1e-12):
        accounted = account((event("gamma", 4.0, 2.0),), delta)
        assert accounted.epsilon == pytest.approx(0.5 + curvature, rel=1e-12)
        assert accounted.lower == 0.0
        assert not accounted.tight
        assert accounted.delta(accounted.epsilon) == 0.0
        assert accounted.delta(1000.0) == 0.0
        assert 0.0 < accounted.delta(0.3) < 1.0


def test_gaussian_noise_spends_delta_at_the_accounted_epsilon():
    accounted = account((event("gaussian", 8.0, 2.0),), 1e-5)
    assert accounted.delta(accounted.epsilon) == pytest.approx(1e-5, rel=1e-6)
    assert accounted.epsilon > math.log1p(0.25 / 2.0)
    assert accounted.lower == 0.0
    conditioned = account((event("gaussian", 8.0, 2.0), ConditionEvent("c", 5e-6)), 1e-5)
    assert conditioned.epsilon == pytest.approx(account((event("gaussian", 8.0, 2.0),), 5e-6).epsilon)
    assert probability_sampled((event("gaussian", 8.0, 2.0),)) == 1.0


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_no_epsilon_is_given_without_noise_or_in_company(noise):
    others = [
        GaussianEvent("g", 1.0, (QueryPart(1.0, 9, 9),), 1),
        LaplaceEvent("l", 1.0, 1.0, 1),
        ObjectivePerturbationEvent("b2", noise, 1.0, 1.0, 1.0, 1.0, 1),
        UnprotectedEvent("u", 1),
    ]
    for other in others:
        accounted = account((event(noise, 8.0, 2.0), other), 1e-5)
        assert accounted.epsilon == math.inf
        assert accounted.delta(3.0) == 1.0
        assert accounted.lower == 0.0
    assert "composes objective perturbation" in account((event(noise, 8.0, 2.0), others[0]), 1e-5).accountant
    assert account((event(noise, 0.0, 2.0),), 1e-5).epsilon == math.inf


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_calibration_meets_the_target_and_says_when_the_curvature_alone_exceeds_it(noise, tmp_path, monkeypatch):
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path))
    one = event(noise, 1.0, 2.0)
    factor = smallest_scale((one,), 1.0, 1e-5)
    assert 0.99 <= account((one.scaled(factor),), 1e-5).epsilon <= 1.0
    if noise == "gamma":
        assert factor == pytest.approx(2.0 / (1.0 - math.log1p(0.125)), rel=2e-3)
    with pytest.raises(UserError, match=r"curvature alone takes epsilon = 1\.253"):
        smallest_scale((event(noise, 1.0, 0.1),), 1.0, 1e-5)


def test_the_event_survives_json_and_nonsense_is_refused():
    one = event("gamma", 1.5, 0.5)
    assert event_from_json(event_to_json(one)) == one
    assert one.scaled(3.0) == event("gamma", 4.5, 0.5)
    for arguments in (
        ("b", "laplace", 1.0, 1.0, 1.0, 1.0, 1),
        ("b", "gamma", -1.0, 1.0, 1.0, 1.0, 1),
        ("b", "gamma", 1.0, 0.0, 1.0, 1.0, 1),
        ("b", "gamma", 1.0, 1.0, math.nan, 1.0, 1),
        ("b", "gamma", 1.0, 1.0, 1.0, 0.0, 1),
        ("b", "gamma", 1.0, 1.0, 1.0, 1.0, 2),
    ):
        with pytest.raises(UserError, match=r"give|declare|use|must be"):
            ObjectivePerturbationEvent(*arguments)


# --- the noise ----------------------------------------------------------------------------------------------------


def draws(backend, one, d, seeds=12):
    tiles = [Ledger((one,), d, seed, list(range(64)), backend) for seed in range(seeds)]
    return np.concatenate([backend.to_host(tile.objective_perturbation("b").draw()) for tile in tiles])


@pytest.mark.parametrize("d", [1, 5])
def test_gamma_noise_has_the_radius_of_its_density_and_any_direction(backend, d):
    """768 radii in 16 cells and the signs of the coordinates by chi-square: false alarm below 1e-7 each."""
    b = draws(backend, event("gamma", 0.7, 1.0), d)
    assert b.shape == (768, d)
    ranks = gamma.cdf(np.linalg.norm(b, axis=1), d, scale=0.7)
    cells = np.bincount((ranks * 16).astype(int), minlength=16)
    assert chi2.sf(np.sum((cells - 48.0) ** 2) / 48.0, 15) > 1e-7
    signs = np.sum(b > 0, axis=0)
    assert chi2.sf(np.sum((signs - 384.0) ** 2) / 192.0, d) > 1e-7


def test_gaussian_noise_has_the_stated_scale(backend):
    """7680 normals: the standard error of the variance is 1.6 %; 5.4 of them."""
    b = draws(backend, event("gaussian", 3.0, 1.0), 10)
    assert np.var(b) == pytest.approx(9.0, rel=0.087)
    assert abs(np.mean(b)) < 5.4 * 3.0 / math.sqrt(b.size)


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_a_draw_depends_on_its_replicate_only_and_is_made_once(backend, noise):
    one = event(noise, 1.0, 1.0)
    book, other = Ledger((one,), 4, 3, [5, None, 9], backend), Ledger((one,), 4, 3, [9, 5], backend)
    with pytest.raises(LedgerMismatch, match="its plan accounts for"):
        book.check()
    b = backend.to_host(book.objective_perturbation("b").draw())
    np.testing.assert_array_equal(b[[2, 0]], backend.to_host(other.objective_perturbation("b").draw()))
    assert np.all(b[1] == 0.0)
    assert np.all(b[[0, 2]] != 0.0)
    book.check()
    with pytest.raises(LedgerMismatch, match="planned for 1 releases, but 2"):
        book.objective_perturbation("b").draw()
