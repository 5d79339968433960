"""Records that are copies of atoms behave as the same records stored one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dprepro import datasets
from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.arrays import get_backend
from dprepro.errors import LedgerMismatch, UserError
from dprepro.geometry import get_set
from dprepro.losses import get_loss
from dprepro.privacy.events import GaussianEvent, QueryPart
from dprepro.privacy.mechanisms import GaussianMechanism, Slots
from dprepro.problems import make_risk
from dprepro.problems.erm import ProblemSpec
from dprepro.problems.repeated import copies_of
from dprepro.regularizers import get_regularizer
from dprepro.run import execute
from dprepro.streams import Streams

BACKEND = get_backend("cpu", "float64")
COPIES = np.array([3, 1, 5, 7])


def both(loss="welsch", d=3, constraint=None):
    """The problem over copies of four atoms, and over the same 16 records stored one by one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, d))
    X /= 1.001 * np.linalg.norm(X, axis=1, keepdims=True)
    y = np.array([0.5, -0.25, 1.0, 0.75])
    spec = ProblemSpec(16, d, get_loss(loss), get_regularizer(0.1), get_set(constraint))
    repeated = make_risk(spec, X, y, BACKEND, probabilities=COPIES / 16, repeated=True)
    return repeated, make_risk(spec, np.repeat(X, COPIES, axis=0), np.repeat(y, COPIES), BACKEND)


@pytest.mark.parametrize("loss", ["welsch", "huber", "valley", "huber_mean:0.5"])
def test_objective_and_gradients_are_those_of_the_stored_records(loss):
    repeated, stored = both(loss)
    W = np.random.default_rng(1).normal(size=(6, 3))
    np.testing.assert_allclose(repeated.objective(W), stored.objective(W), rtol=1e-13)
    np.testing.assert_allclose(repeated.gradient(W), stored.gradient(W), rtol=0, atol=1e-14)
    np.testing.assert_allclose(repeated.gradient_norm(W), stored.gradient_norm(W), rtol=1e-12)
    assert type(repeated.with_dtype("float32")) is type(repeated)


@pytest.mark.parametrize("loss", ["welsch", "valley"])
def test_a_batch_of_counts_has_the_gradient_of_the_records_it_counts(loss):
    repeated, stored = both(loss)
    W, V = np.random.default_rng(1).normal(size=(2, 2, 3))
    counts = np.array([[2, 0, 1, 3], [0, 1, 5, 0]])
    first = np.cumsum(COPIES) - COPIES
    index = np.array([[i for m in range(4) for i in range(first[m], first[m] + row[m])] for row in counts])
    batch = repeated.batch(counts, 6)
    np.testing.assert_allclose(repeated.sample_gradients(W, batch), stored.sample_gradients(W, index), atol=1e-14)
    np.testing.assert_allclose(
        repeated.sample_differences(W, V, batch), stored.sample_differences(W, V, index), atol=1e-14
    )


def counts_of(kind, steps, size, seed=0):
    drawn = getattr(Streams(seed, [0], "x"), kind)(0, steps, size, COPIES)
    return drawn[:, 0, :]


def test_counts_of_a_batch_have_the_law_of_drawing_without_replacement():
    """Chi-square over all outcomes of one atom at a false-alarm rate of 1e-7 each, and the sum is the size."""
    counts = counts_of("hypergeometrics", 20_000, 6)
    assert np.all(counts.sum(axis=1) == 6)
    for m, copies in enumerate(COPIES):
        law = stats.hypergeom(16, copies, 6).pmf(np.arange(7))
        seen = np.bincount(counts[:, m], minlength=7)
        used = law > 1e-4
        assert seen[~used].sum() <= 30
        expected = law[used] * seen[used].sum() / law[used].sum()
        assert stats.chisquare(seen[used], expected).pvalue > 1e-7


def test_counts_of_a_poisson_batch_are_binomial():
    """Chi-square over all outcomes of one atom at a false-alarm rate of 1e-7 each."""
    counts = counts_of("binomials", 20_000, 6)
    for m, copies in enumerate(COPIES):
        law = stats.binom(copies, 6 / 16).pmf(np.arange(copies + 1))
        seen = np.bincount(counts[:, m], minlength=copies + 1)
        used = law > 1e-3
        expected = law[used] * seen[used].sum() / law[used].sum()
        assert stats.chisquare(seen[used], expected).pvalue > 1e-7


@pytest.mark.parametrize("kind", ["hypergeometrics", "binomials"])
def test_draws_depend_neither_on_blocks_nor_on_company(kind):
    alone, company = Streams(3, [5], "x"), Streams(3, [None, 5, 7], "x")
    whole = getattr(alone, kind)(0, 200, 6, COPIES)
    pieces = [getattr(company, kind)(first, steps, 6, COPIES) for first, steps in ((0, 10), (10, 90), (100, 100))]
    np.testing.assert_array_equal(np.concatenate(pieces)[:, 1, :], whole[:, 0, :])
    assert not np.concatenate(pieces)[:, 0, :].any()
    assert np.any(np.concatenate(pieces)[:, 2, :] != whole[:, 0, :])


