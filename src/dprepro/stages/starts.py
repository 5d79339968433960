"""What sweeps know of the point that a run starts from: its objective and its errors, what doing nothing costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dprepro.errors import NotConverged
from dprepro.geometry import ball_exponent
from dprepro.problems.erm import EmpiricalRisk
from dprepro.problems.near_stationarity import near_stationarity


def at_start(problem: EmpiricalRisk, point: Mapping[str, Any]) -> dict[str, float]:
    """Return the objective at the initial point and every error that the problem at a point of a sweep has there."""
    backend = problem.backend
    start = problem.spec.constraint.start(backend.xp, backend.zeros((1, problem.spec.d)))
    return {
        "objective_at_zero": float(backend.to_host(problem.objective(start))[0]),
        **_gradient_at(problem, start),
        **_gap_at(problem, start),
        **_near_at(problem, start),
        **_goldstein_at(problem, start, point.get("radius")),
    }


def known_start(problem: EmpiricalRisk, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return `at_start`, or under `failed` why a solver did not converge there; nothing is then known of the start."""
    try:
        return dict(at_start(problem, point))
    except NotConverged as error:
        return {"objective_at_zero": None, "failed": str(error)}


def _gradient_at(problem: EmpiricalRisk, start: Any) -> dict[str, float]:
    """Return the gradient norm at a point where there is one."""
    if not {"smooth", "smooth_regularizer"} <= problem.spec.properties:
        return {}
    return {"gradient_norm_at_zero": float(problem.backend.to_host(problem.gradient_norm(start))[0])}


def _gap_at(problem: EmpiricalRisk, start: Any) -> dict[str, float]:
    """Return the stationarity gap at a point where there is one."""
    if not {"bounded", "smooth", "smooth_regularizer"} <= problem.spec.properties:
        return {}
    return {"stationarity_gap_at_zero": float(problem.backend.to_host(problem.stationarity_gap(start))[0])}


def _near_at(problem: EmpiricalRisk, start: Any) -> dict[str, float]:
    """Return the near stationarity at a point, for losses that are neither smooth nor convex."""
    loss = problem.spec.loss
    weakly_convex = 0.0 < loss.weak_convexity(1.0) < math.inf
    if loss.smooth or not weakly_convex or ball_exponent(problem.spec.constraint) is None:
        return {}
    return {"near_stationarity_at_zero": float(near_stationarity(problem, problem.backend.to_host(start))[0])}


def _goldstein_at(problem: EmpiricalRisk, start: Any, radius: float | None) -> dict[str, float]:
    """Return the Goldstein stationarity at a point for problems with a radius."""
    if radius is None:
        return {}
    from dprepro.problems.goldstein import certificate

    found = certificate(problem, problem.backend.to_host(start), radius)
    return {"goldstein_stationarity_at_zero": float(found.bound[0])}
