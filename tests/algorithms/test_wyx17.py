"""The algorithms of WYX17 against what the paper's pseudocode and theorems say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from support import Transcript, make_problem, rows

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.algorithms.dp_gd import STEP
from dprepro.algorithms.dp_svrg import contraction
from dprepro.errors import UserError, VacuousSetting
from dprepro.run import Execution, execute
from dprepro.streams import Streams


def planned(name, problem, epsilon=1.0, delta=1e-3, **letters):
    return get_algorithm(name).plan(Setting(problem.spec, epsilon, delta), **letters)


def lbfgs_optimum(problem):
    def both(w):
        gradient = problem.gradient(w[None])[0] + problem.spec.regularizer.l2 * w
        return float(problem.objective(w[None])[0]), gradient

    found = minimize(
        both, np.zeros(problem.spec.d), jac=True, method="L-BFGS-B", options={"ftol": 1e-16, "gtol": 1e-13}
    )
    return float(found.fun)


def test_svrg_without_noise_converges_linearly_to_the_lbfgs_optimum():
    problem = make_problem(n=200, regularizer=0.1)
    best = lbfgs_optimum(problem)
    plan = planned("dp_svrg", problem, epsilon=math.inf)
    result = execute(plan, problem, seed=0, replicates=range(2))
    gap = result.objective - best
    assert np.all(np.abs(gap[:, -1]) <= 1e-10)
    # Theorem 4.2 with (4): each epoch at least halves the gap; looked at above rounding
    falling = gap[:, :-1] > 1e-9
    assert np.sum(falling) > 4
    assert np.all(gap[:, 1:][falling] <= 0.5 * gap[:, :-1][falling])


@pytest.mark.parametrize(("name", "letters"), [("dp_gd", {"T": 400}), ("dp_svrg", {"T": 40, "m": 500, "step": "bb"})])
def test_without_noise_the_others_reach_the_optimum_too(name, letters):
    problem = make_problem(n=200, regularizer=0.1)
    result = execute(planned(name, problem, epsilon=math.inf, **letters), problem, seed=0, replicates=[0])
    assert abs(result.objective[0, -1] - lbfgs_optimum(problem)) <= 1e-10


def test_svrg_pp_without_noise_approaches_the_optimum_without_strong_convexity():
    problem = make_problem(n=400, d=3, regularizer=0.0)
    result = execute(planned("dp_svrg_pp", problem, epsilon=math.inf, T=13), problem, seed=0, replicates=[0])
    gap = result.objective[0] - lbfgs_optimum(problem)
    assert gap[-1] <= 2e-5 * gap[0]


def test_svrg_counts_n_plus_two_m_per_epoch():
    problem = make_problem(n=120)
    result = execute(planned("dp_svrg", problem, T=4, m=30), problem, seed=0, replicates=[0])
    np.testing.assert_array_equal(result.gradient_evaluations, (120 + 2 * 30) * np.arange(5))


def test_svrg_pp_counts_doubling_epochs():
    problem = make_problem(n=120)
    result = execute(planned("dp_svrg_pp", problem, T=3, m=5), problem, seed=0, replicates=[0])
    np.testing.assert_array_equal(result.gradient_evaluations, np.cumsum([0, 120 + 20, 120 + 40, 120 + 80]))


def test_gd_counts_n_per_step():
    problem = make_problem(n=120)
    result = execute(planned("dp_gd", problem, T=7), problem, seed=0, replicates=[0])
    np.testing.assert_array_equal(result.gradient_evaluations, 120 * np.arange(8))


def run_with_transcript(name, problem, **letters):
    plan = planned(name, problem, **letters)
    ex = Transcript(plan, problem, 5, [0, 1])
    return plan, get_algorithm(name).run(plan, ex), ex.draws


def logistic_gradient(X, y, w):
    return -(y / (1 + np.exp(y * (X @ w)))) @ X / len(y)


def test_svrg_is_algorithm_1_line_for_line():
    """A plain per-replicate loop with the same indices and noise gives the same output."""
    X, y = rows(60, 4)
    problem = make_problem(data=(X, y), regularizer={"l1": 0.01, "l2": 0.1})
    plan, output, draws = run_with_transcript("dp_svrg", problem, T=3, m=25)
    for k in range(2):
        stream = iter(draws)
        x_tilde = np.zeros(4)
        for _ in range(plan.T):
            v_tilde = logistic_gradient(X, y, x_tilde)
            x, iterates = x_tilde, []
            for _ in range(plan.m):
                index, noise = next(stream)
                i = slice(index[k], index[k] + 1)
                v = logistic_gradient(X[i], y[i], x) - logistic_gradient(X[i], y[i], x_tilde) + v_tilde + noise[k]
                step = x - plan.eta * v
                x = np.sign(step) * np.maximum(np.abs(step) - plan.eta * 0.01, 0) / (1 + plan.eta * 0.1)
                iterates.append(x)
            x_tilde = np.mean(iterates, axis=0)
        np.testing.assert_allclose(output[k], x_tilde, rtol=1e-10)


def test_svrg_pp_is_algorithm_2_line_for_line():
    X, y = rows(60, 4)
    problem = make_problem(data=(X, y), regularizer=0.0)
    plan, output, draws = run_with_transcript("dp_svrg_pp", problem, T=3, m=4)
    for k in range(2):
        stream = iter(draws)
        x = x_tilde = np.zeros(4)
        for s in range(1, plan.T + 1):
            v_tilde = logistic_gradient(X, y, x_tilde)
            iterates = []
            for _ in range(2**s * plan.m):
                index, noise = next(stream)
                i = slice(index[k], index[k] + 1)
                v = logistic_gradient(X[i], y[i], x) - logistic_gradient(X[i], y[i], x_tilde) + v_tilde + noise[k]
                x = x - plan.eta * v
                iterates.append(x)
            x_tilde = np.mean(iterates, axis=0)
        np.testing.assert_allclose(output[k], x_tilde, rtol=1e-10)


@pytest.mark.parametrize("output_rule", ["last", "uniform"])
def test_gd_is_algorithm_4_line_for_line(output_rule):
    X, y = rows(60, 4)
    problem = make_problem(data=(X, y), regularizer=0.1)
    plan, output, draws = run_with_transcript("dp_gd", problem, T=9, output=output_rule)
    for k in range(2):
        iterates = [np.zeros(4)]
        for noise in draws:
            x = iterates[-1]
            iterates.append(x - plan.eta * (logistic_gradient(X, y, x) + 0.1 * x + noise[k]))
        if output_rule == "last":
            np.testing.assert_allclose(output[k], iterates[-1], rtol=1e-10)
        else:
            distances = [np.max(np.abs(output[k] - x)) for x in iterates[:-1]]
            assert min(distances) <= 1e-12


def test_uniform_output_is_uniform_over_the_first_T_iterates():
    """Chi-square over T = 4 cells, 640 replicates: false alarm below 1e-7 (and the seed is fixed)."""
    from scipy.stats import chi2

    problem = make_problem(n=60)
    plan = planned("dp_gd", problem, epsilon=math.inf, T=4, output="uniform")
    w = execute(plan, problem, seed=0, replicates=range(640)).w
    iterates = [np.zeros(problem.spec.d)]
    for _ in range(4):
        x = iterates[-1]
        iterates.append(x - plan.eta * (problem.gradient(x[None])[0] + 0.1 * x))
    which = np.argmin([np.linalg.norm(w - x, axis=1) for x in iterates], axis=0)
    counts = np.bincount(which, minlength=5)
    assert counts[4] == 0
    assert chi2.sf(np.sum((counts[:4] - 160) ** 2 / 160), 3) > 1e-7


def test_barzilai_borwein_step_is_the_inverse_curvature_over_m():
    """On a quadratic with Hessian h I the step is 1/(m (h + l2))."""
    X = np.tile(np.eye(3), (10, 1))
    y = np.linspace(-1, 1, 30)
    problem = make_problem(data=(X, y), loss="squared", regularizer=0.2, constraint="l2_ball:5.0")
    steps = []

    class Watching(Execution):
        def prox(self, V, eta):
            steps.append(np.array(eta))
            return super().prox(V, eta)

    plan = planned("dp_svrg", problem, T=2, m=10, eta=0.05, step="bb")
    get_algorithm("dp_svrg").run(plan, Watching(plan, problem, 0, [0, 1]))
    assert np.all(steps[0] == 0.05)
    np.testing.assert_allclose(steps[-1], 1 / (10 * (1 / 3 + 0.2)), rtol=1e-9)


def test_published_noise_is_equations_3_6_and_11():
    n, delta, epsilon = 200, 1e-3, 0.5
    problem = make_problem(n=n)
    log1, log2 = math.log(1 / delta), math.log(2 / delta)
    assert planned("dp_svrg", problem, epsilon, T=4, m=30).sigma == pytest.approx(
        math.sqrt(4 * 30 * log1) / (n * epsilon)
    )
    assert planned("dp_svrg_pp", problem, epsilon, T=4, m=5).sigma == pytest.approx(
        math.sqrt(2**4 * 5 * log2) / (n * epsilon)
    )
    assert planned("dp_gd", problem, epsilon, T=9).sigma == pytest.approx(math.sqrt(9 * log1) / (n * epsilon))


def test_default_numbers_satisfy_the_theorems_inequalities():
    problem = make_problem(n=5000, regularizer=0.05)
    plan = planned("dp_svrg", problem)
    spec = problem.spec
    assert contraction(plan.eta, plan.m, spec.L, spec.mu) < 0.5
    assert contraction(plan.eta, plan.m - 2, spec.L, spec.mu) > 0.5
    # eta = 1/(12 L), the largest the theorem allows, can never satisfy (4)
    assert contraction(1 / (12 * spec.L), 10**9, spec.L, spec.mu) > 0.5
    assert all(condition.holds for condition in plan.conditions if "(4)" in condition.text)
    assert planned("dp_svrg_pp", problem).eta == pytest.approx(1 / (13 * spec.L))
    gd = planned("dp_gd", problem)
    assert gd.eta == pytest.approx(1 / (spec.L + 0.05))
    assert all(condition.holds for condition in gd.conditions)


def test_the_condition_on_epsilon_fails_by_six_orders_of_magnitude_in_the_papers_own_experiment():
    from dprepro.geometry import RealSpace
    from dprepro.losses import Logistic
    from dprepro.problems.erm import ProblemSpec
    from dprepro.regularizers import Regularizer

    spec = ProblemSpec(200_000, 54, Logistic(), Regularizer(l2=0.01), RealSpace())
    plan = get_algorithm("dp_svrg").plan(Setting(spec, 1.0, 1e-3), T=15, m=5000)
    condition = plan.conditions[0]
    assert not condition.holds
    assert pytest.approx(533_333, rel=1e-3) == 1 / (15 * 5000 / 200_000**2)
    assert "5.33e+05" in condition.detail


@pytest.mark.parametrize("name", ["dp_svrg", "dp_svrg_pp", "dp_gd"])
def test_vacuous_setting_names_the_first_n_that_works(name):
    import re

    with pytest.raises(VacuousSetting) as caught:
        planned(name, make_problem(n=20), epsilon=0.1)
    enough = int(re.search(r"from n = (\d+)", str(caught.value)).group(1))
    planned(name, make_problem(n=enough), epsilon=0.1)
    with pytest.raises(VacuousSetting):
        planned(name, make_problem(n=enough - 1), epsilon=0.1)


@pytest.mark.parametrize(
    ("name", "problem", "sentence"),
    [
        ("dp_svrg", {"regularizer": 0.0}, "needs a strongly convex objective"),
        ("dp_gd", {"regularizer": {"l1": 0.1}}, "needs a smooth regularizer"),
        ("dp_svrg_pp", {"loss": "squared"}, "needs a Lipschitz loss"),
    ],
)
def test_a_pairing_that_the_theory_does_not_cover_is_refused_before_anything_runs(name, problem, sentence):
    with pytest.raises(UserError, match=sentence):
        planned(name, make_problem(**problem))


@pytest.mark.parametrize("name", ["dp_svrg", "dp_svrg_pp"])
@pytest.mark.parametrize("regularizer", [{"l1": 0.02, "l2": 0.1}, {"l1": 0.05, "l2": 0.1}])
def test_non_smooth_regularisers_run_and_reach_their_optimum(name, regularizer):
    from dprepro.problems.optimum import find_optimum

    problem = make_problem(n=200, regularizer=regularizer)
    letters = {"T": 12, "m": 1500} if name == "dp_svrg" else {"T": 11}
    result = execute(planned(name, problem, epsilon=math.inf, **letters), problem, seed=0, replicates=[0])
    best = find_optimum(problem)
    start = result.objective[0, 0] - best.objective
    assert -1e-10 <= result.objective[0, -1] - best.objective <= 1e-3 * start


def test_single_precision_runs_end_where_double_precision_runs_end():
    data = rows(2000, 20)
    ends = []
    for dtype in ("float32", "float64"):
        problem = make_problem(data=data, dtype=dtype)
        ends.append(execute(planned("dp_gd", problem, T=60), problem, seed=4, replicates=range(3)).objective[:, -1])
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-7)


def test_observed_squared_gradient_is_the_mean_over_the_steps():
    problem = make_problem(regularizer=0.0, loss="sigmoid")
    plan = get_algorithm("dp_gd").plan(Setting(problem.spec, 1.0, 1e-3), T=6)
    result = execute(plan, problem, seed=3, replicates=range(2))
    squares = []
    x = np.zeros((64, problem.spec.d))
    streams = Streams(3, [0, 1] + [None] * 62, f"noise:{STEP}")
    for t in range(6):
        nabla = problem.gradient(x)
        squares.append(np.sum(nabla**2, axis=1)[:2])
        x = x - plan.eta * (nabla + streams.normals(t, 1, problem.spec.d, plan.sigma)[0])
    np.testing.assert_allclose(result.observed["squared gradient norm"], np.mean(squares, axis=0), rtol=1e-6)


def test_dp_gd_without_strong_convexity_takes_its_steps_from_the_stated_pl_constant():
    problem = make_problem(n=4000, regularizer=0.0, loss="squared", constraint="l2_ball:1.0")
    setting = Setting(problem.spec, 1.0, 1e-3)
    known, unknown = (get_algorithm("dp_gd").plan(setting, **letters) for letters in ({"mu": 0.1}, {}))
    assert math.ceil(10.0 * math.log(setting.signal() ** 2)) == known.T
    assert known.utility.theorem.endswith("6.2")
    assert unknown.utility.theorem.endswith("6.3")


def test_last_iterate_accounting_needs_less_noise_and_only_where_its_theorem_applies():
    problem = make_problem(n=2000)
    plans = {
        release: get_algorithm("dp_gd").plan(Setting(problem.spec, 1.0, 1e-3, "certified"), T=200, release=release)
        for release in ("all", "last")
    }
    eta, l2 = plans["last"].eta, problem.spec.regularizer.l2
    c = max(abs(1 - eta * l2), abs(1 - eta * (problem.spec.L + l2)))
    assert plans["last"].rounds == 1
    assert any("only the last iterate" in condition.text for condition in plans["last"].conditions)
    effective = (1 - c**200) / (1 + c**200) * (1 + c) / (1 - c)
    assert plans["last"].sigma / plans["all"].sigma == pytest.approx(math.sqrt(effective / 200), rel=1e-3)
    convex = make_problem(regularizer=0.0)
    with pytest.raises(UserError, match="needs strong convexity"):
        get_algorithm("dp_gd").plan(Setting(convex.spec, 1.0, 1e-3), T=5, release="last")
    with pytest.raises(UserError, match="give a smaller eta"):
        get_algorithm("dp_gd").plan(Setting(problem.spec, 1.0, 1e-3), T=5, release="last", eta=20.0)
    with pytest.raises(UserError, match="set output=last"):
        get_algorithm("dp_gd").plan(Setting(problem.spec, 1.0, 1e-3), T=5, release="last", output="uniform")


def test_the_stated_contraction_bounds_the_step_on_random_pairs():
    problem = make_problem(n=200, d=5)
    plan = get_algorithm("dp_gd").plan(Setting(problem.spec, 1.0, 1e-3), T=5, release="last")
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(500, 5)) * rng.exponential(size=(500, 1)) * 3 for _ in range(2))

    def step(w):
        return w - plan.eta * (problem.gradient(w) + problem.spec.regularizer.smooth_gradient(w))

    ratio = np.linalg.norm(step(x) - step(y), axis=1) / np.linalg.norm(x - y, axis=1)
    assert ratio.max() <= plan.events[0].contraction + 1e-12
    assert ratio.max() >= 0.9 * plan.events[0].contraction
