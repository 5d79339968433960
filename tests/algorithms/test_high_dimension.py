"""DP-AccMD (WYX17, Algorithm 3) and the methods of its Table 3: noisy mirror descent and noisy Frank-Wolfe."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import chi2
from support import Transcript, make_problem, rows

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.arrays import get_backend
from dprepro.errors import UserError, VacuousSetting
from dprepro.geometry import L1Ball, L2Ball
from dprepro.losses import Huber, Logistic, SoftLogistic
from dprepro.privacy.certificate import certify
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.regularizers import Regularizer
from dprepro.run import Execution, execute

NAMES = ("dp_acc_md", "noisy_mirror_descent", "noisy_frank_wolfe")
each_algorithm = pytest.mark.parametrize("name", NAMES)


def planned(name, problem, epsilon=1.0, delta=1e-3, variant="published", **letters):
    return get_algorithm(name).plan(Setting(problem.spec, epsilon, delta, variant), **letters)


def ball_problem(constraint="l1_ball:2.0", regularizer=0.0, **options):
    return make_problem(constraint=constraint, regularizer=regularizer, **options)


def many_scales(n=200, p=2000, radius=40.0, scales=8):
    """Soft-label logistic model on the l1 ball whose directions matter less and less: 1/2, 1/4, ... of the records.

    No minimum over the ball is below the truth's, for the gradient vanishes at the truth. Rows lie in more dimensions
    than there are records, so the objective is not strongly convex.
    """
    rng = np.random.default_rng(0)
    share = np.cumsum(0.5 ** np.arange(scales))
    k = np.searchsorted(share / share[-1], (np.arange(n) + 0.5) / n)
    X = rng.standard_normal((n, p))
    X *= math.sqrt(0.5) / np.linalg.norm(X, axis=1, keepdims=True)
    X[np.arange(n), k] += math.sqrt(0.5)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    truth = np.zeros(p)
    truth[:scales] = radius / scales * np.where(np.arange(scales) % 2 == 0, 1.0, -1.0)
    y = np.tanh(0.5 * (X @ truth))
    spec = ProblemSpec(n, p, SoftLogistic(), Regularizer(), L1Ball(radius))
    return EmpiricalRisk(spec, X, y, get_backend("cpu")), truth


def binding(n=200, p=2000, radius=10.0):
    """Logistic regression with more features than records; the constraint binds. Also its A = y x."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p)) * np.arange(1, p + 1) ** -0.5
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-9)
    y = np.where(X[:, :10] @ rng.standard_normal(10) > 0, 1.0, -1.0)
    spec = ProblemSpec(n, p, Logistic(), Regularizer(), L1Ball(radius))
    return EmpiricalRisk(spec, X, y, get_backend("cpu")), X * y[:, None]


def fista_optimum(A, radius):
    """Minimise mean log(1 + exp(-A w)) over the l1 ball by plain accelerated projection; certified by its dual gap."""
    n, p = A.shape
    smoothness = np.linalg.norm(A, 2) ** 2 / (4 * n)

    def gradient(w):
        return -(A.T @ (1 / (1 + np.exp(A @ w)))) / n

    def project(v):
        falling = np.sort(np.abs(v))[::-1]
        levels = (np.cumsum(falling) - radius) / np.arange(1, p + 1)
        level = max(0.0, levels[np.flatnonzero(falling > levels)[-1]])
        return np.sign(v) * np.maximum(np.abs(v) - level, 0)

    w = z = np.zeros(p)
    momentum = 1.0
    for _ in range(1000):
        new = project(z - gradient(z) / smoothness)
        momentum = 1.0 if (z - new) @ (new - w) > 0 else momentum
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        z = new + (momentum - 1) / following * (new - w)
        w, momentum = new, following
        g = gradient(w)
        gap = g @ w + radius * np.max(np.abs(g))
        if gap <= 1e-12:
            return w, float(np.mean(np.log1p(np.exp(-A @ w))))
    raise AssertionError(f"the reference is known only to {gap}")


