"""Populations on finitely many atoms: exact risks, the law of fresh samples, and their optima.

Statistical tests have fixed seeds and a false-alarm probability below 1e-6 each.
"""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2, norm
from support import make_problem, rows

from dprepro import datasets
from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Plan, Setting
from dprepro.arrays import TILE, get_backend, strict_backend
from dprepro.errors import RunFailed, UserError
from dprepro.geometry import L1Ball, L2Ball, RealSpace, get_set
from dprepro.losses import Absolute, Squared, get_loss
from dprepro.privacy.events import UnprotectedEvent
from dprepro.problems.erm import ProblemSpec
from dprepro.problems.optimum import KINK_TOLERANCE, TOLERANCE, find_optimum
from dprepro.problems.population import PopulationRisk
from dprepro.regularizers import Regularizer, get_regularizer
from dprepro.run import Execution, execute
from dprepro.smoothing import MoreauEnvelope
from dprepro.stages.dataset import arrays_of, facts_of
from dprepro.stages.problem import make_problem as problem_from
from dprepro.streams import Streams

ALARM = 1e-7
LOSSES = ["squared", "logistic", "absolute", "hinge", "welsch:2"]
POPULATIONS = [name for name in datasets.names() if name.startswith("population_")]


def population(
    atoms=23, d=5, *, n=1000, loss="squared", regularizer=0.0, constraint=None, backend=None, dtype="float64"
) -> PopulationRisk:
    X, y = rows(atoms, d, seed=4)
    spec = ProblemSpec(n, d, get_loss(loss), get_regularizer(regularizer), get_set(constraint))
    return PopulationRisk(spec, X, y, shares(atoms), backend or get_backend("cpu", dtype))


def shares(atoms):
    """Probabilities of which none is like another, with a zero among them."""
    p = np.random.default_rng(8).dirichlet(np.ones(atoms))
    p[3] = 0.0
    return p / p.sum()


def registered(name, loss, constraint, n=1000, dtype="float64", **parameters) -> PopulationRisk:
    data = datasets.load(name, rows=n, **parameters)
    spec = {"loss": loss, "regularizer": {}, "constraint": constraint}
    return problem_from(spec, facts_of(data), arrays_of(data), get_backend("cpu", dtype))


def plain_risk(problem, X, y, p, w):
    """F^r as a sum over the atoms, one at a time."""
    loss, total = problem.spec.loss, 0.0
    for x, label, probability in zip(X, y, p, strict=True):
        t = np.array([x @ w])
        total += probability * float(loss.value(np, label * t if loss.margin else t, np.array([label]))[0])
    return total + float(problem.spec.regularizer.value(np, w[None])[0])


def plan_for(problem, evaluations, rounds=1):
    common = {"theorem": "", "epsilon": math.inf, "delta": 0.1, "sigma": 0.0, "utility": None}
    sizes = {"n": problem.spec.n, "d": problem.spec.d, "rounds": rounds, "gradient_evaluations": evaluations}
    events = (UnprotectedEvent("toy", 1),)
    return Plan(algorithm="toy", variant="published", events=events, conditions=(), **sizes, **common)


def execution(problem, slots=range(8), seed=1):
    return Execution(plan_for(problem, 0), problem, seed, list(slots))


# --- exact quantities ---


@pytest.mark.parametrize("loss", LOSSES)
def test_risk_and_gradient_are_sums_over_the_atoms(loss, backend):
    X, y = rows(23, 5, seed=4)
    problem = population(loss=loss, regularizer=0.3, backend=backend)
    W = np.random.default_rng(1).normal(size=(4, 5))
    found = backend.to_host(problem.objective(backend.asarray(W)))
    np.testing.assert_allclose(found, [plain_risk(problem, X, y, shares(23), w) for w in W], rtol=1e-12)
    gradient = backend.to_host(problem.gradient(backend.asarray(W))) + 0.3 * W
    for k, j in np.ndindex(*W.shape):
        e = 1e-6 * np.eye(5)[j]
        up, down = (plain_risk(problem, X, y, shares(23), W[k] + side) for side in (e, -e))
        assert gradient[k, j] == pytest.approx((up - down) / 2e-6, abs=1e-8)


