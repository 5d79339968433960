from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog, minimize

from dprepro.arrays import get_backend, strict_backend
from dprepro.errors import UserError
from dprepro.geometry import L1Ball, L2Ball, RealSpace, get_set
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
    assert get_regularizer(0.01) == Regularizer(l2=0.01)
    assert get_regularizer({"l1": 1}) == Regularizer(l1=1.0)
    assert get_regularizer(None).name == "none"
    assert Regularizer(0.1, 0.1).name == "elastic net"


@pytest.mark.parametrize("wish", ["cube", "l2_ball:zero", "l2_ball:0", "l1_ball:-1", "l1_ball:nan", "real_space:1"])
def test_bad_sets_are_refused_with_advice(wish):
    with pytest.raises(UserError, match=r"use one of|write for example|positive number|takes no radius"):
        get_set(wish)


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


@pytest.mark.parametrize("ball", [L1Ball(3.0), L2Ball(3.0)])
@pytest.mark.parametrize("d", [1, 2, 50, 1000])
def test_gaussian_width_is_the_mean_of_the_support_function(ball, d):
    """Monte Carlo with 4,000 draws; six standard errors: false alarm below 1e-8 each, and the seed is fixed."""
    G = np.random.default_rng(d).standard_normal((4_000, d))
    support = -np.sum(G * ball.linear_minimizer(np, G), axis=1)
    error = np.std(support) / math.sqrt(len(support))
    assert abs(ball.gaussian_width(d) - np.mean(support)) <= 6.0 * error


def test_gaussian_width_of_the_l1_ball_is_exact_where_it_is_known():
    assert L1Ball(2.0).gaussian_width(1) == pytest.approx(2.0 * math.sqrt(2 / math.pi), rel=1e-11)
    assert L1Ball(1.0).gaussian_width(2) == pytest.approx(2 / math.sqrt(math.pi), rel=1e-11)


def test_the_whole_space_is_not_bounded():
    space = RealSpace()
    assert space.l2_diameter == space.gaussian_width(3) == space.bregman_radius(3) == math.inf
    assert "centrally_symmetric" not in space.properties