def trajectory(name, problem, **letters):
    """Run without noise, one replicate: the rounds and the objective after them."""
    plan = planned(name, problem, epsilon=math.inf, **letters)
    ex = Execution(plan, problem, 0, [0])
    get_algorithm(name).run(plan, ex)
    ex.check(plan)
    rounds = np.array([point[0] for point in ex.trajectory])
    return plan, rounds, np.array([float(problem.objective(point[3])[0]) for point in ex.trajectory])


def slope(rounds, gaps):
    return np.polyfit(np.log(rounds), np.log(gaps), 1)[0]


def test_accelerated_mirror_descent_without_noise_closes_the_gap_like_one_over_T_squared():
    problem, truth = many_scales()
    assert np.max(np.abs(problem.gradient(truth[None]))) <= 1e-15
    best = float(problem.objective(truth[None])[0])
    plan, rounds, objective = trajectory("dp_acc_md", problem, T=1500, diameter="radius")
    gaps = objective - best
    seen = rounds >= 100
    assert np.all(gaps[seen] > 1e-5), "the floor is not reached, so every point belongs to the slope"
    assert slope(rounds[seen], gaps[seen]) <= -1.8
    # (76) without noise, a bound with all its constants
    start = problem.spec.constraint.bregman(np, truth[None], np.zeros((1, truth.size)))[0]
    assert np.all(gaps[1:] <= 8 * plan.smoothness * start / (rounds[1:] + 1) ** 2)
    # without acceleration the same fit sees the slower rate, even with six times the regret bound's step
    _, _, slower = trajectory("noisy_mirror_descent", problem, T=1500, eta=0.1)
    assert slope(rounds[seen], slower[seen] - best) >= -1.2


@pytest.fixture(scope="module")
def constrained():
    problem, A = binding()
    w, best = fista_optimum(A, 10.0)
    assert abs(np.sum(np.abs(w)) - 10.0) <= 1e-12, "the constraint must bind"
    assert float(problem.objective(w[None])[0]) == pytest.approx(best, abs=1e-14)
    return problem, w, best


@pytest.mark.parametrize("diameter", ["radius", "diameter"])
def test_accelerated_mirror_descent_without_noise_reaches_the_constrained_optimum(constrained, diameter):
    problem, w, best = constrained
    plan, rounds, objective = trajectory("dp_acc_md", problem, T=800, diameter=diameter)
    start = problem.spec.constraint.bregman(np, w[None], np.zeros((1, w.size)))[0]
    gaps = objective - best
    assert np.all(gaps[1:] <= 8 * plan.smoothness * start / (rounds[1:] + 1) ** 2)
    assert -1e-12 <= gaps[-1] <= 2e-4 * gaps[0]


def test_frank_wolfe_without_noise_keeps_its_bound_towards_the_constrained_optimum(constrained):
    """F(theta_t) - F* <= 2 curvature / (t + 2), Jaggi 2013, with the curvature bounded by L diameter^2."""
    problem, _, best = constrained
    for noise in ("laplace", "gaussian"):
        _, rounds, objective = trajectory("noisy_frank_wolfe", problem, T=600, noise=noise)
        gaps = objective - best
        assert np.all(gaps[1:] <= 2 * 0.25 * 20.0**2 / (rounds[1:] + 2))
        assert -1e-12 <= gaps[-1] <= 2e-3 * gaps[0]


def test_mirror_descent_without_noise_keeps_its_regret_bound_towards_the_constrained_optimum(constrained):
    problem, w, best = constrained
    start = problem.spec.constraint.bregman(np, w[None], np.zeros((1, w.size)))[0]
    for T, eta in ((400, None), (400, 5.0)):
        plan, _, objective = trajectory("noisy_mirror_descent", problem, T=T, **({"eta": eta} if eta else {}))
        gap = objective[-1] - best
        # The mean is over the points after the steps: one regret of at most G 2R more.
        assert gap <= start / (plan.eta * T) + 0.5 * plan.eta * 10.0**2 + 20.0 / T
        assert gap >= -1e-12
    assert gap <= 0.03 * (objective[0] - best)


