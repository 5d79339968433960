"""Embedded rows: the law of the matrices, gradients against a plain reference, and rows that are never too long.

Statistical tests have fixed seeds and a false-alarm probability below 1e-6 each.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm
from support import make_problem, rows

from dprepro.arrays import get_backend
from dprepro.errors import UserError
from dprepro.geometry import RealSpace
from dprepro.losses import get_loss
from dprepro.privacy.mechanisms import PoissonBatch
from dprepro.problems import make_risk
from dprepro.problems.embedding import EmbeddedRisk
from dprepro.problems.erm import FreshBatch, ProblemSpec
from dprepro.regularizers import Regularizer
from dprepro.streams import Streams

ALARM = 1e-7
K, N, D = 3, 24, 9
LOSSES = ["logistic", "huber:0.5", "welsch", "glm_valley"]


def data(n=N, d=D):
    """Rows of which some columns are zero, with labels -1 and 1."""
    X, y = rows(n, d, seed=4)
    X[:, [2, 5]] = 0.0
    return X, y


def risk(kind, loss, backend, n=N, d=D):
    """A problem over stored rows, over copies of three times fewer atoms, or over a population of them."""
    atoms = n if kind == "stored" else n // 3
    X, y = data(atoms, d)
    spec = ProblemSpec(n, d, get_loss(loss), Regularizer(), RealSpace())
    options = {} if kind == "stored" else {"probabilities": np.full(atoms, 1.0 / atoms), "repeated": kind == "repeated"}
    return make_risk(spec, X, y, backend, **options), X, y


def streams(seed=1, slots=range(K)):
    return Streams(seed, list(slots), "embedding")


def matrices(embedded, k):
    """The matrices (K, k, d), read off what `lift` makes of unit vectors."""
    columns = []
    for i in range(k):
        unit = np.zeros((K, k))
        unit[:, i] = 1.0
        columns.append(embedded.backend.to_host(embedded.lift(embedded.backend.asarray(unit))))
    return np.stack(columns, axis=1)


def reference(Phi, clip, X, y, loss, slopes):
    """The gradients of all records on one replicate's embedded rows: (n, k)."""
    E = X @ Phi.T
    if clip is not None:
        E = E * np.minimum(1.0, clip / np.linalg.norm(E, axis=1))[:, None]
    if loss.margin:
        E = E * y[:, None]
    return slopes(E, y)[:, None] * E


def test_matrices_preserve_norms_and_angles():
    """k ||Phi u||^2 is chi-square and, given Phi u, <Phi u, Phi v> is normal where v is orthogonal to u."""
    slots, k, d = 64, 50, 20
    Phi = np.moveaxis(streams(7, range(slots)).normals(0, k, d).astype(float), 0, 1) / math.sqrt(k)
    spec = ProblemSpec(4, d, get_loss("huber"), Regularizer(), RealSpace())
    problem = make_risk(spec, np.eye(4, d), np.zeros(4), get_backend("cpu", "float64"))
    embedded = EmbeddedRisk(problem, streams(7, range(slots)), k)
    W = np.random.default_rng(0).normal(size=(slots, k))
    np.testing.assert_allclose(embedded.lift(W), np.einsum("kij,ki->kj", Phi, W), atol=1e-12)
    u = np.random.default_rng(1).normal(size=d)
    u /= np.linalg.norm(u)
    v = np.eye(d)[0] - u[0] * u
    total = k * np.sum((Phi @ u) ** 2)
    low, high = chi2.ppf([ALARM / 4, 1 - ALARM / 4], slots * k)
    assert low <= total <= high
    products = np.sum((Phi @ u) * (Phi @ v)) / (np.linalg.norm(Phi @ u) * np.linalg.norm(v) / math.sqrt(k))
    assert abs(products) <= norm.isf(ALARM / 4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["stored", "repeated", "population"])
def test_without_a_clip_the_gradient_is_that_of_the_lifted_point_embedded(kind, loss, backend):
    """grad F(w; Phi S) = Phi grad F(Phi^T w; S)."""
    problem, _, _ = risk(kind, loss, backend)
    embedded = EmbeddedRisk(problem, streams(), 5)
    Phi = matrices(embedded, 5)
    W = backend.asarray(np.random.default_rng(2).normal(size=(K, 5)))
    lifted = backend.to_host(problem.gradient(embedded.lift(W)))
    found = backend.to_host(embedded.gradient(W))
    np.testing.assert_allclose(found, np.einsum("kij,kj->ki", Phi, lifted), atol=1e-12)


@pytest.mark.parametrize("clip", [None, 0.8])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["stored", "repeated", "population"])
def test_gradients_over_all_records_and_over_batches_are_those_of_a_plain_reference(kind, loss, clip, backend):
    problem, X, y = risk(kind, loss, backend)
    embedded = EmbeddedRisk(problem, streams(), 5, clip)
    Phi, phi = matrices(embedded, 5), problem.spec.loss
    rng = np.random.default_rng(3)
    W, V = (backend.asarray(2.0 * rng.normal(size=(K, 5))) for _ in range(2))
    w, v = backend.to_host(W), backend.to_host(V)
    counts = rng.multinomial(10, np.full(len(y), 1 / len(y)), size=K)
    if kind == "stored":
        batch, shares = FreshBatch(8, slice(4, 12)), np.zeros((K, len(y)))
        shares[:, 4:12] = 1 / 8
    else:
        batch, shares = FreshBatch(10, slice(0, len(y)), backend.asarray(counts.T / 10)), counts / 10
    found = [embedded.gradient(W), embedded.batch_gradient(W, batch), embedded.batch_difference(W, V, batch)]
    clipped = 0
    for k in range(K):
        at_w = reference(Phi[k], clip, X, y, phi, lambda E, y, k=k: phi.derivative(np, E @ w[k], y))
        at_v = reference(Phi[k], clip, X, y, phi, lambda E, y, k=k: phi.derivative(np, E @ v[k], y))
        clipped += np.sum(np.linalg.norm(X @ Phi[k].T, axis=1) > 0.8)
        expected = [at_w.mean(axis=0), shares[k] @ at_w, shares[k] @ (at_w - at_v)]
        for array, value in zip(found, expected, strict=True):
            np.testing.assert_allclose(backend.to_host(array)[k], value, atol=1e-12)
    assert 0 < clipped < K * len(y), "some rows must be clipped and some not, or the test says little"


