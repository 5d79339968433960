from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from dprepro import datasets
from dprepro.errors import UserError
from dprepro.losses import (
    LOSSES,
    GLMValley,
    Huber,
    Insensitive,
    Logistic,
    LogisticAsPrinted,
    MinimaxConcave,
    PiecewiseLinear,
    Pinball,
    TiltedHuber,
    Welsch,
    get_loss,
)
from dprepro.smoothing import MoreauEnvelope

ALL = [cls() for cls in LOSSES.values()]
ALL += [Huber(0.3), TiltedHuber(1.4), Pinball(0.8), Insensitive(0.7), Welsch(2.0), MinimaxConcave(0.6)]
PIECEWISE = [loss for loss in ALL if isinstance(loss, PiecewiseLinear)]
ALL += [MoreauEnvelope(loss, 3.0) for loss in PIECEWISE]
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


def breaks(loss):
    """Return the places on the axis of t - y (of t for a margin loss) where slope or curvature jump."""
    if isinstance(loss, PiecewiseLinear):
        return [kink.at for kink in loss.kinks]
    if isinstance(loss, MoreauEnvelope):
        return [kink.at + slope / loss.beta for kink in loss.loss.kinks for slope in (kink.left, kink.right)]
    if isinstance(loss, MinimaxConcave):
        return [-loss.g, 0.0, loss.g]
    return [-loss.width, loss.width] if isinstance(loss, Huber) else []


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.full_name)
def test_derivative_and_curvature_are_those_of_the_value(loss, backend):
    xp = backend.xp
    t = np.linspace(-4.1, 4.2, 41)
    y = np.where(np.arange(41) % 2, 0.5, -0.7)
    step = 1e-6

    def on_device(f, at):
        return backend.to_host(f(xp, backend.asarray(at), backend.asarray(y)))

    places = np.asarray(breaks(loss))
    smooth_there = np.all(np.abs((t if loss.margin else t - y)[:, None] - places) > 1e-3, axis=1)
    assert np.sum(smooth_there) >= 35
    slope = (on_device(loss.value, t + step) - on_device(loss.value, t - step)) / (2 * step)
    np.testing.assert_allclose(on_device(loss.derivative, t)[smooth_there], slope[smooth_there], atol=1e-8)
    bend = (on_device(loss.derivative, t + step) - on_device(loss.derivative, t - step)) / (2 * step)
    np.testing.assert_allclose(on_device(loss.curvature, t)[smooth_there], bend[smooth_there], atol=1e-7)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.full_name)
def test_single_precision_stays_single_and_keeps_its_digits(loss):
    t = np.linspace(-4.1, 4.2, 41)
    y = np.where(np.arange(41) % 2, 0.5, -0.7).astype(np.float32)
    for function in (loss.value, loss.derivative, loss.curvature):
        found = function(np, t.astype(np.float32), y)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, function(np, t, y.astype(np.float64)), atol=2e-5)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.full_name)
def test_a_loss_is_smooth_exactly_where_its_derivative_does_not_jump(loss):
    """On a kink the derivative lies between the slopes of its two sides, which bound the subgradients."""
    y = np.full(len(breaks(loss)), 0.25)
    t = np.asarray(breaks(loss)) + (0.0 if loss.margin else y)
    left, on, right = (loss.derivative(np, t + shift, y) for shift in (-1e-9, 0.0, 1e-9))
    jumps = np.abs(right - left) > 1e-3
    assert loss.smooth == (not np.any(jumps)) == np.isfinite(loss.smoothness(1.0))
    assert np.all((np.minimum(left, right) <= on + 1e-8) & (on <= np.maximum(left, right) + 1e-8))


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.full_name)
def test_weak_convexity_is_the_least_that_makes_the_derivative_rise(loss):
    t = np.linspace(-6.0, 6.0, 12_001)
    rises = np.diff(loss.derivative(np, t, np.full_like(t, 0.25))) / np.diff(t)
    rho = loss.weak_convexity(1.0)
    assert loss.convex == (rho == 0.0)
    assert np.min(rises) >= -rho - 1e-9
    assert loss.convex or np.min(rises) <= -0.999 * rho
    assert loss.weak_convexity(3.0) == pytest.approx(9.0 * rho)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.full_name)
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
    if isinstance(loss, PiecewiseLinear):
        # These constants are exact: some gradient and some pair of gradients come close to them.
        assert np.max(np.abs(slopes)) * row_norm >= 0.99 * loss.lipschitz(row_norm, radius, label_bound)
        assert spread >= 0.99 * loss.gradient_spread(row_norm, radius, label_bound)
    assert np.max(np.abs(loss.curvature(np, t, y))) * row_norm**2 <= loss.smoothness(row_norm) + 1e-12


