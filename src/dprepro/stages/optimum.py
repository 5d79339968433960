"""Stage `optimum`: the non-private optimum of an experiment's objective on one dataset.

An optimum that is not found to its tolerance is a result too: `failed` holds the sentence that says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dprepro import digests
from dprepro.arrays import get_backend, single_blas_thread
from dprepro.errors import NotConverged
from dprepro.files import write_arrays
from dprepro.problems.optimum import find_optimum
from dprepro.stages.problem import load_problem
from dprepro.workflow import made_by


def solve_exactly(spec: Mapping[str, Any], data: Path, out: Path) -> None:
    """Write w*, F^r(w*), the accuracy of that value, F^r(0), and the digests of dataset and problem."""
    with single_blas_thread():
        problem, facts = load_problem(spec, data, get_backend("cpu", "float64"))
        found, failed = None, ""
        try:
            found = find_optimum(problem)
        except NotConverged as error:
            failed = str(error)
        zero = problem.objective(problem.backend.zeros((1, problem.spec.d)))
    write_arrays(
        out,
        {
            "w": found.w if found else np.full(problem.spec.d, np.nan),
            "objective": np.array(found.objective if found else np.nan),
            "accuracy": np.array(found.accuracy if found else np.nan),
            "objective_at_zero": problem.backend.to_host(zero)[0],
            "failed": np.array(failed),
            "dataset": np.array(facts["digest"]),
            "problem": np.array(digests.of_problem(spec)),
            "made_by": np.array(json.dumps(made_by("optimum", loss=spec["loss"]))),
        },
    )