def test_the_mechanism_counts_its_releases_and_refuses_another_number_of_records():
    event = GaussianEvent("step", 1.0, (QueryPart(1.0, 6, 16),), 3)
    mechanism = GaussianMechanism(event, 2, Slots(0, (0, 1), BACKEND))
    drawn = list(mechanism.counted(3, COPIES))
    assert mechanism.drawn == 3
    assert [counts.shape for (counts, _), _ in drawn] == [(2, 4)] * 3
    assert {size for (_, size), _ in drawn} == {6}
    with pytest.raises(LedgerMismatch, match="planned for 16 records"):
        next(GaussianMechanism(event, 2, Slots(0, (0, 1), BACKEND)).counted(3, np.array([3, 1])))


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_sampled_descent_on_copies_agrees_with_that_on_the_stored_records(sampling):
    """Means over 512 replicates differ by less than 6 standard errors in each of 3 coordinates."""
    outputs = []
    for problem in both():
        plan = get_algorithm("dp_sgd").plan(
            Setting(problem.spec, 5.0, 1e-3, "certified"), T=20, b=6, eta=0.5, sampling=sampling
        )
        outputs.append(execute(plan, problem, seed=len(outputs), replicates=range(512)).w)
    apart = outputs[0].mean(axis=0) - outputs[1].mean(axis=0)
    error = np.sqrt((outputs[0].var(axis=0) + outputs[1].var(axis=0)) / 512)
    assert np.all(np.abs(apart) < 6 * error)
    ratio = outputs[0].var(axis=0) / outputs[1].var(axis=0)
    assert np.all((ratio > 0.6) & (ratio < 1.7))


def test_copies_must_be_whole_and_are_not_handed_out_once_each():
    np.testing.assert_array_equal(copies_of(np.array([0.25, 0.75]), 8), [2, 6])
    with pytest.raises(UserError, match="n = 10 records cannot be copies of 2 atoms"):
        copies_of(np.array([0.25, 0.75]), 10)
    repeated, _ = both()
    plan = get_algorithm("dp_sgd").plan(Setting(repeated.spec, math.inf, 1e-3), T=2, b=3, eta=0.1, sampling="once")
    with pytest.raises(UserError, match="not handed out once each"):
        execute(plan, repeated, seed=0, replicates=[0])
    with pytest.raises(UserError, match="not clipped one by one"):
        repeated.sample_differences(np.zeros((1, 3)), np.zeros((1, 3)), repeated.batch(COPIES[None, :], 16), 0.1)


def large(n):
    data = datasets.load("population_valley", rows=n, repeated=True, features=4)
    spec = ProblemSpec(n, 4, get_loss("valley"), get_regularizer(0.0), get_set(None), data.row_norm)
    return make_risk(spec, data.X, data.y, BACKEND, probabilities=data.population.probabilities, repeated=True)


def test_ten_million_records_cost_no_more_than_a_thousand():
    """All of them and random batches: the arrays of the problem do not grow."""
    for n, T in ((1024, 30), (64 * 10**6 // 4, 30)):
        problem = large(n)
        assert problem.records()[1].shape == (64, 4)
        for name, letters in (("dp_gd", {}), ("spiderboost", {"q": 5, "b2": 64})):
            plan = get_algorithm(name).plan(Setting(problem.spec, 1.0, 1e-5, "certified"), T=T, **letters)
            assert np.all(np.isfinite(execute(plan, problem, seed=0, replicates=range(8), tile=8).w))


def test_more_records_than_batches_can_be_drawn_from_are_refused_only_where_some_are():
    problem = large(64 * 10**8)
    whole = get_algorithm("dp_gd").plan(Setting(problem.spec, 1.0, 1e-5, "certified"), T=2)
    execute(whole, problem, seed=0, replicates=[0])
    plan = get_algorithm("dp_sgd").plan(Setting(problem.spec, math.inf, 1e-5), T=2, b=10, eta=0.1)
    with pytest.raises(UserError, match="cannot be drawn from n = 6400000000 repeated records"):
        execute(plan, problem, seed=0, replicates=[0])


def test_a_poisson_batch_of_a_vector_loss_counts_with_the_records_that_came():
    repeated, stored = both("valley")
    W = np.random.default_rng(1).normal(size=(2, 3))
    counts = np.array([[3, 1, 5, 7], [0, 0, 0, 0]])
    gradient = repeated.sample_gradients(W, repeated.batch(counts, 8))
    np.testing.assert_allclose(gradient[0], 2.0 * stored.gradient(W)[0], atol=1e-14)
    assert not gradient[1].any()


def test_a_dataset_without_atoms_cannot_be_repeated():
    data = datasets.load("population_valley", rows=640, repeated=True, features=4)
    assert data.population.repeated
    with pytest.raises(UserError, match="no atoms that its records could be copies of"):
        datasets.load("synthetic_regression", rows=10, repeated=True)
    with pytest.raises(UserError, match="no atoms"):
        datasets.load("population_sphere", rows=10, repeated=True)