@pytest.mark.parametrize(
    "wish",
    [
        "cosine",
        "huber:x",
        "huber:-1",
        "logistic:3",
        "huber:inf",
        "hinge:1",
        "pinball:1",
        "pinball:nan",
        "insensitive:0",
        "welsch:-1",
        "mcp:0",
        "moreau",
        "moreau:10",
        "moreau:x:hinge",
        "moreau:-1:hinge",
        "moreau:10:squared",
        "moreau:10:mcp",
        "moreau:10:cosine",
        "moreau:10:pinball:2",
    ],
)
def test_unknown_loss_or_parameter_is_refused_with_advice(wish):
    with pytest.raises(UserError, match=r"use one of|write for example|takes no parameter|positive number|between 0"):
        get_loss(wish)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.full_name)
def test_every_loss_is_read_back_from_its_full_name(loss):
    assert get_loss(loss.full_name) == loss
    assert get_loss(loss) is loss


def test_parameters_are_read_from_the_name():
    assert get_loss("huber:0.5") == Huber(0.5)
    assert get_loss("pinball:0.9") == Pinball(0.9)
    assert get_loss("moreau:10:pinball:0.9") == MoreauEnvelope(Pinball(0.9), 10.0)
    assert get_loss("moreau:10:pinball:0.9").name == "moreau:10:pinball:0.9"


def test_losses_with_kinks_are_the_usual_formulas():
    t, y = np.meshgrid(np.linspace(-3.0, 3.0, 61), np.array([-1.0, 0.3, 1.0]))
    u = t - y
    formulas = {
        "absolute": np.abs(u),
        "pinball:0.8": np.where(u < 0, 0.8 * -u, 0.2 * u),
        "insensitive:0.7": np.maximum(np.abs(u) - 0.7, 0.0),
        "hinge": np.maximum(1.0 - t, 0.0),
        "mcp:2": np.where(np.abs(u) <= 2.0, np.abs(u) - u * u / 4.0, 1.0),
    }
    for name, expected in formulas.items():
        np.testing.assert_allclose(get_loss(name).value(np, t, y), expected, atol=1e-14)


def test_the_constant_that_minimises_the_pinball_loss_is_the_quantile():
    labels = np.random.default_rng(5).normal(size=(1, 2_001))
    points = np.sort(labels.reshape(-1, 1), axis=0)
    mean_loss = np.mean(get_loss("pinball:0.9").value(np, points, labels), axis=1)
    assert float(points[np.argmin(mean_loss), 0]) == np.quantile(labels, 0.9)


def test_welsch_loss_keeps_its_digits_near_a_perfect_fit():
    u = np.array([1e-12, 1e-9, 1e-6])
    np.testing.assert_allclose(Welsch(2.0).value(np, u, np.zeros(3)), 0.5 * u * u, rtol=1e-11)