@pytest.mark.parametrize("name", ["dp_acc_md", "noisy_mirror_descent", "noisy_frank_wolfe"])
def test_an_l2_term_is_part_of_the_objective(name):
    problem = ball_problem("l2_ball:0.7", regularizer=0.3, n=200)

    def both(w):
        return float(problem.objective(w[None])[0]), problem.gradient(w[None])[0] + 0.3 * w

    inside = {"type": "ineq", "fun": lambda w: 0.49 - w @ w, "jac": lambda w: -2 * w}
    best = minimize(both, np.zeros(7), jac=True, method="SLSQP", constraints=[inside], options={"ftol": 1e-14})
    letters = {"eta": 4.0} if name == "noisy_mirror_descent" else {}
    _, _, objective = trajectory(name, problem, T=3000, **letters)
    assert abs(objective[-1] - best.fun) <= 3e-3 * (objective[0] - best.fun)


@each_algorithm
def test_every_step_costs_n_gradients(name):
    problem = ball_problem(n=120)
    result = execute(planned(name, problem, T=7), problem, seed=0, replicates=[0])
    np.testing.assert_array_equal(result.gradient_evaluations, 120 * np.arange(8))


@each_algorithm
@pytest.mark.parametrize("constraint", ["l1_ball:0.3", "l2_ball:0.3"])
def test_points_stay_in_the_set_under_heavy_noise(name, constraint):
    problem = ball_problem(constraint)
    result = execute(planned(name, problem, epsilon=0.01, T=20), problem, seed=1, replicates=range(4))
    norms = problem.spec.constraint.minkowski(np, result.w)
    assert np.all(norms <= 1 + 1e-12)
    assert np.all(norms > 0.1), "the noise must move the points, else the test says nothing"


def run_with_transcript(name, problem, epsilon=1.0, **letters):
    plan = planned(name, problem, epsilon=epsilon, **letters)
    ex = Transcript(plan, problem, 5, [0, 1])
    return plan, get_algorithm(name).run(plan, ex), ex.draws


def logistic_gradient(X, y, w):
    return -(y / (1 + np.exp(y * (X @ w)))) @ X / len(y)


def onto_ball(v, radius):
    return v * min(1.0, radius / np.linalg.norm(v))


@pytest.mark.parametrize("noise", ["mirror", "both"])
@pytest.mark.parametrize("diameter", ["diameter", "radius"])
def test_acc_md_is_algorithm_3_line_for_line(noise, diameter):
    """On the l2 ball, where w = ||x||^2 / (2 R^2) and both steps are projections."""
    X, y = rows(60, 4)
    R = 1.5
    problem = make_problem(data=(X, y), constraint=f"l2_ball:{R}", regularizer=0.2)
    plan, output, draws = run_with_transcript("dp_acc_md", problem, epsilon=8.0, T=9, noise=noise, diameter=diameter)
    L = (0.25 + 0.2) * (2 * R if diameter == "diameter" else R) ** 2
    assert plan.smoothness == pytest.approx(L)
    for k in range(2):
        y_k = z_k = np.zeros(4)
        for step, b in enumerate(draws):
            alpha = (step + 2) / (4 * L)
            r = 2 / (step + 2)
            x = r * z_k + (1 - r) * y_k
            gradient = logistic_gradient(X, y, x) + 0.2 * x
            noisy = gradient + b[k]
            y_k = onto_ball(x - R**2 / L * (noisy if noise == "both" else gradient), R)
            z_k = onto_ball(z_k - R**2 * alpha * noisy, R)
        np.testing.assert_allclose(output[k], y_k, rtol=1e-9)


def test_mirror_descent_averages_the_points_after_its_steps():
    X, y = rows(60, 4)
    problem = make_problem(data=(X, y), constraint="l2_ball:1.5", regularizer=0.2)
    plan, output, draws = run_with_transcript("noisy_mirror_descent", problem, epsilon=8.0, T=9, eta=0.3)
    for k in range(2):
        z, points = np.zeros(4), []
        for b in draws:
            z = onto_ball(z - 1.5**2 * plan.eta * (logistic_gradient(X, y, z) + 0.2 * z + b[k]), 1.5)
            points.append(z)
        np.testing.assert_allclose(output[k], np.mean(points, axis=0), rtol=1e-9)


