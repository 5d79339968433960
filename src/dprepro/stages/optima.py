"""Stage `optima`: the non-private minimum at all points of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprepro.arrays import get_backend, single_blas_thread
from dprepro.files import write_json
from dprepro.problems.optimum import find_optimum
from dprepro.stages.points import load_point
from dprepro.stages.starts import at_start


def solve_points(spec: Mapping[str, Any], out: Path) -> None:
    """Write the minimum of each point's objective, its accuracy, and what is known of the initial point."""
    rows = []
    with single_blas_thread():
        for point in spec["points"]:
            problem, _ = load_point(point, get_backend("cpu", "float64"))
            known = point["minimum"]
            found = find_optimum(problem) if known is None else None
            minimum = {
                "objective": found.objective if found else known,
                "accuracy": found.accuracy if found else 0.0,
            }
            rows.append(minimum | at_start(problem, point))
    write_json(out, {"points": rows})
