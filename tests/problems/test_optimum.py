from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from support import make_problem, rows

from dprepro import datasets
from dprepro.arrays import get_backend
from dprepro.errors import RunFailed, UserError
from dprepro.problems.optimum import KINK_TOLERANCE, TOLERANCE, _distance, find_optimum
from dprepro.stages.dataset import arrays_of, facts_of
from dprepro.stages.problem import make_problem as problem_from


def lbfgs(problem):
    def both(w):
        gradient = problem.gradient(w[None])[0] + problem.spec.regularizer.l2 * w
        return float(problem.objective(w[None])[0]), gradient

    return minimize(both, np.zeros(problem.spec.d), jac=True, method="L-BFGS-B", options={"ftol": 1e-16, "gtol": 1e-12})


@pytest.mark.parametrize("loss", ["logistic", "logistic_as_printed", "huber:0.5", "squared"])
def test_newton_finds_the_optimum_that_lbfgs_finds(loss):
    problem = make_problem(n=400, loss=loss, regularizer=0.05)
    found, peer = find_optimum(problem), lbfgs(problem)
    assert found.accuracy <= TOLERANCE
    assert found.objective == pytest.approx(peer.fun, abs=1e-11)
    assert found.objective <= peer.fun + 1e-14
    np.testing.assert_allclose(found.w, peer.x, atol=1e-5)


def test_collinear_features_without_regulariser_are_no_obstacle():
    X, y = rows(500, 4)
    problem = make_problem(data=(np.hstack([X, X]) / 1.5, y), regularizer=0.0)
    found = find_optimum(problem)
    assert found.accuracy <= TOLERANCE
    assert found.objective <= lbfgs(problem).fun + 1e-11


@pytest.mark.parametrize(
    ("regularizer", "constraint"),
    [({"l1": 0.02, "l2": 0.05}, None), (0.0, "l2_ball:0.5"), ({"l1": 0.01}, "l1_ball:1.0")],
)
def test_fista_meets_the_optimality_conditions(regularizer, constraint):
    """At the optimum the prox-gradient step does not move, for any step size."""
    problem = make_problem(n=300, regularizer=regularizer, constraint=constraint)
    found = find_optimum(problem)
    assert found.accuracy <= TOLERANCE
    w = found.w[None]
    for eta in (0.1, 1.0, 4.0):
        moved = problem.prox(w - eta * problem.gradient(w), eta) - w
        assert np.linalg.norm(moved) <= 1e-4 * eta
    rng = np.random.default_rng(0)
    rivals = problem.project(w + 0.05 * rng.normal(size=(500, 7)))
    assert np.min(problem.objective(rivals)) >= found.objective - TOLERANCE


def test_separable_data_come_within_tolerance_of_the_infimum():
    X = np.array([[0.5, 0.1], [-0.5, 0.2], [0.7, 0.0], [-0.4, 0.1]])
    y = np.array([1.0, -1.0, 1.0, -1.0])
    assert 0.0 <= find_optimum(make_problem(data=(X, y), regularizer=0.0)).objective <= 1e-9


def test_an_accuracy_that_is_not_reached_is_an_error_not_an_answer(monkeypatch):
    monkeypatch.setattr("dprepro.problems.optimum._NEWTON_STEPS", 2)
    with pytest.raises(RunFailed, match="not to 1e-10; does the minimum exist"):
        find_optimum(make_problem(n=400, regularizer=0.001))


def test_a_stationary_point_of_a_loss_that_is_not_convex_is_not_called_an_optimum():
    """From 0 every descent ends at the label 0.3 of one record, where the risk is 0.03; at -1 it is half of that."""
    X, y = np.ones((3, 1)), np.array([0.3, -1.0, -1.0])
    problem = make_problem(data=(X, y), loss="welsch:0.3", regularizer=0.0, constraint="l2_ball:1.0")
    near, far = problem.objective(np.array([[0.3], [-1.0]]))
    assert far == pytest.approx(0.5 * near)
    for loss in ("welsch:0.3", "sigmoid", "sine_squared", "mcp:1"):
        for constraint in (None, "l2_ball:1.0"):
            problem = make_problem(data=(X, y), loss=loss, constraint=constraint)
            with pytest.raises(UserError, match="is not known: give it as `minimum`, or use a convex loss"):
                find_optimum(problem)


