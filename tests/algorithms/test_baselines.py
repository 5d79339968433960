"""The baselines of WYX17's Tables 1 and 2: output perturbation, DP-SGD and objective perturbation."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy.optimize import minimize
from support import Transcript, make_problem, rows

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.errors import RunFailed, UserError, VacuousSetting
from dprepro.privacy.accounting import account
from dprepro.privacy.audit import audit
from dprepro.privacy.cases import linear_case
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.problems.optimum import find_optimum
from dprepro.regularizers import Regularizer
from dprepro.run import Execution, execute


def planned(name, problem, epsilon=1.0, delta=1e-3, variant="published", **letters):
    spec = problem if isinstance(problem, ProblemSpec) else problem.spec
    return get_algorithm(name).plan(Setting(spec, epsilon, delta, variant), **letters)


def gap(result, problem):
    return result.final_objective - find_optimum(problem).objective


class TranscriptOfObjectives(Transcript):
    """Keeps what perturbs an objective, too."""

    def objective_perturbation(self, label):
        mechanism = super().objective_perturbation(label)
        draw = mechanism.draw

        def kept():
            self.draws.append(draw())
            return self.draws[-1]

        mechanism.draw = kept
        return mechanism


def run_with_transcript(name, problem, **letters):
    plan = planned(name, problem, **letters)
    ex = TranscriptOfObjectives(plan, problem, 5, [0, 1, 2])
    output = get_algorithm(name).run(plan, ex)
    ex.check(plan)
    return plan, output, ex.draws


def logistic_gradient(X, y, w):
    return -(y / (1 + np.exp(y * (X @ w)))) @ X / len(y)


# --- without noise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["output_perturbation", "objective_perturbation"])
@pytest.mark.parametrize("constraint", [None, "l2_ball:0.5"])
def test_without_noise_the_optimum_is_reached(name, constraint):
    problem = make_problem(n=200, regularizer=0.1, constraint=constraint)
    result = execute(planned(name, problem, epsilon=math.inf), problem, seed=0, replicates=range(2))
    assert np.all(np.abs(gap(result, problem)) <= 1e-10)


def test_without_noise_and_strong_convexity_the_objectives_minimiser_is_still_found():
    problem = make_problem(n=300, d=3, regularizer=0.0)
    result = execute(planned("objective_perturbation", problem, epsilon=math.inf), problem, seed=0, replicates=[0])
    assert abs(gap(result, problem)[0]) <= 1e-7


def test_without_noise_and_strong_convexity_descent_keeps_its_rate():
    """Gradient descent with eta = 1/L is within ||w*||^2 / (2 eta T) of the minimum."""
    problem = make_problem(n=300, d=3, regularizer=0.0)
    plan = planned("output_perturbation", problem, epsilon=math.inf)
    result = execute(plan, problem, seed=0, replicates=[0])
    bound = np.sum(find_optimum(problem).w ** 2) / (2 * plan.eta * plan.T)
    assert 0.0 <= gap(result, problem)[0] <= bound <= 0.1 * (result.objective[0, 0] - find_optimum(problem).objective)


def test_without_noise_the_gap_of_dp_sgd_falls_as_one_over_T():
    """Sixteen times the steps, 64 replicates each: the log of the ratio has a standard error near 0.15, so that a
    factor of 3 either way has a false-alarm probability below 1e-9 (and the seed is fixed)."""
    problem = make_problem(n=60, regularizer=0.1)
    gaps = []
    for T in (1000, 16_000):
        plan = planned("dp_sgd", problem, epsilon=math.inf, T=T)
        gaps.append(np.mean(gap(execute(plan, problem, seed=0, replicates=range(64)), problem)))
    assert gaps[1] <= 1e-3
    assert 16 / 3 <= gaps[0] / gaps[1] <= 16 * 3


# --- counts and noise ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "letters", "count"),
    [
        ("output_perturbation", {"T": 7}, 7 * 120),
        ("objective_perturbation", {"T": 12}, 12 * 120),
        ("dp_sgd", {"T": 50}, 50),
        ("dp_sgd", {"T": 50, "b": 6}, 300),
        ("dp_sgd", {"T": 50, "b": 6, "sampling": "poisson"}, 300),
    ],
)
def test_gradient_evaluations_are_the_formula(name, letters, count):
    problem = make_problem(n=120)
    result = execute(planned(name, problem, **letters), problem, seed=0, replicates=[0])
    assert result.gradient_evaluations[-1] == count


def test_default_counts_follow_the_papers():
    problem = make_problem(n=2000, regularizer=0.1)
    assert planned("dp_sgd", problem).gradient_evaluations == 2000**2
    signal = 2000 / math.sqrt(7 * math.log(1000))
    kappa = (0.25 + 0.1) / 0.1
    assert math.ceil(kappa * math.log(0.1 * signal)) == planned("output_perturbation", problem).T
    convex = make_problem(n=2000, regularizer=0.0)
    assert math.ceil((0.25 * signal) ** (2 / 3)) == planned("output_perturbation", convex).T
    assert math.ceil((8 * 0.25 * signal) ** (2 / 3)) == planned("output_perturbation", convex, D=8.0).T


def test_published_noise_is_what_the_papers_print():
    n, delta, epsilon, lam = 200, 1e-3, 0.5, 0.1
    problem, convex = make_problem(n=n, regularizer=lam), make_problem(n=n, regularizer=0.0)
    factor = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    beta = 0.25 + lam
    assert planned("output_perturbation", problem, epsilon, T=9).sigma == pytest.approx(
        5 * (lam + beta) / (n * lam * beta) * factor
    )
    assert planned("output_perturbation", convex, epsilon, T=9).sigma == pytest.approx(3 * 9 * 4 / n * factor)
    # n times the gradient gets 32 n^2 ln(n/delta) ln(1/delta)/epsilon^2: divided by n^2 for the mean gradient
    assert planned("dp_sgd", problem, epsilon).sigma ** 2 == pytest.approx(
        32 * math.log(n / delta) * math.log(1 / delta) / epsilon**2
    )
    assert planned("dp_sgd", problem, epsilon, c=1.0).sigma ** 2 == pytest.approx(math.log(1 / delta) / epsilon**2)
    objective = planned("objective_perturbation", problem, epsilon)
    assert objective.sigma**2 == pytest.approx((8 * math.log(2 / delta) + 4 * epsilon) / epsilon**2)
    assert objective.Delta == pytest.approx(2 * 0.25 / epsilon)
    assert objective.events[0].convexity == pytest.approx(n * lam + 2 * 0.25 / epsilon)


def test_gamma_noise_is_that_of_chaudhuri_monteleoni_and_sarwate():
    """Their c is our L = 1/4, their Lambda our mu; their objective is ours over n."""
    n, epsilon = 200, 0.5
    strong = planned("objective_perturbation", make_problem(n=n, regularizer=0.1), epsilon, noise="gamma")
    left = epsilon - math.log(1 + 2 * 0.25 / (n * 0.1) + (0.25 / (n * 0.1)) ** 2)
    assert (strong.Delta, strong.sigma) == (0.0, pytest.approx(2 / left))
    weak = planned("objective_perturbation", make_problem(n=n, regularizer=1e-3), epsilon, noise="gamma")
    assert weak.Delta / n == pytest.approx(0.25 / (n * (math.exp(epsilon / 4) - 1)) - 1e-3)
    assert weak.sigma == pytest.approx(2 / (epsilon / 2))


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("regularizer", [0.1, 0.0])
def test_published_objective_perturbation_is_accounted_as_its_theorem_says(noise, regularizer):
    """KST12's printed noise hides one gradient, G: under replacement its epsilon may be exceeded, by little."""
    plan = planned("objective_perturbation", make_problem(n=500, regularizer=regularizer), 1.0, noise=noise)
    epsilon = account(plan.events, 1e-3).epsilon
    assert epsilon <= (1.0 if noise == "gamma" or regularizer else 1.1)


