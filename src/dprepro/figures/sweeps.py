"""Errors along the axes of a sweep on logarithmic scales, with the bound's slope as a guide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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

_SHOWN = (
    "Mean error and 95 % interval over replicates along each axis, and gradient evaluations; dotted lines have the "
    "slope of the paper's bound and no height of their own; names give the claimed epsilon where it is not the axis. "
    "Every point is one dataset: intervals do not speak of others."
)


@dataclass(frozen=True)
class _Line:
    """One line of a panel."""

    entry: str
    algorithm: str
    name: str
    number: int
    rows: pd.DataFrame

    @property
    def marker(self) -> str:
        """The marker of the line."""
        return style.MARKERS[self.number % len(style.MARKERS)]


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return the figure and its caption: a row per problem and kind of noise, a column per axis."""
    frame = frame[(frame["axis"] != NONSMOOTH) & (frame["refused"] == "")]
    frame = frame.assign(noise=np.where(frame["variant"] == "published", "published noise", "accounted noise"))
    axes_names = list(dict.fromkeys(frame["axis"]))
    rows = list(dict.fromkeys(zip(frame["problem"], frame["noise"], strict=True)))
    colour = style.colours(list(dict.fromkeys(frame["algorithm"])))
    columns = [*axes_names, "gradient evaluations"]
    drawn, grid = plt.subplots(
        len(rows), len(columns), figsize=(1.9 + 1.85 * len(columns), 0.9 + 1.85 * len(rows)), squeeze=False
    )
    for row, (problem, noise) in enumerate(rows):
        here = frame[(frame["problem"] == problem) & (frame["noise"] == noise)]
        for column, axis in enumerate(axes_names):
            _error_panel(grid[row, column], here, axis, colour, metadata)
            grid[row, column].set_xlabel(axis)
        first = "n" if "n" in axes_names else axes_names[0]
        _evaluations_panel(grid[row, -1], here, first, colour)
        grid[row, -1].set_xlabel(first)
        grid[row, 0].set_ylabel(f"{here['metric'].iloc[0]}\n{problem}, {noise}", fontsize=7)
        _legend(grid[row, -1], here, colour)
    drawn.suptitle(f"{metadata['paper']}: {metadata['title']}", fontsize=8.5, x=0.02, ha="left")
    # The names stand to the right of the last panel: longer ones need more room.
    width, height = drawn.get_size_inches()
    room = 0.1 + 0.055 * max(len(line.name) for line in _lines(frame))
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
    return drawn, origin.sweep_caption(_SHOWN, frame, metadata)


def _error_panel(
    axes: Axes, rows: pd.DataFrame, axis: str, colour: Mapping[str, Any], metadata: Mapping[str, Any]
) -> None:
    here = rows[rows["axis"] == axis]
    if here.empty:
        axes.set_axis_off()
        return
    for line in _lines(rows):
        x, intervals = [], []
        for _, point in line.rows[line.rows["axis"] == axis].groupby("axis_value"):
            finite = point["value"][np.isfinite(point["value"])].to_numpy()
            if finite.size:
                x.append(float(point["axis_value"].iloc[0]))
                intervals.append(mean_interval(finite))
        if not x:
            continue
        means = np.array([interval.mean for interval in intervals])
        low = np.array([max(interval.low, 0.3 * interval.mean) for interval in intervals])
        high = np.array([interval.high for interval in intervals])
        axes.errorbar(
            x, means, yerr=np.clip([means - low, high - means], 0.0, None), color=colour[line.algorithm],
            marker=line.marker, markersize=3, linewidth=1.0, elinewidth=0.7,
        )  # fmt: skip
        slope = metadata["methods"][line.entry].get("exponents", {}).get(axis)
        _guide(axes, x, means, slope, colour[line.algorithm])
    _logarithmic(axes, here["axis_value"])


def _logarithmic(axes: Axes, values: pd.Series) -> None:
    """Make both axes logarithmic and name the ends and the middle of the values on the first."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    ordered = sorted(set(values))
    shown = sorted({ordered[0], ordered[len(ordered) // 2], ordered[-1]})
    axes.set_xticks(shown, [f"{value:g}" for value in shown])
    axes.set_xticks(ordered, minor=True)
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


def _evaluations_panel(axes: Axes, rows: pd.DataFrame, axis: str, colour: Mapping[str, Any]) -> None:
    for line in _lines(rows):
        counts = line.rows[line.rows["axis"] == axis].groupby("axis_value")["gradient_evaluations"].first()
        axes.plot(counts.index, counts, color=colour[line.algorithm], marker=line.marker, markersize=3, linewidth=1.0)
    axes.set_title("gradient evaluations", fontsize=7.5)
    _logarithmic(axes, rows[rows["axis"] == axis]["axis_value"])


def _lines(rows: pd.DataFrame) -> Iterator[_Line]:
    """Yield the lines of a panel: colours tell algorithms apart, markers the lines of one row of panels."""
    for number, (_, line) in enumerate(rows.groupby(["entry", "variant"], sort=False)):
        first = line.iloc[0]
        yield _Line(str(first["entry"]), str(first["algorithm"]), _name(line), number, line)


def _name(line: pd.DataFrame) -> str:
    """Return the name of a line: the variant where it is not the published one, and the epsilon away from its axis."""
    first = line.iloc[0]
    variant = "" if first["variant"] == "published" else f" ({first['variant']})"
    away = line[line["axis"] != "epsilon"]["epsilon"]
    epsilon = f", eps {away.iloc[0]:g}" if len(away) else ""
    return f"{first['method']}{variant}{epsilon}"


def _legend(axes: Axes, rows: pd.DataFrame, colour: Mapping[str, Any]) -> None:
    """Name the lines to the right of the last panel, each with its marker in its colour."""
    for line in _lines(rows):
        height = 0.97 - 0.105 * line.number
        axes.plot(
            1.08, height - 0.03, line.marker, color=colour[line.algorithm], markersize=3, transform=axes.transAxes,
            clip_on=False,
        )  # fmt: skip
        axes.annotate(
            line.name, xy=(1.12, height), xycoords="axes fraction", color="0.15", fontsize=6.5, va="top",
            annotation_clip=False,
        )  # fmt: skip
