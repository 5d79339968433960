"""What DP-SVRG and its relatives have beyond the paper: clipping, Poisson batches, falling noise, and anchors."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from support import make_problem, rows

from dprepro.algorithms import get_algorithm
from dprepro.algorithms._svrg import MOST_HALVINGS, Inner
from dprepro.algorithms.base import Setting
from dprepro.errors import UserError, VacuousSetting
from dprepro.files import jsonable
from dprepro.privacy.certificate import certify
from dprepro.privacy.events import GaussianEvent, QueryPart
from dprepro.privacy.mechanisms import GaussianMechanism, PoissonBatch, Slots
from dprepro.problems.optimum import find_optimum
from dprepro.run import Execution, execute

SVRG, SVRG_PP, ANCHOR = "dp_svrg", "dp_svrg_pp", "dp_svrg_anchor"
SMALL = {SVRG: {"T": 3, "m": 40}, SVRG_PP: {"T": 3, "m": 5}, ANCHOR: {"T": 3, "m": 10, "b": 5}}
each_svrg = pytest.mark.parametrize("name", [SVRG, SVRG_PP])


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path))


def planned(name, problem, epsilon=1.0, delta=1e-3, variant="published", **letters):
    return get_algorithm(name).plan(Setting(problem.spec, epsilon, delta, variant), **{**SMALL[name], **letters})


def run(name, problem, replicates=(0, 1), seed=1, **letters):
    return execute(planned(name, problem, **letters), problem, seed=seed, replicates=replicates)


# --- clipping and sampling ------------------------------------------------------------------------------------------


@each_svrg
@pytest.mark.parametrize("b", [1, 4])
def test_a_radius_that_no_difference_reaches_changes_not_a_bit(name, b):
    problem = make_problem()
    free, clipped = (run(name, problem, b=b, **letters) for letters in ({}, {"r": problem.spec.gradient_spread}))
    np.testing.assert_array_equal(free.w, clipped.w)
    assert np.any(run(name, problem, b=b, r=0.01).w != free.w)


@each_svrg
def test_events_state_the_clipped_sensitivity_and_the_way_of_sampling(name):
    problem = make_problem()
    n, spread = problem.spec.n, problem.spec.gradient_spread

    def sampled_part(**letters):
        (event,) = planned(name, problem, **letters).events
        assert event.parts[1] == QueryPart(2.0 * problem.spec.G / n, n, n)
        return event.parts[0]

    assert sampled_part() == QueryPart(2.0 * spread, 1, n)
    assert sampled_part(r=0.1, b=5) == QueryPart(2.0 * 0.1 / 5, 5, n)
    assert sampled_part(r=7.0 * spread) == QueryPart(2.0 * spread, 1, n)
    assert sampled_part(r=0.1, b=5, sampling="poisson") == QueryPart(0.1 / 5, 5, n, poisson=True)
    assert sampled_part(sampling="poisson") == QueryPart(spread, 1, n, poisson=True)


@pytest.mark.parametrize("name", [SVRG, SVRG_PP, ANCHOR])
@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_gradients_are_counted_by_the_formula_for_both_ways_of_sampling(name, sampling):
    problem = make_problem(n=120)
    b, result = 6, run(name, problem, b=6, sampling=sampling, r=0.1)
    per_epoch = {
        SVRG: [120 + 2 * b * 40] * 3,
        SVRG_PP: [120 + 2 * b * 2**s * 5 for s in (1, 2, 3)],
        ANCHOR: [120 + 2 * b * 10] * 3,
    }
    np.testing.assert_array_equal(result.gradient_evaluations, np.cumsum([0, *per_epoch[name]]))


def poisson_batches(problem, size, releases):
    n, d = problem.spec.n, problem.spec.d
    event = GaussianEvent("step", 0.0, (QueryPart(1.0, size, n, poisson=True),), releases)
    mechanism = GaussianMechanism(event, d, Slots(5, tuple(range(64)), problem.backend))
    return [batch for batch, _ in mechanism.sampled(releases)]


@pytest.mark.parametrize("size", [2, 20])
def test_poisson_estimates_are_unbiased(size):
    """Mean of 64 x 60 draws against the full gradient: below 6 standard errors in each of 14 numbers (2e-9 each)."""
    problem = make_problem(n=80)
    w, v = np.random.default_rng(2).normal(size=(2, 7))
    W, V = np.tile(w, (64, 1)), np.tile(v, (64, 1))
    gradients, differences = [], []
    for batch in poisson_batches(problem, size, 60):
        assert isinstance(batch, PoissonBatch)
        gradients.append(problem.sample_gradients(W, batch))
        differences.append(problem.sample_differences(W, V, batch))
    full, moved = problem.gradient(W)[0], (problem.gradient(W) - problem.gradient(V))[0]
    for drawn, expected in ((gradients, full), (differences, moved)):
        values = np.concatenate(drawn)
        error = np.std(values, axis=0) / math.sqrt(len(values))
        assert np.all(np.abs(values.mean(axis=0) - expected) <= 6.0 * error)
        assert np.all(error < 0.02), "the errors are so large that the test says nothing"


class Transcript(Execution):
    """Keeps what the algorithm drew, so that a second, plain implementation can replay it."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.draws = {}

    def gaussian(self, label):
        mechanism = super().gaussian(label)
        if label in self.draws:
            return mechanism
        kept = self.draws[label] = []
        original = {"sampled": mechanism.sampled, "noise": mechanism.noise}

        def keep(kind, releases):
            for item in original[kind](releases):
                kept.append(item)
                yield item

        mechanism.sampled, mechanism.noise = (lambda n: keep("sampled", n)), (lambda n: keep("noise", n))
        return mechanism


