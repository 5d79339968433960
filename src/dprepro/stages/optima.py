"""Stage `optima`: the non-private minimum at all points of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprepro.arrays import get_backend, single_blas_thread
from dprepro.files import write_json
from dprepro.problems.optimum import find_optimum
from dprepro.stages.points import load_point


def solve_points(spec: Mapping[str, Any], out: Path) -> None:
    """Write the minimum of each point's objective, its accuracy and the objective at w = 0."""
    rows = []
    with single_blas_thread():
        for point in spec["points"]:
            problem, _ = load_point(point, get_backend("cpu", "float64"))
            zero = problem.backend.to_host(problem.objective(problem.backend.zeros((1, problem.spec.d))))[0]
            known = point["minimum"]
            found = find_optimum(problem) if known is None else None
            rows.append(
                {
                    "objective": found.objective if found else known,
                    "accuracy": found.accuracy if found else 0.0,
                    "objective_at_zero": float(zero),
                }
            )
    write_json(out, {"points": rows})