CERTIFIED = [
    ("output_perturbation", {"T": 20}),
    ("dp_sgd", {"T": 200, "b": 5}),
    ("dp_sgd", {"T": 200, "b": 5, "sampling": "poisson"}),
    ("objective_perturbation", {}),
    ("objective_perturbation", {"noise": "gamma"}),
]


@pytest.mark.parametrize(("name", "letters"), CERTIFIED)
@pytest.mark.parametrize("variant", ["certified", "practical"])
def test_calibrated_variants_spend_what_they_claim_and_hardly_less(name, letters, variant):
    plan = planned(name, make_problem(n=400), 0.7, variant=variant, **letters)
    epsilon = account(plan.events, 1e-3).epsilon
    assert 0.98 * 0.7 <= epsilon <= 0.7
    assert plan.sigma == (plan.events[0].scale if name == "objective_perturbation" else plan.events[0].sigma)


def test_practical_numbers_follow_from_public_ones():
    problem = make_problem(n=400, regularizer=0.01)
    sgd = planned("dp_sgd", problem, variant="practical")
    assert (sgd.T, sgd.b, sgd.sampling, sgd.output) == (250, 10, "poisson", "suffix")
    assert sgd.eta == pytest.approx(0.5 / 0.26)
    assert planned("objective_perturbation", problem, variant="practical").Delta == 0.0
    convex = make_problem(n=400, regularizer=0.0)
    assert planned("objective_perturbation", convex, 0.5, variant="practical").Delta == pytest.approx(5 * 0.25 / 0.5)
    # where the published one is vacuous
    assert planned("output_perturbation", make_problem(n=20), 0.1, variant="practical").T == 1


