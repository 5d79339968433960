"""The JL method: its plans and errors, runs against a plain replay, what it wraps, and its privacy.

Every run has a fixed seed, so that nothing here depends on chance.
"""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from support import Transcript, make_problem

from dprepro.algorithms import get_algorithm, modules_of
from dprepro.algorithms.base import Setting
from dprepro.algorithms.jl_method import JLPlan
from dprepro.arrays import get_backend
from dprepro.errors import RunFailed, UserError, VacuousSetting
from dprepro.files import jsonable
from dprepro.geometry import get_set
from dprepro.losses import get_loss
from dprepro.privacy.accounting import account
from dprepro.privacy.audit import audit
from dprepro.privacy.certificate import certify
from dprepro.privacy.events import ConditionEvent
from dprepro.problems import make_risk
from dprepro.problems.embedding import EmbeddedRisk
from dprepro.problems.erm import ProblemSpec
from dprepro.problems.optimum import find_optimum
from dprepro.regularizers import Regularizer, get_regularizer
from dprepro.run import Execution, execute
from dprepro.streams import Streams

JL = get_algorithm("jl_method")
CPU = get_backend("cpu", "float64")


def spec(n=1000, d=10**6, loss="huber:0.5", **changes):
    return ProblemSpec(n, d, get_loss(loss), Regularizer(), get_set(None), **changes)