def records_of(index, k):
    """The records of replicate k and the number by which their sum is divided."""
    if isinstance(index, PoissonBatch):
        ends = [*index.starts.tolist(), len(index.rows)]
        return index.rows[ends[k] + 1 : ends[k + 1]], index.size
    return np.atleast_1d(index[k]), np.size(index[k])


def slopes(X, y, w):
    return -y / (1 + np.exp(y * (X @ w)))


def clipped_mean(X, y, index, k, x, x_tilde, r):
    records, size = records_of(index, k)
    differences = (slopes(X, y, x) - slopes(X, y, x_tilde))[:, None] * X
    lengths = np.linalg.norm(differences, axis=1, keepdims=True)
    clipped = differences * np.minimum(1.0, r / np.maximum(lengths, 1e-300))
    return clipped[records].sum(axis=0) / size


@pytest.mark.parametrize("letters", [{"b": 1}, {"b": 3}, {"b": 3, "sampling": "poisson"}])
def test_svrg_with_falling_noise_replayed_line_for_line(letters):
    X, y = rows(60, 4)
    problem = make_problem(data=(X, y), regularizer={"l1": 0.01, "l2": 0.1})
    plan = planned(SVRG, problem, T=4, m=12, r=0.02, fall=0.6, **letters)
    assert [plan.inner.weight(s) for s in (1, 2, 3, 4)] == [4, 2, 1, 1]
    ex = Transcript(plan, problem, 5, [0, 1])
    output = get_algorithm(SVRG).run(plan, ex)
    ex.check(plan)
    noise = {event.label: event.sigma for event in plan.events}
    assert list(noise.values()) == [4 * plan.sigma, 2 * plan.sigma, plan.sigma]
    assert [event.count for event in plan.events] == [12, 12, 24]
    for k in range(2):
        streams = {label: iter(draws) for label, draws in ex.draws.items()}
        x_tilde = np.zeros(4)
        for s in range(1, 5):
            v_tilde = slopes(X, y, x_tilde) @ X / 60
            x, iterates = x_tilde, []
            for _ in range(12):
                index, u = next(streams[plan.inner.label(s)])
                v = clipped_mean(X, y, index, k, x, x_tilde, 0.02 * plan.inner.weight(s)) + v_tilde + u[k]
                step = x - plan.eta * v
                x = np.sign(step) * np.maximum(np.abs(step) - plan.eta * 0.01, 0) / (1 + plan.eta * 0.1)
                iterates.append(x)
            x_tilde = np.mean(iterates, axis=0)
        np.testing.assert_allclose(output[k], x_tilde, rtol=1e-10)