# --- output perturbation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_stability_is_attained_by_a_linear_loss(l2, share):
    """One record pulls to one side or to the other; with a step of 1/beta or less the bound is an equality."""
    case = linear_case(50, {})
    spec = ProblemSpec(50, 2, case.spec.loss, Regularizer(l2=l2), case.spec.constraint, label_bound=1e6)
    plan = planned("output_perturbation", spec, epsilon=math.inf, T=12, eta=share / (1.0 + l2))
    ends = []
    for data in (case.rows, case.neighbour):
        problem = make_problem(data=data)
        problem = EmpiricalRisk(spec, *data, problem.backend)
        ends.append(execute(plan, problem, seed=0, replicates=[0]).w[0])
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(plan.stability, rel=1e-9)
    assert plan.events[0].parts[0].sensitivity == plan.stability


@pytest.mark.parametrize("regularizer", [0.0, 0.2])
@pytest.mark.parametrize("constraint", [None, "l2_ball:0.7", "l1_ball:0.7"])
def test_replacing_a_record_moves_the_last_iterate_within_the_stability(regularizer, constraint):
    X, y = rows(30, 4)

    def problem(*data):
        return make_problem(data=data, regularizer=regularizer, constraint=constraint)

    plan = planned("output_perturbation", problem(X, y), epsilon=math.inf, T=6)
    moves = []
    for seed in range(12):
        other, labels = X.copy(), y.copy()
        direction = np.random.default_rng(seed).normal(size=4)
        other[0], labels[0] = direction / np.linalg.norm(direction), -1.0
        ends = [execute(plan, each, seed=0, replicates=[0]).w for each in (problem(X, y), problem(other, labels))]
        moves.append(np.linalg.norm(ends[0] - ends[1]))
    assert (0.02 if constraint else 0.2) * plan.stability <= max(moves) <= plan.stability


def test_stability_stays_accurate_for_vanishing_strong_convexity():
    plans = [planned("output_perturbation", make_problem(regularizer=l2), T=50, eta=4.0) for l2 in (0.0, 1e-14)]
    assert plans[1].stability == pytest.approx(plans[0].stability, rel=1e-9)


def test_a_step_beyond_stability_is_refused():
    problem = make_problem(regularizer=0.1)
    largest = 2 / (0.1 + 0.35)
    planned("output_perturbation", problem, T=5, eta=largest)
    with pytest.raises(UserError, match=r"stable, which privacy rests on, only up to 2/\(mu \+ beta\) = 4\.444"):
        planned("output_perturbation", problem, T=5, eta=1.01 * largest)


@pytest.mark.parametrize("regularizer", [0.1, 0.0])
def test_output_perturbation_names_the_first_n_that_works(regularizer):
    with pytest.raises(VacuousSetting) as caught:
        planned("output_perturbation", make_problem(n=20, regularizer=regularizer), epsilon=0.1)
    enough = int(re.search(r"from n = (\d+)", str(caught.value)).group(1))
    planned("output_perturbation", make_problem(n=enough, regularizer=regularizer), epsilon=0.1)
    with pytest.raises(VacuousSetting):
        planned("output_perturbation", make_problem(n=enough - 1, regularizer=regularizer), epsilon=0.1)


def test_output_perturbation_refuses_an_l1_term():
    with pytest.raises(UserError, match=r"output_perturbation needs a smooth regularizer.*drop the l1 part"):
        planned("output_perturbation", make_problem(regularizer={"l1": 0.1, "l2": 0.1}))


def test_only_the_release_is_recorded():
    """The descent before it is not private; a curve must not show it."""
    problem = make_problem()
    result = execute(planned("output_perturbation", problem, T=9), problem, seed=0, replicates=[0])
    assert result.rounds.tolist() == [0, 1]


