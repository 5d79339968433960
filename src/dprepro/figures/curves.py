"""Optimality gap against gradient evaluations and against time, a column per epsilon (WYX17, Figures 1 and 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import NullFormatter

from dprepro import origin
from dprepro.analysis.intervals import curves
from dprepro.figures import style

_ROWS = (("gradient_evaluations", "gradient evaluations"), ("seconds", "seconds per replicate"))


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return the figure and its caption."""
    epsilons = sorted(frame["epsilon"].unique())
    methods = list(dict.fromkeys(frame["method"]))
    colour = style.colours(methods)
    # Names are measured at the resolution at which they are saved: it changes their width.
    drawn, grid = plt.subplots(
        2,
        len(epsilons),
        figsize=(7.4, 4.9),
        dpi=plt.rcParams["savefig.dpi"],
        sharey=True,
        squeeze=False,
        gridspec_kw={"hspace": 0.42, "wspace": 0.1},
    )
    lasts: list[dict[str, tuple[Axes, tuple[float, float]]]] = [{} for _ in _ROWS]
    for column, epsilon in enumerate(epsilons):
        part = frame[(frame["epsilon"] == epsilon) & (frame["checkpoint"] > 0)]
        for row, (horizontal, label) in enumerate(_ROWS):
            axes = grid[row, column]
            ends = _panel(axes, part, horizontal, colour)
            axes.set_xlabel(label)
            if row == 0:
                axes.set_title(f"epsilon = {epsilon:g}")
            if column == 0:
                axes.set_ylabel("optimality gap")
            lasts[row] |= {method: (axes, end) for method, end in ends.items()}
    names = [name for row, found in enumerate(lasts) for name in _label(grid[row, -1], found, colour)]
    _reference(grid, float(frame["gap_at_zero"].iloc[0]))
    # The labels stand to the right of the last panel: longer ones need more room.
    edge = grid[0, -1].bbox.x1
    room = max((name.get_window_extent().x1 - edge for name in names), default=0.0) / drawn.bbox.width
    drawn.subplots_adjust(left=0.1, right=max(0.3, min(0.84, 0.985 - room)), top=0.9, bottom=0.17)
    drawn.suptitle(f"{metadata['paper']}: {metadata['title']}", fontsize=8.5, x=0.1, ha="left")
    footer = f"{origin.data_line(frame, metadata)}\n{origin.made_line(metadata, chr(10))}"
    style.footer(drawn, 0.1, 0.015, footer, size=5.5)
    return drawn, _caption(frame, metadata)


def _panel(
    axes: Axes, part: pd.DataFrame, horizontal: str, colour: Mapping[str, Any]
) -> dict[str, tuple[float, float]]:
    """Draw all methods into one panel and return where each curve ends."""
    ends = {}
    for method in colour:
        rows = part[part["method"] == method]
        positions = rows.groupby("checkpoint")[horizontal].first()
        curve = curves(rows, ["checkpoint"], "gap")
        if curve.empty:
            # No run at this epsilon, or none that stays finite: the caption states the reason.
            continue
        x = positions.loc[curve["checkpoint"]].to_numpy()
        # A logarithmic axis cannot show the part of a band at or below zero.
        low = np.maximum(curve["low"].to_numpy(), 1e-3 * curve["mean"].to_numpy())
        axes.fill_between(x, low, curve["high"], color=colour[method], alpha=0.25, linewidth=0)
        axes.plot(x, curve["mean"], color=colour[method], marker="o", markersize=1.8)
        ends[method] = (float(x[-1]), float(curve["mean"].iloc[-1]))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    return ends


def _label(
    last: Axes, found: Mapping[str, tuple[Axes, tuple[float, float]]], colour: Mapping[str, Any]
) -> list[Annotation]:
    """Write each method's name where its curve ends in the last panel that has one; return names beside the panels."""
    for method, (axes, end) in found.items():
        if axes is not last:
            axes.annotate(
                method, xy=end, xytext=(0.0, 3.0), textcoords="offset points", color=colour[method], ha="right",
                fontsize=6.5,
            )  # fmt: skip
    return style.label_ends(last, {method: end for method, (axes, end) in found.items() if axes is last}, colour)


def _reference(grid: np.ndarray, gap_at_zero: float) -> None:
    """Draw the gap at w = 0, where every run starts."""
    for axes in grid.flat:
        axes.axhline(gap_at_zero, color=style.GREY, linewidth=0.8, linestyle="--")
    for axes in grid[:, 0]:
        axes.annotate(
            "w = 0", xy=(0.02, gap_at_zero), xycoords=("axes fraction", "data"), xytext=(0, 2),
            textcoords="offset points", fontsize=6.5, color=style.GREY,
        )  # fmt: skip


def _ends_line(frame: pd.DataFrame) -> str:
    """Say where curves end above w = 0, where every run starts; parameters of such an experiment are never tuned."""
    runs = frame.groupby(["method", "epsilon", "replicate"], sort=False)["final_gap"].first()
    ends = runs.groupby(level=["method", "epsilon"], sort=False).mean()
    above = ends[ends > float(frame["gap_at_zero"].iloc[0])].reset_index()
    listed = "; ".join(
        f"{method} (epsilon = {', '.join(f'{epsilon:g}' for epsilon in rows['epsilon'])})"
        for method, rows in above.groupby("method", sort=False)
    )
    said = f"Ends above w = 0 in the mean: {listed}." if listed else "No curve ends above w = 0 in the mean."
    return f"No parameter is tuned in this run: another step size or number of steps may end elsewhere. {said}"


def _side_by_side(frame: pd.DataFrame) -> str:
    """Return how many replicates a run has side by side, which its time per replicate depends on."""
    return " or ".join(str(tile) for tile in sorted(frame["tile"].unique()))


def _caption(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    accounted = frame.groupby(["method", "epsilon"], sort=False).first().reset_index()
    lines = [
        f"- {row.method}, claimed {row.epsilon:g}: accounted {row.epsilon_accounted:.3g}, {row.privacy_verdict}"
        for row in accounted.itertuples(index=False)
    ]
    accuracy = float(frame["gap_accuracy"].max())
    return "\n".join(
        [
            f"**{metadata['paper']}.** {metadata['title']}. Optimality gap F(w) - F(w*) against gradient evaluations "
            f"(top) and time per replicate when {_side_by_side(frame)} run side by side, evaluation excluded (bottom; "
            f"CPU time of one thread, or wall time on a GPU). The non-private optimum is known to {accuracy:.1g}; the "
            "dashed line is the gap at w = 0.",
            "",
            f"{origin.data_line(frame, metadata)}. {origin.problem_line(metadata)}",
            "",
            _ends_line(frame),
            "",
            origin.failures_line(frame, metadata),
            "",
            "Privacy under replacement of one record:",
            "",
            *lines,
            "",
            f"Made by {origin.made_line(metadata)}.",
        ]
    )
