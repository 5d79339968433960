"""Stage `collect`: the runs of one experiment as one tidy table.

A row per replicate and checkpoint for curves, a row per replicate and point for sweeps. What is collected must be
sealed and of the job that the workflow asked for, and every certificate that of its plan, its epsilon confirmed where
that has a closed form. `gaps` are sentences on what is missing: the table is then marked `incomplete`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dprepro import digests, labels
from dprepro.collected import read_collected, write_collected
from dprepro.errors import UserError
from dprepro.files import check_job, each_trusted, read_arrays, read_record, read_result
from dprepro.metrics import RETURNED
from dprepro.privacy.certificate import check_certified
from dprepro.sweeps import bounds_metric, needs_minimum, optima_place, sweep_spec, value_at_zero
from dprepro.workflow import made_by

# What a figure or table says of its origin; taken from the runs, equal for equal runs.
_ORIGIN = ("commit", "modified", "dprepro", "python", "numpy", "backend", "device", "dtype")
# What the files of a run hold that is collected.
_RUN_KEYS = ("job", "plan", "certificate", "refused", "dataset", "made_from", "provenance", "seconds")
_RUN_ARRAYS = ("replicates", "rounds", "gradient_evaluations", "objective", "final_objective")
TIMING_COLUMNS = ("seconds",)
# The failure of a replicate with a value that is no number, at its end or at a checkpoint.
NOT_FINITE = "not finite"


@dataclass(frozen=True)
class _Run:
    """A run that can be trusted, with its optimum: without rows there is a reason why it has no result."""

    record: dict[str, Any]
    optimum: str
    reason: str
    rows: pd.DataFrame | None


def collect(runs: Sequence[Path], optima: Mapping[str, Path], out: Path, gaps: list[str] | None = None) -> None:
    """Write the table of all `runs`; `optima` maps a dataset key to the file of its optimum.

    A run without a result has no rows: `refused` in the metadata says why. After a job has failed, `gaps` are sentences
    on what is missing: runs that cannot be trusted or whose optimum is missing are left out and added to them.
    """
    found = [*each_trusted(runs, lambda path: _read_run(path, optima), gaps)]
    if not found:
        raise UserError("No run has a result and an optimum that can be trusted: remove them and run snakemake again.")
    records = [run.record for run in found]
    _check_labels(records)
    job = records[0]["job"]
    metadata = {
        "kind": "curves",
        "paper": job["paper"],
        "title": job["title"],
        "problem": {key: job[key] for key in ("loss", "regularizer", "constraint")},
        "datasets": {record["job"]["dataset"]: record["dataset"] for record in records},
        "refused": [_refused(run.record, run.reason) for run in found if run.reason],
        **_origins(records),
    }
    folder = job["experiment"]
    made_from = {f"runs/{folder}/{record['job']['job']}.json": record["digest"] for record in records}
    made_from |= {f"optima/{folder}/{run.record['job']['dataset']}.npz": run.optimum for run in found}
    frames = [run.rows for run in found if run.rows is not None]
    write_collected(frames, metadata, out, made_from=made_from, made_by=made_by("collect"), gaps=gaps or ())


def _check_labels(records: Sequence[Mapping[str, Any]]) -> None:
    """Raise `UserError` if figures and tables could not tell two runs apart: their parameters may make labels equal."""
    seen: dict[tuple[str, str], str] = {}
    for record in records:
        job = record["job"]
        # Of a refused setting nothing is drawn, and its label may lack values that only a plan has.
        if record["plan"] is None:
            continue
        name = labels.formatted(job["label"], record["plan"])
        if (other := seen.setdefault((name, str(job["epsilon"])), job["entry"])) != job["entry"]:
            raise UserError(
                f"The methods {other} and {job['entry']} of {job['experiment']} are both called {name!r}: change one "
                "label."
            )


def _read_run(path: Path, optima: Mapping[str, Path]) -> _Run:
    place = path.with_suffix(".json")
    record = read_record(place, *_RUN_KEYS)
    check_job(place, record["job"])
    digest, optimum = _optimum(optima, record["job"]["dataset"], record, place)
    if reason := record["refused"] or str(optimum["failed"]):
        return _Run(record, digest, reason, None)
    check_certified(record, record["job"], str(place))
    return _Run(record, digest, "", run_rows(record, read_result(path, *_RUN_ARRAYS, record=record), optimum))


def _origins(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return what made the results, each origin once, and the user's own files that took part, if any."""
    origins = {json.dumps({key: record["provenance"][key] for key in _ORIGIN}, sort_keys=True) for record in records}
    own = (file for record in records for file in record["provenance"].get("extensions", []))
    return {"origins": sorted(origins), **_own_files(own)}


