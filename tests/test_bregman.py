"""Bregman projections onto l_p balls, with the mirror map centred at another point than the ball."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from dprepro import bregman
from dprepro.arrays import get_backend, strict_backend
from dprepro.errors import UserError
from dprepro.geometry import L1Ball, L2Ball, LpBall, Simplex, ball_exponent, centred_step

# Exponents of the ball and of the map, as they come with l1 and l_p balls in 3 to 64 dimensions, and others.
PAIRS = [(1.0, 1.5), (1.0, 1.24), (1.5, 1.5), (1.2, 1.2), (1.05, 1.3), (1.9, 1.9), (2.0, 1.5), (1.3, 1.7)]
pairs = pytest.mark.parametrize(("a", "b"), PAIRS)


def cases(a, d, rows=24, seed=0):
    """Centres in the middle, inside and on the sphere; steps from small ones to some far beyond the ball."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, d))
    X *= rng.choice([0.0, 0.3, 0.9, 1.0], size=(rows, 1)) / bregman.lp_norm(np, X, a)[:, None]
    return X, rng.standard_normal((rows, d)) * rng.choice([0.05, 1.0, 10.0, 100.0], size=(rows, 1))


def duality_gap(X, Theta, Y, a, b):
    """Return <slope, y> + ||slope||_*, which bounds the objective at y over the minimum and needs no solver."""
    slope = bregman.map_gradient(np, Y - X, b) - Theta
    dual = np.max(np.abs(slope), axis=1) if a == 1.0 else bregman.lp_norm(np, slope, a / (a - 1.0))
    return np.sum(slope * Y, axis=1) + dual


@pairs
@pytest.mark.parametrize("d", [1, 2, 16])
def test_a_step_meets_the_optimality_condition(a, b, d):
    X, Theta = cases(a, d)
    Y, binds = bregman.ball_step(np, X, Theta, a, b)
    assert np.all(bregman.lp_norm(np, Y, a) <= 1.0 + 1e-15)
    assert np.any(binds)
    assert not np.all(binds)
    size = 1.0 + np.max(np.abs(Theta), axis=1)
    # Near b = 1 the gradient turns rounding into its (b-1)th power.
    assert np.all(duality_gap(X, Theta, Y, a, b) <= (1e-10 if b >= 1.5 else 1e-6) * size)
    np.testing.assert_allclose(bregman.lp_norm(np, Y[binds], a), 1.0, rtol=1e-10)


@pairs
def test_a_step_is_no_worse_than_a_general_solver(a, b):
    """SLSQP over y = s - t with s, t >= 0, where the norms are smooth."""
    X, Theta = cases(a, 3, rows=4, seed=3)
    Theta = Theta / (1.0 + np.max(np.abs(Theta), axis=1, keepdims=True)) * 3.0
    Y, _ = bregman.ball_step(np, X, Theta, a, b)

    def value(y, row):
        return 0.5 * float(bregman.lp_norm(np, (y - X[row])[None], b)[0]) ** 2 - float(Theta[row] @ y)

    for row in range(len(X)):
        inside = {"type": "ineq", "fun": lambda parts: 1.0 - np.sum((parts[:3] + parts[3:]) ** a)}
        best = minimize(
            lambda parts, row=row: value(parts[:3] - parts[3:], row), np.full(6, 0.05), method="SLSQP",
            bounds=[(0, None)] * 6, constraints=[inside], options={"ftol": 1e-13, "maxiter": 300},
        )  # fmt: skip
        x = best.x[:3] - best.x[3:]
        x = x / max(1.0, float(bregman.lp_norm(np, x[None], a)[0]))
        assert value(Y[row], row) <= value(x, row) + 1e-9
        # The solver comes near: the comparison is with a minimum, not with any point.
        assert value(x, row) <= value(Y[row], row) + 1e-3


