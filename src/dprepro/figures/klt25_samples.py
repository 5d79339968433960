"""The samples that each method needs along every series of problems, with the slopes of the bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dprepro import origin
from dprepro.figures import style
from dprepro.figures.sweeps import name_heights, short_number, small_print
from dprepro.sweeps import SAMPLES
from dprepro.tables import records
from dprepro.tables.sweeps import table

_SHOWN = (
    "Samples that bring the certified Goldstein stationarity of the population down to {share} of that of the initial "
    "point: between two n the mean error is interpolated on logarithmic scales, and intervals are 95 % bootstrap "
    "intervals over replicates, of which some are continued beyond the n. Full points have accounted noise, hollow "
    "ones the noise as printed. Dotted lines have the slope of the bound's term with epsilon and no height of their "
    "own; powers at the lines are measured. A method that needs more or fewer samples than were run has no point."
)
# All in inches.
_PANEL = (1.75, 1.9)
_LEFT, _BETWEEN, _MARGIN = 0.55, 0.55, 0.15
_HEAD, _BELOW, _LEGEND = 0.5, 0.45, 0.5


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return the figure and its caption: a panel per series."""
    rows = table(frame, metadata)
    rows = rows[rows["quantity"].str.startswith(SAMPLES)]
    series = dict(iter(rows.groupby("problem", sort=False)))
    colour = style.colours(list(dict.fromkeys(rows["method"])))
    width = _LEFT + len(series) * (_PANEL[0] + _BETWEEN) - _BETWEEN + _MARGIN
    footer = small_print(f"{origin.data_line(frame, metadata)}\n{origin.made_line(metadata, chr(10))}", width)
    below = _LEGEND + 0.1 + 0.085 * (1 + footer.count("\n"))
    height = _HEAD + _PANEL[1] + _BELOW + below
    drawn = plt.figure(figsize=(width, height))
    for number, (name, here) in enumerate(series.items()):
        across = _LEFT + number * (_PANEL[0] + _BETWEEN)
        box = (across / width, (below + _BELOW) / height, _PANEL[0] / width, _PANEL[1] / height)
        axes = drawn.add_axes(box)
        _panel(axes, here, colour)
        axes.set_title(str(name), fontsize=7.5, pad=4)
        if not number:
            axes.set_ylabel(SAMPLES, fontsize=7.5, labelpad=3)
    handles = [plt.Line2D([], [], **_look(method, variant, colour)) for method, variant in _lines(rows)]
    names = [method + (", noise as printed" if variant == "published" else "") for method, variant in _lines(rows)]
    drawn.legend(
        handles, names, ncols=3, loc="upper left", bbox_to_anchor=(_MARGIN / width, below / height), fontsize=7,
        frameon=False, handletextpad=0.4, columnspacing=1.4, borderaxespad=0.0, borderpad=0.0,
    )  # fmt: skip
    title = f"{metadata['paper']}: {metadata['title']}"
    drawn.text(_MARGIN / width, 1.0 - 0.1 / height, title, fontsize=8.5, va="top")
    style.footer(drawn, _MARGIN / width, 0.06 / height, footer)
    shares = dict.fromkeys(f"{setting['reach']:g}" for setting in metadata["settings"].values() if "reach" in setting)
    return drawn, origin.sweep_caption(_SHOWN.format(share=" or ".join(shares)), frame, metadata)


def _lines(rows: pd.DataFrame) -> list[tuple[str, str]]:
    return list(dict.fromkeys(zip(rows["method"], rows["variant"], strict=True)))


def _look(method: str, variant: str, colour: Mapping[str, Any]) -> dict[str, Any]:
    """Return the look of a method's points: hollow with the noise as printed."""
    shade = colour[method]
    return {
        "color": shade, "marker": "o", "markersize": 4.0, "markeredgewidth": 1.0, "linewidth": 1.0,
        "markerfacecolor": "white" if variant == "published" else shade,
    }  # fmt: skip


def _panel(axes: Axes, rows: pd.DataFrame, colour: Mapping[str, Any]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks: set[float] = set()
    for method, variant in _lines(rows):
        line = rows[(rows["method"] == method) & (rows["variant"] == variant)]
        points = list(_points(line))
        x = [at for at, _ in points]
        y = np.array([row["measured"] for _, row in points])
        spread = np.array([[row["measured"] - row["ci_low"], row["ci_high"] - row["measured"]] for _, row in points])
        if not points:
            continue
        axes.errorbar(x, y, yerr=np.clip(spread.T, 0.0, None), elinewidth=0.9, **_look(method, variant, colour))
        ticks |= set(x)
        _slope(axes, line, x, y, colour[method], max(at for at, _ in _points(rows)))
    axes.set_xlabel(_axis(rows), fontsize=7.5, labelpad=2)
    shown = sorted(ticks)
    if not shown:
        axes.text(0.5, 0.5, "reached nowhere\nbetween the n run", transform=axes.transAxes, fontsize=7, ha="center")
        return
    axes.set_xticks(shown, [short_number(value) for value in shown])
    axes.minorticks_off()
    axes.set_xlim(shown[0] / 1.25, shown[-1] * (1.6 if len(shown) > 1 else 1.25))
    axes.tick_params(labelsize=6.5, pad=2)
    name_heights(axes)


def _points(line: pd.DataFrame) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield where along the series the samples of a method are known, with their row."""
    counts = line[line["quantity"].str.startswith(f"{SAMPLES} at ") & ~line["quantity"].str.contains(" over ")]
    for row in records(counts.dropna(subset="measured")):
        yield float(row["quantity"].rpartition(" = ")[2]), row


def _slope(axes: Axes, line: pd.DataFrame, x: list[float], y: np.ndarray, shade: Any, last: float) -> None:
    """Draw the slope of the bound through the middle of a line, and write the measured power at its end.

    Above it where the line ends before others do, which might run through the number.
    """
    early = x[-1] < last
    grown = line[line["quantity"].str.startswith(f"{SAMPLES}: exponent in ")].dropna(subset=["measured", "theory"])
    for row in records(grown):
        ends = np.array([x[0], x[-1]])
        middle, height = np.exp(np.mean(np.log(x))), np.exp(np.mean(np.log(y)))
        axes.plot(ends, height * (ends / middle) ** row["theory"], color=shade, linewidth=0.8, linestyle=":")
        axes.annotate(
            f"{row['measured']:.2f}", (x[-1], y[-1]), xytext=(-2, 7) if early else (4, 0), textcoords="offset points",
            fontsize=6.5, color=shade, va="center", ha="right" if early else "left",
        )  # fmt: skip


def _axis(rows: pd.DataFrame) -> str:
    quantity = rows[rows["quantity"].str.startswith(f"{SAMPLES} at ")]["quantity"].iloc[0]
    return str(quantity.removeprefix(f"{SAMPLES} at ").partition(" = ")[0])
