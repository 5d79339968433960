"""Stage `optima`: the non-private minimum at all points of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprepro.arrays import get_backend, single_blas_thread
from dprepro.errors import NotConverged
from dprepro.files import write_record
from dprepro.problems.erm import EmpiricalRisk
from dprepro.problems.optimum import find_optimum
from dprepro.stages.points import load_point
from dprepro.stages.starts import known_start
from dprepro.workflow import made_by


def solve_points(spec: Mapping[str, Any], out: Path) -> None:
    """Write the minimum of each point's objective, its accuracy, and what is known of the initial point."""
    rows = []
    with single_blas_thread():
        for point in spec["points"]:
            problem, _ = load_point(point, get_backend("cpu", "float64"))
            rows.append(_minimum(problem, point["minimum"]) | known_start(problem, point))
    first = spec["points"][0]
    write_record(
        out, {"points": rows, "made_by": made_by("optima", dataset=first["dataset"]["name"], loss=first["loss"])}
    )


def _minimum(problem: EmpiricalRisk, known: float | None) -> dict[str, Any]:
    """Return the minimum and its accuracy; `failed` says why where it is not found to its tolerance."""
    if known is not None:
        return {"objective": known, "accuracy": 0.0}
    try:
        found = find_optimum(problem)
    except NotConverged as error:
        return {"objective": None, "accuracy": None, "failed": str(error)}
    return {"objective": found.objective, "accuracy": found.accuracy}
