from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

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
