"""What the jobs of a paper cost, what made them and what data they ran on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dprepro.costs import duration
from dprepro.report.contents import Job
from dprepro.report.markup import Html, details, join, tag
from dprepro.report.tables import Cell, Column, table

# What tells two origins apart, in the order in which they are shown.
_ORIGIN = (
    *("commit", "modified", "dprepro", "python", "numpy", "blas", "system", "processor", "cpu_kernels", "cores"),
    *("backend", "device", "dtype", "threads"),
)


def cpu_seconds(jobs: Sequence[Job]) -> float:
    """Return the CPU time of jobs, as far as it was recorded."""
    return sum(job.cost.cpu_seconds or 0.0 for job in jobs)


def run_times(jobs: Sequence[Job], name: str) -> Html:
    """Return the time of each experiment, and of every job on demand."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.experiment, []).append(job)
    columns = [Column(c) for c in ("experiment", "jobs", "CPU time", "wall time, jobs added up", "most memory, MB")]
    sums = table(
        "Run times by experiment", columns, [_sums(key, group) for key, group in groups.items()], f"{name}-times"
    )
    return join([sums, details(f"All {len(jobs)} jobs", _all_jobs(jobs, f"{name}-jobs"), class_="long")])


def _sums(experiment: str, jobs: Sequence[Job]) -> list[Cell]:
    known = [job for job in jobs if job.cost.cpu_seconds is not None]
    cpu, wall = cpu_seconds(jobs), sum(job.cost.seconds or 0.0 for job in jobs)
    memory = max((job.cost.megabytes or 0.0 for job in jobs), default=0.0)
    missing = f" ({len(jobs) - len(known)} not recorded)" if len(known) < len(jobs) else ""
    return [
        Cell(experiment),
        Cell(f"{len(jobs)}{missing}", len(jobs)),
        Cell(duration(cpu), cpu),
        Cell(duration(wall), wall),
        Cell(f"{memory:,.0f}", memory),
    ]


def _all_jobs(jobs: Sequence[Job], name: str) -> Html:
    columns = [
        Column("stage", chosen=True),
        Column("experiment", chosen=True),
        Column("job"),
        *(Column(c) for c in ("CPU s", "wall s", "MB", "commit", "sources")),
    ]
    rows = [
        [
            *(Cell(text) for text in (job.stage, job.experiment, job.name)),
            *(_cost(number) for number in (job.cost.cpu_seconds, job.cost.seconds, job.cost.megabytes)),
            Cell(str(job.origin.get("commit", ""))[:12]),
            Cell(str(job.origin.get("sources", ""))),
        ]
        for job in jobs
    ]
    return table("Every job: time, memory, commit and digest of the sources that made it", columns, rows, name)


def _cost(number: float | None) -> Cell:
    return Cell("not recorded") if number is None else Cell(f"{number:,.4g}", number)


def provenance(jobs: Sequence[Job], name: str) -> Html:
    """Return by what the runs were made and on which data."""
    return join([_origins(jobs, f"{name}-origins"), _data(jobs, f"{name}-data")])


def _origins(jobs: Sequence[Job], name: str) -> Html:
    counts: dict[tuple[str, ...], int] = {}
    for job in jobs:
        if job.origin:
            key = tuple(_told(job.origin.get(fact, "")) for fact in _ORIGIN)
            counts[key] = counts.get(key, 0) + 1
    columns = [Column("runs"), *(Column(fact) for fact in _ORIGIN)]
    rows = [[Cell(count, count), *(Cell(text) for text in key)] for key, count in counts.items()]
    return table("What made the runs: commit, versions, machine", columns, rows, name)


def _told(fact: Any) -> str:
    return {True: "yes", False: "no"}.get(fact, str(fact)) if isinstance(fact, bool) else str(fact)


def _data(jobs: Sequence[Job], name: str) -> Html:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for job in jobs:
        for facts in job.datasets:
            found.setdefault(facts["name"], []).append(facts)
    columns = [Column(c) for c in ("data", "rows", "features", "sets of rows", "origin", "licence", "citation")]
    columns += [Column("preprocessing", extra=True), Column("checksum", extra=True)]
    return table("Data", columns, [_dataset(list(group)) for group in found.values()], name)


def _dataset(group: Sequence[Mapping[str, Any]]) -> list[Cell]:
    first = group[0]
    checksums = list(dict.fromkeys(str(facts["checksum"]) for facts in group))
    listed = tag("code", checksums[0]) if len(checksums) == 1 else f"{len(checksums)} different"
    return [
        Cell(tag("span", first["title"], " (", tag("code", first["name"]), ")")),
        *(_range([int(facts[key]) for facts in group]) for key in ("n", "d")),
        Cell(len(checksums), len(checksums)),
        *(Cell(str(first.get(key, ""))) for key in ("origin", "licence", "citation", "preprocessing")),
        Cell(listed),
    ]


def _range(numbers: Sequence[int]) -> Cell:
    low, high = min(numbers), max(numbers)
    return Cell(f"{low:,}" if low == high else f"{low:,} to {high:,}", float(high))
