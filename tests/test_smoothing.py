"""The Moreau envelope of losses with kinks and the bisection oracle (BGM21, section 3.1 and Algorithm 3)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dprepro.arrays import get_backend, strict_backend
from dprepro.errors import UserError
from dprepro.losses import Absolute, Hinge, Huber, Insensitive, Logistic, Loss, Pinball, SoftLogistic, Squared, get_loss
from dprepro.smoothing import MoreauEnvelope, bisection_derivative, halvings

PIECEWISE = [Absolute(), Hinge(), Pinball(0.5), Pinball(0.8), Insensitive(0.1), Insensitive(0.7)]
LIPSCHITZ = [*PIECEWISE, Logistic(), SoftLogistic(), Huber(0.3)]
SIZES = [10**2, 10**3, 10**4, 10**5, 10**6, 10**7]
ROW_NORM, DIAMETER = 1.5, 2.0


def named(losses):
    return pytest.mark.parametrize("loss", losses, ids=lambda loss: loss.full_name)


def steepest(loss):
    return loss.lipschitz(1.0, math.inf, 1.0)


def theorem_numbers(loss, n):
    """Return beta and alpha of BGM21's Theorems 5 and 6 for n samples."""
    L0 = steepest(loss)
    return math.sqrt(n) * L0 / (ROW_NORM * DIAMETER), L0 * ROW_NORM / (n * math.log(n))


def grid(loss, beta):
    """Return 10^4 points (t, y): half of them where the envelope bends, half over all inner products."""
    L0 = steepest(loss)
    y = np.linspace(-1.0, 1.0, 20)[:, None]
    width = getattr(loss, "width", 0.0)
    near = np.linspace(-width - 3 * L0 / beta, width + 3 * L0 / beta, 250)
    wide = np.linspace(-ROW_NORM * DIAMETER, ROW_NORM * DIAMETER, 250)
    offsets = np.concatenate([near, wide])[None, :]
    t = np.concatenate([offsets + (1.0 if loss.margin else y), offsets * (1.0 + 0.01 * y)])
    return t, np.concatenate([y, y])


# The envelope


@named(PIECEWISE)
def test_the_envelope_is_the_minimum_that_defines_it(loss):
    beta = 2.5
    envelope = MoreauEnvelope(loss, beta)
    t = np.linspace(-3.0, 3.0, 31)
    y = np.where(np.arange(31) % 2, 0.5, -0.7)

    def proximal(u, at, label):
        return float(loss.value(np, np.float64(u), np.float64(label))) + 0.5 * beta * (u - at) ** 2

    expected = [
        minimize_scalar(proximal, bounds=(at - 1.0, at + 1.0), args=(at, label), method="bounded").fun
        for at, label in zip(t, y, strict=True)
    ]
    np.testing.assert_allclose(envelope.value(np, t, y), expected, atol=1e-5)
    prox = loss.prox(np, t, y, 1.0 / beta)
    exact = loss.value(np, prox, y) + 0.5 * beta * (prox - t) ** 2
    np.testing.assert_allclose(envelope.value(np, t, y), exact, atol=1e-14)
    np.testing.assert_allclose(envelope.derivative(np, t, y), beta * (t - prox), atol=1e-14)


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(PIECEWISE),
    st.floats(1e-3, 1e6),
    st.floats(-20.0, 20.0),
    st.floats(-20.0, 20.0),
    st.floats(-1.0, 1.0),
)
def test_the_envelope_is_convex_lipschitz_smooth_and_close(loss, beta, s, t, y):
    """BGM21's Lemma 18 with L0 in place of 2 L0, and Lemma 3's bound with L0^2/(2 beta) in place of 2 L0^2/beta."""
    L0, envelope = steepest(loss), MoreauEnvelope(loss, beta)
    points, label = np.array([s, t]), np.full(2, y)
    at_s, at_t = envelope.derivative(np, points, label)
    gap = loss.value(np, points, label) - envelope.value(np, points, label)
    assert np.all((gap >= -1e-13) & (gap <= L0**2 / (2.0 * beta) + 1e-13))
    assert max(abs(at_s), abs(at_t)) <= L0
    # Rounding of t - y, times beta, is all that may be lost.
    assert -1e-14 * beta <= (at_t - at_s) * math.copysign(1.0, t - s) <= beta * (abs(t - s) + 1e-14) + 1e-15


