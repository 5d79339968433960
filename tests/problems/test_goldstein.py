"""Certificates of Goldstein stationarity against functions whose answer is known exactly."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprepro import datasets
from dprepro.arrays import get_backend, strict_backend
from dprepro.errors import RunFailed, UserError
from dprepro.metrics import GOLDSTEIN
from dprepro.problems import goldstein
from dprepro.problems.goldstein import certificate, min_norm_weights, slack_of
from dprepro.run import judged_points
from dprepro.stages.dataset import arrays_of, facts_of
from dprepro.stages.problem import make_problem


@dataclass(frozen=True)
class Function:
    """A function by its gradient alone."""

    gradient: object


@dataclass(frozen=True)
class Arrangement:
    """F(w) = sum_j c_j |<a_j, w> - b_j| + <c, w>: linear on the cells of lines. A (m, d), b (m,), weights (m,)."""

    A: np.ndarray
    b: np.ndarray
    weights: np.ndarray
    c: np.ndarray

    def gradient(self, W):
        return (self.weights * np.sign(W @ self.A.T - self.b)) @ self.A + self.c


def arrangement(d, lines, seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((lines, d))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    return Arrangement(A, rng.uniform(-1, 1, lines), rng.uniform(-1, 1, lines) / lines, rng.uniform(-0.5, 0.5, d))


def shortest(gradients):
    """Return the length of the shortest combination by an independent way: away-step Frank-Wolfe on few vectors."""
    gradients = np.unique(np.round(gradients, 12), axis=0)
    weights = np.zeros(len(gradients))
    weights[np.argmin(np.sum(gradients**2, axis=1))] = 1.0
    for _ in range(20_000):
        x = weights @ gradients
        scores = gradients @ x
        best, worst = np.argmin(scores), np.argmax(np.where(weights > 0, scores, -np.inf))
        if x @ x - scores[best] < 1e-14:
            break
        step = gradients[best] - gradients[worst]
        share = min(weights[worst], -(step @ x) / max(step @ step, 1e-300))
        weights[best] += share
        weights[worst] -= share
    return np.linalg.norm(weights @ gradients)


def exact_in_the_plane(f, w, radius, tiny=1e-7):
    """Return the answer for an arrangement in two dimensions, from every cell that meets the ball.

    Each cell has a corner in the ball, an end of a line on the circle, or is the only one. All sectors at all these
    points are visited.
    """
    turned = np.stack([-f.A[:, 1], f.A[:, 0]], axis=1)
    special = [np.linalg.solve(f.A[[i, j]], f.b[[i, j]]) for i, j in itertools.combinations(range(len(f.b)), 2)]
    for a, b, along in zip(f.A, f.b, turned, strict=True):
        foot = w + (b - a @ w) * a
        rest = radius**2 - np.sum((foot - w) ** 2)
        special += [foot + sign * math.sqrt(rest) * along for sign in (-1, 1)] if rest > 0 else []
    special = [w, *(p for p in special if np.linalg.norm(p - w) <= radius * (1 + 1e-12))]
    angles = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    around = tiny * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = np.concatenate([p + around for p in special])
    return shortest(f.gradient(points[np.linalg.norm(points - w, axis=1) <= radius]))


# Functions with a known answer.


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_in_one_dimension_the_certificate_is_exact(seed):
    """Every piece counts from below; pieces shorter than a thirteenth of the ball may be missed."""
    f, radius = arrangement(1, 6, seed), 0.4
    w = np.random.default_rng(seed + 1).uniform(-1, 1)
    kinks = f.b / f.A[:, 0]
    ends = np.sort(np.concatenate([[w - radius, w + radius], kinks[np.abs(kinks - w) < radius]]))
    slopes = f.gradient((0.5 * (ends[1:] + ends[:-1]))[:, None])[:, 0]
    exact, missed = (max(0.0, np.min(s), -np.max(s)) for s in (slopes, slopes[np.diff(ends) > 0.06]))
    found = certificate(f, np.array([[w]]), radius).bound[0]
    assert exact - 1e-12 <= found <= missed + 1e-12


def test_in_two_dimensions_the_certificate_is_exact_on_piecewise_linear_functions():
    """Thirty instances of eight lines: never below the answer, and on it but for slivers of cells."""
    over = []
    for seed in range(30):
        f = arrangement(2, 8, seed)
        w = np.random.default_rng(1000 + seed).uniform(-0.5, 0.5, 2)
        exact = exact_in_the_plane(f, w, 0.5)
        found = certificate(f, w[None], 0.5).bound[0]
        assert found >= exact - 1e-7
        over.append(found - exact)
    assert np.max(over) <= 0.03
    assert np.mean(np.array(over) < 1e-6) >= 0.8


@pytest.mark.parametrize("d", [2, 5, 20, 50])
def test_the_largest_coordinate_is_stationary_to_one_over_root_d_at_the_origin(d):
    largest = Function(lambda W: np.eye(d)[np.argmax(W, axis=1)])
    found = certificate(largest, np.zeros((1, d)), 0.3)
    assert found.bound[0] == pytest.approx(1.0 / math.sqrt(d), rel=1e-9)


@pytest.mark.parametrize(("d", "delta", "flipped"), [(2, 0.8, 1), (3, 0.65, 2), (5, 0.75, 1), (5, 0.6, 2)])
def test_the_l1_norm_is_bounded_by_as_many_flipped_signs_as_the_ball_reaches(d, delta, flipped):
    """F = ||w||_1/sqrt(d) at (delta, ..., delta): k = floor(r^2/delta^2) signs flip, and the answer is 1 - 2 k/d."""
    assert flipped == math.floor(1.0 / delta**2)
    l1 = Function(lambda W: np.sign(W) / math.sqrt(d))
    found = certificate(l1, np.full((1, d), delta), 1.0)
    assert found.bound[0] == pytest.approx(max(0.0, 1.0 - 2.0 * flipped / d), abs=1e-9)


@pytest.mark.parametrize("d", [10, 20, 50])
def test_where_only_sparse_moves_help_the_bound_is_loose_but_an_upper_one(d):
    delta = 1.0 / math.sqrt(0.25 * d)
    exact = 1.0 - 2.0 * math.floor(1.0 / delta**2 + 1e-9) / d
    l1 = Function(lambda W: np.sign(W) / math.sqrt(d))
    found = certificate(l1, np.full((1, d), delta * 1.001), 1.0)
    assert exact < found.bound[0] < 1.0


def spiked(a, c, d):
    """F = a w_1 + c ||(w_2, ..., w_d)||."""

    def gradient(W):
        rest = np.concatenate([np.zeros((len(W), 1)), W[:, 1:]], axis=1)
        lengths = np.linalg.norm(rest, axis=1, keepdims=True)
        return c * rest / np.where(lengths > 0, lengths, 1.0) + a * np.eye(d)[0]

    return Function(gradient)


@pytest.mark.parametrize("d", [3, 10, 50])
@pytest.mark.parametrize("b", [0.4, 1.3, 3.0])
def test_with_an_axis_the_answer_of_a_cone_is_found(d, b):
    """The rest turns by an angle of sine r/b: the answer is sqrt(a^2 + c^2 (1 - r^2/b^2)), and |a| for b <= r."""
    a, c, radius = 0.2, 0.5, 1.0
    exact = math.sqrt(a**2 + c**2 * max(0.0, 1.0 - (radius / b) ** 2))
    w = np.zeros((2, d))
    w[:, 0], w[0, 1], w[1, 1:] = 3.0, b, b / math.sqrt(d - 1)
    found = certificate(spiked(a, c, d), w, radius, axis=np.eye(d)[0])
    assert np.all(found.bound >= exact - 1e-12)
    np.testing.assert_allclose(found.bound, exact, rtol=1e-3)
    everywhere = certificate(spiked(a, c, d), w, radius)
    assert np.all(everywhere.bound >= exact - 1e-12)
    assert np.all(everywhere.bound <= 1.1 * exact)


POPULATIONS = {
    "capped_absolute": {},
    "ramp:0.3": {"share": 0.8, "outliers": 0.0},
    "phase:2": {"gap": 3.0},
}


def on_a_grid(risk, w, radius, steps=25, on_sphere=3000):
    """Return the answer for a risk of w_1 and the rest's length from a grid in the ball, and the largest gradient.

    The shortest element of a hull has the length max over unit vectors u of min <g, u>; 720 of them are tried, which
    leaves out 1e-5 of it. The grid leaves out gradients, so that the answer may be too large.
    """
    line = np.linspace(-1, 1, steps)
    inner = np.stack(np.meshgrid(line, line, line[steps // 2 :], indexing="ij"), axis=-1).reshape(-1, 3)
    sphere = np.random.default_rng(1).standard_normal((on_sphere, 3))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    moves = radius * np.concatenate([inner[np.linalg.norm(inner, axis=1) <= 1], sphere])
    along = np.linalg.norm(w[1:]) + moves[:, 1]
    rho = np.hypot(along, moves[:, 2])
    profile = risk.profile(w[0] + moves[:, 0], rho)
    gradients = np.stack([profile.first, profile.across * along / np.where(rho > 0, rho, 1.0)], axis=1)
    angles = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    least = np.min(gradients @ np.stack([np.cos(angles), np.sin(angles)]), axis=0)
    return max(0.0, np.max(least)), np.max(np.hypot(profile.first, profile.across))


def spiked_points(loss, d):
    """Return a population and sixteen points on the way to its minimum and beyond it."""
    data = datasets.load("population_spiked", rows=10, features=d, **POPULATIONS[loss])
    wanted = {"loss": loss, "regularizer": 0.0, "constraint": None}
    risk = make_problem(wanted, facts_of(data), arrays_of(data), get_backend("cpu", "float64"))
    rng = np.random.default_rng(1)
    W = rng.standard_normal((16, d))
    W[:, 0] = 0.0
    W *= rng.uniform(0, 4, (16, 1)) / np.linalg.norm(W, axis=1, keepdims=True)
    W[:, 0] = rng.uniform(0, 9, 16)
    return risk, W


@pytest.mark.parametrize("loss", POPULATIONS)
@pytest.mark.parametrize("d", [8, 32])
@pytest.mark.parametrize(("radius", "share"), [(0.2, 0.003), (2.0, 0.02)])
def test_on_spiked_populations_the_bound_is_an_upper_one_and_has_the_stated_accuracy(loss, d, radius, share):
    """The grid's own error is below 0.002."""
    risk, W = spiked_points(loss, d)
    answers, largest = np.array([on_a_grid(risk, w, radius) for w in W]).T
    over = (certificate(risk, W, radius).bound - answers) / largest
    assert np.all(over >= -0.002)
    assert np.all(over <= share)