@pytest.mark.parametrize("clip", [None, 0.8])
@pytest.mark.parametrize("shorten", [None, 0.05])
def test_gradients_of_records_by_number_are_those_of_a_plain_reference(shorten, clip, backend):
    problem, X, y = risk("stored", "huber:0.5", backend)
    embedded = EmbeddedRisk(problem, streams(), 5, clip)
    Phi, phi = matrices(embedded, 5), problem.spec.loss
    rng = np.random.default_rng(5)
    w, v = (2.0 * rng.normal(size=(K, 5)) for _ in range(2))
    batches = [[[2], [7], [23]], [[0, 3], [5, 1], [9, 8]], [[4, 6, 1], [], [11]]]
    poisson = PoissonBatch(backend.index([N, 4, 6, 1, N, N, 11]), backend.index([0, 4, 5]), 2)
    names = [backend.index([2, 7, 23]), backend.index(batches[1]), poisson]
    for named, index, size in zip(names, batches, (1, 2, 2), strict=True):
        at = backend.asarray(w), backend.asarray(v)
        found = embedded.sample_gradients(at[0], named), embedded.sample_differences(*at, named, shorten)
        for k in range(K):
            at_w = reference(Phi[k], clip, X, y, phi, lambda E, y, k=k: phi.derivative(np, E @ w[k], y))[index[k]]
            at_v = reference(Phi[k], clip, X, y, phi, lambda E, y, k=k: phi.derivative(np, E @ v[k], y))[index[k]]
            turns = at_w - at_v
            if shorten is not None and index[k]:
                lengths = np.linalg.norm(turns, axis=1, keepdims=True)
                turns = turns * np.minimum(1.0, shorten / np.maximum(lengths, 1e-300))
            np.testing.assert_allclose(backend.to_host(found[0])[k], at_w.sum(axis=0) / size, atol=1e-12)
            np.testing.assert_allclose(backend.to_host(found[1])[k], turns.sum(axis=0) / size, atol=1e-12)


@given(st.integers(0, 2**31), st.floats(0.05, 3.0), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_no_embedded_row_is_longer_than_the_clip(seed, clip, k):
    """The gradient of a record of slope 1 is its embedded row."""
    X, _ = data()
    y = np.full(N, -1e6)
    spec = ProblemSpec(N, D, get_loss("huber"), Regularizer(), RealSpace(), label_bound=1e6)
    problem = make_risk(spec, X, y, get_backend("cpu", "float64"))
    embedded = EmbeddedRisk(problem, streams(seed), k, clip)
    for record in range(0, N, 5):
        row = embedded.sample_gradients(np.zeros((K, k)), np.full(K, record))
        assert np.all(np.linalg.norm(row, axis=1) <= clip * (1 + 1e-12))


def test_a_replicates_matrix_does_not_depend_on_its_company(backend):
    problem, _, _ = risk("stored", "huber", backend)
    W = np.random.default_rng(6).normal(size=(3, 4))
    whole = EmbeddedRisk(problem, streams(slots=[0, 1, 2]), 4, 1.0)
    part = EmbeddedRisk(problem, streams(slots=[None, 1, None]), 4, 1.0)
    for found in (lambda risk: risk.gradient(backend.asarray(W)), lambda risk: risk.lift(backend.asarray(W))):
        alone = backend.to_host(found(part))
        np.testing.assert_array_equal(alone[1], backend.to_host(found(whole))[1])
        assert np.all(alone[[0, 2]] == 0.0)


def test_another_loss_keeps_the_rows(backend):
    problem, _, _ = risk("stored", "huber", backend)
    embedded = EmbeddedRisk(problem, streams(), 4, 1.0).with_loss(get_loss("welsch"))
    direct = EmbeddedRisk(problem.with_loss(get_loss("welsch")), streams(), 4, 1.0)
    W = backend.asarray(np.random.default_rng(6).normal(size=(K, 4)))
    np.testing.assert_array_equal(backend.to_host(embedded.gradient(W)), backend.to_host(direct.gradient(W)))


def test_what_has_no_rows_to_embed_is_refused():
    backend = get_backend("cpu", "float64")
    X, y = data()
    valley = ProblemSpec(N, D, get_loss("valley"), Regularizer(), RealSpace())
    with pytest.raises(UserError, match="no function of <w, x>"):
        EmbeddedRisk(make_risk(valley, X, y, backend), streams(), 3)
    sphere = ProblemSpec(N, D, get_loss("huber"), Regularizer(), RealSpace())
    with pytest.raises(UserError, match="no rows to embed"):
        EmbeddedRisk(make_risk(sphere, X[:1], y[:1], backend, sphere=0.1), streams(), 3)
    with pytest.raises(UserError, match="give a smaller k"):
        EmbeddedRisk(make_problem(regularizer=0.0), streams(), 10**8)
    repeated, _, _ = risk("repeated", "huber", backend)
    batch = repeated.batch(np.ones((K, 8)), 8)
    with pytest.raises(UserError, match="not clipped one by one"):
        EmbeddedRisk(repeated, streams(), 3).sample_differences(np.zeros((K, 3)), np.ones((K, 3)), batch, 0.1)
