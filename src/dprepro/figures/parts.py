"""The exponents of all rows of a paper's table beside those of its bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dprepro import origin
from dprepro.analysis.rates import WIDEST
from dprepro.errors import UserError
from dprepro.figures import style
from dprepro.figures.sweeps import line_name, small_print
from dprepro.tables import parts as measured
from dprepro.tables import records

_SHOWN = (
    "Measured exponents of the error with 95 % bootstrap intervals over replicates (points), and the exponents of the "
    "paper's bounds (ticks); left of a tick is faster than the bound. Hollow points: published noise, full points: "
    "accounted noise, crosses: no noise. Exponents without a bound whose interval is wider than 0.6 are left out. Each "
    "row of the table has a figure of its own."
)
# All in inches.
_STEP = 0.145
_MARGIN = 0.15
_PANEL, _BETWEEN = 1.4, 0.15
_HEAD = 0.68

# A line of the figure: part, problem and name.
_Key = tuple[str, str, str]


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return the figure and its caption: a line per method, a column per axis of the sweeps."""
    rows = _with_names(_telling(measured.exponents(measured.table(frame, metadata))))
    columns = list(dict.fromkeys(rows["axis"]))
    if not columns:
        raise UserError(
            f"No part of {metadata['title']!r} has an exponent that a figure can show: claim exponents of its methods, "
            "or sweep over more values with more replicates."
        )
    names = _names(rows, metadata)
    # Names are measured at the resolution at which they are saved: it changes their width.
    dpi = plt.rcParams["savefig.dpi"]
    drawn, grid = plt.subplots(1, len(columns), sharey=True, squeeze=False, dpi=dpi)
    colour = style.colours(list(metadata["parts"]))
    for axes, axis in zip(grid[0], columns, strict=True):
        _panel(axes, rows[rows["axis"] == axis], list(names), colour)
        axes.set_title(f"exponent in {axis}", fontsize=7.5, pad=4)
    _name_lines(grid[0, 0], names, colour)
    _place(drawn, grid[0], len(names), frame, metadata)
    return drawn, origin.sweep_caption(_SHOWN, frame, metadata)


def _telling(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out exponents that no bound is stated for and that are too wide to tell one from another."""
    return rows[rows["theory"].notna() | (rows["ci_high"] - rows["ci_low"] <= 2.0 * WIDEST)]


def _with_names(rows: pd.DataFrame) -> pd.DataFrame:
    named = [line_name(row["method"], row["variant"], row["epsilon_claimed"]) for row in records(rows)]
    return rows.assign(name=named)


def _names(rows: pd.DataFrame, metadata: Mapping[str, Any]) -> dict[_Key, str]:
    """Return the names of the lines from top to bottom: each part under its title, its problems one by one."""
    names: dict[_Key, str] = {}
    for part, here in rows.groupby("part", sort=False):
        names[str(part), "", ""] = metadata["parts"][part]["title"]
        for problem, lines in here.groupby("problem", sort=False):
            names |= {(str(part), str(problem), name): f"{problem}: {name}" for name in lines["name"]}
    return names


def _panel(axes: Axes, rows: pd.DataFrame, lines: Sequence[_Key], colour: Mapping[str, Any]) -> None:
    axes.axvline(0.0, color=style.GREY, linewidth=0.5, zorder=1)
    for row in records(rows):
        at = lines.index((row["part"], row["problem"], row["name"]))
        look = _look(row["variant"], row["epsilon_claimed"], colour[row["part"]])
        spread = [[row["measured"] - row["ci_low"]], [row["ci_high"] - row["measured"]]]
        axes.errorbar(row["measured"], at, xerr=np.clip(spread, 0.0, None), elinewidth=0.9, **look)
        if row["theory"] == row["theory"]:
            axes.plot([row["theory"]] * 2, [at - 0.42, at + 0.42], color="0.2", linewidth=1.0, zorder=1.5)
    for at, (_, problem, _) in enumerate(lines):
        if problem:
            axes.axhline(at, color="0.85", linewidth=0.4, zorder=0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(axis="x", labelsize=6.5, pad=2)
    axes.tick_params(axis="y", length=0, pad=3)


def _look(variant: str, epsilon: float, shade: Any) -> dict[str, Any]:
    """Return the look of a point, which tells the kind of its noise."""
    noisy = np.isfinite(epsilon)
    face = "white" if noisy and variant == "published" else shade
    return {
        "color": shade, "marker": "o" if noisy else "x", "markerfacecolor": face, "markersize": 3.8 if noisy else 4.5,
        "markeredgewidth": 1.0, "linestyle": "none",
    }  # fmt: skip


def _name_lines(axes: Axes, names: Mapping[_Key, str], colour: Mapping[str, Any]) -> None:
    axes.set_yticks(range(len(names)), list(names.values()), fontsize=6)
    axes.set_ylim(len(names) - 0.4, -0.6)
    for label, (part, problem, _) in zip(axes.get_yticklabels(), names, strict=True):
        label.set_color("0.2" if problem else colour[part])
        if not problem:
            label.set_fontweight("bold")


def _place(drawn: Figure, panels: Sequence[Axes], lines: int, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> None:
    """Give the names of the lines the room that they need, and write what stands above and below the panels."""
    longest = max(label.get_window_extent().width for label in panels[0].get_yticklabels()) / drawn.dpi
    left = _MARGIN + longest + 0.08
    width = left + len(panels) * (_PANEL + _BETWEEN) + _MARGIN
    footer = small_print(f"{_sizes(frame)}\n{origin.made_line(metadata, chr(10))}", width)
    below = 0.35 + 0.085 * (1 + footer.count("\n"))
    height = _HEAD + _STEP * lines + below
    drawn.set_size_inches(width, height)
    for number, axes in enumerate(panels):
        across = left + number * (_PANEL + _BETWEEN)
        axes.set_position((across / width, below / height, _PANEL / width, _STEP * lines / height))
    title = f"{metadata['paper']}: {metadata['title']}"
    drawn.text(_MARGIN / width, 1.0 - 0.1 / height, title, fontsize=8.5, va="top")
    style.footer(drawn, _MARGIN / width, 0.06 / height, footer)
    kinds = [("published", 1.0, "published noise"), ("", 1.0, "accounted noise"), ("", np.inf, "no noise")]
    handles = [Line2D([], [], label=text, **_look(variant, epsilon, "0.2")) for variant, epsilon, text in kinds]
    handles.append(Line2D([], [], label="the paper's bound", color="0.2", marker="|", markersize=7, linestyle="none"))
    drawn.legend(
        handles=handles, ncols=4, loc="upper left", bbox_to_anchor=(_MARGIN / width, 1.0 - 0.26 / height),
        fontsize=6.5, frameon=False, handletextpad=0.1, columnspacing=1.2, borderaxespad=0.0, borderpad=0.0,
    )  # fmt: skip


def _sizes(frame: pd.DataFrame) -> str:
    """Return the ranges of n, d, epsilon, delta and the number of replicates over all parts."""
    spans = {key: origin.span(frame[key]) for key in ("n", "d")}
    spans["epsilon"] = origin.span(frame["epsilon"][np.isfinite(frame["epsilon"])])
    spans["delta"] = origin.span(frame["delta"])
    return "; ".join(f"{key} = {text}" for key, text in spans.items()) + f"; {origin.replicates(frame)} replicates"
