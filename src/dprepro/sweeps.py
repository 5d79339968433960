"""From a sweep experiment to jobs: each job carries one method along the axes of one problem.

A sweep shows how an error grows or falls with n, d, epsilon or a parameter of the data; its points are small, so one
process runs them all. A method may come with a grid of letters to choose from: the choice is made on other seeds than
those that are reported. A problem may be a family, one member for each value of a parameter of its data: every point
is then run on every member, and what is reported is the worst of them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dprepro.jobs import TILE, Job, job_seed
from dprepro.metrics import GOLDSTEIN, GRADIENT_NORM

# Axes with a meaning of their own; any other name is a parameter of the dataset.
ROWS, FEATURES, EPSILON = "n", "d", "epsilon"
# The axis of the single point that asks whether a method takes a non-smooth regulariser.
NONSMOOTH = "nonsmooth"
# What is counted of every run: of a method without gradients the values of the loss.
EVALUATIONS = "gradient evaluations"
VALUES = "function evaluations"
# What is told of a series of problems.
SAMPLES = "samples needed"
CALLS = "oracle calls"
# Metrics that need no minimum.
_NO_MINIMUM = (GRADIENT_NORM, GOLDSTEIN)
# What is shown of a problem that is there to be timed.
SECONDS = "CPU seconds"


@dataclass(frozen=True)
class SweepExperiment:
    """A validated sweep experiment: a table of measured exponents, or a comparison of methods."""

    name: str
    spec: Mapping[str, Any]
    seed: int
    device: str
    kind = "sweeps"

    def jobs(self) -> list[Job]:
        """Return all jobs in the order of the configuration."""
        return list(self._jobs())

    def optima(self) -> dict[str, dict[str, Any]]:
        """Return what the optimum of each point depends on, by name: one entry per problem and set of points."""
        return {
            optimum_name(job.spec): {"points": [_optimum_point(point) for point in job.spec["points"]]}
            for job in self._jobs()
            if needs_minimum(job.spec)
        }

    def claims(self) -> dict[str, Any]:
        """Return what the tables and figures say of the methods and problems besides the runs."""
        methods = {key: method.get("claims", {}) for key, method in self.spec["methods"].items()}
        problems = {key: problem["title"] for key, problem in self.spec["problems"].items()}
        parts = ("loss", "regularizer", "constraint", "dataset", "base")
        settings = {
            key: {part: problem[part] for part in parts}
            | {"timed": problem.get("timed", False)}
            | {part: problem[part] for part in ("reach", "series", "radius") if part in problem}
            for key, problem in self.spec["problems"].items()
        }
        return {"methods": methods, "problems": problems, "settings": settings}

    def _jobs(self) -> Iterator[Job]:
        for key, method in self.spec["methods"].items():
            for problem in method.get("problems", self.spec["problems"]):
                for variant in method["variants"]:
                    yield self._job(key, method, problem, variant)

    def _job(self, key: str, method: Mapping[str, Any], problem_key: str, variant: str) -> Job:
        spec = self.spec
        job = f"{key}.{problem_key}.{variant}"
        problem = spec["problems"][problem_key]
        base = {**problem["base"], **method.get("base", {})}
        grids = dict(grids_of(method, problem_key, problem))
        if problem.get("nonsmooth") and not method.get("tune"):
            # The smallest data will do.
            grids[NONSMOOTH] = grids.get(ROWS, [1])[:1]
        return Job(
            self.name,
            job,
            problem["dataset"]["name"],
            {
                "paper": spec["paper"],
                "title": spec["title"],
                "experiment": self.name,
                "job": job,
                "entry": key,
                "label": method["label"],
                "algorithm": method["algorithm"],
                "candidates": candidates(method),
                "set_here": ", ".join(f"{letter} = {value}" for letter, value in method.get("parameters", {}).items()),
                "problem": problem_key,
                "variant": variant,
                "metric": problem["metric"],
                **({"radius": problem["radius"]} if "radius" in problem else {}),
                # Where it is missing, every point has its own.
                "delta": spec.get("delta"),
                "replicates": method.get("replicates", spec["replicates"]),
                "tile": spec.get("tile", TILE),
                "dtype": spec["dtype"],
                "device": self.device,
                "points": [
                    self._point(job, problem, base, axis, value, member)
                    for axis, values in grids.items()
                    for value in values
                    # Whether a method takes a regulariser does not depend on the member.
                    for member in members(problem)[: 1 if axis == NONSMOOTH else None]
                ],
            },
        )

    def _point(
        self,
        job: str,
        problem: Mapping[str, Any],
        base: Mapping[str, Any],
        axis: str,
        value: Any,
        member: Mapping[str, Any],
    ) -> dict[str, Any]:
        at = {**base, **member, ROWS if axis == NONSMOOTH and ROWS in base else axis: value}
        at.pop(NONSMOOTH, None)
        parameters = {key: number for key, number in at.items() if key not in (ROWS, FEATURES, EPSILON)}
        if FEATURES in at:
            parameters["features"] = at[FEATURES]
        dataset = {
            "name": problem["dataset"]["name"],
            "rows": at.get(ROWS),
            "seed": problem["dataset"].get("seed", 0),
            "parameters": {**problem["dataset"].get("parameters", {}), **parameters},
        }
        if problem["dataset"].get("repeated"):
            dataset["repeated"] = True
        regularizer = {**problem["regularizer"], **(problem["nonsmooth"] if axis == NONSMOOTH else {})}
        place = ".".join([job, axis, str(value), *(f"{key}={number}" for key, number in member.items())])
        # Keys that few problems have are absent elsewhere.
        extra: dict[str, Any] = {"member": dict(member)} if member else {}
        if "radius" in problem:
            extra["radius"] = problem["radius"]
        if "delta_power" in problem:
            extra["delta_power"] = problem["delta_power"]
            extra["delta"] = float(at[ROWS]) ** -problem["delta_power"]
        return {
            "axis": axis,
            "value": value,
            **extra,
            "dataset": dataset,
            "epsilon": float(at[EPSILON]),
            "loss": problem["loss"],
            "regularizer": regularizer,
            "constraint": problem["constraint"],
            # Whether a method takes a regulariser is seen without knowing the minimum, and so is a gradient.
            "minimum": 0.0 if axis == NONSMOOTH or problem["metric"] in _NO_MINIMUM else problem.get("minimum"),
            "seed": job_seed(self.seed, self.name, place),
            "tuning_seed": job_seed(self.seed, self.name, f"tune.{place}"),
        }


def grids_of(method: Mapping[str, Any], key: str, problem: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the axes with their values that a method goes through on a problem: its own, or those of the problem."""
    problems = method.get("problems")
    if isinstance(problems, Mapping) and problems[key]:
        grids: Mapping[str, Any] = problems[key]
        return grids
    grids = method.get("sweeps", problem["sweeps"])
    return grids


