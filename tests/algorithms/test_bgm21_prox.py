"""BGM21's proximally guided mirror descent (Algorithm 2, Theorem 16) and its row of Table 1."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2, norm
from support import make_problem, rows

from dprepro import experiments
from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.algorithms.prox_guided_md import ROUNDS
from dprepro.arrays import get_backend
from dprepro.bregman import lp_norm, map_gradient
from dprepro.errors import UserError, VacuousSetting
from dprepro.geometry import get_set
from dprepro.losses import get_loss
from dprepro.privacy.accounting import account
from dprepro.privacy.audit import audit
from dprepro.privacy.events import GaussianEvent, leaves
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.problems.near_stationarity import near_stationarity, proximal_setting
from dprepro.problems.optimum import find_optimum
from dprepro.problems.population import PopulationRisk
from dprepro.regularizers import Regularizer
from dprepro.run import CANDIDATES_MINIMIZED, NEAR_STATIONARITY, Execution, execute
from dprepro.stages.points import load_point
from dprepro.stages.sweep import _metric

ALGORITHM = get_algorithm("prox_guided_md")


def spec_of(n=4096, d=2, loss="mcp:1", constraint="l2_ball:1", **facts):
    return ProblemSpec(n, d, get_loss(loss), Regularizer(), get_set(constraint), **facts)


def planned(spec, epsilon=1.0, delta=1e-5, variant="published", **letters):
    return ALGORITHM.plan(Setting(spec, epsilon, delta, variant), **letters)


def circle(n, constraint="l2_ball:1", loss="mcp:1"):
    point = {
        "dataset": {"name": "population_circle", "rows": n, "seed": 0, "parameters": {}},
        "loss": loss,
        "regularizer": {},
        "constraint": constraint,
    }
    return load_point(point, get_backend("cpu", "float64"))[0]


class Watched(Execution):
    """Keeps centres, batches, and the points at which gradients are taken."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.centres, self.batches, self.asked = [], [], []

    def candidate(self, W):
        self.centres.append(np.asarray(W).copy())
        super().candidate(W)

    def fresh(self, size):
        self.batches.append(super().fresh(size))
        return self.batches[-1]

    def batch_gradient(self, W, batch):
        self.asked.append((np.asarray(W).copy(), super().batch_gradient(W, batch)))
        return self.asked[-1][1]


def watched(plan, problem, replicates=2, seed=0, metric=None):
    ex = Watched(plan, problem, seed, list(range(replicates)), None, metric)
    output = np.asarray(ALGORITHM.run(plan, ex))
    ex.check(plan)
    return ex, output


# --- the plan ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.05, 1.0])
@pytest.mark.parametrize(("constraint", "d"), [("l2_ball:1.5", 6), ("lp_ball:1.5:1.5", 6), ("l1_ball:1.5", 40)])
def test_published_numbers_are_those_of_theorem_16(constraint, d, epsilon):
    n, delta = 50_000, 1e-6
    spec = spec_of(n, d, "mcp:0.5", constraint)
    plan = planned(spec, epsilon, delta)
    p = {"l2_ball:1.5": 2.0, "lp_ball:1.5:1.5": 1.5, "l1_ball:1.5": 1.0}[constraint]
    kappa = min(1.0 / (p - 1.0) if p > 1.0 else math.inf, math.log(d))
    kappa_tilde = 1.0 + (math.log(d) if p < 2.0 else 0.0)
    # Rows of l2 norm 1 are at most as long in the dual norm, whose exponent is at least 2.
    L0, rho, D = 1.0, 2.0, 3.0
    by_sampling = math.sqrt(n * D * rho / (kappa * L0))
    by_privacy = (D * (n * epsilon) ** 2 * rho / (L0 * d * math.log(1 / delta)) / (kappa_tilde * kappa**2)) ** (1 / 3)
    assert math.floor(min(by_sampling, by_privacy)) == plan.R
    assert (plan.kappa, plan.kappa_tilde) == pytest.approx((kappa, kappa_tilde))
    assert plan.b == pytest.approx(max(p, 1.0 + 1.0 / math.log(d)))
    assert plan.beta == pytest.approx(2.0 * rho * kappa)
    assert plan.n_r == plan.T == n // plan.R
    assert plan.sigma == pytest.approx(math.sqrt(8.0 * plan.T * math.log(1 / delta)) / (plan.n_r * epsilon))
    assert plan.gradient_evaluations == plan.R * plan.T * plan.n_r
    first = L0**0.75 * (kappa * D) ** 0.25 / (n * rho) ** 0.25
    second = (kappa_tilde * kappa**2 * d * math.log(1 / delta) / ((n * epsilon) ** 2 * rho)) ** (1 / 6)
    theta = max(1.0, 2.0 * rho * D * kappa) / math.sqrt(rho) * (first + second * (L0**2 * D) ** (1 / 3))
    assert plan.utility.value == pytest.approx(theta)
    assert all(condition.holds for condition in plan.conditions)


