import json
import shlex
import sys

from dprepro.errors import UserError
from dprepro.experiments import audit_jobs, load_experiments
from dprepro.sweeps import optimum_name
from dprepro.workflow import code, use_this_interpreter

use_this_interpreter()

try:
    EXPERIMENTS = {e.name: e for e in load_experiments(config)}
except UserError as error:
    print(f"dprepro: {error}", file=sys.stderr)
    sys.exit(UserError.exit_code)

RESULTS = config["results"]
CURVES = {name: e for name, e in EXPERIMENTS.items() if e.kind == "curves"}
JOBS = {(job.experiment, job.id): job for e in CURVES.values() for job in e.jobs()}
SWEEPS = {(job.experiment, job.id): job for e in EXPERIMENTS.values() if e.kind == "sweeps" for job in e.jobs()}
OPTIMA = {(e.name, name): spec for e in EXPERIMENTS.values() if e.kind == "sweeps" for name, spec in e.optima().items()}
AUDITS = audit_jobs(config)
DATASETS = {key: spec for e in CURVES.values() for key, spec in e.datasets().items()}
FIGURE_FORMATS = ("png", "pdf", "svg")
TABLE_FORMATS = ("csv", "md", "tex")
# Papers whose claims are held against computations.
FINDINGS = ("abg23",)


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


def part_files(experiment, files, beside=False):
    """Return the files of an experiment's parts, such as their figures, and of what is made beside them if asked."""
    whole = EXPERIMENTS[experiment]
    names = [*getattr(whole, "parts", ()), *(getattr(whole, "beside", ()) if beside else ())]
    return [file for name in names for file in files(name)]


def findings_files(experiment):
    """Return the findings on the paper of an experiment with parts, if there are any."""
    whole = EXPERIMENTS[experiment]
    paper = whole.spec["paper"].lower()
    found = whole.kind == "parts" and paper in FINDINGS
    return expand(f"{RESULTS}/tables/{paper}_findings.{{suffix}}", suffix=("csv", "md")) if found else []


def run_files(experiment, suffix):
    """Return the result files of all runs of an experiment."""
    return [f"{RESULTS}/runs/{experiment}/{job.id}.{suffix}" for job in EXPERIMENTS[experiment].jobs()]


def optimum_files(experiment):
    """Return the optimum files of an experiment, one per dataset."""
    return [f"{RESULTS}/optima/{experiment}/{key}.npz" for key in EXPERIMENTS[experiment].datasets()]


def sweep_of(wildcards):
    """Return the job of a sweep."""
    return SWEEPS[wildcards.experiment, wildcards.job]


def sweep_files(experiment, suffix):
    """Return the result files of all sweeps of an experiment."""
    return [f"{RESULTS}/sweeps/{experiment}/{job.id}.{suffix}" for job in EXPERIMENTS[experiment].jobs()]


def optima_dataset(wildcards):
    """Return the name of the dataset that the optima are computed on."""
    return OPTIMA[wildcards.experiment, wildcards.optima]["points"][0]["dataset"]["name"]


def job_json(wildcards):
    """Return the specification of a job as a shell word."""
    return shlex.quote(JOBS[wildcards.experiment, wildcards.job].to_json())


def job_code(stage):
    """Return a function from a job to the digest of the sources that this stage uses for it."""
    return lambda wildcards: code(stage, algorithm=JOBS[wildcards.experiment, wildcards.job].algorithm)


def job_dataset(suffix):
    """Return a function from a job to a file of its dataset."""

    def file(wildcards):
        key = JOBS[wildcards.experiment, wildcards.job].dataset
        return f"{RESULTS}/datasets/{key}.{suffix}"

    return file
