"""Stage `sweep`: one method along the axes of a problem, all points in one process.

A point whose setting is vacuous, which the algorithm refuses, or where a solver does not converge is kept with the
sentence that says why.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Plan, Setting
from dprepro.arrays import Backend, blas_threads, get_backend, single_blas_thread
from dprepro.costs import own_cost
from dprepro.errors import BrokenAlgorithm, NotConverged, UserError
from dprepro.files import read_record, write_arrays, write_record
from dprepro.metrics import GOLDSTEIN, GRADIENT_NORM, NEAR_STATIONARITY
from dprepro.peers import versions
from dprepro.privacy.certificate import certify
from dprepro.problems.erm import EmpiricalRisk
from dprepro.provenance import commit, machine
from dprepro.run import CANDIDATE_OBJECTIVE, STATIONARITY_GAP, RunResult, execute, judged_points
from dprepro.stages.points import load_point
from dprepro.stages.problem import problem_spec
from dprepro.stages.starts import known_start
from dprepro.sweeps import ROWS, value_at_zero
from dprepro.vacuity import thresholds
from dprepro.workflow import own_files

GAP = "optimality gap"
# The gap of an output that is chosen at random, in expectation over the choice.
EXCESS = "excess risk"


def run_sweep(spec: Mapping[str, Any], optima: Path | None, out: Path, sources: str) -> None:
    """Run all points of the job `spec`; write the replicates' values as `.npz` and the plans as `.json`.

    `optima` holds the minima of the points; there is no such file where the metric needs none.
    """
    get_algorithm(spec["algorithm"])  # a library that is not installed is no result: the points are not refused for it
    # An infinite epsilon is a text in JSON.
    spec = {**spec, "points": [{**point, "epsilon": float(point["epsilon"])} for point in spec["points"]]}
    backend = get_backend(dtype=spec["dtype"], configured=spec["device"])
    with single_blas_thread():
        threads = blas_threads()
    minima = read_record(optima, "points") if optima else None
    known = minima["points"] if minima else [_start(point) for point in spec["points"]]
    records, values, objectives = [], [], []
    for point, optimum in zip(spec["points"], known, strict=True):
        record, value, objective = _run_point(spec, point, optimum, backend)
        records.append(record)
        values.append(value)
        objectives.append(objective)
    digest = write_arrays(out, {"value": np.stack(values), "final_objective": np.stack(objectives)})
    provenance = {
        **commit(),
        **machine(),
        "sources": sources,
        **_own_files(spec),
        **backend.facts(),
        "threads": threads,
        "libraries": versions(spec["algorithm"]),
    }
    job = {key: value for key, value in spec.items() if key != "points"}
    found = {"job": job, "points": records, "thresholds": _thresholds(spec, records), "provenance": provenance}
    made_from = {"optima": minima["digest"]} if minima else {}
    write_record(out.with_suffix(".json"), found | {"cost": own_cost(), "arrays": digest, "made_from": made_from})


def _own_files(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's own files that took part, if any; the points share one dataset and one loss."""
    point = spec["points"][0]
    return own_files("sweep", algorithm=spec["algorithm"], dataset=point["dataset"]["name"], loss=point["loss"])


def _run_point(
    spec: Mapping[str, Any], point: Mapping[str, Any], optimum: Mapping[str, Any], backend: Backend
) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Return the record of one point, the metric of every replicate (K,) and its final objective (K,)."""
    problem, facts = load_point(point, backend)
    record: dict[str, Any] = {"point": dict(point), "dataset": facts, "optimum": dict(optimum), "refused": ""}
    nothing = np.full(spec["replicates"], np.nan)
    if optimum.get("failed"):
        return record | {"refused": str(optimum["failed"])}, nothing, nothing
    started = time.process_time()
    try:
        plan, tuned = _chosen(spec, point, optimum, problem)
        result = _execute(spec, plan, problem, point["seed"])
    except BrokenAlgorithm:
        raise
    except (UserError, NotConverged) as error:
        return record | {"refused": str(error)}, nothing, nothing
    try:
        values = _metric(spec, result, optimum, problem)
    except NotConverged as error:
        return record | {"refused": str(error)}, nothing, nothing
    record |= {
        "plan": plan.to_json(),
        "letters": plan.letters(),
        "certificate": certify(plan),
        "tuned": tuned,
        "observed": {name: float(np.mean(values)) for name, values in result.observed.items()},
        "gradient_evaluations": int(result.gradient_evaluations[-1]),
        "function_evaluations": int(result.function_evaluations[-1]),
        "samples": result.samples_used,
        "seconds": float(result.seconds[-1]),
        "seconds_cpu": time.process_time() - started,
        **result.circumstances,
    }
    return record, values, result.final_objective


def _start(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of the initial point; the minimum is not asked for."""
    with single_blas_thread():
        problem, _ = load_point(point, get_backend("cpu", "float64"))
        return {"objective": point["minimum"], "accuracy": 0.0, **known_start(problem, point)}


