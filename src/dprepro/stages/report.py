"""Stage `report`: reads the results that it is told of and writes them as one page.

Only what the configuration makes is read: files that an earlier configuration left in the folder stay out.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dprepro import digests, escape
from dprepro.costs import read_cost
from dprepro.errors import UserError
from dprepro.files import read_publication, read_record, write_sealed
from dprepro.report.contents import Contents, Experiment, Figure, Findings, Job, Privacy, Setting
from dprepro.report.errata import read_errata
from dprepro.report.markdown import Block, Paragraph, Table, blocks
from dprepro.report.page import page
from dprepro.report.tables import Row
from dprepro.workflow import made_by

# What the report tells of the data of a run.
_DATA = ("name", "title", "n", "d", "origin", "licence", "citation", "preprocessing", "checksum")
# Folders of jobs whose JSON tells what made them, by the kind of experiment.
_JOBS = {"curves": "runs", "sweeps": "sweeps"}


def write_report(spec: Mapping[str, Any], results: Path, errata: Path, out: Path, gaps: Sequence[str] = ()) -> None:
    """Write the report of the results that `spec` names, in the folder `results`, to `out`.

    `gaps` are sentences on what is missing; the page then says that it is incomplete.
    """
    if out.suffix != ".html":
        raise UserError(f"The report goes to {out}, which is no .html file: give such a name.")
    contents = read_contents(spec, results, errata, gaps)
    facts = {
        "made_from": contents.made_from,
        "made_by": made_by("report"),
        "incomplete": list(contents.gaps),
        "digest": digests.BLANK.decode(),
    }
    # Neither the end of a script may stand in it, nor the beginning of a comment or of another script.
    text = json.dumps(facts, sort_keys=True).replace("<", "\\u003c")
    end = f'<script type="application/json" id="made-from">{text}</script>\n</body>'
    write_sealed(out, end.join(page(contents).rsplit("</body>", 1)))


def read_contents(spec: Mapping[str, Any], results: Path, errata: Path, gaps: Sequence[str] = ()) -> Contents:
    """Return all that goes into the report."""
    return Contents(
        gaps=gaps,
        made_from=_made_from(spec, results),
        setting=Setting(seed=spec["seed"], absent=spec["absent"], changed=spec["changed"]),
        experiments=[_experiment(results, entry) for entry in spec["experiments"]],
        findings={paper: _findings(results, paper, figures) for paper, figures in spec["findings"].items()},
        privacy=_privacy(results, spec["audits"]) if spec["privacy"] else None,
        errata=read_errata(errata),
    )


def _made_from(spec: Mapping[str, Any], results: Path) -> dict[str, str]:
    """Return the digest of every table and figure of the report, all of which must be as they were written."""
    shown = {entry["name"]: entry["figures"] for entry in spec["experiments"]}
    shown |= {f"{paper.lower()}_findings": figures for paper, figures in spec["findings"].items()}
    places = [
        place for table, figures in shown.items() for place in (f"tables/{table}", *(f"figures/{f}" for f in figures))
    ]
    places += _PRIVACY_PLACES if spec["privacy"] else ()
    return {f"{place}.json": read_publication(results / place)["digest"] for place in places}


_PRIVACY_PLACES = ("privacy/certificates", "privacy/audit")


def _experiment(results: Path, entry: Mapping[str, Any]) -> Experiment:
    name = entry["name"]
    rows = _rows(results / f"tables/{name}.csv")
    above, below = _around(results / f"tables/{name}.md", rows)
    return Experiment(
        name=name,
        paper=entry["paper"],
        title=entry["title"],
        parts=entry["parts"],
        rows=rows,
        above=above,
        below=below,
        figures=[_figure(results / f"figures/{figure}.svg") for figure in entry["figures"]],
        jobs=[*_run_jobs(results, entry), *_other_jobs(results, entry)],
    )


def _around(path: Path, rows: Sequence[Row]) -> tuple[list[Block], list[Block]]:
    """Return what a table's Markdown says above and below its rows, without the title."""
    parts = _blocks(path)
    head = tuple(rows[0])
    # The text may hold the rows in other words too: the last table with the columns of the .csv is the one itself.
    places = [
        at
        for at, block in enumerate(parts)
        if isinstance(block, Table) and block.head == head and len(block.rows) == len(rows)
    ]
    if not places:
        raise UserError(f"{path} does not hold the table of the .csv file beside it: remove both and make them again.")
    return parts[1 : places[-1]], parts[places[-1] + 1 :]


def _findings(results: Path, paper: str, figures: Sequence[str]) -> Findings:
    stem = f"{paper.lower()}_findings"
    parts = _blocks(results / f"tables/{stem}.md")
    return Findings(
        rows=_rows(results / f"tables/{stem}.csv"),
        intro=[block for block in parts[:2] if isinstance(block, Paragraph)],
        figures=[_figure(results / f"figures/{name}.svg") for name in figures],
        jobs=[
            _job(results, "findings", stem, paper.lower()),
            *(_job(results, "figures", stem, name) for name in figures),
        ],
    )


