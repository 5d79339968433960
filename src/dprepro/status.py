"""`dprepro status`: what the configuration asks for, what is there of it, and what runs now.

It looks at files only and says what is there, not whether it is up to date: that is what a dry run tells.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dprepro.costs import duration, read_cost
from dprepro.errors import UserError
from dprepro.experiments import (
    FINDINGS,
    AnyExperiment,
    Experiment,
    audit_jobs,
    load_config,
    load_experiments,
    papers_found,
)
from dprepro.files import read_json
from dprepro.progress import PROGRESS_FILE, Progress, left_in_words
from dprepro.sweeps import SweepExperiment

DONE, RUNNING, FAILED, STOPPED, LEFT = "done", "running", "failed", "stopped", "left"


@dataclass(frozen=True)
class Expected:
    """A job of the workflow: to what it belongs, its first output, and what its log and benchmark are called."""

    group: str
    output: str
    trace: str


@dataclass(frozen=True)
class Group:
    """What there is of an experiment, or of what several share. Seconds are of the jobs that left a benchmark."""

    name: str
    total: int
    done: int
    running: int
    failed: int
    stopped: int
    left: int
    seconds_wall: float
    last_change: float | None


@dataclass(frozen=True)
class Failure:
    """A job that left a log but no output, and the last line of the log."""

    group: str
    log: str
    sentence: str


@dataclass(frozen=True)
class Status:
    """All that `dprepro status` says."""

    results: str
    groups: tuple[Group, ...]
    failures: tuple[Failure, ...]
    run: Progress | None
    alive: bool

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def status_of(configfiles: Sequence[Path], now: float) -> Status:
    """Return the status of the results that a configuration asks for; a mistake in it is a `UserError`."""
    config = load_config(configfiles)
    jobs = expected_jobs(load_experiments(config), config)
    results = Path(config["results"])
    run = read_progress(results)
    alive = run is not None and run.alive(now)
    busy = {Path(job.log) for job in run.running} if run is not None and alive else set()
    states = {job: _state(job, results, busy) for job in jobs}
    failures = [
        Failure(job.group, str(_log(job, results)), _last_line(_log(job, results)))
        for job, state in states.items()
        if state == FAILED
    ]
    names = dict.fromkeys(job.group for job in jobs)
    groups = [
        _group(name, {job: state for job, state in states.items() if job.group == name}, results) for name in names
    ]
    return Status(str(results), tuple(groups), tuple(failures), run, alive)


def expected_jobs(experiments: Sequence[AnyExperiment], config: Mapping[str, Any]) -> list[Expected]:
    """Return all jobs of the workflow for a configuration, in the order in which they are run."""
    shared = {key: None for e in experiments if isinstance(e, Experiment) for key in e.datasets()}
    jobs = [Expected("datasets", f"datasets/{key}.npz", f"datasets/{key}") for key in shared]
    for experiment in experiments:
        jobs += [Expected(experiment.name, output, trace) for output, trace in _files(experiment)]
    for paper in papers_found(experiments):
        jobs.append(Expected("findings", f"tables/{paper}_findings.csv", f"findings/{paper}"))
        figures = [f"figures/{paper}_{figure}" for figure in FINDINGS[paper]]
        jobs += [Expected("findings", f"{figure}.png", figure) for figure in figures]
    audits = [f"privacy/audits/{algorithm}" for algorithm in audit_jobs(config)]
    jobs += [Expected("privacy", f"{audit}.json", audit) for audit in audits]
    jobs.append(Expected("privacy", "privacy/certificates.csv", "privacy/tables"))
    return [*jobs, Expected("report", "report.html", "report/page")]


def _files(experiment: AnyExperiment) -> Iterator[tuple[str, str]]:
    """Yield the first output of each job of an experiment, and what its log is called."""
    name = experiment.name
    if isinstance(experiment, Experiment):
        for dataset in experiment.datasets():
            yield f"optima/{name}/{dataset}.npz", f"optima/{name}/{dataset}"
        for job in experiment.jobs():
            yield f"plans/{name}/{job.id}.json", f"plans/{name}/{job.id}"
            yield f"runs/{name}/{job.id}.npz", f"runs/{name}/{job.id}"
    if isinstance(experiment, SweepExperiment):
        for optima in experiment.optima():
            yield f"optima/{name}/{optima}.json", f"optima/{name}/{optima}"
        for job in experiment.jobs():
            yield f"sweeps/{name}/{job.id}.npz", f"sweeps/{name}/{job.id}"
    yield f"data/{name}.parquet", f"data/{name}"
    yield f"figures/{name}.png", f"figures/{name}"
    yield f"tables/{name}.csv", f"tables/{name}"


def read_progress(results: Path) -> Progress | None:
    """Return what the last run wrote of its progress; None if there was none, or if the file is not one of ours."""
    try:
        return Progress.from_json(read_json(results / PROGRESS_FILE))
    except (UserError, OSError, KeyError, TypeError):
        return None


def _state(job: Expected, results: Path, busy: set[Path]) -> str:
    log = _log(job, results)
    if log in busy:
        return RUNNING
    if (results / job.output).exists():
        return DONE
    try:
        return FAILED if log.stat().st_size else STOPPED
    except OSError:
        return LEFT


def _log(job: Expected, results: Path) -> Path:
    return results / "logs" / f"{job.trace}.log"


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:  # a run that goes on has begun it anew
        return ""
    return lines[-1] if lines else ""


def _group(name: str, states: Mapping[Expected, str], results: Path) -> Group:
    counts = {state: list(states.values()).count(state) for state in (DONE, RUNNING, FAILED, STOPPED, LEFT)}
    costs = [read_cost(results / "benchmarks" / f"{job.trace}.tsv") for job in states]
    outputs = [results / job.output for job, state in states.items() if state == DONE]
    changes = [change for path in outputs if (change := _last_change(path)) is not None]
    return Group(
        name=name,
        total=len(states),
        **counts,
        seconds_wall=sum(cost.seconds or 0.0 for cost in costs),
        last_change=max(changes, default=None),
    )


def _last_change(path: Path) -> float | None:
    """Return when a file was written; None if a run that goes on has just taken it away."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def report(status: Status, now: float) -> str:
    """Return the status as text."""
    total = {key: sum(getattr(group, key) for group in status.groups) for key in (DONE, RUNNING, FAILED, STOPPED, LEFT)}
    counts = ", ".join(f"{number} {state}" for state, number in total.items() if number and state != DONE)
    head = f"{status.results}: {total[DONE]} of {sum(total.values())} jobs done{f', {counts}' if counts else ''}"
    lines = [head, *_run_lines(status, now), ""]
    width = max(len(group.name) for group in status.groups)
    # On a cluster nobody tells which of the submitted jobs have begun.
    running = "submitted" if status.alive and status.run and status.run.cluster else "running"
    lines.append(f"{'':<{width}} {'done':>9} {running:>9} {'failed':>7} {'left':>5} {'wall':>9}  last change")
    for group in status.groups:
        share = f"{group.done}/{group.total}"
        spent = duration(group.seconds_wall) if group.done or group.seconds_wall else ""
        change = "" if group.last_change is None else f"{duration(max(now - group.last_change, 0.0))} ago"
        runs, fails, left = (str(number or "") for number in (group.running, group.failed, group.left + group.stopped))
        lines.append(f"{group.name:<{width}} {share:>9} {runs:>9} {fails:>7} {left:>5} {spent:>9}  {change}".rstrip())
    if status.failures:
        lines += ["", "failed: a log, but no result"]
        lines += [f"  {failure.log}: {failure.sentence}" for failure in status.failures]
    return "\n".join(lines)


def _run_lines(status: Status, now: float) -> list[str]:
    run = status.run
    if run is None:
        return ["no run has left its progress here"]
    if status.alive:
        share = f"{run.done} of its {run.total} jobs done"
        lines = [f"running for {duration(now - run.started)} (process {run.pid}): {share}, {left_in_words(run.left)}"]
        since = "submitted {} ago" if run.cluster else "for {}"
        return lines + [f"  {job.name} ({since.format(duration(max(now - job.since, 0.0)))})" for job in run.running]
    ago = f"{duration(max(now - run.updated, 0.0))} ago"
    share = f"{run.done} of its {run.total} jobs done, {len(run.failed)} failed"
    if run.state == "running":
        return [f"nothing runs; the last run broke off without a word, last heard of {ago}: {share}"]
    return [f"nothing runs; the last run ended {ago}: {share}"]


def print_status(configfiles: Sequence[Path], as_json: bool) -> None:
    """Print the status as text or as JSON."""
    now = time.time()
    status = status_of(configfiles, now)
    print(json.dumps(status.to_json(), indent=2) if as_json else report(status, now))
