"""BGM21's one-pass stochastic Frank-Wolfe methods: poly_sfw (Algorithm 1) and noisy_sfw (Algorithm 6)."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from support import make_problem, randomised_response_delta, rows

from dprepro.algorithms import _sfw, get_algorithm, noisy_sfw, poly_sfw
from dprepro.algorithms.base import Setting
from dprepro.arrays import get_backend
from dprepro.errors import UserError, VacuousSetting
from dprepro.geometry import L1Ball, Polytope, get_set
from dprepro.losses import get_loss
from dprepro.privacy.accounting import account
from dprepro.privacy.audit import audit
from dprepro.privacy.calibrate import smallest_scale
from dprepro.privacy.certificate import certify
from dprepro.privacy.events import leaves
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.problems.optimum import find_optimum
from dprepro.problems.population import PopulationRisk
from dprepro.regularizers import Regularizer
from dprepro.run import STATIONARITY_GAP, Execution, execute

BOTH = [("poly_sfw", "l1_ball:1"), ("noisy_sfw", "lp_ball:1.5:1")]
both = pytest.mark.parametrize(("name", "constraint"), BOTH)


def spec_of(n=10**6, d=8, loss="huber:1", constraint="l1_ball:1", **facts):
    """Rows in the sup-norm unit ball: L0 = L1 = 1 in the l1 norm, and D = 2 for the unit l1 ball."""
    facts = {"row_norm": math.sqrt(d), "row_sup": 1.0, "label_bound": 10.0, **facts}
    return ProblemSpec(n, d, get_loss(loss), Regularizer(), get_set(constraint), **facts)


def planned(name, spec, epsilon=1.0, delta=1e-6, variant="published", **letters):
    return get_algorithm(name).plan(Setting(spec, epsilon, delta, variant), **letters)


def population(n, loss="welsch:2", constraint="l1_ball:1", d=6, atoms=40):
    """Signs with labels of a sparse linear model, and a few far off."""
    rng = np.random.default_rng(5)
    X = np.where(rng.random((atoms, d)) < 0.5, -1.0, 1.0)
    y = np.clip(0.7 * X[:, 0] - 0.2 * X[:, 1] + 0.2 * rng.normal(size=atoms), -1.0, 1.0)
    y[:4] = -y[:4]
    spec = spec_of(n, d, loss, constraint, label_bound=1.0)
    return PopulationRisk(spec, X, y, np.full(atoms, 1.0 / atoms), get_backend("cpu", "float64"))


class Watched(Execution):
    """Keeps the points at which steps begin and the batches."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.points, self.batches = [], []

    def candidate(self, W):
        self.points.append(np.asarray(W).copy())
        super().candidate(W)

    def fresh(self, size):
        self.batches.append(super().fresh(size))
        return self.batches[-1]


def watched(plan, problem, replicates=2, seed=0):
    ex = Watched(plan, problem, seed, list(range(replicates)))
    output = get_algorithm(plan.algorithm).run(plan, ex)
    ex.check(plan)
    return ex, np.asarray(output)


def linear_minimizer(w, g, constraint):
    if isinstance(constraint, L1Ball):
        j = np.argmax(np.abs(g))
        return -constraint.radius * np.sign(g[j]) * np.eye(len(g))[j]
    q = constraint.q
    return -constraint.size * np.sign(g) * np.abs(g) ** (q - 1.0) / np.sum(np.abs(g) ** q) ** ((q - 1.0) / q)


