"""Run the jobs that call a solver in this process, at full scale, and print what came of them as JSON.

    python tests/machines/on_this_kernel.py FOLDER

With `probe` for the folder nothing is run: what is printed is which kernels linear algebra has here.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from threadpoolctl import threadpool_info

ROOT = Path(__file__).parents[2]


def kernels() -> dict[str, str]:
    """Return the kernel of each OpenBLAS in this process by the library that bundles it."""
    pools = [pool for pool in threadpool_info() if pool["internal_api"] == "openblas"]
    return {Path(pool["filepath"]).parent.name.partition(".")[0]: str(pool["architecture"]) for pool in pools}


def simd() -> list[str]:
    """Return the features beyond its baseline that NumPy has loops for and makes use of here."""
    return [feature for feature in __cpu_dispatch__ if __cpu_features__[feature]]


def main(folder: str) -> None:
    """Print the kernels and what the jobs came to."""
    # Libraries are loaded, and some instructions of either one's kernel executed.
    A = np.random.default_rng(0).standard_normal((200, 200))
    for dtype in (np.float32, np.float64):
        scipy.linalg.cholesky(np.matmul(A.T.astype(dtype), A.astype(dtype)) + 200 * np.eye(200, dtype=dtype))
        np.linalg.svd(A.astype(dtype))
    report: dict[str, Any] = {"kernels": kernels(), "simd": simd(), "jobs": []}
    if folder != "probe":
        report |= {"failed_checks": failed_checks(), "jobs": run_jobs(Path(folder))}
    print(json.dumps(report))


def failed_checks() -> list[str]:
    """Run the solvers of the self-test, those that no default experiment calls among them; return what fails."""
    from dprepro.selftest import checks, outcomes

    solvers = [check for check in checks("cpu") if check.name.startswith("solver: ")]
    if not any("polytope" in check.name for check in solvers):
        return ["the self-test projects onto no polytope"]
    return [str(outcome) for outcome in outcomes(solvers) if not outcome.ok]


def run_jobs(folder: Path) -> list[dict[str, Any]]:
    """Run the jobs by their stages; each is told with its CPU seconds, what did not converge and what is refused."""
    from exact_jobs import exact_jobs, solved_alike

    from dprepro.experiments import CONFIG, load_config, load_experiments

    config = load_config([], ROOT / CONFIG) | {"device": "cpu"}
    experiments = load_experiments(config, ROOT / CONFIG)
    datasets = {key: spec for e in experiments if e.kind == "curves" for key, spec in e.datasets().items()}
    told, unsolved = [], watched()
    for job in {solved_alike(job): job for job in exact_jobs(experiments, config)}.values():
        started = time.process_time()
        refused = run_job(job, folder, datasets)
        told.append(
            {
                "name": f"{job.stage} {job.name}",
                "seconds": time.process_time() - started,
                "solvers": sorted(job.solvers),
                "unsolved": [*unsolved],
                "refused": refused,
            }
        )
        unsolved.clear()
    return told


def watched() -> list[str]:
    """Return a list that every `NotConverged` adds its sentence to, also one that a stage turns into a result."""
    from dprepro.errors import NotConverged

    said: list[str] = []
    NotConverged.__init__ = lambda self, *told: said.append(" ".join(map(str, told)))
    return said


def run_job(job: Any, folder: Path, datasets: dict[str, Any]) -> list[str]:
    """Run one job by its stage and return which of its points are refused."""
    from dprepro.stages.audit import audit_algorithm
    from dprepro.stages.certify import certify_job
    from dprepro.stages.dataset import prepare
    from dprepro.stages.optima import solve_points
    from dprepro.stages.optimum import solve_exactly
    from dprepro.stages.run import run_job as run_plan
    from dprepro.stages.sweep import run_sweep

    out = folder / job.stage / job.name.replace("/", "+")
    out.parent.mkdir(parents=True, exist_ok=True)
    if job.stage in ("optimum", "run"):
        data = folder / f"{job.needs}.npz"
        if not data.exists():
            prepare(datasets[job.needs], data)
    if job.stage == "optimum":
        solve_exactly(job.spec, data, out.with_name(f"{out.name}.npz"))
    elif job.stage == "optima":
        solve_points(job.spec, out.with_name(f"{out.name}.json"))
    elif job.stage == "audit":
        audit_algorithm(job.spec, out.with_name(f"{out.name}.json"))
    elif job.stage == "run":
        plan = out.with_name(f"{out.name}.plan.json")
        certify_job(job.spec, data.with_suffix(".json"), plan)
        run_plan(plan, data, out.with_name(f"{out.name}.npz"), "of these tests")
        return [job.name] if json.loads(out.with_name(f"{out.name}.json").read_text())["refused"] else []
    else:
        optima = folder / "optima" / f"{job.needs.replace('/', '+')}.json" if job.needs else None
        run_sweep(job.spec, optima, out.with_name(f"{out.name}.npz"), "of these tests")
        points = json.loads(out.with_name(f"{out.name}.json").read_text())["points"]
        return [f"{p['point']['axis']} = {p['point']['value']}" for p in points if p["refused"]]
    return []


if __name__ == "__main__":
    main(sys.argv[1])