# --- DP-SGD ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("letters", "l2", "size"),
    [
        ({}, 0.2, lambda t, plan: 1 / (0.2 * t)),
        ({}, 0.0, lambda t, plan: 1 / math.sqrt(t * (1 + 4 * plan.sigma**2))),
        ({"b": 3, "eta": 0.5}, 0.2, lambda t, plan: 0.5),
        ({"b": 3, "sampling": "poisson", "D": 2.0}, 0.0, lambda t, plan: 2 / math.sqrt(t * (1 + 4 * plan.sigma**2))),
    ],
)
@pytest.mark.parametrize("output_rule", ["last", "mean", "suffix"])
def test_dp_sgd_is_algorithm_1_line_for_line(letters, l2, size, output_rule):
    """A plain per-replicate loop with the same records and noise gives the same output."""
    X, y = rows(40, 4)
    problem = make_problem(data=(X, y), regularizer={"l1": 0.01, "l2": l2})
    plan, output, draws = run_with_transcript("dp_sgd", problem, T=31, output=output_rule, **letters)
    for k in range(3):
        x, iterates = np.zeros(4), []
        for t, (index, noise) in enumerate(draws, start=1):
            chosen, b = records_of(index, k)
            gradient = logistic_gradient(X[chosen], y[chosen], x) * len(chosen) / b if len(chosen) else 0.0
            eta = size(t, plan)
            step = x - eta * (gradient + noise[k])
            x = np.sign(step) * np.maximum(np.abs(step) - eta * 0.01, 0) / (1 + eta * l2)
            iterates.append(x)
        kept = {"last": iterates[-1:], "mean": iterates, "suffix": iterates[15:]}[output_rule]
        np.testing.assert_allclose(output[k], np.mean(kept, axis=0), rtol=1e-9, atol=1e-12)


def records_of(index, k):
    """The records that replicate k drew, and by which number their sum is divided."""
    if hasattr(index, "starts"):
        ends = [*index.starts[1:], len(index.rows)]
        return index.rows[index.starts[k] + 1 : ends[k]], index.size
    chosen = np.atleast_1d(index[k])
    return chosen, len(chosen)


@pytest.mark.parametrize(
    ("letters", "sentence"),
    [
        ({"b": 120}, "b of dp_sgd is 120, but there are 120 records"),
        ({"step": "inverse", "eta": 0.1}, "was given eta with step=inverse"),
        ({"sampling": "shuffled"}, "use one of fixed, poisson"),
        ({"output": "best"}, "use one of last, mean, suffix"),
    ],
)
def test_dp_sgd_refuses_letters_that_do_not_fit(letters, sentence):
    with pytest.raises(UserError, match=sentence):
        planned("dp_sgd", make_problem(n=120), **letters)


def test_dp_sgd_without_strong_convexity_has_no_inverse_step_and_says_what_it_assumes():
    convex = make_problem(regularizer=0.0)
    with pytest.raises(UserError, match=r"no step 1/\(mu t\) without strong convexity"):
        planned("dp_sgd", convex, step="inverse")
    assert "D is taken as 1" in [condition.detail for condition in planned("dp_sgd", convex, T=9).conditions]
    ball = planned("dp_sgd", make_problem(regularizer=0.0, constraint="l2_ball:3.0"), T=9)
    assert ball.D == 3.0
    assert len(ball.conditions) == 1


def test_step_sizes_of_the_certified_plan_are_those_of_its_own_noise():
    plans = [planned("dp_sgd", make_problem(regularizer=0.0), T=50, variant=v) for v in ("published", "certified")]
    for plan in plans:
        assert plan.step_size(4) == pytest.approx(0.5 / math.sqrt(1 + 7 * plan.sigma**2))
    assert plans[0].sigma > plans[1].sigma


# --- objective perturbation ------------------------------------------------------------------------------------------


def perturbed_objective(X, y, w, plan, b, l1, l2):
    n = len(y)
    loss = np.sum(np.logaddexp(0.0, -y * (X @ w)))
    return loss + n * (l1 * np.sum(np.abs(w)) + 0.5 * l2 * w @ w) + 0.5 * plan.Delta * w @ w + b @ w


def perturbed_gradient(X, y, w, plan, b, l2):
    return len(y) * (logistic_gradient(X, y, w) + l2 * w) + plan.Delta * w + b


