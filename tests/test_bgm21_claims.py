"""What BGM21 claims of its algorithms, and what its errata say, measured on the code that runs.

Statistical tests have fixed seeds and a false-alarm probability below 1e-6 each.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from support import rows

from dprepro.algorithms import _sfw, get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.algorithms.phased_sgd import ROUNDING
from dprepro.arrays import get_backend
from dprepro.errors import LedgerMismatch, UserError, VacuousSetting
from dprepro.geometry import L1Ball, L2Ball, Polytope, RealSpace, Simplex, get_set
from dprepro.losses import Absolute, Huber, Loss, get_loss
from dprepro.privacy.accounting import account, gaussian_epsilon
from dprepro.privacy.events import DisjointGaussianEvent, GaussianEvent, ParallelEvent, QueryPart, leaves, scale_events
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.problems.optimum import find_optimum
from dprepro.problems.population import PopulationRisk
from dprepro.regularizers import Regularizer
from dprepro.run import Execution, execute

CPU = get_backend("cpu", "float64")


class Turned(Loss):
    """s h(t - c) for the label y = s (3 + c), with h the Huber loss: L0 = L1 = 1, and convex for s = 1 only.

    Of all such functions of t it has the largest gradients and the largest changes, with either sign.
    """

    name, convex = "turned", False

    def value(self, xp, t, y):
        return xp.sign(y) * Huber().value(xp, t, xp.abs(y) - 3.0)

    def core(self, xp, s, y):
        return xp.sign(y) * Huber().core(xp, s, xp.abs(y) - 3.0)

    def lipschitz(self, row_norm, radius, label_bound):
        return row_norm

    def smoothness(self, row_norm):
        return row_norm**2


def spec_of(n, d=1, loss=None, constraint="l2_ball:1", **facts):
    return ProblemSpec(n, d, loss or Turned(), Regularizer(), get_set(constraint), label_bound=5.0, **facts)


def planned(name, spec, epsilon=1.0, delta=1e-6, variant="published", **letters):
    return get_algorithm(name).plan(Setting(spec, epsilon, delta, variant), **letters)


# --- what a step releases, at points that are fixed beforehand -------------------------------------------------------


class Script:
    """The interval [-1, 1] with steps that do not listen: it goes to the given ends and keeps the estimates."""

    def __init__(self, ends):
        self.ends, self.seen = iter(ends), []

    def linear_minimizer(self, xp, G):
        self.seen.append(np.array(G))
        return np.full_like(G, next(self.ends))

    def vertex_values(self, xp, G):
        self.seen.append(np.array(G))
        return np.concatenate([G, -G], axis=1)

    def vertex(self, xp, index, like):
        return np.full_like(like, next(self.ends))


class Scripted(Execution):
    """An execution whose points are those of a script, so that only estimates depend on data and noise."""

    script: Script

    @property
    def constraint(self):
        return self.script


def estimates(plan, y, ends, replicates=1):
    """The estimates nabla (2^R - 1, K) that the algorithm releases or selects by, on records x = 1 with labels y.

    A label of 0 stands for a record that is not there: x = 0.
    """
    X = (np.asarray(y) != 0.0).astype(float)[:, None]
    ex = Scripted(plan, EmpiricalRisk(spec_of(len(y)), X, np.asarray(y), CPU), 0, list(range(replicates)))
    ex.script = Script(ends)
    get_algorithm(plan.algorithm).run(plan, ex)
    ex.check(plan)
    assert ex.samples_used <= plan.n
    return np.array(ex.script.seen)[:, :, 0]


def points_of(ends):
    """The points at which the steps begin, for Algorithm 1 or 6 that goes to these ends."""
    w, points, step = 0.0, [], 0
    for r in range((len(ends) + 1).bit_length() - 1):
        for t in range(2**r):
            points.append(w)
            w = (1 - _sfw.eta(t)) * w + _sfw.eta(t) * ends[step]
            step += 1
    return points


def worst_neighbours(plan, ends, r, t):
    """Two datasets that differ in a sample of step t of round r, as much as any two do at these points."""
    step = 2**r - 1 + t
    points = points_of(ends)
    move = points[step] - points[step - 1] if t else 0.0
    centre = points[step] - (1.0 if move >= 0.0 else -1.0)
    place = _sfw.samples(r, plan.b) if r else 0
    place += sum(plan.b // (k + 1) for k in range(t))
    labels = np.zeros(plan.n)
    labels[place] = 3.0 + centre
    return labels, -labels


def crossing(R, r, t):
    """Ends that make step t - 1 of round r cross the whole interval, or as much of it as its step size allows."""
    ends = [1.0] * (2**R - 1)
    if t:
        ends[2**r - 1 + t - 1] = -1.0
    return ends


# A batch that all of 1, ..., 8 divide: the paper does not round b/(t+1) down.
R, B = 4, 840
N = _sfw.samples(R, B)
STEPS = [(r, t) for r in range(R) for t in range(2**r)]


@pytest.mark.parametrize("name", ["poly_sfw", "noisy_sfw"])
def test_the_stated_sensitivity_of_every_step_is_attained(name):
    """And what a record moves fades as stated in the steps behind, for the selections of Algorithm 1."""
    spec = spec_of(N, constraint="l1_ball:1" if name == "poly_sfw" else "l2_ball:1")
    silent = planned(name, spec, math.inf, R=R, b=B)
    stated = _sfw.moves(2 ** (R - 1), B, 1.0, 2.0)
    for r, t in STEPS:
        ends = crossing(R, r, t)
        one, other = (estimates(silent, y, ends)[:, 0] for y in worst_neighbours(silent, ends, r, t))
        moved = np.abs(one - other)[2**r - 1 : 2 ** (r + 1) - 1]
        factors = np.cumprod([1.0 - _sfw.eta(k) for k in range(t + 1, 2**r)])
        np.testing.assert_allclose(moved, [*np.zeros(t), stated[t], *(stated[t] * factors)], atol=1e-12)
        outside = np.delete(np.abs(one - other), np.arange(2**r - 1, 2 ** (r + 1) - 1))
        assert not outside.any(), "a record is in one round only"
    if name == "noisy_sfw":
        (event,) = planned(name, spec, R=R, b=B).events
        np.testing.assert_allclose(event.sensitivities, stated)


@pytest.mark.parametrize(
    ("b", "epsilon", "delta", "worst", "spent"),
    [
        (B, 1.0, 1e-6, 1, 0.89),
        (B, 4.0, 1e-6, 1, 4.06),
        (B, 4.0, 1e-10, 1, 4.15),
        # Rounded down, 48/7 is 6: the printed noise is for a larger batch.
        (48, 1.0, 1e-6, 6, 0.95),
        (48, 4.0, 1e-6, 6, 4.352),
    ],
)
def test_algorithm_6_as_published_spends_more_than_four_on_two_neighbours(b, epsilon, delta, worst, spent):
    """Batches without the record can make the points those of the script but for a tiny probability.

    Given the points, the estimate is Gaussian with means that differ by what is measured here: its epsilon is exact.
    """
    spec = spec_of(_sfw.samples(R, b))
    plan, silent = (planned("noisy_sfw", spec, e, delta, R=R, b=b) for e in (epsilon, math.inf))
    found = []
    for t in range(2 ** (R - 1)):
        ends = crossing(R, R - 1, t)
        one, other = (estimates(silent, y, ends)[-(2 ** (R - 1)) :] for y in worst_neighbours(silent, ends, R - 1, t))
        found.append(gaussian_epsilon(float(np.abs(one - other)[t, 0]) / plan.events[0].sigmas[t], delta))
    assert max(found) == pytest.approx(spent, abs=0.006)
    assert int(np.argmax(found)) == worst
    assert max(found) == pytest.approx(account(plan.events, delta).epsilon)


@pytest.mark.parametrize(("b", "delta", "spent"), [(B, 1e-6, 3.31), (B, 1e-10, 3.41), (48, 1e-6, 3.54)])
def test_algorithm_6_as_printed_keeps_a_claimed_four_if_its_logarithm_is_binary(b, delta, spent):
    """log2(1/delta) under the root of the noise scale, in place of ln(1/delta)."""
    plan = planned("noisy_sfw", spec_of(_sfw.samples(R, b)), 4.0, delta, R=R, b=b)
    binary = scale_events(plan.events, 1.0 / math.sqrt(math.log(2.0)))
    assert account(binary, delta).epsilon == pytest.approx(spent, abs=0.006)


@pytest.mark.parametrize(("delta", "most"), [(1e-3, 3.44), (1e-6, 3.591), (1e-10, 3.695)])
def test_algorithm_6_with_the_step_size_of_its_own_move_keeps_a_claimed_four(delta, most):
    """sigma-hat with eta_{t-1}, the step by which the points differ, in place of eta_t; batches without floors.

    Movement over noise is then epsilon/(2 sqrt(ln(1/delta))) (u + v)/hypot(u, v), u and v the movements of the two
    parts, so that epsilon/sqrt(2 ln(1/delta)) bounds it for all constants of the loss.
    """
    ratios = [
        ((1.0 - _sfw.eta(t)) * min(_sfw.eta(t - 1) * turn, 2.0) + _sfw.eta(t))
        / math.hypot((1.0 - _sfw.eta(t)) * _sfw.eta(t - 1) * turn, _sfw.eta(t))
        for t in range(1, 200)
        for turn in np.geomspace(0.01, 100.0, 401)
    ]
    assert 1.414 < max(ratios) <= math.sqrt(2.0)
    spent = gaussian_epsilon(max(ratios) * 4.0 / (2.0 * math.sqrt(math.log(1.0 / delta))), delta)
    assert spent == pytest.approx(most, abs=0.01)
    assert spent < 4.0


@pytest.mark.parametrize("variant", ["published", "certified", "practical"])
def test_no_release_of_algorithm_6_moves_further_for_its_noise_than_is_accounted(variant):
    """Noise is measured on 1024 replicates, movement on the worst neighbours, at points that move a lot or a little.

    With N the noise that step t adds, sum(N^2) (accounted mu / movement)^2 is at least chi-square. False alarm 1e-8
    for each of 24 steps, which is below 1e-6 in all.
    """
    K, b = 1024, 24
    spec = spec_of(_sfw.samples(R, b))
    plan, silent = (planned("noisy_sfw", spec, e, variant=variant, R=R, b=b) for e in (2.0, math.inf))
    (event,) = plan.events
    accounted = max(np.array(event.sensitivities) / np.array(event.sigmas))
    assert gaussian_epsilon(accounted, 1e-6) == pytest.approx(account(plan.events, 1e-6).epsilon)
    mixed = np.random.default_rng(3).choice([-1.0, 1.0], 2**R - 1).tolist()
    calm = 0
    for ends in ([1.0] * (2**R - 1), crossing(R, 3, 5), mixed):
        labels = np.zeros(plan.n)
        noise = estimates(plan, labels, ends, K) - estimates(silent, labels, ends, K)
        for t in range(2 ** (R - 1)):
            step = 2 ** (R - 1) - 1 + t
            added = noise[step] - ((1 - _sfw.eta(t)) * noise[step - 1] if t else 0.0)
            one, other = (estimates(silent, y, ends)[step, 0] for y in worst_neighbours(silent, ends, R - 1, t))
            share = np.sum(added**2) * (accounted / abs(one - other)) ** 2
            assert share >= chi2.ppf(1e-8, K)
            calm += share > chi2.isf(1e-8, K)
    # Calibrated noise is for the points of the run, published noise for the worst ones.
    assert (calm == 0) == (variant != "published")


# --- the exact privacy of whole runs of Algorithm 1 ------------------------------------------------------------------


def laws(plan, neighbours):
    """The exact law (2, choices) of all choices of Algorithm 1 on two datasets, for Gumbel noise and two vertices."""
    silent = planned("poly_sfw", spec_of(plan.n, constraint="l1_ball:1"), math.inf, R=plan.R, b=plan.b)
    scales = [event.scale for event in leaves(plan.events) for _ in range(event.count)]
    found = [[], []]
    for ends in itertools.product([1.0, -1.0], repeat=2**plan.R - 1):
        for law, y in zip(found, neighbours, strict=True):
            nabla = estimates(silent, y, ends)[:, 0]
            # The exponential mechanism on the values nabla and -nabla of the vertices 1 and -1.
            law.append(-np.sum(np.logaddexp(0.0, 2.0 * nabla * np.array(ends) / scales)))
    probabilities = np.exp(found)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    return probabilities


def hockey_stick(p, q, epsilon):
    return max(np.sum(np.maximum(a - math.exp(epsilon) * b, 0.0)) for a, b in ((p, q), (q, p)))


def driven(plan, r, t, lean):
    """The worst neighbours of step t of round r, on which all samples of steps before make the points so.

    In the batch of the step, `lean` other samples have a gradient of -1, or as many of 1 if it is negative.
    """
    ends = crossing(plan.R, r, t)
    one, other = worst_neighbours(plan, ends, r, t)
    place, labels = 0, np.zeros(plan.n)
    for round_, step in STEPS:
        size = plan.b // (step + 1)
        if (round_, step) == (r, t):
            labels[place + 1 : place + 1 + abs(lean)] = -np.sign(lean)
            break
        # A label of 1 or -1 has the gradient 1 or -1 at every point of the interval.
        labels[place : place + size] = -ends[2**round_ - 1 + step]
        place += size
    return [np.where(y != 0.0, y, labels) for y in (one, other)]


@pytest.mark.parametrize(("rounds", "r", "t"), [(2, 0, 0), (2, 1, 0), (2, 1, 1), (3, 2, 1)])
def test_all_choices_of_algorithm_1_together_keep_the_accounted_privacy(rounds, r, t):
    """Exact, for the worst records of a batch in the company that makes them tell most."""
    b, delta = 8, 0.01
    spec = spec_of(_sfw.samples(rounds, b), constraint="l1_ball:1")
    plan = planned("poly_sfw", spec, 2.0, delta, "certified", R=rounds, b=b)
    spent, largest = account(plan.events, delta), 0.0
    for lean in (1,) if rounds == 3 else (-2, -1, 0, 1, 2, 3):
        p, q = laws(plan, driven(plan, r, t, lean))
        for epsilon in np.linspace(0.0, 2.0, 9):
            assert hockey_stick(p, q, epsilon) <= spent.delta(float(epsilon)) * (1 + 1e-9)
        largest = max(largest, hockey_stick(p, q, 0.6 * spent.epsilon))
    assert 0.97 * 2.0 <= spent.epsilon <= 2.0
    if (rounds, r, t) in ((2, 0, 0), (2, 1, 1)):
        assert largest > delta, "these are the records that cost most: six tenths of the accounted epsilon is refuted"


# --- accounted epsilon as in the paper's own settings ----------------------------------------------------------------


def test_the_published_algorithms_spend_what_they_are_said_to_spend():
    """Claimed epsilon = 1 (and 4) at delta = 1e-6; the study of the paper has the same numbers within a few percent."""

    def spent(name, spec, epsilon=1.0, **letters):
        return account(planned(name, spec, epsilon, **letters).events, 1e-6).epsilon

    ball = ProblemSpec(2**17, 16, Absolute(), Regularizer(), L2Ball(1.0))
    # Without rounding it is 0.2598, and 0.271 with gradients by bisection.
    assert spent("phased_sgd", ball) == pytest.approx(0.261, abs=0.002)
    assert spent("phased_sgd", ball, oracle="bisection") == pytest.approx(0.273, abs=0.003)
    signs = ProblemSpec(2**17, 64, Absolute(), Regularizer(), L1Ball(1.0), row_norm=8.0, row_sup=1.0)
    assert spent("noisy_frank_wolfe", signs) == pytest.approx(0.24, abs=0.01)
    assert spent("noisy_frank_wolfe", signs, 4.0) == pytest.approx(1.07, abs=0.03)
    smooth = ProblemSpec(10**8, 64, Huber(), Regularizer(), L1Ball(1.0), row_norm=8.0, row_sup=1.0)
    by_round = [account([event], 1e-6).epsilon for event in leaves(planned("poly_sfw", smooth, R=7).events)]
    assert 0.085 < min(by_round) <= max(by_round) < 0.175
    assert max(by_round) == pytest.approx(account(planned("poly_sfw", smooth, R=7).events, 1e-6).epsilon)


# --- the step of phased SGD ------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(2, 10**7),
    d=st.sampled_from([1, 10, 1000]),
    radius=st.sampled_from([None, 1e-3, 1.0, 30.0, 1e4]),
    row_norm=st.sampled_from([0.1, 1.0, 7.0]),
    epsilon=st.sampled_from([0.01, 1.0, 30.0, math.inf]),
    variant=st.sampled_from(["published", "certified", "practical"]),
    loss=st.sampled_from(["absolute", "hinge", "pinball:0.1", "insensitive:0.3", "logistic", "huber:2"]),
    letters=st.sampled_from(
        [{}, {"eta": 0.1}, {"beta": 50.0}, {"D": 40.0}, {"oracle": "bisection"}, {"eta": 3.0, "beta": 5.0}]
    ),
)
def test_no_plan_of_phased_sgd_has_a_step_that_is_not_stable(n, d, radius, row_norm, epsilon, variant, loss, letters):
    """Privacy rests on eta_1 = eta/4 <= 2/L, whatever variant, set and letters."""
    constraint = RealSpace() if radius is None else L2Ball(radius)
    spec = ProblemSpec(n, d, get_loss(loss), Regularizer(), constraint, row_norm=row_norm)
    try:
        plan = planned("phased_sgd", spec, epsilon, 1e-6, variant, **letters)
    except UserError:  # refused, with a sentence
        return
    L = spec.L if plan.beta is None else plan.beta * row_norm**2
    assert plan.eta / 4 * L <= 2 * (1 + 1e-9)
    for k, event in enumerate(leaves(plan.events), start=1):
        drift = 0.0 if plan.alpha is None else plan.alpha * (n >> k)
        rounding = ROUNDING * (n >> k) * max(1.0, plan.D if radius is None else radius)
        assert event.parts[0].sensitivity == pytest.approx(2 * plan.step_size(k) * (spec.G + drift) + rounding)
        if event.sigma:
            assert event.sigma == pytest.approx(plan.sigma / 4 ** (k - 1))


@pytest.mark.parametrize(("radius", "stable"), [(11.9, True), (12.1, False)])
def test_the_smoothness_of_theorem_5_makes_the_first_step_unstable_on_sets_wider_than_24(radius, stable):
    """beta = sqrt(n) L0/R, printed there, in place of the proof's sqrt(n) L0/(R D): it is refused."""
    n = 10**4
    spec = ProblemSpec(n, 4, Absolute(), Regularizer(), L2Ball(radius))
    if stable:
        assert planned("phased_sgd", spec, 4.0, beta=math.sqrt(n)).eta > 0
    else:
        with pytest.raises(UserError, match="stable, which privacy rests on"):
            planned("phased_sgd", spec, 4.0, beta=math.sqrt(n))
    assert planned("phased_sgd", spec, 4.0).beta == pytest.approx(math.sqrt(n) / (2 * radius))