@named(PIECEWISE)
def test_the_bounds_of_the_envelope_are_reached(loss):
    beta = 40.0
    envelope = MoreauEnvelope(loss, beta)
    t, y = np.linspace(-3.0, 3.0, 601), np.full(601, 0.3)
    gap = loss.value(np, t, y) - envelope.value(np, t, y)
    assert np.max(gap) == pytest.approx(steepest(loss) ** 2 / (2.0 * beta))
    assert np.max(np.abs(envelope.derivative(np, t, y))) == steepest(loss)
    assert np.max(envelope.curvature(np, t, y)) == beta == envelope.smoothness(1.0)


def test_constants_of_the_envelope_scale_with_the_row_norm():
    envelope = get_loss("moreau:10:pinball:0.8")
    assert envelope.lipschitz(3.0, math.inf, 1.0) == pytest.approx(3.0 * 0.8)
    assert envelope.gradient_spread(3.0, math.inf, 1.0) == pytest.approx(3.0)
    assert envelope.smoothness(3.0) == 90.0
    assert (envelope.smooth, envelope.convex, envelope.margin) == (True, True, False)
    assert envelope.weak_convexity(3.0) == 0.0
    assert get_loss("moreau:10:hinge").margin


def test_the_envelope_of_the_absolute_loss_is_a_scaled_huber_loss():
    t, y = np.linspace(-3.0, 3.0, 101), np.full(101, 0.3)
    envelope, huber = MoreauEnvelope(Absolute(), 4.0), Huber(0.25)
    np.testing.assert_allclose(envelope.value(np, t, y), 4.0 * huber.value(np, t, y), atol=1e-14)
    np.testing.assert_allclose(envelope.derivative(np, t, y), 4.0 * huber.derivative(np, t, y), atol=1e-14)


@named(PIECEWISE)
def test_single_precision_slopes_of_a_sharp_envelope_keep_their_digits(loss):
    """A difference beta (t - prox) would lose beta times the machine precision: 6e-4 here."""
    envelope = MoreauEnvelope(loss, 1e4)
    y = np.linspace(-1.0, 1.0, 50, dtype=np.float32)[:, None]
    t = (1.0 if loss.margin else y) + np.linspace(-2e-4, 2e-4, 41, dtype=np.float32)
    exact = envelope.derivative(np, t.astype(np.float64), y.astype(np.float64))
    found = envelope.derivative(np, t, y)
    assert found.dtype == np.float32
    # Kinks away from 0 cost the rounding of the width once.
    np.testing.assert_allclose(found, exact, atol=1e-6 + 1e4 * 6e-8 * getattr(loss, "width", 0.0))


# The bisection oracle


def error(loss, found, t, y, beta):
    """Return |found - derivative of the envelope|: by the closed form, or by a fixed-point iteration.

    For a smooth loss, phi'(t - g/beta) - g has a slope in g between -(1 + L/beta) and -1; every step of the iteration
    shrinks the distance to its root by 1/(1 + beta/L), here at least 1/2.
    """
    if loss in PIECEWISE:
        return np.abs(found - MoreauEnvelope(loss, beta).derivative(np, t, y))
    g = np.zeros_like(found)
    for _ in range(60):
        g = g + (loss.derivative(np, t - g / beta, y) - g) / (1.0 + loss.smoothness(1.0) / beta)
    return np.abs(found - g)


@pytest.mark.parametrize("n", SIZES)
@named(LIPSCHITZ)
def test_the_oracle_keeps_its_accuracy_at_every_sample_size(loss, n):
    """BGM21, Lemma 4: for ||x|| <= R the gradient's error is at most alpha; here half of that and rounding."""
    beta, alpha = theorem_numbers(loss, n)
    t, y = grid(loss, beta)
    found = bisection_derivative(np, loss, t, y, beta, alpha, ROW_NORM)
    assert found.shape == t.shape
    assert found.size >= 10_000
    assert np.max(error(loss, found, t, y, beta)) * ROW_NORM <= 0.51 * alpha