@pytest.mark.parametrize("l2", [0.05, 0.0])
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_the_gradient_of_the_perturbed_objective_vanishes_at_the_output(l2, noise, epsilon):
    X, y = rows(80, 5)
    problem = make_problem(data=(X, y), regularizer=l2)
    plan, output, (b,) = run_with_transcript("objective_perturbation", problem, noise=noise, epsilon=epsilon)
    assert plan.method == "newton"
    for k in range(3):
        assert np.linalg.norm(b[k]) > 0.1 * plan.sigma
        residual = perturbed_gradient(X, y, output[k], plan, b[k], l2)
        assert np.linalg.norm(residual) <= 1e-6 * plan.sigma


@pytest.mark.parametrize("l2", [0.05, 0.0])
def test_with_an_l1_term_the_output_is_the_minimiser_that_another_solver_finds(l2):
    """Split into positive and negative parts the problem is smooth with bounds, which L-BFGS-B solves."""
    X, y = rows(80, 5)
    l1 = 0.03
    problem = make_problem(data=(X, y), regularizer={"l1": l1, "l2": l2})
    plan, output, (b,) = run_with_transcript("objective_perturbation", problem, epsilon=4.0)
    assert plan.method == "accelerated"
    assert 0 < np.sum(output == 0.0) < output.size
    for k in range(3):

        def both(parts, k=k):
            w = parts[:5] - parts[5:]
            slope = perturbed_gradient(X, y, w, plan, b[k], l2)
            value = perturbed_objective(X, y, w, plan, b[k], 0.0, l2) + 80 * l1 * np.sum(parts)
            return value, np.concatenate([slope, -slope]) + 80 * l1

        options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 10_000, "maxcor": 30}
        found = minimize(both, np.zeros(10), jac=True, method="L-BFGS-B", bounds=[(0, None)] * 10, options=options)
        np.testing.assert_allclose(output[k], found.x[:5] - found.x[5:], atol=1e-6)


def test_on_a_ball_the_output_is_the_constrained_minimiser():
    """On the boundary the gradient points straight inwards: -grad J = nu w with nu >= 0."""
    X, y = rows(80, 5)
    problem = make_problem(data=(X, y), regularizer=0.05, constraint="l2_ball:0.4")
    plan, output, (b,) = run_with_transcript("objective_perturbation", problem)
    np.testing.assert_allclose(np.linalg.norm(output, axis=1), 0.4, rtol=1e-12)
    for k in range(3):
        slope = perturbed_gradient(X, y, output[k], plan, b[k], 0.05)
        nu = -slope @ output[k] / 0.4**2
        assert nu > 0
        assert np.linalg.norm(slope + nu * output[k]) <= 1e-6 * plan.sigma


@pytest.mark.parametrize("loss", ["huber:0.1", "soft_logistic"])
def test_other_losses_and_collinear_features_have_their_minimiser_found(loss):
    X, y = rows(300, 6)
    X = np.concatenate([X, X], axis=1) / 1.5
    problem = make_problem(data=(X, y), loss=loss, regularizer=0.0)
    plan = planned("objective_perturbation", problem, epsilon=4.0)
    result = execute(plan, problem, seed=0, replicates=range(64))  # fails unless the gradient vanishes
    assert np.all(np.isfinite(result.final_objective))


@pytest.mark.parametrize("name", ["objective_perturbation", "output_perturbation"])
@pytest.mark.parametrize("case", [{}, {"constraint": "l2_ball:0.4"}])
def test_single_precision_releases_the_points_of_double_precision_rounded(name, case):
    """What noise does not hide is solved in double precision, and rounded when it is released.

    Data and noise are rounded to float32 before: the noise to 6e-8 of itself.
    """
    X, y = rows(4000, 10)
    data = X.astype(np.float32).astype(np.float64), y
    ends = {}
    for dtype in ("float32", "float64"):
        problem = make_problem(data=data, dtype=dtype, regularizer=0.01, **case)
        ends[dtype] = execute(planned(name, problem), problem, seed=4, replicates=range(5)).w
    np.testing.assert_allclose(ends["float32"], ends["float64"], rtol=0, atol=3e-7 * np.max(np.abs(ends["float64"])))
    np.testing.assert_array_equal(ends["float32"], ends["float32"].astype(np.float32))
    assert np.any(ends["float64"] != ends["float64"].astype(np.float32))