@pytest.mark.parametrize("d", [10, 50])
def test_without_an_axis_aimed_gradients_are_within_a_twelfth_of_the_largest_and_random_ones_are_not(d):
    """Capped absolute regression; the largest gradient is the unit. Only the gradient of the risk is given away."""
    risk, W = spiked_points("capped_absolute", d)
    blind = Function(risk.gradient)
    most = []
    for radius in (0.5, 1.0, 2.0):
        answers, largest = np.array([on_a_grid(risk, w, radius) for w in W]).T
        aimed = (certificate(blind, W, radius).bound - answers) / largest
        random = (certificate(blind, W, radius, samples=512, rounds=0).bound - answers) / largest
        assert np.all(aimed >= -0.002)
        most.append((np.max(aimed), np.max(random)))
    assert np.max(most, axis=0)[0] <= 1.0 / 12.0
    assert np.max(most, axis=0)[1] >= 0.25


def test_on_the_axis_itself_any_plane_will_do():
    w = np.zeros((1, 6))
    w[0, 0] = 2.0
    found = certificate(spiked(0.3, 0.5, 6), w, 0.5, axis=np.eye(6)[0])
    assert found.bound[0] == pytest.approx(0.3, rel=1e-9)


def test_an_axis_in_any_direction_gives_what_a_rotation_gives():
    d, rng = 7, np.random.default_rng(3)
    turn, _ = np.linalg.qr(rng.standard_normal((d, d)))
    plain = spiked(0.2, 0.5, d)
    turned = Function(lambda W: plain.gradient(W @ turn) @ turn.T)
    w = np.concatenate([[2.0], 0.6 * np.ones(d - 1)])
    axis = turn[:, 0]
    one = certificate(plain, w[None], 1.0, axis=np.eye(d)[0]).bound
    other = certificate(turned, (turn @ w)[None], 1.0, axis=axis).bound
    np.testing.assert_allclose(one, other, rtol=2e-3)


