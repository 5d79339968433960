"""Stage `certify`: the plan of a job with its noise and its privacy certificate, before any data is touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.files import read_json, write_json
from dprepro.privacy.certificate import certify
from dprepro.stages.problem import problem_spec


def certify_job(spec: Mapping[str, Any], facts: Path, out: Path) -> None:
    """Write the plan and the certificate of the job `spec` on the dataset whose facts are in `facts`."""
    problem = problem_spec(spec, read_json(facts, "n", "d", "row_norm", "label_bound", "task"))
    setting = Setting(problem, float(spec["epsilon"]), spec["delta"], spec["variant"])
    plan = get_algorithm(spec["algorithm"]).plan(setting, **spec["parameters"])
    certificate = certify(plan)
    write_json(out.with_suffix(".certificate.json"), certificate)
    write_json(out, {"job": dict(spec), "plan": plan.to_json(), "certificate": certificate})
