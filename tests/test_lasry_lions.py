"""Lasry-Lions smoothing against closed forms, and Appendix C of KLT25 on functions of one and two variables."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprepro import lasry_lions
from dprepro.errors import UserError
from dprepro.lasry_lions import Instance, measure, moreau, peak, saddle, smooth, zigzag

LAMBDA = 0.1
INSTANCES = [
    (zigzag(0.3), 2.0, 0.0015),
    (zigzag(1.0), 2.0, 0.005),
    (zigzag(3.0), 2.0, 0.005),
    (peak(1.0, 1), 1.5, 0.005),
    (peak(3.0, 2), 1.5, 0.02),
    (saddle(1.0), 1.5, 0.01),
]
NAMES = [instance.name for instance, *_ in INSTANCES]


def absolute(L):
    return Instance("absolute value", 1, L, lambda W: L * np.abs(W[:, 0]), lambda W: L * np.sign(W))


@pytest.mark.parametrize("L", [0.3, 1.0, 3.0])
def test_the_envelope_of_the_absolute_value_is_hubers(L):
    """Kinks at multiples of the step: minimisers are on the grid but for offsets that all points share."""
    step, lam = 0.01 * L * LAMBDA, LAMBDA
    t = step * np.arange(-400, 401)
    found = moreau(L * np.abs(t), step, lam, L * lam + step)
    inner = t[101:-101]
    huber = np.where(np.abs(inner) <= L * lam, inner**2 / (2 * lam), L * np.abs(inner) - 0.5 * L**2 * lam)
    np.testing.assert_allclose(found, huber, atol=1e-9)


@pytest.mark.parametrize("L", [0.3, 1.0, 3.0])
def test_the_smoothed_absolute_value_is_a_parabola_of_curvature_one_over_lambda(L):
    """h_LL = x^2/(2 lambda) for |x| <= lambda L, and L|x| - L^2 lambda/2 beyond."""
    step = 0.02 * L * LAMBDA
    found = smooth(absolute(L), LAMBDA, 200 * step, step)
    x = found.points[:, 0]
    expected = np.where(np.abs(x) <= LAMBDA * L, x**2 / (2 * LAMBDA), L * np.abs(x) - 0.5 * L**2 * LAMBDA)
    np.testing.assert_allclose(found.values, expected, atol=1e-9)


def test_in_two_dimensions_the_envelope_of_a_sum_is_the_sum_of_envelopes():
    step, reach = 0.02, 0.3
    t = step * np.arange(-60, 61)
    along, across = np.abs(t), np.cos(3.0 * t)
    together = moreau(along[:, None] + across[None, :], step, LAMBDA, reach)
    apart = moreau(along, step, LAMBDA, reach)[:, None] + moreau(across, step, LAMBDA, reach)[None, :]
    np.testing.assert_allclose(together, apart, atol=1e-12)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_smoothing_is_the_two_minimisations_written_out(seed):
    """max_z min_y over all points of the grid, with minimisers that the window would have missed if any were there."""
    instance, step = zigzag(1.0, seed=seed, pieces=12), 0.0125
    found = smooth(instance, LAMBDA, 0.5, step)
    y = step * np.arange(-120, 121)
    h = instance.value(y[:, None])
    inner = np.min(h[None, :] + (y[None, :] - y[:, None]) ** 2 / (4 * LAMBDA), axis=1)
    x = found.points[:, 0]
    outer = np.max(inner[None, :] - (y[None, :] - x[:, None]) ** 2 / (2 * LAMBDA), axis=1)
    np.testing.assert_allclose(found.values, outer, atol=1e-12)


@pytest.mark.parametrize(("instance", "half", "step"), INSTANCES, ids=NAMES)
def test_fact_c2_and_lemma_c3_hold_with_the_corrected_constants(instance, half, step):
    facts, L = measure(instance, LAMBDA, half, step, points=60), instance.L
    assert facts.steepest <= 1.02 * L
    assert facts.above <= 1e-12
    assert 0.0 < facts.below <= L**2 * LAMBDA * (1 + 1e-9)
    assert 0.8 / LAMBDA <= facts.smoothness <= 1.02 / LAMBDA
    assert facts.minimum <= 1e-12
    assert facts.minimisers <= 1e-9
    assert facts.excess <= 0.02 * L


def test_a_radius_below_that_of_lemma_c3_would_not_do(monkeypatch):
    """At a twentieth of the radius, the bound exceeds the gradient of h_LL somewhere: the check can fail."""
    plain = lasry_lions.certificate
    monkeypatch.setattr(lasry_lions, "certificate", lambda risk, W, radius: plain(risk, W, 0.05 * radius))
    assert measure(zigzag(1.0), LAMBDA, 2.0, 0.005).excess > 0.1


def test_the_deviation_is_attained_at_a_peak_and_exceeds_the_printed_bound():
    facts = measure(peak(3.0, 1), LAMBDA, 1.5, 0.005, points=5)
    assert facts.below == pytest.approx(0.9, rel=1e-9)
    assert facts.below > 2.9 * 3.0 * LAMBDA


@pytest.mark.parametrize("instance", [instance for instance, *_ in INSTANCES], ids=NAMES)
def test_instances_have_their_lipschitz_constant_and_their_gradient(instance):
    rng = np.random.default_rng(0)
    W, V = rng.uniform(-2, 2, (2, 2000, instance.d))
    change = np.abs(instance.value(W) - instance.value(V))
    assert np.all(change <= instance.L * np.linalg.norm(W - V, axis=1) * (1 + 1e-12))
    tiny = 1e-7
    for j in range(instance.d):
        move = tiny * np.eye(instance.d)[j]
        slope = (instance.value(W + move) - instance.value(W - move)) / (2 * tiny)
        # Points within 1e-7 of a kink are rare.
        assert np.mean(np.abs(slope - instance.gradient(W)[:, j]) > 1e-5) < 0.01
    assert np.max(np.linalg.norm(instance.gradient(W), axis=1)) == pytest.approx(instance.L)


def test_what_makes_no_sense_is_refused():
    cube = dataclasses.replace(peak(1.0, 2), d=3)
    with pytest.raises(UserError, match="one and two dimensions, not in 3"):
        smooth(cube, LAMBDA, 1.0, 0.1)
    with pytest.raises(UserError, match="lambda of a Lasry-Lions smoothing is 0"):
        smooth(peak(1.0, 1), 0.0, 1.0, 0.1)
    with pytest.raises(UserError, match="too small for minimisers"):
        moreau(np.zeros(5), 0.1, 1.0, math.pi)