@pytest.mark.parametrize("letters", [{"b": 3, "sampling": "fixed"}, {"b": 3}, {"b": 20, "anchor": "mean"}])
def test_the_anchored_algorithm_replayed_line_for_line(letters):
    X, y = rows(60, 4)
    problem = make_problem(data=(X, y))
    plan = planned(ANCHOR, problem, T=3, m=12, r=0.02, **letters)
    ex = Transcript(plan, problem, 5, [0, 1])
    output = get_algorithm(ANCHOR).run(plan, ex)
    ex.check(plan)
    for k in range(2):
        inner = iter(ex.draws["inner step"])
        x_tilde = np.zeros(4)
        for a in ex.draws["anchor"]:
            v_tilde = slopes(X, y, x_tilde) @ X / 60 + a[k]
            x, iterates = x_tilde, []
            for _ in range(12):
                index, u = next(inner)
                v = clipped_mean(X, y, index, k, x, x_tilde, 0.02) + v_tilde + u[k]
                x = (x - plan.eta * v) / (1 + plan.eta * 0.1)
                iterates.append(x)
            x_tilde = np.mean(iterates, axis=0) if plan.anchor == "mean" else x
        np.testing.assert_allclose(output[k], x_tilde, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        (SVRG, {"T": 12, "m": 500, "sampling": "poisson"}),
        (SVRG, {"T": 12, "m": 500, "sampling": "poisson", "r": 0.05, "fall": 0.8, "b": 2}),
        (ANCHOR, {"T": 6, "m": 20, "b": 20}),
        (ANCHOR, {"T": 14, "m": 20, "b": 20, "anchor": "mean"}),
        (ANCHOR, {"T": 6, "m": 20, "b": 20, "sampling": "fixed", "r": 0.1}),
    ],
)
def test_without_noise_all_reach_the_optimum(name, letters):
    problem = make_problem(n=200, regularizer=0.1)
    result = run(name, problem, epsilon=math.inf, **letters)
    assert np.all(np.abs(result.final_objective - find_optimum(problem).objective) <= 1e-10)


def test_the_anchored_algorithm_without_noise_needs_no_letters():
    problem = make_problem(n=200, regularizer=0.1)
    plan = get_algorithm(ANCHOR).plan(Setting(problem.spec, math.inf, 1e-3))
    result = execute(plan, problem, seed=1, replicates=[0])
    assert abs(result.final_objective[0] - find_optimum(problem).objective) <= 1e-10


# --- the noise of the anchored algorithm ----------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 3])
def test_anchor_noise_is_shared_by_an_epoch_and_inner_noise_is_fresh(m):
    """On records that are all zero a step is noise alone; variance of 64 x 10 x 7 numbers within 12 % (false alarm
    below 1e-6, 5.7 standard deviations)."""
    X, y = np.zeros((60, 7)), np.ones(60)
    problem = make_problem(data=(X, y), regularizer=0.1)
    plan = planned(ANCHOR, problem, T=1, m=m, r=1.0, share=0.4)
    assert 0.3 < plan.sigma_anchor / plan.sigma < 3.0, "one of the noises hides the other"
    w = execute(plan, problem, seed=2, replicates=range(640)).w
    shrink = 1 / (1 + plan.eta * 0.1)
    powers = shrink ** np.arange(1, m + 1)
    expected = plan.eta**2 * (np.sum(powers) ** 2 * plan.sigma_anchor**2 + np.sum(powers**2) * plan.sigma**2)
    assert np.var(w) == pytest.approx(expected, rel=0.12)


def test_published_noise_of_the_anchored_algorithm_has_the_form_of_equation_3():
    problem = make_problem(n=200)
    plan = planned(ANCHOR, problem, epsilon=0.5, T=4, m=30, b=5, r=0.02, share=0.8)
    log = math.log(1e3)
    assert plan.sigma == pytest.approx(0.02 * math.sqrt(4 * 30 * log / 0.2) / (200 * 0.5))
    assert plan.sigma_anchor == pytest.approx(math.sqrt(4 * log / 0.8) / (200 * 0.5))
    anchor, inner = plan.events
    assert anchor == GaussianEvent("anchor", plan.sigma_anchor, (QueryPart(2.0 / 200, 200, 200),), 4, attained=False)
    sampled = (QueryPart(0.02 / 5, 5, 200, poisson=True),)
    assert inner == GaussianEvent("inner step", plan.sigma, sampled, 120, attained=False)