def as_printed(problem, X, y, R, b):
    """Return the points of Algorithms 1 and 6 without noise, line for line over the samples in their order."""
    loss, constraint = problem.spec.loss, problem.spec.constraint

    def mean_gradient(w, rows):
        total = np.zeros_like(w)
        for i in rows:
            total += loss.derivative(np, X[i] @ w, y[i]) * X[i]
        return total / len(rows)

    taken, w, points = 0, np.zeros(X.shape[1]), []
    nabla, previous = w, w
    for r in range(R):
        for t in range(2**r):
            batch = range(taken, taken + b // (t + 1))
            taken += len(batch)
            points.append(w)
            if t == 0:
                nabla = mean_gradient(w, batch)
            else:
                delta = mean_gradient(w, batch) - mean_gradient(previous, batch)
                share = 1.0 / math.sqrt(t + 1)
                nabla = (1 - share) * (nabla + delta) + share * mean_gradient(w, batch)
            v = linear_minimizer(w, nabla, constraint)
            previous, w = w, (1 - 1 / math.sqrt(t + 1)) * w + v / math.sqrt(t + 1)
    return points, taken


@both
def test_the_estimator_is_the_printed_recursion(name, constraint):
    X, y = rows(220, 5, seed=2)
    problem = make_problem(data=(X, y), loss="welsch:2", regularizer=0.0, constraint=constraint)
    plan = planned(name, problem.spec, epsilon=math.inf, R=4, b=30)
    ex, _ = watched(plan, problem)
    points, taken = as_printed(problem, X, y, 4, 30)
    np.testing.assert_allclose([W[0] for W in ex.points], points, atol=1e-10)
    assert ex.samples_used == taken


@both
def test_batches_are_disjoint_and_counted_by_the_formulas(name, constraint):
    problem = make_problem(n=400, constraint=constraint)
    plan = planned(name, problem.spec, R=4, b=37)
    ex, _ = watched(plan, problem)
    sizes = [37 // (t + 1) for r in range(4) for t in range(2**r)]
    assert [batch.size for batch in ex.batches] == sizes
    assert all(one.rows.stop == two.rows.start for one, two in pairwise(ex.batches))
    assert ex.samples_used == sum(sizes) == _sfw.samples(4, 37)
    assert ex.gradient_evaluations == 2 * sum(sizes) - 4 * 37 == plan.gradient_evaluations


@settings(deadline=None, max_examples=60)
@given(n=st.integers(10, 10**12), R=st.integers(2, 12))
def test_the_largest_batch_takes_at_most_n_samples_and_two_n_gradients(n, R):
    b = _sfw.largest_batch(R, n)
    harmonic = sum(1.0 / (t + 1) for r in range(R) for t in range(2**r))
    assert b == pytest.approx(n / harmonic, abs=1.0)
    assert _sfw.samples(R, b) <= n
    assert _sfw.gradient_evaluations(R, b) <= 2 * n


@pytest.mark.parametrize("n", [10**6, 10**8, 7 * 10**8])
def test_published_batches_use_a_few_percent_of_the_data(n):
    for name, constraint, share in (("poly_sfw", "l1_ball:1", (0.02, 0.08)), ("noisy_sfw", "l2_ball:1", (0.02, 0.15))):
        plan = planned(name, spec_of(n, 16, constraint=constraint), delta=n**-2.0)
        assert plan.b == math.floor(n / math.log(n) ** 2)
        assert share[0] < _sfw.samples(plan.R, plan.b) / n < share[1]
        assert plan.gradient_evaluations <= 2 * n


def test_the_output_is_a_uniformly_random_point_at_which_a_step_begins():
    problem = population(10**4)
    ex, output = watched(planned("poly_sfw", problem.spec, epsilon=0.5, R=3, b=900), problem, replicates=2048)
    same = np.all(np.stack(ex.points) == output, axis=2)  # (7, K)
    assert np.all(np.any(same, axis=0))
    # Points may coincide, so that the choice is asked for again. Seven cells, false alarm below 1e-6.
    chosen = np.asarray(ex.uniform_index(7))[:, 0]
    assert np.all(same[chosen, np.arange(2048)])
    counts = np.bincount(chosen, minlength=7)
    assert np.sum((counts - 2048 / 7) ** 2) / (2048 / 7) < chi2.isf(1e-6, 6)


@both
def test_the_observed_gap_is_the_mean_over_all_candidates(name, constraint):
    problem = population(10**5, constraint=constraint)
    plan = planned(name, problem.spec, R=4, b=2000)
    ex, _ = watched(plan, problem, replicates=3)
    gaps = [np.asarray(problem.stationarity_gap(W)) for W in ex.points]
    assert len(gaps) == 15
    np.testing.assert_allclose(ex.observed()[_sfw.GAP], np.mean(gaps, axis=0), rtol=1e-12)
    assert plan.utility.quantity == _sfw.GAP == STATIONARITY_GAP


@pytest.mark.parametrize("constraint", ["l1_ball:1", "lp_ball:1.5:1", "simplex:1", "l2_ball:0.5"])
@pytest.mark.parametrize("loss", ["squared", "welsch:2"])
def test_without_noise_the_gap_falls_with_the_square_root_of_the_steps(constraint, loss):
    problem = population(10**10, loss, constraint)
    name = "poly_sfw" if "polytope" in problem.spec.properties else "noisy_sfw"
    gaps = {}
    for R in (4, 10):
        result = execute(planned(name, problem.spec, math.inf, R=R), problem, seed=1, replicates=[0], tile=1)
        gaps[R] = float(result.observed[_sfw.GAP][0])
    start = float(problem.stationarity_gap(problem.spec.constraint.start(np, np.zeros((1, 6))))[0])
    # Six rounds more are 64 times the steps: the theorem's 2^(-R/2) is an eighth.
    assert gaps[10] < 0.16 * gaps[4]
    assert gaps[10] < 0.15 * start


def test_without_noise_a_convex_problem_is_solved():
    problem = population(10**10, "squared", "l2_ball:0.5")
    result = execute(planned("noisy_sfw", problem.spec, math.inf, R=12), problem, seed=1, replicates=[0], tile=1)
    best = find_optimum(problem).objective
    assert -1e-9 < result.objective[0, -1] - best < 2e-4
    assert result.objective[0, 0] - best > 0.05


@pytest.mark.parametrize("constraint", ["simplex:1", Polytope([[1.0, 0.0], [0.0, 1.0], [-0.5, -0.5], [0.2, -0.9]])])
def test_other_polytopes_and_a_regularizer_are_kept(constraint):
    X, y = rows(300, 2)
    problem = make_problem(data=(X, y), loss="welsch:1", regularizer=0.3, constraint=constraint)
    plan = planned("poly_sfw", problem.spec, variant="practical")
    ex, output = watched(plan, problem, replicates=5)
    vertices = 2 if constraint == "simplex:1" else 4
    assert vertices == plan.J
    assert np.all(problem.spec.constraint.excess(np, output) < 1e-9)
    without = make_problem(data=(X, y), loss="welsch:1", regularizer=0.0, constraint=constraint)
    assert not np.array_equal(ex.points[-1], watched(plan, without, replicates=5)[0].points[-1])


# --- sensitivities -----------------------------------------------------------------------------------------------


def estimates(problem, b, vertices, R):
    """Return the estimates nabla of the last round when the points are those that `vertices` lead to."""
    plan = planned("poly_sfw", problem.spec, epsilon=math.inf, R=R, b=b)
    ex, seen = Execution(plan, problem, 0, [0]), []

    def towards(r, nabla):
        seen.append(np.asarray(nabla)[0])
        return vertices[len(seen) - 1][None, :]

    _sfw.run_rounds(plan, ex, lambda t, moved: 0.0, towards)
    return np.array(seen[-(2 ** (R - 1)) :])


@pytest.mark.parametrize("loss", ["huber:0.5", "welsch:2", "logistic"])
def test_replacing_a_sample_moves_the_estimates_within_the_stated_sensitivities(loss):
    """Every batch of the last round, with records and points that move the estimate a lot."""
    R, b, d, n = 4, 24, 3, 200
    rng = np.random.default_rng(1)
    X = np.where(rng.random((n, d)) < 0.5, -1.0, 1.0)
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    spec = spec_of(n, d, loss, label_bound=1.0)
    signs = np.where(rng.random(2**R) < 0.5, -1.0, 1.0)
    vertices = np.eye(d)[rng.integers(0, d, 2**R)] * signs[:, None]
    L0, turn = spec.lipschitz_in(1.0), spec.smoothness_in(1.0) * spec.constraint.diameter(1.0, d)
    moves = _sfw.moves(2 ** (R - 1), b, L0, turn)
    backend = get_backend("cpu", "float64")
    first = _sfw.samples(R - 1, b)
    base = estimates(EmpiricalRisk(spec, X, y, backend), b, vertices, R)
    largest = np.zeros(len(moves))
    for k in range(len(moves)):
        for label, row in ((-1.0, np.ones(d)), (1.0, -np.ones(d)), (1.0, np.array([1.0, -1.0, 1.0]))):
            Xn, yn = X.copy(), y.copy()
            Xn[first], yn[first] = row, label
            moved = np.abs(estimates(EmpiricalRisk(spec, Xn, yn, backend), b, vertices, R) - base).max(axis=1)
            factors = np.cumprod([1.0 - _sfw.eta(j) for j in range(k + 1, len(moves))])
            stated = np.concatenate([np.zeros(k), [moves[k]], moves[k] * factors])
            assert np.all(moved <= stated + 1e-12)
            # What one sample moves, it moves in this proportion later on.
            np.testing.assert_allclose(moved[k + 1 :], moved[k] * factors, atol=1e-12)
            largest[k] = max(largest[k], moved[k] / moves[k])
        first += b // (k + 1)
    assert np.all(largest > 0.0)


def test_the_parts_of_the_stated_sensitivities_are_reached():
    """Far labels make a loss linear with the largest gradient; crossing the whole set turns one completely."""
    n, b = 50, 20
    spec = spec_of(n, 1, "huber:1", label_bound=10.0)
    backend = get_backend("cpu", "float64")
    vertices = np.array([[1.0], [1.0], [-1.0], [1.0]])

    def moved(at, one, other):
        found = []
        for label in (one, other):
            y = np.zeros(n)
            y[at] = label
            found.append(estimates(EmpiricalRisk(spec, np.ones((n, 1)), y, backend), b, vertices, 2))
        return np.abs(found[0] - found[1])[:, 0]

    moves = _sfw.moves(2, b, 1.0, 2.0)
    assert moved(b, 9.0, -9.0)[0] == pytest.approx(moves[0])
    # From w_0 = 1 to w_1 = 1 nothing changes; the gradient alone has the share eta_1.
    assert moved(2 * b, 9.0, -9.0)[1] == pytest.approx(_sfw.eta(1) * 2.0 / (b // 2))
    # From w_0 = 1 to w_1 = -1 the gradient of label 0 turns from 1 to -1, that of a far label not at all.
    vertices[1] = -1.0
    assert moved(2 * b, 0.0, 9.0)[1] == pytest.approx((1.0 - _sfw.eta(1)) * 2.0 / (b // 2))
    assert moves[1] == pytest.approx(2.0 * ((1.0 - _sfw.eta(1)) * 2.0 + _sfw.eta(1)) / (b // 2))


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), J=st.integers(2, 6))
def test_half_the_diameter_is_enough_for_vertices_off_the_origin(seed, J):
    """The exponential mechanism over any vertices, whose values move with a gradient that moves by S in sup norm."""
    rng = np.random.default_rng(seed)
    vertices = rng.normal(size=(J, 3)) + 100.0 * rng.normal(size=3)
    S, scale = 0.3, 1.7
    D = Polytope(vertices.tolist()).diameter(1.0, 3)
    values = vertices @ rng.normal(size=3)
    moved = values + vertices @ (S * np.sign(rng.normal(size=3)))
    logs = [-v / scale - np.logaddexp.reduce(-v / scale) for v in (values, moved)]
    assert np.max(np.abs(logs[0] - logs[1])) <= 2.0 * (0.5 * D * S) / scale * (1 + 1e-9)


def replacement(spec, t, b, points, rows, labels):
    """Return the l2 distance that replacing one record by another moves the estimate of step t, given its points."""
    w, before = points
    terms = []
    for x, y in zip(rows, labels, strict=True):
        at_w, at_before = (spec.loss.derivative(np, x @ v, y) * x for v in (w, before))
        terms.append((1.0 - _sfw.eta(t)) * (at_w - at_before) + _sfw.eta(t) * at_w)
    return np.linalg.norm(terms[0] - terms[1]) / (b // (t + 1))


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), t=st.integers(1, 7), p=st.sampled_from([1.3, 2.0]), near=st.booleans())
def test_noise_of_noisy_sfw_shrinks_with_the_move_and_no_more_than_the_sensitivity(seed, t, p, near):
    """Steps from random points towards boundary points, and rows along the move: with signs or of length 1."""
    rng, d = np.random.default_rng(seed), 5
    long = rng.random() < 0.5
    spec = spec_of(
        10**6, d, rng.choice(["huber:1", "welsch:2"]), f"lp_ball:{p}:1", row_norm=math.sqrt(d) if long else 1
    )
    plan = planned("noisy_sfw", spec, variant="certified", R=4, b=10**4)
    before, v = (spec.constraint.project(np, 9.0 * rng.normal(size=(2, 1, d)))[k] for k in (0, 1))
    w = before + (0.05 if near else 1.0) * _sfw.eta(t - 1) * (v - before)
    c = noisy_sfw._shrink(plan, np, t, w - before)
    assert c.shape == (1, 1)
    c = c[0, 0]
    assert 0.0 < c <= 1.0
    assert not near or c < 0.9
    row = np.sign(w - before)[0] if long else ((w - before) / np.linalg.norm(w - before))[0]
    moved = [
        replacement(spec, t, plan.b, (w[0], before[0]), (row, side * row), (row @ w[0] + one, row @ w[0] + other))
        for side in (-1.0, 1.0)
        for one in (-9.0, 0.0, 1.0)
        for other in (0.0, 9.0)
    ]
    stated = c * plan.events[0].sensitivities[t]
    assert max(moved) <= stated * (1 + 1e-9)
    assert max(moved) > 0.2 * stated


def test_noise_of_noisy_sfw_is_the_planned_one_for_points_at_opposite_ends():
    plan = planned(
        "noisy_sfw", spec_of(10**6, 3, constraint="l2_ball:1", row_norm=1.0), variant="certified", R=3, b=999
    )
    moved = np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    c = noisy_sfw._shrink(plan, np, 1, moved)[:, 0]
    share = _sfw.eta(1)
    expected = [1.0, share / (2.0 * (1 - share) + share), ((1 - share) * 0.5 + share) / (2.0 * (1 - share) + share)]
    np.testing.assert_allclose(c, expected, rtol=1e-12)


def test_noise_of_noisy_sfw_takes_the_smaller_of_the_two_bounds_on_the_change_of_a_gradient():
    """Rows of signs: of dual norm d^(1/q) and l2 norm sqrt(d)."""
    d, p = 5, 1.3
    plan = planned("noisy_sfw", spec_of(10**6, d, constraint=f"lp_ball:{p}:1"), variant="certified", R=3, b=999)
    moved, share = np.array([0.1, 0.0, 0.0, 0.0, 0.0]), _sfw.eta(1)
    for row, change in ((moved, d ** (1 / p - 0.5) * d ** (2 - 2 / p) * 0.1), (np.full(d, 0.02), d * 0.02 * d**0.5)):
        stated = 2.0 * ((1 - share) * change + share * math.sqrt(d)) / 499
        c = noisy_sfw._shrink(plan, np, 1, row[None])[0, 0]
        assert c * plan.events[0].sensitivities[1] == pytest.approx(stated, rel=1e-12)


def brute_profiles(moves):
    """Return the falling sensitivities of a sample of each batch."""
    steps = len(moves)
    for k in range(steps):
        yield moves[k] * np.cumprod([1.0] + [1.0 - _sfw.eta(j) for j in range(k + 1, steps)])


def spread(profile):
    return np.repeat([s for s, _ in profile], [count for _, count in profile])


@settings(deadline=None, max_examples=40)
@given(
    steps=st.integers(1, 150),
    kind=st.sampled_from(["theorem", "falling", "random"]),
    groups=st.sampled_from([7, 512]),
    seed=st.integers(0, 10),
)
def test_every_sample_has_a_profile_that_is_at_least_its_own(steps, kind, groups, seed):
    moves = {
        "theorem": _sfw.moves(steps, 1000, 1.0, 2.0),
        "falling": [1.0 / (k + 1) for k in range(steps)],
        "random": list(np.random.default_rng(seed).random(steps) + 0.01),
    }[kind]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(poly_sfw, "_GROUPS", groups)
        profiles = [spread(profile) for profile in poly_sfw.fading_profiles(moves)]
    own = list(brute_profiles(moves))
    for falling in own:
        fits = [len(p) >= len(falling) and np.all(p[: len(falling)] >= falling * (1 - 1e-12)) for p in profiles]
        assert any(fits)
    worst = max(np.sum(falling**2) for falling in own)
    assert poly_sfw._worst_squares(moves) == pytest.approx(worst)
    if groups == 512:
        assert max(np.sum(p**2) for p in profiles) <= 1.1 * worst


@pytest.mark.parametrize("r", [6, 9])
def test_the_worst_profile_grows_slower_than_the_published_noise(r):
    """The noise that a round needs grows like 2^(3r/4), up to a factor that tends to 1; the published one like 2^r."""
    norms = [math.sqrt(poly_sfw._worst_squares(_sfw.moves(2**q, 10**9, 1.0, 2.0))) for q in (r, r + 1)]
    assert 2**0.75 < norms[1] / norms[0] < 2**0.82


# --- noise and privacy -------------------------------------------------------------------------------------------


def test_published_noise_of_poly_sfw_is_that_of_algorithm_1():
    plan = planned("poly_sfw", spec_of(10**8), epsilon=0.7, delta=1e-7)
    assert (plan.L0, plan.L1, plan.D, plan.J) == (1.0, 1.0, 2.0, 16)
    logs = math.log(16) ** 2 * math.log(10**8) ** 2
    assert math.floor(2 / 3 * math.log2(0.7e8 / (logs * math.sqrt(math.log(1e7))))) == plan.R
    for r, event in enumerate(leaves(plan.events)):
        assert event.scale == pytest.approx(2 * 2.0 * 3.0 * 2**r * math.sqrt(math.log(1e7)) / (plan.b * 0.7))
        assert (event.noise, event.count) == ("laplace", 2**r)


@pytest.mark.parametrize("p", [2.0, 1.5])
def test_published_noise_of_noisy_sfw_is_that_of_algorithm_6(p):
    n, d, epsilon, delta = 10**8, 16, 0.7, 1e-7
    plan = planned("noisy_sfw", spec_of(n, d, constraint=f"lp_ball:{p}:1", row_norm=1.0), epsilon, delta)
    kappa = 1.0 if p == 2.0 else 2.0
    tilde = 1.0 if p == 2.0 else 1.0 + math.log(d)
    inner = n * epsilon / (math.sqrt(d * tilde * math.log(1 / delta)) * kappa ** (5 / 3) * math.log(n) ** 2)
    assert (plan.kappa, plan.kappa_tilde) == (kappa, tilde)
    assert math.floor(0.8 * math.log2(inner)) >= plan.R
    assert min(0.8 * math.log2(inner), 2 / 3 * math.log2(n / (kappa * math.log(n)) ** 2)) // 1 == plan.R
    (event,) = plan.events
    for t, sigma in enumerate(event.sigmas):
        unit = 4.0 * (t + 1) * d ** (1 / p - 0.5) * math.sqrt(math.log(1 / delta)) / (plan.b * epsilon)
        share = 1 / math.sqrt(t + 1)
        on_gradient, on_change = unit * plan.L0, unit * plan.L1 * plan.D * share
        assert sigma == pytest.approx(math.hypot((1 - share) * on_change, share * on_gradient))
    assert event.count == 2**plan.R - 1


def test_an_embedding_in_more_dimensions_would_give_the_same_rounds_as_the_cap():
    """In d' = n^(1/3) eps^2 / (ln(1/delta) ln(n)^(2/3)) dimensions Theorem 11's R is (2/3) log2(n / ln(n)^2)."""
    n, epsilon, delta = 10**7, 30.0, 1e-3
    d = n ** (1 / 3) * epsilon**2 / (math.log(1 / delta) * math.log(n) ** (2 / 3))
    embedded = 0.8 * math.log2(n * epsilon / (math.sqrt(d * math.log(1 / delta)) * math.log(n) ** 2))
    plan = planned("noisy_sfw", spec_of(n, 2, constraint="l2_ball:1"), epsilon, delta)
    assert d > 2
    assert math.floor(embedded) == plan.R


def test_poly_sfw_as_published_spends_a_fraction_of_what_it_claims():
    epsilons = []
    for n in (10**6, 10**8):
        plan = planned("poly_sfw", spec_of(n, 64))
        epsilons.append(account(plan.events, 1e-6).epsilon)
    assert all(0.089 < epsilon < 0.18 for epsilon in epsilons)


def test_the_accounted_epsilon_of_a_round_is_that_of_its_worst_sample():
    plan = planned("poly_sfw", spec_of(10**8, 8), R=5)
    *_, last = leaves(plan.events)
    own = list(brute_profiles([0.5 * plan.D * S for S in _sfw.moves(16, plan.b, 1.0, 2.0)]))
    spent = account([last], 1e-6).epsilon
    assert max(randomised_response_delta(2 * falling / last.scale, spent) for falling in own) <= 1e-6
    assert max(randomised_response_delta(2 * falling / last.scale, spent / 1.03) for falling in own) > 1e-6


@pytest.mark.parametrize(("epsilon", "delta", "accounted"), [(1.0, 1e-6, 0.89), (4.0, 1e-6, 4.06), (4.0, 1e-10, 4.15)])
def test_noisy_sfw_as_published_is_not_certified_for_a_large_epsilon(epsilon, delta, accounted):
    """Worst where L1 D = 2 L0: the change at the second step is as large as Algorithm 6 forgets that it can be."""
    plan = planned("noisy_sfw", spec_of(10**9, 4, "huber:1", "l2_ball:1", row_norm=1.0), epsilon, delta, R=6)
    assert plan.L1 * plan.D == 2.0 * plan.L0
    assert account(plan.events, delta).epsilon == pytest.approx(accounted, abs=0.006)
    verdict = certify(plan, compare=False)["verdict"]
    # The sensitivities are attained by some smooth losses, not by all: of this one it is an upper bound.
    assert verdict.startswith("not certified" if epsilon == 4.0 else "certified")


@pytest.mark.parametrize(
    ("name", "constraint", "letters"),
    [
        ("poly_sfw", "l1_ball:1", {}),
        ("poly_sfw", "l1_ball:1", {"noise": "laplace", "R": 4}),
        ("noisy_sfw", "l2_ball:1", {}),
    ],
)
def test_certified_noise_is_smaller_and_just_keeps_the_claim(name, constraint, letters):
    spec = spec_of(10**8, 16, constraint=constraint)
    certified = planned(name, spec, variant="certified", **letters)
    published = planned(name, spec, **letters)
    assert (certified.R, certified.b) == (published.R, published.b)
    assert certified.sigma < published.sigma
    accounted = account(certified.events, 1e-6)
    assert 0.97 < accounted.epsilon <= 1.0
    assert accounted.delta(1.0) <= 1e-6 * (1 + 1e-6)


def test_every_step_of_certified_noisy_sfw_costs_the_same():
    (event,) = planned("noisy_sfw", spec_of(10**7, 16, constraint="l2_ball:1"), variant="certified").events
    ratios = np.array(event.sigmas) / np.array(event.sensitivities)
    np.testing.assert_allclose(ratios, ratios[0])


def test_in_a_long_round_gumbel_noise_does_with_far_less_than_laplace_noise():
    """In the first rounds both cost the sum of their few selections; for many it comes to one half."""
    *_, event = leaves(planned("poly_sfw", spec_of(10**8, 16), R=9).events)
    gumbel = smallest_scale([replace(event, noise="gumbel")], 1.0, 1e-6)
    laplace = smallest_scale([event], 1.0, 1e-6)
    assert 0.5 < gumbel / laplace < 0.62


@pytest.mark.parametrize("noise", ["gumbel", "laplace"])
def test_the_first_vertex_is_chosen_with_the_exact_probabilities(noise):
    """Two vertices whose values differ by one noise scale. False alarm below 1e-6."""
    # All samples are the same, so that the estimate is not random.
    spec = spec_of(10**4, 1, "welsch:2", label_bound=1.0)
    problem = PopulationRisk(spec, np.ones((1, 1)), np.full(1, 0.1), np.ones(1), get_backend("cpu", "float64"))
    plan = planned("poly_sfw", spec, R=2, b=1000, noise=noise)
    slope = -0.1 * math.exp(-(0.05**2))
    plan = plan.with_noise(2.0 * abs(slope) / next(leaves(plan.events)).scale)
    ex, _ = watched(plan, problem, replicates=4096)
    right = np.count_nonzero(ex.points[1][:, 0] > 0)
    probability = 1 / (1 + math.exp(-1.0)) if noise == "gumbel" else 1 - 0.5 * math.exp(-1.0) * 1.5
    assert abs(right - 4096 * probability) < 5.0 * math.sqrt(4096 * probability * (1 - probability))


def test_vertices_of_a_round_follow_the_exponential_mechanism():
    """Four vertices, Gumbel noise: a chi-square test of the first choice. False alarm below 1e-6."""
    spec = spec_of(10**4, 2, "welsch:2", label_bound=1.0)
    X, y = np.array([[1.0, 0.5]]), np.array([0.4])
    problem = PopulationRisk(spec, X, y, np.ones(1), get_backend("cpu", "float64"))
    plan = planned("poly_sfw", spec, R=2, b=1000, noise="gumbel")
    g = -0.4 * math.exp(-(0.2**2)) * X[0]
    values = np.concatenate([g, -g])
    plan = plan.with_noise(0.4 / next(leaves(plan.events)).scale)
    weights = np.exp(-values / 0.4)
    expected = 4096 * weights / weights.sum()
    ex, _ = watched(plan, problem, replicates=4096)
    at = ex.points[1]
    counts = np.array([np.sum(at[:, 0] > 0), np.sum(at[:, 1] > 0), np.sum(at[:, 0] < 0), np.sum(at[:, 1] < 0)])
    assert counts.sum() == 4096
    assert np.sum((counts - expected) ** 2 / expected) < chi2.isf(1e-6, 3)


@pytest.mark.parametrize("variant", ["published", "certified"])
def test_the_noise_of_noisy_sfw_has_the_planned_variance_and_goes_along_with_the_estimate(variant, monkeypatch):
    """Without data the first estimates are noise: N_0, then (1 - eta_1) N_0 + c N_1. False alarm below 1e-6 in all.

    The points stay at 0, so that calibrated noise has the share c of the planned one that is for gradients alone.
    """
    problem = population(10**4, d=6, constraint="l2_ball:1")
    plan = planned("noisy_sfw", problem.spec, R=2, b=1000, variant=variant)
    ex, seen = Execution(plan, problem, 0, list(range(2048))), []
    silent = replace(problem.spec, loss=get_loss("huber:1"))
    empty = PopulationRisk(silent, np.zeros((1, 6)), np.zeros(1), np.ones(1), get_backend("cpu", "float64"))
    ex._problem = ex._judge = ex._oracle = empty

    def towards(r, nabla):
        seen.append(np.asarray(nabla))
        return np.zeros_like(seen[-1])

    run_rounds = _sfw.run_rounds
    monkeypatch.setattr(_sfw, "run_rounds", lambda plan, ex, noise, _: run_rounds(plan, ex, noise, towards))
    get_algorithm("noisy_sfw").run(plan, ex)
    (event,) = plan.events
    c = 1.0 if variant == "published" else 2.0 * _sfw.eta(1) * plan.G / 500 / event.sensitivities[1]
    assert variant == "published" or c < 0.8
    variances = [event.sigmas[0] ** 2] * 2
    variances.append((c * event.sigmas[1]) ** 2 + (1 - _sfw.eta(1)) ** 2 * event.sigmas[0] ** 2)
    for nabla, variance in zip(seen, variances, strict=True):
        total = np.sum(nabla**2) / variance
        assert chi2.ppf(1e-7, nabla.size) < total < chi2.isf(1e-7, nabla.size)


@pytest.mark.parametrize("name", ["poly_sfw", "noisy_sfw"])
def test_an_audit_proves_no_more_than_is_accounted(name):
    row = audit(get_algorithm(name), variant="certified", epsilon=4.0, delta=1e-3, replicates=2000)
    assert 0.3 < row["epsilon_audited"] <= row["epsilon_accounted"] <= 4.0


# --- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "constraint", "d", "near"), [("poly_sfw", "l1_ball:1", 20, 6.2e4), ("noisy_sfw", "l2_ball:1", 10, 5.5e3)]
)
def test_a_vacuous_setting_names_the_first_n_that_has_two_rounds(name, constraint, d, near):
    delta = near**-2.0
    with pytest.raises(VacuousSetting, match="output is the initial point; it makes sense from n =") as caught:
        planned(name, spec_of(1000, d, constraint=constraint), delta=delta)
    enough = int(re.search(r"from n = (\d+)", str(caught.value)).group(1))
    assert enough == pytest.approx(near, rel=0.05)
    assert planned(name, spec_of(enough, d, constraint=constraint), delta=delta).R == 2
    with pytest.raises(VacuousSetting):
        planned(name, spec_of(enough - 1, d, constraint=constraint), delta=delta)


def test_practical_rounds_start_at_far_fewer_samples():
    assert planned("poly_sfw", spec_of(2**16, 64), delta=2.0**-32, variant="practical").R == 5
    assert planned("noisy_sfw", spec_of(2**16, 16, constraint="l2_ball:1"), variant="practical").R >= 5
    with pytest.raises(VacuousSetting, match="give at least 5 samples"):
        planned("poly_sfw", spec_of(4, 2), variant="practical")


@pytest.mark.parametrize(
    ("letters", "sentence"),
    [
        ({"R": 1}, "with one the output is the initial point"),
        ({"R": 4, "b": 7}, "the last of 8 steps has no sample"),
        ({"R": 4, "b": 600}, "takes 4380 samples, but there are 1000"),
        ({"R": 3, "b": 50, "p": 2.5}, "1 < p <= 2"),
        ({"R": 3, "b": 50, "p": 1.0}, "1 < p <= 2"),
    ],
)
def test_rounds_that_make_no_sense_are_refused(letters, sentence):
    with pytest.raises(UserError, match=sentence):
        planned("noisy_sfw", spec_of(1000, 4, constraint="l2_ball:1"), **letters)


@pytest.mark.parametrize(
    ("name", "loss", "constraint", "sentence"),
    [
        ("poly_sfw", "welsch:2", "l2_ball:1", "a polytope"),
        ("poly_sfw", "absolute", "l1_ball:1", "a smooth loss"),
        ("noisy_sfw", "welsch:2", None, "a bounded constraint set"),
    ],
)
def test_what_the_theorems_need_is_asked_for(name, loss, constraint, sentence):
    with pytest.raises(UserError, match=sentence):
        planned(name, spec_of(10**6, 4, loss, constraint))


@pytest.mark.parametrize("name", ["poly_sfw", "noisy_sfw"])
def test_more_data_give_a_smaller_gap_as_published(name):
    gaps = []
    for n in (10**6, 10**8):
        problem = population(n, constraint="l1_ball:1" if name == "poly_sfw" else "l2_ball:1")
        plan = planned(name, problem.spec, delta=1e-9)
        gaps.append(execute(plan, problem, seed=0, replicates=range(4), tile=4).observed[_sfw.GAP].mean())
    assert gaps[1] < 0.5 * gaps[0]
