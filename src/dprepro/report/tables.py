"""Tables of the report: a caption, a box to scroll in, and what the script needs to search, filter and sort them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dprepro.report.markup import Html, join, tag
from dprepro.report.verdicts import counted, kind, tone

Row = Mapping[str, str]

# Columns of results that are shown at once, in this order; the others appear on demand.
_FIRST = (
    *("part", "table", "problem", "dataset", "method", "algorithm", "variant", "quantity", "theory", "measured"),
    *("verdict", "epsilon_claimed", "epsilon_accounted", "epsilon_audited", "delta"),
)
_CHOSEN = frozenset({"part", "table", "problem", "dataset", "method", "algorithm", "variant", "verdict"})
# Which columns of the first ones give way where there is a better one.
_BEHIND = {"algorithm": "method"}
_INTERVAL = ("ci_low", "ci_high")
# A cell with more characters is given room.
_LONG = 36
# A table with more columns breaks words on paper.
_MOST_COLUMNS = 11


@dataclass(frozen=True)
class Column:
    """A column: its name, whether it appears on demand only, and whether rows can be chosen by its values."""

    name: str
    extra: bool = False
    chosen: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell: what it shows, the number it is sorted by if there is one, and the value it is chosen by if another."""

    content: object
    number: float | None = None
    group: str | None = None
    tone: str | None = None


def table(caption: object, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], name: str) -> Html:
    """Return a table with a caption that the script makes searchable; `name` is its identifier."""
    head = [
        tag("th", _label(c.name), scope="col", class_=_extra(c), data_chosen="" if c.chosen else None) for c in columns
    ]
    body = [
        tag("tr", *(_cell(cell, column) for cell, column in zip(row, columns, strict=True)), data_row="")
        for row in rows
    ]
    inner = [tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *body)]
    crowded = _crowded(sum(not column.extra for column in columns))
    box = tag(
        "div",
        tag("table", *inner, id=name, class_=crowded),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )
    return tag("div", box, class_="table")


def plain_table(head: Sequence[str], rows: Sequence[Sequence[Html]], label: str = "Table") -> Html:
    """Return a small table that stands in running text."""
    top = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head)))
    body = tag("tbody", *(tag("tr", *(tag("td", cell, class_=_width(cell)) for cell in row)) for row in rows))
    return tag(
        "div",
        tag("table", top, body, class_=_crowded(len(head))),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=label,
    )


def results_table(caption: object, rows: Sequence[Row], name: str) -> Html:
    """Return the rows of a .csv file: the interval beside its number, the verdict with its kind."""
    present = list(rows[0]) if rows else []
    extra = {key for key in present if key not in _FIRST or _BEHIND.get(key) in present}
    columns = [Column(key, key in extra, key in _CHOSEN and key not in extra) for key in _ordered(present)]
    return table(caption, columns, [[cell_of(row, column.name) for column in columns] for row in rows], name)


def cell_of(row: Row, column: str) -> Cell:
    """Return one value of a row, as it is shown."""
    text = row[column]
    if column == "verdict":
        return verdict_cell(text)
    value = _number(text)
    if column == "measured" and value is not None and all(row.get(key) for key in _INTERVAL):
        low, high = (shown(row[key]) for key in _INTERVAL)
        interval = f"{shown(text)} [{low}, {high}]" if low != high else shown(text)
        return Cell(interval, value)
    return Cell(shown(text), value)


def verdict_cell(text: str) -> Cell:
    """Return a verdict in the colour of its kind."""
    found = kind(text)
    return Cell(text, group=found, tone=tone(found))


def verdict_counts(verdicts: Iterable[str]) -> Html:
    """Return how many verdicts there are of each kind."""
    chips = [
        tag("span", tag("b", f"{count:,}"), f" {name}", class_=f"verdict count {tone(name)}")
        for name, count in counted(verdicts).items()
    ]
    return join(chips, " ")


def shown(text: str) -> str:
    """Return a number to four digits, thousands marked, and any other text as it is.

    >>> [shown(text) for text in ("0.333333", "33264", "1234567.8", "1e-06", "5.71e+15", "True", "two", "")]
    ['0.3333', '33,264', '1,235,000', '1e-06', '5.71e+15', 'yes', 'two', '']
    """
    if text in ("True", "False"):
        return "yes" if text == "True" else "no"
    value = _number(text)
    if value is None or math.isinf(value):
        return text
    if value.is_integer() and abs(value) < 1e6:
        return f"{value:,.0f}"
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if 1e4 <= abs(rounded) < 1e12 else f"{rounded:.4g}"


def _ordered(columns: Sequence[str]) -> list[str]:
    """Return columns with the ones of the first rank first; those of the interval stand beside its number."""
    merged = "measured" in columns
    kept = [name for name in columns if not (merged and name in _INTERVAL)]
    return sorted(kept, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _label(name: str) -> str:
    return name.replace("_", " ")


def _extra(column: Column) -> str | None:
    return "extra" if column.extra else None


def _crowded(columns: int) -> str | None:
    """Return the class of a table whose words must be broken to fit on paper."""
    return "crowded" if columns > _MOST_COLUMNS else None


def _width(content: object) -> str | None:
    """Return the class of a cell that needs room: text of more than a few words."""
    plain = re.sub("<[^>]*>", "", str(content))
    return "text" if len(plain) > _LONG else None


def _cell(cell: Cell, column: Column) -> Html:
    content = tag("span", cell.content, class_=f"verdict {cell.tone}") if cell.tone and cell.content else cell.content
    names = (
        "extra" * column.extra,
        "number" * (cell.number is not None),
        "text" if cell.tone else _width(cell.content),
    )
    # The script reads infinities by their name.
    number = None if cell.number is None else f"{cell.number:.10g}".replace("inf", "Infinity")
    return tag("td", content, class_=" ".join(filter(None, names)) or None, data_number=number, data_group=cell.group)
