from __future__ import annotations

import dataclasses
import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog, minimize

from dprepro import geometry
from dprepro.arrays import get_backend, strict_backend
from dprepro.errors import NotConverged, UserError
from dprepro.geometry import L1Ball, L2Ball, LpBall, Polytope, RealSpace, Simplex, get_set
from dprepro.losses import Squared
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.regularizers import Regularizer, get_regularizer

BACKENDS = (get_backend("cpu"), strict_backend())
vectors = arrays(np.float64, (3, 5), elements=st.floats(-50, 50, allow_subnormal=False))
radii = st.floats(0.1, 20)
strengths = st.floats(0, 5)


def project(backend, constraint, V):
    return backend.to_host(constraint.project(backend.xp, backend.asarray(V)))


@given(vectors, radii, st.sampled_from([L1Ball, L2Ball]))
def test_projection_lands_in_the_set_and_is_the_nearest_point(V, radius, kind):
    """Obtuse angle criterion: <v - P v, u - P v> <= 0 for every u of the set, here its extreme points."""
    ball = kind(radius)
    for backend in BACKENDS:
        P = project(backend, ball, V)
        assert np.all(backend.to_host(ball.excess(backend.xp, backend.asarray(P))) <= 1e-12 * (1 + radius))
        slack = V - P
        order = np.inf if kind is L1Ball else 2
        support = radius * np.linalg.norm(slack, ord=order, axis=1)
        assert np.all(support - np.sum(slack * P, axis=1) <= 1e-9 * (1 + np.sum(V * V, axis=1)))


@given(vectors, radii, st.sampled_from([L1Ball, L2Ball]))
def test_projection_leaves_points_of_the_set_alone(V, radius, kind):
    ball = kind(radius)
    once = project(BACKENDS[0], ball, V)
    np.testing.assert_allclose(project(BACKENDS[0], ball, once), once, atol=1e-12 * (1 + radius))


@given(vectors, vectors, radii, st.sampled_from([L1Ball, L2Ball]))
def test_projection_does_not_expand_distances(U, V, radius, kind):
    ball = kind(radius)
    moved = project(BACKENDS[0], ball, U) - project(BACKENDS[0], ball, V)
    assert np.all(np.linalg.norm(moved, axis=1) <= np.linalg.norm(U - V, axis=1) * (1 + 1e-12) + 1e-12)


@given(vectors, strengths, strengths, st.floats(0.01, 3))
def test_prox_satisfies_its_optimality_condition(V, l1, l2, eta):
    """v - x = eta (l1 s + l2 x) with s a subgradient of the absolute value at x."""
    regularizer = Regularizer(l1=l1, l2=l2)
    for backend in BACKENDS:
        X = backend.to_host(regularizer.prox(backend.xp, backend.asarray(V), eta))
        rest = V - X - eta * l2 * X
        assert np.all(np.abs(rest) <= eta * l1 + 1e-10)
        moved = X != 0
        np.testing.assert_allclose(rest[moved], (eta * l1 * np.sign(X))[moved], atol=1e-10)


@pytest.mark.parametrize("constraint", [L1Ball(0.7), L2Ball(0.7)])
@pytest.mark.parametrize(
    "regularizer", [Regularizer(), Regularizer(l2=0.8), Regularizer(l1=0.3), Regularizer(0.3, 0.8)]
)
def test_prox_followed_by_projection_is_the_prox_of_the_sum(constraint, regularizer):
    """Against a general solver: minimise 1/2 |x - v|^2 + eta r(x) over the ball, x split into positive parts."""
    rng = np.random.default_rng(4)
    eta = 0.6
    V = rng.normal(size=(3, 4))
    spec = ProblemSpec(2, 4, Squared(), regularizer, constraint)
    problem = EmpiricalRisk(spec, np.zeros((2, 4)), np.zeros(2), get_backend("cpu"))
    found = problem.prox(V, eta)
    for v, x in zip(V, found, strict=True):

        def objective(parts, v=v):
            w = parts[:4] - parts[4:]
            return 0.5 * np.sum((w - v) ** 2) + eta * (
                regularizer.l1 * np.sum(parts) + 0.5 * regularizer.l2 * np.sum(w * w)
            )

        if isinstance(constraint, L1Ball):
            inside = {"type": "ineq", "fun": lambda p: 0.7 - np.sum(p)}
        else:
            inside = {"type": "ineq", "fun": lambda p: 0.49 - np.sum((p[:4] - p[4:]) ** 2)}
        best = minimize(
            objective, np.full(8, 0.01), bounds=[(0, None)] * 8, constraints=[inside], method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )  # fmt: skip
        np.testing.assert_allclose(x, best.x[:4] - best.x[4:], atol=2e-6)


def test_sets_and_regularizers_are_read_from_text_and_numbers():
    assert get_set(None) == RealSpace()
    assert get_set("l2_ball:2.5") == L2Ball(2.5)
    assert get_set("l1_ball") == L1Ball(1.0)
    assert get_set("lp_ball:1.5:2.0") == LpBall(1.5, 2.0)
    assert get_set("lp_ball:1.5") == LpBall(1.5, 1.0)
    assert get_set("simplex:3") == Simplex(3.0)
    assert get_set(Polytope([[0, 1], [1, 0]])) == Polytope(np.eye(2)[::-1])
    assert get_regularizer(0.01) == Regularizer(l2=0.01)
    assert get_regularizer({"l1": 1}) == Regularizer(l1=1.0)
    assert get_regularizer(None).name == "none"
    assert Regularizer(0.1, 0.1).name == "elastic net"


@pytest.mark.parametrize("wish", ["cube", "l2_ball:zero", "l2_ball:0", "l1_ball:-1", "l1_ball:nan", "real_space:1"])
def test_bad_sets_are_refused_with_advice(wish):
    with pytest.raises(UserError, match=r"use one of|write for example|positive number|takes no radius"):
        get_set(wish)


@pytest.mark.parametrize(
    ("wish", "advice"),
    [
        ("lp_ball", r"needs an exponent and a radius: write for example lp_ball:1.5:1.0"),
        ("lp_ball:", r"needs an exponent and a radius"),
        ("lp_ball:two:1", r"'lp_ball:two:1' needs an exponent and a radius"),
        ("lp_ball:1.5:1:2", r"needs an exponent and a radius"),
        ("lp_ball:1:2", r"exponent of the lp_ball is 1.0: give a number from 1.01 to 100, or use l1_ball"),
        ("lp_ball:inf", r"exponent of the lp_ball is inf"),
        ("lp_ball:nan", r"exponent of the lp_ball is nan"),
        ("lp_ball:1.5:0", r"radius of the lp_ball is 0.0: give a positive number"),
        ("simplex:-1", r"radius of the simplex is -1.0: give a positive number"),
        ("simplex:a", r"no number after the colon: write for example simplex:1.0"),
        ("polytope:3", r"Polytope\(vertices\) in Python"),
    ],
)
def test_bad_names_of_sets_are_refused_with_a_sentence(wish, advice):
    with pytest.raises(UserError, match=advice):
        get_set(wish)


