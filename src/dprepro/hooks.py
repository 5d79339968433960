"""Hooks of the Snakefile: the start of a run, and what is made after a job has failed."""

from __future__ import annotations

import functools
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dprepro.errors import UserError
from dprepro.files import jsonable, read_record, unsealed, write_record
from dprepro.progress import PLAN_EVENT, RESULTS_EVENT, SAY_EVENT
from dprepro.recovery import note_submissions, was_stopped
from dprepro.salvage import grouped

# Rules that only gather and show results, in the order in which they follow one another.
_SHOWING = (
    *("collect", "collect_sweeps", "collect_parts", "table", "figure", "findings_figure", "privacy_tables"),
    "report_page",
)
# Those that can do without some of their inputs.
_GATHERING = {"collect", "collect_sweeps", "collect_parts", "privacy_tables", "report_page"}

# How a log begins the line of a message to the user.
_SAID = "dprepro: "


def write_job_files(job_files: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the specifications that jobs read, by their paths, where they are not as they should be."""
    for path, content in job_files.items():
        _write_if_changed(Path(path), content)


def name_results(folder: str) -> None:
    """Tell the loggers where the results go."""
    from snakemake.logging import logger

    logger.info(f"Results go to {folder}.", extra={"event": RESULTS_EVENT, "folder": folder})


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

    todo = list(dag.needrun_jobs())
    undone = {*todo}
    jobs = [
        {
            "number": dag.jobid(job),
            "rule": job.rule.name,
            "benchmark": str(job.benchmark or ""),
            "cores": job.threads,
            "needs": [dag.jobid(other) for other in dag.dependencies[job] if other in undone],
        }
        for job in todo
    ]
    logger.info(f"{len(jobs)} jobs to do.", extra={"event": PLAN_EVENT, "plan": jobs})


def _write_if_changed(path: Path, content: Mapping[str, Any]) -> None:
    try:
        known = read_record(path)
    except UserError:
        known = {}
    if unsealed(known) != jsonable(content):
        write_record(path, content)


def make_the_rest(workflow: Any, results: Path, logs: str | Sequence[str]) -> None:
    """Make tables, figures and the report from what is there after jobs have failed; not if the user stopped the run.

    Commands that wait for a failed job go to one process, with the reasons of what they will lack. So do those that
    failed themselves, if they may do without the input that they failed for.
    """
    if was_stopped(logs) or workflow.touch:
        return
    missing = _Missing(workflow.dag)
    steps = [
        {
            "name": str(job.message),
            "command": _words(job.shellcmd),
            "outputs": [str(file) for file in job.output],
            "gaps": grouped(missing.reason(other) for other in missing.below(job)),
            "failed": not missing.below(job),
        }
        for rule in _SHOWING
        for job in missing.jobs
        if job.rule.name == rule and (rule in _GATHERING or missing.below(job))
    ]
    if not steps:
        return
    lost = [missing.reason(job) for job in missing.jobs if job.shellcmd and not missing.below(job)]
    # Files of earlier runs that these jobs should have replaced.
    outdated = sorted({str(file) for job in missing.jobs if job.shellcmd for file in job.output})
    place = results / "jobs" / "salvage.json"
    try:
        write_record(place, {"steps": steps, "lost": lost, "outdated": outdated})
    except (UserError, OSError) as error:
        say([f"Neither tables nor the report were made from what is there: {error}"])
        return
    say(["Making tables, figures and the report from what is there."])
    command = [sys.executable, "-u", "-m", "dprepro", "salvage", "--spec", str(place)]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            say([line.rstrip("\n").removeprefix(_SAID)])


def say(notes: Sequence[str]) -> None:
    """Hand notes for the user to the loggers, which know what else stands on the terminal."""
    from snakemake.logging import logger

    for note in notes:
        logger.warning(f"{_SAID}{note}", extra={"event": SAY_EVENT})


class _Missing:
    """The jobs that a run should have done and has not, and why."""

    def __init__(self, dag: Any) -> None:
        self._dag = dag
        self.jobs = sorted(dag.needrun_jobs(), key=lambda job: str(job.output))
        self._undone = set(self.jobs)
        self.below = functools.cache(self._below)

    def reason(self, job: Any) -> tuple[str, str]:
        """Return a job whose inputs are all there, and why it made nothing: the last sentence, or line, of its log."""
        log = Path(str(job.log[0])) if job.log else None
        text = log.read_text(encoding="utf-8", errors="replace") if log and log.is_file() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        sentences = [line.removeprefix(_SAID) for line in lines if line.startswith(_SAID)]
        for line in (sentences or lines)[-1:]:
            return str(job.message), f"failed ({line})"
        return str(job.message), "failed or was not started"

    def _below(self, job: Any) -> list[Any]:
        """Return the failed jobs upstream of a job, each once."""
        waits = [other for other in self._dag.dependencies[job] if other in self._undone]
        found: dict[Any, None] = {}
        for other in sorted(waits, key=lambda one: str(one.output)):
            found |= dict.fromkeys(self.below(other) or [other])
        return list(found)


def _words(command: str) -> list[str]:
    """Return what follows `python -m dprepro` in a rule's shell line, without where its output goes."""
    words = shlex.split(command)
    return words[3 : words.index(">")]


def lift_rate_limit(scheduler: Any) -> None:
    """Take the limit on jobs per second away, which no run on one machine comes near.

    With it Snakemake 9 sets a timer whenever it looks for jobs, which a second later makes it look, and set a timer,
    again. Every finished job adds such a chain: after hundreds of jobs they keep a core busy with nothing.
    """
    scheduler.job_rate_limiter = None