@pytest.mark.parametrize("constraint", ["l2_ball:3", "l1_ball:3", "simplex:3"])
@pytest.mark.parametrize("loss", ["absolute", "hinge", "pinball:0.3", "insensitive:0.2"])
def test_whatever_slopes_are_chosen_they_give_a_lower_bound_of_the_minimum(loss, constraint):
    """Weak duality: the accuracy of an optimum is a proof, also where the method that found it went wrong."""
    problem = make_problem(n=25, d=3, loss=loss, regularizer=0.0, constraint=constraint)
    rng = np.random.default_rng(0)
    points = problem.project(3 * rng.normal(size=(3000, 3)))
    lowest = np.min(problem.objective(points))
    best = find_optimum(problem)
    assert best.accuracy <= KINK_TOLERANCE
    assert best.objective - best.accuracy <= lowest + 1e-14
    kinks = 2 if "insensitive" in loss else 1
    for _ in range(50):
        w = points[rng.integers(3000)]
        bound = float(problem.objective(w[None])[0]) - _distance(problem, w, 3 * rng.normal(size=(kinks, 25)))
        assert bound <= best.objective + 1e-12


def registered(name, constraint, **parameters):
    data = datasets.load(name, rows=1000, **parameters)
    spec = {"loss": "absolute", "regularizer": {}, "constraint": constraint}
    return problem_from(spec, facts_of(data), arrays_of(data), get_backend("cpu", "float64"))


def dual_minimum(problem):
    """The minimum of an absolute loss over an l1 or l2 ball by another program and another solver.

    min_w sum_i p_i |<x_i, w> - y_i| = max_g -sum_i g_i y_i - radius ||X'g||_dual over |g_i| <= p_i: a linear program
    for the sup norm, solved by interior points, and L-BFGS for the l2 norm, which is smooth where the ball binds.
    """
    radius = problem.spec.constraint.radius
    p, X, y = problem.records()
    M, d = X.shape
    if problem.spec.constraint.name == "l1_ball":
        cost = np.concatenate([y, [radius]])
        rows_ = np.block([[X.T, -np.ones((d, 1))], [-X.T, -np.ones((d, 1))]])
        bounds = [(-q, q) for q in p] + [(0, None)]
        return -linprog(cost, rows_, np.zeros(2 * d), bounds=bounds, method="highs-ipm").fun

    def both(g):
        along = X.T @ (p * g)
        length = np.linalg.norm(along) + 1e-300
        return (p * g) @ y + radius * length, p * (y + radius * (X @ along) / length)

    start = np.sign(X @ np.full(d, 0.1) - y)
    found = minimize(both, start, jac=True, bounds=[(-1, 1)] * M, method="L-BFGS-B",
                     options={"ftol": 1e-16, "gtol": 1e-13, "maxiter": 50_000, "maxfun": 100_000})  # fmt: skip
    return -found.fun


@pytest.mark.parametrize(
    ("name", "constraint", "parameters"),
    [
        ("population_sparse", "l1_ball:1", {"features": 16, "atoms": 96}),
        ("population_sparse", "l1_ball:1", {"features": 64, "atoms": 288}),
        ("population_linear", "l1_ball:1", {"features": 64, "signal": 2.0**-12.5}),
        ("population_linear", "l2_ball:1", {"features": 16, "signal": 2.0**-12.5, "norm": "l2"}),
        ("population_direction", "l2_ball:1", {"features": 8, "atoms": 64, "level": 1.0}),
        ("population_low_rank", "l2_ball:0.3", {"features": 8, "rank": 8, "atoms": 60}),
    ],
)
def test_minima_of_the_absolute_loss_are_those_of_the_dual_problem(name, constraint, parameters):
    problem = registered(name, constraint, **parameters)
    found = find_optimum(problem)
    assert found.accuracy <= KINK_TOLERANCE
    lower = dual_minimum(problem)
    # No dual value is above the minimum, whether or not the other solver has come to its end.
    assert -1e-9 <= found.objective - lower <= (1e-6 if "l2" in constraint else 1e-8)
    start = float(problem.objective(problem.backend.zeros((1, problem.spec.d)))[0])
    assert start - found.objective > 100 * (found.objective - lower)
