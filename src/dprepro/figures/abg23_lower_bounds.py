"""The methods' errors over a proven lower bound against n, a panel per instance; nothing may be below 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from dprepro import origin
from dprepro.figures import style
from dprepro.figures.sweeps import line_name, small_print
from dprepro.tables.abg23_lower_bounds import instance_name, missing, points

_SHOWN = (
    "Mean gradient norm with 95 % interval over the proven lower bound, which no algorithm of the same privacy beats: "
    "the black line at 1. Dashed: the theorem's expression with its hidden constant taken as 1. Dotted: the initial "
    "point. Replicates that end above F(0) count, as the bounds speak of expectations. A ball changes no bound: "
    'methods that are run in one are drawn in the panel of the same instance, with "in a ball" in their names.'
)
_KEY = (
    "Black: the proven bound. Dashed: the theorem's expression with constant 1. Dotted: the initial point. Methods "
    "that are run in a ball, which changes no bound, are drawn in the same panels."
)
_WIDTH, _PANEL, _COLUMNS = 9.0, 2.6, 3


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return the figure and its caption."""
    measured = points(frame, metadata)
    measured = measured[measured["bound"] > 0.0]
    instances = list(_instances(measured, metadata))
    lines = list(dict.fromkeys(zip(measured["entry"], measured["variant"], strict=True)))
    colour = style.colours(list(dict.fromkeys(measured["algorithm"])))
    names = [line_text(measured, metadata, *line) for line in lines]
    below = 0.75 + 0.15 * -(-len(lines) // _COLUMNS)
    height = 0.55 + _PANEL + below
    drawn, grid = plt.subplots(1, len(instances), figsize=(_WIDTH, height), squeeze=False)
    drawn.subplots_adjust(left=0.07, right=0.99, wspace=0.16, top=1 - 0.55 / height, bottom=below / height + 0.06)
    looks = [_look(measured, number, line, colour) for number, line in enumerate(lines)]
    for axes, here in zip(grid[0], instances, strict=True):
        _panel(axes, here, lines, looks)
        first = here.iloc[0]
        axes.set_title(instance_name(metadata["settings"][first["problem"]], int(first["d"])), fontsize=8, loc="left")
    grid[0, 0].set_ylabel("gradient norm / lower bound")
    handles = [plt.Line2D([], [], **look) for look in looks]
    drawn.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(0.01, 0.36 / height),
        ncols=_COLUMNS,
        fontsize=6.5,
        frameon=False,
    )
    drawn.text(0.01, 1 - 0.1 / height, f"{metadata['paper']}: {metadata['title']}", fontsize=8.5, va="top")
    drawn.text(0.01, 1 - 0.27 / height, _KEY, fontsize=5, color=style.GREY, va="top")
    footer = small_print(f"{origin.data_line(frame, metadata)}\n{origin.made_line(metadata, chr(10))}", _WIDTH)
    style.footer(drawn, 0.01, 0.03 / height, footer)
    absent = " ".join(missing(frame, metadata))
    shown = f"{_SHOWN}\n\nRegistered algorithms that are not drawn, and why. {absent}"
    return drawn, origin.sweep_caption(shown, frame[frame["refused"] == ""], metadata)


def _instances(measured: pd.DataFrame, metadata: Mapping[str, Any]) -> Iterator[pd.DataFrame]:
    """Yield the points of every instance: data and dimension decide the bound, a constraint does not change it."""
    names = {problem: setting["dataset"]["name"] for problem, setting in metadata["settings"].items()}
    order = measured["problem"].map(list(metadata["settings"]).index)
    ordered = measured.assign(data=measured["problem"].map(names)).iloc[np.argsort(order, kind="stable")]
    for _, here in ordered.groupby(["data", "d"], sort=False):
        yield here


def line_text(measured: pd.DataFrame, metadata: Mapping[str, Any], entry: str, variant: str) -> str:
    """Return what a line is called, with a word on the ball where all of its problems have one."""
    line = measured[(measured["entry"] == entry) & (measured["variant"] == variant)]
    first = line.iloc[0]
    ball = all(metadata["settings"][problem]["constraint"] is not None for problem in line["problem"].unique())
    return line_name(f"{first['method']}{', in a ball' if ball else ''}", first["variant"], first["epsilon"])


def _look(measured: pd.DataFrame, number: int, line: tuple[str, str], colour: Mapping[str, Any]) -> dict[str, Any]:
    first = measured[measured["entry"] == line[0]].iloc[0]
    shade = colour[first["algorithm"]]
    hollow = line[1] == "published"
    return {
        "color": shade,
        "marker": style.MARKERS[number % len(style.MARKERS)],
        "markerfacecolor": "white" if hollow else shade,
        "markersize": 4.0,
        "linewidth": 1.0,
    }


def _panel(
    axes: Axes, here: pd.DataFrame, lines: Sequence[tuple[str, str]], looks: Sequence[Mapping[str, Any]]
) -> None:
    for (entry, variant), look in zip(lines, looks, strict=True):
        line = here[(here["entry"] == entry) & (here["variant"] == variant) & np.isfinite(here["error"])]
        if line.empty:
            continue
        ratio = line["error"] / line["bound"]
        ends = [(line["error"] - line["low"]) / line["bound"], (line["high"] - line["error"]) / line["bound"]]
        ends[0] = np.minimum(ends[0], 0.7 * ratio)
        axes.errorbar(line["n"], ratio, yerr=ends, elinewidth=0.7, **look)
    each = here.drop_duplicates("n").sort_values("n")
    axes.plot(each["n"], each["theorem"] / each["bound"], color=style.GREY, linewidth=0.9, linestyle="--")
    axes.plot(each["n"], each["value_at_zero"] / each["bound"], color=style.GREY, linewidth=0.9, linestyle=":")
    axes.axhline(1.0, color="black", linewidth=1.2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("n")