def test_coarse_bisection_lets_neighbours_drift_apart_beyond_what_exact_steps_allow():
    """Steps of an inexact gradient may expand: what the term alpha T_k in the sensitivity is for."""
    n, d, beta, alpha, step = 64, 3, 40.0, 0.5, 0.1 / 40.0
    spec = ProblemSpec(n, d, Absolute(), Regularizer(), RealSpace())
    letters = {"K": 1, "eta": 4 * step, "beta": beta}
    plans = {
        "closed": planned("phased_sgd", spec, math.inf, **letters),
        "bisection": planned("phased_sgd", spec, math.inf, oracle="bisection", alpha=alpha, **letters),
    }
    apart = dict.fromkeys(plans, 0.0)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = np.array([1.0, 0.0, 0.0]) + 0.1 * rng.normal(size=(n, d))
        X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-9)
        y = 0.05 * rng.normal(size=n)
        y[0] = 0.9
        mirrored = X.copy()
        mirrored[0] = -X[0]
        for oracle, plan in plans.items():
            ends = [
                execute(plan, EmpiricalRisk(spec, A, y, CPU), seed=0, replicates=[0], tile=1).w for A in (X, mirrored)
            ]
            apart[oracle] = max(apart[oracle], float(np.linalg.norm(ends[0] - ends[1])))
    stated = {oracle: next(leaves(plan.events)).parts[0].sensitivity for oracle, plan in plans.items()}
    assert apart["closed"] <= stated["closed"] == pytest.approx(2 * step)
    assert (
        1.02 * stated["closed"]
        < apart["bisection"]
        <= stated["bisection"]
        == pytest.approx(2 * step * (1 + 32 * alpha))
    )


