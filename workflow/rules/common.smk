import json
import shlex
import sys

from dprepro.errors import UserError
from dprepro.experiments import audit_jobs, load_experiments
from dprepro.workflow import code, use_this_interpreter

use_this_interpreter()

try:
    EXPERIMENTS = {e.name: e for e in load_experiments(config)}
except UserError as error:
    print(f"dprepro: {error}", file=sys.stderr)
    sys.exit(UserError.exit_code)

RESULTS = config["results"]
JOBS = {(job.experiment, job.id): job for e in EXPERIMENTS.values() for job in e.jobs()}
AUDITS = audit_jobs(config)
DATASETS = {key: spec for e in EXPERIMENTS.values() for key, spec in e.datasets().items()}
FIGURE_FORMATS = ("png", "pdf", "svg")
TABLE_FORMATS = ("csv", "md", "tex")


wildcard_constraints:
    experiment="[a-z0-9_]+",
    dataset="[A-Za-z0-9_-]+",
    job="[A-Za-z0-9_.+-]+(?<!\\.certificate)",


def figure_files(experiment):
    """Return the files of an experiment's figure."""
    return [f"{RESULTS}/figures/{experiment}.{suffix}" for suffix in FIGURE_FORMATS]


def table_files(experiment):
    """Return the files of an experiment's table."""
    return [f"{RESULTS}/tables/{experiment}.{suffix}" for suffix in TABLE_FORMATS]


def run_files(experiment, suffix):
    """Return the result files of all runs of an experiment."""
    return [f"{RESULTS}/runs/{experiment}/{job.id}.{suffix}" for job in EXPERIMENTS[experiment].jobs()]


def optimum_files(experiment):
    """Return the optimum files of an experiment, one per dataset."""
    return [f"{RESULTS}/optima/{experiment}/{key}.npz" for key in EXPERIMENTS[experiment].datasets()]


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
