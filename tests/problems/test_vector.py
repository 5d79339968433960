"""Losses of the whole vector: gradients, constants, and the populations made for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from dprepro.run import execute, observed_candidates

BACKEND = get_backend("cpu", "float64")
LOSSES = ["valley", "valley:0.4", "huber_mean", "huber_mean:0.3"]


def problem(loss, d=4, n=64, name="population_valley", repeated=True, dtype="float64", **parameters):
    data = datasets.load(name, rows=n, features=d, **parameters)
    spec = ProblemSpec(n, d, get_loss(loss), get_regularizer(0.0), get_set(None), data.row_norm)
    probabilities = data.population.probabilities
    backend = get_backend("cpu", dtype)
    return make_risk(spec, data.X, data.y, backend, probabilities=probabilities, repeated=repeated)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_those_of_the_values(loss):
    risk = problem(loss)
    W = np.random.default_rng(0).normal(size=(40, 4)) * np.geomspace(0.01, 30.0, 40)[:, None]
    step = 1e-6 * np.maximum(1.0, np.abs(W).max(axis=1))
    for j in range(4):
        move = np.zeros((40, 4))
        move[:, j] = step
        slope = (risk.objective(W + move) - risk.objective(W - move)) / (2.0 * step)
        np.testing.assert_allclose(risk.gradient(W)[:, j], slope, rtol=0, atol=2e-8)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(LOSSES), st.integers(0, 2**31), st.floats(0.01, 30.0))
def test_no_record_breaks_the_stated_constants(loss, seed, scale):
    rng = np.random.default_rng(seed)
    spec = ProblemSpec(1, 3, get_loss(loss), get_regularizer(0.0), get_set(None))
    x = rng.normal(size=(1, 3))
    x /= np.linalg.norm(x)
    risk = make_risk(spec, x, rng.uniform(-1.0, 1.0, 1), BACKEND)
    W, V = scale * rng.normal(size=(2, 30, 3))
    V[15:] = W[15:] + 0.01 * rng.normal(size=(15, 3))
    g, h = risk.gradient(W), risk.gradient(V)
    assert np.linalg.norm(g, axis=1).max() <= spec.G * (1 + 1e-12)
    assert np.all(np.linalg.norm(g - h, axis=1) <= spec.L * np.linalg.norm(W - V, axis=1) * (1 + 1e-9) + 1e-12)


def test_the_constants_are_attained():
    spec = ProblemSpec(1, 3, get_loss("valley"), get_regularizer(0.0), get_set(None))
    risk = make_risk(spec, np.array([[0.0, 1.0, 0.0]]), np.ones(1), BACKEND)
    steep = risk.gradient(np.array([[-1.0, -5.0, 0.0]]))
    assert np.linalg.norm(steep) == pytest.approx(spec.G)
    steeper = get_loss("valley:2.0")
    u = np.linspace(0.0, 30.0, 200_001)
    curvature = np.diff(steeper._psi_slope(np, u)) / np.diff(u)
    assert np.abs(curvature).max() == pytest.approx(steeper.smoothness(1.0) / 2.0, rel=1e-3)
    assert np.abs(steeper._psi_slope(np, u)).max() <= 1.0
    # It is not convex, and falls all the way.
    assert curvature.min() < -1e-3
    assert np.all(steeper._psi_slope(np, u) < 0.0)


def test_the_valley_has_the_stated_infimum_and_descent_falls_as_the_steps_to_the_five_ninths():
    risk = problem("valley")
    far = np.zeros((1, 4))
    far[0, 0] = 1e12
    assert float(risk.objective(np.zeros((1, 4)))[0]) == 0.0
    assert float(risk.objective(far)[0]) == pytest.approx(-0.8, abs=1e-3)
    w, norms = np.zeros((1, 4)), []
    for _ in range(30_000):
        w = w - risk.gradient(w)
        norms.append(float(risk.gradient_norm(w)[0]))
    # The wave makes single gradients rise and fall by a factor; their mean over the steps does not show it.
    mean = np.cumsum(norms) / np.arange(1, len(norms) + 1)
    slope = np.log(mean[-1] / mean[299]) / np.log(100.0)
    assert slope == pytest.approx(-5.0 / 9.0, abs=0.05)


def test_the_mean_of_points_is_found_without_noise():
    risk = problem("huber_mean", name="population_mean", n=640)
    plan = get_algorithm("dp_gd").plan(Setting(risk.spec, np.inf, 1e-3), T=60, eta=0.5)
    result = execute(plan, risk, seed=0, replicates=[0])
    np.testing.assert_allclose(result.w[0], datasets.load("population_mean", features=4).X.mean(axis=0), atol=1e-7)


@pytest.mark.parametrize("loss", ["valley", "huber_mean"])
def test_named_records_are_weighed_as_often_as_they_are_named(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 3)) / 3.0
    spec = ProblemSpec(5, 3, get_loss(loss), get_regularizer(0.0), get_set(None))
    risk = make_risk(spec, X, np.linspace(0.2, 1.0, 5), BACKEND)
    W, V = rng.normal(size=(2, 2, 3))
    single = [make_risk(spec, X[[i]], np.linspace(0.2, 1.0, 5)[[i]], BACKEND) for i in range(5)]
    one = risk.sample_gradients(W, np.array([3, 1]))
    np.testing.assert_allclose(one[0], single[3].gradient(W)[0], atol=1e-14)
    np.testing.assert_allclose(one[1], single[1].gradient(W)[1], atol=1e-14)
    two = risk.sample_differences(W, V, np.array([[0, 4], [2, 1]]))
    for k, (i, j) in enumerate(((0, 4), (2, 1))):
        parts = [single[m].gradient(W)[k] - single[m].gradient(V)[k] for m in (i, j)]
        np.testing.assert_allclose(two[k], np.mean(parts, axis=0), atol=1e-14)
    batch = risk.fresh_batch(None, 1, 2, 3)
    want = np.mean([single[m].gradient(W) for m in (2, 3, 4)], axis=0)
    np.testing.assert_allclose(risk.batch_gradient(W, batch), want, atol=1e-14)


def test_what_vector_losses_cannot_do_is_refused():
    risk = problem("valley")
    with pytest.raises(UserError, match="no second derivatives"):
        risk.hessians(np.zeros((1, 4)))
    with pytest.raises(UserError, match="clipped one by one"):
        risk.sample_differences(np.zeros((1, 4)), np.zeros((1, 4)), None, 0.1)
    with pytest.raises(UserError, match="function of <w, x>"):
        risk.with_loss(get_loss("huber")).gradient(np.zeros((1, 4)))
    with pytest.raises(UserError, match="multiple of 4"):
        datasets.load("population_valley", atoms=6)


@pytest.mark.parametrize("count", [1, 7, 200, 201, 1500, 60_000])
def test_few_candidates_stand_for_all_and_their_mean_is_close_to_that_of_all(count):
    """On gradients that fall as t^(-5/9) the mean over the observed ones is within 0.5 % of that over all."""
    observed = observed_candidates(count)
    assert len(observed) <= 200
    assert sum(observed.values()) == count
    assert set(observed) <= set(range(count))
    falling = (1.0 + np.arange(count)) ** (-5.0 / 9.0)
    mean = sum(weight * falling[number] for number, weight in observed.items()) / count
    assert mean == pytest.approx(falling.mean(), rel=5e-3)


@pytest.mark.parametrize("q", [5, 15, 20, 30])
def test_observed_candidates_follow_no_period_of_an_algorithm(q):
    """Gradients that grow over a phase of q steps, where T/100 is a multiple of q and parts of equal length alias."""
    T = 3000
    growing = 1.0 + np.arange(T) % q / q
    mean = sum(weight * growing[number] for number, weight in observed_candidates(T).items()) / T
    assert mean == pytest.approx(growing.mean(), rel=0.03)


def test_candidates_of_a_random_output_are_judged_by_their_gradient_norm():
    risk = problem("valley", repeated=False, n=1024, d=5)
    plan = get_algorithm("dp_gd").plan(Setting(risk.spec, 1.0, 1e-5, "certified"), T=450, output="uniform")
    seen = []

    class Kept(type(risk)):
        def gradient_norm(self, W):
            seen.append(np.array(W))
            return super().gradient_norm(W)

    risk.__class__ = Kept
    result = execute(plan, risk, seed=0, replicates=range(3), tile=4, metric="gradient norm")
    weights = list(observed_candidates(450).values())
    assert len(seen) == len(weights) <= 200
    assert sum(weights) == 450
    norms = [type(risk).gradient_norm(risk, W)[:3] for W in list(seen)]
    want = np.average(norms, axis=0, weights=weights)
    np.testing.assert_allclose(result.observed["gradient norm"], want, rtol=1e-12)
    assert "candidate objective" not in result.observed
