"""Stage `run`: execute a certified plan for all replicates.

Writes `.npz` (the same bytes for the same sources, seed and machine) and `.json` (certificate, provenance, times).
"""

from __future__ import annotations

import time
from pathlib import Path

from dprepro.algorithms import get_algorithm
from dprepro.arrays import blas_threads, get_backend, single_blas_thread
from dprepro.costs import own_cost
from dprepro.files import read_json, write_arrays, write_json
from dprepro.peers import versions
from dprepro.provenance import commit, digest, machine
from dprepro.run import execute
from dprepro.stages.problem import load_problem
from dprepro.workflow import own_files, source_modules


def run_job(plan_file: Path, data: Path, out: Path, sources: str | None = None) -> None:
    """Run the plan in `plan_file` on the prepared dataset `data` and write the result to `out`.

    `sources` is the digest of the sources if the caller has it already.
    """
    started = time.time()
    certified = read_json(plan_file, "job", "plan", "certificate")
    spec = certified["job"]
    backend = get_backend(dtype=spec["dtype"], configured=spec["device"])
    problem, facts = load_problem(spec, data, backend)
    plan = get_algorithm(spec["algorithm"]).plan_type.from_json(certified["plan"])
    with single_blas_thread():
        threads = blas_threads()
    result = execute(plan, problem, seed=spec["seed"], replicates=range(spec["replicates"]), tile=spec["tile"])
    write_arrays(
        out,
        {
            "replicates": result.replicates,
            "w": result.w,
            "rounds": result.rounds,
            **result.counts(),
            "objective": result.objective,
            "final_objective": result.final_objective,
        },
    )
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
        **result.circumstances,
    }
    write_json(
        out.with_suffix(".json"),
        {
            **certified,
            "dataset": facts,
            "provenance": provenance,
            "seconds": result.seconds,
            "cost": own_cost(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        },
    )
