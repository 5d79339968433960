"""Contracting steps of which only the last iterate is released (Bok, Su and Altschuler 2024)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprepro.errors import UserError
from dprepro.privacy.accounting import account, gaussian_delta, gaussian_epsilon, is_gaussian, last_iterate_mu
from dprepro.privacy.calibrate import smallest_scale
from dprepro.privacy.events import GaussianEvent, QueryPart, event_from_json, event_to_json


def steps(count, contraction, sigma=2.0, sensitivity=0.1):
    return GaussianEvent("step", sigma, (QueryPart(sensitivity, 100, 100),), count, contraction)


@pytest.mark.parametrize("c", [0.3, 0.9, 0.999])
@pytest.mark.parametrize("count", [1, 2, 7, 400])
def test_the_last_iterate_of_linear_steps_has_exactly_this_mu(c, count):
    """w <- c w + (shift of 0.1) + N(0, 4), written out: both means and the variance by recursion."""
    one = other = variance = 0.0
    for _ in range(count):
        one, other, variance = c * one + 0.05, c * other - 0.05, c * c * variance + 2.0**2
    accounted = account((steps(count, c),), 1e-5)
    assert last_iterate_mu(0.05, count, c) == pytest.approx((one - other) / math.sqrt(variance), rel=1e-9)
    assert accounted.epsilon == pytest.approx(gaussian_epsilon((one - other) / math.sqrt(variance), 1e-5), rel=1e-9)
    assert accounted.lower == accounted.epsilon, "linear steps attain it"
    assert is_gaussian((steps(count, c),))


@given(st.floats(1e-6, 1.0, exclude_max=True), st.integers(1, 10_000))
def test_mu_grows_with_the_steps_and_stays_below_its_limit_and_plain_composition(c, count):
    mu = last_iterate_mu(1.0, count, c)
    assert 1.0 - 1e-12 <= mu <= last_iterate_mu(1.0, count + 1, c) * (1 + 1e-12)
    assert mu <= math.sqrt(count)
    assert mu <= math.sqrt((1 + c) / (1 - c)) * (1 + 1e-12)


def test_without_contraction_it_is_plain_composition_and_near_it_nothing_jumps():
    assert last_iterate_mu(0.3, 50, 1.0) == 0.3 * math.sqrt(50)
    assert last_iterate_mu(0.3, 50, 1.0 - 1e-9) == pytest.approx(0.3 * math.sqrt(50), rel=1e-6)
    assert account((steps(50, 1.0),), 1e-5).epsilon == pytest.approx(gaussian_epsilon(0.05 * math.sqrt(50), 1e-5))


def last_density(step, sigma, count, w):
    """The density on the grid w of the last iterate from w = 0: one convolution with the noise per step."""
    width = w[1] - w[0]
    law = np.exp(-0.5 * ((w - step(0.0)) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    kernel = np.exp(-0.5 * ((w[:, None] - step(w)[None, :]) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    for _ in range(count - 1):
        law = kernel @ law * width
    assert law.sum() * width == pytest.approx(1.0, abs=1e-9)
    return law


@pytest.mark.parametrize(("sigma", "count"), [(1.0, 6), (0.5, 12), (2.0, 40)])
def test_logistic_steps_on_two_points_stay_below_the_accounted_delta(sigma, count):
    """The exact law of the last iterate of ridge logistic regression on two records, one of which is replaced."""
    eta, ridge = 0.8, 0.3
    w = (10.0 * sigma + 6.0) * np.linspace(-1, 1, 1201)

    def step_on(*records):
        def gradient(v):
            return sum(-x / (1 + np.exp(x * v)) for x in records) / len(records) + ridge * v

        return lambda v: v - eta * gradient(v)

    # |x| <= 1: the slope of a step is between 1 - eta (1/4 + ridge) and 1 - eta ridge, a record moves it by eta
    c, sensitivity = 1.0 - eta * ridge, eta * 2.0 / 2.0
    laws = [last_density(step_on(1.0, x), eta * sigma, count, w) for x in (1.0, -1.0)]
    bound = account((steps(count, c, eta * sigma, sensitivity),), 1e-5)
    plain = account((steps(count, 1.0, eta * sigma, sensitivity),), 1e-5)
    for epsilon in (0.0, 0.2, 0.7, 1.5):
        for p, q in (laws, laws[::-1]):
            delta = np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * (w[1] - w[0])
            assert delta <= bound.delta(epsilon) + 1e-9
    # the bound is neither far off nor that of all iterates
    total_variation = np.maximum(laws[0] - laws[1], 0.0).sum() * (w[1] - w[0])
    assert total_variation > 0.2 * bound.delta(0.0)
    assert bound.epsilon < 0.95 * plain.epsilon


def test_contracting_blocks_compose_with_other_releases_as_gaussian_dp():
    other = GaussianEvent("other", 1.0, (QueryPart(0.3, 100, 100),), 4)
    mu = math.hypot(last_iterate_mu(0.05, 30, 0.9), 0.3 * 2.0)
    accounted = account((steps(30, 0.9), other), 1e-5)
    assert accounted.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-12)
    assert accounted.delta(1.0) == pytest.approx(gaussian_delta(mu, 1.0), rel=1e-9)


def test_calibration_needs_less_noise_with_a_contraction(tmp_path, monkeypatch):
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path))
    factors = [smallest_scale((steps(100, c),), 1.0, 1e-5) for c in (0.8, 1.0)]
    assert factors[0] / factors[1] == pytest.approx(math.sqrt(1.8 / 0.2 / 100), rel=2e-3)


def test_the_contraction_survives_json_and_nonsense_is_refused():
    event = steps(9, 0.75)
    assert event_from_json(event_to_json(event)) == event
    for c in (0.0, -0.5, 1.5, math.nan):
        with pytest.raises(UserError, match=r"give a number in \(0, 1\]"):
            steps(9, c)
    for poisson in (False, True):
        with pytest.raises(UserError, match="contraction and random batches"):
            GaussianEvent("step", 1.0, (QueryPart(1.0, 5, 100, poisson),), 9, 0.9)
