from __future__ import annotations

import mpmath
import numpy as np
import pytest

from dprepro.errors import UserError
from dprepro.losses import LOSSES, Huber, Logistic, LogisticAsPrinted, get_loss

MARGINS = np.array([-1000.0, -50.0, -3.0, -1e-3, 0.0, 1e-3, 2.0, 37.0, 700.0, 1000.0])


@pytest.mark.parametrize(
    ("loss", "exact"),
    [
        (Logistic(), lambda t: mpmath.log1p(mpmath.exp(-t))),
        (LogisticAsPrinted(), lambda t: mpmath.log1p(mpmath.exp(1 + t))),
    ],
)
def test_logistic_losses_agree_with_mpmath_also_at_a_thousand(loss, exact):
    with mpmath.workdps(50), np.errstate(all="raise", under="ignore"):
        value = loss.value(np, MARGINS, None)
        slope = loss.derivative(np, MARGINS, None)
        for t, v, s in zip(MARGINS, value, slope, strict=True):
            assert float(abs(v - exact(mpmath.mpf(t)))) <= 1e-13 * max(1.0, abs(v))
            assert float(abs(s - mpmath.diff(exact, mpmath.mpf(t)))) <= 1e-14


def test_single_precision_logistic_neither_overflows_nor_loses_its_value():
    margins = MARGINS.astype(np.float32)
    with np.errstate(over="raise", invalid="raise"):
        slope = Logistic().derivative(np, margins, None)
        value = Logistic().value(np, margins, None)
    np.testing.assert_allclose(slope, Logistic().derivative(np, MARGINS, None), atol=2e-7)
    np.testing.assert_allclose(value, Logistic().value(np, MARGINS, None), rtol=1e-6, atol=1e-7)
    assert slope.dtype == np.float32


@pytest.mark.parametrize("loss", [cls() for cls in LOSSES.values()] + [Huber(0.3)], ids=lambda loss: repr(loss))
def test_derivative_and_curvature_are_those_of_the_value(loss, backend):
    xp = backend.xp
    t = np.linspace(-4.1, 4.2, 41)
    y = np.where(np.arange(41) % 2, 0.5, -0.7)
    step = 1e-6

    def on_device(f, at):
        return backend.to_host(f(xp, backend.asarray(at), backend.asarray(y)))

    slope = (on_device(loss.value, t + step) - on_device(loss.value, t - step)) / (2 * step)
    np.testing.assert_allclose(on_device(loss.derivative, t), slope, atol=1e-8)
    bend = (on_device(loss.derivative, t + step) - on_device(loss.derivative, t - step)) / (2 * step)
    smooth_there = np.abs(np.abs(t - y) - getattr(loss, "width", 1e9)) > 1e-3
    np.testing.assert_allclose(on_device(loss.curvature, t)[smooth_there], bend[smooth_there], atol=1e-7)


@pytest.mark.parametrize("loss", [cls() for cls in LOSSES.values()] + [Huber(0.3)], ids=lambda loss: repr(loss))
def test_stated_constants_hold_on_random_points(loss):
    """G, the spread and L bound what happens for rows of norm at most r, |w| <= R, |y| <= b."""
    rng = np.random.default_rng(0)
    row_norm, radius, label_bound = 1.5, 2.0, 0.8
    t = rng.uniform(-row_norm * radius, row_norm * radius, size=(2, 20_000))
    y = rng.uniform(-label_bound, label_bound, size=20_000)
    slopes = loss.derivative(np, t, y)
    assert np.max(np.abs(slopes)) * row_norm <= loss.lipschitz(row_norm, radius, label_bound) + 1e-12
    spread = np.max(np.abs(slopes[0] - slopes[1])) * row_norm
    assert spread <= loss.gradient_spread(row_norm, radius, label_bound) + 1e-12
    assert np.max(np.abs(loss.curvature(np, t, y))) * row_norm**2 <= loss.smoothness(row_norm) + 1e-12


@pytest.mark.parametrize("wish", ["hinge", "huber:x", "huber:-1", "logistic:3", "huber:inf"])
def test_unknown_loss_or_parameter_is_refused_with_advice(wish):
    with pytest.raises(UserError, match=r"use one of|write for example|takes no parameter|positive number"):
        get_loss(wish)


def test_huber_width_is_read_from_the_name():
    assert get_loss("huber:0.5") == Huber(0.5)
