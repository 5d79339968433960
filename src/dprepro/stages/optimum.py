"""Stage `optimum`: the non-private optimum of an experiment's objective on one dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dprepro.arrays import get_backend, single_blas_thread
from dprepro.files import write_arrays
from dprepro.problems.optimum import find_optimum
from dprepro.stages.problem import load_problem


def solve_exactly(spec: Mapping[str, Any], data: Path, out: Path) -> None:
    """Write w*, F^r(w*), the accuracy of that value, and F^r(0)."""
    with single_blas_thread():
        problem, _ = load_problem(spec, data, get_backend("cpu", "float64"))
        found = find_optimum(problem)
        zero = problem.objective(problem.backend.zeros((1, problem.spec.d)))
    write_arrays(
        out,
        {
            "w": found.w,
            "objective": np.array(found.objective),
            "accuracy": np.array(found.accuracy),
            "objective_at_zero": problem.backend.to_host(zero)[0],
        },
    )