@pytest.mark.parametrize("loss", ["squared", "logistic", "welsch:2"])
def test_hessians_are_derivatives_of_the_gradient(loss, backend):
    problem = population(loss=loss, backend=backend)
    W = np.random.default_rng(2).normal(size=(3, 5))
    together = backend.to_host(problem.hessians(backend.asarray(W)))
    for k in range(3):
        one = backend.to_host(problem.hessian(backend.asarray(W[k])))
        np.testing.assert_allclose(together[k], one, rtol=1e-12, atol=1e-15)
        ends = [backend.to_host(problem.gradient(backend.asarray(W[k] + s * 1e-6 * np.eye(5)))) for s in (1, -1)]
        np.testing.assert_allclose(one, (ends[0] - ends[1]) / 2e-6, atol=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_equal_probabilities_give_the_empirical_risk_of_the_atoms(loss):
    X, y = rows(120, 7)
    empirical = make_problem(data=(X, y), loss=loss)
    uniform = PopulationRisk(empirical.spec, X, y, np.full(120, 1 / 120), empirical.backend)
    W = np.random.default_rng(1).normal(size=(4, 7))
    np.testing.assert_allclose(uniform.objective(W), empirical.objective(W), rtol=1e-12)
    np.testing.assert_allclose(uniform.gradient(W), empirical.gradient(W), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("constraint", ["l1_ball:0.7", "simplex:1.3"])
def test_the_stationarity_gap_is_the_best_over_all_vertices(constraint, backend):
    problem = population(constraint=constraint, regularizer=0.2, backend=backend)
    W = problem.project(backend.asarray(np.random.default_rng(3).normal(size=(6, 5))))
    host = backend.to_host(W)
    gradient = backend.to_host(problem.gradient(W)) + 0.2 * host
    size = float(constraint.partition(":")[2])
    vertices = size * (np.eye(5) if "simplex" in constraint else np.concatenate([np.eye(5), -np.eye(5)]))
    expected = [max(g @ (w - v) for v in vertices) for g, w in zip(gradient, host, strict=True)]
    np.testing.assert_allclose(backend.to_host(problem.stationarity_gap(W)), expected, rtol=1e-12)
    assert min(expected) > 0.01


def test_the_stationarity_gap_on_the_l2_ball_is_above_all_points_and_reached_by_one():
    problem = population(constraint="l2_ball:0.8")
    W = problem.project(np.random.default_rng(3).normal(size=(6, 5)))
    gradient, gap = problem.gradient(W), problem.stationarity_gap(W)
    rivals = problem.project(np.random.default_rng(5).normal(size=(5000, 5)))
    reached = np.max(np.sum(gradient * W, axis=1)[:, None] - gradient @ rivals.T, axis=1)
    assert np.all(reached <= gap + 1e-12)
    assert np.all(reached >= 0.8 * gap)


def test_the_gap_vanishes_at_the_optimum_and_needs_a_bounded_set():
    problem = population(constraint="l2_ball:0.3")
    assert 0.0 <= problem.stationarity_gap(find_optimum(problem).w[None])[0] <= 1e-5
    with pytest.raises(UserError, match="needs a bounded set"):
        population().stationarity_gap(np.zeros((1, 5)))


@pytest.mark.parametrize("p", [np.full(23, 0.1), np.full(22, 1 / 22), np.r_[1.5, -0.5, np.zeros(21)]])
def test_numbers_that_are_no_probabilities_are_refused(p):
    problem = population()
    X, y = rows(23, 5, seed=4)
    with pytest.raises(UserError, match="probabilities of 23 atoms"):
        PopulationRisk(problem.spec, X, y, p, problem.backend)


# --- the law of fresh samples ---


def counts_of(size, p, batches=30, slots=TILE, seed=5):
    streams = Streams(seed, list(range(slots)), "fresh batches")
    return np.concatenate([streams.multinomial(number, size, p) for number in range(batches)])


@pytest.mark.parametrize("size", [1, 7, 1000, 10**12])
def test_counts_have_the_multinomial_law(size):
    """Pearson's statistic of all draws together, and its mean over batches where it is nearly chi-square."""
    p = shares(23)
    counts = counts_of(size, p)
    assert np.all(counts.sum(axis=1) == size)
    assert np.all(counts[:, 3] == 0)
    seen, expected = np.delete(counts, 3, axis=1), size * np.delete(p, 3)
    together = np.sum((seen.sum(axis=0) - len(seen) * expected) ** 2 / (len(seen) * expected))
    assert together < chi2.isf(ALARM, 21)
    if size == 10**12:
        each = np.sum((seen - expected) ** 2 / expected)
        assert chi2.ppf(ALARM, 21 * len(seen)) < each < chi2.isf(ALARM, 21 * len(seen))


def test_counts_of_two_thousand_atoms_are_right_too():
    p = np.random.default_rng(0).dirichlet(np.ones(2000))
    counts = counts_of(10**11, p, batches=2, slots=16)
    statistic = np.sum((counts - 1e11 * p) ** 2 / (1e11 * p))
    assert chi2.ppf(ALARM, 1999 * 32) < statistic < chi2.isf(ALARM, 1999 * 32)


def test_counts_depend_on_seed_replicate_purpose_and_number_and_on_nothing_else():
    p = shares(23)

    def draw(seed=1, replicates=(0, 1, 2), purpose="a", number=0):
        return Streams(seed, replicates, purpose).multinomial(number, 10**6, p)

    base = draw()
    np.testing.assert_array_equal(draw(replicates=(None, 1))[1], base[1])
    np.testing.assert_array_equal(draw(replicates=(2,))[0], base[2])
    assert not draw(replicates=(None, 1))[0].any()
    others = [base[0], base[1], draw(seed=2)[0], draw(purpose="b")[0], draw(number=1)[0]]
    assert len({tuple(counts) for counts in others}) == len(others)
    streams = Streams(1, (0,), "a")
    before = streams.multinomial(7, 50, p)
    streams.uniforms(3, 10)
    np.testing.assert_array_equal(streams.multinomial(7, 50, p), before)


@pytest.mark.parametrize("loss", ["logistic", "welsch:2", "absolute"])
def test_a_batch_gradient_is_the_mean_over_the_samples_counted(loss, backend):
    X, y = rows(23, 5, seed=4)
    problem = population(loss=loss, backend=backend)
    ex = execution(problem)
    W, V = np.random.default_rng(1).normal(size=(2, 8, 5))
    batch = ex.fresh(60)
    counts = Streams(1, list(range(8)), "fresh batches").multinomial(1, 60, shares(23))
    np.testing.assert_allclose(backend.to_host(batch.shares), counts.T / 60, rtol=1e-15)

    def mean_gradient(w, k):
        t = X @ w
        slopes = y * problem.spec.loss.derivative(np, y * t, y) if loss == "logistic" else None
        slopes = problem.spec.loss.derivative(np, t, y) if slopes is None else slopes
        return (counts[k] * slopes / 60) @ X

    found = backend.to_host(ex.batch_gradient(backend.asarray(W), batch))
    np.testing.assert_allclose(found, [mean_gradient(w, k) for k, w in enumerate(W)], atol=1e-14)
    turned = backend.to_host(ex.batch_difference(backend.asarray(W), backend.asarray(V), batch))
    expected = [mean_gradient(w, k) - mean_gradient(v, k) for k, (w, v) in enumerate(zip(W, V, strict=True))]
    np.testing.assert_allclose(turned, expected, atol=1e-14)


@pytest.mark.parametrize("size", [1, 50, 10**9])
def test_batch_gradients_are_unbiased_with_the_variance_of_a_mean(size):
    """Each coordinate's mean is within its quantile; the sum of squares within six of its standard deviations."""
    problem = population(n=10**12, loss="welsch:2")
    w = np.random.default_rng(1).normal(size=5)
    batches, W = 40, np.tile(w, (TILE, 1))
    ex = execution(problem, range(TILE))
    found = np.concatenate([ex.batch_gradient(W, ex.fresh(size)) for _ in range(batches)])
    X, y = rows(23, 5, seed=4)
    single = problem.spec.loss.derivative(np, X @ w, y)[:, None] * X
    mean = shares(23) @ single
    np.testing.assert_allclose(problem.gradient(w[None])[0], mean, atol=1e-15)
    spread = shares(23) @ (single - mean) ** 2 / size
    z = (found.mean(axis=0) - mean) / np.sqrt(spread / len(found))
    assert np.max(np.abs(z)) < norm.isf(ALARM / 10)
    squares = np.sum((found - mean) ** 2, axis=1)
    error = squares.std() / math.sqrt(len(found))
    assert abs(squares.mean() - spread.sum()) < 6 * error < 0.3 * spread.sum()


def test_single_samples_follow_the_probabilities_and_depend_on_the_replicate():
    problem = population(n=10**6)
    ex = execution(problem, range(TILE))
    drawn = np.stack(list(ex.fresh_samples(600)))
    assert drawn.shape == (600, TILE)
    counts, p = np.bincount(drawn.ravel(), minlength=23), shares(23)
    assert counts[3] == 0
    expected = np.delete(p, 3) * drawn.size
    assert np.sum((np.delete(counts, 3) - expected) ** 2 / expected) < chi2.isf(ALARM, 21)
    assert np.any(drawn[:, 0] != drawn[:, 1])
    again = execution(problem, [None, 1])
    np.testing.assert_array_equal(np.stack(list(again.fresh_samples(600)))[:, 1], drawn[:, 1])
    later = execution(problem, range(TILE))
    parts = np.concatenate([np.stack(list(later.fresh_samples(count))) for count in (1, 299, 300)])
    np.testing.assert_array_equal(parts, drawn)


# --- fresh samples are handed out once ---


def test_fresh_batches_of_a_dataset_are_its_rows_each_once():
    problem = make_problem(n=120, d=7)
    ex = execution(problem)
    W = np.random.default_rng(0).normal(size=(8, 7))
    sizes, total = (50, 1, 64, 5), np.zeros((8, 7))
    for size in sizes:
        total += size * ex.batch_gradient(W, ex.fresh(size))
    np.testing.assert_allclose(total / 120, problem.gradient(W), atol=1e-14)
    assert ex.samples_used == ex.gradient_evaluations == 120
    with pytest.raises(RunFailed, match="1 fresh samples were asked for, but 120 of 120 are used already"):
        ex.fresh(1)


def test_single_fresh_samples_of_a_dataset_come_in_the_stored_order():
    problem = make_problem(n=700, d=7)
    ex = execution(problem)
    W = np.random.default_rng(0).normal(size=(8, 7))
    ex.fresh(100)
    total = np.zeros((8, 7))
    for count, index in enumerate(ex.fresh_samples(600), start=100):
        assert np.all(index == count)
        total += ex.sample_gradient(W, index)
    first = problem.batch_gradient(W, problem.fresh_batch(None, 0, 0, 100))
    np.testing.assert_allclose((total + 100 * first) / 700, problem.gradient(W), atol=1e-13)
    assert ex.samples_used == 700
    assert ex.gradient_evaluations == 600


@pytest.mark.parametrize("make", [population, lambda **_: make_problem(n=1000)])
def test_more_samples_than_there_are_are_refused_before_they_are_drawn(make):
    ex = execution(make(n=1000))
    ex.fresh(400)
    ex.fresh_samples(500)
    assert ex.samples_used == 900
    for ask in (ex.fresh, ex.fresh_samples):
        with pytest.raises(RunFailed, match="101 fresh samples were asked for, but 900 of 1000 are used already"):
            ask(101)
        with pytest.raises(RunFailed, match="give a number >= 1"):
            ask(0)
    assert ex.fresh(100).size == 100
    with pytest.raises(RunFailed):
        ex.full_gradient(ex.start())


def test_a_record_that_was_fresh_may_not_be_looked_at_by_number_again():
    ex = execution(make_problem(n=100))
    index = next(ex.fresh_samples(3))
    ex.sample_gradient(ex.start(), index)
    with pytest.raises(RunFailed, match="3 samples were handed out as fresh"):
        ex.sample_gradient(ex.start(), np.zeros(8, dtype=np.int64))
    ex.fresh(5)
    with pytest.raises(RunFailed, match="8 samples were handed out as fresh"):
        ex.sample_gradient(ex.start(), index)
    other = execution(make_problem(n=100))
    other.full_gradient(other.start())
    with pytest.raises(RunFailed, match="100 of 100 are used already"):
        other.fresh(1)


@pytest.mark.parametrize("later", ["fresh", "fresh_samples"])
@pytest.mark.parametrize("make", [population, lambda **_: make_problem(n=1000)])
def test_planted_batch_looked_at_again_behind_a_later_one_is_refused(make, later):
    """Planted bug: disjoint batches are accounted for once each, so that going back to one would be free."""
    ex = execution(make(n=1000))
    w, one = ex.start(), ex.fresh(100)
    for _ in range(2):  # as often as wanted in its turn
        ex.batch_gradient(w, one)
        ex.batch_difference(w, w, one)
    next(iter(ex.fresh_samples(3))) if later == "fresh_samples" else ex.fresh(3)
    for look in (lambda: ex.batch_gradient(w, one), lambda: ex.batch_difference(w, w, one)):
        with pytest.raises(RunFailed, match="its turn is over"):
            look()


def test_a_full_gradient_on_a_population_is_that_of_one_sample_of_n_for_each_replicate():
    problem = population(n=500)
    ex = execution(problem)
    W = np.tile(np.random.default_rng(1).normal(size=5), (8, 1))
    once, again = ex.full_gradient(W), ex.full_gradient(W)
    np.testing.assert_array_equal(once, again)
    assert ex.gradient_evaluations == 1000
    assert ex.samples_used == 500
    distance = np.linalg.norm(once - problem.gradient(W), axis=1)
    assert 1e-3 < distance.min() <= distance.max() < 0.5, "near the population's, but never it"
    assert np.linalg.norm(once[0] - once[1]) > 1e-3
    with pytest.raises(RunFailed, match="500 of 500"):
        ex.fresh(1)


def test_an_algorithm_that_draws_records_by_number_is_refused_on_a_population():
    problem = population(n=500, loss="logistic", regularizer=0.1)
    plan = get_algorithm("dp_sgd").plan(Setting(problem.spec, 1.0, 1e-3), T=5, c=1.0)
    with pytest.raises(UserError, match="A population has atoms, not records"):
        execute(plan, problem, seed=1, replicates=[0])
    plan = get_algorithm("objective_perturbation").plan(Setting(problem.spec, 1.0, 1e-3))
    with pytest.raises(UserError, match="Second derivatives"):
        execute(plan, problem, seed=1, replicates=[0])


def test_a_full_batch_algorithm_runs_on_a_population_and_gains_from_more_samples():
    means = []
    for n in (200, 200_000):
        problem = population(n=n, loss="logistic", regularizer=0.1)
        plan = get_algorithm("dp_gd").plan(Setting(problem.spec, 1.0, 1e-3), T=20, eta=1.0)
        result = execute(plan, problem, seed=1, replicates=range(16))
        assert result.samples_used == n
        means.append(np.mean(result.final_objective) - find_optimum(problem).objective)
    assert 0.0 < 10 * means[1] < means[0]


# --- whole runs ---


class Toy:
    """Uses everything that an execution has for fresh samples."""

    def anew(self):
        return self

    def run(self, plan, ex):
        ex.unprotected("toy")
        w = ex.start()
        nabla = ex.batch_gradient(w, ex.fresh(plan.n // 2))
        for _ in range(3):
            before, w = w, ex.project(w - 0.3 * nabla)
            nabla = nabla + ex.batch_difference(w, before, ex.fresh(plan.n // 100))
            ex.candidate(w)
        for index in ex.fresh_samples(10):
            w = ex.project(w - 0.01 * ex.sample_gradient(w, index))
        ex.checkpoint(w)
        return w


def toy(problem, **options):
    n = problem.spec.n
    return execute(plan_for(problem, n // 2 + 6 * (n // 100) + 10), problem, seed=3, **options)


@pytest.fixture
def registered_toy(monkeypatch):
    monkeypatch.setattr("dprepro.run.get_algorithm", lambda name: Toy())


@pytest.mark.usefixtures("registered_toy")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_replicate_has_the_same_bits_in_any_company(dtype):
    problem = population(atoms=300, d=11, n=10**9, loss="welsch:2", constraint="l2_ball:1.0", dtype=dtype)
    whole = toy(problem, replicates=range(TILE + 6))
    for chosen in ([5], [0, 5, 63], [64], range(60, 69)):
        part = toy(problem, replicates=chosen)
        np.testing.assert_array_equal(part.w, whole.w[list(chosen)])
        for name, values in part.observed.items():
            np.testing.assert_array_equal(values, whole.observed[name][list(chosen)])
    assert len(np.unique(whole.w[:, 0])) == TILE + 6


@pytest.mark.usefixtures("registered_toy")
def test_same_numbers_on_numpy_and_on_strict_arrays_of_another_device():
    results = []
    for backend in (get_backend("cpu"), strict_backend()):
        problem = population(n=5000, loss="welsch:2", constraint="l1_ball:1.0", backend=backend)
        results.append(toy(problem, replicates=range(3)))
    np.testing.assert_allclose(results[0].w, results[1].w, rtol=1e-11, atol=1e-14)
    for name, values in results[0].observed.items():
        np.testing.assert_allclose(values, results[1].observed[name], rtol=1e-11)


@pytest.mark.usefixtures("registered_toy")
def test_a_trillion_samples_cost_no_more_than_a_thousand():
    seconds = []
    for n in (1000, 10**12):
        problem = population(n=n, loss="welsch:2", constraint="l2_ball:1.0")
        started = time.process_time()
        result = toy(problem, replicates=range(8), tile=8)
        seconds.append(time.process_time() - started)
        assert result.samples_used == n // 2 + 3 * (n // 100) + 10
        assert result.gradient_evaluations[-1] == n // 2 + 6 * (n // 100) + 10
    assert seconds[1] < 5 * seconds[0] + 1.0


@pytest.mark.usefixtures("registered_toy")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_candidates_are_judged_exactly_and_averaged(dtype, monkeypatch):
    problem = population(n=5000, loss="welsch:2", constraint="l2_ball:1.0", dtype=dtype)
    judge = population(n=5000, loss="welsch:2", constraint="l2_ball:1.0")
    seen = []
    original = Execution.candidate
    monkeypatch.setattr(Execution, "candidate", lambda ex, W: (seen.append(np.array(W)), original(ex, W))[1])
    result = toy(problem, replicates=range(TILE))
    assert len(seen) == 3
    points = [W.astype(np.float64) for W in seen]
    gaps = np.mean([judge.stationarity_gap(W) for W in points], axis=0)
    np.testing.assert_allclose(result.observed["stationarity gap"], gaps, rtol=1e-13)
    objectives = np.mean([judge.objective(W) for W in points], axis=0)
    np.testing.assert_allclose(result.observed["candidate objective"], objectives, rtol=1e-13)


def test_a_candidate_has_no_gap_where_none_is_defined():
    for problem in (population(), population(loss="absolute", constraint="l2_ball:1.0")):
        ex = execution(problem)
        ex.candidate(ex.start())
        assert set(ex.observed()) == {"candidate objective"}


def test_gradients_of_another_loss_leave_the_judgement_alone():
    problem = population(n=10**9, loss="absolute", constraint="l2_ball:1.0")
    envelope = MoreauEnvelope(Absolute(), 2.0)
    ex = execution(problem)
    batch, W = ex.fresh(100), np.random.default_rng(0).normal(size=(8, 5))
    kinked = ex.batch_gradient(W, batch)
    ex.replace_loss(envelope)
    np.testing.assert_array_equal(ex.batch_gradient(W, batch), problem.with_loss(envelope).batch_gradient(W, batch))
    assert not np.allclose(ex.batch_gradient(W, batch), kinked)
    ex.candidate(W)
    np.testing.assert_array_equal(ex.observed()["candidate objective"], problem.objective(W))
    with pytest.raises(UserError, match="only one of them is a margin loss"):
        ex.replace_loss(get_loss("hinge"))


def test_a_run_starts_in_the_middle_of_a_set_off_centre():
    ex = execution(population(constraint="simplex:1.0"))
    np.testing.assert_allclose(ex.start(), np.full((8, 5), 0.2))


# --- optima ---


@pytest.mark.parametrize("loss", ["squared", "logistic", "huber:0.5"])
def test_newton_on_weighted_atoms_finds_what_lbfgs_finds(loss):
    problem = population(atoms=60, loss=loss, regularizer=0.05)

    def both(w):
        return float(problem.objective(w[None])[0]), problem.gradient(w[None])[0] + 0.05 * w

    peer = minimize(both, np.zeros(5), jac=True, method="L-BFGS-B", options={"ftol": 1e-16, "gtol": 1e-12})
    found = find_optimum(problem)
    assert found.accuracy <= TOLERANCE
    assert found.objective == pytest.approx(peer.fun, abs=1e-11)


def epigraph(problem, kind, radius):
    """The same minimum by SLSQP on a smooth program: F's pieces as constraints, from a start that is no solution."""
    weights, X, y = problem.records()
    M, d = X.shape
    loss, wide = problem.spec.loss, np.zeros(X.shape[0])
    ends = [-50.0, 50.0] if loss.name != "insensitive" else [-50.0, 0.0, 50.0]
    slopes = [loss.derivative(np, y + end if not loss.margin else wide + end, y) for end in ends]
    levels = [loss.value(np, y + end if not loss.margin else wide + end, y) for end in ends]
    anchors = [y + end if not loss.margin else wide + end for end in ends]

    def above(v):
        t = X @ v[:d]
        return np.concatenate([v[d:] - lev - g * (t - a) for g, lev, a in zip(slopes, levels, anchors, strict=True)])

    def above_slope(v):
        return np.concatenate([np.hstack([-g[:, None] * X, np.eye(M)]) for g in slopes])

    signs = np.array(np.meshgrid(*[[-1, 1]] * d)).reshape(d, -1).T
    inside = {
        "l2_ball": lambda v: np.array([radius**2 - v[:d] @ v[:d]]),
        "l1_ball": lambda v: radius - signs @ v[:d],
        "simplex": lambda v: v[:d],
    }[kind]
    rules = [{"type": "ineq", "fun": above, "jac": above_slope}, {"type": "ineq", "fun": inside}]
    if kind == "simplex":
        rules.append({"type": "eq", "fun": lambda v: np.sum(v[:d]) - radius})
    cost = np.concatenate([np.zeros(d), weights])
    found = minimize(
        lambda v: cost @ v, np.concatenate([np.full(d, 0.1), np.full(M, 3.0)]), jac=lambda v: cost,
        constraints=rules, method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    return float(found.fun)


@pytest.mark.parametrize("constraint", ["l1_ball:0.8", "simplex:1.0", "l2_ball:0.8", "l2_ball:30.0"])
@pytest.mark.parametrize("loss", ["absolute", "hinge", "pinball:0.3", "insensitive:0.2"])
def test_the_minimum_of_a_loss_with_kinks_is_that_of_another_solver(loss, constraint):
    problem = population(atoms=17, d=3, loss=loss, constraint=constraint)
    found = find_optimum(problem)
    assert found.accuracy <= KINK_TOLERANCE
    kind, _, radius = constraint.partition(":")
    assert float(problem.spec.constraint.excess(np, found.w[None])[0]) <= 1e-12
    assert found.objective == pytest.approx(float(problem.objective(found.w[None])[0]), abs=1e-15)
    assert found.objective == pytest.approx(epigraph(problem, kind, float(radius)), abs=1e-7)


@pytest.mark.parametrize("constraint", ["l1_ball:1.0", "l2_ball:1.0", None])
def test_no_point_is_better_than_the_minimum_by_more_than_its_accuracy(constraint):
    problem = registered("population_low_rank", "absolute", constraint, features=9, rank=9)
    found = find_optimum(problem)
    assert found.accuracy <= KINK_TOLERANCE
    steps = np.random.default_rng(0).normal(size=(4000, 9)) * np.geomspace(1e-6, 1, 4000)[:, None]
    assert np.min(problem.objective(problem.project(found.w + steps))) >= found.objective - found.accuracy


def test_labels_with_a_median_have_it_as_their_unconstrained_minimum():
    X, y = np.ones((5, 1)), np.array([0.1, -0.3, 0.7, 0.2, 0.9])
    spec = ProblemSpec(10, 1, Absolute(), Regularizer(), RealSpace())
    p = np.array([0.1, 0.25, 0.3, 0.25, 0.1])
    found = find_optimum(PopulationRisk(spec, X, y, p, get_backend("cpu")))
    assert found.w[0] == pytest.approx(0.2, abs=1e-9)
    assert found.objective == pytest.approx(p @ np.abs(y - 0.2), abs=1e-12)


def test_a_minimum_that_no_method_here_finds_is_refused_with_advice():
    for problem in (
        population(loss="mcp:1", constraint="l2_ball:1.0"),
        population(loss="absolute", constraint="lp_ball:1.5:1.0"),
        population(loss="absolute", constraint="l2_ball:1.0", regularizer=0.1),
    ):
        with pytest.raises(UserError, match="give it as `minimum`"):
            find_optimum(problem)


# --- constants in other norms ---


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize(("row_norm", "row_sup"), [(1.0, None), (3.0, 1.0), (1.0, 0.4)])
def test_row_norms_are_bounded_in_every_norm(q, row_norm, row_sup):
    spec = ProblemSpec(10, 16, Squared(), Regularizer(), L1Ball(), row_norm=row_norm, row_sup=row_sup)
    X = np.random.default_rng(0).normal(size=(20_000, 16)) ** 3
    X[:4000, 9:] = 0.0
    X[:10] = np.eye(16)[:10]
    X[10:20] = 1.0
    X[20:30, :9] = 1.0
    X *= row_norm / np.linalg.norm(X, axis=1, keepdims=True)
    if row_sup is not None:
        X *= np.minimum(1.0, row_sup / np.abs(X).max(axis=1, keepdims=True))
    norms = np.linalg.norm(X, ord=q, axis=1)
    assert 0.85 * spec.row_norm_in(q) <= norms.max() <= spec.row_norm_in(q) * (1 + 1e-12)


def test_constants_in_the_l1_setting_do_not_see_the_dimension():
    problem = registered("population_sparse", "welsch:2", "l1_ball:1", features=64)
    spec = problem.spec
    assert (spec.row_norm, spec.row_sup) == (8.0, 1.0)
    assert spec.lipschitz_in(1) == pytest.approx(spec.loss.lipschitz(1.0, 1.0, 1.0))
    assert spec.smoothness_in(1) == spec.loss.smoothness(1.0) == spec.L / 64
    assert spec.lipschitz_in(2) == spec.G
    squared = ProblemSpec(10, 64, Squared(), Regularizer(), L1Ball(2.0), row_norm=8.0, row_sup=1.0)
    assert squared.lipschitz_in(1) == pytest.approx(1.0 * (1.0 * 2.0 + 1.0))
    ball = ProblemSpec(10, 64, Squared(), Regularizer(), L2Ball(2.0))
    assert ball.lipschitz_in(2) == ball.G
    with pytest.raises(UserError, match=r"no l_p norm with p = 0\.5"):
        spec.lipschitz_in(0.5)


def test_gradients_keep_to_the_constants_in_the_dual_norm():
    problem = registered("population_sparse", "welsch:2", "l1_ball:1", features=16)
    rng = np.random.default_rng(0)
    W, V = (problem.project(rng.normal(size=(384, 16))) for _ in range(2))
    index = np.arange(384)
    gradients = problem.sample_gradients(W, index)
    turns = problem.sample_differences(W, V, index)
    for p, q in ((1.0, np.inf), (1.5, 3.0), (2.0, 2.0)):
        assert np.linalg.norm(gradients, ord=q, axis=1).max() <= problem.spec.lipschitz_in(p)
        ratio = np.linalg.norm(turns, ord=q, axis=1) / np.linalg.norm(W - V, ord=p, axis=1)
        assert ratio.max() <= problem.spec.smoothness_in(p)


# --- the registered populations ---


@pytest.mark.parametrize("name", POPULATIONS)
def test_every_population_keeps_its_promises(name):
    data = datasets.load(name, rows=10**9)
    held = data.population
    assert data.X.dtype == data.y.dtype == np.float32
    assert data.X.flags.c_contiguous
    assert data.y.shape == held.probabilities.shape == (len(data.X),)
    assert held.samples == 10**9
    assert held.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.linalg.norm(data.X.astype(np.float64), axis=1).max() <= data.row_norm == held.row_norm
    assert np.abs(data.X).max() <= held.row_sup == 1.0
    assert np.abs(data.y).max() <= held.label_bound
    facts = facts_of(data)
    assert (facts["n"], facts["atoms"]) == (10**9, len(data.X))
    assert facts["d"] == (held.weights or data.X.shape[1])
    if name not in ("population_bias", "population_signed_mean"):  # whose shares fall with n
        assert datasets.load(name).checksum == data.checksum, "the atoms do not depend on the number of samples"
    assert datasets.load(name).population.samples == 1000


@pytest.mark.parametrize("name", ["population_sparse", "population_direction", "population_low_rank"])
def test_the_seed_fixes_the_atoms_that_are_drawn(name):
    one, other = (datasets.load(name, seed=seed).checksum for seed in (1, 2))
    assert one != other
    assert one == datasets.load(name, seed=1).checksum


@pytest.mark.parametrize("signal", [1.0, 0.25, 2.0**-13])
@pytest.mark.parametrize("d", [8, 50, 64])
def test_the_linear_population_has_mean_signal_and_a_known_excess(signal, d):
    problem = registered("population_linear", "absolute", "l1_ball:1", features=d, signal=signal)
    weights, X, _ = problem.records()
    mean = weights @ X
    np.testing.assert_allclose(mean, signal * np.eye(d)[-1], atol=1e-15)
    np.testing.assert_allclose((X * weights[:, None]).T @ X, np.eye(d), atol=1e-12)
    assert find_optimum(problem).objective == pytest.approx(2 - signal, abs=1e-12)
    W = problem.project(np.random.default_rng(0).normal(size=(20, d)))
    np.testing.assert_allclose(problem.objective(W), 2 - signal * W[:, -1], atol=1e-13)
    assert problem.spec.lipschitz_in(1) == 1.0


@pytest.mark.parametrize("d", [16, 20])
def test_the_linear_population_on_the_l2_ball_has_a_mean_of_length_signal(d):
    problem = registered("population_linear", "absolute", "l2_ball:1", features=d, signal=0.125, norm="l2")
    weights, X, _ = problem.records()
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0, atol=1e-6)
    assert np.linalg.norm(weights @ X) == pytest.approx(0.125, abs=1e-6)
    assert find_optimum(problem).objective == pytest.approx(2 - 0.125, abs=1e-6)
    assert problem.spec.G == 1.0


def test_the_welsch_populations_start_far_from_stationary():
    sparse = registered("population_sparse", "welsch:2", "l1_ball:1")
    assert sparse.stationarity_gap(np.zeros((1, 64)))[0] == pytest.approx(0.3, abs=0.05)
    for d in (16, 128):
        direction = registered("population_direction", "welsch:2", "l2_ball:1", features=d)
        assert direction.stationarity_gap(np.zeros((1, d)))[0] == pytest.approx(0.33, abs=0.03)


def test_the_circle_has_a_quadratic_risk_around_its_truth():
    problem = registered("population_circle", "mcp:1", "l2_ball:1")
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    truth = np.array([0.3, 0.2])
    at_truth = problem.objective(truth[None])[0]
    for r, slack in ((0.03, 0.07), (0.1, 0.02), (0.2, 0.01)):
        around = truth + r * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        curvature = (problem.objective(around) - at_truth) / r**2
        np.testing.assert_allclose(curvature, 0.25, atol=slack)


def test_the_risk_of_the_low_rank_population_does_not_depend_on_the_number_of_features():
    optima = []
    for d in (4, 30):
        problem = registered("population_low_rank", "absolute", None, features=d)
        optima.append(find_optimum(problem).objective)
        w = np.zeros((1, d))
        w[0, :4] = [0.1, -0.4, 0.2, 0.3]
        optima.append(problem.objective(w)[0])
    assert optima[:2] == pytest.approx(optima[2:], abs=1e-12)


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("population_linear", {"norm": "l3"}, "norm must be l1 or l2"),
        ("population_linear", {"signal": 2.0}, "signal must be a number from 0 to 1"),
        ("population_sparse", {"features": 2}, "sparsity=3 is more than features=2"),
        ("population_low_rank", {"features": 3}, "rank=4 is more than features=3"),
        ("population_sparse", {"features": 2**20, "atoms": 2**20}, "ask for fewer"),
    ],
)
def test_parameters_out_of_range_are_refused(name, parameters, sentence):
    with pytest.raises(UserError, match=sentence):
        datasets.load(name, **parameters)