def _privacy(results: Path, audits: Sequence[str]) -> Privacy:
    folder = results / "privacy"
    parts = _blocks(folder / "audit.md")
    jobs = [_recorded(results, "privacy/audits", "privacy", name) for name in audits]
    attacked = _rows(folder / "audit.csv", *_AUDITED, "epsilon_audited")
    if missing := sorted(set(audits) - {row["algorithm"] for row in attacked}):
        raise UserError(f"{folder / 'audit.csv'} lacks {missing[0]}: remove it and make it again.")
    return Privacy(
        certificates=_rows(folder / "certificates.csv", *_AUDITED, "experiment", "method"),
        audits=attacked,
        figures=[
            Figure(name, _drawing(folder / f"{name}.svg"), [Paragraph(_PRIVACY[name])])
            for name in ("certificates", "audit")
        ],
        note=[block for block in parts if isinstance(block, Paragraph)],
        jobs=[*jobs, _job(results, "privacy", "privacy", "tables")],
    )


# Columns that both tables of privacy have.
_AUDITED = ("algorithm", "variant", "epsilon_claimed", "epsilon_accounted", "verdict")
_PRIVACY = {
    "certificates": "Claimed epsilon (bar) and accounted epsilon (dot) of every method; an arrow: no finite bound.",
    "audit": "Accounted epsilon (bar) and the epsilon that an audit proves (dot), for every algorithm.",
}


def _run_jobs(results: Path, entry: Mapping[str, Any]) -> list[Job]:
    folder = _JOBS.get(entry["kind"], "")
    needed = "points" if folder == "sweeps" else "dataset"
    return [_recorded(results, f"{folder}/{entry['name']}", entry["name"], name, needed) for name in entry["jobs"]]


def _recorded(results: Path, folder: str, experiment: str, name: str, *keys: str) -> Job:
    """Return a job that left a record with these keys: its origin, its data, and its own account of CPU and memory."""
    path = results / folder / f"{name}.json"
    record = read_record(path, "provenance", "cost", *keys)
    job = _job(results, folder, experiment, name)
    try:
        own = {key: float(record["cost"][key]) for key in ("cpu_seconds", "megabytes")}
        points = record.get("points", [record] if "dataset" in keys else [])
        datasets = [{key: point["dataset"][key] for key in _DATA} for point in points]
        return replace(job, cost=replace(job.cost, **own), origin=dict(record["provenance"]), datasets=datasets)
    except (KeyError, TypeError, ValueError):
        raise UserError(f"The file {path} is no record of a {job.stage} job: remove it and make it again.") from None


def _other_jobs(results: Path, entry: Mapping[str, Any]) -> list[Job]:
    """Return the jobs that certify, find minima, collect, draw and tabulate."""
    name = entry["name"]
    plans = [(f"plans/{name}", job) for job in entry["jobs"] if entry["kind"] == "curves"]
    optima = [(f"optima/{name}", key) for key in entry["optima"]]
    rest = [(folder, name) for folder in ("data", "figures", "tables")]
    return [_job(results, folder, name, job) for folder, job in (*plans, *optima, *rest)]


def _job(results: Path, folder: str, experiment: str, name: str) -> Job:
    return Job(folder.split("/")[0], experiment, name, read_cost(results / f"benchmarks/{folder}/{name}.tsv"))


def _figure(path: Path) -> Figure:
    caption = _blocks(path.with_suffix(".md"))
    if not caption:
        raise UserError(f"The caption {path.with_suffix('.md')} is empty: remove it and make it again.")
    return Figure(path.stem, _drawing(path), caption)


def _drawing(path: Path) -> bytes:
    content = _bytes(path)
    if not content.rstrip().endswith(b"</svg>"):
        raise UserError(f"The figure {path} is not whole: remove it and make it again.")
    return content


def _blocks(path: Path) -> list[Block]:
    try:
        return blocks(_bytes(path).decode())
    except ValueError as error:
        raise UserError(f"The file {path} cannot be read ({error}): remove it and make it again.") from None


def _rows(path: Path, *columns: str) -> list[dict[str, str]]:
    """Return the rows of a table; a damaged or empty one, or one that lacks one of `columns`, is an error."""
    text = _bytes(path).decode(errors="replace")
    if not text.endswith("\n"):
        raise UserError(f"The table {path} is not whole: remove it and make it again.")
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise UserError(f"The file {path} is no table ({error}): remove it and make it again.") from None
    if missing := [name for name in columns if rows and name not in rows[0]]:
        raise UserError(f"The table {path} lacks the column {missing[0]!r}: remove it and make it again.")
    if not rows:
        raise UserError(f"The table {path} is empty: remove it and make it again.")
    for row in rows:
        if None in row or None in row.values():
            raise UserError(f"The file {path} has a row of another length than its head: remove it and make it again.")
    return [{column: escape.uncell(cell) for column, cell in row.items()} for row in rows]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"The file {path} does not exist: make the results first with snakemake.") from None
    except OSError as error:
        raise UserError(f"The file {path} cannot be read ({error.strerror}): make it readable and run again.") from None
