"""Stage `findings`: a paper's claims held against what can be computed or run, as .csv and .md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from dprepro.errors import UserError
from dprepro.files import write_text
from dprepro.findings import Question, abg23, markdown, records
from dprepro.provenance import commit, machine

PAPERS: Mapping[str, Sequence[Question]] = {"abg23": abg23.QUESTIONS}


def write_findings(paper: str, out: Path) -> None:
    """Answer all questions on a paper; write the verdicts to `out` and the same in Markdown beside it."""
    paper = paper.lower()
    if out.suffix != ".csv":
        raise UserError(f"The findings go to {out}, which is no .csv file: give such a name; .md stands beside it.")
    if paper not in PAPERS:
        raise UserError(f"There are no findings on {paper!r}: choose one of {', '.join(PAPERS)}.")
    found = {question.name: question.judge(question.compute()) for question in PAPERS[paper]}
    write_text(out, pd.DataFrame(records(found)).to_csv(index=False))
    write_text(out.with_suffix(".md"), markdown(f"{paper.upper()}: findings", found, _origin()))


def _origin() -> str:
    facts = {**commit(), **machine()}
    modified = " (modified)" if facts["modified"] else ""
    return (
        f"commit {facts['commit'][:12]}{modified}, dprepro {facts['dprepro']}, NumPy {facts['numpy']}, "
        f"Python {facts['python']}"
    )
