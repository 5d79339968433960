"""Stage `run`: execute a certified plan for all replicates.

Writes `.npz` (the same bytes for the same sources, seed and machine) and `.json` (certificate, provenance, times).
Nothing runs unless plan, certificate and dataset belong together. A refused plan and a solver that does not converge
are results without arrays, with the reason.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from dprepro.algorithms import get_algorithm
from dprepro.arrays import blas_threads, get_backend, single_blas_thread
from dprepro.costs import own_cost
from dprepro.errors import NotConverged, UserError
from dprepro.files import check_job, read_record, write_arrays, write_record
from dprepro.peers import versions
from dprepro.privacy.certificate import check_certified
from dprepro.provenance import commit, digest, machine
from dprepro.run import RunResult, execute
from dprepro.stages.problem import load_problem
from dprepro.workflow import own_files, source_modules

if TYPE_CHECKING:
    import numpy as np


def run_job(plan_file: Path, data: Path, out: Path, sources: str | None = None) -> None:
    """Run the plan in `plan_file` on the prepared dataset `data` and write the result to `out`.

    `sources` is the digest of the sources if the caller has it already.
    """
    started = time.time()
    certified = read_record(plan_file, "job", "plan", "certificate", "refused", "made_from")
    spec, refused = certified["job"], certified["refused"]
    check_job(plan_file, spec)
    backend = get_backend(dtype=spec["dtype"], configured=spec["device"])
    problem, facts = load_problem(spec, data, backend)
    if facts["digest"] != certified["made_from"]["dataset"]:
        raise UserError(
            f"The plan {plan_file} was made for another dataset than {data}: expected digest "
            f"{certified['made_from']['dataset'][:12]}, found {facts['digest'][:12]}; remove both and make them again."
        )
    with single_blas_thread():
        threads = blas_threads()
    result: RunResult | None = None
    if not refused:
        check_certified({**certified, "dataset": facts}, spec, str(plan_file))
        plan = get_algorithm(spec["algorithm"]).plan_type.from_json(certified["plan"])
        try:
            result = execute(plan, problem, seed=spec["seed"], replicates=range(spec["replicates"]), tile=spec["tile"])
        except NotConverged as error:
            refused = str(error)
    arrays = write_arrays(out, _arrays(result) if result else {})
    provenance = {
        **commit(),
        **machine(),
        "sources": sources or digest(source_modules("run", algorithm=spec["algorithm"], loss=spec["loss"])),
        **own_files("run", algorithm=spec["algorithm"], dataset=facts["name"], loss=spec["loss"]),
        "seed": spec["seed"],
        **backend.facts(),
        "threads": threads,
        "libraries": versions(spec["algorithm"]),
        "data": {key: facts[key] for key in ("name", "checksum", "origin")},
        **(result.circumstances if result else {}),
    }
    write_record(
        out.with_suffix(".json"),
        {
            **{key: certified[key] for key in ("job", "plan", "certificate")},
            "refused": refused,
            "dataset": facts,
            "made_from": {"plan": certified["digest"], "dataset": facts["digest"]},
            "arrays": arrays,
            "provenance": provenance,
            "seconds": result.seconds if result else [],
            "cost": own_cost(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        },
    )


def _arrays(result: RunResult) -> dict[str, np.ndarray]:
    return {
        "replicates": result.replicates,
        "w": result.w,
        "rounds": result.rounds,
        **result.counts(),
        "objective": result.objective,
        "final_objective": result.final_objective,
    }
