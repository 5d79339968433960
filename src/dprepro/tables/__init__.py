"""Tables: one module per kind of experiment, each with `table(frame, metadata)`; written as .csv, .md and .tex.

An experiment that needs a table of its own has a module of its own name here, which goes before that of its kind. A
module may have `summary(rows, frame, metadata)`: text in Markdown that goes above the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprepro import escape
from dprepro.origin import module_for

if TYPE_CHECKING:
    import pandas as pd


def write(target: str, data: Path, out: Path) -> None:
    """Write the table `target` from a collected table."""
    from dprepro.collected import read_current
    from dprepro.files import write_publication, write_table, write_text
    from dprepro.workflow import made_by

    frame, metadata = read_current(data)
    module = module_for(__name__, target, metadata["kind"])
    rows = module.table(frame, metadata)
    above = module.summary(rows, frame, metadata) if hasattr(module, "summary") else ""
    write_table(out, rows, float_format="%.10g")
    write_text(out.with_suffix(".md"), escape.markdown(_markdown(rows, frame, metadata, above)))
    write_text(out.with_suffix(".tex"), _latex(rows, frame, metadata))
    made_from, incomplete = {f"data/{data.name}": metadata["digest"]}, metadata["incomplete"]
    sources = made_by("table", target=target, kind=metadata["kind"])
    write_publication(out, ("csv", "md", "tex"), made_from=made_from, made_by=sources, incomplete=incomplete)


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as plain mappings."""
    return [{str(key): value for key, value in record.items()} for record in rows.to_dict("records")]


def markdown_table(rows: pd.DataFrame, title: str) -> str:
    """Return a table in Markdown under a title."""
    return f"# {title}\n\n{markdown_rows(rows)}"


def markdown_rows(rows: pd.DataFrame) -> str:
    """Return a table in Markdown."""
    header = "| " + " | ".join(rows.columns) + " |"
    rule = "|" + " --- |" * len(rows.columns)
    cells = [[escape.markdown_cell(_cell(value)) for value in row] for row in rows.itertuples(index=False)]
    body = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([header, rule, *body])


def _markdown(rows: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping[str, Any], above: str) -> str:
    from dprepro.origin import data_line, incomplete_lines, made_line, problem_line

    above = "\n\n".join(filter(None, [incomplete_lines(metadata), above]))
    notes = [f"{data_line(frame, metadata)}.", "", problem_line(metadata), "", f"Made by {made_line(metadata)}."]
    head = [f"# {metadata['paper']}: {metadata['title']}", "", *([above, ""] if above else [])]
    return "\n".join([*head, markdown_rows(rows), "", *notes]) + "\n"


def _latex(rows: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    from dprepro.origin import data_line, made_line

    lines = [
        f"% {escape.one_line(data_line(frame, metadata))}",
        f"% {escape.one_line(made_line(metadata))}",
        f"\\begin{{tabular}}{{{'l' * len(rows.columns)}}}",
        "\\hline",
        " & ".join(escape.latex(str(column)) for column in rows.columns) + " \\\\",
        "\\hline",
        *(" & ".join(escape.latex(_cell(value)) for value in row) + " \\\\" for row in rows.itertuples(index=False)),
        "\\hline",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e12:
            return f"{value:.0f}"
        return "" if value != value else f"{value:.4g}"
    return str(value)