@pytest.mark.parametrize("step", [0.05, 0.8, 5.0])
@pytest.mark.parametrize("loss", PIECEWISE, ids=lambda loss: loss.full_name)
def test_prox_agrees_with_a_scalar_minimiser(loss, step, backend):
    t = np.linspace(-7.3, 7.1, 25)
    y = np.where(np.arange(25) % 2, 0.5, -0.7)

    def objective(u, at, label):
        return step * float(loss.value(np, np.float64(u), np.float64(label))) + 0.5 * (u - at) ** 2

    expected = [
        minimize_scalar(objective, bounds=(at - 2 * step, at + 2 * step), args=(at, label), method="bounded").x
        for at, label in zip(t, y, strict=True)
    ]
    found = backend.to_host(loss.prox(backend.xp, backend.asarray(t), backend.asarray(y), step))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    # The minimiser's own accuracy is that of its values; the closed form must be at least as good.
    for u, other, at, label in zip(found, expected, t, y, strict=True):
        assert objective(u, at, label) <= objective(other, at, label) + 1e-13


@pytest.mark.parametrize("L0", [1.0, 0.4])
@pytest.mark.parametrize("x", [1.0, -1.0])
def test_the_tilted_huber_loss_is_that_of_the_sampling_lower_bound_on_rows_of_signs(L0, x):
    """ABG23, Theorem A.2, with L1 = 1: L0/2 w x + Delta(w)/2, up to a constant."""
    w = np.linspace(-2.0, 2.0, 401)
    delta = np.where(np.abs(w) <= L0 / 2, w**2, L0 * np.abs(w) - L0**2 / 4)
    loss = TiltedHuber(L0 / 2)
    difference = loss.value(np, w * x, np.zeros_like(w)) - (L0 / 2 * w * x + delta / 2)
    np.testing.assert_allclose(difference, difference[0], atol=1e-15)
    assert loss.lipschitz(1.0, np.inf, 0.0) == L0
    assert loss.smoothness(1.0) == 1.0
    assert np.min(loss.value(np, w, np.zeros_like(w))) >= -1e-15


@pytest.mark.parametrize(("steps", "slope"), [(2000, 0.4), (2000, 0.2)])
def test_gradient_descent_in_the_valley_slows_down_as_stated(steps, slope):
    """s steps bring the derivative to order s^(-5/9) without ever reaching 0; waves make it oscillate around that."""
    loss, t, label = GLMValley(slope), np.zeros(1), np.ones(1)
    found = []
    for _ in range(16 * steps):
        derivative = loss.derivative(np, t, label)
        assert derivative < 0.0
        found.append(-derivative[0])
        t = t - derivative
    late, early = (np.mean(np.log(found[start : 4 * start])) for start in (4 * steps, steps))
    assert -0.65 <= (late - early) / np.log(4.0) <= -0.5


@pytest.mark.parametrize("rank", [2, 3, 8, 11, 64])
def test_data_of_the_glm_valley_have_the_rank_asked_for_and_like_walls(rank):
    data = datasets.load("population_glm_valley", rows=1000, features=70, rank=rank)
    X, y, p = data.X.astype(float), data.y.astype(float), data.population.probabilities
    moments = (X * p[:, None]).T @ X
    expected = np.diag(np.append(0.5, np.full(rank - 1, 0.5 / (rank - 1))))
    np.testing.assert_allclose(moments[:rank, :rank], expected, atol=1e-6)
    assert np.all(X[:, rank:] == 0.0)
    assert np.array_equal(y > 0.0, X[:, 0] > 0.0)
    loss, t = GLMValley(), X[1:, 1:rank] @ (np.where(np.arange(rank - 1) % 2, -0.5, 0.5) / np.sqrt(rank - 1))
    # The truth is between the walls: residuals are +noise and -noise in equal shares on every row.
    walls = loss.derivative(np, t, y[1:]) @ (p[1:, None] * X[1:])
    np.testing.assert_allclose(walls, 0.0, atol=1e-6)


def test_data_of_the_glm_valley_refuse_a_rank_beyond_the_features():
    with pytest.raises(UserError, match="rank=9 is more than features=8"):
        datasets.load("population_glm_valley", features=8, rank=9)