def test_a_risk_with_an_axis_needs_no_other():
    @dataclass(frozen=True)
    class WithAxis(Function):
        axis: np.ndarray

    plain, w = spiked(0.2, 0.5, 6), np.array([[1.0, 0.8, 0.8, 0.8, 0.0, 0.0]])
    found = certificate(WithAxis(plain.gradient, np.eye(6)[0]), w, 1.0)
    assert np.array_equal(found.bound, certificate(plain, w, 1.0, axis=np.eye(6)[0]).bound)
    assert found.bound[0] < certificate(plain, w, 1.0).bound[0]


def test_a_function_without_that_symmetry_is_refused():
    with pytest.raises(UserError, match="leave out the axis"):
        certificate(arrangement(5, 6, 0), np.ones((2, 5)), 0.5, axis=np.eye(5)[0])


# What a certificate promises.


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_bound_is_the_length_of_a_combination_of_gradients_in_the_ball(seed, d):
    """The gradients that were looked at are written down: all in the ball, and none of their hull is much shorter."""
    f, seen = arrangement(d, 5, seed), []

    def gradient(W):
        seen.append(W)
        return f.gradient(W)

    w = np.random.default_rng(seed).uniform(-1, 1, d)
    found = certificate(Function(gradient), w[None], 0.7, rounds=2)
    points = np.concatenate(seen)
    assert len(points) == goldstein.SAMPLES + 2 * goldstein._ADDED
    assert np.all(np.linalg.norm(points - w, axis=1) <= 0.7 * (1 + 1e-12))
    gradients = f.gradient(points)
    assert found.bound[0] + 1e-9 >= np.linalg.norm(min_norm_weights(gradients) @ gradients)
    assert found.bound[0] <= np.min(np.linalg.norm(gradients, axis=1)) + 1e-9


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([2, 8, 20]))
def test_more_rounds_and_more_samples_never_give_a_larger_bound(seed, d):
    f, w = arrangement(d, 10, seed), np.zeros((1, d))
    by_rounds = [certificate(f, w, 1.0, rounds=rounds, seed=seed).bound[0] for rounds in (0, 1, 2, 4)]
    by_samples = [certificate(f, w, 1.0, samples=samples, rounds=0).bound[0] for samples in (1, 4, 16, 64, 256)]
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(by_rounds))
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(by_samples))


