"""KLT25: what samples that share directions in groups estimate, how well, and how far one of them moves it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import betainc
from support import make_problem, rows

from dprepro.algorithms import get_algorithm
from dprepro.algorithms._estimators import CommonValues, Frame, Scene
from dprepro.algorithms.base import Setting
from dprepro.arrays import get_backend, strict_backend
from dprepro.problems.erm import FreshBatch
from dprepro.run import Execution, execute
from dprepro.streams import Streams

ALPHA = 0.7
# Batches whose samples all have their own directions, the last of them, and groups with and without a rest.
SIZES = {20: [1] * 20, 63: [1] * 63, 64: [2] * 32, 130: [4] * 32 + [2], 500: [15] * 33 + [5]}


class Asked:
    """Answers of one function to an estimator, sample by sample: each is at the points of its own group."""

    xp = np

    def __init__(self, d, f, replicates):
        self.d, self.f, self.replicates = d, f, replicates
        self.evaluations = 0

    def zeros(self):
        return np.zeros((self.replicates, self.d))

    def streams(self, purpose):
        return Streams(3, list(range(self.replicates)), purpose)

    def batch_values(self, points, batch):
        self.evaluations += batch.size * points.shape[2]
        sizes = SIZES[batch.size] if points.shape[1] > 1 else [batch.size]
        assert points.shape[1] == len(sizes)
        return np.repeat(self.f(points), sizes, axis=1)


def scene_of(d, m):
    return Scene(1.0, d, True, ALPHA, 0.4, m, 1e-6)


def batch_of(size):
    return FreshBatch(size, slice(0, size))


@pytest.mark.parametrize("size", SIZES)
def test_groups_leave_the_error_of_their_number_and_a_sample_that_of_its_directions(size):
    """On a linear loss a mean over m directions has the variance (d - 1)/m, one over groups the sum of their shares^2.

    Means over 1500 replicates within 6.5 standard errors: 8 comparisons in each of 5 cases, a false alarm below 1e-8.
    """
    d, m, K = 4, 3, 1500
    ex = Asked(d, lambda points: points[..., 0], K)
    estimator = CommonValues(ex, scene_of(d, m), m)
    single, e = estimator._gradients(np.zeros((K, d)), batch_of(size)), np.eye(d)[0]
    shares = np.array(SIZES[size]) / size
    for found, variance in (
        (single[:, 0], (d - 1) / m),
        (single[:, -1], (d - 1) / m),
        (single.mean(axis=1), (d - 1) / m * np.sum(shares**2)),
    ):
        squares = np.sum((found - e) ** 2, axis=1)
        assert abs(squares.mean() - variance) < 6.5 * squares.std() / math.sqrt(K)
    assert np.all(np.abs(single.mean(axis=(0, 1)) - e) < 6.5 * single.mean(axis=1).std(axis=0) / math.sqrt(K))
    assert np.sum(shares**2) <= max(1.0 / 32, 1.0 / size) * (1 + 1e-9)
    assert ex.evaluations == 2 * m * size


def test_planted_single_set_of_directions_is_seen(monkeypatch):
    """Planted bug: all samples of a batch share one set, whose error no batch averages out."""
    monkeypatch.setattr(CommonValues, "groups", 1)
    monkeypatch.setitem(SIZES, 130, [130])
    found = CommonValues(Asked(4, lambda points: points[..., 0], 400), scene_of(4, 3), 3)
    squares = np.sum((found.gradient(np.zeros((400, 4)), batch_of(130)) - np.eye(4)[0]) ** 2, axis=1)
    assert squares.mean() > 0.7
    monkeypatch.setitem(SIZES, 130, [4] * 32 + [2])
    with pytest.raises(AssertionError):
        test_groups_leave_the_error_of_their_number_and_a_sample_that_of_its_directions(130)


@pytest.mark.parametrize("d", [2, 5])
def test_groups_estimate_the_smoothed_gradient_across_a_kink(d):
    """|w_1| at 0.3 and 0.05: means of 800 replicates within 6.5 standard errors in 14 coordinates, below 1e-8."""
    K = 800
    ex = Asked(d, lambda points: np.abs(points[..., 0]), K)
    estimator = CommonValues(ex, scene_of(d, d), d)
    z, before = np.zeros((2, K, d))
    z[:, 0], before[:, 0] = 0.3, 0.05
    slopes = [float(betainc(0.5, (d + 1) / 2, (at / ALPHA) ** 2)) for at in (0.3, 0.05)]
    batch = batch_of(130)
    for found, slope in (
        (estimator.gradient(z, batch), slopes[0]),
        (estimator.difference(z, before, batch), slopes[0] - slopes[1]),
    ):
        error = found.std(axis=0) / math.sqrt(K)
        assert np.all(np.abs(found.mean(axis=0) - slope * np.eye(d)[0]) < 6.5 * error)


@pytest.mark.parametrize(("d", "bound"), [(4, 0.19), (10, 0.21), (32, 0.22)])
def test_a_shared_frame_errs_on_a_kink_whatever_the_batch_by_no_more_than_stated(d, bound):
    """F = |w_1 - s|, s/alpha where the error is largest; 0.015 is 6.5 standard errors or more of 4000 frames."""
    at = {4: 0.39, 10: 0.27, 32: 0.14}[d] * ALPHA
    ex = Asked(d, lambda points: np.abs(points[..., 0]), 4000)
    z = np.zeros((4000, d))
    z[:, 0] = at
    exact = betainc(0.5, (d + 1) / 2, (at / ALPHA) ** 2) * np.eye(d)[0]
    squares, alone = (
        np.sum((Frame(ex, scene_of(d, d), d).gradient(z, batch_of(size)) - exact) ** 2, axis=1) for size in (20, 1)
    )
    np.testing.assert_allclose(squares, alone)
    assert math.sqrt(squares.mean()) == pytest.approx(bound, abs=0.015)
    assert 6.5 * squares.std() / math.sqrt(4000) < 0.015 * 2 * bound


# --- on data ----------------------------------------------------------------------------------------------------

LETTERS = {"alpha": 0.2, "D": 0.05, "M": 2, "T": 8, "Sigma": 4, "B1": 130, "B2": 70}


def stored(d, label=0.0, place=0, backend=None):
    """700 records in the positive orthant with labels near 0, of which one has its own; on a line all rows are 1."""
    X, y = rows(700, d)
    y = 0.02 * y
    y[place] = label
    data = (np.ones((700, 1)) if d == 1 else np.abs(X), y)
    return make_problem(data=data, loss="absolute", regularizer=0.0, backend=backend or get_backend("cpu"))


def asked(problem, size, z, before=None):
    """The estimate of the first batch of this size, for 8 replicates."""
    plan = get_algorithm("zhang24").plan(Setting(problem.spec, 1.0, 1e-6, "certified"), **LETTERS)
    ex = Execution(plan, problem, 2, list(range(8)))
    estimator = CommonValues(ex, plan.scene, plan.m)
    batch = ex.fresh(size)
    found = estimator.gradient(z, batch) if before is None else estimator.difference(z, before, batch)
    return plan, found


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("place", [0, 5, 127, 128, 129])
def test_a_replaced_sample_of_a_group_moves_the_mean_by_no_more_than_stated(d, place):
    """Places in the first two groups, in the last whole one, and in the rest. On a line the bound is attained."""
    z = np.full((8, d), 0.5)
    (plan, one), (_, other) = (asked(stored(d, label, place), 130, z) for label in (0.0, 1.0))
    moved, bounds = np.linalg.norm(one - other, axis=1), CommonValues.bounds(plan.scene)
    assert np.all(moved > 0.0)
    assert np.all(moved <= 2.0 * bounds.gradient / 130 * (1 + 1e-9))
    if d == 1:
        np.testing.assert_allclose(moved, 2.0 / 130, rtol=1e-9)
    (_, one), (_, other) = (asked(stored(d, label, place), 130, 0.1 * z, 0.0 * z) for label in (0.0, 1.0))
    h, moved = 0.05 * math.sqrt(d), np.linalg.norm(one - other, axis=1)
    assert np.all(moved > 0.0)
    assert np.all(moved <= 2.0 * bounds.difference * h / plan.scene.longest / 130 * (1 + 1e-9))


def test_runs_with_groups_make_the_planned_evaluations_in_any_company_and_on_strict_arrays():
    found = []
    for backend in (get_backend("cpu"), strict_backend()):
        problem = stored(3, backend=backend)
        plan = get_algorithm("zhang24").plan(Setting(problem.spec, 1.0, 1e-6, "certified"), **LETTERS)
        assert plan.function_evaluations == 2 * 3 * 2 * 130 + 4 * 3 * 6 * 70
        result = execute(plan, problem, seed=1, replicates=range(3), tile=4)
        assert result.function_evaluations[-1] == plan.function_evaluations
        assert result.samples_used == 2 * 130 + 6 * 70
        found.append(result.w)
    np.testing.assert_allclose(*found, rtol=1e-10, atol=1e-13)
    alone = execute(plan, stored(3), seed=1, replicates=[2], tile=4).w
    np.testing.assert_array_equal(alone[0], found[0][2])
