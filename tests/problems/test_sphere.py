"""The continuous population on the sphere: quadrature against closed forms, finite differences and samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from dprepro import datasets
from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.arrays import get_backend
from dprepro.errors import UserError
from dprepro.geometry import get_set
from dprepro.losses import get_loss
from dprepro.problems import make_risk
from dprepro.problems.erm import ProblemSpec
from dprepro.regularizers import get_regularizer
from dprepro.run import execute
from dprepro.streams import Streams

BACKEND = get_backend("cpu", "float64")


def problem(loss="welsch", d=6, n=4096, **parameters):
    data = datasets.load("population_sphere", rows=n, features=d, **parameters)
    spec = ProblemSpec(n, d, get_loss(loss), get_regularizer(0.0), get_set(None))
    risk = make_risk(spec, data.X, data.y, BACKEND, probabilities=np.ones(1), sphere=data.population.sphere)
    return risk, data.X[0].astype(np.float64)


@pytest.mark.parametrize("d", [2, 3, 6, 50])
def test_the_squared_loss_has_its_closed_form(d):
    """E (rho u + s)^2 / 2 = rho^2 / (2 d) + s^2 / 2."""
    risk, truth = problem("squared", d)
    W = truth + np.random.default_rng(0).normal(size=(5, d))
    apart = W - truth
    np.testing.assert_allclose(risk.objective(W), np.sum(apart**2, axis=1) / (2 * d) + 0.25**2 / 2, rtol=1e-12)
    np.testing.assert_allclose(risk.gradient(W), apart / d, rtol=1e-11, atol=1e-14)
    assert not risk.gradient(truth[None, :]).any()


@pytest.mark.parametrize(("loss", "accuracy"), [("welsch", 1e-10), ("sine_squared", 1e-9), ("huber:0.3", 1e-4)])
def test_the_gradient_agrees_with_adaptive_integration_and_with_the_values(loss, accuracy):
    d = 6
    risk, truth = problem(loss, d)
    W = truth + np.random.default_rng(1).normal(size=(3, d)) * np.array([[0.1], [0.5], [2.0]])
    chosen = get_loss(loss)
    mass, _ = integrate.quad(lambda u: (1 - u * u) ** ((d - 3) / 2), -1, 1)
    for w, gradient in zip(W, risk.gradient(W), strict=True):
        rho = np.linalg.norm(w - truth)

        def slope(u, rho=rho):
            ends = [float(chosen.derivative(np, np.array(rho * u), np.array(s))) for s in (0.25, -0.25)]
            return u * np.mean(ends) * (1 - u * u) ** ((d - 3) / 2) / mass

        kinks = [at / rho for at in (-0.55, -0.05, 0.05, 0.55) if abs(at) < rho]
        along, _ = integrate.quad(slope, -1, 1, epsabs=1e-12, limit=200, points=kinks or None)
        np.testing.assert_allclose(gradient, along * (w - truth) / rho, rtol=0, atol=accuracy)
    step = 1e-5
    for j in range(d):
        move = step * np.eye(d)[j]
        values = (risk.objective(W + move) - risk.objective(W - move)) / (2 * step)
        np.testing.assert_allclose(risk.gradient(W)[:, j], values, rtol=0, atol=max(1e-8, accuracy))


def test_batches_are_unbiased_samples_of_the_sphere():
    """The mean gradient over 400,000 samples is within 6 standard errors of the quadrature in 18 numbers."""
    risk, truth = problem("welsch")
    batch = risk.fresh_batch(Streams(0, [0, 1, 2], "fresh batches"), 1, 0, 400_000)
    np.testing.assert_allclose(np.linalg.norm(batch.X, axis=2), 1.0, rtol=1e-14)
    noise = batch.y - batch.X @ truth
    np.testing.assert_allclose(np.abs(noise), 0.25, rtol=1e-12)
    assert np.all(np.abs(np.sign(noise).mean(axis=1)) < 6 / np.sqrt(400_000))
    W, V = truth + np.random.default_rng(1).normal(size=(2, 3, 6))
    error = risk.spec.G / np.sqrt(400_000)
    assert np.all(np.abs(risk.batch_gradient(W, batch) - risk.gradient(W)) < 6 * error)
    difference = risk.gradient(W) - risk.gradient(V)
    assert np.all(np.abs(risk.batch_difference(W, V, batch) - difference) < 12 * error)


def test_batches_depend_on_their_number_and_replicate_only():
    risk, _ = problem()
    one = risk.fresh_batch(Streams(0, [4], "x"), 2, 0, 10)
    two = risk.fresh_batch(Streams(0, [None, 4], "x"), 2, 50, 10)
    np.testing.assert_array_equal(one.X[0], two.X[1])
    assert not two.X[0].any()
    assert np.any(risk.fresh_batch(Streams(0, [4], "x"), 3, 0, 10).X != one.X)


def test_one_pass_without_noise_comes_close_to_the_truth():
    risk, truth = problem("huber", n=20_000)
    setting = Setting(risk.spec, np.inf, 1e-5)
    plan = get_algorithm("dp_sgd").plan(setting, sampling="once", b=200, eta=1.5)
    result = execute(plan, risk, seed=0, replicates=range(4), tile=4)
    assert plan.gradient_evaluations == result.samples_used == 20_000
    assert np.all(np.linalg.norm(result.w - truth, axis=1) < 0.1)


def test_other_losses_and_too_large_samples_are_refused():
    with pytest.raises(UserError, match="no function of a residual"):
        problem("soft_logistic")
    risk, _ = problem(n=10**8)
    with pytest.raises(UserError, match="do not fit at one time"):
        risk.fresh_batch(Streams(0, [0], "x"), 1, 0, 10**8)
    with pytest.raises(UserError, match="no numbered samples"):
        risk.fresh_indices(Streams(0, [0], "x"), 0, 1)
    with pytest.raises(UserError, match="beyond 1"):
        datasets.load("population_sphere", length=0.9, noise=0.2)