@pytest.mark.parametrize("vertices", [[], [[]], [1.0, 2.0], [[1.0], [1.0, 2.0]], [[math.inf, 1.0]], [["a"]], None])
def test_bad_vertices_are_refused_with_a_sentence(vertices):
    with pytest.raises(UserError, match=r"give an array of shape \(J, d\)"):
        Polytope(vertices)


def test_vertices_in_another_dimension_than_the_parameters_are_refused():
    for backend in BACKENDS:
        with pytest.raises(UserError, match=r"have 2 coordinates, but the parameters have 3"):
            Polytope(np.eye(2)).linear_minimizer(backend.xp, backend.zeros((1, 3)))


@pytest.mark.parametrize("wish", [-1, "much", {"l3": 1}, {"l1": float("inf")}, float("nan")])
def test_bad_regularizers_are_refused_with_advice(wish):
    with pytest.raises(UserError, match=r"give|use l1 and l2"):
        get_regularizer(wish)


@st.composite
def points(draw, rows=3, d=None):
    """A ball and points of it: inside, on the boundary, at vertices, at 0 and with zero coordinates."""
    ball = draw(st.sampled_from([L1Ball, L2Ball]))(draw(radii))
    d = d or draw(st.integers(1, 7))
    order = 1 if isinstance(ball, L1Ball) else 2
    elements = st.one_of(st.just(0.0), st.floats(-3, 3, allow_subnormal=False))
    X = draw(arrays(np.float64, (rows, d), elements=elements))
    for row in X:
        where = draw(st.sampled_from(["inside", "boundary", "vertex"]))
        if where == "vertex":
            row[:] = 0.0
            row[draw(st.integers(0, d - 1))] = draw(st.sampled_from([-1.0, 1.0])) * ball.radius
        else:
            share = 1.0 if where == "boundary" else draw(st.floats(0, 1))
            row *= share * ball.radius / max(np.linalg.norm(row, ord=order), 1e-9)
    return ball, X


# Few distinct values make ties, which are where a closed form goes wrong first.
slopes = st.one_of(
    st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0]),
    st.floats(-30, 30).map(lambda v: v if abs(v) > 1e-100 else 0.0),  # squares must not underflow
)


def directions(X):
    return arrays(np.float64, X.shape, elements=slopes)


def on_both(method, *arrays_, **letters):
    found = []
    for backend in BACKENDS:
        result = method(backend.xp, *(backend.asarray(a) for a in arrays_), *letters.values())
        found.append(backend.to_host(result))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-14)
    return found[0]


def assert_inside(ball, Y):
    assert np.all(ball.excess(np, Y) <= 1e-12 * ball.radius)


def q_norm_map(d, radius):
    """The l1 ball's mirror map and its gradient, written down a second time."""
    m = max(1, round(math.log(d)))
    q = 1 + 1 / m
    c = d ** (2 * (1 - 1 / q)) / ((q - 1) * radius**2)

    def norm(x):
        return np.sum(np.abs(x) ** q) ** (1 / q)

    return (
        lambda x: c / 2 * norm(x) ** 2,
        lambda x: c * norm(x) ** (2 - q) * np.sign(x) * np.abs(x) ** (q - 1),
    )


