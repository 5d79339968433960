"""Stage `certify`: the plan of a job with its noise and its privacy certificate, before any data is touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.errors import BrokenAlgorithm, UserError
from dprepro.files import read_record, write_record
from dprepro.privacy.certificate import certify
from dprepro.stages.problem import FACTS, problem_spec
from dprepro.workflow import made_by


def certify_job(spec: Mapping[str, Any], facts: Path, out: Path) -> None:
    """Write the plan and the certificate of the job `spec` on the dataset whose facts are in `facts`.

    A setting that the algorithm refuses is a result: `refused` holds the sentence, and there is no plan.
    """
    known = read_record(facts, *FACTS)
    made_from = {"dataset": known["digest"]}
    algorithm = get_algorithm(spec["algorithm"])
    setting = Setting(problem_spec(spec, known), float(spec["epsilon"]), spec["delta"], spec["variant"])
    plan, certificate, refused = None, None, ""
    try:
        planned = algorithm.plan(setting, **spec["parameters"])
        plan, certificate = planned.to_json(), certify(planned)
    except BrokenAlgorithm:
        raise
    except UserError as error:
        refused = str(error)
    digest = write_record(
        out,
        {
            "job": dict(spec),
            "plan": plan,
            "certificate": certificate,
            "refused": refused,
            "made_from": made_from,
            "made_by": made_by("certify", algorithm=spec["algorithm"], loss=spec["loss"]),
        },
    )
    write_record(
        out.with_suffix(".certificate.json"),
        {**(certificate or {"refused": refused}), "made_from": {"plan": digest, **made_from}},
    )