# --- one pass --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["published", "practical"])
@pytest.mark.parametrize(
    ("name", "loss", "constraint"),
    [
        ("phased_sgd", "absolute", "l2_ball:1"),
        ("poly_sfw", "welsch:2", "l1_ball:1"),
        ("noisy_sfw", "welsch:2", "l2_ball:1"),
    ],
)
def test_one_pass_looks_at_no_more_than_n_samples_and_takes_no_more_than_two_gradients_of_each(
    name, loss, constraint, variant
):
    n = 3001 if name == "phased_sgd" else 300_007
    problem = population(n, loss, constraint)
    result = execute(planned(name, problem.spec, 4.0, variant=variant), problem, seed=0, replicates=[0], tile=1)
    assert 0 < result.samples_used <= n
    assert result.gradient_evaluations[-1] <= 2 * n


# --- without noise ---------------------------------------------------------------------------------------------------


def population(n, loss, constraint):
    X, _ = rows(40, 4, seed=6)
    y = np.clip(X @ np.array([0.6, -0.3, 0.0, 0.1]) + 0.1 * np.sin(np.arange(40.0)), -1.0, 1.0)
    spec = ProblemSpec(n, 4, get_loss(loss), Regularizer(), get_set(constraint))
    return PopulationRisk(spec, X, y, np.full(40, 1.0 / 40), CPU)


