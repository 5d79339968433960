"""Stage `optima`: the non-private minimum at all points of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprepro.arrays import get_backend, single_blas_thread
from dprepro.files import write_json
from dprepro.geometry import ball_exponent
from dprepro.problems.erm import EmpiricalRisk
from dprepro.problems.near_stationarity import near_stationarity
from dprepro.problems.optimum import find_optimum
from dprepro.stages.points import load_point


def solve_points(spec: Mapping[str, Any], out: Path) -> None:
    """Write the minimum of each point's objective, its accuracy and the objective at w = 0."""
    rows = []
    with single_blas_thread():
        for point in spec["points"]:
            problem, _ = load_point(point, get_backend("cpu", "float64"))
            backend = problem.backend
            start = problem.spec.constraint.start(backend.xp, backend.zeros((1, problem.spec.d)))
            zero = backend.to_host(problem.objective(start))[0]
            known = point["minimum"]
            found = find_optimum(problem) if known is None else None
            rows.append(
                {
                    "objective": found.objective if found else known,
                    "accuracy": found.accuracy if found else 0.0,
                    "objective_at_zero": float(zero),
                    **_gradient_at(problem, start),
                    **_gap_at(problem, start),
                    **_near_at(problem, start),
                }
            )
    write_json(out, {"points": rows})


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
    if problem.spec.loss.smooth or problem.spec.loss.convex or ball_exponent(problem.spec.constraint) is None:
        return {}
    return {"near_stationarity_at_zero": float(near_stationarity(problem, problem.backend.to_host(start))[0])}