def test_the_oracle_takes_any_shape_on_both_array_libraries():
    t, y = np.linspace(-2.0, 2.0, 24).reshape(2, 3, 4), np.linspace(-1.0, 1.0, 4)
    for loss in LIPSCHITZ:
        on_host = bisection_derivative(np, loss, t, y, 30.0, 1e-6)
        for backend in (get_backend("cpu", "float64"), strict_backend("float64")):
            found = bisection_derivative(backend.xp, loss, backend.asarray(t), backend.asarray(y), 30.0, 1e-6)
            np.testing.assert_allclose(backend.to_host(found), on_host, atol=1e-12)
        scalar = bisection_derivative(np, loss, np.asarray(0.4), np.asarray(0.1), 30.0, 1e-6)
        assert scalar.shape == ()


def test_the_oracle_ignores_the_labels_of_a_margin_loss():
    t = np.linspace(-2.0, 3.0, 11)
    with_label = bisection_derivative(np, Hinge(), t, np.ones(11), 5.0, 1e-9)
    np.testing.assert_array_equal(bisection_derivative(np, Hinge(), t, None, 5.0, 1e-9), with_label)


@named(LIPSCHITZ)
def test_the_oracle_in_single_precision_loses_no_more_than_rounding(loss):
    for n in SIZES[:3]:
        beta, alpha = theorem_numbers(loss, n)
        t, y = (values.astype(np.float32) for values in grid(loss, beta))
        found = bisection_derivative(np, loss, t, y, beta, alpha, ROW_NORM)
        assert found.dtype == np.float32
        lost = error(loss, found.astype(np.float64), t.astype(np.float64), y.astype(np.float64), beta)
        rounding = np.finfo(np.float32).eps * (1.0 + beta * (1.0 + np.max(np.abs(t))))
        assert np.max(lost) <= 0.5 * alpha / ROW_NORM + rounding


class Counting(Loss):
    """A loss that counts how often its derivative is asked for."""

    def __init__(self, loss):
        self.loss, self.calls = loss, 0

    def derivative(self, xp, t, y):
        self.calls += 1
        return self.loss.derivative(xp, t, y)

    def lipschitz(self, row_norm, radius, label_bound):
        return self.loss.lipschitz(row_norm, radius, label_bound)


@pytest.mark.parametrize("n", SIZES)
def test_the_oracle_costs_a_logarithmic_number_of_slopes(n):
    beta, alpha = theorem_numbers(Absolute(), n)
    counting = Counting(Absolute())
    bisection_derivative(np, counting, *grid(Absolute(), beta), beta, alpha, ROW_NORM)
    assert counting.calls == halvings(Absolute(), alpha, ROW_NORM) == math.ceil(math.log2(4.0 * n * math.log(n)))
    # The paper's count, for values instead of signs, is twice as large.
    assert counting.calls <= 0.5 * math.ceil(math.log2(16.0 * (n * math.log(n)) ** 2)) + 1


def test_an_accuracy_that_zero_already_has_costs_nothing():
    assert halvings(Pinball(0.5), 4.0) == 0
    assert bisection_derivative(np, Pinball(0.5), np.ones(3), np.zeros(3), 2.0, 4.0).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("loss", "beta", "alpha", "row_norm"),
    [
        (Squared(), 1.0, 1e-3, 1.0),
        (get_loss("welsch"), 1.0, 1e-3, 1.0),
        (get_loss("mcp"), 1.0, 1e-3, 1.0),
        (Hinge(), 0.0, 1e-3, 1.0),
        (Hinge(), 1.0, math.inf, 1.0),
        (Hinge(), 1.0, 0.0, 1.0),
        (Hinge(), 1.0, 1e-3, -1.0),
    ],
)
def test_the_oracle_refuses_what_it_cannot_smooth(loss, beta, alpha, row_norm):
    with pytest.raises(UserError, match=r"not convex and Lipschitz|give a positive number"):
        bisection_derivative(np, loss, np.zeros(3), np.zeros(3), beta, alpha, row_norm)


