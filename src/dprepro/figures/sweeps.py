"""Errors along the axes of a sweep on logarithmic scales, with the bound's slope as a guide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from dprepro import origin
from dprepro.analysis.intervals import mean_interval
from dprepro.figures import style
from dprepro.sweeps import NONSMOOTH

_MARKERS = {"published": "o", "certified": "s", "practical": "^"}


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return the figure and its caption: a row per problem and kind of noise, a column per axis."""
    frame = frame[(frame["axis"] != NONSMOOTH) & (frame["refused"] == "")]
    frame = frame.assign(noise=np.where(frame["variant"] == "published", "published noise", "accounted noise"))
    axes_names = list(dict.fromkeys(frame["axis"]))
    rows = list(dict.fromkeys(zip(frame["problem"], frame["noise"], strict=True)))
    entries = list(dict.fromkeys(frame["entry"]))
    colour = style.colours(entries)
    columns = [*axes_names, "gradient evaluations"]
    drawn, grid = plt.subplots(
        len(rows), len(columns), figsize=(1.9 + 1.85 * len(columns), 0.9 + 1.85 * len(rows)), squeeze=False
    )
    for row, (problem, noise) in enumerate(rows):
        here = frame[(frame["problem"] == problem) & (frame["noise"] == noise)]
        for column, axis in enumerate(axes_names):
            _error_panel(grid[row, column], here[here["axis"] == axis], colour, metadata)
            grid[row, column].set_xlabel(axis)
        first = "n" if "n" in axes_names else axes_names[0]
        _evaluations_panel(grid[row, -1], here[here["axis"] == first], colour)
        grid[row, -1].set_xlabel(first)
        grid[row, 0].set_ylabel(f"{here['metric'].iloc[0]}\n{problem}, {noise}", fontsize=7)
        _legend(grid[row, -1], here, colour)
    drawn.suptitle(f"{metadata['paper']}: {metadata['title']}", fontsize=8.5, x=0.02, ha="left")
    # The names stand to the right of the last panel: longer ones need more room.
    width, height = drawn.get_size_inches()
    room = 0.1 + 0.055 * max(len(name) for name in _names(frame))
    drawn.subplots_adjust(
        left=0.95 / width,
        right=1.0 - room / width,
        bottom=0.6 / height,
        top=1.0 - 0.5 / height,
        wspace=0.42,
        hspace=0.5,
    )
    footer = f"{origin.data_line(frame, metadata)}\n{origin.made_line(metadata, chr(10))}"
    drawn.text(0.02, 0.004, footer, fontsize=5, color=style.GREY, va="bottom")
    return drawn, _caption(frame, metadata)


def _error_panel(axes: Axes, rows: pd.DataFrame, colour: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    if rows.empty:
        axes.set_axis_off()
        return
    axis = rows["axis"].iloc[0]
    for entry, variant, line in _lines(rows):
        x, intervals = [], []
        for _, point in line.groupby("axis_value"):
            finite = point["value"][np.isfinite(point["value"])].to_numpy()
            if finite.size:
                x.append(float(point["axis_value"].iloc[0]))
                intervals.append(mean_interval(finite))
        means = np.array([interval.mean for interval in intervals])
        low = np.array([max(interval.low, 0.3 * interval.mean) for interval in intervals])
        high = np.array([interval.high for interval in intervals])
        axes.errorbar(
            x, means, yerr=np.clip([means - low, high - means], 0.0, None), color=colour[entry],
            marker=_MARKERS[variant], markersize=3, linewidth=1.0, elinewidth=0.7,
        )  # fmt: skip
        _guide(axes, x, means, metadata["methods"][entry].get("exponents", {}).get(axis), colour[entry])
    _logarithmic(axes)


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    if np.ceil(np.log10(low)) <= np.floor(np.log10(high)):
        # A power of ten is on the axis and gets a label: the others need none.
        axes.yaxis.set_minor_formatter(NullFormatter())


def _guide(axes: Axes, x: list[float], means: np.ndarray, exponent: float | None, colour: Any) -> None:
    """Draw the bound's slope as a thin line through the curve's middle."""
    if exponent is None or len(x) < 2:
        return
    span = np.array([x[0], x[-1]])
    middle = np.exp(np.mean(np.log(x)))
    height = np.exp(np.mean(np.log(np.maximum(means, np.finfo(float).tiny))))
    axes.plot(span, height * (span / middle) ** exponent, color=colour, linewidth=0.6, linestyle=":")


def _evaluations_panel(axes: Axes, rows: pd.DataFrame, colour: Mapping[str, Any]) -> None:
    for entry, variant, line in _lines(rows):
        counts = line.groupby("axis_value")["gradient_evaluations"].first()
        axes.plot(counts.index, counts, color=colour[entry], marker=_MARKERS[variant], markersize=3, linewidth=1.0)
    axes.set_title("gradient evaluations", fontsize=7.5)
    _logarithmic(axes)


def _names(rows: pd.DataFrame) -> list[str]:
    """Return the names of the lines; the variant is named where it is not the published one."""
    return [
        f"{line['method'].iloc[0]}{'' if variant == 'published' else f' ({variant})'}"
        for _, variant, line in _lines(rows)
    ]


def _lines(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield entry, variant and rows of each line."""
    for _, line in rows.groupby(["entry", "variant"], sort=False):
        yield str(line["entry"].iloc[0]), str(line["variant"].iloc[0]), line


def _legend(axes: Axes, rows: pd.DataFrame, colour: Mapping[str, Any]) -> None:
    """Name the lines to the right of the last panel, each in its colour."""
    for number, (name, (entry, _, _)) in enumerate(zip(_names(rows), _lines(rows), strict=True)):
        axes.annotate(
            name, xy=(1.06, 0.97 - 0.105 * number), xycoords="axes fraction", color=colour[entry], fontsize=6.5,
            va="top", annotation_clip=False,
        )  # fmt: skip


def _caption(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    problems = "; ".join(f"{key}: {title}" for key, title in metadata["problems"].items())
    return "\n".join(
        [
            f"**{metadata['paper']}.** {metadata['title']}. Mean error and 95 % interval over replicates along each "
            "axis, and gradient evaluations; dotted lines have the slope of the paper's bound and no "
            "height of their own. Every point is one dataset: intervals do not speak of others.",
            "",
            f"Problems: {problems}.",
            "",
            f"{origin.data_line(frame, metadata)}. {origin.problem_line(metadata)}",
            "",
            origin.failures_line(frame),
            "",
            f"Made by {origin.made_line(metadata)}.",
        ]
    )