def test_frank_wolfe_with_gaussian_noise_steps_towards_the_minimiser_of_the_noisy_gradient():
    X, y = rows(60, 4)
    problem = make_problem(data=(X, y), constraint="l1_ball:1.5", regularizer=0.0)
    _, output, draws = run_with_transcript("noisy_frank_wolfe", problem, T=9, noise="gaussian")
    for k in range(2):
        theta = np.zeros(4)
        for t, b in enumerate(draws, start=1):
            noisy = logistic_gradient(X, y, theta) + b[k]
            vertex = np.zeros(4)
            j = np.argmax(np.abs(noisy))
            vertex[j] = -1.5 * np.sign(noisy[j])
            theta = (1 - 2 / (t + 2)) * theta + 2 / (t + 2) * vertex
        np.testing.assert_allclose(output[k], theta, rtol=1e-9)


def test_frank_wolfe_selects_vertices_with_the_probabilities_of_report_noisy_max():
    """Chi-square over 4 vertices, 3,200 replicates: false alarm below 1e-7 (and the seed is fixed)."""
    X = np.array([[0.8, 0.1], [0.5, -0.6], [0.9, 0.3]])
    problem = make_problem(data=(X, np.ones(3)), constraint="l1_ball:2.0", regularizer=0.0)
    plan = planned("noisy_frank_wolfe", problem, epsilon=4.0, T=1)
    w = execute(plan, problem, seed=0, replicates=range(3200)).w
    vertices = 2.0 * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    gradient = -0.5 * X.mean(axis=0)
    scores = -vertices @ gradient / plan.sigma  # in units of the Laplace scale

    def below(x):
        return 0.5 * math.exp(x) if x < 0 else 1 - 0.5 * math.exp(-x)

    def wins(v):
        others = [u for u in range(4) if u != v]

        def density(x):
            return 0.5 * math.exp(-abs(x - scores[v])) * math.prod(below(x - scores[u]) for u in others)

        return sum(quad(density, *ends)[0] for ends in ((-40, -2), (-2, 0), (0, 2), (2, 40)))

    expected = 3200 * np.array([wins(v) for v in range(4)])
    assert expected.sum() == pytest.approx(3200, rel=1e-6)
    assert expected.max() > 1.5 * expected.min(), "equal chances would hide a wrong sign"
    counts = np.array([np.sum(np.all(np.isclose(w, 2 / 3 * v), axis=1)) for v in vertices])
    assert counts.sum() == 3200
    assert chi2.sf(np.sum((counts - expected) ** 2 / expected), 3) > 1e-7


@pytest.mark.parametrize("name", ["dp_acc_md", "noisy_mirror_descent"])
def test_noise_has_the_planned_variance(name):
    """64 x 20 x 50 normals: the sum of squares over sigma^2 is chi-square; false alarm below 1e-7."""
    problem = ball_problem(d=50, n=60)
    plan = planned(name, problem, T=20)
    ex = Transcript(plan, problem, 3, list(range(64)))
    get_algorithm(name).run(plan, ex)
    draws = np.array(ex.draws) / plan.sigma
    assert draws.shape == (20, 64, 50)
    assert 5e-8 < chi2.cdf(np.sum(draws**2), draws.size) < 1 - 5e-8


