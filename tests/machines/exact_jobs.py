"""The jobs of a configuration that call a solver with a stopping rule, found by what is declared, not by their names.

An algorithm and a set declare it by `solves_exactly`. Every optimum comes from such a solver, and so does every value
of the metric near stationarity, those at initial points among them.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprepro import geometry, peers
from dprepro.algorithms import built_in, get_algorithm
from dprepro.algorithms.base import Algorithm
from dprepro.experiments import AnyExperiment, audit_jobs
from dprepro.files import jsonable
from dprepro.geometry import get_set
from dprepro.metrics import NEAR_STATIONARITY
from dprepro.problems import near_stationarity, optimum
from dprepro.sweeps import needs_minimum, optimum_name

OPTIMUM = frozenset({optimum.__name__})
NEAR = frozenset({near_stationarity.__name__})


@dataclass(frozen=True)
class ExactJob:
    """A job by its stage and name, the modules of the solvers it calls, and what its stage is given.

    `needs` is the dataset of a job of curves, or the optima of a sweep where its metric asks for any.
    """

    stage: str
    name: str
    solvers: frozenset[str]
    spec: Mapping[str, Any]
    needs: str = ""


def exact_jobs(experiments: Sequence[AnyExperiment], config: Mapping[str, Any]) -> list[ExactJob]:
    """Return the jobs in an order in which each finds what it needs."""
    return [*_minima(experiments), *_runs(experiments), *_audits(config)]


def solved_alike(job: ExactJob) -> str:
    """Return what the answer of a job depends on: minima that figures share are found once."""
    return json.dumps([job.stage, job.needs, jsonable(job.spec)], sort_keys=True)


def _minima(experiments: Sequence[AnyExperiment]) -> Iterator[ExactJob]:
    for experiment in experiments:
        if experiment.kind == "curves":
            for key in experiment.datasets():
                yield ExactJob("optimum", f"{experiment.name}/{key}", OPTIMUM, experiment.problem(key), key)
        elif experiment.kind == "sweeps":
            for key, spec in experiment.optima().items():
                yield ExactJob("optima", f"{experiment.name}/{key}", OPTIMUM | _of_metric(spec), spec)


def _runs(experiments: Sequence[AnyExperiment]) -> Iterator[ExactJob]:
    for experiment in experiments:
        for job in experiment.jobs() if experiment.kind != "parts" else ():
            if solvers := _of_algorithm(get_algorithm(job.algorithm)) | _of_problems(job.spec):
                stage = "run" if experiment.kind == "curves" else "sweep"
                needs = job.dataset
                if stage == "sweep":
                    needs = f"{experiment.name}/{optimum_name(job.spec)}" if needs_minimum(job.spec) else ""
                yield ExactJob(stage, f"{experiment.name}/{job.id}", solvers, job.spec, needs)


def _audits(config: Mapping[str, Any]) -> Iterator[ExactJob]:
    for name, spec in audit_jobs(config).items():
        if solvers := _of_algorithm(get_algorithm(name)):
            yield ExactJob("audit", name, solvers, spec)


def _of_algorithm(algorithm: Algorithm) -> frozenset[str]:
    return frozenset({type(algorithm).__module__}) if algorithm.solves_exactly else frozenset()


def _of_problems(spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the solvers that the metric and the sets of a job call."""
    points = spec.get("points", [spec])
    sets = {type(get_set(point["constraint"])) for point in points}
    found = {kind.__module__ for kind in sets if getattr(kind, "solves_exactly", False)}
    return frozenset(found) | _of_metric(spec)


def _of_metric(spec: Mapping[str, Any]) -> frozenset[str]:
    return NEAR if spec.get("metric") == NEAR_STATIONARITY else frozenset()


def declared() -> set[str]:
    """Return the modules of all solvers that a job of any configuration can be found to call."""
    algorithms = [*map(get_algorithm, built_in()), *map(peers.adapter, peers.names())]
    sets = [kind for kind in vars(geometry).values() if isinstance(kind, type)]
    of_sets = {kind.__module__ for kind in sets if getattr(kind, "solves_exactly", False)}
    return {*OPTIMUM, *NEAR, *of_sets, *(module for algorithm in algorithms for module in _of_algorithm(algorithm))}


def raising(package: Path, error: str = "NotConverged") -> set[str]:
    """Return the modules of a package, given by its folder, in which the error is raised."""
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            raised = node.exc if isinstance(node, ast.Raise) else None
            called = raised.func if isinstance(raised, ast.Call) else raised
            if error in (getattr(called, "id", None), getattr(called, "attr", None)):
                parts = path.relative_to(package.parent).with_suffix("").parts
                found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found
