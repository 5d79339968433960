"""Final gap against cost of every method, a panel per problem and epsilon, all at equal accounted epsilon."""

from __future__ import annotations

from collections.abc import Mapping
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

_SHOWN = (
    "Mean final gap with 95 % interval against gradient evaluations, every method at the same accounted epsilon with "
    "letters chosen on other seeds. Dashed: the gap at w = 0. Hollow: some replicate ended above it."
)


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return the figure and its caption."""
    frame = frame[frame["refused"] == ""]
    problems = list(dict.fromkeys(frame["problem"]))
    epsilons = sorted(frame["epsilon"].unique())
    methods = list(dict.fromkeys(frame["method"]))
    colour = style.colours(methods)
    drawn, grid = plt.subplots(
        len(problems),
        len(epsilons),
        figsize=(8.4, 0.8 + 1.9 * len(problems)),
        sharex="row",
        sharey="row",
        squeeze=False,
    )
    for row, problem in enumerate(problems):
        for column, epsilon in enumerate(epsilons):
            axes = grid[row, column]
            here = frame[(frame["problem"] == problem) & (frame["epsilon"] == epsilon)]
            _panel(axes, here, colour)
            if row == 0:
                axes.set_title(f"epsilon = {epsilon:g}")
            if row == len(problems) - 1:
                axes.set_xlabel("gradient evaluations")
        grid[row, 0].set_ylabel(f"optimality gap\n{problem}")
    for number, method in enumerate(methods):
        grid[0, -1].plot(
            [], [], style.MARKERS[number % len(style.MARKERS)], color=colour[method], markersize=4, label=method
        )
    grid[0, -1].legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), fontsize=6.5, frameon=False, handletextpad=0.1)
    drawn.suptitle(f"{metadata['paper']}: {metadata['title']}", fontsize=8.5, x=0.02, ha="left")
    drawn.tight_layout(rect=(0, 0.03, 1.0, 1.0))
    footer = f"{origin.data_line(frame, metadata)}\n{origin.made_line(metadata, chr(10))}"
    style.footer(drawn, 0.02, 0.004, footer)
    shown = " ".join(filter(None, [_SHOWN, origin.libraries_line(frame)]))
    return drawn, origin.sweep_caption(shown, frame, metadata)


def _panel(axes: Axes, rows: pd.DataFrame, colour: Mapping[str, Any]) -> None:
    order = list(colour)
    for method in order:
        runs = rows[rows["method"] == method]
        if runs.empty or not np.isfinite(runs["value"]).all():
            continue
        interval = mean_interval(runs["value"].to_numpy())
        failed = bool((runs["failure"] != "").any())
        axes.errorbar(
            runs["gradient_evaluations"].iloc[0],
            interval.mean,
            yerr=[[min(interval.mean - interval.low, 0.7 * interval.mean)], [interval.high - interval.mean]],
            fmt=style.MARKERS[order.index(method) % len(style.MARKERS)],
            color=colour[method],
            markersize=4,
            markerfacecolor="none" if failed else colour[method],
            elinewidth=0.7,
        )
    if len(rows):
        axes.axhline(float(rows["value_at_zero"].iloc[0]), color=style.GREY, linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
