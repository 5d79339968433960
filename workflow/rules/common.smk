import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from dprepro.arrays import wished_device
from dprepro.errors import UserError
from dprepro.experiments import FINDINGS, audit_jobs, experiment_names, load_experiments, papers_found
from dprepro.digests import of_value
from dprepro.files import jsonable
from dprepro.hooks import make_the_rest, name_results, run_started, say, write_job_files
from dprepro.owner import VARIABLE, stamp
from dprepro.recovery import begin, explain, only_looks, tell
from dprepro.status import expected_jobs
from dprepro.sweeps import needs_minimum, optimum_name
from dprepro.workflow import code, content, take_no_gpu, use_this_interpreter

use_this_interpreter()
# Jobs end with the Snakemake that started them, on a cluster with the one on their node.
os.environ[VARIABLE] = stamp()

try:
    EXPERIMENTS = {e.name: e for e in load_experiments(config)}
    DEVICE, _ = wished_device(None, config["device"])
    # The process that carries out jobs, and not only lists them.
    RUNS = workflow.is_main_process and not (workflow.output_settings.dryrun or only_looks(sys.argv[1:]))
    if RUNS:
        tell(begin(Path.cwd(), Path(config["results"])))
        name_results(config["results"])
except UserError as error:
    print(f"dprepro: {error}", file=sys.stderr)
    sys.exit(UserError.exit_code)

# Where the device is auto, a submitted job asks for no GPU: it must not take one that it happens to see on its node.
if workflow.remote_exec and DEVICE == "auto":
    take_no_gpu()

RESULTS = config["results"]
CURVES = {name: e for name, e in EXPERIMENTS.items() if e.kind == "curves"}
JOBS = {(job.experiment, job.id): job for e in CURVES.values() for job in e.jobs()}
SWEEPS = {(job.experiment, job.id): job for e in EXPERIMENTS.values() if e.kind == "sweeps" for job in e.jobs()}
OPTIMA = {(e.name, name): spec for e in EXPERIMENTS.values() if e.kind == "sweeps" for name, spec in e.optima().items()}
AUDITS = audit_jobs(config)
EXPECTED = expected_jobs([*EXPERIMENTS.values()], config)
# What a job that computes on the device asks a cluster for.
GPUS = 1 if DEVICE == "gpu" else 0
# Papers whose claims are held against computations.
FOUND = papers_found([*EXPERIMENTS.values()])
DATASETS = {key: spec for e in CURVES.values() for key, spec in e.datasets().items()}
FIGURE_FORMATS = ("png", "pdf", "svg")
TABLE_FORMATS = ("csv", "md", "tex")


wildcard_constraints:
    experiment="[a-z0-9_]+",
    dataset="[A-Za-z0-9_-]+",
    job="[A-Za-z0-9_.+-]+(?<!\\.certificate)",
    optima="[a-z0-9_.-]+",


def names_of(kind):
    """Return a pattern that matches the names of the experiments of one kind, and nothing if there are none."""
    return "|".join(name for name, e in EXPERIMENTS.items() if e.kind == kind) or "(?!)"


def figure_files(experiment):
    """Return the files of an experiment's figure."""
    return [f"{RESULTS}/figures/{experiment}.{suffix}" for suffix in FIGURE_FORMATS]


def table_files(experiment):
    """Return the files of an experiment's table."""
    return [f"{RESULTS}/tables/{experiment}.{suffix}" for suffix in TABLE_FORMATS]


def upstream(*experiments):
    """Return what the results of experiments are made from: datasets, plans, runs, sweeps, minima and collected data.

    Targets ask for all of it. Snakemake removes the output of a job before it starts and forgets a job that fails; where
    a table made from the earlier output is still there, it would see no reason to run that job again, and the table would
    stay out of date.
    """
    names = {name for e in experiments for name in (e, *part_files(e, lambda part: [part], beside=True))}
    datasets = {f"datasets/{key}.npz" for name in names if name in CURVES for key in CURVES[name].datasets()}
    made = [job.output for job in EXPECTED if job.group in names and not job.output.startswith(("figures/", "tables/"))]
    return [f"{RESULTS}/{file}" for file in (*sorted(datasets), *made)]


