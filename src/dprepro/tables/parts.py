"""A paper's table, row by row: what each part measured, put side by side."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dprepro.algorithms.base import VARIANTS
from dprepro.sweeps import EVALUATIONS, SECONDS, VALUES
from dprepro.tables import markdown_rows, records, sweeps
from dprepro.tables.conclusions import HOW_TUNED

# Which columns hold the exponent of the error in what; the error has another name in every part.
_AXES = {f"in {axis}": axis for axis in ("n", "d", "log(d)", "rank", "epsilon", "1/epsilon", "1/beta")}
_HOW_TO_READ = (
    "Exponents are slopes on logarithmic axes with 95 % bootstrap intervals over replicates. In brackets is the "
    "exponent of the paper's bound in the limit, and `here` that of the bound as printed over the measured "
    "points. `agrees`: the interval meets the range between the two, widened by 0.15 or by 30 % of the exponent, "
    "whichever is smaller. `runs from n`: below it the published setting leaves nothing to do. `useful from n`: "
    "from there on the bound, constants that the paper leaves open taken as 1, is below the error of the initial "
    "point (of a family, the worst member's). Both are for the epsilon and the dimension of the sweep. `last "
    "error / start`: the mean error at the last point over that of the initial point. Samples and evaluations "
    "over n are the largest of the sweep. CPU time is measured on stored rows, which have lines of their own; it "
    "differs from run to run."
)


def table(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> pd.DataFrame:
    """Return the quantities of all parts (see `tables.sweeps.table`), each behind the name of its part."""
    found = []
    for part, here in metadata["parts"].items():
        rows = sweeps.table(frame[frame["experiment"] == part], here)
        rows.insert(0, "part", part)
        found.append(rows)
    return pd.concat(found, ignore_index=True)


def summary(rows: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    """Return the paper's table with measured exponents in place, and what follows from them, in Markdown."""
    titles = {part: here["title"] for part, here in metadata["parts"].items()}
    head = ["## The paper's table, measured", "", markdown_rows(short(rows, titles)), "", _HOW_TO_READ, ""]
    return "\n".join([*head, details(rows, frame, metadata)])


def details(rows: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    """Return what follows from the numbers in words, and every method on every problem, in Markdown."""
    titles = {part: here["title"] for part, here in metadata["parts"].items()}
    parts = ["## What the numbers say", "", HOW_TUNED, ""]
    for part, title in titles.items():
        lines = sweeps.conclusions(rows[rows["part"] == part], frame[frame["experiment"] == part])
        parts += [f"{title}:", "", *lines, ""] if lines else []
    parts += ["## Every method on every problem", "", markdown_rows(wide(rows)), ""]
    parts += [f"- `{problem}`: {title}" for problem, title in metadata["problems"].items()]
    return "\n".join([*parts, "", "## All quantities"])


def short(rows: pd.DataFrame, titles: Mapping[str, str]) -> pd.DataFrame:
    """Return a line per part and variant: the paper's own first method, each exponent where it was measured first.

    The CPU time is that of the same algorithm on stored rows, in whatever variant.
    """
    lines, axes = [], _axes(rows)
    for part, variant in itertools.product(titles, VARIANTS):
        own = _own(rows[(rows["part"] == part) & np.isfinite(rows["epsilon_claimed"])])
        alike = own[own["variant"] == variant]
        if alike.empty:
            continue
        first = alike.iloc[0]
        here = alike[alike["algorithm"] == first["algorithm"]]
        every = own[own["algorithm"] == first["algorithm"]]
        lines.append(
            {"row": titles[part], "method": first["method"], "variant": variant, "bound": first["bound"]}
            | {column: sweeps.cell(_first(here, axis)) for column, axis in axes.items()}
            | {"linear time": _linear(here), "CPU time in n": sweeps.cell(_counted(every, SECONDS))}
            | _setting(first)
            | {"verdict (first exponent)": first["verdict"]}
        )
    return pd.DataFrame(lines)


def wide(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line per part, problem, method and variant."""
    lines, axes = [], _axes(rows)
    for (part, problem, method, variant), group in rows.groupby(["part", "problem", "method", "variant"], sort=False):
        first = group.iloc[0]
        lines.append(
            {"part": part, "problem": problem, "method": method, "variant": variant, "bound": first["bound"]}
            | {column: sweeps.cell(_first(group, axis)) for column, axis in axes.items()}
            | {"samples / n": first["samples_over_n"], "evaluations / n": first["evaluations_over_n"]}
            | {"evaluations in n": sweeps.cell(_counted(group, EVALUATIONS, VALUES))}
            | {"CPU time in n": sweeps.cell(_counted(group, SECONDS))}
            | _setting(first)
            | {"failed": f"{first['failed']} of {first['points'] * first['replicates']}"}
            | {"verdict (first exponent)": first["verdict"]}
        )
    return pd.DataFrame(lines)


def exponents(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the exponents of the error alone, with the axis that each is in."""
    errors = rows[[_error(row) and np.isfinite(row["measured"]) for row in records(rows)]]
    return errors.assign(axis=[_axis(quantity) for quantity in errors["quantity"]])


def _own(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the methods of the paper itself, where it is said which those are."""
    own = rows[rows["source"].str.startswith("this paper")]
    return rows if own.empty else own


def _axes(rows: pd.DataFrame) -> dict[str, str]:
    """Return the columns that the table has: those of the axes that something was measured in."""
    measured = {_axis(quantity) for quantity in rows["quantity"]}
    return {column: axis for column, axis in _AXES.items() if axis in measured}


def _setting(first: pd.Series) -> dict[str, Any]:
    return {
        "runs from n": first["runs_from_n"],
        "useful from n": first["useful_from_n"],
        "last error / start": first["last_error_over_start"],
        "epsilon claimed": first["epsilon_claimed"],
        "epsilon accounted": first["epsilon_accounted"],
    }


def _linear(rows: pd.DataFrame) -> str:
    """Say whether the gradient evaluations grow as n, and how many there are for one of the n samples."""
    row = _counted(rows, EVALUATIONS, VALUES)
    if row is None or np.isnan(row["measured"]):
        return ""
    grows = "yes" if row["theory"] == 1.0 and str(row["verdict"]).startswith("agrees") else "no"
    counted = f"evaluations n^{row['measured']:.2f}, at most {row['evaluations_over_n']:.3g} n"
    return f"{grows}: {counted}, {row['samples_over_n']:.3g} n samples"


def _first(rows: pd.DataFrame, axis: str) -> dict[str, Any] | None:
    """Return the first exponent of the error in an axis."""
    return next((row for row in records(rows) if _error(row) and _axis(row["quantity"]) == axis), None)


def _counted(rows: pd.DataFrame, *quantities: str) -> dict[str, Any] | None:
    return next(iter(records(rows[rows["quantity"].str.startswith(quantities)])), None)


def _axis(quantity: str) -> str:
    return quantity.partition(": exponent in ")[2]


def _error(row: Mapping[str, Any]) -> bool:
    """Whether a quantity is an exponent of the error, neither divided by rounds nor a count."""
    quantity = str(row["quantity"])
    counts = (EVALUATIONS, VALUES, SECONDS)
    return bool(_axis(quantity)) and not quantity.startswith(counts) and not quantity.endswith(sweeps.PER_ROUND)
