"""Phased SGD and noisy Frank-Wolfe on losses with kinks (BGM21, section 3), and the baseline noisy_gd.

Statistical tests have fixed seeds and a false-alarm probability below 1e-6 each.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Transcript, make_problem, rows

from dprepro import datasets
from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.arrays import get_backend, strict_backend
from dprepro.errors import UserError, VacuousSetting
from dprepro.geometry import L1Ball, L2Ball, Polytope, RealSpace, Simplex
from dprepro.losses import Absolute, Hinge, Logistic, Loss, Pinball
from dprepro.privacy.accounting import gaussian_epsilon
from dprepro.privacy.audit import audit
from dprepro.privacy.certificate import certify
from dprepro.privacy.events import leaves
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.problems.optimum import find_optimum
from dprepro.regularizers import Regularizer
from dprepro.run import execute
from dprepro.smoothing import MoreauEnvelope
from dprepro.stages.dataset import arrays_of, facts_of
from dprepro.stages.problem import make_problem as problem_from


class Spec:
    """A problem without data: all that a plan may know."""

    def __init__(self, n, d=16, loss=None, constraint=None, **bounds):
        self.spec = ProblemSpec(n, d, loss or Absolute(), Regularizer(), constraint or L2Ball(1.0), **bounds)


def planned(name, problem, epsilon=1.0, delta=1e-6, variant="published", **letters):
    return get_algorithm(name).plan(Setting(problem.spec, epsilon, delta, variant), **letters)


def population(name, constraint, n, loss="absolute", **parameters):
    data = datasets.load(f"population_{name}", rows=n, **parameters)
    spec = {"loss": loss, "regularizer": {}, "constraint": constraint}
    return problem_from(spec, facts_of(data), arrays_of(data), get_backend("cpu"))


def kinked(n=60, d=4, *, loss="absolute", constraint="l2_ball:0.5", data=None):
    return make_problem(n, d, loss=loss, regularizer=0.0, constraint=constraint, data=data)


class SampleTranscript(Transcript):
    """Keeps the fresh samples too."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.samples = []

    def fresh_samples(self, count):
        taken = []
        self.samples.append(taken)
        for index in super().fresh_samples(count):
            taken.append(np.array(index))
            yield index


def run_with_transcript(plan, problem, slots=2):
    ex = SampleTranscript(plan, problem, 5, list(range(slots)))
    output = get_algorithm(plan.algorithm).run(plan, ex)
    ex.check(plan)
    return output, ex


