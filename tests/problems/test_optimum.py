from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from support import make_problem, rows

from dprepro.errors import RunFailed
from dprepro.problems.optimum import TOLERANCE, find_optimum


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
