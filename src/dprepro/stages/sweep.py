"""Stage `sweep`: one method along the axes of a problem, all points in one process.

A point whose setting is vacuous, or which the algorithm refuses, is kept with the sentence that says why.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Plan, Setting
from dprepro.arrays import Backend, blas_threads, get_backend, single_blas_thread
from dprepro.errors import UserError
from dprepro.files import read_json, write_arrays, write_json
from dprepro.privacy.certificate import certify
from dprepro.problems.erm import EmpiricalRisk
from dprepro.provenance import commit, machine
from dprepro.run import RunResult, execute
from dprepro.stages.points import load_point

GAP = "optimality gap"


def run_sweep(spec: Mapping[str, Any], optima: Path, out: Path, sources: str) -> None:
    """Run all points of the job `spec`; write the replicates' values as `.npz` and the plans as `.json`."""
    backend = get_backend(dtype=spec["dtype"], configured=spec["device"])
    with single_blas_thread():
        threads = blas_threads()
    known = read_json(optima)["points"]
    records, values, objectives = [], [], []
    for point, optimum in zip(spec["points"], known, strict=True):
        record, value, objective = _run_point(spec, point, optimum, backend)
        records.append(record)
        values.append(value)
        objectives.append(objective)
    write_arrays(out, {"value": np.stack(values), "final_objective": np.stack(objectives)})
    provenance = {
        **commit(),
        **machine(),
        "sources": sources,
        "backend": backend.name,
        "device": backend.device_name,
        "why": backend.why,
        "dtype": backend.dtype_name,
        "threads": threads,
    }
    job = {key: value for key, value in spec.items() if key != "points"}
    write_json(out.with_suffix(".json"), {"job": job, "points": records, "provenance": provenance})


def _run_point(
    spec: Mapping[str, Any], point: Mapping[str, Any], optimum: Mapping[str, float], backend: Backend
) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Return the record of one point, the metric of every replicate (K,) and its final objective (K,)."""
    problem, facts = load_point(point, backend)
    record: dict[str, Any] = {"point": dict(point), "dataset": facts, "optimum": dict(optimum), "refused": ""}
    nothing = np.full(spec["replicates"], np.nan)
    started = time.process_time()
    try:
        plan, tuned = _chosen(spec, point, optimum, problem)
    except UserError as error:
        return record | {"refused": str(error)}, nothing, nothing
    result = _execute(spec, plan, problem, point["seed"])
    record |= {
        "plan": plan.to_json(),
        "letters": plan.letters(),
        "certificate": certify(plan, compare=False),
        "tuned": tuned,
        "gradient_evaluations": int(result.gradient_evaluations[-1]),
        "seconds": float(result.seconds[-1]),
        "seconds_cpu": time.process_time() - started,
    }
    return record, _metric(spec, result, optimum), result.final_objective


def _execute(spec: Mapping[str, Any], plan: Plan, problem: EmpiricalRisk, seed: int) -> RunResult:
    return execute(plan, problem, seed=seed, replicates=range(spec["replicates"]), tile=spec["tile"])


def _chosen(
    spec: Mapping[str, Any], point: Mapping[str, Any], optimum: Mapping[str, float], problem: EmpiricalRisk
) -> tuple[Plan, list[dict[str, Any]]]:
    """Return the plan with the best letters, and how the candidates did.

    With more than one candidate each runs on the tuning seed; the best has the fewest failed replicates and, among
    equals, the smallest mean of the metric. A candidate that the algorithm refuses is passed over.
    """
    algorithm = get_algorithm(spec["algorithm"])
    setting = Setting(problem.spec, point["epsilon"], spec["delta"], spec["variant"])
    candidates = spec["candidates"]
    if len(candidates) == 1:
        return algorithm.plan(setting, **candidates[0]), []
    plans, trials, refusals = [], [], []
    for letters in candidates:
        try:
            plan = algorithm.plan(setting, **letters)
        except UserError as error:
            refusals.append(error)
            continue
        result = _execute(spec, plan, problem, point["tuning_seed"])
        plans.append(plan)
        failed = int(np.sum(~(result.final_objective <= optimum["objective_at_zero"])))
        trials.append({"letters": letters, "mean": float(np.mean(_metric(spec, result, optimum))), "failed": failed})
    if not plans:
        raise refusals[0]
    best = min(range(len(trials)), key=lambda number: (trials[number]["failed"], _last_if_nan(trials[number]["mean"])))
    return plans[best], trials


def _last_if_nan(value: float) -> float:
    return value if np.isfinite(value) else float("inf")


def _metric(spec: Mapping[str, Any], result: RunResult, optimum: Mapping[str, float]) -> np.ndarray:
    if spec["metric"] == GAP:
        return result.final_objective - optimum["objective"]
    if spec["metric"] not in result.observed:
        raise UserError(f"{spec['algorithm']} does not observe the {spec['metric']}: choose another metric.")
    return result.observed[spec["metric"]]