# --- phased SGD: the pseudocode --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("letters", "tolerance"), [({"oracle": "closed"}, 1e-13), ({"oracle": "bisection", "alpha": 1e-9}, 1e-7)]
)
def test_phased_sgd_is_algorithm_4_line_for_line(letters, tolerance):
    n, d, radius, epsilon, delta = 60, 4, 0.5, 20.0, 1e-3
    X, y = rows(n, d)
    problem = kinked(data=(X, y), constraint=f"l2_ball:{radius}")
    plan = planned("phased_sgd", problem, epsilon, delta, eta=1.0, **letters)
    output, ex = run_with_transcript(plan, problem)
    beta = math.sqrt(n) / (2 * radius)
    outside = 0
    for replicate in range(2):
        w, s = np.zeros(d), 0
        for k, xi in enumerate(ex.draws, start=1):
            u, iterates = w, []
            for i in range(s, s + n // 2**k):
                g = np.clip(beta * (X[i] @ u - y[i]), -1, 1) * X[i]
                u = u - 1.0 / 4**k * g
                u = u * min(1, radius / np.linalg.norm(u))
                iterates.append(u)
            s += n // 2**k
            w = np.mean(iterates, axis=0) + xi[replicate]
            outside += np.linalg.norm(w) > radius
            w = w * min(1, radius / np.linalg.norm(w))
        np.testing.assert_allclose(output[replicate], w, rtol=0, atol=tolerance)
    assert outside, "the noise must take a point out of the set, else a missing projection is not seen"


@pytest.mark.parametrize(("n", "phases"), [(100, [50, 25, 12, 6, 3, 1]), (128, [64, 32, 16, 8, 4, 2, 1])])
def test_phases_have_samples_of_their_own_and_no_more_than_n(n, phases):
    plan = planned("phased_sgd", kinked(n), 4.0, 1e-3)
    _, ex = run_with_transcript(plan, kinked(n))
    assert [len(taken) for taken in ex.samples] == phases
    used = [int(index[0]) for taken in ex.samples for index in taken]
    assert len(set(used)) == len(used) == sum(phases) <= n
    assert ex.samples_used == ex.gradient_evaluations == plan.gradient_evaluations == sum(phases)


def test_on_a_population_replicates_have_samples_of_their_own():
    problem = population("linear", "l2_ball:1", 256, features=8, norm="l2")
    _, ex = run_with_transcript(planned("phased_sgd", problem, 4.0), problem)
    drawn = np.array([index for taken in ex.samples for index in taken])
    assert drawn.shape == (255, 2)
    assert np.mean(drawn[:, 0] == drawn[:, 1]) < 0.6
    assert ex.samples_used == 255


def test_a_smooth_loss_is_taken_as_it_is_and_an_l2_term_by_its_prox():
    n, d = 64, 4
    X, y = rows(n, d)
    problem = make_problem(data=(X, y), regularizer=0.5)
    plan = planned("phased_sgd", problem, math.inf, K=1, eta=2.0)
    assert (plan.beta, plan.oracle, plan.alpha) == (None, None, None)
    output, _ = run_with_transcript(plan, problem)
    u, iterates = np.zeros(d), []
    for i in range(32):
        u = (u + 0.5 * y[i] / (1 + np.exp(y[i] * (X[i] @ u))) * X[i]) / (1 + 0.5 * 0.5)
        iterates.append(u)
    np.testing.assert_allclose(output[0], np.mean(iterates, axis=0), atol=1e-14)
    assert [c.text for c in plan.conditions if not c.holds] == ["no regularizer"]


class Plain(Loss):
    """The absolute loss, of which nothing is known but its slopes."""

    name, smooth = "plain", False

    def value(self, xp, t, y):
        return xp.abs(t - y)

    def core(self, xp, s, y):
        return xp.sign(s - y)

    def lipschitz(self, row_norm, radius, label_bound):
        return row_norm

    def smoothness(self, row_norm):
        return math.inf

    @property
    def full_name(self):
        return self.name


def test_a_loss_without_closed_form_is_smoothed_by_bisection():
    problem = kinked(loss=Plain())
    plan = planned("phased_sgd", problem, math.inf)
    assert plan.oracle == "bisection"
    found = execute(plan, problem, seed=0, replicates=[0]).w
    known = kinked()
    expected = execute(planned("phased_sgd", known, math.inf), known, seed=0, replicates=[0]).w
    assert np.linalg.norm(found - expected) <= next(leaves(plan.events)).parts[0].sensitivity
    with pytest.raises(UserError, match="the loss 'plain' has no closed form here"):
        planned("phased_sgd", problem, oracle="closed")
    with pytest.raises(UserError, match="the loss 'plain' has no closed form here"):
        planned("noisy_frank_wolfe", Spec(1000, loss=Plain(), constraint=L1Ball(1.0)))


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        ("phased_sgd", {"oracle": "closed"}),
        ("phased_sgd", {"oracle": "bisection"}),
        ("noisy_frank_wolfe", {"T": 7}),
        ("noisy_gd", {"T": 7}),
    ],
)
def test_losses_with_kinks_give_the_same_numbers_on_strict_arrays(name, letters):
    results = []
    for backend in (get_backend("cpu"), strict_backend()):
        problem = make_problem(
            60, 4, loss="insensitive:0.2", regularizer=0.0, constraint="l1_ball:0.5", backend=backend
        )
        results.append(execute(planned(name, problem, 4.0, 1e-3, **letters), problem, seed=1, replicates=range(3)).w)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-10, atol=1e-13)


