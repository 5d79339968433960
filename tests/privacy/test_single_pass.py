"""Events of one-pass algorithms: selections on which records have a fading influence, releases on disjoint batches."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest
from support import randomised_response_delta

from dprepro.arrays import get_backend
from dprepro.errors import LedgerMismatch, UserError
from dprepro.privacy.accounting import account, gaussian_epsilon, is_gaussian
from dprepro.privacy.calibrate import smallest_scale
from dprepro.privacy.composition import zcdp_delta, zcdp_epsilon
from dprepro.privacy.events import (
    DisjointGaussianEvent,
    FadingSelectionEvent,
    GaussianEvent,
    ParallelEvent,
    QueryPart,
    SelectionEvent,
    event_from_json,
    event_to_json,
)
from dprepro.privacy.mechanisms import Ledger

PROFILES = (((1.0, 1), (0.4, 3)), ((0.8, 4),), ((0.3, 9),))
FADING = FadingSelectionEvent("fading", "laplace", 8.0, PROFILES, 9)
DISJOINT = DisjointGaussianEvent("disjoint", (1.0, 3.0, 2.0), (0.5, 1.0, 1.5), 7)


def ledger(event, replicates=4, d=3):
    return Ledger((event,), d, 0, list(range(replicates)), get_backend("cpu", "float64"))


@pytest.mark.parametrize("noise", ["laplace", "gumbel"])
def test_fading_selections_cost_as_much_as_their_costliest_profile(noise):
    event = dataclasses.replace(FADING, noise=noise)
    branches = tuple(
        tuple(SelectionEvent(f"{i},{j}", noise, 8.0, *level) for j, level in enumerate(profile))
        for i, profile in enumerate(PROFILES)
    )
    spent = account([event], 1e-6)
    assert spent.epsilon == account([ParallelEvent("parallel", branches)], 1e-6).epsilon
    assert spent.epsilon == max(account(branch, 1e-6).epsilon for branch in branches)
    assert spent.delta(0.3) == max(account(branch, 1e-6).delta(0.3) for branch in branches)


def test_fading_selections_by_laplace_noise_compose_as_randomised_responses():
    spent = account([FADING], 1e-6).epsilon
    budgets = [[2.0 * s / 8.0 for s, count in profile for _ in range(count)] for profile in PROFILES]
    assert max(randomised_response_delta(each, spent) for each in budgets) <= 1e-6
    assert max(randomised_response_delta(each, 0.995 * spent) for each in budgets) > 1e-6


def test_many_selections_by_gumbel_noise_add_up_as_zcdp():
    profile = ((1.0, 30), (0.5, 100))
    event = FadingSelectionEvent("fading", "gumbel", 50.0, (profile,), 130)
    rho = sum(count * (2.0 * s / 50.0) ** 2 / 8.0 for s, count in profile)
    spent = account([event], 1e-6)
    assert spent.epsilon == pytest.approx(zcdp_epsilon(rho, 1e-6))
    assert spent.delta(spent.epsilon) <= 1e-6 * (1 + 1e-6)
    assert spent.epsilon < 0.6 * account([dataclasses.replace(event, noise="laplace")], 1e-6).epsilon


def test_a_few_selections_by_gumbel_noise_cost_no_more_than_their_sum():
    event = FadingSelectionEvent("fading", "gumbel", 50.0, (((1.0, 1), (0.5, 2)),), 3)
    assert account([event], 1e-6).epsilon == pytest.approx(2.0 * (1.0 + 0.5 + 0.5) / 50.0)


@settings(deadline=None, max_examples=30)
@given(rho=st.floats(1e-6, 30.0), delta=st.floats(1e-12, 1e-2))
def test_zcdp_delta_inverts_zcdp_epsilon(rho, delta):
    epsilon = zcdp_epsilon(rho, delta)
    if epsilon > 0.0:
        assert zcdp_delta(rho, epsilon) == pytest.approx(delta, rel=1e-5)
        assert zcdp_delta(rho, 1.1 * epsilon) < delta


def test_calibration_knows_of_the_bounded_range():
    events = [FadingSelectionEvent("fading", "gumbel", 1.0, (((1.0, 30), (0.5, 100)),), 130)]
    factor = smallest_scale(events, 1.0, 1e-6)
    assert 0.997 < account([events[0].scaled(factor)], 1e-6).epsilon <= 1.0


def test_releases_on_disjoint_batches_cost_as_much_as_the_least_noisy_one():
    spent = account([DISJOINT], 1e-6)
    assert spent.epsilon == pytest.approx(gaussian_epsilon(1.5 / 2.0, 1e-6))
    branches = tuple(
        (GaussianEvent(str(i), sigma, (QueryPart(s, 1, 1),), 1),)
        for i, (sigma, s) in enumerate(zip(DISJOINT.sigmas, DISJOINT.sensitivities, strict=True))
    )
    assert spent.epsilon == account([ParallelEvent("parallel", branches)], 1e-6).epsilon
    assert is_gaussian([DISJOINT])
    twice = account([DISJOINT, dataclasses.replace(DISJOINT, label="again")], 1e-6)
    assert twice.epsilon == pytest.approx(gaussian_epsilon(2**0.5 * 0.75, 1e-6))


@pytest.mark.parametrize("event", [FADING, DISJOINT])
def test_the_events_survive_json_and_scale_with_their_noise(event):
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event
    assert account([event.scaled(2.0)], 1e-6).epsilon < account([event], 1e-6).epsilon
    assert account([event.scaled(0.0)], 1e-6).epsilon == np.inf
    assert account([dataclasses.replace(event, count=0)], 1e-6).epsilon == 0.0


def test_events_without_sensitivities_are_refused():
    with pytest.raises(UserError, match="declares no sensitivity"):
        dataclasses.replace(FADING, profiles=())
    with pytest.raises(UserError, match="declare a finite number > 0"):
        dataclasses.replace(FADING, profiles=(((0.0, 1),),))
    with pytest.raises(UserError, match="use laplace or gumbel"):
        dataclasses.replace(FADING, noise="gaussian")
    with pytest.raises(UserError, match="give one of each for every kind"):
        dataclasses.replace(DISJOINT, sigmas=(1.0,))
    with pytest.raises(UserError, match="declare a finite number > 0"):
        dataclasses.replace(DISJOINT, sensitivities=(1.0, 0.0, 1.0))


def test_the_ledger_counts_fading_selections():
    book = ledger(FADING)
    for _ in range(9):
        book.selection("fading").largest(np.zeros((4, 5)))
    book.check()
    with pytest.raises(LedgerMismatch, match="planned for 9 releases"):
        book.selection("fading").largest(np.zeros((4, 5)))


def test_the_ledger_counts_releases_on_disjoint_batches():
    book = ledger(DISJOINT)
    for release in range(7):
        with pytest.raises(LedgerMismatch):
            book.check()
        book.disjoint_gaussian("disjoint").noise(release % 3)
    book.check()
    with pytest.raises(LedgerMismatch, match="planned for 7 releases"):
        book.disjoint_gaussian("disjoint").noise(0)


def test_noise_of_each_kind_has_its_own_size_and_is_drawn_afresh():
    """Kolmogorov-Smirnov on 3000 numbers of each release; false alarm below 1e-6 in all."""
    book = ledger(DISJOINT, replicates=100, d=30)
    draws = [book.disjoint_gaussian("disjoint").noise(kind) for kind in (0, 1, 2, 1)]
    for draw, sigma in zip(draws, (1.0, 3.0, 2.0, 3.0), strict=True):
        assert kstest(np.ravel(draw) / sigma, "norm").pvalue > 1e-7
    assert abs(np.corrcoef(np.ravel(draws[1]), np.ravel(draws[3]))[0, 1]) < 5.2 / 3000**0.5
    silent = ledger(DISJOINT.scaled(0.0))
    assert np.all(silent.disjoint_gaussian("disjoint").noise(2) == 0.0)