def test_certified_anchors_scale_both_noises_by_one_factor_and_spend_what_they_claim():
    problem = make_problem(n=2000)
    published, certified = (planned(ANCHOR, problem, variant=variant) for variant in ("published", "certified"))
    factor = certified.sigma / published.sigma
    assert factor > 1.0
    assert certified.sigma_anchor / published.sigma_anchor == pytest.approx(factor, rel=1e-12)
    assert [event.sigma for event in certified.events] == [certified.sigma_anchor, certified.sigma]
    assert 0.98 < certify(certified)["epsilon_accounted"] <= 1.0


def test_default_numbers_of_the_anchored_algorithm():
    problem = make_problem(n=20_000, regularizer=0.05)
    spec = problem.spec
    setting = Setting(spec, 1.0, 1e-3)
    plan = get_algorithm(ANCHOR).plan(setting)
    assert plan.eta == pytest.approx(1 / (spec.L + 0.05))
    # The contraction of all steps matches the gain, and an epoch costs about two passes.
    assert math.exp(2 * plan.eta * 0.05 * plan.T * plan.m) >= setting.signal() ** 2 * 0.05
    assert plan.b == round(20_000 / (2 * plan.m))
    # The share minimises 1/share + B/(1 - share), and r makes B a tenth.
    B = 0.5 * plan.eta * plan.m * (spec.L + 0.05) * (plan.r / spec.G) ** 2
    assert pytest.approx(0.1) == B
    others = [1 / s + B / (1 - s) for s in (plan.share - 0.01, plan.share, plan.share + 0.01)]
    assert others[1] == min(others)
    assert planned(ANCHOR, problem, r=1e-30).share == 0.99


def test_anchor_letters_out_of_range_are_refused():
    problem = make_problem(n=120)
    for letters, sentence in (
        ({"share": 1.0}, "give a number between 0 and 1"),
        ({"b": 120}, "only 120 records"),
        ({"anchor": "first"}, "use one of last, mean"),
    ):
        with pytest.raises(UserError, match=sentence):
            planned(ANCHOR, problem, **letters)
    with pytest.raises(VacuousSetting, match=r"it makes sense from n = \d+"):
        get_algorithm(ANCHOR).plan(Setting(problem.spec, 0.01, 1e-3))


# --- falling noise and the practical variant ------------------------------------------------------------------------


def test_noise_falls_by_powers_of_two_and_every_epoch_is_in_one_event():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        fall = float(rng.choice([1.0, 0.5, 0.5**0.5, 0.25, rng.uniform(0.01, 1.0)]))
        inner = Inner(int(rng.integers(1, 50)), 1, 0.1, "fixed", fall, 2 ** int(rng.integers(0, MOST_HALVINGS)))
        weights = [inner.weight(s) for s in range(1, inner.T + 1)]
        assert weights[-1] == 1
        for s, weight in enumerate(weights, start=1):
            most = min(inner.widest, (1 + 1e-6) * fall ** -(inner.T - s))
            assert weight == inner.widest or most / 2 < weight <= most
        levels = list(inner._levels())
        assert [s for first, last in levels for s in range(first, last + 1)] == list(range(1, inner.T + 1))
        assert [{inner.weight(s) for s in range(first, last + 1)} for first, last in levels] == [
            {weight} for weight in dict.fromkeys(weights)
        ]


def test_a_huge_number_of_epochs_is_refused_and_not_counted_through():
    with pytest.raises(UserError, match="which no machine finishes"):
        planned(SVRG, make_problem(), T=10**13, fall=0.999)


@each_svrg
def test_plans_with_and_without_a_radius_survive_json(name):
    for letters in ({}, {"r": 0.1, "sampling": "poisson", "fall": 0.5}):
        plan = planned(name, make_problem(), **letters)
        record = json.loads(json.dumps(jsonable(plan.to_json()), allow_nan=False))
        assert get_algorithm(name).plan_type.from_json(record) == plan


@each_svrg
def test_what_is_not_printed_is_a_condition_that_does_not_hold(name):
    def printed(**letters):
        conditions = planned(name, make_problem(), **letters).conditions
        return next(c.holds for c in conditions if c.text.startswith("inner steps as printed"))

    assert printed()
    assert not printed(r=0.5)
    assert not printed(sampling="poisson")
    assert not printed(fall=0.5)
    with pytest.raises(UserError, match="give a number of at most 1"):
        printed(fall=1.5)