# --- phased SGD: convergence -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["absolute", "pinball:0.3", "insensitive:0.05"])
@pytest.mark.parametrize("variant", ["published", "practical"])
def test_phased_sgd_without_noise_comes_within_its_bound_of_the_optimum(loss, variant):
    n = 4096
    problem = population("direction", "l2_ball:1", n, loss=loss)
    best = find_optimum(problem).objective
    plan = planned("phased_sgd", problem, math.inf, variant=variant)
    result = execute(plan, problem, seed=0, replicates=range(8))
    G, D, eta = problem.spec.G, 2.0, plan.eta
    # The sum over the phases of distance^2/(2 eta_k T_k) + eta_k G^2/2, where only the first one starts away from what
    # it is compared with, at most D/2; and the distance of the envelope from the loss.
    bound = (D / 2) ** 2 / (2 * eta / 4 * n / 2) + eta * G**2 / 6 + G**2 / (2 * plan.beta)
    excess = result.final_objective - best
    assert np.all(excess >= -1e-8)
    assert np.mean(excess) <= bound
    assert np.mean(excess) <= 0.1 * (result.objective[0, 0] - best)


def test_without_a_constraint_the_error_depends_on_the_rank_and_not_on_the_dimension():
    """Means of 64 replicates differ by less than six standard errors; a normal does so but for 2e-9."""
    found = {}
    for features in (8, 256):
        problem = population("low_rank", None, 2048, features=features, rank=4)
        for theta in (4, None):
            letters = {} if theta is None else {"theta": theta}
            plan = planned("phased_sgd", problem, 0.3, **letters)
            assert plan.theta == (theta or features)
            found[features, theta] = execute(plan, problem, seed=1, replicates=range(64)).final_objective
    few, many, unknown = found[8, 4], found[256, 4], found[256, None]
    error = 6 * math.hypot(np.std(few), np.std(many)) / 8
    assert abs(np.mean(few) - np.mean(many)) <= error
    assert np.mean(unknown) > np.mean(many) + error, "steps for 256 dimensions must be worse, else nothing was tested"


# --- phased SGD: privacy ---------------------------------------------------------------------------------------------


def last_phase(problem, X, y, K, **letters):
    """The point that phase K would release, without noise, and the stated sensitivity of that phase."""
    plan = planned("phased_sgd", problem, math.inf, K=K, **letters)
    problem = EmpiricalRisk(problem.spec, X, y, get_backend("cpu"))
    stated = list(leaves(plan.events))[-1].parts[0].sensitivity
    return execute(plan, problem, seed=0, replicates=[0], tile=1).w[0], stated


