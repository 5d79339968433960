"""KLT25's Proposition 5.1: how far population and sample are apart, against d and n, and its counter-example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from dprepro import origin
from dprepro.analysis.intervals import mean_interval
from dprepro.figures import style
from dprepro.figures.sweeps import small_print

# The series of the table, the finding on it, and its label.
GAPS = (
    ("tight gap", "Proposition 5.1, a tight instance", "w that fits the signs"),
    ("benign gap", "Proposition 5.1, a benign point", "w where descent leads"),
)
COUNTER_EXAMPLE = "Proposition 5.1 as stated"
# Where the labels of the two gaps stand, in shares of a panel: by its right or left lower corner.
_LABELS = {"d": ((0.98, 0.38, "right"), (0.03, 0.04, "left")), "n": ((0.98, 0.43, "right"), (0.03, 0.04, "left"))}
_WIDTH, _HEIGHT = 9.0, 3.5
_TITLE = "Goldstein norms, the population's against a sample's (Proposition 5.1)"
_KEY = (
    "Mean with 95 % interval over {replicates} samples (where descent leads: of the gap's size); exponents with 95 % "
    "bootstrap intervals. Grey: the bound with 1 for its open constant."
)
_SHOWN = (
    "Left and middle: the population's Goldstein norm minus the sample's for f = w_1/2 + s |<w, x>| with random signs "
    "s, where the population's is exactly 1/2; mean and 95 % interval over {replicates} samples ({sizes}). Once at "
    "the w that fits the sample's signs, and once at the point to which descent on the sample's risk leads (there the "
    "mean of the gap's size, as its sign changes). Grey: sqrt(d/n), with 1 for the constant that the bound leaves "
    "open. Right: functions of one variable that are only Lipschitz, with slopes 1/2 + a random sign on each of k "
    "intervals ({intervals}), one sample each. Grey: the least norm of a sample that the bound allows with 1 for its "
    "constant, 1/2 - L/sqrt(n). It tends to 1/2 whatever the constant: a sample's norm that stays at 0 contradicts "
    "the bound. Beside it the norm of the sample's smoothed function. Neither noise nor privacy plays a part here."
)


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return the figure and its caption."""
    findings = {name: found["numbers"] for name, found in metadata["findings"].items()}
    drawn, panels = plt.subplots(1, 3, figsize=(_WIDTH, _HEIGHT))
    drawn.subplots_adjust(left=0.07, right=0.985, wspace=0.25, top=1 - 0.78 / _HEIGHT, bottom=0.62 / _HEIGHT)
    for axes, axis in zip(panels[:2], _LABELS, strict=True):
        _gaps(axes, axis, frame[frame["axis"] == axis], findings)
    panels[0].set_ylabel("population's norm - sample's")
    limits = np.array([axes.get_ylim() for axes in panels[:2]])
    for axes in panels[:2]:
        # Room for the label below the lower curve.
        axes.set_ylim(0.35 * limits.min(), limits.max())
    _counter_example(panels[2], findings[COUNTER_EXAMPLE]["rows"])
    replicates = frame["replicate"].nunique()
    drawn.text(0.01, 1 - 0.1 / _HEIGHT, f"{metadata['paper']}: {_TITLE}", fontsize=8.5, va="top")
    key = _KEY.format(replicates=replicates)
    drawn.text(0.01, 1 - 0.3 / _HEIGHT, key, fontsize=6.5, color=style.GREY, va="top")
    footer = small_print(origin.made_line(metadata, "\n"), _WIDTH)
    style.footer(drawn, 0.01, 0.05 / _HEIGHT, footer)
    return drawn, _caption(frame, metadata, findings)


def points(here: pd.DataFrame) -> pd.DataFrame:
    """Return x with mean, low and high of the gap over the replicates."""
    return pd.DataFrame(
        [{"x": x, **vars(mean_interval(group.to_numpy()))} for x, group in here.groupby("x")["gap"]],
    )