def _thresholds(spec: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return from which n a published setting makes sense; NaN for other variants, without noise and if none does here.

    The setting is that of the axis n, or of the first point where n is not swept. Of a family of problems the bound is
    held against the member whose initial point is worst.
    """
    record = next((record for record in records if record["point"]["axis"] == ROWS), records[0])
    point = record["point"]
    alike = [r for r in records if all(r["point"][key] == point[key] for key in ("axis", "value"))]
    # Nothing is known of the initial point where a solver did not converge.
    alike = [r for r in alike if not r["optimum"].get("failed")]
    nothing = not alike or all(record["refused"] for record in records)
    if spec["variant"] != "published" or len(spec["candidates"]) > 1 or nothing or not np.isfinite(point["epsilon"]):
        return {"runs_from_n": float("nan"), "useful_from_n": float("nan")}
    trivial = max(value_at_zero(spec["metric"], r["optimum"]) for r in alike)
    problem = problem_spec(point, record["dataset"])

    def setting_at(n: int) -> Setting:
        delta = min(0.5, float(n) ** -point["delta_power"]) if "delta_power" in point else spec["delta"]
        return Setting(replace(problem, n=n), point["epsilon"], delta, spec["variant"])

    algorithm, (letters,) = get_algorithm(spec["algorithm"]), spec["candidates"]
    return thresholds(algorithm, letters, setting_at, spec["metric"], trivial)


def _execute(spec: Mapping[str, Any], plan: Plan, problem: EmpiricalRisk, seed: int) -> RunResult:
    replicates, tile = range(spec["replicates"]), spec["tile"]
    radius = spec.get("radius")
    return execute(plan, problem, seed=seed, replicates=replicates, tile=tile, metric=spec["metric"], radius=radius)


def _chosen(
    spec: Mapping[str, Any], point: Mapping[str, Any], optimum: Mapping[str, Any], problem: EmpiricalRisk
) -> tuple[Plan, list[dict[str, Any]]]:
    """Return the plan with the best letters, and how the candidates did.

    With more than one candidate each runs on the tuning seed; the best has the fewest failed replicates and, among
    equals, the smallest mean of the metric. A candidate that the algorithm refuses is passed over.
    """
    algorithm = get_algorithm(spec["algorithm"])
    setting = Setting(problem.spec, point["epsilon"], point.get("delta", spec["delta"]), spec["variant"])
    candidates = spec["candidates"]
    if len(candidates) == 1:
        return algorithm.plan(setting, **candidates[0]), []
    plans, trials = [], []
    refusals: list[UserError | NotConverged] = []
    for letters in candidates:
        try:
            plan = algorithm.plan(setting, **letters)
            result = _execute(spec, plan, problem, point["tuning_seed"])
            mean = float(np.mean(_metric(spec, result, optimum, problem)))
        except BrokenAlgorithm:
            raise
        except (UserError, NotConverged) as error:
            refusals.append(error)
            continue
        plans.append(plan)
        failed = int(np.sum(~(result.final_objective <= optimum["objective_at_zero"])))
        trials.append({"letters": letters, "mean": mean, "failed": failed})
    if not plans:
        raise refusals[0]
    best = min(range(len(trials)), key=lambda number: (trials[number]["failed"], _last_if_nan(trials[number]["mean"])))
    return plans[best], trials


def _last_if_nan(value: float) -> float:
    return value if np.isfinite(value) else float("inf")


def _metric(
    spec: Mapping[str, Any], result: RunResult, optimum: Mapping[str, Any], problem: EmpiricalRisk
) -> np.ndarray:
    """Return the metric of each replicate (K,): of its output, or the mean over the candidates for it."""
    if spec["metric"] == GAP:
        return result.final_objective - optimum["objective"]
    if spec["metric"] == EXCESS:
        return result.observed.get(CANDIDATE_OBJECTIVE, result.final_objective) - optimum["objective"]
    if spec["metric"] == STATIONARITY_GAP and STATIONARITY_GAP not in result.observed:
        judge = problem.with_dtype("float64")
        return judge.backend.to_host(judge.stationarity_gap(judge.backend.asarray(result.w)))
    if spec["metric"] == GRADIENT_NORM and GRADIENT_NORM not in result.observed:
        judge = problem.with_dtype("float64")
        return judge.backend.to_host(judge.gradient_norm(judge.backend.asarray(result.w)))
    if spec["metric"] in (NEAR_STATIONARITY, GOLDSTEIN) and spec["metric"] not in result.observed:
        return judged_points(problem.with_dtype("float64"), result.w, spec["metric"], spec.get("radius"))
    if spec["metric"] not in result.observed:
        raise UserError(f"{spec['algorithm']} does not observe the {spec['metric']}: choose another metric.")
    return result.observed[spec["metric"]]
