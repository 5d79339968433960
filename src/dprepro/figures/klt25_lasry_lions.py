"""KLT25's Appendix C: functions beside their Lasry-Lions smoothing, and measured facts beside the stated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dprepro import origin
from dprepro.figures import style
from dprepro.figures.sweeps import small_print

DISTANCE, SMOOTHNESS, GOLDSTEIN = "Fact C.2 (ii)", "Fact C.2 (iv)", "Lemma C.3"
PRINTED, CORRECTED = "printed", "corrected"
# Families of functions by name and dimension, with their markers.
FAMILIES = {("peak", 1): "o", ("zigzag", 1): "^", ("peak", 2): "s", ("saddle", 2): "D"}
_WIDTH, _HEIGHT = 9.0, 5.35
_TITLE = "Lasry-Lions smoothing in one and two dimensions (Appendix C)"
_KEY = (
    "Upper row: functions h and their smoothings. Dashed: the fastest change of a gradient that is allowed, 1/lambda.\n"
    "Lower row: measured on grids (points) against what is stated (lines), for functions with several L."
)
_SHOWN = (
    "Upper row: a zigzag with slopes -1 and 1 and its smoothing h_LL for two lambda ({lambdas}); the gradient of "
    "h_LL, with dashed lines of the fastest change that the corrected Fact C.2 (iv) allows, 1/lambda; contours of a "
    "function of two variables with L = 1 and of its smoothing, lambda = {plane}. Lower row, for {count} smoothed "
    "functions with L from {least:g} to {most:g}: the largest h - h_LL over lambda, beside the L of the printed bound "
    "and the L^2 of the corrected one; lambda times the smoothness of h_LL, beside the printed O(L), drawn with 1 for "
    "its constant, and the corrected 1; and the largest difference, over 100 points of a grid, of the certified upper "
    "bound on the Goldstein norm of h within 3 lambda L and |grad h_LL|, over L: by Lemma C.3 the norm itself is "
    "never above 0 here (shaded: what the grid is allowed to add). Random are the zigzag's pieces and the choice of "
    "the points alone; neither noise nor privacy plays a part."
)


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return the figure and its caption."""
    numbers = metadata["findings"][DISTANCE]["numbers"]
    rows = numbers["rows"]
    line = frame[frame["series"].str.startswith("zigzag")]
    plane = frame[frame["series"].str.startswith("saddle")]
    drawn = plt.figure(figsize=(_WIDTH, _HEIGHT))
    upper = drawn.add_gridspec(
        1, 4, left=0.06, right=0.985, top=1 - 0.9 / _HEIGHT, bottom=0.555, wspace=0.3, width_ratios=[1.35, 1.35, 1, 1]
    )
    lower = drawn.add_gridspec(1, 3, left=0.06, right=0.985, top=0.42, bottom=0.62 / _HEIGHT, wspace=0.28)
    _functions(drawn.add_subplot(upper[0]), line)
    _gradients(drawn.add_subplot(upper[1]), line)
    _contours([drawn.add_subplot(upper[2]), drawn.add_subplot(upper[3])], plane)
    panels = [drawn.add_subplot(lower[column]) for column in range(3)]
    _facts(panels, rows, numbers["allowance"])
    drawn.text(0.01, 1 - 0.1 / _HEIGHT, f"{metadata['paper']}: {_TITLE}", fontsize=8.5, va="top")
    drawn.text(0.01, 1 - 0.3 / _HEIGHT, _KEY, fontsize=6.5, color=style.GREY, va="top")
    footer = small_print(origin.made_line(metadata, "\n"), _WIDTH)
    style.footer(drawn, 0.01, 0.05 / _HEIGHT, footer)
    return drawn, _caption(metadata, rows, line, plane)


def _by_lambda(line: pd.DataFrame) -> list[tuple[float, pd.DataFrame]]:
    return [(float(lam), line[line["lambda"] == lam]) for lam in sorted(line["lambda"].unique())]


def _functions(axes: Axes, line: pd.DataFrame) -> None:
    """Draw h and its smoothings."""
    for number, (lam, here) in enumerate(_by_lambda(line)):
        if not number:
            axes.plot(here["x_1"], here["h"], color="black", linewidth=0.8, label="$h$")
        axes.plot(here["x_1"], here["smoothed"], color=style.PALETTE[number], label=f"$\\lambda$ = {lam:g}")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.25 * (high - low))
    axes.legend(loc="upper center", ncols=3, fontsize=7.5, frameon=False, handlelength=1.2, columnspacing=1.0)
    axes.set_xlabel("x")
    axes.set_title("a zigzag, L = 1, and its smoothings", loc="left")


def _gradients(axes: Axes, line: pd.DataFrame) -> None:
    """Draw the slopes of the smoothings with the steepest change that the corrected Fact C.2 (iv) allows."""
    top, bottom = 1.25, -1.15
    for number, (lam, here) in enumerate(_by_lambda(line)):
        colour = style.PALETTE[number]
        axes.plot(here["x_1"], here["slope"], color=colour)
        x, slope = steepest(here)
        ends = [x + lam * (height - slope) for height in (bottom, top)]
        axes.plot(ends, [bottom, top], color=style.GREY, linewidth=0.8, linestyle="--", zorder=3)
        axes.annotate(
            f"1/$\\lambda$ = {1.0 / lam:.3g}", (ends[1], top), xytext=(0, 2), textcoords="offset points", ha="center",
            color=colour, fontsize=7.5,
        )  # fmt: skip
    axes.set_ylim(-1.3, 1.7)
    axes.set_xlabel("x")
    axes.set_title("gradients of the smoothings", loc="left")