def _gaps(axes: Axes, axis: str, frame: pd.DataFrame, findings: Mapping[str, Any]) -> None:
    """Draw both gaps along an axis with the bound of constant 1 as a guide."""
    for (series, finding, label), spot, colour in zip(GAPS, _LABELS[axis], style.PALETTE, strict=False):
        mean = points(frame[frame["series"] == series])
        ends = [mean["mean"] - mean["low"], mean["high"] - mean["mean"]]
        axes.errorbar(mean["x"], mean["mean"], ends, color=colour, marker="o", markersize=4, elinewidth=1.0, capsize=2)
        fitted = findings[finding][axis]
        text = f"{label}:\n${axis}^{{{fitted['slope']:.2f}}}$  [{fitted['low']:.2f}, {fitted['high']:.2f}]"
        axes.text(*spot[:2], text, ha=spot[2], va="bottom", color=colour, fontsize=7.5, transform=axes.transAxes)
    fixed = findings[GAPS[0][1]]["fixed"][axis]
    x = np.array(sorted(frame["x"].unique()))
    at = {"n": x, "d": x} | fixed
    bound = np.sqrt(at["d"] / at["n"])
    axes.plot(x, bound, color=style.GREY, linewidth=0.8)
    # Beside the line, on the side to which it falls.
    side = -1 if axis == "d" else 1
    axes.annotate(
        "sqrt(d/n)", (x[len(x) // 2], bound[len(x) // 2]), xytext=(4 * side, 4), textcoords="offset points",
        ha="right" if side < 0 else "left", color=style.GREY, fontsize=7.5,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    _ticks(axes, x)
    axes.set_xlabel(axis)
    axes.set_title(f"against {axis}, " + ", ".join(f"{key} = {value:,}" for key, value in fixed.items()), loc="left")


def _ticks(axes: Axes, x: Sequence[float] | np.ndarray) -> None:
    """Put ticks where something is measured."""
    axes.set_xticks(x, [f"{value:g}" for value in x])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _counter_example(axes: Axes, rows: Sequence[Mapping[str, float]]) -> None:
    """Draw the norms of the counter-example in one dimension against n."""
    n = [row["n"] for row in rows]
    lines = (
        ("population", "population", style.PALETTE[2], "s", (0, -5), "top"),
        ("smoothed", "sample, smoothed", style.PALETTE[4], "D", (0, 5), "bottom"),
        ("sample", "sample", style.PALETTE[3], "o", (0, 5), "bottom"),
    )
    for key, label, colour, marker, offset, above in lines:
        values = [row[key] for row in rows]
        # What the others are compared with stands behind them.
        face, size = ("white", 7.0) if key == "population" else (colour, 4.0)
        axes.plot(n, values, color=colour, marker=marker, markersize=size, markerfacecolor=face)
        axes.annotate(
            label, (n[-1], values[-1]), xytext=offset, textcoords="offset points", ha="right", va=above, color=colour,
            fontsize=7.5,
        )  # fmt: skip
    allowed = [row["population"] - row["bound"] for row in rows]
    axes.plot(n, allowed, color=style.GREY, linewidth=0.8)
    axes.annotate(
        "allowed: 1/2 - L/sqrt(n)", (n[-1], allowed[-1]), xytext=(0, -22), textcoords="offset points", ha="right",
        va="top", color=style.GREY, fontsize=7.5,
    )  # fmt: skip
    axes.set_ylim(-0.03, 0.6)
    _ticks(axes, n)
    axes.set_xlabel("n")
    axes.set_ylabel("Goldstein norm")
    axes.set_title("only Lipschitz: a counter-example", loc="left")


def _caption(frame: pd.DataFrame, metadata: Mapping[str, Any], findings: Mapping[str, Any]) -> str:
    gaps = frame[frame["axis"].notna()]
    fixed = findings[GAPS[0][1]]["fixed"]
    sizes = "; ".join(
        f"{axis} = {origin.span(here['x'])} at " + ", ".join(f"{key} = {value:,}" for key, value in fixed[axis].items())
        for axis, here in gaps.groupby("axis")
    )
    rows = findings[COUNTER_EXAMPLE]["rows"]
    intervals = ", ".join(f"k = {row['k']:,} at n = {row['n']}" for row in rows)
    text = _SHOWN.format(replicates=gaps["replicate"].nunique(), sizes=sizes, intervals=intervals)
    judged = [*(finding for _, finding, _ in GAPS), COUNTER_EXAMPLE]
    verdicts = "; ".join(f"{name}: {metadata['findings'][name]['verdict']}" for name in judged)
    made = f"Made by {origin.made_line(metadata)}."
    return "\n\n".join([f"**{metadata['paper']}.** {_TITLE}. {text}", f"Verdicts. {verdicts}.", made])