@pytest.mark.parametrize(
    ("name", "loss", "constraint", "sizes", "letters"),
    [
        ("phased_sgd", "absolute", "l2_ball:1", (2**9, 2**12, 2**15), [{}] * 3),
        ("noisy_frank_wolfe", "absolute", "l1_ball:1", (10**9,) * 3, [{"T": 40}, {"T": 640}, {"T": 10_240}]),
        ("poly_sfw", "squared", "l1_ball:1", (10**11,) * 3, [{"R": 4}, {"R": 8}, {"R": 12}]),
        ("noisy_sfw", "squared", "l2_ball:1", (10**11,) * 3, [{"R": 4}, {"R": 8}, {"R": 12}]),
    ],
)
def test_without_noise_the_end_of_the_run_converges_to_the_optimum(name, loss, constraint, sizes, letters):
    """Eight times the samples, or sixteen times the steps, more than halve the excess of a convex problem."""
    excess = []
    for n, given_letters in zip(sizes, letters, strict=True):
        problem = population(n, loss, constraint)
        plan = planned(name, problem.spec, math.inf, **given_letters)
        result = execute(plan, problem, seed=2, replicates=range(8), tile=8)
        excess.append(float(np.mean(result.objective[:, -1])) - find_optimum(problem).objective)
    start = float(problem.objective(np.zeros((1, 4)))[0]) - find_optimum(problem).objective
    assert -1e-8 <= excess[2] < 0.5 * excess[1] < 0.25 * excess[0]
    assert excess[2] < 0.02 * start