@pytest.mark.parametrize(("name", "letters"), [(SVRG, {"T": 3, "m": 800}), (SVRG_PP, {"T": 3, "m": 300})])
def test_practical_plans_clip_at_twice_the_noise_of_the_snapshots_and_are_certified(name, letters):
    problem = make_problem(n=1000, regularizer=0.1)
    plan = planned(name, problem, variant="practical", **letters)
    assert (plan.sampling, plan.b) == ("poisson", 1)
    mu = 0.38840  # of (1, 1e-3)-DP, exactly
    releases = sum(event.count * (plan.sigma / event.sigma) ** 2 for event in plan.events)
    snapshot = 2 * problem.spec.G * math.sqrt(releases) / (1000 * mu)
    assert plan.r == pytest.approx(2 * snapshot, rel=0.05)
    assert snapshot < plan.sigma < 2.1 * snapshot
    assert 0.95 < certify(plan)["epsilon_accounted"] <= 1.0
    assert all(condition.holds for condition in plan.conditions if condition.text.startswith("r long enough"))
    given = planned(name, problem, variant="practical", r=0.2, sampling="fixed", fall=1.0, T=2, m=2)
    assert (given.r, given.sampling, given.fall) == (0.2, "fixed", 1.0)
    free = planned(name, problem, variant="practical", epsilon=math.inf)
    assert free.r is None
    assert free.sigma == 0.0


def test_clipping_restores_the_rate_that_the_certified_noise_loses():
    """Mean gap of 32 replicates, eight times as many records: -2 is the theorem's exponent.

    The noise of the snapshots is 145/n here; r is twice that.
    """
    exponents = {}
    for kind in ("clipped", "as printed"):
        gaps = {}
        for n in (2000, 16_000):
            problem = make_problem(n=n, d=5, regularizer=0.1)
            letters = {"r": 290.0 / n, "sampling": "poisson"} if kind == "clipped" else {}
            result = run(SVRG, problem, range(32), variant="certified", T=4, m=200, eta=0.2, **letters)
            gaps[n] = np.mean(result.final_objective) - find_optimum(problem).objective
        exponents[kind] = math.log(gaps[16_000] / gaps[2000]) / math.log(8.0)
    assert exponents["clipped"] <= -1.8
    assert exponents["as printed"] > -1.0


def test_a_radius_too_small_diverges_and_is_warned_of_while_one_that_falls_to_it_converges():
    """Records that share a direction: an epoch whose clipped differences cannot cancel the gradient overshoots."""
    rng = np.random.default_rng(0)
    X = np.full((200, 3), 0.95)
    X[:, 1:] = np.clip(0.2 * rng.normal(size=(200, 2)), -0.2, 0.2)
    y = np.where(rng.random(200) < 0.8, 1.0, -1.0)
    problem = make_problem(data=(X, y), regularizer=0.01)
    best = find_optimum(problem).objective
    start = float(problem.objective(np.zeros((1, 3)))[0]) - best
    gaps, warned = {}, {}
    for fall in (1.0, 0.5):
        plan = planned(SVRG, problem, epsilon=math.inf, T=10, m=2000, eta=0.1, r=0.03, fall=fall)
        gaps[fall] = execute(plan, problem, seed=0, replicates=[0]).final_objective[0] - best
        warned[fall] = not next(c.holds for c in plan.conditions if c.text.startswith("r long enough"))
    assert gaps[1.0] > 2 * start
    assert gaps[0.5] < 1e-6 * start
    assert warned == {1.0: True, 0.5: False}


def test_a_radius_below_what_the_noise_drives_is_warned_of():
    problem = make_problem(n=3000)

    def holds(r):
        plan = planned(SVRG, problem, m=500, eta=0.5, r=r)
        return next(c.holds for c in plan.conditions if c.text.startswith("r long enough"))

    # sigma sqrt(eta/(2 mu)) L for eta m mu > 1/2
    driven = problem.spec.L * planned(SVRG, problem, m=500).sigma * math.sqrt(0.5 / 0.2)
    least = problem.spec.mu * 4.0
    assert driven < least, "the other bound decides"
    assert holds(1.01 * least)
    assert not holds(0.99 * least)
