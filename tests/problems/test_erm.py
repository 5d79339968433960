from __future__ import annotations

import numpy as np
import pytest
from support import make_problem, rows

from dprepro.arrays import Backend, get_backend
from dprepro.geometry import L1Ball, RealSpace
from dprepro.losses import Logistic, Squared
from dprepro.problems.erm import ProblemSpec
from dprepro.regularizers import Regularizer

LOSSES = ["logistic", "logistic_as_printed", "squared", "huber:0.5"]


def plain_objective(problem, X, y, w):
    """F^r written out as in the paper, without any batching."""
    spec = problem.spec
    t = X @ w
    values = spec.loss.value(np, y * t if spec.loss.margin else t, y)
    return np.mean(values) + float(spec.regularizer.value(np, w[None])[0])


@pytest.mark.parametrize("loss", LOSSES)
def test_objective_is_the_plain_mean_over_samples(loss, backend):
    X, y = rows(150, 5)
    problem = make_problem(data=(X, y), loss=loss, regularizer={"l1": 0.2, "l2": 0.1}, backend=backend)
    W = np.random.default_rng(1).normal(size=(4, 5))
    found = backend.to_host(problem.objective(backend.asarray(W)))
    np.testing.assert_allclose(found, [plain_objective(problem, X, y, w) for w in W], rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_the_derivative_of_the_objective(loss, backend):
    X, y = rows(150, 5)
    problem = make_problem(data=(X, y), loss=loss, regularizer=0.0, backend=backend)
    W = np.random.default_rng(1).normal(size=(3, 5))
    gradient = backend.to_host(problem.gradient(backend.asarray(W)))
    step = 1e-6
    for k in range(3):
        for j in range(5):
            e = step * np.eye(5)[j]
            slope = (plain_objective(problem, X, y, W[k] + e) - plain_objective(problem, X, y, W[k] - e)) / (2 * step)
            assert gradient[k, j] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_sample_gradients_average_to_the_full_gradient(loss, backend):
    problem = make_problem(n=40, loss=loss, backend=backend)
    w, v = np.random.default_rng(2).normal(size=(2, 7))
    W, V = backend.asarray(np.tile(w, (40, 1))), backend.asarray(np.tile(v, (40, 1)))
    index = backend.index(np.arange(40))
    samples = backend.to_host(problem.sample_gradients(W, index))
    np.testing.assert_allclose(samples.mean(axis=0), backend.to_host(problem.gradient(W))[0], atol=1e-14)
    differences = backend.to_host(problem.sample_differences(W, V, index))
    np.testing.assert_allclose(differences, samples - backend.to_host(problem.sample_gradients(V, index)), atol=1e-14)


def test_hessian_is_the_derivative_of_the_gradient(backend):
    problem = make_problem(backend=backend, regularizer=0.0)
    w = np.random.default_rng(2).normal(size=7)
    hessian = backend.to_host(problem.hessian(backend.asarray(w)))
    step = 1e-6
    for j in range(7):
        W = backend.asarray(np.stack([w + step * np.eye(7)[j], w - step * np.eye(7)[j]]))
        up, down = backend.to_host(problem.gradient(W))
        np.testing.assert_allclose(hessian[j], (up - down) / (2 * step), atol=1e-8)


def test_chunking_changes_only_the_order_of_summation():
    X, y = rows(1000, 9)
    W = np.random.default_rng(3).normal(size=(64, 9))
    coarse = make_problem(data=(X, y), backend=Backend("numpy", np, None, "float64", 1 << 30, "one chunk"))
    fine = make_problem(data=(X, y), backend=Backend("numpy", np, None, "float64", 1, "64 rows"))
    np.testing.assert_allclose(fine.gradient(W), coarse.gradient(W), rtol=1e-12, atol=1e-15)


def test_single_precision_gradient_is_accurate_to_single_precision():
    X, y = rows(5000, 20)
    W = np.random.default_rng(3).normal(size=(64, 20))
    exact = make_problem(data=(X, y)).gradient(W)
    problem = make_problem(data=(X, y), backend=get_backend("cpu", "float32"))
    np.testing.assert_allclose(problem.gradient(W.astype(np.float32)), exact, atol=3e-7)


def test_replacing_one_record_moves_the_gradients_within_the_stated_sensitivities():
    """2G/n for the full gradient; two spreads for a sampled difference."""
    rng = np.random.default_rng(7)
    X, y = rows(50, 4)
    worst_full = worst_sampled = 0.0
    for _ in range(200):
        X2, y2 = X.copy(), y.copy()
        X2[3] = rng.normal(size=4)
        X2[3] /= np.linalg.norm(X2[3])
        y2[3] = -y[3]
        one, two = make_problem(data=(X, y)), make_problem(data=(X2, y2))
        W, V = 20 * rng.normal(size=(2, 1, 4))
        worst_full = max(worst_full, np.linalg.norm(one.gradient(W) - two.gradient(W)))
        index = np.array([3])
        moved = one.sample_differences(W, V, index) - two.sample_differences(W, V, index)
        worst_sampled = max(worst_sampled, np.linalg.norm(moved))
    spec = one.spec
    assert 0.5 * 2 * spec.G / spec.n < worst_full <= 2 * spec.G / spec.n
    assert 0.5 * 2 * spec.gradient_spread < worst_sampled <= 2 * spec.gradient_spread


def test_spec_states_what_an_algorithm_may_rely_on():
    ridge = ProblemSpec(10, 3, Logistic(), Regularizer(l2=0.1), RealSpace())
    assert {
        "smooth",
        "convex",
        "strongly_convex",
        "smooth_regularizer",
        "lipschitz",
        "unconstrained",
    } == ridge.properties
    lasso = ProblemSpec(10, 3, Squared(), Regularizer(l1=0.1), L1Ball(2.0))
    assert lasso.properties == {"smooth", "convex", "lipschitz", "bounded", "polytope"}
    assert lasso.G == 3.0
    assert "lipschitz" not in ProblemSpec(10, 3, Squared(), Regularizer(), RealSpace()).properties