# --- releases and batches ---------------------------------------------------------------------------------------------


def reused(events, draw):
    """Release ten times on one fresh batch of a run with these events."""
    spec = ProblemSpec(1000, 2, Huber(), Regularizer(), L2Ball(1.0))
    problem = EmpiricalRisk(spec, np.zeros((1000, 2)), np.zeros(1000), get_backend("cpu", "float64"))
    plan = replace(planned("noisy_sfw", spec, R=2, b=20), events=tuple(events), rounds=10)
    ex = Execution(plan, problem, 0, [0])
    batch = ex.fresh(100)
    for number in range(10):
        ex.batch_gradient(ex.zeros(), batch)
        draw(ex, number)


def test_an_event_that_counts_a_record_once_releases_once_on_a_batch():
    event = DisjointGaussianEvent("estimate", (1.0,), (1.0,), 10)
    with pytest.raises(LedgerMismatch, match="would release twice on one batch"):
        reused([event], lambda ex, number: ex.disjoint_gaussian("estimate").noise(0))


def test_branches_of_a_parallel_event_do_not_share_a_batch():
    part = QueryPart(1.0, 100, 100)
    event = ParallelEvent("all", tuple((GaussianEvent(f"b{i}", 1.0, (part,), 1),) for i in range(10)))
    with pytest.raises(LedgerMismatch, match="a batch of another parallel branch"):
        reused([event], lambda ex, number: list(ex.gaussian(f"b{number}").noise(1)))


