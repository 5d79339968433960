"""Proximal near stationarity (BGM21, Definition 15): proximal points against closed forms and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from support import make_problem

from dprepro.arrays import get_backend
from dprepro.bregman import lp_norm
from dprepro.errors import RunFailed, UserError
from dprepro.geometry import get_set
from dprepro.losses import get_loss
from dprepro.problems import near_stationarity as near
from dprepro.problems.erm import ProblemSpec
from dprepro.problems.near_stationarity import near_stationarity, proximal_points, proximal_setting
from dprepro.problems.population import PopulationRisk
from dprepro.regularizers import Regularizer


def population(X, y, loss="mcp:1", constraint="l2_ball:1", l2=0.0, n=1000):
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    spec = ProblemSpec(n, X.shape[1], get_loss(loss), Regularizer(l2=l2), get_set(constraint))
    return PopulationRisk(spec, X, y, np.full(len(X), 1.0 / len(X)), get_backend("cpu", "float64"))


def scattered(d, atoms=40, seed=0, **options):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((atoms, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.0000001
    return population(X, np.clip(X @ np.linspace(0.8, -0.4, d) + 0.3 * rng.standard_normal(atoms), -1, 1), **options)


def proximal_value(problem, V, W):
    setting = proximal_setting(problem.spec)
    return np.asarray(problem.objective(V)) + 0.5 * setting.beta * lp_norm(np, V - W, setting.b) ** 2


def firm_threshold(z, g, beta):
    """Return argmin_u mcp(u) + beta/2 (u - z)^2 for beta > 1/g (Gao and Bruce 1997)."""
    size = np.abs(z)
    inner = np.sign(z) * np.maximum(size - 1.0 / beta, 0.0) / (1.0 - 1.0 / (g * beta))
    return np.where(size <= g, inner, z)


@pytest.mark.parametrize("g", [0.3, 1.0])
def test_one_record_has_the_firm_threshold_as_its_proximal_point(g):
    problem = population([[1.0]], [0.2], loss=f"mcp:{g}")
    setting = proximal_setting(problem.spec)
    assert setting.beta == pytest.approx(2.0 / g)
    W = np.linspace(-1.0, 1.0, 41)[:, None]
    points, accuracy = proximal_points(problem, W, setting)
    expected = np.clip(0.2 + firm_threshold(W - 0.2, g, setting.beta), -1.0, 1.0)
    np.testing.assert_allclose(points, expected, atol=1e-6)
    assert np.all(np.abs(points - expected)[:, 0] <= accuracy + 1e-12)
    theta = near_stationarity(problem, W)
    np.testing.assert_allclose(theta, max(1.0, 2.0 / g * 2.0) * np.abs(W - expected)[:, 0], atol=near.ACCURACY)
    assert np.max(theta) > 0.3
    assert np.min(theta) == pytest.approx(0.0, abs=near.ACCURACY)


def test_in_one_dimension_brute_force_finds_the_same_points_inside_and_on_the_boundary():
    """Labels beyond the ball pull some of the points to its end."""
    rng = np.random.default_rng(4)
    X, y = rng.choice([-1.0, 0.6, 1.0], size=(25, 1)), rng.uniform(-1, 1, 25)
    problem = population(X, y + 0.9 * X[:, 0], constraint="l2_ball:0.5")
    W = np.linspace(-0.5, 0.5, 11)[:, None]
    points, accuracy = proximal_points(problem, W, proximal_setting(problem.spec))
    for w, v, bound in zip(W, points, accuracy, strict=True):
        best = minimize_scalar(
            lambda t, w=w: proximal_value(problem, np.array([[t]]), w[None])[0],
            bounds=(-0.5, 0.5), method="bounded", options={"xatol": 1e-12},
        )  # fmt: skip
        assert abs(best.x - v[0]) <= bound + 1e-6
        assert bound <= 2e-5
    on_the_edge = np.abs(points[:, 0]) > 0.5 - 1e-6
    assert np.any(on_the_edge)
    assert not np.all(on_the_edge)


@pytest.mark.parametrize("constraint", ["l2_ball:0.3", "l2_ball:1", "l1_ball:0.3", "lp_ball:1.5:0.3"])
def test_in_two_dimensions_no_point_of_a_fine_grid_is_better(constraint):
    problem = scattered(2, constraint=constraint)
    size = float(constraint.rpartition(":")[2])
    rng = np.random.default_rng(1)
    W = problem.spec.constraint.project(np, rng.standard_normal((6, 2)) * size)
    points, accuracy = proximal_points(problem, W, proximal_setting(problem.spec))
    assert np.all(problem.spec.constraint.excess(np, points) <= 1e-12)
    ticks = np.linspace(-size, size, 121)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    grid = grid[problem.spec.constraint.excess(np, grid) <= 1e-12]
    risk = np.asarray(problem.objective(grid))
    setting = proximal_setting(problem.spec)
    for w, v, value, bound in zip(W, points, proximal_value(problem, points, W), accuracy, strict=True):
        values = risk + 0.5 * setting.beta * lp_norm(np, grid - w, setting.b) ** 2
        excess = np.min(values) - value
        assert excess >= -(setting.L0 + setting.beta * setting.D) * bound - 1e-12
        # The best of the grid is near: strong convexity bounds its distance by its excess.
        best = grid[np.argmin(values)]
        assert np.linalg.norm(best - v) <= math.sqrt(2.0 * max(excess, 0.0) / setting.rho) + bound + 1e-12
        assert np.linalg.norm(best - v) <= 4.0 * size / 60
    assert np.all(accuracy <= 2e-5)


@pytest.mark.parametrize(
    ("constraint", "d"), [("lp_ball:1.5:1", 5), ("lp_ball:1.5:0.2", 5), ("l1_ball:1", 5), ("l1_ball:0.2", 5)]
)
def test_in_other_norms_no_neighbour_is_better(constraint, d):
    problem = scattered(d, atoms=60, constraint=constraint)
    ball, setting = problem.spec.constraint, proximal_setting(problem.spec)
    assert setting.b < 2.0
    rng = np.random.default_rng(2)
    W = ball.project(np, 0.4 * rng.standard_normal((8, d)))
    points, accuracy = proximal_points(problem, W, setting)
    assert np.all(ball.excess(np, points) <= 1e-12)
    value = proximal_value(problem, points, W)
    # What the stated accuracy leaves room for: on the boundary the objective has a slope.
    room = (setting.L0 + setting.beta * setting.D) * accuracy + 1e-11
    assert np.all(accuracy <= 2e-5)
    for size in 10.0 ** -np.arange(0.0, 8.0):
        for _ in range(10):
            other = ball.project(np, points + size * rng.standard_normal(points.shape))
            assert np.all(value <= proximal_value(problem, other, W) + room)
    # A small ball binds everywhere, a large one not.
    assert np.all(ball.minkowski(np, points) > 1 - 1e-9) == constraint.endswith("0.2")


@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_for_a_smooth_loss_the_gradient_vanishes_at_the_proximal_point(l2):
    problem = scattered(4, loss="welsch:0.7", constraint="l2_ball:5", l2=l2)
    W = 0.5 * np.random.default_rng(0).standard_normal((7, 4))
    setting = proximal_setting(problem.spec)
    points, accuracy = proximal_points(problem, W, setting)
    slope = np.asarray(problem.gradient(points)) + l2 * points + setting.beta * (points - W)
    assert np.all(np.linalg.norm(slope, axis=1) / setting.rho <= accuracy + 1e-12)
    assert np.all(accuracy <= 1e-5)
    assert np.min(np.linalg.norm(points - W, axis=1)) > 1e-3


def test_proximal_steps_end_at_a_point_of_near_stationarity_zero():
    problem = scattered(2)
    setting, w = proximal_setting(problem.spec), np.zeros((1, 2))
    first = near_stationarity(problem, w)[0]
    for _ in range(60):
        w, _ = proximal_points(problem, w, setting)
    assert near_stationarity(problem, w)[0] <= near.ACCURACY < 0.01 * first


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from(["mcp:0.5", "sigmoid", "welsch:1"]))
def test_the_stated_accuracy_holds_and_values_come_in_any_blocks(seed, loss):
    problem = scattered(2, seed=seed % 7, loss=loss)
    W = problem.spec.constraint.project(np, np.random.default_rng(seed).standard_normal((5, 2)))
    setting = proximal_setting(problem.spec)
    points, accuracy = proximal_points(problem, W, setting)
    finer = pytest.MonkeyPatch()
    with finer.context() as patch:
        patch.setattr(near, "ACCURACY", 1e-5)
        patch.setattr(near, "_BLOCK", 1)
        exact, bound = proximal_points(problem, W, setting)
    assert np.all(np.linalg.norm(points - exact, axis=1) <= accuracy + bound)
    assert np.all(bound * setting.factor <= 1e-5)


def test_the_accuracy_is_checked(monkeypatch):
    monkeypatch.setattr(near, "_WIDTHS", near._WIDTHS[:2])
    with pytest.raises(RunFailed, match="were found to"):
        near_stationarity(scattered(2), np.zeros((1, 2)))


def test_a_loss_that_is_no_function_of_the_inner_product_is_refused():
    problem = make_problem(loss="huber_mean", regularizer=0.0, constraint="l2_ball:1")
    with pytest.raises(UserError, match=r"for losses of <w, x> only, not for 'huber_mean': choose one"):
        proximal_points(problem, np.zeros((1, 7)), proximal_setting(problem.spec, rho=1.0))


def test_constants_are_those_of_the_norm_in_which_the_subproblems_are_strongly_convex():
    """p = 1 in 16 dimensions: b = 1 + 1/ln 16, rho and L0 by the dual norm of the rows."""
    spec = ProblemSpec(100, 16, get_loss("mcp:0.5"), Regularizer(), get_set("l1_ball:3"), row_norm=4.0, row_sup=1.0)
    setting = proximal_setting(spec)
    b = 1.0 + 1.0 / math.log(16)
    q = b / (b - 1.0)
    assert setting.b == pytest.approx(b)
    assert setting.kappa == pytest.approx(math.log(16))
    assert setting.kappa_tilde == pytest.approx(1.0 + math.log(16))
    assert pytest.approx(16 ** (1.0 / q)) == setting.L0
    assert math.e > setting.L0
    assert setting.rho == pytest.approx(setting.L0**2 / 0.5)
    assert (setting.D, setting.size) == (6.0, 3.0)
    assert setting.beta == pytest.approx(2.0 * setting.rho * setting.kappa)
    plain = proximal_setting(ProblemSpec(100, 2, get_loss("mcp:0.5"), Regularizer(), get_set("l1_ball:3")))
    assert (plain.b, plain.kappa, plain.kappa_tilde) == (2.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"constraint": "simplex:1"}, "l_p balls with 1 <= p <= 2"),
        ({"constraint": None}, "l_p balls with 1 <= p <= 2"),
        ({"constraint": "l2_ball:1", "loss": "logistic"}, "rho is 0"),
        ({"constraint": "l2_ball:1", "regularizer": {"l1": 0.1}}, "l1 regularizer"),
    ],
)
def test_what_has_no_near_stationarity_is_refused(options, sentence):
    problem = make_problem(**{"loss": "mcp:1", "regularizer": 0.0, **options})
    with pytest.raises(UserError, match=sentence):
        near_stationarity(problem, np.zeros((1, 7)))