def test_both_terms_decide_the_rounds_somewhere():
    sampled, private = planned(spec_of(10**5, 2)), planned(spec_of(10**5, 2), epsilon=0.01)
    assert math.floor(math.sqrt(2.0 * 10**5)) == sampled.R
    assert private.R < 0.5 * sampled.R
    assert planned(spec_of(10**5, 2), epsilon=math.inf).R == sampled.R


def test_rows_that_are_short_in_l2_keep_the_noise_small():
    """The l2 norm of a gradient is at most d^(1/b - 1/2) times its dual norm, and at most the row's own."""
    d = 64
    wide = planned(spec_of(10**5, d, constraint="l1_ball:1", row_norm=8.0, row_sup=1.0), R=10)
    b = 1.0 + 1.0 / math.log(d)
    stretched = d ** (1.0 / b - 0.5) * d ** (1.0 - 1.0 / b)
    part = next(leaves(wide.events)).parts[0]
    assert part.sensitivity * wide.n_r == pytest.approx(2.0 * min(8.0, stretched))
    narrow = planned(spec_of(10**5, d, constraint="l1_ball:1", row_norm=1.0), R=10)
    assert next(leaves(narrow.events)).parts[0].sensitivity * narrow.n_r == pytest.approx(2.0)


def test_practical_plans_take_a_logarithm_of_rounds_and_return_the_last_point():
    for n in (4096, 2**20):
        plan = planned(spec_of(n), variant="practical")
        assert (plan.R, plan.T, plan.output) == (2 * int(math.log2(n)), math.isqrt(n), "last")
    assert planned(spec_of(4096)).output == "uniform"


def test_a_vacuous_setting_names_the_first_n_that_has_two_rounds():
    with pytest.raises(VacuousSetting, match=r"has no second round .* it makes sense from n = \d+") as caught:
        planned(spec_of(20, 10), epsilon=0.1)
    enough = int(str(caught.value).partition("from n = ")[2].partition(".")[0])
    assert planned(spec_of(enough, 10), epsilon=0.1).R == 2
    with pytest.raises(VacuousSetting):
        planned(spec_of(enough - 1, 10), epsilon=0.1)


@pytest.mark.parametrize(
    ("spec", "letters", "sentence"),
    [
        (spec_of(), {"R": 1}, "set it to a number from 2 to 4096"),
        (spec_of(), {"R": 5000}, "set it to a number from 2 to 4096"),
        (spec_of(), {"rho": 0.5}, "is 1-weakly convex"),
        (spec_of(loss="absolute"), {}, "rho is 0"),
        (spec_of(), {"p": 2.5}, "1 <= p <= 2"),
        (spec_of(constraint="simplex:1"), {}, "l_p balls"),
        (spec_of(constraint=None), {}, "needs a bounded constraint set"),
        (spec_of(), {"output": "best"}, "use one of uniform, last"),
        (spec_of(10**12), {}, "set it to a number from 2 to 100000"),
    ],
)
def test_what_makes_no_sense_is_refused_with_advice(spec, letters, sentence):
    with pytest.raises(UserError, match=sentence):
        planned(spec, **letters)


# --- the run -----------------------------------------------------------------------------------------------------


