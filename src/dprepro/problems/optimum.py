"""The non-private optimum, to a stated accuracy: the reference that every gap is measured against.

Smooth objectives are minimised by Newton's method or FISTA. A piecewise linear loss over a polytope, or over the whole
space, is a linear program; over the l2 ball its envelopes are minimised one after the other. Both come with a lower
bound of the minimum: max(l v, r v) >= g v for every slope g in [l, r], so any choice of slopes, one for each kink of
each record, makes a linear function that lies below the objective, and its minimum over the set is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dprepro.errors import NotConverged, UserError
from dprepro.geometry import ConstraintSet, L2Ball, RealSpace
from dprepro.losses import PiecewiseLinear
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.smoothing import MoreauEnvelope

TOLERANCE = 1e-10
# For losses with kinks: linear programs are solved to about this.
KINK_TOLERANCE = 1e-8
# The envelopes on the way to a loss with kinks; the last one is within 1e-10 of a loss of slope 1.
_BETAS = tuple(10.0 ** (0.5 * power) for power in range(0, 21))
_NEWTON_STEPS = 100
_FISTA_STEPS = 200_000


@dataclass(frozen=True)
class Optimum:
    """A minimiser w (d,), its objective, and how far that objective can be above the minimum."""

    w: np.ndarray
    objective: float
    accuracy: float
    method: str


def find_optimum(problem: EmpiricalRisk) -> Optimum:
    """Minimise F^r to `TOLERANCE` by Newton's method if smooth and unconstrained, else by FISTA.

    A loss with kinks is minimised to `KINK_TOLERANCE`. Raises `NotConverged` if the accuracy is not reached, rather
    than returning something close. Without convexity no accuracy is known, and the problem is refused.
    """
    problem = problem.with_dtype("float64")
    spec = problem.spec
    if not spec.loss.convex:
        raise _unknown(spec)
    newton = spec.regularizer.smooth and isinstance(spec.constraint, RealSpace)
    if spec.loss.smooth:
        found, tolerance = _newton(problem) if newton else _fista(problem), TOLERANCE
    else:
        found, tolerance = _with_kinks(problem), KINK_TOLERANCE
    if not found.accuracy <= tolerance:
        raise NotConverged(
            f"The optimum of {spec.loss.name} with n = {spec.n}, d = {spec.d} was found only to "
            f"{found.accuracy:.2g} by {found.method}, not to {tolerance:g}; does the minimum exist?"
        )
    return found


def _newton(problem: EmpiricalRisk) -> Optimum:
    """Damped Newton. Accuracy: half the squared Newton decrement, which bounds the gap near the optimum.

    Features may be collinear (one-hot blocks): the step is the least-norm one, by eigenvalues. Steps go on
    until the decrement has reached rounding, well below the tolerance, where the bound is reliable.
    """
    spec, backend = problem.spec, problem.backend
    l2 = spec.regularizer.l2
    w = np.zeros(spec.d)
    value = _value(problem, w)
    decrement = np.inf
    for _ in range(_NEWTON_STEPS):
        gradient = _gradient(problem, w)
        hessian = backend.to_host(problem.hessian(backend.asarray(w))) + l2 * np.eye(spec.d)
        eigenvalues, vectors = np.linalg.eigh(hessian)
        kept = eigenvalues > 1e-12 * eigenvalues[-1]
        along = vectors[:, kept].T @ gradient
        step = vectors[:, kept] @ (along / eigenvalues[kept])
        decrement = float(along @ (along / eigenvalues[kept]))
        if decrement <= 1e-3 * TOLERANCE:
            # One more full step from here squares the error; take it and stop.
            w = w - step
            break
        size = 1.0
        while _value(problem, w - size * step) > value - 0.25 * size * decrement and size > 1e-10:
            size *= 0.5
        w = w - size * step
        value = _value(problem, w)
    return Optimum(w, _value(problem, w), 0.5 * decrement, "Newton's method (accuracy by the Newton decrement)")


def _fista(problem: EmpiricalRisk) -> Optimum:
    """Accelerated proximal gradient with restarts, for l1 terms and constraint sets.

    Accuracy: with g the prox-gradient step's residual, F^r(w) - min <= ||g|| * D for a set of diameter D, and
    <= ||g||^2 / (2 mu) for a strongly convex objective. No loss is negative, so an l1 term keeps the minimiser, and
    every point better than 0, in the ball of radius F(0) / l1.
    """
    spec, backend = problem.spec, problem.backend
    radius = spec.constraint.radius
    if spec.regularizer.l1:
        radius = min(radius, _value(problem, np.zeros(spec.d)) / spec.regularizer.l1)
    eta = 1.0 / spec.L
    w = z = backend.zeros((1, spec.d))
    xp, momentum = backend.xp, 1.0
    accuracy = np.inf
    for _ in range(_FISTA_STEPS):
        new = problem.prox(z - eta * problem.gradient(z), eta)
        residual = float(backend.to_host(xp.linalg.vector_norm(new - z))) / eta
        # The subgradient at `new` is at most twice the residual at z.
        slope = 2.0 * residual
        accuracy = min(slope * 2.0 * radius, slope**2 / (2.0 * spec.mu) if spec.mu else np.inf)
        if accuracy <= TOLERANCE:
            w = new
            break
        if float(backend.to_host(xp.sum((z - new) * (new - w)))) > 0.0:
            momentum = 1.0
        following = 0.5 * (1.0 + (1.0 + 4.0 * momentum * momentum) ** 0.5)
        z = new + ((momentum - 1.0) / following) * (new - w)
        w, momentum = new, following
    point = backend.to_host(w)[0]
    return Optimum(point, _value(problem, point), accuracy, "accelerated proximal gradient")


def _with_kinks(problem: EmpiricalRisk) -> Optimum:
    """Minimise a piecewise linear loss; the accuracy is the distance to a lower bound of the minimum."""
    spec = problem.spec
    known = isinstance(spec.constraint, L2Ball | RealSpace) or "polytope" in spec.constraint.properties
    if not (isinstance(spec.loss, PiecewiseLinear) and known) or spec.regularizer.l1 or spec.regularizer.l2:
        raise _unknown(spec)
    if not isinstance(spec.constraint, RealSpace):
        linear = _as_linear(problem)
        if linear.accuracy <= TOLERANCE:
            return linear
    if not isinstance(spec.constraint, L2Ball):
        return _linear_program(problem, spec.constraint)
    # A minimiser over the whole space that lies in the ball is exact; envelopes are good where the sphere stops them.
    free = _linear_program(problem, RealSpace())
    return free if np.linalg.norm(free.w) <= spec.constraint.radius else _by_envelopes(problem)


def _unknown(spec: ProblemSpec) -> UserError:
    return UserError(
        f"The minimum of the loss {spec.loss.name!r} with regularizer {spec.regularizer.name!r} on "
        f"{spec.constraint.name} is not known: give it as `minimum`, or use a convex loss that is smooth, or piecewise "
        "linear without regularizer on an l2 ball, a polytope or the whole space."
    )


def _as_linear(problem: EmpiricalRisk) -> Optimum:
    """Return the end of the set that the gradient at 0 points to: the minimum where no kink is in between."""
    gradient = problem.gradient(problem.backend.zeros((1, problem.spec.d)))
    w = problem.backend.to_host(problem.spec.constraint.linear_minimizer(problem.backend.xp, gradient))[0]  # type: ignore[union-attr]
    slopes = _smoothed_slopes(problem, w, _BETAS[-1])
    return Optimum(w, _value(problem, w), _distance(problem, w, slopes), "linear function (accuracy by weak duality)")


def _linear_program(problem: EmpiricalRisk, constraint: ConstraintSet) -> Optimum:
    """Minimise sum_i p_i s_i over weights u >= 0 of the vertices, sum u = 1, and s_i >= left v_i, right v_i.

    v_i is the offset of record i from a kink; a loss of several kinks has an s for each. In the whole space the
    unknowns are the coordinates themselves.
    """
    from scipy.optimize import linprog
    from scipy.sparse import bmat, diags

    weights, rows, kinks = _kinks(problem)
    corners = _vertices(problem, constraint)
    reach = rows @ corners.T
    unit = diags(np.ones(len(weights)))
    pieces, levels, costs = [], [], np.zeros(len(corners))
    for number, (left, right, level) in enumerate(kinks):
        blocks = [None] * len(kinks)
        for slope in (left, right):
            # slope (<x, w> - level) <= s
            pieces.append([slope * reach, *(-unit if other == number else block for other, block in enumerate(blocks))])
            levels.append(slope * level)
    costs = np.concatenate([costs, *(weights for _ in kinks)])
    free = isinstance(constraint, RealSpace)
    bounds = [(None, None) if free else (0.0, None)] * len(corners) + [(0.0, None)] * (len(costs) - len(corners))
    sum_to_one = {} if free else {"A_eq": (np.arange(len(costs)) < len(corners))[None, :] * 1.0, "b_eq": [1.0]}
    tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    solved = linprog(
        costs, bmat(pieces, format="csr"), np.concatenate(levels), **sum_to_one, bounds=bounds, options=tolerances
    )
    if solved.status != 0:
        raise NotConverged(f"The linear program for the optimum of {problem.spec.loss.name!r} failed: {solved.message}")
    shares = solved.x[: len(corners)] if free else _on_simplex(solved.x[: len(corners)])
    w = shares @ corners
    duals = -solved.ineqlin.marginals.reshape(len(kinks), 2, len(weights))
    slopes = np.array([left * pair[0] + right * pair[1] for (left, right, _), pair in zip(kinks, duals, strict=True)])
    slopes = slopes / np.where(weights > 0.0, weights, 1.0)
    method = "linear program (accuracy by weak duality)"
    if isinstance(problem.spec.constraint, RealSpace):
        method = "linear program (accuracy by weak duality, for minimisers up to ten times as long as the one found)"
    return Optimum(w, _value(problem, w), _distance(problem, w, slopes), method)


def _by_envelopes(problem: EmpiricalRisk) -> Optimum:
    """Minimise envelopes of growing beta over the l2 ball, each by Newton's method from the minimiser of the last.

    An envelope is piecewise quadratic: where a Newton step over the ball does not leave a piece, it is exact.
    """
    loss = problem.spec.loss
    assert isinstance(loss, PiecewiseLinear)
    w = np.zeros(problem.spec.d)
    best = Optimum(w, _value(problem, w), np.inf, "")
    for beta in _BETAS:
        smooth = problem.with_loss(MoreauEnvelope(loss, beta))
        w = _newton_in_ball(smooth, w, problem.spec.constraint.radius)
        slopes = _smoothed_slopes(problem, w, beta)
        accuracy = _distance(problem, w, slopes)
        if accuracy < best.accuracy:
            best = Optimum(w, _value(problem, w), accuracy, "envelopes (accuracy by weak duality)")
        if accuracy <= 0.01 * KINK_TOLERANCE:
            break
    return best


def _newton_in_ball(problem: EmpiricalRisk, w: np.ndarray, radius: float) -> np.ndarray:
    """Return the minimiser over the ball: each step goes towards that of the second-order model."""
    backend = problem.backend
    value = _value(problem, w)
    for _ in range(_NEWTON_STEPS):
        hessian = backend.to_host(problem.hessian(backend.asarray(w)))
        gradient = _gradient(problem, w)
        step = _quadratic_minimizer(hessian, gradient - hessian @ w, radius) - w
        slope, size = float(gradient @ step), 1.0
        while (new := _value(problem, w + size * step)) > value + 0.25 * size * slope and size > 1e-12:
            size *= 0.5
        if not new < value:
            break
        w, value = w + size * step, new
    return w


def _quadratic_minimizer(H: np.ndarray, b: np.ndarray, radius: float) -> np.ndarray:
    """Return argmin_{||v|| <= radius} 1/2 v'Hv + b'v for H >= 0: v = -(H + shift)^-1 b, by bisection on the shift."""
    eigenvalues, vectors = np.linalg.eigh(H)
    eigenvalues, along = np.maximum(eigenvalues, 0.0), vectors.T @ b

    def minimizer(shift: float) -> np.ndarray:
        return -along / (eigenvalues + shift)

    high = float(np.linalg.norm(b)) / radius + 1e-300
    low = 1e-16 * max(eigenvalues[-1], high)
    if np.linalg.norm(minimizer(low)) > radius:
        for _ in range(200):
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if np.linalg.norm(minimizer(middle)) > radius else (low, middle)
        return np.asarray(vectors @ minimizer(high))
    return np.asarray(vectors @ minimizer(low))


def _kinks(problem: EmpiricalRisk) -> tuple[np.ndarray, np.ndarray, list[tuple[float, float, np.ndarray]]]:
    """Return weights (M,) and rows (M, d) of the records, and every kink as (left, right, where <x, w> has it (M,))."""
    loss = problem.spec.loss
    assert isinstance(loss, PiecewiseLinear)
    weights, rows, y = problem.records()
    at_zero = np.zeros_like(y)
    return weights, rows, [(kink.left, kink.right, at_zero - v) for kink, v in loss.offsets(at_zero, y)]


def _smoothed_slopes(problem: EmpiricalRisk, w: np.ndarray, beta: float) -> np.ndarray:
    """Return the slopes (kinks, M) that the beta-envelope has at w."""
    _, rows, kinks = _kinks(problem)
    t = rows @ w
    return np.array([np.clip(beta * (t - level), left, right) for left, right, level in kinks])


def _distance(problem: EmpiricalRisk, w: np.ndarray, slopes: np.ndarray) -> float:
    """Return how far F(w) is above the minimum of the linear function with these slopes (kinks, M), at most."""
    weights, rows, kinks = _kinks(problem)
    constraint, backend = problem.spec.constraint, problem.backend
    chosen = [np.clip(g, left, right) for g, (left, right, _) in zip(slopes, kinks, strict=True)]
    direction = (weights * np.sum(chosen, axis=0)) @ rows
    offset = sum(float((weights * g) @ level) for g, (_, _, level) in zip(chosen, kinks, strict=True))
    if isinstance(constraint, RealSpace):
        lowest = -10.0 * float(np.linalg.norm(direction)) * float(np.linalg.norm(w))
    else:
        xp, along = backend.xp, backend.asarray(direction[None, :])
        lowest = float(direction @ backend.to_host(constraint.linear_minimizer(xp, along))[0])
    return max(_value(problem, w) - (lowest - offset), 0.0)


def _vertices(problem: EmpiricalRisk, constraint: ConstraintSet) -> np.ndarray:
    """Return the vertices of the set as rows (J, d); the unit vectors for the whole space."""
    backend, d = problem.backend, problem.spec.d
    if isinstance(constraint, RealSpace):
        return np.eye(d)
    count = constraint.vertex_values(backend.xp, backend.zeros((1, d))).shape[1]  # type: ignore[union-attr]
    like, numbers = backend.zeros((count, d)), backend.index(np.arange(count))
    return backend.to_host(constraint.vertex(backend.xp, numbers, like))  # type: ignore[union-attr]


def _on_simplex(shares: np.ndarray) -> np.ndarray:
    """Return the shares without the rounding of the solver: none negative, with the sum 1."""
    shares = np.maximum(shares, 0.0)
    return shares / shares.sum()


def _value(problem: EmpiricalRisk, w: np.ndarray) -> float:
    backend = problem.backend
    return float(backend.to_host(problem.objective(backend.asarray(w[None, :])))[0])


def _gradient(problem: EmpiricalRisk, w: np.ndarray) -> np.ndarray:
    backend = problem.backend
    gradient = problem.gradient(backend.asarray(w[None, :]))
    return backend.to_host(gradient)[0] + problem.spec.regularizer.l2 * w