@settings(deadline=None)
@given(st.data(), points())
def test_linear_minimizer_is_a_point_of_the_set_with_the_least_value(data, case):
    ball, X = case
    G = data.draw(directions(X))
    V = on_both(ball.linear_minimizer, G)
    assert_inside(ball, V)
    dual = np.linalg.norm(G, ord=np.inf if isinstance(ball, L1Ball) else 2, axis=1)
    np.testing.assert_allclose(np.sum(G * V, axis=1), -ball.radius * dual, rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@given(st.data(), points())
def test_minkowski_norm_is_the_smallest_multiple_of_the_set_that_holds_the_point(data, case):
    ball, X = case
    V = data.draw(directions(X))
    norms = on_both(ball.minkowski, V)
    assert np.all(ball.excess(np, V / np.maximum(norms, 1e-300)[:, None]) <= 1e-12 * ball.radius)
    shrunk = np.maximum(0.999 * norms, 1e-300)[:, None]
    assert np.all((ball.excess(np, V / shrunk) > 0.0) | (norms == 0.0))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_vertices_of_the_l1_ball_are_numbered_as_their_values(d):
    ball, rng = L1Ball(1.7), np.random.default_rng(d)
    for backend in BACKENDS:
        xp, G = backend.xp, rng.normal(size=(2 * d, d))
        values = backend.to_host(ball.vertex_values(xp, backend.asarray(G)))
        V = backend.to_host(ball.vertex(xp, backend.index(np.arange(2 * d)), backend.asarray(G)))
        np.testing.assert_allclose(values, G @ V.T, rtol=1e-14)
        assert len(np.unique(V, axis=0)) == 2 * d
        np.testing.assert_allclose(np.sum(np.abs(V), axis=1), 1.7)


@settings(deadline=None)
@given(st.data(), points(), st.floats(0.01, 30))
def test_mirror_step_meets_the_optimality_condition_of_its_minimum(data, case, size):
    """For a convex f with gradient g at y, f(y) - min f <= max_{u in C} <g, y - u>: a bound that needs no solver."""
    ball, Z = case
    G = size * data.draw(directions(Z)) / ball.radius
    Y = on_both(ball.mirror_step, Z, G)
    assert_inside(ball, Y)
    for z, g, y in zip(Z, G, Y, strict=True):
        if isinstance(ball, L1Ball):
            gradient = q_norm_map(len(z), ball.radius)[1]
            slope = gradient(y) - gradient(z) + g
            most = ball.radius * np.max(np.abs(slope))
        else:
            slope = (y - z) / ball.radius**2 + g
            most = ball.radius * np.linalg.norm(slope)
        assert slope @ y + most <= 1e-11 * (1.0 + ball.radius * np.sum(np.abs(g)) + len(z))


@pytest.mark.parametrize("d", [1, 2, 3, 40, 2000])
@pytest.mark.parametrize("size", [1e-8, 0.03, 1.0, 40.0, 1e9])
def test_mirror_step_is_exact_in_high_dimension_and_for_steps_of_any_size(d, size):
    ball, rng = L1Ball(3.0), np.random.default_rng(d)
    gradient = q_norm_map(d, 3.0)[1]
    G = size * rng.standard_normal((4, d)) ** 3
    Z = ball.project(np, rng.standard_normal((4, d)) ** 5)
    Y = on_both(ball.mirror_step, Z, G)
    assert_inside(ball, Y)
    for z, g, y in zip(Z, G, Y, strict=True):
        slope = gradient(y) - gradient(z) + g
        assert slope @ y + 3.0 * np.max(np.abs(slope)) <= 1e-12 * (100.0 + 3.0 * np.max(np.abs(g)))


@settings(max_examples=25, deadline=None)
@given(st.data(), points(rows=1, d=5), st.floats(0.1, 10))
def test_mirror_step_is_no_worse_than_a_general_solver(data, case, size):
    ball, Z = case
    G = size * data.draw(directions(Z)) / ball.radius
    (y,) = on_both(ball.mirror_step, Z, G)

    def objective(x):
        return float(ball.bregman(np, x[None], Z)[0] + G[0] @ x)

    if isinstance(ball, L1Ball):
        inside = {"type": "ineq", "fun": lambda parts: ball.radius - np.sum(parts)}
    else:
        inside = {"type": "ineq", "fun": lambda parts: ball.radius**2 - np.sum((parts[:5] - parts[5:]) ** 2)}
    best = minimize(
        lambda parts: objective(parts[:5] - parts[5:]), np.full(10, 0.01 * ball.radius), method="SLSQP",
        bounds=[(0, None)] * 10, constraints=[inside], options={"ftol": 1e-14, "maxiter": 300},
    )  # fmt: skip
    x = ball.project(np, (best.x[:5] - best.x[5:])[None])[0]
    assert objective(y) <= objective(x) + 1e-8


def least_slope(g, x, radius, tau):
    """min <g, y - x> over ||y||_1 <= radius and ||y - x||_1 <= tau, as a linear programme in positive parts."""
    d = len(g)
    eye, one, nought = np.eye(d), np.ones(d), np.zeros(d)
    found = linprog(
        np.concatenate([nought, nought, g, -g]),
        A_ub=[np.concatenate([one, one, nought, nought]), np.concatenate([nought, nought, one, one])],
        b_ub=[radius, tau],
        A_eq=np.hstack([eye, -eye, -eye, eye]),
        b_eq=x,
    )
    assert found.status == 0
    return found.fun


@settings(max_examples=60, deadline=None)
@given(st.data(), points(rows=1), st.floats(0.01, 50))
def test_gradient_step_is_the_minimum_over_all_step_lengths_of_a_linear_programme(data, case, a):
    """a/2 tau^2 / R^2 + min{<g, y - x> : ||y - x||_1 <= tau} is convex in tau; ours must be its minimum."""
    ball, X = case
    ball = L1Ball(ball.radius)
    X = ball.project(np, X)
    a *= ball.radius
    G = data.draw(directions(X))
    Y = on_both(ball.gradient_step, X, G, a=a)
    assert_inside(ball, Y)
    x, g, y = X[0], G[0], Y[0]
    tau = np.sum(np.abs(y - x))
    value = 0.5 * a * (tau / ball.radius) ** 2 + g @ (y - x)
    scale = 1.0 + ball.radius * np.max(np.abs(g))
    farthest = ball.radius + np.sum(np.abs(x))
    for other in {
        0.0,
        tau,
        *(min(tau * share, farthest) for share in (0.5, 0.99, 1.01, 2.0)),
        0.01 * farthest,
        farthest,
    }:
        best = 0.5 * a * (other / ball.radius) ** 2 + least_slope(g, x, ball.radius * (1 + 1e-12), other)
        assert value <= best + 1e-8 * scale


@pytest.mark.parametrize("a", [0.7, 1.0, 1.5, 2.0, 3.0, 4.0])
@pytest.mark.parametrize("share", [0.6, 1.0])
def test_gradient_step_shrinks_the_right_coordinates_of_many(a, share):
    """Forty coordinates of like size: the step ends amid them, and the linear programme knows on which."""
    ball, rng = L1Ball(1.0), np.random.default_rng(7)
    X = rng.uniform(0.5, 1.0, (6, 40)) * rng.choice([-1.0, 1.0], (6, 40))
    X *= share / np.sum(np.abs(X), axis=1, keepdims=True)
    G = rng.standard_normal((6, 40))
    Y = on_both(ball.gradient_step, X, G, a=a)
    assert_inside(ball, Y)
    untouched = np.sum(Y == X, axis=1)
    assert np.any((untouched > 0) & (untouched < 39)), "some step must end amid the coordinates"
    for x, g, y in zip(X, G, Y, strict=True):
        tau = np.sum(np.abs(y - x))
        value = 0.5 * a * tau**2 + g @ (y - x)
        for other in (0.97 * tau, tau, min(1.03 * tau, 1.0 + share)):
            assert value <= 0.5 * a * other**2 + least_slope(g, x, 1.0 + 1e-12, other) + 1e-9


@settings(max_examples=25, deadline=None)
@given(st.data(), points(rows=1, d=4), st.floats(0.1, 20))
def test_gradient_step_on_the_l2_ball_is_no_worse_than_a_general_solver(data, case, a):
    ball, X = case
    ball = L2Ball(ball.radius)
    X = ball.project(np, X)
    a *= ball.radius
    G = data.draw(directions(X))
    (y,) = on_both(ball.gradient_step, X, G, a=a)
    assert_inside(ball, y[None])

    def objective(v):
        return 0.5 * a * np.sum((v - X[0]) ** 2) / ball.radius**2 + G[0] @ (v - X[0])

    inside = {"type": "ineq", "fun": lambda v: ball.radius**2 - np.sum(v**2)}
    best = minimize(objective, 0.5 * X[0], method="SLSQP", constraints=[inside], options={"ftol": 1e-14})
    x = ball.project(np, best.x[None])[0]
    assert objective(y) <= objective(x) + 1e-8


def test_gradient_step_crosses_zero_and_ends_at_the_opposite_vertex():
    """From a vertex, a strong pull back: all the mass passes to the other side, for ties on the first coordinate."""
    ball = L1Ball(2.0)
    X, G = np.array([[2.0, 0.0, 0.0], [1.0, 1.0, 0.0]]), np.array([[5.0, 1.0, 0.0], [3.0, 3.0, 3.0]])
    np.testing.assert_allclose(on_both(ball.gradient_step, X, G, a=1e-6), [[-2, 0, 0], [-2, 0, 0]], atol=1e-12)
    # half-way: kappa (M + s)/2 = tau with kappa = 4/a, s = M = 5 gives tau = 20/a = 1
    np.testing.assert_allclose(on_both(ball.gradient_step, X[:1], G[:1], a=20.0), [[1, 0, 0]], atol=1e-12)


@pytest.mark.parametrize("step", ["mirror_step", "gradient_step"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_has_the_same_bits_in_any_company(step, dtype):
    rng = np.random.default_rng(1)
    ball = L1Ball(1.5)
    X = ball.project(np, rng.standard_normal((40, 3000)).astype(dtype) ** 5)
    G = (10.0 ** rng.uniform(-4, 4, (40, 1)) * rng.standard_normal((40, 3000))).astype(dtype)
    letters = [0.7] if step == "gradient_step" else []
    together = getattr(ball, step)(np, X, G, *letters)
    assert together.dtype == dtype
    for chosen in ([3], [39, 0], list(range(20, 37))):
        alone = getattr(ball, step)(np, X[chosen], G[chosen], *letters)
        np.testing.assert_array_equal(alone, together[chosen])


@settings(deadline=None)
@given(st.data(), st.integers(1, 60), radii, st.sampled_from([L1Ball, L2Ball]))
def test_mirror_map_is_1_strongly_convex_in_the_minkowski_norm(data, d, radius, kind):
    ball = kind(radius)
    elements = st.floats(-1, 1, allow_subnormal=False)
    X, Y = (radius * data.draw(arrays(np.float64, (2, d), elements=elements)) for _ in range(2))
    divergence, norm = on_both(ball.bregman, Y, X), ball.minkowski(np, Y - X)
    size = 1.0 + ball.minkowski(np, X) ** 2 + ball.minkowski(np, Y) ** 2
    assert np.all(divergence >= 0.5 * norm**2 - 1e-12 * d * size)


@pytest.mark.parametrize("d", [2, 30, 3000])
def test_the_constant_of_the_mirror_map_is_not_larger_than_it_must_be(d):
    """At the centre of a face, along alternating signs, both inequalities behind c are nearly equalities."""
    ball = L1Ball(1.0)
    x, step = np.full((1, d), 1.0 / d), 1e-2
    y = x + step * np.where(np.arange(d) % 2 == 0, 1.0, -1.0) / d
    ratio = ball.bregman(np, y, x)[0] / (0.5 * ball.minkowski(np, y - x)[0] ** 2)
    assert 1.0 - 1e-4 <= ratio <= 1.01


@pytest.mark.parametrize("ball", [L1Ball(2.0), L2Ball(2.0)])
def test_bregman_radius_is_the_largest_divergence_from_zero(ball):
    rng = np.random.default_rng(0)
    for d in (1, 3, 50):
        X = ball.project(np, 9.0 * rng.standard_normal((200, d)) ** 3)
        vertex = np.zeros((1, d))
        vertex[0, 0] = 2.0
        largest = ball.bregman_radius(d)
        assert np.all(ball.bregman(np, X, np.zeros_like(X)) <= largest * (1 + 1e-12))
        assert ball.bregman(np, vertex, np.zeros_like(vertex))[0] == pytest.approx(largest)


@pytest.mark.parametrize(
    "constraint",
    [L1Ball(3.0), L2Ball(3.0), LpBall(1.05, 3.0), LpBall(1.5, 3.0), LpBall(10.0, 3.0), Simplex(3.0)],
)
@pytest.mark.parametrize("d", [1, 2, 50, 1000])
def test_gaussian_width_is_the_mean_of_the_support_function(constraint, d):
    """Monte Carlo with 4,000 draws; six standard errors: false alarm below 1e-8 each, and the seed is fixed."""
    G = np.random.default_rng(d).standard_normal((4_000, d))
    support = -np.sum(G * constraint.linear_minimizer(np, G), axis=1)
    error = np.std(support) / math.sqrt(len(support))
    assert abs(constraint.gaussian_width(d) - np.mean(support)) <= 6.0 * error


def test_gaussian_width_of_the_l1_ball_is_exact_where_it_is_known():
    assert L1Ball(2.0).gaussian_width(1) == pytest.approx(2.0 * math.sqrt(2 / math.pi), rel=1e-11)
    assert L1Ball(1.0).gaussian_width(2) == pytest.approx(2 / math.sqrt(math.pi), rel=1e-11)


def test_the_whole_space_is_not_bounded():
    space = RealSpace()
    assert space.l2_diameter == space.gaussian_width(3) == space.bregman_radius(3) == math.inf
    assert "centrally_symmetric" not in space.properties


exponents = st.sampled_from([1.05, 1.2, 1.5, 2.0, 3.0, 10.0])


def p_norm(V, p):
    """A second definition, in extended precision: the ninth power of 1e30 fits."""
    V = np.abs(np.asarray(V, dtype=np.longdouble))
    if p == math.inf:
        return np.max(V, axis=-1).astype(float)
    return (np.sum(V**p, axis=-1) ** (np.longdouble(1) / p)).astype(float)


@st.composite
def lp_cases(draw, rows=3):
    """A ball and rows inside, on the boundary, barely and far outside, zero, with ties and zero coordinates."""
    ball = LpBall(draw(exponents), draw(st.sampled_from([1e-30, 0.3, 1.0, 1e30])))
    d = draw(st.integers(1, 6))
    elements = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-3, 3, allow_subnormal=False))
    V = draw(arrays(np.float64, (rows, d), elements=elements))
    V[np.abs(V) < 1e-20] = 0.0
    for row in V:
        share = draw(st.sampled_from([0.0, 1e-9, 0.5, 1.0, 1.0 + 1e-9, 1.5, 7.0, 1e9]))
        row *= ball.size * share / max(float(p_norm(row, ball.p)), 1e-30)
    return ball, V


def conjugate(p):
    return math.inf if p == 1.0 else p / (p - 1.0)


@settings(max_examples=25, deadline=None)
@given(lp_cases())
def test_projection_on_an_lp_ball_meets_the_obtuse_angle_criterion(case):
    """For u in C, <v - P v, u - P v> is at most size ||v - P v||_q - <v - P v, P v>; 0 at the nearest point only.

    By strong convexity the bound also limits the error: ||x - P v||^2 <= max_u <v - x, u - x>.
    """
    ball, V = case
    P = on_both(ball.project, V)
    assert np.all(p_norm(P, ball.p) <= ball.size * (1 + 1e-14))
    inside = p_norm(V, ball.p) <= ball.size * (1 - 1e-15)
    np.testing.assert_array_equal(P[inside], V[inside])
    slack = (V - P) / ball.size
    bound = p_norm(slack, conjugate(ball.p)) - np.sum(slack * P / ball.size, axis=1)
    assert np.all(bound <= 1e-15 + 1e-13 * p_norm(slack, 2.0))


@settings(max_examples=12, deadline=None)
@given(lp_cases(rows=1))
def test_projection_on_an_lp_ball_is_no_farther_than_a_general_solver_finds(case):
    ball, V = case
    p, v = ball.p, V[0] / ball.size
    ours = on_both(ball.project, V)[0] / ball.size
    d = len(v)
    inside = {"type": "ineq", "fun": lambda parts: 1.0 - np.sum(np.maximum(parts, 0.0) ** p)}
    best = minimize(
        lambda y: 0.5 * np.sum((y - np.abs(v)) ** 2), np.full(d, 0.1), method="SLSQP", bounds=[(0, None)] * d,
        constraints=[inside], options={"ftol": 1e-15, "maxiter": 300},
    )  # fmt: skip
    x = np.sign(v) * np.maximum(best.x, 0.0) / max(1.0, p_norm(best.x, p))
    assert np.sum((ours - v) ** 2) <= np.sum((x - v) ** 2) * (1 + 1e-14) + 1e-28


@pytest.mark.parametrize("p", [1.01, 1.05, 1.5, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("distance", [1e-12, 1e-3, 1.0, 1e3, 1e12])
def test_projection_on_an_lp_ball_has_twelve_digits(p, distance):
    """v = y + lam y^(p-1), in extended precision, is projected on y; rounding v to double moves y by 1e-16 |v|."""
    rng = np.random.default_rng(0)
    for spread in (0.0, 1.0, 10.0):
        y = np.exp(spread * rng.standard_normal((8, 5))).astype(np.longdouble)
        y /= np.max(y, axis=1, keepdims=True)
        y /= np.sum(y**p, axis=1, keepdims=True) ** (np.longdouble(1) / p)
        normal = y ** (np.longdouble(p) - 1)
        V = y + distance * normal / np.sqrt(np.sum(normal**2, axis=1, keepdims=True))
        found = LpBall(p, 1.0).project(np, V.astype(float))
        np.testing.assert_allclose(found, y.astype(float), rtol=1e-12, atol=1e-14 + 1e-15 * distance)


def test_projection_on_the_lp_ball_with_p_2_is_that_of_the_l2_ball():
    V = np.random.default_rng(0).standard_normal((20, 7)) * np.logspace(-3, 3, 20)[:, None]
    np.testing.assert_allclose(LpBall(2.0, 0.7).project(np, V), L2Ball(0.7).project(np, V), rtol=1e-14)


@pytest.mark.parametrize("p", [1.05, 1.5, 10.0])
def test_projection_on_an_lp_ball_is_right_where_it_is_known(p):
    """On an axis, and on the diagonal, the nearest point is a multiple."""
    ball = LpBall(p, 2.0)
    V = np.array([[9.0, 0.0, 0.0], [0.0, 0.0, -1e8], [5.0, -5.0, 5.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    level = 2.0 * 3.0 ** (-1.0 / p)
    expected = [[2.0, 0.0, 0.0], [0.0, 0.0, -2.0], [level, -level, level], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(on_both(ball.project, V), expected, rtol=1e-14)


@settings(max_examples=25, deadline=None)
@given(lp_cases())
def test_linear_minimizer_of_an_lp_ball_attains_the_dual_norm(case):
    """Hoelder's inequality: no point does better than -size ||g||_q; conjugate exponents here go up to 21."""
    ball, G = case
    V = on_both(ball.linear_minimizer, G)
    assert np.all(p_norm(V, ball.p) <= ball.size * (1 + 1e-14))
    dual = ball.size * p_norm(G, conjugate(ball.p))
    np.testing.assert_allclose(np.sum(G * V, axis=1), -dual, rtol=1e-13)
    assert np.all(V[np.all(G == 0.0, axis=1)] == 0.0)


@pytest.mark.parametrize("scale", [1e-250, 1e-30, 1.0, 1e30, 1e250])
def test_linear_minimizer_does_not_overflow_for_exponents_near_1(scale):
    """q = 101: a plain 100th power of 1e30 would be infinite and one of 1e-30 zero."""
    g = np.array([[2.0, -2.0, 1.99, 1.0, 0.0]])
    (v,) = on_both(LpBall(1.01, 1.0).linear_minimizer, scale * g)
    assert v[0] == -v[1]
    assert v[3] == pytest.approx(v[0] * 2.0**-100, rel=1e-12)
    assert v[2] / v[0] == pytest.approx((1.99 / 2.0) ** 100, rel=1e-12)
    assert p_norm(v, 1.01) == pytest.approx(1.0, rel=1e-14)


@settings(max_examples=25, deadline=None)
@given(st.data(), lp_cases(), st.floats(0.01, 30))
def test_mirror_step_on_an_lp_ball_meets_the_optimality_condition(data, case, step):
    """f(y) - min f <= max_{u in C} <grad f(y), y - u> for f(y) = B_w(y, z) + <g, y>: a bound that needs no solver."""
    ball, V = case
    Z = ball.project(np, V)
    G = step * data.draw(directions(Z)) / ball.size
    Y = on_both(ball.mirror_step, Z, G)
    assert np.all(p_norm(Y, ball.p) <= ball.size * (1 + 1e-14))
    s = min(ball.p, 2.0)

    def gradient(X):
        X = X / ball.size
        norm = np.maximum(p_norm(X, s), 1e-300)[:, None]
        return norm ** (2.0 - s) * np.sign(X) * np.abs(X) ** (s - 1.0) / ((s - 1.0) * ball.size)

    slope = (gradient(Y) - gradient(Z) + G) * ball.size
    gap = np.sum(slope * Y / ball.size, axis=1) + p_norm(slope, conjugate(ball.p))
    assert np.all(gap <= 1e-11 * (1.0 + ball.size * np.sum(np.abs(G), axis=1)) / (s - 1.0))


@settings(max_examples=5, deadline=None)
@given(st.data(), lp_cases(rows=1), st.floats(0.1, 10))
def test_mirror_step_on_an_lp_ball_is_no_worse_than_a_general_solver(data, case, step):
    ball, V = case
    ball = LpBall(ball.p, 1.0)
    Z = ball.project(np, V)
    G = step * data.draw(directions(Z))
    (y,) = on_both(ball.mirror_step, Z, G)
    d = len(y)

    def objective(x):
        return float(ball.bregman(np, x[None], Z)[0] + G[0] @ x)

    inside = {"type": "ineq", "fun": lambda parts: 1.0 - np.sum(np.abs(parts[:d] - parts[d:]) ** ball.p)}
    best = minimize(
        lambda parts: objective(parts[:d] - parts[d:]), np.full(2 * d, 0.01), method="SLSQP",
        bounds=[(0, None)] * (2 * d), constraints=[inside], options={"ftol": 1e-14, "maxiter": 200},
    )  # fmt: skip
    x = ball.project(np, (best.x[:d] - best.x[d:])[None])[0]
    assert objective(y) <= objective(x) + 1e-9 / min(1.0, ball.p - 1.0)


def gradient_step_case(p, d):
    """Rows at the centre, inside and on the boundary, with steps that the ball binds and one that it does not."""
    rng, ball = np.random.default_rng(d), LpBall(p, 2.0)
    X = ball.project(np, 3.0 * rng.standard_normal((5, d)))
    X[0], X[1], G = 0.0, 0.5 * X[1], 3.0 * rng.standard_normal((5, d))
    G[1] *= 0.01
    G[4] = -10.0 * np.sign(X[4]) * np.abs(X[4]) ** (p - 1.0)  # straight out of the ball: x stays
    return ball, X, G


@pytest.mark.parametrize(("p", "d"), [(1.3, 1), (1.5, 3), (1.9, 4)])
def test_gradient_step_on_an_lp_ball_meets_the_optimality_condition(p, d):
    """f(y) - min f <= max_{u in C} <grad f(y), y - u>; at u = 0 the gradient turns rounding into its (p-1)th power."""
    ball, X, G = gradient_step_case(p, d)
    Y = ball.gradient_step(np, X, G, 1.3)
    assert np.all(p_norm(Y, p) <= 2.0 * (1 + 1e-14))
    U = (Y - X) / 2.0
    slope = 1.3 / 2.0 * p_norm(U, p)[:, None] ** (2.0 - p) * np.sign(U) * np.abs(U) ** (p - 1.0) + G
    gap = np.sum(slope * Y, axis=1) + 2.0 * p_norm(slope, conjugate(p))
    assert np.all(gap[:4] <= 1e-9)
    np.testing.assert_allclose(Y[4], X[4], atol=1e-12)
    free = X[1] - 2.0**2 / 1.3 * p_norm(G[1], conjugate(p)) * -LpBall(p).linear_minimizer(np, G[1:2])[0]
    np.testing.assert_allclose(Y[1], free, rtol=1e-13)
    np.testing.assert_array_equal(ball.gradient_step(np, X[[3, 1]], G[[3, 1]], 1.3), Y[[3, 1]])


def test_gradient_step_on_an_lp_ball_is_the_same_on_strict_arrays():
    ball, X, G = gradient_step_case(1.9, 2)
    on_both(ball.gradient_step, X[:1], G[:1], a=1.3)
    single = ball.gradient_step(np, X.astype("float32"), G.astype("float32"), 1.3)
    assert single.dtype == "float32"
    np.testing.assert_allclose(single, ball.gradient_step(np, X, G, 1.3), atol=1e-5)


def test_gradient_step_near_p_1_is_no_worse_than_its_neighbours():
    """Near p = 1 the condition above cannot be evaluated in double precision; values can."""
    ball, X, G = gradient_step_case(1.05, 3)
    rng = np.random.default_rng(0)

    def value(Y):
        return 0.65 * ball.minkowski(np, Y - X) ** 2 + np.sum(G * (Y - X), axis=1)

    Y = ball.gradient_step(np, X, G, 1.3)
    for size in 10.0 ** -np.arange(9.0):
        for _ in range(20):
            other = ball.project(np, Y + size * rng.standard_normal(Y.shape) ** 3)
            assert np.all(value(Y) <= value(other) + 1e-12)


def test_gradient_step_with_p_2_is_that_of_the_l2_ball_and_with_more_it_is_refused():
    ball, X, G = gradient_step_case(2.0, 4)
    np.testing.assert_allclose(ball.gradient_step(np, X, G, 1.3), L2Ball(2.0).gradient_step(np, X, G, 1.3), rtol=1e-13)
    with pytest.raises(UserError, match="p <= 2 only"):
        LpBall(3.0).gradient_step(np, X, G, 1.3)


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 40), exponents)
def test_mirror_map_of_an_lp_ball_is_1_strongly_convex_in_its_norm(data, d, p):
    ball = LpBall(p, 2.5)
    elements = st.floats(-1, 1, allow_subnormal=False)
    X, Y = (2.5 * data.draw(arrays(np.float64, (2, d), elements=elements)) for _ in range(2))
    divergence, norm = on_both(ball.bregman, Y, X), ball.minkowski(np, Y - X)
    size = 1.0 + ball.minkowski(np, X) ** 2 + ball.minkowski(np, Y) ** 2
    assert np.all(divergence >= 0.5 * norm**2 - 1e-12 * d * size / min(1.0, p - 1.0))


@pytest.mark.parametrize("p", [1.05, 1.5, 2.0])
def test_the_constant_of_the_lp_mirror_map_is_not_larger_than_it_must_be(p):
    """On (1, 1) + t (1, -1) both sides agree to second order in t."""
    ball, t = LpBall(p, 1.0), 1e-3
    x = np.array([[0.5, 0.5]])
    y = x + t * np.array([[1.0, -1.0]])
    assert ball.bregman(np, y, x)[0] / (0.5 * ball.minkowski(np, y - x)[0] ** 2) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("p", [1.05, 1.5, 2.0, 10.0])
def test_bregman_radius_of_an_lp_ball_is_the_largest_divergence_from_zero(p):
    ball, rng = LpBall(p, 2.0), np.random.default_rng(0)
    for d in (1, 3, 50):
        flat = np.full((1, d), 2.0 * d ** (-1.0 / p))
        X = np.concatenate([ball.project(np, 9.0 * rng.standard_normal((200, d)) ** 3), flat])
        found = ball.bregman(np, X, np.zeros_like(X))
        assert np.max(found) == pytest.approx(ball.bregman_radius(d), rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(lp_cases())
def test_minkowski_norm_of_an_lp_ball_is_its_scaled_norm(case):
    ball, V = case
    np.testing.assert_allclose(on_both(ball.minkowski, V), p_norm(V, ball.p) / ball.size, rtol=1e-13)


@settings(deadline=None)
@given(vectors, radii, st.sampled_from([1.0, 1e-12, 1e12]))
def test_projection_on_the_simplex_meets_the_optimality_conditions(V, radius, scale):
    """v - P v is one level where P v > 0 and no larger elsewhere."""
    simplex, V = Simplex(radius * scale), V * scale
    P = on_both(simplex.project, V)
    assert np.all(P >= 0.0)
    np.testing.assert_allclose(np.sum(P, axis=1), simplex.radius, rtol=1e-14)
    slack = V - P
    level = np.max(slack, axis=1, where=P > 0.0, initial=-np.inf)[:, None]
    rounding = 1e-14 * (simplex.radius + np.max(np.abs(V)))
    assert np.all(slack <= level + rounding)
    assert np.all((P == 0.0) | (slack >= level - rounding))


def test_projection_on_the_simplex_keeps_its_digits_far_away():
    V = np.array([[1e15, 1e15 - 0.5, 0.0], [-1e300, 1e300, 0.0], [0.2, 0.3, 0.5], [7.0, 7.0, 7.0]])
    expected = [[0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(on_both(Simplex(1.0).project, V), expected, atol=1e-15)
    np.testing.assert_allclose(on_both(Simplex(2.0).project, V[:, :1]), 2.0, rtol=0)


@st.composite
def polytopes(draw):
    """General points, points of a small grid (many ties, duplicates and faces with many vertices), single points."""
    J, d = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    elements = draw(st.sampled_from([st.floats(-2, 2, width=32), st.sampled_from([-1.0, 0.0, 1.0])]))
    points = draw(arrays(np.float64, (J, d), elements=elements))
    points[np.abs(points) < 1e-6] = 0.0
    return Polytope(points), points


@settings(max_examples=40, deadline=None)
@given(st.data(), polytopes(), st.sampled_from([(1.0, 0.0), (1e-20, 0.0), (1e20, 0.0), (1.0, 100.0)]))
def test_projection_on_a_polytope_meets_the_obtuse_angle_criterion(data, case, where):
    """||x - P v||^2 <= max_j <v - x, v_j - x> for a point x of the hull: a bound that needs no solver."""
    scale, offset = where
    points = scale * (case[1] + offset)
    polytope = Polytope(points)
    elements = st.one_of(st.sampled_from([-1.0, 0.0, 1.0, 4.0]), st.floats(-5, 5, width=32))
    V = scale * (data.draw(arrays(np.float64, (3, points.shape[1]), elements=elements)) + offset)
    P = np.stack([np.array(polytope.project(np, V)), project(BACKENDS[1], polytope, V)])
    rounding = 1e-14 * (1.0 + offset)
    for found in P:
        slack = (V - found) / scale
        bound = np.max(np.sum(slack[:, None, :] * (points - found[:, None, :]), axis=-1), axis=1) / scale
        assert np.all(bound <= rounding * (1.0 + np.linalg.norm(slack, axis=1)))


def nearest_by_enumeration(points, v):
    """The nearest point over the affine hulls of all small sets of vertices in which its weights are positive."""
    best = points[np.argmin(np.sum((points - v) ** 2, axis=1))]
    for size in range(2, points.shape[1] + 2):
        for chosen in itertools.combinations(range(len(points)), size):
            corner, others = points[chosen[0]], points[list(chosen[1:])]
            weights = np.linalg.lstsq((others - corner).T, v - corner, rcond=1e-12)[0]
            x = corner + weights @ (others - corner)
            inside = np.all(weights >= 0.0) and np.sum(weights) <= 1.0
            if inside and np.sum((x - v) ** 2) < np.sum((best - v) ** 2):
                best = x
    return best


@pytest.mark.parametrize(("J", "d"), [(3, 1), (4, 2), (9, 2), (8, 3), (7, 5)])
@pytest.mark.parametrize("grid", [False, True])
def test_projection_on_a_polytope_is_the_best_over_all_faces(J, d, grid):
    """The last rows are points of the hull: inside, and vertices."""
    rng = np.random.default_rng(10 * J + d)
    points = rng.integers(-1, 2, (J, d)).astype(float) if grid else rng.standard_normal((J, d))
    V = np.concatenate([3.0 * rng.standard_normal((8, d)), rng.dirichlet(np.ones(J), 2) @ points, points[:2]])
    P = on_both(Polytope(points).project, V)
    for v, x in zip(V, P, strict=True):
        np.testing.assert_allclose(x, nearest_by_enumeration(points, v), atol=1e-12)
    np.testing.assert_allclose(P[8:], V[8:], atol=1e-13)
    assert np.all(Polytope(points).excess(np, V)[8:] <= 1e-13)


def in_hull(points, x):
    """Whether a linear programme finds weights, to 1e-9 of every coordinate."""
    J = len(points)
    found = linprog(
        np.zeros(J), A_eq=np.ones((1, J)), b_eq=[1.0],
        A_ub=np.concatenate([points.T, -points.T]), b_ub=np.concatenate([x + 1e-9, 1e-9 - x]),
    )  # fmt: skip
    return found.status == 0


def test_projection_on_a_polytope_with_many_vertices_is_no_farther_than_a_general_solver_finds():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((60, 20))
    V = 3.0 * rng.standard_normal((4, 20))
    for v, x in zip(V, on_both(Polytope(points).project, V), strict=True):
        assert in_hull(points, x)
        best = minimize(
            lambda w, v=v: 0.5 * np.sum((w @ points - v) ** 2), np.full(60, 1 / 60), method="SLSQP",
            jac=lambda w, v=v: points @ (w @ points - v), bounds=[(0, 1)] * 60,
            constraints=[{"type": "eq", "fun": lambda w: np.sum(w) - 1.0}], options={"ftol": 1e-16, "maxiter": 500},
        )  # fmt: skip
        w = np.maximum(best.x, 0.0)
        other = w / np.sum(w) @ points
        assert np.linalg.norm(x - v) <= np.linalg.norm(other - v) + 1e-12
        np.testing.assert_allclose(x, other, atol=1e-3)


@pytest.mark.parametrize("strict", [False, True])
def test_projection_on_a_polytope_is_that_of_double_precision_in_single(strict):
    """A thin needle, where single precision could tell the faces apart to three digits only."""
    points = np.concatenate([np.eye(6), np.full((1, 6), 1 / 6) + 1e-5 * np.arange(6)])
    V = (3.0 * np.random.default_rng(1).standard_normal((20, 6))).astype(np.float32)
    backend = (strict_backend if strict else partial(get_backend, "cpu"))("float32")
    found = Polytope(points).project(backend.xp, backend.asarray(V))
    assert found.dtype == backend.xp.float32
    exact = Polytope(points).project(np, V.astype(np.float64))
    np.testing.assert_array_equal(backend.to_host(found), exact.astype(np.float32))


def test_a_projection_on_a_polytope_that_does_not_end_is_good_if_it_is_near_enough_and_else_an_error(monkeypatch):
    points = np.random.default_rng(0).standard_normal((60, 20))
    V = 3.0 * np.random.default_rng(1).standard_normal((4, 20))
    exact = Polytope(points).project(np, V)
    monkeypatch.setattr(geometry._Corral, "step", never_ending(geometry._Corral.step))
    monkeypatch.setattr(geometry, "_WOLFE_STEPS", 200)
    np.testing.assert_allclose(Polytope(points).project(np, V), exact, atol=1e-6)
    monkeypatch.setattr(geometry, "_WOLFE_STEPS", 3)
    with pytest.raises(NotConverged, match=r"with 60 vertices is known to .* of its size after 3 steps, not to 1e-06"):
        Polytope(points).project(np, V)


def never_ending(step):
    """What rounding could do: no row notices that it has arrived."""

    def going_on(self, xp, points, V):
        new = step(self, xp, points, V)
        return dataclasses.replace(new, found=np.zeros_like(new.found))

    return going_on


def test_projection_on_a_polytope_agrees_with_the_closed_forms_of_the_simplex_and_the_l1_ball():
    V = np.random.default_rng(2).standard_normal((40, 6)) * np.logspace(-1, 2, 40)[:, None]
    for known, points in (
        (Simplex(1.5), 1.5 * np.eye(6)),
        (L1Ball(1.5), 1.5 * np.concatenate([np.eye(6), -np.eye(6)])),
    ):
        np.testing.assert_allclose(on_both(Polytope(points).project, V), known.project(np, V), atol=1e-13)


def test_a_polygon_with_a_thousand_sides_is_nearly_a_disc():
    """Nearly degenerate: adjacent sides differ in direction by 0.006."""
    angles = 2.0 * np.pi * np.arange(1000) / 1000
    disc = Polytope(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    V = 3.0 * np.random.default_rng(0).standard_normal((30, 2))
    P = disc.project(np, V)
    np.testing.assert_allclose(P, L2Ball(1.0).project(np, V), atol=4e-3)
    slack = V - P
    assert np.all(np.max(slack @ disc._points.T, axis=1) - np.sum(slack * P, axis=1) <= 1e-14)


@settings(max_examples=25, deadline=None)
@given(st.data(), polytopes())
def test_linear_minimizer_of_a_polytope_is_the_first_best_vertex(data, case):
    polytope, points = case
    G = data.draw(arrays(np.float64, (3, points.shape[1]), elements=slopes))
    V, values = on_both(polytope.linear_minimizer, G), on_both(polytope.vertex_values, G)
    np.testing.assert_allclose(values, G @ points.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(V, points[np.argmin(values, axis=1)])


@pytest.mark.parametrize("radius", [1.0, 2.5])
def test_linear_minimizer_of_the_simplex_is_that_of_a_linear_programme(radius):
    simplex, rng = Simplex(radius), np.random.default_rng(0)
    G = np.concatenate([rng.integers(-2, 3, (20, 4)).astype(float), rng.standard_normal((20, 4)), np.zeros((1, 4))])
    V = on_both(simplex.linear_minimizer, G)
    for g, v in zip(G, V, strict=True):
        best = linprog(g, A_eq=np.ones((1, 4)), b_eq=[radius])
        assert g @ v == pytest.approx(best.fun, abs=1e-12)
        assert sorted(v) == [0.0, 0.0, 0.0, radius]


@pytest.mark.parametrize("d", [1, 2, 5])
def test_vertices_are_numbered_as_their_values(d):
    rng = np.random.default_rng(d)
    points = rng.standard_normal((7, d))
    for polytope, J in ((Simplex(1.7), d), (Polytope(points), 7)):
        for backend in BACKENDS:
            G = rng.standard_normal((J, d))
            values = backend.to_host(polytope.vertex_values(backend.xp, backend.asarray(G)))
            V = backend.to_host(polytope.vertex(backend.xp, backend.index(np.arange(J)), backend.asarray(G)))
            np.testing.assert_allclose(values, G @ V.T, rtol=1e-13)
            assert len(np.unique(V, axis=0)) == J
            assert np.all(polytope.excess(np, V) <= 1e-14)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 7.0, math.inf])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_diameter_is_the_largest_distance_and_some_pair_of_points_has_it(p, d):
    rng = np.random.default_rng(d)
    points = rng.standard_normal((9, d))
    eye, flat = np.eye(d), np.ones((1, d))
    candidates = [
        (L1Ball(1.5), 1.5 * np.concatenate([eye, -eye])),
        (Simplex(1.5), 1.5 * eye),
        (Polytope(points), points),
    ]
    for ball in (L2Ball(1.5), LpBall(1.2, 1.5), LpBall(10.0, 1.5)):
        corner = ball.project(np, 9.0 * flat)
        candidates.append((ball, np.concatenate([1.5 * eye, -1.5 * eye, corner, -corner])))
    for constraint, extreme in candidates:
        found = constraint.diameter(p, d)
        X = np.concatenate([extreme, constraint.project(np, 5.0 * rng.standard_normal((40, d)))])
        distances = np.linalg.norm(X[:, None, :] - X[None, :, :], ord=p, axis=-1)
        assert np.max(distances) == pytest.approx(found, rel=1e-12, abs=1e-14)
        assert constraint.diameter(p) >= found * (1 - 1e-15)
        assert np.max(np.linalg.norm(X, axis=1)) <= constraint.radius * (1 + 1e-14)
    assert RealSpace().diameter(p) == math.inf


def test_sizes_that_grow_with_the_dimension_are_infinite_without_it():
    """A finite radius would make the Lipschitz constant of a squared loss, and so the noise, too small."""
    assert LpBall(10.0, 1.0).radius == LpBall(10.0, 1.0).l2_diameter == L2Ball(1.0).diameter(1.0) == math.inf
    assert "bounded" not in LpBall(10.0, 1.0).properties
    assert LpBall(1.5, 3.0).radius == 3.0
    assert {"bounded", "centrally_symmetric"} == LpBall(1.5, 3.0).properties
    assert Polytope([[3.0, 4.0], [0.0, 1.0]]).radius == 5.0


@pytest.mark.parametrize(
    "constraint",
    [RealSpace(), L2Ball(2.0), L1Ball(2.0), LpBall(1.5, 2.0), Simplex(2.0), Polytope([[1, 2], [3, 5], [4, 4]])],
)
def test_start_is_a_point_of_the_set(constraint):
    for backend in BACKENDS:
        W = constraint.start(backend.xp, backend.zeros((3, 2)))
        assert np.all(backend.to_host(constraint.excess(backend.xp, W)) <= 1e-15)
        assert backend.to_host(W).shape == (3, 2)
    if not isinstance(constraint, RealSpace):
        spread = np.linalg.norm(constraint.linear_minimizer(np, np.eye(2)) - constraint.start(np, np.zeros((2, 2))))
        assert spread > 0.5, "it is no extreme point"


def test_gaussian_widths_are_exact_where_they_are_known():
    for d in (1, 2, 30, 1000):
        assert LpBall(2.0, 3.0).gaussian_width(d) == pytest.approx(L2Ball(3.0).gaussian_width(d), rel=1e-11)
    for p in (1.01, 1.3, 5.0, 100.0):
        assert LpBall(p, 3.0).gaussian_width(1) == pytest.approx(3.0 * math.sqrt(2 / math.pi), rel=1e-11)
    assert Simplex(1.0).gaussian_width(1) == pytest.approx(0.0, abs=1e-12)
    assert Simplex(2.0).gaussian_width(2) == pytest.approx(2 / math.sqrt(math.pi), rel=1e-11)
    assert Simplex(1.0).gaussian_width(3) == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-11)


def test_gaussian_width_of_a_polytope_is_good_to_a_percent_wherever_it_lies():
    assert Polytope(1e6 + 3.0 * np.eye(40)).gaussian_width(40) == pytest.approx(
        Simplex(3.0).gaussian_width(40), rel=0.01
    )
    cross = Polytope(np.concatenate([np.eye(9), -np.eye(9)]))
    assert cross.gaussian_width(9) == pytest.approx(L1Ball(1.0).gaussian_width(9), rel=0.01)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_has_the_same_bits_in_any_company_on_every_set(dtype):
    rng = np.random.default_rng(1)
    points = rng.standard_normal((50, 9))
    V = (10.0 ** rng.uniform(-2, 3, (40, 1)) * rng.standard_normal((40, 9))).astype(dtype)
    for constraint in (LpBall(1.05, 1.5), LpBall(1.5, 1.5), LpBall(10.0, 1.5), Simplex(1.5), Polytope(points)):
        methods = [constraint.project, constraint.linear_minimizer, constraint.excess]
        if isinstance(constraint, LpBall):
            methods.append(lambda xp, G, C=constraint: C.mirror_step(xp, C.project(xp, G[:, ::-1]), G))
        else:
            methods.append(constraint.vertex_values)
        for method in methods:
            together = method(np, V)
            assert together.dtype == dtype
            for chosen in ([3], [39, 0], list(range(20, 37))):
                np.testing.assert_array_equal(method(np, V[chosen]), together[chosen])


@pytest.mark.parametrize("d", [2, 3, 4, 5])
def test_projection_onto_a_cube_by_its_vertices_is_clipping_also_next_to_a_face(d, backend):
    """Four or more vertices of a face are affinely dependent."""
    xp = backend.xp
    cube = Polytope(list(itertools.product([-1.0, 1.0], repeat=d)))
    rng = np.random.default_rng(d)
    points = rng.uniform(-1.0, 1.0, size=(400, d))
    sides = rng.integers(d, size=400)
    points[np.arange(400), sides] = rng.choice([-1.0, 1.0], size=400) * (1.0 + 10.0 ** -rng.uniform(1, 9, size=400))
    found = backend.to_host(cube.project(xp, backend.asarray(points)))
    np.testing.assert_allclose(found, np.clip(points, -1.0, 1.0), atol=1e-12)
