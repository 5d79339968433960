"""What the Snakefile does when a run starts."""

from __future__ import annotations

from typing import Any

from dprepro.progress import PLAN_EVENT
from dprepro.recovery import note_submissions


def run_started(workflow: Any) -> None:
    """Prepare a run whose jobs are about to be scheduled."""
    announce(workflow.dag)
    if workflow.local_exec:
        lift_rate_limit(workflow.scheduler)
    else:
        note_submissions()


def announce(dag: Any) -> None:
    """Tell the loggers which jobs will be run, each with its benchmark, which has the time of an earlier run."""
    from snakemake.logging import logger

    jobs = [
        {"number": dag.jobid(job), "rule": job.rule.name, "benchmark": str(job.benchmark or ""), "cores": job.threads}
        for job in dag.needrun_jobs()
    ]
    logger.info(f"{len(jobs)} jobs to do.", extra={"event": PLAN_EVENT, "plan": jobs})


def lift_rate_limit(scheduler: Any) -> None:
    """Take the limit on jobs per second away, which no run on one machine comes near.

    With it Snakemake 9 sets a timer whenever it looks for jobs, which a second later makes it look, and set a timer,
    again. Every finished job adds such a chain: after hundreds of jobs they keep a core busy with nothing.
    """
    scheduler.job_rate_limiter = None