# Why the oracle is not the printed algorithm


def printed_derivative(loss, t, y, beta, alpha, *, weight, better_half):
    """BGM21's Algorithm 3, lines 1 to 11, on the whole line.

    As printed the squared distance has the weight 1 and the half with the larger value is kept; the proof of Lemma 4
    has the weight beta/2.
    """
    L0 = steepest(loss)

    def h(u):
        return loss.value(np, u, y) + weight * (u - t) ** 2

    a, b = t - 2.0 * L0 / beta, t + 2.0 * L0 / beta
    best = 0.5 * (a + b)
    for _ in range(math.ceil(math.log2(16.0 * (L0 * ROW_NORM / alpha) ** 2))):
        middle = 0.5 * (a + b)
        best = np.where(h(middle) < h(best), middle, best)
        right_is_better = h(0.5 * (a + middle)) >= h(0.5 * (middle + b))
        keep_right = right_is_better if better_half else ~right_is_better
        a, b = np.where(keep_right, middle, a), np.where(keep_right, b, middle)
    return beta * (t - best)


@named(PIECEWISE)
def test_the_printed_oracle_is_wrong_by_the_whole_slope(loss):
    n = 10**5
    beta, alpha = theorem_numbers(loss, n)
    t, y = grid(loss, beta)
    found = printed_derivative(loss, t, y, beta, alpha, weight=1.0, better_half=False)
    worst = np.max(error(loss, found, t, y, beta))
    assert worst >= 0.99 * steepest(loss)
    assert worst * ROW_NORM >= 1e6 * alpha


@named(PIECEWISE)
def test_swapping_the_branches_and_restoring_the_weight_is_not_enough(loss):
    """Equal values at the quarter points bound the minimiser by a quarter point, not by the middle."""
    n = 10**5
    beta, alpha = theorem_numbers(loss, n)
    t, y = grid(loss, beta)
    found = printed_derivative(loss, t, y, beta, alpha, weight=0.5 * beta, better_half=True)
    worst = np.max(error(loss, found, t, y, beta))
    assert 0.04 * steepest(loss) <= worst <= 0.3 * steepest(loss)
    assert worst * ROW_NORM >= 4e4 * alpha


def test_the_best_value_does_not_find_the_slope_at_ten_million_samples():
    """Values are flat at a minimum: the best of the midpoints by value misses alpha where the last one does not."""
    loss, n = Logistic(), 10**7
    beta, alpha = theorem_numbers(loss, n)
    t, _ = grid(loss, beta)
    best = g = np.zeros_like(t)

    def h(slope):
        return loss.value(np, t - slope / beta, None) + slope**2 / (2.0 * beta)

    half = 2.0 * steepest(loss)
    for _ in range(halvings(loss, alpha, ROW_NORM)):
        half *= 0.5
        g = np.where(loss.derivative(np, t - g / beta, None) > g, g + half, g - half)
        best = np.where(h(g) < h(best), g, best)
    assert np.max(error(loss, g, t, None, beta)) * ROW_NORM <= alpha
    assert np.max(error(loss, best, t, None, beta)) * ROW_NORM >= 10.0 * alpha


def test_on_a_bounded_interval_the_slope_outside_it_would_be_unbounded():
    """With the prox confined to [-1, 1] and a point at 2.8, where noise may take it, the slope is 18 instead of 1."""
    t, y, beta = np.array([2.8]), np.array([0.0]), 10.0
    confined = np.clip(Absolute().prox(np, t, y, 1.0 / beta), -1.0, 1.0)
    assert float(beta * (t - confined)[0]) == pytest.approx(18.0)
    assert float(bisection_derivative(np, Absolute(), t, y, beta, 1e-9)[0]) == pytest.approx(1.0)