@pytest.mark.parametrize("K", [1, 2, 3])
def test_the_stated_sensitivity_is_attained_by_the_first_sample_of_a_phase(K):
    n, d = 64, 3
    first = sum(n // 2**k for k in range(1, K))
    X, y = np.zeros((n, d)), np.zeros(n)
    X[first, 0] = 1.0
    up, down = y.copy(), y.copy()
    up[first], down[first] = 1.0, -1.0
    problem = Spec(n, d)
    ends = [last_phase(problem, X, labels, K, eta=0.1) for labels in (up, down)]
    assert ends[0][1] == pytest.approx(2 * 0.1 / 4**K, rel=1e-9)
    assert np.linalg.norm(ends[0][0] - ends[1][0]) == pytest.approx(ends[0][1], rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    K=st.sampled_from([1, 2]),
    place=st.floats(0, 1, exclude_max=True),
    loss=st.sampled_from([Absolute(), Hinge(), Pinball(0.2)]),
    constraint=st.sampled_from([L2Ball(0.3), L1Ball(0.3), RealSpace()]),
    oracle=st.sampled_from(["closed", "bisection"]),
)
def test_replacing_a_sample_moves_no_release_further_than_stated(seed, K, place, loss, constraint, oracle):
    """The largest stable step, on samples that agree enough to make an unstable one expand."""
    n, d, beta = 32, 3, 40.0
    rng = np.random.default_rng(seed)
    X = np.array([1.0, 0.0, 0.0]) + 0.3 * rng.normal(size=(n + 1, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-9)
    y = rng.choice([-1.0, 1.0], n + 1) if loss.margin else 0.1 * rng.normal(size=n + 1)
    size = n // 2**K
    moved = (0 if K == 1 else n // 2) + int(place * size)
    Z, v = X[:n].copy(), y[:n].copy()
    Z[moved], v[moved] = X[n], y[n]
    problem = Spec(n, d, loss, constraint)
    letters = {"eta": 4 * 2 / beta, "beta": beta, "oracle": oracle}
    (one, stated), (other, _) = (last_phase(problem, A, b, K, **letters) for A, b in ((X[:n], y[:n]), (Z, v)))
    assert np.linalg.norm(one - other) <= stated * (1 + 1e-9)


def test_an_unstable_step_would_break_the_sensitivity():
    """What the check of eta is for: the same runs with three times the largest stable step, behind the plan's back."""
    n, d, beta = 64, 16, 40.0
    rng = np.random.default_rng(1)
    spread = []
    for _ in range(20):
        X = rng.normal(size=(n, d))
        X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-9)
        Z = X.copy()
        Z[0] = -X[0]
        y = 0.02 * rng.normal(size=n)
        ends = []
        for A in (X, Z):
            problem = EmpiricalRisk(ProblemSpec(n, d, MoreauEnvelope(Absolute(), beta), Regularizer(), RealSpace()),
                                    A, y, get_backend("cpu"))  # fmt: skip
            u, eta = np.zeros((1, d)), 6.0 / beta
            for i in range(n):
                u = u - eta * problem.sample_gradients(u, np.array([i]))
            ends.append(u[0])
        spread.append(np.linalg.norm(ends[0] - ends[1]) / (2 * eta))
    assert max(spread) > 1.5
    with pytest.raises(UserError, match=r"stable, which privacy rests on, only up to 2/L = 0.05"):
        planned("phased_sgd", Spec(n, d), beta=beta, eta=4 * 6.0 / beta)


def test_published_numbers_are_those_of_algorithm_4():
    n, d, R, radius, epsilon, delta = 5000, 50, 3.0, 2.0, 0.7, 1e-5
    rho = epsilon / (2 * math.sqrt(math.log(1 / delta)))
    q = 0.2
    G = 0.8 * R
    ball = planned("phased_sgd", Spec(n, d, Pinball(q), L2Ball(radius), row_norm=R), epsilon, delta)
    assert ball.eta == pytest.approx(2 * radius / (3 * G) * min(rho / math.sqrt(d), 1 / math.sqrt(n)))
    assert ball.beta == pytest.approx(math.sqrt(n) * 0.8 / (R * 2 * radius))
    space = planned("phased_sgd", Spec(n, d, Pinball(q), RealSpace(), row_norm=R), epsilon, delta, theta=5)
    assert space.eta == pytest.approx(1 / (3 * G) * min(rho / math.sqrt(5), 1 / math.sqrt(n)))
    assert space.beta == pytest.approx(math.sqrt(n) * 0.8 / R)
    for plan in (ball, space):
        assert plan.K == 12
        (phases,) = plan.events
        for k, (event,) in enumerate(phases.branches, start=1):
            assert event.sigma == pytest.approx(4 * G * plan.eta / 4**k / rho)
            assert event.parts[0].sensitivity == pytest.approx(2 * G * plan.eta / 4**k)
            assert (event.parts[0].batch, event.count) == (n // 2**k, 1)
        # The noise is for twice the sensitivity and more: each release is (rho/2)-GDP.
        assert certify(plan)["epsilon_accounted"] == pytest.approx(gaussian_epsilon(rho / 2, delta), rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.5, math.inf])
def test_the_practical_step_minimises_the_bound_that_its_plan_states(epsilon):
    n, d, D = 4000, 16, 2.0
    plan = planned("phased_sgd", Spec(n, d), epsilon, variant="practical")
    first = next(leaves(plan.events))
    mu = first.parts[0].sensitivity / first.sigma if first.sigma else math.inf

    def bound(eta):
        return D**2 / (n * eta) + eta * (1 / 6 + 16 * d / (mu**2 * n))

    assert plan.utility.value == pytest.approx(bound(plan.eta), rel=1e-3)
    assert min(bound(0.8 * plan.eta), bound(1.25 * plan.eta)) > 1.01 * bound(plan.eta)


def test_bisection_pays_for_the_drift_of_its_gradients():
    n = 10**5
    closed, bisected = (planned("phased_sgd", Spec(n), oracle=oracle) for oracle in ("closed", "bisection"))
    assert bisected.alpha == pytest.approx(1 / (n * math.log(n)))
    ratio = next(leaves(bisected.events)).parts[0].sensitivity / next(leaves(closed.events)).parts[0].sensitivity
    assert ratio == pytest.approx(1 + 0.5 / math.log(n))


@pytest.mark.parametrize("variant", ["certified", "practical"])
@pytest.mark.parametrize("name", ["phased_sgd", "noisy_gd", "noisy_frank_wolfe"])
def test_calibrated_variants_spend_what_they_claim_and_hardly_less(name, variant):
    certificate = certify(planned(name, Spec(4000, constraint=L1Ball(1.0)), 0.5, variant=variant))
    assert 0.495 <= certificate["epsilon_accounted"] <= 0.5
    assert certificate["verdict"] == "certified"


@pytest.mark.parametrize(("name", "least"), [("phased_sgd", 1.2), ("noisy_gd", 1.0)])
def test_an_audit_proves_a_good_part_of_what_is_accounted(name, least):
    """The attack holds with the confidence that an audit states; what it proves has a fixed seed."""
    row = audit(get_algorithm(name), variant="certified", epsilon=2.0, delta=1e-3, replicates=4000)
    assert least <= row["epsilon_audited"] <= row["epsilon_accounted"] <= 2.0


# --- phased SGD: refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", [L2Ball(1.0), RealSpace()])
def test_a_vacuous_setting_names_the_first_n_that_works(constraint):
    with pytest.raises(VacuousSetting) as caught:
        planned("phased_sgd", Spec(40, 100, constraint=constraint), 0.1)
    enough = int(re.search(r"from n = (\d+)", str(caught.value)).group(1))
    assert planned("phased_sgd", Spec(enough, 100, constraint=constraint), 0.1).K >= 1
    with pytest.raises(VacuousSetting):
        planned("phased_sgd", Spec(enough - 1, 100, constraint=constraint), 0.1)
    assert planned("phased_sgd", Spec(40, 100, constraint=constraint), 0.1, eta=0.1).eta == 0.1


def test_a_smooth_loss_on_a_set_too_large_for_its_steps_names_the_first_n_that_works():
    wide = L2Ball(1e4)
    with pytest.raises(VacuousSetting, match="stable, which privacy rests on") as caught:
        planned("phased_sgd", Spec(1000, 2, Logistic(), wide), 100.0)
    enough = int(re.search(r"from n = (\d+)", str(caught.value)).group(1))
    assert planned("phased_sgd", Spec(enough, 2, Logistic(), wide), 100.0).eta / 4 * 0.25 <= 2
    with pytest.raises(VacuousSetting):
        planned("phased_sgd", Spec(enough - 1, 2, Logistic(), wide), 100.0)


@pytest.mark.parametrize(
    ("problem", "letters", "sentence"),
    [
        (Spec(1), {"eta": 0.1}, "no sample for its first phase at n = 1"),
        (Spec(100), {"K": 7}, "100 samples make 6 phases only"),
        (Spec(1000), {"theta": 3}, "was given theta, but on l2_ball"),
        (Spec(1000, loss=Logistic()), {"beta": 3.0}, "takes the smooth loss 'logistic' as it is: drop beta"),
        (Spec(1000), {"alpha": 0.1}, "its oracle is exact: drop alpha"),
        (Spec(1000), {"oracle": "printed"}, "use one of closed, bisection"),
    ],
)
def test_phased_sgd_refuses_letters_that_do_not_fit(problem, letters, sentence):
    with pytest.raises(UserError, match=sentence):
        planned("phased_sgd", problem, **letters)


# --- noisy Frank-Wolfe on losses with kinks --------------------------------------------------------------------------

SQUARE = Polytope([[3.0, 1.0], [-1.0, 3.0], [-3.0, -1.0], [1.0, -3.0], [0.5, 0.0]])


@pytest.mark.parametrize(
    ("constraint", "d", "J", "D", "longest"),
    [
        (L1Ball(2.0), 64, 128, 4.0, 2.0),
        (Simplex(2.0), 64, 64, 4.0, 2.0),
        (SQUARE, 2, 5, 8.0, 4.0),
    ],
)
def test_published_numbers_are_those_of_algorithm_5(constraint, d, J, D, longest):
    """Entries of at most R = 1, so that the l1 norm is the one of the theorem."""
    n, epsilon, delta = 30_000, 0.7, 1e-5
    problem = Spec(n, d, Pinball(0.2), constraint, row_norm=math.sqrt(d), row_sup=1.0)
    plan = planned("noisy_frank_wolfe", problem, epsilon, delta)
    L0, log = 0.8, math.log(1 / delta)
    assert math.floor(n * epsilon / (math.log(J) * math.log(n) * math.sqrt(log))) == plan.T
    assert plan.sigma == pytest.approx(3 * L0 * D * math.sqrt(8 * plan.T * log) / (n * epsilon))
    beta = L0 * math.sqrt(n * epsilon) / (D * log**0.25 * math.sqrt(math.log(J) * math.log(n)))
    assert plan.beta == pytest.approx(beta)
    assert (plan.step, plan.noise, plan.theorem) == ("bgm21", "laplace", "BGM21, Theorem 6")
    assert plan.events[0].sensitivity == pytest.approx(2 * longest * L0 / n)
    assert plan.gradient_evaluations == plan.T * n


def test_algorithm_5_spends_a_quarter_of_its_claim_and_gumbel_noise_half_as_much_as_laplace_noise():
    problem = Spec(2**16, 64, constraint=L1Ball(1.0))
    assert 0.2 <= certify(planned("noisy_frank_wolfe", problem))["epsilon_accounted"] <= 0.3
    laplace, gumbel = (
        planned("noisy_frank_wolfe", problem, variant="certified", noise=noise).sigma for noise in ("laplace", "gumbel")
    )
    assert 0.45 <= gumbel / laplace <= 0.6
    assert planned("noisy_frank_wolfe", problem, variant="practical").noise == "gumbel"


@pytest.mark.parametrize(("step", "numerator"), [("ttz15", 2), ("bgm21", 3)])
def test_without_noise_every_step_goes_towards_the_best_vertex_for_the_smoothed_gradient(step, numerator):
    X, y = rows(50, 3)
    problem = kinked(data=(X, y), constraint="l1_ball:0.8")
    plan = planned("noisy_frank_wolfe", problem, math.inf, T=9, step=step)
    assert plan.beta == pytest.approx(math.sqrt(9) / 1.6)
    output, _ = run_with_transcript(plan, problem)
    w = np.zeros(3)
    for t in range(1, 10):
        g = np.clip(plan.beta * (X @ w - y), -1, 1) @ X / 50
        v = np.zeros(3)
        j = np.argmax(np.abs(g))
        v[j] = -0.8 * np.sign(g[j])
        w = (1 - numerator / (t + 2)) * w + numerator / (t + 2) * v
    np.testing.assert_allclose(output[0], w, atol=1e-14)


def test_the_default_step_without_noise_begins_at_a_vertex():
    problem = kinked(constraint="l1_ball:0.8")
    result = execute(planned("noisy_frank_wolfe", problem, math.inf, T=1), problem, seed=0, replicates=[0])
    assert sorted(np.abs(result.w[0])) == pytest.approx([0, 0, 0, 0.8])


@pytest.mark.parametrize("loss", ["absolute", "hinge"])
def test_frank_wolfe_without_noise_comes_within_its_bound_of_the_optimum(loss):
    """2 beta R^2 D^2/(T + 2) for the envelope (Jaggi 2013), and L0^2/(2 beta) from there to the loss."""
    problem = kinked(200, 5, loss=loss, constraint="l1_ball:1.5")
    best = find_optimum(problem).objective
    for step in ("ttz15", "bgm21"):
        plan = planned("noisy_frank_wolfe", problem, math.inf, T=1000, step=step)
        excess = float(execute(plan, problem, seed=0, replicates=[0]).final_objective[0]) - best
        assert -1e-8 <= excess <= 2 * plan.beta * 9 / 1002 + 1 / (2 * plan.beta)
        assert excess <= 0.03


@pytest.mark.parametrize(
    ("constraint", "longest"), [(L1Ball(2.0), 2.0), (Simplex(2.0), 2.0), (Polytope([[3.0] * 4, [0.0] * 4]), 12.0)]
)
def test_rows_of_signs_move_the_values_of_vertices_by_the_stated_sensitivity(constraint, longest):
    """The l2 norm of such rows is sqrt(d), which the values of a unit vector do not see."""
    n, d = 10, 4
    problem = Spec(n, d, Absolute(), constraint, row_norm=2.0, row_sup=1.0)
    stated = planned("noisy_frank_wolfe", problem, T=3).events[0].sensitivity
    assert stated == pytest.approx(2 * longest / n)
    rng = np.random.default_rng(0)
    X, y = rng.choice([-1.0, 1.0], (n, d)), 0.1 * rng.normal(size=n)
    moved = []
    for row in (np.ones(d), *rng.choice([-1.0, 1.0], (30, d))):
        pair = []
        for label in (100.0, -100.0):
            X[0], y[0] = row, label
            risk = EmpiricalRisk(problem.spec, X, y, get_backend("cpu"))
            pair.append(constraint.vertex_values(np, risk.gradient(np.full((1, d), 0.1))))
        moved.append(np.max(np.abs(pair[0] - pair[1])))
    assert moved[0] == pytest.approx(stated)
    assert max(moved) <= stated * (1 + 1e-12)


def test_on_a_population_all_steps_look_at_the_same_n_samples():
    n, T = 300, 6
    problem = population("sparse", "l1_ball:1", n, features=8, atoms=40)
    plan = planned("noisy_frank_wolfe", problem, math.inf, T=T)
    output, ex = run_with_transcript(plan, problem, slots=3)
    assert (ex.samples_used, ex.gradient_evaluations) == (n, T * n)
    counts = n * ex._whole.shares
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-9)
    np.testing.assert_allclose(counts.sum(axis=0), n)
    _, X, y = problem.records()
    for k in range(3):
        repeated = np.repeat(np.arange(40), np.round(counts[:, k]).astype(int))
        spec = ProblemSpec(n, 8, Absolute(), Regularizer(), L1Ball(1.0), row_norm=math.sqrt(8), row_sup=1.0)
        plain = EmpiricalRisk(spec, X[repeated], y[repeated], get_backend("cpu"))
        same = execute(planned("noisy_frank_wolfe", plain, math.inf, T=T), plain, seed=0, replicates=[0])
        np.testing.assert_allclose(output[k], same.w[0], atol=1e-12)
    assert not np.allclose(counts[:, 0], counts[:, 1])


def test_frank_wolfe_with_kinks_names_the_first_n_that_works():
    with pytest.raises(VacuousSetting, match="BGM21 Algorithm 5") as caught:
        planned("noisy_frank_wolfe", Spec(100, constraint=L1Ball(1.0)), 0.1)
    enough = int(re.search(r"from n = (\d+)", str(caught.value)).group(1))
    assert planned("noisy_frank_wolfe", Spec(enough, constraint=L1Ball(1.0)), 0.1).T == 1
    with pytest.raises(VacuousSetting):
        planned("noisy_frank_wolfe", Spec(enough - 1, constraint=L1Ball(1.0)), 0.1)


@pytest.mark.parametrize(
    ("problem", "letters", "sentence"),
    [
        (Spec(1000, constraint=L2Ball(1.0)), {}, "for noise on the vertices of a polytope only"),
        (Spec(1000, constraint=L1Ball(1.0)), {"noise": "gaussian"}, "for noise on the vertices of a polytope only"),
        (
            Spec(1000, constraint=L2Ball(1.0)),
            {"noise": "gumbel"},
            "noise=gumbel selects a vertex, but l2_ball has none",
        ),
        (Spec(1000, loss=Logistic(), constraint=L1Ball(1.0)), {"beta": 2.0}, "takes the smooth loss 'logistic'"),
    ],
)
def test_frank_wolfe_refuses_what_it_cannot_smooth(problem, letters, sentence):
    with pytest.raises(UserError, match=sentence):
        planned("noisy_frank_wolfe", problem, **letters)


# --- baselines on losses with kinks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", ["l2_ball:0.5", "l1_ball:0.5"])
def test_noisy_gd_without_noise_keeps_its_regret_bound_towards_the_optimum(constraint):
    problem = kinked(200, 5, constraint=constraint)
    best = find_optimum(problem).objective
    plan = planned("noisy_gd", problem, math.inf, T=900)
    assert plan.step_size == pytest.approx(0.5 / math.sqrt(900))
    result = execute(plan, problem, seed=0, replicates=[0])
    excess = result.final_objective[0] - best
    # D G/sqrt(T), and one regret of at most 2 D G more for the mean over the points after the steps
    assert -1e-8 <= excess <= 0.5 / 30 + 1.0 / 900
    assert excess <= 0.1 * (result.objective[0, 0] - best)
    assert result.gradient_evaluations[-1] == 900 * 200


def test_noisy_gd_has_the_numbers_of_its_balance_and_steps_for_its_own_noise():
    n, d, epsilon, delta = 3000, 16, 0.5, 1e-6
    log = math.log(1 / delta)
    plan = planned("noisy_gd", Spec(n, d, constraint=L2Ball(2.0)), epsilon, delta)
    assert math.ceil(min(n, (n * epsilon) ** 2 / (d * log))) == plan.T == n
    assert plan.sigma == pytest.approx(math.sqrt(8 * n * log) / (n * epsilon))
    assert plan.step_size == pytest.approx(2 / math.sqrt(n * (1 + d * plan.sigma**2)))
    # c = 8 is zero-concentrated DP without its second term, and the exact account is below the claim.
    mu = 2 * math.sqrt(n) / (n * plan.sigma)
    assert certify(plan)["epsilon_accounted"] == pytest.approx(gaussian_epsilon(mu, delta), rel=1e-9)
    assert certify(plan)["epsilon_accounted"] < epsilon
    assert math.ceil((n * 0.05) ** 2 / (d * log)) == planned("noisy_gd", Spec(n, d), 0.05).T
    certified = planned("noisy_gd", Spec(n, d, constraint=L2Ball(2.0)), epsilon, delta, "certified")
    assert certified.step_size == pytest.approx(2 / math.sqrt(n * (1 + d * certified.sigma**2)))
    assert certified.sigma < plan.sigma
    practical = planned("noisy_gd", Spec(n, d, constraint=L2Ball(2.0)), epsilon, delta, "practical")
    assert (practical.T, practical.a) == (1000, 3.0)


def test_noisy_gd_names_the_first_n_that_works():
    with pytest.raises(VacuousSetting) as caught:
        planned("noisy_gd", Spec(100, 50), 0.1)
    enough = int(re.search(r"from n = (\d+)", str(caught.value)).group(1))
    assert planned("noisy_gd", Spec(enough, 50), 0.1).T >= 1
    with pytest.raises(VacuousSetting):
        planned("noisy_gd", Spec(enough - 1, 50), 0.1)


def test_dp_gd_refuses_kinks_and_dp_sgd_takes_them_in_every_variant():
    problem = kinked(400, 5, loss="hinge")
    with pytest.raises(UserError, match="dp_gd needs a smooth loss"):
        planned("dp_gd", problem)
    best = find_optimum(problem).objective
    for variant in ("published", "certified", "practical"):
        plan = planned("dp_sgd", problem, math.inf, variant=variant, T=2000, output="suffix")
        assert plan.step == "inverse_root"
        result = execute(plan, problem, seed=0, replicates=[0])
        assert result.final_objective[0] - best <= 0.1 * (result.objective[0, 0] - best)
    with pytest.raises(UserError, match=r"no constant step for the loss 'hinge' with kinks: give eta"):
        planned("dp_sgd", problem, step="constant")