@pytest.mark.parametrize("d", [10, 50])
def test_aimed_gradients_are_worth_more_than_as_many_random_ones(d):
    """A cone, whose answer is known: random gradients of many dimensions turn by small angles only."""
    w = np.concatenate([[3.0], np.full(d - 1, 1.3 / math.sqrt(d - 1))])[None]
    exact = math.sqrt(0.2**2 + 0.5**2 * (1.0 - 1.0 / 1.3**2))
    aimed = certificate(spiked(0.2, 0.5, d), w, 1.0)
    random = certificate(
        spiked(0.2, 0.5, d), w, 1.0, samples=goldstein.SAMPLES + goldstein.ROUNDS * goldstein._ADDED, rounds=0
    )
    assert exact <= aimed.bound[0] < exact + 0.6 * (random.bound[0] - exact)


def test_a_smooth_function_on_a_small_ball_has_the_bound_of_its_gradient():
    quadratic = Function(lambda W: W)
    W = np.array([[3.0, 4.0], [0.0, 1.0]])
    found = certificate(quadratic, W, 1e-6)
    np.testing.assert_allclose(found.bound, [5.0, 1.0], rtol=1e-5)
    assert np.all(found.bound <= [5.0, 1.0])


def test_points_have_the_same_bound_in_any_company(monkeypatch):
    f = arrangement(4, 8, 2)
    W = np.random.default_rng(0).uniform(-1, 1, (9, 4))
    together = certificate(f, W, 0.4)
    monkeypatch.setattr(goldstein, "_BLOCK", 1)
    alone = np.concatenate([certificate(f, w[None], 0.4).bound for w in W])
    np.testing.assert_allclose(together.bound, alone, rtol=1e-9, atol=1e-12)
    assert together.bound.shape == together.slack.shape == (9,)