def test_rounds_are_disjoint_and_counted_by_the_formula():
    problem = make_problem(n=205, loss="welsch:1", regularizer=0.0, constraint="l2_ball:1")
    plan = planned(problem.spec, R=4, T=7)
    ex, _ = watched(plan, problem)
    assert [(batch.rows.start, batch.rows.stop) for batch in ex.batches] == [(0, 51), (51, 102), (102, 153), (153, 204)]
    assert ex.samples_used == 204 <= 205
    assert ex.gradient_evaluations == 4 * 7 * 51 == plan.gradient_evaluations
    assert len(ex.asked) == 4 * 7


def primal_step(g, w, w_r, eta, beta, b, ball):
    """Return the composite mirror step as it is defined, by a general solver over w = s - t with s, t >= 0."""
    d = len(w)
    slope = map_gradient(np, (w - w_r)[None], b)[0]

    def value(v):
        h = 0.5 * float(lp_norm(np, (v - w_r)[None], b)[0]) ** 2
        return float(g @ v) + beta * h + (h - float(slope @ v)) / eta

    inside = {"type": "ineq", "fun": lambda parts: ball.size**ball.p - np.sum((parts[:d] + parts[d:]) ** ball.p)}
    start = np.concatenate([np.maximum(w, 0.0), np.maximum(-w, 0.0)]) + 1e-3
    best = minimize(
        lambda parts: value(parts[:d] - parts[d:]), start, method="SLSQP", bounds=[(0, None)] * (2 * d),
        constraints=[inside], options={"ftol": 1e-15, "maxiter": 500},
    )  # fmt: skip
    return best.x[:d] - best.x[d:]