@settings(deadline=None, max_examples=40)
@given(
    arrays(np.float64, (3, 4), elements=st.floats(-1, 1, allow_subnormal=False)),
    arrays(np.float64, (3, 4), elements=st.floats(-8, 8, allow_subnormal=False)),
    st.sampled_from(PAIRS),
)
def test_no_other_point_of_the_ball_is_better(X, Theta, pair):
    a, b = pair
    X = X / np.maximum(bregman.lp_norm(np, X, a), 1.0)[:, None]
    Y, _ = bregman.ball_step(np, X, Theta, a, b)
    rng = np.random.default_rng(0)

    def value(V):
        return 0.5 * bregman.lp_norm(np, V - X, b) ** 2 - np.sum(Theta * V, axis=1)

    assert np.all(np.isfinite(Y))
    for size in 10.0 ** -np.arange(0.0, 8.0):
        V = Y + size * rng.standard_normal(Y.shape) ** 3
        V = V / np.maximum(bregman.lp_norm(np, V, a), 1.0)[:, None]
        assert np.all(value(Y) <= value(V) + 1e-11)


@pytest.mark.parametrize(("a", "b"), [pair for pair in PAIRS if pair[0] > 1.0])
def test_the_two_ways_to_a_step_agree(a, b):
    """Newton's method does all of these rows, and nested roots, which stand by for others, find the same points."""
    X, Theta = cases(a, 5, rows=6, seed=1)
    outside = bregman.lp_norm(np, X + bregman.map_inverse(np, Theta, b), a) > 1.0
    equation = bregman._Equation(np, X[outside], Theta[outside], a, b)
    fast, arrived = bregman._by_newton(equation)
    assert np.all(arrived)
    np.testing.assert_allclose(bregman._by_nested_roots(equation), fast, atol=1e-12)


def test_rows_that_newton_gives_up_are_solved_all_the_same(monkeypatch):
    X, Theta = cases(1.5, 3, rows=5, seed=2)
    expected, _ = bregman.ball_step(np, X, Theta, 1.5, 1.5)
    solved = []
    nested = bregman._by_nested_roots
    monkeypatch.setattr(bregman, "_NEWTON_STEPS", 1)
    monkeypatch.setattr(bregman, "_by_nested_roots", lambda equation: solved.append(1) or nested(equation))
    found, _ = bregman.ball_step(np, X, Theta, 1.5, 1.5)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert solved


def test_coordinates_that_come_to_zero_do_not_mislead_the_step():
    """Short steps from inside the l1 ball of 16 dimensions: some coordinates end at 0, and rows end on every face."""
    rng = np.random.default_rng(7)
    b = 1.0 + 1.0 / math.log(16)
    X = rng.standard_normal((300, 16)) ** 3
    X *= rng.uniform(0.7, 0.99, (300, 1)) / bregman.lp_norm(np, X, 1.0)[:, None]
    Theta = 0.3 * rng.standard_normal((300, 16))
    Y, binds = bregman.ball_step(np, X, Theta, 1.0, b)
    assert np.sum(binds) > 100
    assert np.all(duality_gap(X, Theta, Y, 1.0, b) <= 1e-9)
    zeros = np.sum(Y[binds] == 0.0, axis=1)
    assert np.min(zeros) <= 3
    assert np.max(zeros) >= 8


@pairs
def test_a_row_does_not_depend_on_its_company_and_strict_arrays_agree(a, b):
    X, Theta = cases(a, 6, rows=12)
    whole, _ = bregman.ball_step(np, X, Theta, a, b)
    for rows in ([3], [0, 7, 11], [5, 4]):
        np.testing.assert_array_equal(bregman.ball_step(np, X[rows], Theta[rows], a, b)[0], whole[rows])
    backend = strict_backend()
    strict, binds = bregman.ball_step(backend.xp, backend.asarray(X), backend.asarray(Theta), a, b)
    np.testing.assert_allclose(backend.to_host(strict), whole, atol=1e-12)
    assert backend.to_host(binds).dtype == bool


def test_where_the_step_points_straight_out_the_centre_stays():
    vertex, edge = np.array([[1.0, 0.0, 0.0]]), np.array([[0.25, -0.75, 0.0]])
    for X, Theta in ((vertex, [[5.0, 4.9, -4.0]]), (edge, [[2.0, -2.0, 1.5]])):
        Y, binds = bregman.ball_step(np, X, np.array(Theta), 1.0, 1.4)
        np.testing.assert_array_equal(Y, X)
        assert binds[0]
    x = np.array([[0.4, -0.2, 0.1]])
    x /= bregman.lp_norm(np, x, 1.5)[:, None]
    straight = 3.0 * np.sign(x) * np.abs(x) ** 0.5
    np.testing.assert_allclose(bregman.ball_step(np, x, straight, 1.5, 1.5)[0], x, atol=1e-14)