# --- conditions and odd sets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "loss", "constraint"),
    [
        ("noisy_sfw", "welsch:2", L2Ball(1.0)),
        ("poly_sfw", "welsch:2", L1Ball(1.0)),
        ("noisy_frank_wolfe", "absolute", L1Ball(1.0)),
        ("phased_sgd", "absolute", L2Ball(1.0)),
    ],
)
def test_a_plan_with_a_regularizer_says_that_the_theorem_does_not_cover_it(name, loss, constraint):
    for strength, said in ((0.0, False), (1.0, True)):
        spec = ProblemSpec(10**7, 4, get_loss(loss), Regularizer(l2=strength), constraint)
        conditions = {condition.text: condition.holds for condition in planned(name, spec).conditions}
        assert (conditions.get("no regularizer") is False) == said


@pytest.mark.parametrize("name", ["phased_sgd", "noisy_frank_wolfe"])
def test_a_set_of_one_point_is_refused_in_a_sentence(name):
    with pytest.raises(UserError, match="is a single point"):
        planned(name, ProblemSpec(10**4, 1, Absolute(), Regularizer(), Simplex(1.0)))


def test_a_start_off_the_origin_has_its_own_distance():
    square = Polytope([[10.0, 10.0], [11.0, 10.0], [10.0, 11.0], [11.0, 11.0]])
    plan = planned("noisy_gd", ProblemSpec(10**4, 2, Absolute(), Regularizer(), square, row_norm=1.0))
    assert pytest.approx(math.sqrt(2.0)) == plan.D