@pytest.mark.parametrize(("n", "l1"), [(20_000, 0.0), (150, 0.03)])
def test_the_minimiser_is_found_in_single_precision_where_its_rounding_would_hide_the_tolerance(n, l1, backend):
    """The slope must fall to 4e-11 or 5e-9, far below what float32 resolves, whatever the seed."""
    problem = make_problem(n=n, d=6, loss="soft_logistic", regularizer={"l1": l1}, backend=single(backend))
    plan = planned("objective_perturbation", problem, epsilon=16.0)
    assert 1e-6 * plan.sigma / plan.n <= 0.05 * np.finfo(np.float32).eps
    for seed in range(3):
        result = execute(plan, problem, seed=seed, replicates=range(2), tile=2)
        assert np.all(np.isfinite(result.final_objective))


@pytest.mark.parametrize("name", ["objective_perturbation", "output_perturbation"])
def test_everything_on_the_way_to_the_release_is_in_double_precision(name, backend):
    seen = set()

    class Watched(Execution):
        def full_gradient(self, W):
            nabla = super().full_gradient(W)
            seen.update((W.dtype, nabla.dtype))
            return nabla

    problem = make_problem(regularizer={"l2": 0.1}, backend=single(backend))
    plan = planned(name, problem, T=8)
    ex = Watched(plan, problem, 5, [0, 1])
    output = get_algorithm(name).run(plan, ex)
    ex.check(plan)
    assert [dtype == backend.xp.float64 for dtype in seen] == [True]
    assert output.dtype == backend.xp.float32
    assert ex.start().dtype == ex.zeros().dtype == backend.xp.float32


def single(backend):
    return backend.with_dtype("float32")


@pytest.mark.parametrize("loss", ["huber_mean", "huber_mean:0.3"])
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_a_loss_that_is_no_function_of_the_inner_product_is_refused(loss, noise):
    """The Hessian of a record of huber_mean is the identity: its determinant moves by a factor in every dimension."""
    problem = make_problem(loss=loss)
    with pytest.raises(UserError) as caught:
        planned("objective_perturbation", problem, noise=noise)
    said = str(caught.value)
    assert said.startswith(
        "objective_perturbation needs a loss of <w, x> (a generalized linear model), but was given loss"
    )
    assert said.endswith("choose one, for example logistic, or an algorithm for other losses, for example dp_sgd.")
    assert planned("dp_sgd", problem, T=5).T == 5


@pytest.mark.parametrize("regularizer", [{"l2": 0.05}, {"l1": 0.05}])
def test_a_run_that_has_not_reached_the_minimiser_fails(regularizer):
    problem = make_problem(regularizer=regularizer)
    with pytest.raises(RunFailed, match="did not reach the minimiser: after 2 gradients"):
        execute(planned("objective_perturbation", problem, T=2), problem, seed=0, replicates=[0])


@pytest.mark.parametrize("problem", [{"regularizer": {"l1": 0.1}}, {"constraint": "l2_ball:1.0"}])
def test_gamma_noise_is_refused_where_its_theorem_does_not_hold(problem):
    with pytest.raises(UserError, match="noise=gamma needs a smooth regularizer and no constraint"):
        planned("objective_perturbation", make_problem(**problem), noise="gamma")
    with pytest.raises(UserError, match=r"Delta of objective_perturbation is 0\.001: too small for noise=gamma"):
        planned("objective_perturbation", make_problem(regularizer=0.0), noise="gamma", Delta=0.001)


@pytest.mark.parametrize("loss", ["logistic", "logistic_as_printed", "soft_logistic", "squared", "huber:0.3"])
def test_hessians_of_all_replicates_are_those_of_each(loss):
    problem = make_problem(n=500, d=6, loss=loss, constraint="l2_ball:1.0")
    W = np.random.default_rng(0).normal(size=(5, 6))
    together = problem.hessians(W)
    for w, H in zip(W, together, strict=True):
        np.testing.assert_allclose(H, problem.hessian(w), rtol=1e-11, atol=1e-15)


# --- audits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "least"), [("output_perturbation", 1.5), ("objective_perturbation", 0.5), ("dp_sgd", 0.5)]
)
def test_an_audit_proves_a_good_part_of_what_is_accounted(name, least):
    """The attack holds with the confidence that an audit states; what it proves has a fixed seed."""
    row = audit(get_algorithm(name), variant="certified", epsilon=2.0, delta=1e-3, replicates=4000)
    assert least <= row["epsilon_audited"] <= row["epsilon_accounted"] <= 2.0
