"""The non-private optimum, to a stated accuracy: the reference that every gap is measured against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dprepro.errors import RunFailed
from dprepro.geometry import RealSpace
from dprepro.problems.erm import EmpiricalRisk

TOLERANCE = 1e-10
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

    Raises `RunFailed` if the accuracy is not reached, rather than returning something close.
    """
    problem = problem.with_dtype("float64")
    spec = problem.spec
    newton = spec.regularizer.smooth and isinstance(spec.constraint, RealSpace)
    found = _newton(problem) if newton else _fista(problem)
    if not found.accuracy <= TOLERANCE:
        raise RunFailed(
            f"The optimum of {spec.loss.name} with n = {spec.n}, d = {spec.d} was found only to "
            f"{found.accuracy:.2g} by {found.method}, not to {TOLERANCE:g}; does the minimum exist?"
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


def _value(problem: EmpiricalRisk, w: np.ndarray) -> float:
    backend = problem.backend
    return float(backend.to_host(problem.objective(backend.asarray(w[None, :])))[0])


def _gradient(problem: EmpiricalRisk, w: np.ndarray) -> np.ndarray:
    backend = problem.backend
    gradient = problem.gradient(backend.asarray(w[None, :]))
    return backend.to_host(gradient)[0] + problem.spec.regularizer.l2 * w