def test_a_risk_on_another_backend_is_asked_in_its_own_arrays():
    backend = strict_backend()

    class OnDevice:
        backend = None

        def gradient(self, W):
            return self.backend.xp.sign(W)

    risk = OnDevice()
    risk.backend = backend
    found = certificate(risk, np.full((2, 2), 0.5), 0.8)
    np.testing.assert_allclose(found.bound, 0.0, atol=1e-9)


# The solver.


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 12), st.sampled_from([0.0, 1.0, 10.0]))
def test_the_weights_are_those_of_the_shortest_combination(seed, m, d, shift):
    rng = np.random.default_rng(seed)
    gradients = rng.standard_normal((m, d))
    gradients[:, 0] += shift
    gradients = np.concatenate([gradients, gradients[: m // 2]])  # repeated gradients are common
    weights = min_norm_weights(gradients)
    assert np.all(weights >= 0.0)
    assert np.sum(weights) == pytest.approx(1.0)
    x = weights @ gradients
    # Optimality: every gradient has at least the component |x| along x.
    assert np.min(gradients @ x) >= x @ x - 1e-8 * (1.0 + shift) ** 2
    assert slack_of(gradients, weights) <= 1e-7 * np.max(np.linalg.norm(gradients, axis=1))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 30), st.sampled_from([0.0, 0.5, 3.0, 1e4]))
def test_in_the_plane_all_points_side_by_side_have_the_weights_of_each_alone(seed, m, shift):
    """Random gradients, some repeated, on one line or zero."""
    rng = np.random.default_rng(seed)
    gradients = rng.standard_normal((7, m, 2)) + np.array([shift, 0.0])
    gradients[1] = np.round(gradients[1])
    gradients[2, :, 1] = 0.0
    gradients[3] = gradients[3, :1]
    gradients[4] = 0.0
    gradients[5, : m // 2] *= 1e-9
    weights, found = goldstein._plane_weights(gradients)
    assert np.all(weights >= 0.0)
    np.testing.assert_allclose(np.sum(weights, axis=1), 1.0)
    for rows, own, good in zip(gradients, weights, found, strict=True):
        alone = np.linalg.norm(min_norm_weights(rows) @ rows)
        longest = np.max(np.linalg.norm(rows, axis=1))
        assert good
        assert abs(np.linalg.norm(own @ rows) - alone) <= 1e-7 * longest


def test_what_is_not_found_side_by_side_is_found_alone(monkeypatch):
    f, W = arrangement(2, 8, 1), np.random.default_rng(0).uniform(-0.5, 0.5, (5, 2))
    plain = certificate(f, W, 0.5)
    monkeypatch.setattr(goldstein, "_WOLFE_STEPS", 1)
    np.testing.assert_allclose(certificate(f, W, 0.5).bound, plain.bound, atol=1e-3)
    assert np.all(certificate(f, W, 0.5).slack <= 1e-7)


def test_the_slack_bounds_what_better_weights_would_gain():
    gradients = np.array([[1.0, 1.0], [1.0, -1.0], [3.0, 0.0]])
    for weights in np.random.default_rng(0).dirichlet(np.ones(3), size=50):
        length = np.linalg.norm(weights @ gradients)
        assert length - 1.0 <= slack_of(gradients, weights) + 1e-12 <= length + 1e-12
    assert slack_of(gradients, np.array([0.5, 0.5, 0.0])) == pytest.approx(0.0, abs=1e-12)


def test_gradients_that_vanish_are_stationary():
    assert np.array_equal(min_norm_weights(np.zeros((4, 3))), np.eye(4)[0])
    assert certificate(Function(np.zeros_like), np.ones((2, 3)), 1.0).bound.tolist() == [0.0, 0.0]


def _gives_up(matrix, target, maxiter):
    raise RuntimeError("Maximum number of iterations reached.")


@pytest.mark.parametrize(
    "solver",
    [_gives_up, lambda matrix, target, maxiter: (np.zeros(matrix.shape[1]), 1.0),
     lambda matrix, target, maxiter: (np.eye(matrix.shape[1])[0], 1.0)],
)  # fmt: skip
def test_where_the_solver_finds_nothing_good_the_shortest_gradient_is_a_bound(solver, monkeypatch):
    """It gives up, finds no weights, or those of a longer gradient: a valid and looser bound, and its slack says so."""
    gradients = np.array([[3.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, -1.0, 0.5]])
    best = np.linalg.norm(min_norm_weights(gradients) @ gradients)
    f, W = arrangement(3, 6, 1), np.zeros((2, 3))
    plain = certificate(f, W, 0.7)
    monkeypatch.setattr("scipy.optimize.nnls", solver)
    weights = min_norm_weights(gradients)
    np.testing.assert_array_equal(weights, np.eye(3)[1])
    assert np.linalg.norm(gradients[1]) - best <= slack_of(gradients, weights)
    loose = certificate(f, W, 0.7)
    assert np.all(plain.bound <= loose.bound)
    assert np.all(loose.bound - loose.slack <= plain.bound + 1e-9)


def test_a_gradient_that_is_not_finite_is_an_error():
    with pytest.raises(RunFailed, match="not finite"):
        certificate(Function(lambda W: np.full_like(W, np.nan)), np.ones((1, 2)), 1.0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"radius": 0.0}, "radius of a Goldstein subdifferential"),
        ({"samples": 0}, "at least 1 sample"),
        ({"rounds": -1}, "at least 1 sample, 0 rounds"),
        ({"W": np.ones(3)}, r"points, features"),
        ({"axis": np.ones(3)}, "no unit vector of 3 numbers"),
    ],
)
def test_what_makes_no_sense_is_refused(options, sentence):
    given = {"W": np.ones((1, 3)), "radius": 1.0, **options}
    with pytest.raises(UserError, match=sentence):
        certificate(Function(np.sign), given.pop("W"), given.pop("radius"), **given)


@pytest.mark.parametrize("extra", [{"regularizer": 0.5}, {"regularizer": {"l1": 0.5}}, {"constraint": "l2_ball:1.0"}])
def test_the_metric_is_that_of_the_loss_and_refuses_what_would_change_its_stationary_points(extra):
    data = datasets.load("population_spiked", features=3, rows=10)
    wanted = {"loss": "capped_absolute:8", "regularizer": 0.0, "constraint": None, **extra}
    risk = make_problem(wanted, facts_of(data), arrays_of(data), get_backend("cpu", "float64"))
    with pytest.raises(UserError, match="drop the regularizer and the constraint"):
        judged_points(risk, np.zeros((1, 3)), GOLDSTEIN, 1.0)