@pytest.mark.parametrize(("name", "constraint"), [("poly_sfw", L1Ball(1.0)), ("noisy_sfw", L2Ball(1.0))])
@pytest.mark.parametrize("n", [2, 3, 8, 20, 50, 200])
def test_few_samples_and_a_large_epsilon_give_a_plan_or_the_n_that_has_one(name, constraint, n):
    spec = ProblemSpec(n, 2, Huber(), Regularizer(), constraint)
    try:
        plan = planned(name, spec, 100.0)
    except VacuousSetting as error:
        enough = int(str(error).partition("it makes sense from n = ")[2].partition(".")[0])
        assert enough > n
        assert planned(name, replace(spec, n=enough), 100.0).R >= 2
    else:
        assert plan.b >= 2 ** (plan.R - 1)


def test_practical_steps_on_a_simplex_reach_from_its_middle_to_a_vertex():
    eta = {}
    for constraint in (Simplex(1.0), L2Ball(0.5 * math.sqrt(2.0))):
        spec = ProblemSpec(10**5, 100, Absolute(), Regularizer(), constraint)
        eta[type(constraint)] = planned("phased_sgd", spec, variant="practical").eta
    assert eta[Simplex] == pytest.approx(2.0 * eta[L2Ball]), "both sets have the diameter sqrt(2)"