@settings(deadline=None)
@given(
    arrays(np.float64, (3, 5), elements=st.floats(-20, 20, allow_subnormal=False)),
    st.sampled_from([1.1, 1.5, 1.9, 2.0]),
)
def test_the_map_and_its_inverse_undo_each_other(U, b):
    Theta = bregman.map_gradient(np, U, b)
    np.testing.assert_allclose(
        bregman.map_inverse(np, Theta, b), U, rtol=1e-10, atol=1e-12 * np.max(np.abs(U)) + 1e-300
    )
    # <grad, u> = ||u||^2 and the dual norm of the gradient is ||u||.
    norms = bregman.lp_norm(np, U, b)
    # Squares of small numbers have fewer digits than others.
    np.testing.assert_allclose(np.sum(Theta * U, axis=1), norms**2, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(bregman.lp_norm(np, Theta, b / (b - 1.0)), norms, rtol=1e-12)


@pytest.mark.parametrize("ball", [L1Ball(2.0), L2Ball(2.0), LpBall(1.5, 2.0)])
def test_a_centred_step_is_that_of_the_unit_ball_scaled_and_returns_the_gradient_of_its_map(ball):
    a = ball_exponent(ball)
    X, Theta = cases(a, 4)
    Y, gradient = centred_step(np, ball, 2.0 * X, 2.0 * Theta, 1.6)
    expected, binds = bregman.ball_step(np, X, Theta, a, 1.6)
    np.testing.assert_allclose(Y, 2.0 * expected, rtol=1e-14)
    np.testing.assert_array_equal(gradient[~binds], 2.0 * Theta[~binds])
    np.testing.assert_allclose(gradient[binds], bregman.map_gradient(np, Y - 2.0 * X, 1.6)[binds], rtol=1e-14)


@pytest.mark.parametrize("ball", [L1Ball(0.7), L2Ball(0.7), LpBall(1.5, 0.7)])
def test_with_the_euclidean_map_a_centred_step_is_a_projection(ball):
    rng = np.random.default_rng(1)
    X, Theta = ball.project(np, rng.standard_normal((6, 4))), rng.standard_normal((6, 4))
    Y, gradient = centred_step(np, ball, X, Theta, 2.0)
    np.testing.assert_array_equal(Y, ball.project(np, X + Theta))
    np.testing.assert_array_equal(gradient, Y - X)


@pytest.mark.parametrize(
    ("ball", "b"), [(Simplex(1.0), 1.5), (LpBall(3.0), 1.5), (L2Ball(1.0), 1.0), (L2Ball(1.0), 2.5)]
)
def test_other_sets_and_maps_are_refused(ball, b):
    with pytest.raises(UserError, match="centred steps"):
        centred_step(np, ball, np.zeros((1, 3)), np.ones((1, 3)), b)


def test_exponents_of_balls():
    assert [ball_exponent(ball) for ball in (L1Ball(), L2Ball(), LpBall(1.3), LpBall(3.0), Simplex())] == [
        1.0, 2.0, 1.3, None, None,
    ]  # fmt: skip


def test_steps_in_single_precision_stay_single():
    X, Theta = (part.astype("float32") for part in cases(1.5, 4, rows=8))
    Y, _ = bregman.ball_step(np, X, Theta, 1.5, 1.5)
    assert Y.dtype == np.float32
    exact, _ = bregman.ball_step(np, X.astype("float64"), Theta.astype("float64"), 1.5, 1.5)
    np.testing.assert_allclose(Y, exact, atol=2e-4)


def test_norms_do_not_overflow():
    V = np.array([[1e250, -1e250, 0.0], [1e-250, 1e-250, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(bregman.lp_norm(np, V, 1.5), [1e250 * 2 ** (2 / 3), 1e-250 * 2 ** (2 / 3), 0.0])
    assert bregman.lp_norm(get_backend("cpu").xp, V, 1.0)[0] == 2e250
    assert math.isfinite(float(np.sum(bregman.dual_direction(np, V, 1.01))))