def steepest(here: pd.DataFrame) -> tuple[float, float]:
    """Return where the slope of a smoothing rises most over a stretch of length lambda, and the slope there."""
    known = here.dropna(subset="slope")
    x, slope = known["x_1"].to_numpy(), known["slope"].to_numpy()
    steps = max(1, round(float(known["lambda"].iloc[0]) / (x[1] - x[0])))
    at = int(np.argmax(slope[steps:] - slope[:-steps])) + steps // 2
    return float(x[at]), float(slope[at])


def _contours(panels: Sequence[Axes], plane: pd.DataFrame) -> None:
    """Draw the same contours of a function of two variables and of its smoothing."""
    levels = np.linspace(plane["h"].min(), plane["h"].max(), 18)[1:-1]
    lam = plane["lambda"].iloc[0]
    for axes, column, title in zip(
        panels, ("h", "smoothed"), ("a saddle, L = 1", f"smoothed, $\\lambda$ = {lam:g}"), strict=True
    ):
        table = plane.pivot(index="x_2", columns="x_1", values=column)
        axes.contour(table.columns, table.index, table.to_numpy(), levels=levels, cmap="viridis", linewidths=0.8)
        axes.set_aspect("equal", anchor="N")
        axes.set_xticks([-1, 0, 1])
        axes.set_yticks([-1, 0, 1])
        axes.set_xlabel("$x_1$")
        axes.set_title(title, loc="left")
    panels[0].set_ylabel("$x_2$", labelpad=-2)


def _facts(panels: Sequence[Axes], rows: Sequence[Mapping[str, Any]], allowance: float) -> None:
    """Draw what was measured over what was stated, in units that leave L alone."""
    distances, smoothness, goldstein = panels
    _measured(distances, rows, lambda row: row["below"] / row["lambda"])
    _bound(distances, rows, 1.0, PRINTED, "L")
    _bound(distances, rows, 2.0, CORRECTED, "$L^2$")
    distances.set_title(f"{DISTANCE}: largest $(h - h_{{LL}})/\\lambda$", loc="left", fontsize=8)
    distances.legend(loc="lower right", fontsize=7, frameon=False, handletextpad=0.1, labelspacing=0.3)
    _measured(smoothness, rows, lambda row: row["lambda"] * row["smoothness"])
    _bound(smoothness, rows, 1.0, PRINTED, "O(L)")
    _bound(smoothness, rows, 0.0, CORRECTED, "1")
    smoothness.set_title(f"{SMOOTHNESS}: $\\lambda$ times the smoothness", loc="left", fontsize=8)
    _measured(goldstein, rows, lambda row: row["excess"] / row["L"])
    goldstein.axhline(0.0, color="black", linewidth=0.9, zorder=1)
    goldstein.axhspan(0.0, allowance, color="0.92", linewidth=0.0, zorder=0)
    goldstein.text(
        0.03, 0.5 * allowance, "allowance of the grid", fontsize=7.5, color=style.GREY, va="center",
        transform=goldstein.get_yaxis_transform(),
    )  # fmt: skip
    goldstein.set_title(f"{GOLDSTEIN}: (Goldstein norm - $|\\nabla h_{{LL}}|$)/L", loc="left", fontsize=8)


def _levels(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the L of the functions, which stand side by side at equal distances."""
    return sorted({row["L"] for row in rows})


def _measured(axes: Axes, rows: Sequence[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], float]) -> None:
    """Draw a point per smoothed function, in groups of equal L."""
    levels = _levels(rows)
    for number, ((family, d), marker) in enumerate(FAMILIES.items()):
        here = [row for row in rows if (row["family"], row["d"]) == (family, d)]
        across = [levels.index(row["L"]) + 0.16 * (number - 1.5) for row in here]
        axes.plot(
            across, [value(row) for row in here], marker, color=style.PALETTE[number], markersize=4,
            label=f"{family}, d = {d}",
        )  # fmt: skip
    axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
    axes.set_xlim(-0.6, len(levels) - 0.4)
    axes.set_xlabel("L, the Lipschitz constant of h")


def _bound(axes: Axes, rows: Sequence[Mapping[str, Any]], power: float, kind: str, formula: str) -> None:
    """Draw a power of L over each group of functions, named at the first one."""
    levels = _levels(rows)
    colour, dashes = ("black", "-") if kind == CORRECTED else (style.GREY, "--")
    for number, L in enumerate(levels):
        ends = [number - 0.42, number + 0.42]
        axes.plot(ends, [L**power] * 2, color=colour, linewidth=0.9, linestyle=dashes, zorder=1, gid=kind)
    axes.annotate(
        f"{kind}: {formula}", (-0.42, levels[0] ** power), xytext=(0, 3), textcoords="offset points", color=colour,
        fontsize=7.5,
    )  # fmt: skip
    axes.set_yscale("log")


def _caption(
    metadata: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], line: pd.DataFrame, plane: pd.DataFrame
) -> str:
    levels = [row["L"] for row in rows]
    text = _SHOWN.format(
        lambdas=" and ".join(f"{lam:g}" for lam in sorted(line["lambda"].unique())),
        plane=f"{plane['lambda'].iloc[0]:g}",
        count=len(rows),
        least=min(levels),
        most=max(levels),
    )
    judged = (DISTANCE, SMOOTHNESS, GOLDSTEIN)
    verdicts = "; ".join(f"{name}: {metadata['findings'][name]['verdict']}" for name in judged)
    made = f"Made by {origin.made_line(metadata)}."
    return "\n\n".join([f"**{metadata['paper']}.** {_TITLE}. {text}", f"Verdicts. {verdicts}.", made])