def part_files(experiment, files, beside=False):
    """Return the files of an experiment's parts, such as their figures, and of what is made beside them if asked."""
    whole = EXPERIMENTS[experiment]
    names = [*getattr(whole, "parts", ()), *(getattr(whole, "beside", ()) if beside else ())]
    return [file for name in names for file in files(name)]


def findings_files(experiment):
    """Return the findings on the paper of an experiment with parts and their figures, if there are any."""
    whole = EXPERIMENTS[experiment]
    paper = whole.spec["paper"].lower()
    if whole.kind != "parts" or paper not in FOUND:
        return []
    tables = [f"{RESULTS}/tables/{paper}_findings.{suffix}" for suffix in ("csv", "md")]
    return [*tables, *(file for figure in FINDINGS[paper] for file in figure_files(f"{paper}_{figure}"))]


def paper_of(wildcards):
    """Return the paper of a figure or table: its category in Snakemake's own report."""
    if "experiment" in wildcards.keys():
        return EXPERIMENTS[wildcards.experiment].spec["paper"]
    return wildcards.paper.upper()


def run_files(experiment, suffix):
    """Return the result files of all runs of an experiment."""
    return [f"{RESULTS}/runs/{experiment}/{job.id}.{suffix}" for job in EXPERIMENTS[experiment].jobs()]


def optimum_files(experiment):
    """Return the optimum files of an experiment, one per dataset."""
    return [f"{RESULTS}/optima/{experiment}/{key}.npz" for key in EXPERIMENTS[experiment].datasets()]


def sweep_of(wildcards):
    """Return the job of a sweep."""
    return SWEEPS[wildcards.experiment, wildcards.job]


def sweep_optima(wildcards):
    """Return the file of the minima of a sweep's points, if its metric needs one."""
    spec = sweep_of(wildcards).spec
    return [f"{RESULTS}/optima/{wildcards.experiment}/{optimum_name(spec)}.json"] if needs_minimum(spec) else []


def sweep_files(experiment, suffix):
    """Return the result files of all sweeps of an experiment."""
    return [f"{RESULTS}/sweeps/{experiment}/{job.id}.{suffix}" for job in EXPERIMENTS[experiment].jobs()]


def job_file(wildcards):
    """Return the file that the specification of a run or a sweep is written to before the first job starts."""
    return f"{RESULTS}/jobs/{wildcards.experiment}/{wildcards.job}.json"


def job_files():
    """Return the specifications that jobs read from files, by the names of these."""
    specs = {f"jobs/{experiment}/{job.id}": dict(job.spec) for (experiment, _), job in (JOBS | SWEEPS).items()}
    specs |= {f"jobs/optima/{experiment}/{name}": spec for (experiment, name), spec in OPTIMA.items()}
    specs |= {f"jobs/audits/{name}": spec for name, spec in AUDITS.items()}
    specs |= {"jobs/report": report_spec()}
    return {f"{RESULTS}/{place}.json": spec for place, spec in specs.items()}


def job_code(stage):
    """Return a function from a job to the digest of the sources that this stage uses for it."""

    def digest(wildcards):
        job = JOBS[wildcards.experiment, wildcards.job]
        return code(stage, algorithm=job.algorithm, loss=job.spec["loss"])

    return digest


def sweep_code(wildcards):
    """Return the digest of the sources of a sweep, whose points share a loss."""
    job = sweep_of(wildcards)
    return code("sweep", algorithm=job.algorithm, dataset=job.dataset, loss=job.spec["points"][0]["loss"])