def needs_minimum(spec: Mapping[str, Any]) -> bool:
    """Whether the metric of a job asks for the minimum; methods on the same points then share it."""
    return spec["metric"] not in _NO_MINIMUM


def members(problem: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the members of a problem's family by the parameter that tells them apart; one without, if it is none."""
    family = problem.get("family", {})
    return [{key: value} for key, values in family.items() for value in values] or [{}]


def candidates(method: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the letters to choose from: every combination of the grid, over the fixed letters."""
    grid = method.get("tune", {})
    fixed = method.get("parameters", {})
    return [
        {**fixed, **dict(zip(grid, chosen, strict=True))} for chosen in itertools.product(*(grid[key] for key in grid))
    ]


def bounds_metric(quantity: str, metric: str) -> bool:
    """Whether a utility bound is one on the metric."""
    return {"excess population risk": "excess risk"}.get(quantity, quantity) == metric


def value_at_zero(metric: str, optimum: Mapping[str, Any]) -> float:
    """Return the metric at the initial point, what doing nothing costs; NaN where it is not computed or not found."""
    if optimum.get("failed"):
        return float("nan")
    if metric in ("optimality gap", "excess risk"):
        return float(optimum["objective_at_zero"]) - float(optimum["objective"])
    return float(optimum.get(f"{metric.lower().replace(' ', '_')}_at_zero", float("nan")))


def sweep_spec(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specification of a sweep from its record, which holds each point beside its results."""
    return {**record["job"], "points": [point["point"] for point in record["points"]]}


def optimum_name(spec: Mapping[str, Any]) -> str:
    """Return the name under which the optima of a job's points are kept; methods on the same points share it."""
    points = json.dumps([_optimum_point(point) for point in spec["points"]], sort_keys=True)
    return f"{spec['problem']}.{hashlib.sha256(points.encode()).hexdigest()[:8]}"


def optima_place(spec: Mapping[str, Any]) -> str:
    """Return the place of the file with the optima of a job's points, in the folder of results."""
    return f"optima/{spec['experiment']}/{optimum_name(spec)}.json"


def _optimum_point(point: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: point[key] for key in ("dataset", "loss", "regularizer", "constraint", "minimum")}
    return found | ({"radius": point["radius"]} if "radius" in point else {})
