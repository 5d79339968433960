"""Populations whose samples are drawn as they are asked for: closed forms, constants and the sample queries."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import make_problem, rows, smoothed_gradient

from dprepro import datasets
from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.arrays import get_backend, strict_backend
from dprepro.errors import LedgerMismatch, RunFailed, UserError
from dprepro.losses import get_loss
from dprepro.run import Execution, execute
from dprepro.stages.dataset import arrays_of, facts_of
from dprepro.stages.problem import make_problem as make_from_facts
from dprepro.streams import Streams

BACKEND = get_backend("cpu", "float64")
# Every loss on the spiked design with labels that it can have, and the network: name, loss, parameters of the data.
SPIKED = {
    "capped_absolute": ("capped_absolute", {}),
    "ramp": ("ramp:0.3", {"share": 0.8, "outliers": 0.0}),
    "phase": ("phase:2", {"gap": 3.0}),
}
ALL = [*SPIKED, "network"]
CASES = [*((kind, d) for kind in SPIKED for d in (2, 3, 6, 40)), ("network", 6)]


def problem(kind, d=6, n=4096, backend=BACKEND, **changes):
    if kind == "network":
        name, loss, parameters = "population_network", "relu_network:3", {"hidden": 3, "features": 2, "atoms": 512}
    else:
        name, (loss, parameters) = "population_spiked", SPIKED[kind]
        parameters = {"features": d, **parameters}
    data = datasets.load(name, rows=n, **{**parameters, **changes})
    wanted = {"loss": loss, "regularizer": 0.0, "constraint": None}
    return make_from_facts(wanted, facts_of(data), arrays_of(data), backend)


def points(d, scales=(0.1, 2.0, 6.0), seed=0):
    return np.random.default_rng(seed).normal(size=(len(scales), d)) * np.array(scales)[:, None]


def draw(risk, size, slots=(0, 1, 2), number=1, first=0):
    return risk.fresh_batch(Streams(0, slots, "fresh batches"), number, first, size)


def in_ball(count, d, seed=0):
    rng = np.random.default_rng(seed)
    b = rng.normal(size=(count, d))
    return b * rng.random((count, 1)) ** (1.0 / d) / np.linalg.norm(b, axis=1, keepdims=True)


@pytest.mark.parametrize(("kind", "d"), CASES)
def test_value_and_gradient_of_the_population_are_the_means_over_samples(kind, d):
    """Each mean of 100,000 numbers is within 6.5 standard errors: some 500 comparisons, a false alarm below 1e-7.

    A coordinate of a gradient lies in [-1, 1], so that its standard deviation is at most 1.
    """
    risk = problem(kind, d)
    size, W = 100_000, points(risk.spec.d)
    batch = draw(risk, size)
    values = risk.sample_values(batch, W[:, None, None, :])[:, :, 0]
    error = values.std(axis=1) / math.sqrt(size)
    assert np.all(error > 0.0)
    assert np.all(np.abs(values.mean(axis=1) - risk.objective(W)) < 6.5 * error)
    assert np.all(np.abs(risk.batch_gradient(W, batch) - risk.gradient(W)) < 6.5 / math.sqrt(size))


@pytest.mark.parametrize(("kind", "d"), CASES)
def test_the_gradient_of_the_population_is_the_slope_of_its_value(kind, d):
    """Points in general position are on no kink that the population has left."""
    risk = problem(kind, d)
    W, step = points(risk.spec.d), 1e-7 if kind == "network" else 1e-5
    moves = step * np.eye(risk.spec.d)
    slopes = np.stack([(risk.objective(W + e) - risk.objective(W - e)) / (2 * step) for e in moves], axis=1)
    np.testing.assert_allclose(risk.gradient(W), slopes, rtol=0, atol=2e-8)


def test_the_spiked_design_has_its_known_values():
    """Capped regression falls by 0.8 (8 tau - 1/4) from 0 to the truth; the ramp has the slope share tau at 0."""
    risk = problem("capped_absolute", 10)
    truth = 8.0 * np.eye(10)[:1]
    fall = risk.objective(np.zeros((1, 10))) - risk.objective(truth)
    np.testing.assert_allclose(fall, 0.8 * (8.0 * math.sqrt(0.5) - 0.25), rtol=1e-12)
    np.testing.assert_allclose(risk.gradient(truth), 0.0, atol=1e-14)
    ramp = problem("ramp", 10)
    np.testing.assert_allclose(ramp.gradient(np.zeros((1, 10))), -0.3 * math.sqrt(0.8) * np.eye(10)[:1], atol=1e-13)


def test_the_profile_holds_value_and_gradient_in_two_numbers():
    risk = problem("phase", 5)
    W = points(5)
    rho = np.linalg.norm(W[:, 1:], axis=1)
    profile = risk.profile(W[:, 0], rho)
    np.testing.assert_array_equal(profile.value, risk.objective(W))
    gradient = risk.gradient(W)
    np.testing.assert_allclose(profile.first, gradient[:, 0], rtol=1e-14)
    np.testing.assert_allclose(profile.across, np.sum(gradient[:, 1:] * W[:, 1:], axis=1) / rho, rtol=1e-12)


@pytest.mark.parametrize("spread", [1e-6, 1e-3, 0.05])
def test_risks_with_narrow_labels_have_their_stated_accuracy(spread):
    """Against a mean over labels of risks without a spread, by quadrature; in 40 dimensions these are smooth."""
    W = points(40, (0.1, 2.0, 6.0, 50.0))
    nodes, weights = np.polynomial.legendre.leggauss(24)
    tau = math.sqrt(0.5)
    exact = [problem("capped_absolute", 40, spread=0.0, distance=8.0 + spread * node / tau) for node in nodes]
    risk = problem("capped_absolute", 40, spread=spread)
    values, gradients = (
        sum(w / 2 * ask(one) for w, one in zip(weights, exact, strict=True))
        for ask in (lambda one: one.objective(W), lambda one: one.gradient(W))
    )
    r = np.maximum(np.linalg.norm(W, axis=1), 8.0 + 14.4)  # the cap, and the outliers' labels
    assert np.all(np.abs(risk.objective(W) - values) < 3e-15 * r**2 * (1.0 / spread + 1e2))
    assert np.all(np.abs(risk.gradient(W) - gradients) < 3e-15 * r[:, None] * (1.0 / spread + 1e2))


def test_the_title_of_the_spiked_design_says_nothing_that_a_parameter_can_switch_off():
    """Figures name the data by their title, also of runs without outliers."""
    assert "outlier" not in datasets.info("population_spiked").title.lower()


@pytest.mark.parametrize("spread", [1e-7, 1e-300])
def test_labels_too_narrow_for_closed_forms_are_refused(spread):
    with pytest.raises(UserError, match="give 0, or at least 1e-06"):
        problem("capped_absolute", spread=spread)


@pytest.mark.parametrize("kind", SPIKED)
@pytest.mark.parametrize("d", [2, 5, 20])
@pytest.mark.parametrize("alpha", [0.3, 3.0])
def test_the_smoothed_gradient_is_the_mean_over_the_ball(kind, d, alpha):
    """Each of 3 d numbers is within 6.5 standard errors of a mean over 40,000 points: a false alarm below 1e-7."""
    risk = problem(kind, d)
    W, count = points(d), 40_000
    found = smoothed_gradient(risk, W, alpha)
    accuracy = 1e-2 if d == 2 else 1e-4
    for w, smoothed in zip(W, found, strict=True):
        gradients = risk.gradient(w + alpha * in_ball(count, d))
        error = gradients.std(axis=0) / math.sqrt(count)
        assert np.all(np.abs(gradients.mean(axis=0) - smoothed) < 6.5 * error + accuracy)


@pytest.mark.parametrize("kind", SPIKED)
@pytest.mark.parametrize(("d", "accuracy"), [(2, 1e-2), (3, 1e-3), (4, 1e-4), (10, 1e-8)])
def test_the_smoothed_gradient_has_its_stated_accuracy(kind, d, accuracy):
    risk = problem(kind, d)
    W = points(d, np.linspace(0.0, 10.0, 60)) + np.linspace(-4.0, 16.0, 60)[:, None] * np.eye(d)[0]
    for alpha in (0.1, 1.0, 4.0):
        exact = smoothed_gradient(risk, W, alpha, nodes=600)
        np.testing.assert_allclose(smoothed_gradient(risk, W, alpha), exact, rtol=0, atol=accuracy)


@pytest.mark.parametrize("kind", ALL)
@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.floats(1e-3, 30.0))
def test_no_sample_has_a_larger_lipschitz_constant_than_stated(kind, seed, scale):
    risk = problem(kind)
    W, V = scale * np.random.default_rng(seed).normal(size=(2, 3, 1, 4, risk.spec.d))
    batch = draw(risk, 20, first=seed % 1000)
    rise = np.abs(risk.sample_values(batch, W) - risk.sample_values(batch, V))
    assert np.all(rise <= risk.spec.G * np.linalg.norm(W - V, axis=-1) * (1 + 1e-12) + 1e-12)
    assert np.all(np.linalg.norm(risk.sample_subgradients(batch, W), axis=-1) <= risk.spec.G * (1 + 1e-12))


@pytest.mark.parametrize("kind", ALL)
def test_the_lipschitz_constant_is_attained(kind):
    risk = problem(kind)
    batch = draw(risk, 50)
    # Weights along a sample's row switch all units of the network on.
    along = np.tile(40.0 * batch.X[:, :1, :], 3)[:, None, :, :] if kind == "network" else np.zeros((3, 1, 1, 6))
    longest = np.linalg.norm(risk.sample_subgradients(batch, along), axis=-1).max()
    np.testing.assert_allclose(longest, risk.spec.G, rtol=1e-6)
    assert risk.spec.G == 1.0


@pytest.mark.parametrize("kind", ALL)
def test_subgradients_are_slopes_away_from_kinks(kind):
    risk = problem(kind)
    W, step = points(risk.spec.d)[:, None, None, :], 1e-6
    batch = draw(risk, 400)
    gradients, middle = risk.sample_subgradients(batch, W)[:, :, 0, :], risk.sample_values(batch, W)
    for j, e in enumerate(step * np.eye(risk.spec.d)):
        up, down = risk.sample_values(batch, W + e), risk.sample_values(batch, W - e)
        straight = (np.abs(up + down - 2.0 * middle) < 1e-9)[:, :, 0]
        assert straight.mean() > 0.99
        np.testing.assert_allclose(
            ((up - down) / (2 * step))[:, :, 0][straight], gradients[:, :, j][straight], atol=1e-8
        )


@pytest.mark.parametrize("loss", ["capped_absolute:0.4", "ramp:0.3", "ramp:1", "phase:-0.3"])
def test_a_loss_is_the_sum_of_its_hinges(loss):
    """The wave is what the hinges of the ramp leave out: it lies within 1/4 of its mean and has the mean 0."""
    chosen = get_loss(loss)
    t, y = np.meshgrid(np.linspace(-3.0, 3.0, 2001), np.linspace(0.0, 2.0, 9))
    hinges = chosen.hinges
    total = hinges.constant + hinges.slope * t + hinges.label_slope * y
    total += sum(h.weight * np.maximum(t - h.at - h.label * y, 0.0) for h in hinges.terms)
    rest = chosen.value(np, t, y) - total
    if hinges.period is None:
        np.testing.assert_allclose(rest, 0.0, atol=1e-13)
    else:
        np.testing.assert_allclose(rest, (1.0 - chosen.share) * (np.abs(t - y - np.round(t - y)) - 0.25), atol=1e-13)
    assert not chosen.smooth
    assert not chosen.convex
    assert math.isinf(chosen.smoothness(1.0))
    assert not chosen.curvature(np, t, y).any()


def test_samples_of_the_spiked_design_have_the_stated_law():
    """Means of 600,000 numbers within 6 standard errors: a false alarm below 1e-7."""
    risk = problem("capped_absolute", 4)
    batch = draw(risk, 200_000)
    X, y, count = batch.X.reshape(-1, 4), batch.y.ravel(), 600_000
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(X[:, 0], math.sqrt(0.5), rtol=1e-15)
    centre = 8.0 * math.sqrt(0.5)
    outlier = y < 0.0
    assert abs(outlier.mean() - 0.2) < 6 * 0.4 / math.sqrt(count)
    place = np.where(outlier, y + 20.0, y) - centre
    assert np.all(np.abs(place) <= 0.5)
    for part in (place[outlier], place[~outlier]):
        assert np.all(np.abs(np.histogram(part, 10, (-0.5, 0.5))[0] / part.size - 0.1) < 6 * 0.3 / math.sqrt(part.size))
    moments = (X[:, 1:, None] * X[:, None, 1:]).mean(axis=0)
    assert np.all(np.abs(moments - np.eye(3) / 6.0) < 6 * 0.5 / math.sqrt(count))
    assert np.all(np.abs((X[:, 1:] * place[:, None]).mean(axis=0)) < 6 * 0.3 / math.sqrt(count))


def test_the_pool_of_the_network_is_drawn_evenly():
    """Counts of 512 inputs among 300,000 draws: each within 7 standard errors, a false alarm below 1e-7."""
    risk = problem("network")
    data = datasets.load("population_network", hidden=3, features=2, atoms=512)
    batch = draw(risk, 100_000)
    order = np.argsort(data.X[:, 0])
    found = order[np.searchsorted(data.X[order, 0], batch.X[:, :, 0].ravel())]
    np.testing.assert_array_equal(data.X[found], batch.X.reshape(-1, 2))
    np.testing.assert_array_equal(data.y[found], batch.y.ravel())
    counts = np.bincount(found, minlength=512)
    assert np.all(np.abs(counts - 300_000 / 512) < 7.0 * math.sqrt(300_000 / 512))


@pytest.mark.parametrize("kind", ALL)
def test_batches_and_what_is_asked_of_them_do_not_depend_on_company(kind):
    risk = problem(kind)
    alone, beside = draw(risk, 10, [4], 2, 50), draw(risk, 10, [None, 4, 7], 2, 50)
    np.testing.assert_array_equal(alone.X[0], beside.X[1])
    np.testing.assert_array_equal(alone.y[0], beside.y[1])
    later = draw(risk, 10, [4], 3, 60)
    assert np.any(later.X != alone.X)
    assert np.any(later.y != alone.y)
    W = points(risk.spec.d)[:, None, None, :]
    for query in (risk.sample_values, risk.sample_subgradients):
        np.testing.assert_array_equal(query(alone, W[1:2])[0], query(beside, W)[1])


@pytest.mark.parametrize("kind", ALL)
def test_points_of_single_samples_give_what_shared_points_give(kind):
    risk = problem(kind)
    batch = draw(risk, 9)
    shared = np.random.default_rng(0).normal(size=(3, 1, 4, risk.spec.d))
    own = np.broadcast_to(shared, (3, 9, 4, risk.spec.d))
    np.testing.assert_allclose(risk.sample_values(batch, own), risk.sample_values(batch, shared), rtol=0, atol=1e-13)
    gradients = risk.sample_subgradients(batch, shared)
    np.testing.assert_array_equal(risk.sample_subgradients(batch, own), gradients)
    np.testing.assert_allclose(risk.batch_gradient(shared[:, 0, 0, :], batch), gradients.mean(axis=1)[:, 0], atol=1e-14)


@pytest.mark.parametrize("backend", [BACKEND, strict_backend()], ids=["numpy", "strict"])
@pytest.mark.parametrize("size", [12, 11, 10], ids=["whole", "rest of two", "rest of one"])
@pytest.mark.parametrize("kind", [*ALL, "dataset"])
def test_points_of_groups_are_those_of_each_of_their_samples(kind, size, backend):
    """Four groups of three samples, the last one with the rest; every value is an evaluation."""
    risk = make_problem(40, 6, loss="huber", backend=backend) if kind == "dataset" else problem(kind, backend=backend)
    ex, _ = execution(risk)
    ex.fresh(5)
    batch = ex.fresh(size)
    at = np.random.default_rng(0).normal(size=(3, 4, 2, risk.spec.d))
    own = backend.asarray(np.repeat(at, 3, axis=1)[:, :size])
    for asked, query in ((ex.batch_values, risk.sample_values), (ex.batch_subgradients, risk.sample_subgradients)):
        found, expected = (backend.to_host(array) for array in (asked(backend.asarray(at), batch), query(batch, own)))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
    assert (ex.function_evaluations, ex.gradient_evaluations, ex.samples_used) == (2 * size, 2 * size, 5 + size)


@pytest.mark.parametrize("kind", ALL)
def test_differences_of_samples_are_clipped_one_by_one(kind):
    risk = problem(kind)
    batch, W, V = draw(risk, 30), points(risk.spec.d), points(risk.spec.d, seed=1)
    turns = risk.sample_subgradients(batch, W[:, None, None, :]) - risk.sample_subgradients(batch, V[:, None, None, :])
    np.testing.assert_allclose(risk.sample_differences(W, V, batch), turns[:, :, 0].mean(axis=1), atol=1e-14)
    short = turns[:, :, 0] * np.minimum(
        1.0, 0.5 / np.maximum(np.linalg.norm(turns[:, :, 0], axis=2, keepdims=True), 0.1)
    )
    np.testing.assert_allclose(risk.sample_differences(W, V, batch, 0.5), short.mean(axis=1), atol=1e-14)


@pytest.mark.parametrize("kind", ALL)
def test_any_array_library_gives_the_same(kind):
    risk, strict = problem(kind), problem(kind, backend=strict_backend())
    batch, other = draw(risk, 8), draw(strict, 8)
    W = np.random.default_rng(0).normal(size=(3, 8, 2, risk.spec.d))
    to, back = strict.backend.asarray, strict.backend.to_host
    for query in ("sample_values", "sample_subgradients"):
        for at in (W, W[:, :1]):
            np.testing.assert_allclose(
                back(getattr(strict, query)(other, to(at))), getattr(risk, query)(batch, at), atol=1e-13
            )
    flat = W[:, 0, 0, :]
    for query in ("objective", "gradient"):
        np.testing.assert_allclose(back(getattr(strict, query)(to(flat))), getattr(risk, query)(flat), atol=1e-13)
    found = back(strict.sample_differences(to(flat), to(-flat), other, 0.3))
    np.testing.assert_allclose(found, risk.sample_differences(flat, -flat, batch, 0.3), atol=1e-13)
    single = risk.with_dtype("float32")
    assert single.gradient(flat.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.objective(flat.astype(np.float32)), risk.objective(flat), rtol=1e-4)


@pytest.mark.parametrize("shape", [(3, 1500, 20), (30, 40, 20), (2, 300, 1)], ids=["rows", "replicates", "small"])
@pytest.mark.parametrize("backend", [BACKEND, strict_backend()], ids=["numpy", "strict"])
def test_large_queries_are_answered_in_pieces(shape, backend):
    """The pieces of a stored dataset and of a population are put together in their places."""
    (K, B, P), d = shape, 6
    at = np.random.default_rng(0).normal(size=(K, 1, P, d))
    stored = make_problem(B, d, loss="huber", backend=backend)
    drawn = problem("ramp", d, backend=backend)
    for risk, batch in ((stored, stored.fresh_batch(None, 1, 0, B)), (drawn, draw(drawn, B, range(K)))):
        X, y = (backend.to_host(part) for part in risk._rows_of(batch))
        inner = X @ np.swapaxes(at[:, 0], 1, 2)
        found = backend.to_host(risk.sample_values(batch, backend.asarray(at)))
        np.testing.assert_allclose(found, risk.spec.loss.value(np, inner, y[:, :, None]), atol=1e-13)
        found = backend.to_host(risk.sample_subgradients(batch, backend.asarray(at)))
        slopes = risk.spec.loss.derivative(np, inner, y[:, :, None])
        np.testing.assert_allclose(found, slopes[..., None] * X[:, :, None, :], atol=1e-13)


# What an execution allows.


def execution(risk, replicates=(0, 1, 2), **letters):
    setting = Setting(risk.spec, 1.0, 1e-5)
    plan = get_algorithm("dp_sgd").plan(setting, **{"sampling": "once", "b": 16, "eta": 0.1, **letters})
    return Execution(plan, risk, 0, list(replicates)), plan


def test_values_and_subgradients_of_a_batch_are_counted():
    risk = problem("ramp")
    ex, _ = execution(risk)
    batch = ex.fresh(10)
    at = np.zeros((3, 1, 7, 6))
    np.testing.assert_array_equal(ex.batch_values(at, batch), risk.sample_values(batch, at))
    assert (ex.function_evaluations, ex.gradient_evaluations, ex.samples_used) == (70, 0, 10)
    np.testing.assert_array_equal(ex.batch_subgradients(at, batch), risk.sample_subgradients(batch, at))
    assert (ex.function_evaluations, ex.gradient_evaluations, ex.samples_used) == (70, 70, 10)


@pytest.mark.parametrize("query", ["batch_values", "batch_subgradients"])
@pytest.mark.parametrize("kind", ["ramp", "network"])
def test_a_batch_is_looked_at_in_its_turn_only_and_no_sample_twice(kind, query):
    risk = problem(kind, n=25)
    ex, _ = execution(risk)
    at = np.zeros((3, 1, 2, risk.spec.d))
    first = ex.fresh(10)
    second = ex.fresh(10)
    getattr(ex, query)(at, second)
    with pytest.raises(RunFailed, match="its turn is over"):
        getattr(ex, query)(at, first)
    with pytest.raises(RunFailed, match="20 of 25 are used already"):
        ex.fresh(6)
    with pytest.raises(RunFailed, match="20 of 25 are used already"):
        ex.whole()


@pytest.mark.parametrize("risk", [problem("ramp", n=40), make_problem(40, 6)], ids=["population", "dataset"])
def test_the_whole_sample_is_kept_and_leaves_nothing_fresh(risk):
    ex, _ = execution(risk)
    at = np.zeros((3, 1, 2, 6))
    whole = ex.whole()
    assert ex.whole() is whole
    before = ex.batch_values(at, whole)
    assert before.shape == (3, 40, 2)
    np.testing.assert_array_equal(ex.batch_values(at, ex.whole()), before)
    assert ex.samples_used == 40
    with pytest.raises(RunFailed, match="40 of 40 are used already"):
        ex.fresh(1)


@pytest.mark.parametrize("risk", [problem("ramp", n=40), make_problem(40, 6)], ids=["population", "dataset"])
def test_the_whole_sample_is_a_query_of_all_records(risk):
    """It is refused after fresh samples, and a plan without such a query does not cover it."""
    ex, plan = execution(risk)
    ex.fresh(10)
    with pytest.raises(RunFailed, match=r"10 samples were handed out|10 of 40 are used already"):
        ex.whole()
    unplanned = dataclasses.replace(plan, events=())
    ex = Execution(unplanned, risk, 0, [0, 1, 2])
    ex.whole()
    with pytest.raises(LedgerMismatch, match="full gradients"):
        ex.check(unplanned)


def test_the_whole_sample_of_a_population_is_that_of_full_gradients():
    risk = problem("capped_absolute", n=30)
    ex, _ = execution(risk)
    W = points(6)
    means = ex.batch_subgradients(W[:, None, None, :], ex.whole()).mean(axis=1)[:, 0]
    np.testing.assert_allclose(ex.full_gradient(W), means, atol=1e-15)


def test_a_run_must_make_the_function_evaluations_of_its_plan():
    risk = problem("ramp", n=64)
    ex, plan = execution(risk)
    assert plan.function_evaluations == 0
    get_algorithm("dp_sgd").run(plan, ex)
    ex.check(plan)
    ex.batch_values(np.zeros((3, 1, 2, 6)), ex._at_hand)
    with pytest.raises(RunFailed, match="made 32 function evaluations, but its plan says 0"):
        ex.check(plan)
    planned = dataclasses.replace(plan, function_evaluations=32)
    ex.check(planned)
    assert type(plan).from_json(planned.to_json()) == planned


@pytest.mark.parametrize("loss", ["logistic", "absolute", "capped_absolute:0.5", "huber:0.3"])
def test_losses_of_a_dataset_are_known_sample_by_sample(loss):
    X, y = rows(30, 5)
    risk = make_problem(loss=loss, regularizer=0.0, data=(X, y))
    ex, _ = execution(risk, b=4)
    ex.fresh(4)
    batch = ex.fresh(6)
    at = np.random.default_rng(0).normal(size=(3, 6, 2, 5))
    chosen = get_loss(loss)
    A = X * y[:, None] if chosen.margin else X
    inner = np.einsum("kbpd,bd->kbp", at, A[4:10])
    np.testing.assert_allclose(ex.batch_values(at, batch), chosen.value(np, inner, y[None, 4:10, None]), atol=1e-13)
    slopes = chosen.derivative(np, inner, y[None, 4:10, None])
    gradients = ex.batch_subgradients(at, batch)
    np.testing.assert_allclose(gradients, slopes[..., None] * A[None, 4:10, None, :], atol=1e-13)
    shared = ex.batch_values(at[:, :1], batch)
    np.testing.assert_allclose(shared, chosen.value(np, at[:, 0] @ A[4:10].T, y[4:10]).swapaxes(1, 2), atol=1e-13)


def test_random_directions_depend_on_seed_replicate_and_purpose_only():
    risk = problem("ramp")
    ex, _ = execution(risk, (0, 1, 2))
    alone, _ = execution(risk, (2,))
    drawn = ex.streams("frames").normals(0, 4, 6)
    np.testing.assert_array_equal(drawn[:, 2], alone.streams("frames").normals(0, 4, 6)[:, 0])
    assert np.all(drawn != ex.streams("balls").normals(0, 4, 6))


@pytest.mark.parametrize(("kind", "step"), [("capped_absolute", 2.0), ("network", 0.5)])
def test_one_pass_of_gradient_descent_comes_down_on_these_populations(kind, step):
    risk = problem(kind, n=2000)
    plan = get_algorithm("dp_sgd").plan(Setting(risk.spec, math.inf, 1e-5), sampling="once", b=20, eta=step)
    result = execute(plan, risk, seed=0, replicates=range(3), tile=3)
    assert np.all(result.final_objective < 0.9 * result.objective[:, 0])
    assert result.function_evaluations[-1] == 0
    assert plan.gradient_evaluations == result.samples_used == 2000


# What a dataset says, and what is refused.


def test_facts_carry_the_law_and_the_number_of_weights():
    facts = facts_of(datasets.load("population_network", rows=7, features=3, hidden=2, atoms=20))
    assert (facts["n"], facts["d"], facts["atoms"], len(facts["law"]["start"])) == (7, 6, 20, 6)
    spiky = datasets.load("population_spiked", features=3)
    assert spiky.population.label_bound == pytest.approx(20.5 - 8.0 * math.sqrt(0.5))
    assert datasets.load("population_spiked", features=3, spread=1.0).checksum != spiky.checksum


def test_what_has_no_closed_form_is_refused():
    with pytest.raises(UserError, match=r"give a spread that is a multiple of 0\.5"):
        problem("ramp", spread=0.7)
    with pytest.raises(UserError, match=r"give a spread that is a multiple of 0\.5"):
        problem("ramp", spread=0.0)
    with pytest.raises(UserError, match="needs labels >= 0, but some reach -14"):
        problem("phase", gap=-20.0)
    with pytest.raises(UserError, match="has not d = 8 weights"):
        problem("network", hidden=4)
    for name, loss, advice in (
        ("population_spiked", "huber", "choose capped_absolute, ramp or phase"),
        ("population_spiked", "relu_network", "choose capped_absolute, ramp or phase"),
        ("population_network", "absolute", "choose relu_network"),
    ):
        data = datasets.load(name)
        wanted = {"loss": loss, "regularizer": 0.0, "constraint": None}
        with pytest.raises(UserError, match=advice):
            make_from_facts(wanted, facts_of(data), arrays_of(data), BACKEND)
    with pytest.raises(UserError, match="no atoms that its records could be copies of"):
        datasets.load("population_spiked", repeated=True)


def test_what_samples_cannot_give_is_refused():
    risk = problem("ramp", n=10**8)
    with pytest.raises(UserError, match="do not fit at one time"):
        draw(risk, 10**8)
    with pytest.raises(UserError, match="population_spiked has no numbered samples"):
        risk.fresh_indices(Streams(0, [0], "x"), 0, 1)
    with pytest.raises(UserError, match="no second derivatives"):
        risk.hessians(np.zeros((1, 6)))
    with pytest.raises(UserError, match="no records"):
        risk.records()
    stored = make_problem(20, 6).fresh_batch(None, 1, 0, 5)
    with pytest.raises(UserError, match="A batch of another population"):
        risk.sample_values(stored, np.zeros((1, 1, 1, 6)))
    data = datasets.load("population_direction", rows=100)
    atoms = make_from_facts(
        {"loss": "absolute", "regularizer": 0.0, "constraint": None}, facts_of(data), arrays_of(data), BACKEND
    )
    with pytest.raises(UserError, match="only means over weighted atoms"):
        atoms.sample_values(draw(atoms, 5), np.zeros((3, 1, 1, 16)))


@pytest.mark.parametrize("loss", ["capped_absolute:0", "ramp:0", "ramp:1.5", "phase:inf", "relu_network:1.5"])
def test_parameters_of_the_losses_out_of_range_are_refused(loss):
    with pytest.raises(UserError, match="give a"):
        get_loss(loss)