def _optimum(
    optima: Mapping[str, Path], key: str, record: Mapping[str, Any], run: Path
) -> tuple[str, dict[str, np.ndarray]]:
    """Return the digest and the content of the optimum that a run is held against: of the same data and problem."""
    if key not in optima:
        raise UserError(f"The run {run} is on the dataset {key}, which has no optimum among those given: add it.")
    path = optima[key]
    digest = digests.check(path)
    optimum = read_arrays(path, "objective", "objective_at_zero", "accuracy", "failed", "dataset", "problem")
    wanted = {"dataset": record["made_from"]["dataset"], "problem": digests.of_problem(record["job"])}
    for what, expected in wanted.items():
        if (found := str(optimum[what])) != expected:
            raise UserError(
                f"The optimum {path} is of another {what} than the run {run}: expected digest {expected[:12]}, "
                f"found {found[:12]}; {digests.AGAIN}."
            )
    return digest, optimum


def _refused(record: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return what a table says of a run without a result."""
    job, facts = record["job"], record["dataset"]
    letters = record["plan"] or job["parameters"]
    return {
        "method": labels.formatted(job["label"], letters),
        **{key: job[key] for key in ("dataset", "variant", "delta", "replicates")},
        "epsilon": float(job["epsilon"]),
        "n": facts["n"],
        "d": facts["d"],
        "reason": reason,
    }


def _own_files(found: Iterable[Mapping[str, str]]) -> dict[str, list[Any]]:
    """Return the user's own files that took part, each once, under `extensions`; if any."""
    files = sorted({(one["file"], one["sha256"]) for one in found})
    return {"extensions": [{"file": file, "sha256": sha256} for file, sha256 in files]} if files else {}


def collect_sweeps(runs: Sequence[Path], claims: Mapping[str, Any], out: Path, gaps: list[str] | None = None) -> None:
    """Write the table of all sweeps in `runs`; `claims` is what the experiment says of its methods and problems.

    After a job has failed, sweeps that cannot be trusted are left out and added to `gaps`.
    """
    found = [*each_trusted(runs, _read_sweep, gaps)]
    if not found:
        raise UserError("No sweep has a result that can be trusted: remove them and run snakemake again.")
    records = [record for record, _ in found]
    metadata = {
        "kind": "sweeps",
        "paper": records[0]["job"]["paper"],
        "title": records[0]["job"]["title"],
        "datasets": {point["dataset"]["name"]: point["dataset"] for record in records for point in record["points"]},
        **_origins(records),
        **claims,
    }
    made_from = {
        f"sweeps/{record['job']['experiment']}/{record['job']['job']}.json": record["digest"] for record in records
    }
    frames = [frame for _, frame in found]
    write_collected(frames, metadata, out, made_from=made_from, made_by=made_by("collect"), gaps=gaps or ())


def _read_sweep(path: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    place = path.with_suffix(".json")
    record = read_record(place, "job", "points", "thresholds", "provenance", "made_from")
    check_job(place, sweep_spec(record))
    check_minima(place, record)
    for point in record["points"]:
        if not point["refused"]:
            check_certified(point, {**record["job"], **point["point"]}, str(place))
    return record, sweep_rows(record, read_result(path, "value", "final_objective", record=record))


def check_minima(path: Path, record: Mapping[str, Any]) -> None:
    """Raise `UserError` unless a sweep states the minima of the file it was made from, if that is there."""
    spec = sweep_spec(record)
    if not needs_minimum(spec):
        return
    if (expected := record["made_from"].get("optima")) is None:
        raise UserError(f"The sweep {path} does not state what its minima were made from; {digests.AGAIN}.")
    source = path.absolute().parents[2] / optima_place(spec)
    if not source.exists():
        return
    minima = read_record(source, "points")
    if minima["digest"] != expected:
        raise digests.not_made_from(path, source, expected, minima["digest"])
    if minima["points"] != [point["optimum"] for point in record["points"]]:
        raise UserError(f"The sweep {path} does not state the minima of {source}; {digests.AGAIN}.")


def collect_parts(data: Sequence[Path], paper: str, title: str, out: Path, gaps: list[str] | None = None) -> None:
    """Write the collected tables of several sweep experiments, the rows of a paper's table, as one.

    After a job has failed, tables that cannot be trusted are left out and added to `gaps`.
    """
    found = {path.stem: (frame, here) for path, frame, here in each_trusted(data, _read_part, gaps)}
    if not found:
        raise UserError(f"No part of {paper}'s {title} can be trusted: remove them and run snakemake again.")
    parts = {name: here for name, (_, here) in found.items()}
    merged: dict[str, Any] = {"kind": "parts", "paper": paper, "title": title, "parts": parts}
    for key in ("problems", "settings"):
        merged[key] = {f"{part}/{name}": value for part, here in parts.items() for name, value in here[key].items()}
    merged["datasets"] = {name: facts for here in parts.values() for name, facts in here["datasets"].items()}
    merged |= _own_files(one for here in parts.values() for one in here.get("extensions", ()))
    origins = {json.dumps(origin, sort_keys=True) for here in parts.values() for origin in here["origins"]}
    merged["origins"] = sorted(origins)
    made_from = {f"data/{name}.parquet": here["digest"] for name, here in parts.items()}
    incomplete = [*(gaps or ()), *(f"{name}: {gap}" for name, here in parts.items() for gap in here["incomplete"])]
    frames = [frame for frame, _ in found.values()]
    write_collected(frames, merged, out, made_from=made_from, made_by=made_by("collect"), gaps=incomplete)


def _read_part(path: Path) -> tuple[Path, pd.DataFrame, dict[str, Any]]:
    return path, *read_collected(path)


def run_rows(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray], optimum: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of one run. `failure` is empty, or says why the replicate's end is not a result."""
    job, plan, certificate = record["job"], record["plan"], record["certificate"]
    utility = plan["utility"] or {}
    replicates, checkpoints = arrays["objective"].shape
    final = arrays["final_objective"]
    at_zero = float(optimum["objective_at_zero"])
    failure = _failures(final, at_zero, np.isfinite(arrays["objective"]).all(axis=1))
    objective = arrays["objective"].ravel()
    return pd.DataFrame(
        {
            "experiment": job["experiment"],
            "job": job["job"],
            "method": labels.formatted(job["label"], plan),
            "entry": job["entry"],
            "algorithm": job["algorithm"],
            "variant": job["variant"],
            "dataset": job["dataset"],
            "n": plan["n"],
            "d": plan["d"],
            "epsilon": float(job["epsilon"]),
            "delta": plan["delta"],
            "epsilon_accounted": float(certificate["epsilon_accounted"]),
            "accountant": certificate["accountant"],
            "privacy_verdict": certificate["verdict"],
            "drawn_by": plan.get("drawn_by", ""),
            "sigma": plan["sigma"],
            "theory": utility.get("value", np.nan),
            "theory_quantity": utility.get("quantity", ""),
            "theory_source": utility.get("theorem", ""),
            "planned_gradient_evaluations": plan["gradient_evaluations"],
            "planned_function_evaluations": plan["function_evaluations"],
            "replicate": np.repeat(arrays["replicates"], checkpoints),
            "checkpoint": np.tile(np.arange(checkpoints), replicates),
            "round": np.tile(arrays["rounds"], replicates),
            "gradient_evaluations": np.tile(arrays["gradient_evaluations"], replicates),
            # Left out of the file by runs that ask for no values.
            "function_evaluations": np.tile(arrays.get("function_evaluations", np.zeros(checkpoints, int)), replicates),
            "objective": objective,
            "gap": objective - float(optimum["objective"]),
            "final_gap": np.repeat(final - float(optimum["objective"]), checkpoints),
            "gap_at_zero": at_zero - float(optimum["objective"]),
            "gap_accuracy": float(optimum["accuracy"]),
            "failure": np.repeat(failure, checkpoints),
            "seconds": np.tile(np.asarray(record["seconds"]), replicates),
            "tile": job["tile"],
        }
    )


def sweep_rows(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return the rows of one sweep; a point that was refused has NaN values and the sentence in `refused`."""
    rows = zip(record["points"], arrays["value"], arrays["final_objective"], strict=True)
    return pd.concat([_point_rows(record["job"], record["thresholds"], *row) for row in rows], ignore_index=True)


def _point_rows(
    job: Mapping[str, Any],
    thresholds: Mapping[str, Any],
    record: Mapping[str, Any],
    values: np.ndarray,
    final: np.ndarray,
) -> pd.DataFrame:
    point, optimum = record["point"], record["optimum"]
    plan, certificate = record.get("plan", {}), record.get("certificate", {})
    at_zero = _number(optimum["objective_at_zero"])
    return pd.DataFrame(
        {
            "experiment": job["experiment"],
            "job": job["job"],
            "method": job["label"],
            "entry": job["entry"],
            "algorithm": job["algorithm"],
            "variant": job["variant"],
            "problem": job["problem"],
            "set_here": job["set_here"],
            "axis": point["axis"],
            "axis_value": float(point["value"]),
            "member": ", ".join(f"{key} = {value:g}" for key, value in point.get("member", {}).items()),
            "n": record["dataset"]["n"],
            "d": record["dataset"]["d"],
            "epsilon": float(point["epsilon"]),
            "delta": point.get("delta", job["delta"]),
            "epsilon_accounted": float(certificate.get("epsilon_accounted", np.nan)),
            "accountant": certificate.get("accountant", ""),
            "privacy_verdict": certificate.get("verdict", ""),
            "constant_set_here": certificate.get("constant_set_here", ""),
            "drawn_by": plan.get("drawn_by", ""),
            "covers": "output" if plan.get("rounds") == 1 else "all iterates",
            "sigma": plan.get("sigma", np.nan),
            "bound_value": _bound(plan, job["metric"]),
            "rounds": float(plan.get("rounds", np.nan)),
            "gradient_evaluations": float(record.get("gradient_evaluations", np.nan)),
            "function_evaluations": float(record.get("function_evaluations", np.nan)),
            "samples": float(record.get("samples", np.nan)),
            **{key: _number(value) for key, value in thresholds.items()},
            "letters": json.dumps(record.get("letters", {})),
            "tried": json.dumps(record.get("tuned", [])),
            "returned": _number(record.get("observed", {}).get(RETURNED)),
            "metric": job["metric"],
            "replicate": np.arange(len(values)),
            "value": values,
            "value_at_zero": value_at_zero(job["metric"], optimum),
            "value_accuracy": _number(optimum["accuracy"]),
            "failure": "" if record["refused"] else _failures(final, at_zero, np.isfinite(values)),
            "refused": record["refused"],
            "seconds": record.get("seconds", np.nan),
        }
    )


def _number(value: Any) -> float:
    """Return a number from JSON, where a NaN is null."""
    return float("nan") if value is None else float(value)


def _bound(plan: Mapping[str, Any], metric: str) -> float:
    """Return the value of the plan's bound; NaN without one, and where it is one on something else than the metric."""
    utility = plan.get("utility") or {}
    return float(utility["value"]) if bounds_metric(utility.get("quantity", ""), metric) else float("nan")


def _failures(final: np.ndarray, at_zero: float, measured: np.ndarray) -> np.ndarray:
    """Return for each replicate why it is not a result, or an empty text; `measured` says where all is finite."""
    finite = np.isfinite(final) & measured
    return np.where(~finite, NOT_FINITE, np.where(final > at_zero, "F(w) > F(0)", ""))