def test_published_numbers_are_those_of_the_theorems():
    n, epsilon, delta, R = 5000, 0.5, 1e-3, 40.0
    spec = ProblemSpec(n, 300, Logistic(), Regularizer(), L1Ball(R))
    problem = EmpiricalRisk(spec, np.zeros((n, 300)), np.ones(n), get_backend("cpu"))
    log, width = math.log(1 / delta), L1Ball(R).gaussian_width(300)
    m = round(math.log(300))
    divergence = m * 300 ** (2 / (m + 1)) / 2
    for diameter, size in (("diameter", 2 * R), ("radius", R)):
        plan = planned("dp_acc_md", problem, epsilon, diameter=diameter)
        T = math.sqrt(0.25 * size**2 * math.sqrt(divergence) * n * epsilon / math.sqrt(log * (width**2 + size**2)))
        assert math.ceil(T) == plan.T
        assert plan.smoothness == 0.25 * size**2
        assert plan.sigma == pytest.approx(math.sqrt(plan.T * log) / (n * epsilon))
        assert math.ceil(3 * T) == planned("dp_acc_md", problem, epsilon, diameter=diameter, C=3.0).T
        bound = math.sqrt(divergence * log * (width**2 + size**2)) / (n * epsilon)
        assert plan.utility.value == pytest.approx(bound)
    plan = planned("noisy_frank_wolfe", problem, epsilon)
    assert math.ceil((0.25 * (2 * R) ** 2 * n * epsilon / R) ** (2 / 3)) == plan.T
    assert plan.sigma == pytest.approx(R * math.sqrt(8 * plan.T * log) / (n * epsilon))
    plan = planned("noisy_frank_wolfe", problem, epsilon, noise="gaussian")
    assert math.ceil((0.25 * (2 * R) ** 2 * n * epsilon / width) ** (2 / 3)) == plan.T
    assert plan.sigma == pytest.approx(math.sqrt(plan.T * log) / (n * epsilon))
    plan = planned("noisy_mirror_descent", problem, epsilon)
    assert math.ceil((n * epsilon * R / math.log(n)) ** 2 / (width**2 + R**2)) == plan.T
    assert plan.sigma == pytest.approx(math.sqrt(plan.T * log) / (n * epsilon))


def test_table_3_gradient_complexities_follow_from_the_numbers_of_steps():
    """Exponents of n: 3/2 (AccMD), 5/3 (Frank-Wolfe), 3 up to a squared logarithm (mirror descent)."""
    sizes = [10_000, 160_000]
    for name, exponent, slack in (("dp_acc_md", 1.5, 0.01), ("noisy_frank_wolfe", 5 / 3, 0.01)):
        counts = [planned(name, spec_only(n)).gradient_evaluations for n in sizes]
        assert math.log(counts[1] / counts[0], 16) == pytest.approx(exponent, abs=slack)
    counts = [planned("noisy_mirror_descent", spec_only(n)).gradient_evaluations * math.log(n) ** 2 for n in sizes]
    assert math.log(counts[1] / counts[0], 16) == pytest.approx(3, abs=0.01)


class spec_only:
    """A problem without data: all that a plan may know."""

    def __init__(self, n, constraint=None, loss=None):
        self.spec = ProblemSpec(n, 300, loss or Logistic(), Regularizer(), constraint or L1Ball(40.0))


def test_acc_md_as_published_is_not_certified_whatever_the_noise():
    problem = ball_problem()
    published = planned("dp_acc_md", problem, T=10)
    assert published.noise == "mirror"
    certificate = certify(published)
    assert certificate["epsilon_accounted"] == math.inf
    assert certificate["verdict"] == "not certified (a data-dependent quantity was used without noise)"
    assert not certificate["conditions"][0]["holds"]
    with pytest.raises(UserError, match="used without noise"):
        planned("dp_acc_md", problem, variant="certified", T=10, noise="mirror")


def test_one_published_step_tells_two_neighbours_apart_whatever_the_noise():
    X, y = rows(60, 4)
    flipped = y.copy()
    flipped[0] = -y[0]
    ends = []
    for labels in (y, flipped):
        problem = make_problem(data=(X, labels), constraint="l1_ball:2.0", regularizer=0.0)
        published, private = (planned("dp_acc_md", problem, T=1, noise=noise) for noise in ("mirror", "both"))
        w = execute(published, problem, seed=2, replicates=range(20)).w
        assert np.all(w == w[0]), "no noise reaches the released point"
        assert len(np.unique(execute(private, problem, seed=2, replicates=range(20)).w, axis=0)) == 20
        ends.append(w[0])
    assert not np.allclose(ends[0], ends[1])


@each_algorithm
@pytest.mark.parametrize("variant", ["certified", "practical"])
def test_calibrated_variants_spend_what_they_claim_and_hardly_less(name, variant):
    plan = planned(name, ball_problem(n=1000), epsilon=1.0, variant=variant, T=30)
    assert getattr(plan, "noise", "both") != "mirror"
    certificate = certify(plan)
    assert 0.99 <= certificate["epsilon_accounted"] <= 1.0
    assert certificate["verdict"] == "certified"
    assert all(condition["holds"] for condition in certificate["conditions"])