@pytest.mark.parametrize("constraint", ["lp_ball:1.5:1.0", "lp_ball:1.5:0.15"])
def test_every_step_is_the_composite_mirror_step(constraint):
    """Without noise, against a general solver; the small ball binds."""
    X, y = rows(60, 5)
    problem = make_problem(data=(X, y), loss="welsch:1", regularizer=0.0, constraint=constraint)
    ball = problem.spec.constraint
    plan = planned(problem.spec, math.inf, R=3, T=6)
    ex, _ = watched(plan, problem, replicates=1)
    points = [W[0] for W, _ in ex.asked]
    for k in (0, 1, 4, 6, 9):
        t, w_r = k % 6 + 1, ex.centres[k // 6][0]
        g, eta = ex.asked[k][1][0], 2.0 / (plan.rho * plan.kappa * (t + 1))
        expected = primal_step(g, points[k], w_r, eta, plan.beta, plan.b, ball)
        if t < 6:
            np.testing.assert_allclose(points[k + 1], expected, atol=2e-4)
    norms = ball.minkowski(np, np.array(points))
    assert np.any(norms > 1 - 1e-9) == (constraint == "lp_ball:1.5:0.15")


def test_in_l2_the_run_is_projected_descent_line_for_line():
    X, y = rows(90, 4)
    y = 0.3 * y  # within the reach of the loss
    problem = make_problem(data=(X, y), loss="mcp:0.7", regularizer=0.0, constraint="l2_ball:0.3")
    plan = planned(problem.spec, math.inf, R=3, T=8)
    ex, _ = watched(plan, problem, replicates=1)
    w_r, rho = np.zeros(4), 1.0 / 0.7
    for r in range(3):
        np.testing.assert_allclose(ex.centres[r][0], w_r, atol=1e-12)
        part = slice(30 * r, 30 * (r + 1))
        w, total = w_r, np.zeros(4)
        for t in range(1, 9):
            slopes = problem.spec.loss.derivative(np, X[part] @ w, y[part])
            eta = 2.0 / (rho * (t + 1))
            # minimises <g, v> + rho ||v - w_r||^2 + ||v - w||^2 / (2 eta) over the ball
            v = (w + 2.0 * eta * rho * w_r - eta * (slopes @ X[part]) / 30) / (1.0 + 2.0 * eta * rho)
            w = v * min(1.0, 0.3 / np.linalg.norm(v))
            total += t * w
        w_r = total / 36.0
    assert np.linalg.norm(w_r) == pytest.approx(0.3, rel=0.05), "the ball binds"


def test_the_output_is_a_uniformly_random_centre():
    problem = circle(2000)
    ex, output = watched(planned(problem.spec, R=5, T=3), problem, replicates=2048)
    same = np.all(np.stack(ex.centres) == output, axis=2)  # (5, K)
    np.testing.assert_array_equal(np.sum(same, axis=0), 1)
    counts = np.sum(same, axis=1)
    # Five cells, false alarm below 1e-6.
    assert np.sum((counts - 2048 / 5) ** 2) / (2048 / 5) < chi2.isf(1e-6, 4)
    assert np.all(ex.centres[0] == 0.0)


def test_the_last_point_is_none_of_the_centres():
    problem = circle(2000)
    plan = planned(problem.spec, R=5, T=3, output="last")
    ex, output = watched(plan, problem)
    assert not ex.centres
    np.testing.assert_array_equal(output, ex.trajectory[-1][3])


@pytest.mark.parametrize("constraint", ["l2_ball:1", "l1_ball:1", "lp_ball:1.3:1"])
def test_without_noise_a_convex_problem_is_solved(constraint):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.001
    y = np.clip(X @ [0.3, -0.2, 0.1] + 0.1 * rng.standard_normal(50), -1, 1)
    spec = spec_of(10**9, 3, "huber:0.5", constraint)
    problem = PopulationRisk(spec, X, y, np.full(50, 0.02), get_backend("cpu", "float64"))
    plan = planned(spec, math.inf, R=40, T=60, rho=0.2, output="last")
    result = execute(plan, problem, seed=1, replicates=[0], tile=1)
    best = find_optimum(problem).objective
    start = float(problem.objective(np.zeros((1, 3)))[0]) - best
    assert -1e-9 < result.final_objective[0] - best < 1e-3 * start


@pytest.mark.parametrize("constraint", ["l2_ball:1", "l2_ball:0.2"])
def test_without_noise_the_last_point_is_nearly_stationary(constraint):
    """Nearly all samples of a population: the error left is that of T steps."""
    problem = circle(10**10, constraint)
    start = near_stationarity(problem, np.zeros((1, 2)))[0]
    plan = planned(problem.spec, math.inf, R=30, T=400, output="last")
    found = near_stationarity(problem, execute(plan, problem, seed=1, replicates=[0], tile=1).w)[0]
    assert found < 0.03 * start


def test_the_subproblems_are_strongly_convex_relative_to_the_proximal_term():
    """F(u) >= F(w) + <g, u - w> - rho kappa B_h(u, w), which the steps rest on; not with a fifth of rho kappa."""
    rng = np.random.default_rng(3)
    for constraint, d in (("l2_ball:1", 2), ("lp_ball:1.5:1", 4), ("l1_ball:1", 8)):
        X = rng.standard_normal((30, d))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        problem = PopulationRisk(
            spec_of(100, d, "mcp:0.2", constraint), X, 0.05 * rng.standard_normal(30), np.full(30, 1 / 30),
            get_backend("cpu", "float64"),
        )  # fmt: skip
        setting = proximal_setting(problem.spec)
        draws = [0.3 * rng.standard_normal((3000, d)) for _ in range(3)]
        U, W, centre = (problem.spec.constraint.project(np, draw) for draw in draws)
        gain = np.asarray(problem.objective(U) - problem.objective(W))
        gain -= np.sum(np.asarray(problem.gradient(W)) * (U - W), axis=1)
        h_u, h_w = (0.5 * lp_norm(np, V - centre, setting.b) ** 2 for V in (U, W))
        bregman = h_u - h_w - np.sum(map_gradient(np, W - centre, setting.b) * (U - W), axis=1)
        assert np.all(gain >= -setting.rho * setting.kappa * bregman - 1e-12)
        if d == 2:
            assert np.any(gain < -0.2 * setting.rho * setting.kappa * bregman)


# --- privacy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["mcp:1", "welsch:1", "sigmoid"])
@pytest.mark.parametrize("constraint", ["l2_ball:1", "l1_ball:1"])
def test_replacing_a_record_moves_the_query_of_its_round_within_the_stated_sensitivity(loss, constraint):
    rng = np.random.default_rng(0)
    X, y = rows(40, 4)
    X, y = 0.999 * X, np.sign(y) if loss == "sigmoid" else rng.uniform(-1, 1, 40)
    backend = get_backend("cpu", "float64")
    spec = spec_of(40, 4, loss, constraint)
    plan = planned(spec, R=4, T=2)
    (part,) = next(leaves(plan.events)).parts
    assert (part.batch, part.population) == (10, 10)
    W = spec.constraint.project(np, rng.standard_normal((50, 4)))
    largest = 0.0
    for _ in range(60):
        twin, labels = X.copy(), y.copy()
        record = rng.standard_normal(4)
        twin[3], labels[3] = record / np.linalg.norm(record), rng.choice(y)
        queries = []
        for data in ((X, y), (twin, labels)):
            problem = EmpiricalRisk(spec, *data, backend)
            batch = problem.fresh_batch(None, 1, 0, 10)
            queries.append(np.asarray(problem.batch_gradient(W, batch)))
        largest = max(largest, float(np.max(np.linalg.norm(queries[0] - queries[1], axis=1))))
    assert 0.5 * part.sensitivity < largest <= part.sensitivity


def test_the_stated_sensitivity_is_attained_and_other_rounds_do_not_move():
    """A record on either side of a kink: gradients x and -x."""
    n, x = 12, np.array([0.6, 0.8])
    X, y = np.zeros((n, 2)), np.zeros(n)
    X[1] = x
    spec = spec_of(n, 2)
    plan = planned(spec, math.inf, R=3, T=1)
    seen = []
    for label in (1e-12, -1e-12):
        ex, _ = watched(plan, EmpiricalRisk(spec, X, np.where(np.arange(n) == 1, label, y), get_backend("cpu")))
        seen.append([g[0] for _, g in ex.asked])
    (part,) = next(leaves(plan.events)).parts
    assert np.linalg.norm(seen[0][0] - seen[1][0]) == pytest.approx(part.sensitivity, rel=1e-9)
    assert np.all(np.array(seen[0][1:]) == np.array(seen[1][1:]))


def test_the_noise_has_the_planned_variance_and_is_drawn_anew_in_every_step():
    """Gradients are zero, so that the first point of a round is its noise, times a known factor."""
    n, K = 30, 512
    spec = spec_of(n, 3, constraint="l2_ball:1000000")
    problem = EmpiricalRisk(spec, np.zeros((n, 3)), np.zeros(n), get_backend("cpu", "float64"))
    plan = planned(spec, R=2, T=2, rho=5.0)
    ex, _ = watched(plan, problem, replicates=K)
    step = 1.0 / plan.rho / (1.0 + plan.beta / plan.rho)  # eta_1 = 1 / (rho kappa), kappa = 1
    noises = [(ex.asked[k + 1][0] - ex.centres[k // 2]) / step for k in (0, 2)]
    draws = np.concatenate([z.ravel() for z in noises]) / plan.sigma
    # Two-sided chi-squared and a correlation, each with false alarm below 1e-7.
    low, high = chi2.ppf([5e-8, 1 - 5e-8], draws.size)
    assert low < np.sum(draws**2) < high
    correlation = float(np.mean(noises[0] * noises[1])) / plan.sigma**2
    assert abs(correlation) < norm.isf(5e-8) / math.sqrt(noises[0].size)
    # The second step of a round: theta_2 = (theta_1 - eta_2 z_2) / (1 + eta_2 beta).
    theta_1, eta = ex.asked[1][0], 1.0 / (1.5 * plan.rho)
    assert plan.T == 2
    mean = ex.centres[1]
    theta_2 = (3.0 * mean - theta_1) / 2.0
    z_2 = (theta_1 - (1.0 + eta * plan.beta) * theta_2) / eta
    assert low / 2 - 5 * math.sqrt(low) < np.sum((z_2 / plan.sigma) ** 2) < high / 2 + 5 * math.sqrt(high)
    assert abs(float(np.mean(z_2 * noises[0]))) / plan.sigma**2 < norm.isf(5e-8) / math.sqrt(z_2.size)


def test_a_plan_costs_what_one_round_costs():
    plan = planned(spec_of(9000), R=30, T=17, variant="certified")
    (event,) = plan.events
    assert event.label == ROUNDS
    one = event.branches[0][0]
    assert len(event.branches) == 30
    assert {(branch[0].sigma, branch[0].parts, branch[0].count) for branch in event.branches} == {
        (plan.sigma, one.parts, 17)
    }
    whole = GaussianEvent("all steps of a round", plan.sigma, one.parts, 17)
    assert account(plan.events, 1e-5).epsilon == pytest.approx(account((whole,), 1e-5).epsilon, rel=1e-12)
    # Were records in all rounds, it would be far more.
    assert account((GaussianEvent("x", plan.sigma, one.parts, 17 * 30),), 1e-5).epsilon > 4.0


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_certified_noise_just_keeps_the_claim_and_the_default_constant_keeps_it_too(epsilon):
    spec = spec_of(4096)
    certified, published = planned(spec, epsilon, variant="certified"), planned(spec, epsilon)
    assert 0.99 * epsilon < account(certified.events, 1e-5).epsilon <= epsilon
    assert account(published.events, 1e-5).epsilon <= epsilon
    assert certified.sigma < published.sigma
    assert (certified.R, certified.T) == (published.R, published.T)
    # A third of the constant would not be enough.
    assert account(planned(spec, epsilon, c=2.7).events, 1e-5).epsilon > epsilon


def test_an_audit_proves_a_good_part_of_the_accounted_epsilon():
    row = audit(ALGORITHM, variant="certified", epsilon=2.0, delta=1e-3, replicates=3000)
    assert 0.4 * row["epsilon_accounted"] < row["epsilon_audited"] <= row["epsilon_accounted"]


# --- near stationarity as a metric -------------------------------------------------------------------------------


@pytest.mark.parametrize("R", [5, 50])
def test_the_observed_near_stationarity_is_the_mean_over_evenly_spread_centres(R):
    problem = circle(2000)
    plan = planned(problem.spec, R=R, T=3)
    ex, _ = watched(plan, problem, replicates=3, metric=NEAR_STATIONARITY)
    values = np.array([near_stationarity(problem, centre) for centre in ex.centres])
    found = ex.observed()[NEAR_STATIONARITY]
    if R <= CANDIDATES_MINIMIZED:
        np.testing.assert_allclose(found, np.mean(values, axis=0), rtol=1e-9)
    else:
        # 32 of 50 centres: near the mean over all, and not by taking the first ones.
        assert np.max(np.abs(found - np.mean(values, axis=0))) < 0.2 * np.mean(values)
        assert np.max(np.abs(found - np.mean(values[:CANDIDATES_MINIMIZED], axis=0))) > 1e-6
    assert plan.utility.quantity == NEAR_STATIONARITY


def test_near_stationarity_is_observed_only_where_it_is_the_metric():
    problem = circle(2000)
    plan = planned(problem.spec, R=4, T=3)
    assert NEAR_STATIONARITY not in execute(plan, problem, seed=0, replicates=[0], tile=1).observed
    result = execute(plan, problem, seed=0, replicates=[0], tile=1, metric=NEAR_STATIONARITY)
    assert _metric({"metric": NEAR_STATIONARITY}, result, {}, problem) == result.observed[NEAR_STATIONARITY]


def test_a_method_without_candidates_is_judged_by_its_output():
    problem = circle(2000)
    plan = planned(problem.spec, R=4, T=3, output="last")
    result = execute(plan, problem, seed=0, replicates=range(2), tile=2, metric=NEAR_STATIONARITY)
    np.testing.assert_array_equal(
        _metric({"metric": NEAR_STATIONARITY}, result, {}, problem), near_stationarity(problem, result.w)
    )


def test_the_row_of_the_table_is_an_experiment_whose_jobs_have_plans():
    """Every method of bgm21_row5 has a plan at its first point, with the published and the certified noise."""
    config = experiments.load_config([])
    config["experiments"] = ["bgm21_row5"]
    (experiment,) = experiments.load_experiments(config)
    jobs = [job for job in experiment.jobs() if job.spec["algorithm"] == ALGORITHM.name]
    assert {job.spec["variant"] for job in jobs} == {"published", "certified", "practical"}
    assert {job.spec["metric"] for job in jobs if job.spec["problem"] != "records"} == {NEAR_STATIONARITY}
    for job in jobs:
        point = job.spec["points"][0]
        problem, _ = load_point(point, get_backend("cpu", "float64"))
        setting = Setting(problem.spec, point["epsilon"], point["delta"], job.spec["variant"])
        assert ALGORITHM.plan(setting).R >= 2