def low_rank(n=240, d=40, rank=3, loss="huber:0.5", seed=2):
    """Rows in a random subspace, labels without noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, rank)) @ np.linalg.qr(rng.normal(size=(d, rank)))[0].T
    X /= 1.01 * np.max(np.linalg.norm(X, axis=1))
    y = X @ (0.5 * X[0] / np.linalg.norm(X[0]))
    return make_risk(spec(n, d, loss), X, y, CPU)


def failing(n, k):
    """The union bound on the probability that some embedded row is longer than sqrt(2) times the bound."""
    return (n + 1) * chi2.sf(2 * k, k)


@pytest.mark.parametrize(
    ("base", "letters"), [("spiderboost", {}), ("dp_gd", {}), ("recursive_regularization", {"K": 10})]
)
def test_the_published_dimension_minimises_the_sum_of_both_errors(base, letters):
    setting = Setting(spec(), 1.0, 1e-5)
    plan = JL.plan(setting, base=base, **letters)

    def error(j):
        bound = JL.plan(setting, base=base, k=j, **letters).utility
        value = math.sqrt(bound.value) if bound.quantity.startswith("squared") else bound.value
        return value + 0.5 * math.log(1000) / math.sqrt(j)

    assert all(error(plan.k) <= error(j) for j in (1, 2, plan.k // 2, plan.k - 1, plan.k + 1, 2 * plan.k))


def test_the_published_dimension_is_that_of_the_rank_where_it_is_less():
    setting = Setting(spec(), 1.0, 1e-5)
    assert JL.plan(setting, base="dp_gd", rank=3).k == math.ceil(3 * math.log(2 * 1000 / 1e-5))
    assert JL.plan(setting, base="dp_gd", rank=1000).k == JL.plan(setting, base="dp_gd").k
    assert JL.plan(dataclasses.replace(setting, variant="practical"), base="dp_gd", rank=3).k == 12


def test_the_wrapped_algorithm_is_planned_for_the_printed_constants():
    plan = JL.plan(Setting(spec(row_norm=3.0), 1.0, 1e-5), base="spiderboost", k=200)
    assert math.isclose(plan.inner.L0, 2 * 0.5 * 3.0)
    assert math.isclose(plan.inner.L1, 2 * 3.0**2)
    assert (plan.inner.n, plan.inner.d, plan.inner.epsilon, plan.inner.delta) == (1000, 200, 1.0, 0.5e-5)
    assert plan.row_norm is None
    assert plan.events[-1].delta == 0.5e-5


def test_clipped_rows_leave_all_of_delta_to_the_noise_and_have_smaller_constants():
    plan = JL.plan(Setting(spec(row_norm=3.0), 1.0, 1e-5, "practical"), base="spiderboost", rank=2)
    assert math.isclose(plan.inner.L0, math.sqrt(2) * 0.5 * 3.0)
    assert math.isclose(plan.inner.L1, 2 * 3.0**2)
    assert plan.inner.delta == 1e-5
    assert plan.row_norm == pytest.approx(math.sqrt(2) * 3.0)
    assert not any(isinstance(event, ConditionEvent) for event in plan.events)
    assert 0.99 <= account(plan.events, plan.delta).epsilon <= 1.0


def test_no_noise_is_calibrated_twice():
    """The inner plan has the noise of the whole, which is that of the accountant for the whole."""
    for variant, clip in (("certified", "event"), ("certified", "rows"), ("practical", "rows")):
        plan = JL.plan(Setting(spec(), 1.0, 1e-5, variant), base="dp_gd", T=20, k=150, clip=clip)
        assert plan.sigma == plan.inner.sigma
        assert plan.events[0] == plan.inner.events[0]
        assert 0.99 <= account(plan.events, plan.delta).epsilon <= 1.0


@pytest.mark.parametrize(("rank", "holds"), [(1, False), (5, False), (6, True)])
def test_the_printed_dimension_keeps_the_rows_short_from_rank_6_on(rank, holds):
    """Theorem 6.1 pays delta/2 for short rows; at n = 1000, k = rank ln(2n/delta) is too small up to rank 5."""
    plan = JL.plan(Setting(spec(), 1.0, 1e-5), base="dp_gd", T=20, rank=rank)
    condition = next(c for c in plan.conditions if "longer" in c.text)
    assert condition.holds == holds == (failing(1000, plan.k) <= 0.5e-5)
    spent = plan.events[-1].delta
    assert spent == pytest.approx(max(0.5e-5, min(failing(1000, plan.k), 1.0)))


def test_where_the_rows_are_short_enough_the_whole_is_certified():
    plan = JL.plan(Setting(spec(), 1.0, 1e-5, "certified"), base="dp_gd", T=20, rank=6, clip="event")
    assert certify(plan)["verdict"] == "certified"


def test_a_dimension_whose_rows_are_not_short_is_not_certified_however_much_noise():
    plan = JL.plan(Setting(spec(), 1.0, 1e-5), base="dp_gd", T=20, k=20)
    assert certify(plan)["verdict"].startswith("not certified")
    with pytest.raises(UserError, match="No amount of noise"):
        JL.plan(Setting(spec(), 1.0, 1e-5, "certified"), base="dp_gd", T=20, k=20, clip="event")
    # Unless asked for the event, what is certified clips the rows.
    assert JL.plan(Setting(spec(), 1.0, 1e-5, "certified"), base="dp_gd", T=20, k=20).clip == "rows"


def test_the_method_has_a_name_of_its_own_around_every_algorithm():
    fixed, free = get_algorithm("jl_dp_gd"), get_algorithm("jl_method")
    setting = Setting(spec(), 1.0, 1e-5, "certified")
    one, two = fixed.plan(setting, T=20, k=20), free.plan(setting, base="dp_gd", T=20, k=20)
    assert one.algorithm == "jl_dp_gd"
    assert dataclasses.replace(one, algorithm="jl_method") == two
    assert fixed.plan_type.from_json(one.to_json()) == one
    assert get_algorithm("jl_dp_gd") is fixed
    assert modules_of("jl_method") == modules_of("jl_dp_gd"), "the audit wraps dp_gd"
    assert free.audit_case().letters["base"] == "dp_gd"
    assert modules_of("spiderboost") == ["dprepro.algorithms.spiderboost"]
    assert modules_of("jl_dp_gd") == ["dprepro.algorithms.jl_method", "dprepro.algorithms.dp_gd"]
    with pytest.raises(UserError, match="wraps dp_gd: drop it"):
        fixed.plan(setting, base="spiderboost", T=20, k=20)
    with pytest.raises(UserError, match="has no parameter 'b2'"):
        fixed.plan(setting, b2=3, k=20)
    with pytest.raises(UserError, match="no audit of its own"):
        get_algorithm("jl_spiderboost").audit_case()
    assert "base" not in fixed.audit_case().letters
    with pytest.raises(UserError, match="Unknown algorithm"):
        get_algorithm("jl_nothing")


def test_conditions_of_the_wrapped_algorithm_are_judged_by_its_calibrated_noise():
    plan = get_algorithm("jl_spiderboost").plan(Setting(spec(n=10**4, d=1000), 1.0, 1e-5, "certified"), rank=4)
    (stated,) = (c for c in plan.conditions if "kappa" in c.text)
    assert stated.detail == f"kappa = {plan.inner.kappa:.3g}"
    assert not stated.holds
    assert len(plan.conditions) == len(plan.inner.conditions) + 1


def test_an_embedding_into_more_dimensions_is_said_to_be_one():
    plan = JL.plan(Setting(spec(d=50), 1.0, 1e-5), base="dp_gd", T=20, k=50, clip="rows")
    assert [c.holds for c in plan.conditions if c.text == "k < d"] == [False]


@pytest.mark.parametrize(("base", "letters"), [("dp_gd", {"T": 9}), ("spiderboost", {"T": 9, "q": 3, "c": 3.0})])
@pytest.mark.parametrize("clip", ["event", "rows"])
def test_plans_survive_json_and_more_noise(base, letters, clip):
    plan = JL.plan(Setting(spec(), 1.0, 1e-5), base=base, k=150, clip=clip, **letters)
    text = json.dumps(jsonable(plan.to_json()), allow_nan=False)
    assert JLPlan.from_json(json.loads(text)) == plan
    louder = plan.with_noise(2.0)
    assert louder.sigma == louder.inner.sigma == 2 * plan.sigma
    assert louder.events[0].sigma == louder.inner.events[0].sigma == 2 * plan.events[0].sigma
    assert plan.letters() == {**plan.inner.letters(), "base": base, "k": 150, "rank": None, "clip": clip} | {
        "row_norm": plan.row_norm
    }


@pytest.mark.parametrize(
    ("letters", "sentence"),
    [
        ({"base": "dp_gd", "Z": 1}, "has no parameter 'Z': it takes base, clip, k, rank, and of dp_gd F0"),
        ({"base": "dp_gd", "T": 0}, "T of dp_gd is 0"),
        ({"base": "dp_gd", "k": 2.5}, "k of jl_method is 2.5: give a whole number"),
        ({"base": "dp_gd", "clip": "no"}, "clip of jl_method is 'no': use one of event, rows"),
        ({"base": "dp_dg"}, "Unknown algorithm 'dp_dg'"),
        ({"base": "jl_method"}, "cannot wrap itself"),
        ({"base": "noisy_sfw"}, "cannot wrap noisy_sfw, which needs a constraint set"),
        ({"base": "dp_svrg"}, "cannot wrap dp_svrg, which needs a regularizer"),
        ({"base": "objective_perturbation", "k": 20}, "cannot wrap objective_perturbation, which needs second"),
        ({"base": "phased_sgd", "eta": 0.1}, "no dimension for phased_sgd"),
    ],
)
def test_letters_are_checked_by_their_owner(letters, sentence):
    with pytest.raises(UserError, match=sentence):
        JL.plan(Setting(spec(), 1.0, 1e-5), **letters)


def test_in_practice_the_rank_is_asked_for():
    with pytest.raises(UserError, match="set rank, or k"):
        JL.plan(Setting(spec(), 1.0, 1e-5, "practical"), base="dp_gd")


def test_a_vacuous_setting_of_the_wrapped_algorithm_is_refused_as_its_own():
    with pytest.raises(VacuousSetting, match="dp_gd has no step"):
        JL.plan(Setting(spec(n=20), 0.1, 1e-5), base="dp_gd", rank=2)


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (spec(loss="valley"), r"needs a loss of <w, x> \(a generalized linear model\), but was given loss 'valley'"),
        (dataclasses.replace(spec(), regularizer=get_regularizer(0.1)), "takes no regularizer"),
        (dataclasses.replace(spec(), constraint=get_set("l2_ball:1")), "needs no constraint"),
        (spec(loss="absolute"), "needs a smooth loss"),
    ],
)
def test_problems_that_an_embedding_does_not_keep_are_refused(problem, sentence):
    with pytest.raises(UserError, match=sentence):
        JL.plan(Setting(problem, 1.0, 1e-5), base="dp_gd", k=20)


def test_wrapped_gradient_descent_is_a_plain_replay_on_the_embedded_rows():
    problem, T, k = low_rank(n=60, d=12), 5, 7
    plan = JL.plan(Setting(problem.spec, 1.0, 1e-3), base="dp_gd", T=T, k=k, clip="rows", c=1.0)
    slots = list(range(4))
    ex = Transcript(plan, problem, 3, slots)
    output = JL.run(plan, ex)
    ex.check(plan)
    _, X, y = problem.records()
    Phi = np.moveaxis(Streams(3, slots, "embedding").normals(0, k, 12).astype(float), 0, 1) / math.sqrt(k)
    for r in slots:
        E = X @ Phi[r].T
        E *= np.minimum(1.0, math.sqrt(2) / np.linalg.norm(E, axis=1))[:, None]
        w = np.zeros(k)
        for t in range(T):
            w = w - plan.inner.eta * (np.clip(E @ w - y, -0.5, 0.5) @ E / len(y) + ex.draws[t][r])
        np.testing.assert_allclose(output[r], Phi[r].T @ w, atol=1e-12)
        np.testing.assert_allclose(ex.trajectory[-1][3][r], Phi[r].T @ w, atol=1e-12)


@pytest.mark.parametrize(
    ("base", "letters"),
    [
        ("dp_gd", {"T": 400}),
        ("spiderboost", {"T": 800, "q": 20, "batches": "full", "output": "last"}),
        ("recursive_regularization", {"data": "all", "lam": 1e-4, "T": 8, "K": 150, "R": 2.0}),
    ],
)
def test_without_noise_wrapped_algorithms_reach_the_optimum_of_low_rank_data(base, letters):
    """With k >= rank the image of Phi^T meets every value of <w, x>: nothing is lost."""
    problem = low_rank()
    plan = JL.plan(Setting(problem.spec, math.inf, 1e-5, "practical"), base=base, k=12, **letters)
    result = execute(plan, problem, seed=1, replicates=range(3))
    start, best = result.objective[0, 0], find_optimum(problem).objective
    assert np.all(result.final_objective - best <= 1e-3 * (start - best))
    assert result.w.shape == (3, 40)


@pytest.mark.parametrize(
    ("base", "letters"),
    [
        ("dp_gd", {"T": 6, "output": "uniform"}),
        ("dp_sgd", {"T": 20, "c": 1.0}),
        ("dp_sgd", {"T": 20, "b": 4, "c": 1.0, "sampling": "poisson"}),
        ("spiderboost", {"T": 9, "q": 3, "b2": 40, "c": 3.0}),
        ("phased_sgd", {"eta": 0.5}),
        ("recursive_regularization", {"T": 2, "K": 4, "lam": 0.01}),
    ],
)
@pytest.mark.parametrize("clip", ["event", "rows"])
def test_wrapped_runs_spend_what_the_inner_plan_says(base, letters, clip):
    """The ledger, the gradients and the rounds are checked by `execute`; the counts are those of the inner plan."""
    problem = low_rank()
    plan = JL.plan(Setting(problem.spec, 1.0, 1e-3), base=base, k=150, clip=clip, **letters)
    result = execute(plan, problem, seed=1, replicates=range(2))
    assert result.gradient_evaluations[-1] == plan.inner.gradient_evaluations == plan.gradient_evaluations
    assert result.rounds[-1] == plan.inner.rounds
    assert np.all(np.isfinite(result.w))


def test_what_is_judged_is_the_lifted_point():
    problem = low_rank()
    plan = JL.plan(Setting(problem.spec, 1.0, 1e-3), base="dp_gd", T=6, k=20, clip="rows", output="uniform")
    result = execute(plan, problem, seed=1, replicates=range(2), metric="gradient norm")
    ex = Execution(plan, problem, 1, list(range(2)))
    ex.embed(20, plan.row_norm)
    ex.candidate(ex.zeros() + 0.3)
    point = ex.lift(ex.zeros() + 0.3)
    np.testing.assert_allclose(ex.observed()["candidate objective"], problem.objective(point), rtol=1e-12)
    assert set(result.observed) == {"gradient norm", "squared gradient norm, embedded"}
    with pytest.raises(RunFailed, match="at the start of a run"):
        ex.embed(20, None)
    with pytest.raises(UserError, match="embedded rows are not available"):
        ex.hessians(ex.zeros())


@given(st.integers(0, 2**31), st.integers(1, 10), st.floats(0.1, 30.0))
@settings(max_examples=30, deadline=None)
def test_neighbouring_records_move_embedded_gradients_by_no_more_than_the_plan_says(seed, k, scale):
    """Sensitivity of a mean gradient, and of a difference per unit of distance, as SpiderBoost accounts for them."""
    rng = np.random.default_rng(seed)
    n, d = 6, 5
    X, other = rng.normal(size=(2, n, d))
    X, other = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, other))
    other[1:] = X[1:]
    y = rng.uniform(-1, 1, size=(2, n))
    y[1, 1:] = y[0, 1:]
    shape = spec(n, d, "glm_valley")
    plan = JL.plan(Setting(shape, 1.0, 1e-3, "practical"), base="spiderboost", k=k, T=4, q=2, batches="full")
    sides = [
        EmbeddedRisk(make_risk(shape, rows, labels, CPU), Streams(seed, [0], "embedding"), k, plan.row_norm)
        for rows, labels in ((X, y[0]), (other, y[1]))
    ]
    w, v = scale * rng.normal(size=(2, 1, k))
    moved = np.linalg.norm(sides[0].gradient(w) - sides[1].gradient(w))
    assert moved <= 2 * plan.inner.L0 / n * (1 + 1e-9)
    turned = np.linalg.norm(
        (sides[0].gradient(w) - sides[0].gradient(v)) - (sides[1].gradient(w) - sides[1].gradient(v))
    )
    assert turned <= 2 * plan.inner.L1 / n * np.linalg.norm(w - v) * (1 + 1e-9)


def test_the_audit_proves_no_more_than_is_accounted_and_something():
    row = audit(JL, variant="certified", epsilon=2.0, delta=1e-5, replicates=4000, device="cpu")
    assert 0.3 < row["epsilon_audited"] <= row["epsilon_accounted"] <= 2.0


def test_single_precision_runs_too():
    problem = make_problem(n=100, d=20, regularizer=0.0, dtype="float32")
    plan = JL.plan(Setting(problem.spec, 1.0, 1e-3), base="dp_gd", T=5, k=8, clip="rows")
    result = execute(plan, problem, seed=1, replicates=range(2))
    double = execute(plan, make_problem(n=100, d=20, regularizer=0.0), seed=1, replicates=range(2))
    np.testing.assert_allclose(result.w, double.w, atol=1e-4 * np.max(np.abs(double.w)))


@pytest.mark.parametrize("k", [16, 64, 128])
def test_the_matrix_of_the_second_branch_is_far_from_the_identity(k):
    """The proof of Theorem 6.1 takes E||I - H|| for O(1/sqrt(k)); H has rank k < d, so it is at least 1."""
    d = 256
    H = np.zeros((d, d))
    H[:k] = np.random.default_rng(0).normal(size=(k, d)) / math.sqrt(k)
    assert np.linalg.norm(np.eye(d) - H, 2) > 2.0


def test_gradients_do_not_converge_uniformly_on_rows_that_each_have_a_coordinate_of_their_own():
    """A counter-example to Lemma E.2: x = (e_0 + e_j)/sqrt(2), j uniform on 10 n values, and the Huber loss of <w, x>.

    At w_j = sqrt(2) for the values in the sample and -sqrt(2) for the others all slopes are 1 in the sample and mostly
    -1 in the population.
    """
    n, values = 10**5, 10**6
    counts = np.bincount(np.random.default_rng(0).integers(0, values, size=n), minlength=values)
    slopes = np.where(counts > 0, 1.0, -1.0)
    weights = slopes / values - slopes * counts / n
    deviation = math.hypot(weights.sum(), np.linalg.norm(weights)) / math.sqrt(2.0)
    length, beta = math.sqrt(2.0 * values), 1e-6
    bound = 4.0 * (math.log(2.0 * n**1.5 * length) + math.sqrt(math.log(1.0 / beta))) / math.sqrt(n)
    assert deviation > 1.2 > 3.0 * bound