def test_practical_steps_are_few_and_vacuity_is_judged_by_the_theorem():
    problem = spec_only(2000)
    assert planned("dp_acc_md", problem, variant="practical").T > planned("dp_acc_md", problem, variant="certified").T
    assert planned("noisy_mirror_descent", problem, variant="practical", epsilon=10.0).T == 300
    published, practical = (planned("noisy_frank_wolfe", problem, variant=v) for v in ("published", "practical"))
    assert 1 <= practical.T < 0.01 * published.T


def test_replacing_a_record_moves_the_values_of_the_vertices_by_the_stated_sensitivity():
    """Linear losses in opposite directions reach the bound 2 R G / n; random neighbours stay below it."""
    n, R = 10, 3.0
    spec = ProblemSpec(n, 4, Huber(1.0), Regularizer(), L1Ball(R), label_bound=1e6)
    rng = np.random.default_rng(0)
    X, y = rows(n, 4)[0], 1e6 * rng.choice([-1.0, 1.0], n)
    event = get_algorithm("noisy_frank_wolfe").plan(Setting(spec, 1.0, 1e-3), T=3).events[0]
    assert event.sensitivity == pytest.approx(2 * R / n)
    moved = []
    for row in (np.eye(4)[0], *rows(50, 4, seed=1)[0]):
        pair = []
        for label in (1e6, -1e6):
            X[0], y[0] = row, label
            problem = EmpiricalRisk(spec, X, y, get_backend("cpu"))
            pair.append(spec.constraint.vertex_values(np, problem.gradient(rng.uniform(-0.5, 0.5, (1, 4)))))
        moved.append(np.max(np.abs(pair[0] - pair[1])))
    assert moved[0] == pytest.approx(event.sensitivity)
    assert max(moved) <= event.sensitivity * (1 + 1e-12)


@each_algorithm
def test_vacuous_setting_names_the_first_n_that_works(name):
    small = L1Ball(0.02)
    with pytest.raises(VacuousSetting) as caught:
        planned(name, spec_only(20, small), epsilon=0.01)
    enough = int(re.search(r"from n = (\d+)", str(caught.value)).group(1))
    assert planned(name, spec_only(enough, small), epsilon=0.01).T >= 1
    with pytest.raises(VacuousSetting):
        planned(name, spec_only(enough - 1, small), epsilon=0.01)


@each_algorithm
def test_an_unbounded_set_and_an_l1_term_are_refused(name):
    with pytest.raises(UserError, match="needs a bounded constraint set"):
        planned(name, ball_problem(None))
    if name != "noisy_mirror_descent":  # which takes a subgradient
        with pytest.raises(UserError, match="needs a smooth regularizer"):
            planned(name, ball_problem(regularizer={"l1": 0.1}))


def test_mirror_descent_adds_a_subgradient_of_an_l1_term():
    problem = ball_problem(regularizer={"l1": 0.3, "l2": 0.1})
    plan = planned("noisy_mirror_descent", problem, epsilon=math.inf, T=3, eta=0.2)
    z, total = np.zeros((1, problem.spec.d)), 0.0
    for _ in range(3):
        nabla = problem.gradient(z) + 0.1 * z + 0.3 * np.sign(z)
        z = problem.spec.constraint.mirror_step(np, z, 0.2 * nabla)
        total = total + z
    np.testing.assert_allclose(execute(plan, problem, seed=0, replicates=[0]).w, total / 3, rtol=1e-9)


def test_frank_wolfe_takes_the_noise_that_suits_the_set():
    assert planned("noisy_frank_wolfe", ball_problem("l1_ball:1.0")).noise == "laplace"
    assert planned("noisy_frank_wolfe", spec_only(1000, L2Ball(1.0))).noise == "gaussian"
    with pytest.raises(UserError, match="l2_ball has none"):
        planned("noisy_frank_wolfe", ball_problem("l2_ball:1.0"), noise="laplace")