def optima_code(wildcards):
    """Return the digest of the sources of the minima of a sweep's points."""
    point = OPTIMA[wildcards.experiment, wildcards.optima]["points"][0]
    return code("optima", dataset=point["dataset"]["name"], loss=point["loss"])


def job_dataset(suffix):
    """Return a function from a job to a file of its dataset."""

    def file(wildcards):
        key = JOBS[wildcards.experiment, wildcards.job].dataset
        return f"{RESULTS}/datasets/{key}.{suffix}"

    return file


def report_spec():
    """Return what the report is made of: only results of this configuration, and what it leaves out."""
    experiments = [
        {
            "name": name,
            "paper": e.spec["paper"],
            "title": e.spec["title"],
            "kind": e.kind,
            "figures": [name],
            "parts": list(getattr(e, "parts", ())),
            "jobs": [job.id for job in e.jobs()] if e.kind != "parts" else [],
            "optima": [*(e.datasets() if e.kind == "curves" else [key for of, key in OPTIMA if of == name])],
        }
        for name, e in EXPERIMENTS.items()
    ]
    return {
        "experiments": experiments,
        "findings": {paper.upper(): [f"{paper}_{figure}" for figure in FINDINGS[paper]] for paper in FOUND},
        "privacy": True,
        "audits": list(AUDITS),
        "seed": config["seed"],
        "absent": [name for name in experiment_names() if name not in EXPERIMENTS],
        "changed": sorted(config.get("overrides") or {}),
    }


def report_files():
    """Return all results that the report shows."""
    names = [*EXPERIMENTS, *(f"{paper}_{figure}" for paper in FOUND for figure in FINDINGS[paper])]
    tables = [*EXPERIMENTS, *(f"{paper}_findings" for paper in FOUND)]
    return [
        *(f"{RESULTS}/figures/{name}.{suffix}" for name in names for suffix in ("svg", "md", "json")),
        *(f"{RESULTS}/tables/{name}.{suffix}" for name in tables for suffix in ("csv", "md", "json")),
        *(
            f"{RESULTS}/privacy/{name}.{suffix}"
            for name in ("certificates", "audit")
            for suffix in ("csv", "md", "svg", "json")
        ),
        *(f"{RESULTS}/runs/{experiment}/{job}.json" for experiment, job in JOBS),
        *(f"{RESULTS}/sweeps/{experiment}/{job}.json" for experiment, job in SWEEPS),
    ]


def growing(amount):
    """Return a resource that grows with every attempt: with --retries a job that ran out of it gets more."""
    return lambda wildcards, attempt: amount * attempt


def run_minutes(wildcards, attempt):
    """Return how long a run may take: one tile of replicates takes minutes, twice that in double precision."""
    spec = JOBS[wildcards.experiment, wildcards.job].spec
    tiles = -(-spec["replicates"] // spec["tile"])
    return 20 * tiles * (2 if spec["dtype"] == "float64" else 1) * attempt


def check_device():
    """End Snakemake with a sentence and code 2 if jobs are to run here on a GPU that cannot be used.

    On a cluster it is the nodes that need one, and each job looks for itself. A process of its own looks: Snakemake would
    hold the GPU until its end.
    """
    if not workflow.local_exec or workflow.touch:
        return
    if DEVICE == "auto" and "gpu" in workflow.global_resources:
        tell(["The limit on the resource gpu is for the device gpu, which is auto here: add --config device=gpu."])
        sys.exit(UserError.exit_code)
    if any(job.resources.get("gpu") for job in workflow.dag.needrun_jobs()):
        command = [sys.executable, "-m", "dprepro", "check-device", "--configured", config["device"]]
        problem = subprocess.run(command).returncode
        if problem:
            sys.exit(problem)


if RUNS:
    try:
        write_job_files(job_files())
    except UserError as error:
        print(f"dprepro: {error}", file=sys.stderr)
        sys.exit(UserError.exit_code)
