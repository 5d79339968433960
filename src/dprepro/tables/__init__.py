"""Tables: one module per table, each with `table(frame)`; written as .csv, .md and .tex."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprepro.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


def write(target: str, data: Path, out: Path) -> None:
    """Write the table `target` from a collected table."""
    from dprepro.files import write_text
    from dprepro.stages.collect import read_collected

    if importlib.util.find_spec(f"{__name__}.{target}") is None:
        raise UserError(f"There is no table {target!r}: see dprepro list targets.")
    module = importlib.import_module(f"{__name__}.{target}")
    frame, metadata = read_collected(data)
    rows = module.table(frame)
    write_text(out, rows.to_csv(index=False, float_format="%.10g"))
    write_text(out.with_suffix(".md"), _markdown(rows, frame, metadata))
    write_text(out.with_suffix(".tex"), _latex(rows, frame, metadata))


def markdown_table(rows: pd.DataFrame, title: str) -> str:
    """Return a table in Markdown under a title."""
    header = "| " + " | ".join(rows.columns) + " |"
    rule = "|" + " --- |" * len(rows.columns)
    body = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows.itertuples(index=False)]
    return "\n".join([f"# {title}", "", header, rule, *body])


def _markdown(rows: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    from dprepro.origin import data_line, made_line, problem_line

    notes = [f"{data_line(frame, metadata)}.", "", problem_line(metadata), "", f"Made by {made_line(metadata)}."]
    return "\n".join([markdown_table(rows, f"{metadata['paper']}: {metadata['title']}"), "", *notes]) + "\n"


def _latex(rows: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    from dprepro.origin import data_line, made_line

    lines = [
        f"% {data_line(frame, metadata)}",
        f"% {made_line(metadata)}",
        f"\\begin{{tabular}}{{{'l' * len(rows.columns)}}}",
        "\\hline",
        " & ".join(_escape(str(column)) for column in rows.columns) + " \\\\",
        "\\hline",
        *(" & ".join(_escape(_cell(value)) for value in row) + " \\\\" for row in rows.itertuples(index=False)),
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


def _escape(text: str) -> str:
    for character in "&%_#$":
        text = text.replace(character, f"\\{character}")
    return text.replace("^", "\\^{}").replace("<", "$<$").replace(">", "$>$")
