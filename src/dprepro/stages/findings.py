"""Stage `findings`: a paper's claims held against what can be computed or run, as .csv and .md.

What the figures of the findings show goes into a table of the same computation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dprepro.arrays import get_backend
from dprepro.collected import write_collected
from dprepro.errors import UserError
from dprepro.files import write_publication, write_table, write_text
from dprepro.findings import DRAWN, Finding, Question, abg23, klt25, markdown, records, told
from dprepro.origin import made_line, origin_here
from dprepro.workflow import made_by

PAPERS: Mapping[str, Sequence[Question]] = {"abg23": abg23.QUESTIONS, "klt25": klt25.QUESTIONS}


def write_findings(paper: str, out: Path, data: Path | None = None) -> None:
    """Answer all questions on a paper; write the verdicts to `out`, the same in Markdown beside it, and `data`.

    `data` is a table of what figures show, with the verdicts and their numbers in its metadata. Nothing is written
    before everything is computed.
    """
    paper = paper.lower()
    if out.suffix != ".csv":
        raise UserError(f"The findings go to {out}, which is no .csv file: give such a name; .md stands beside it.")
    if data is not None and data.suffix != ".parquet":
        raise UserError(f"What figures show goes to {data}, which is no .parquet file: give such a name.")
    if paper not in PAPERS:
        raise UserError(f"There are no findings on {paper!r}: choose one of {', '.join(PAPERS)}.")
    found, drawn = _answers(PAPERS[paper])
    if data is not None and not drawn:
        raise UserError(f"No figure shows the findings on {paper}: leave out --data.")
    # Everything here is computed with NumPy, in double precision.
    origins = [origin_here(get_backend("cpu", "float64"))]
    write_table(out, pd.DataFrame(records(found)))
    write_text(out.with_suffix(".md"), markdown(f"{paper.upper()}: findings", found, made_line({"origins": origins})))
    # Some questions are asked of this population.
    sources = made_by("findings", dataset="population_valley")
    write_publication(out, ("csv", "md"), made_from={}, made_by=sources, incomplete=[])
    if data is not None:
        frames = [pd.DataFrame(columns).assign(series=series) for series, columns in drawn.items()]
        write_collected(frames, _metadata(paper, found, origins), data, made_from={}, made_by=sources)


def _answers(questions: Sequence[Question]) -> tuple[dict[str, Finding], dict[str, Mapping[str, Any]]]:
    """Return the findings, and what figures show of them, both by name."""
    found: dict[str, Finding] = {}
    drawn: dict[str, Mapping[str, Any]] = {}
    for question in questions:
        numbers = question.compute()
        found[question.name] = question.judge(numbers)
        # Questions that share a computation show the same of it.
        drawn |= numbers.get(DRAWN, {})
    return found, drawn


def _metadata(paper: str, found: Mapping[str, Finding], origins: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "kind": "findings",
        "paper": paper.upper(),
        "findings": {name: {"verdict": f.verdict, "numbers": told(f.numbers)} for name, f in found.items()},
        "origins": [json.dumps(origin, sort_keys=True) for origin in origins],
    }
