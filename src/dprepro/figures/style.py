"""One look for all figures, and files that are byte-identical when drawn again from the same table."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from dprepro.files import atomic_path

PALETTE = sns.color_palette("colorblind")
GREY = "0.45"
# One more than colours: the eleventh method has the colour of the first, and another marker.
MARKERS = ("o", "s", "^", "v", "D", "P", "X", "<", ">", "*", "d")
# Characters on a line of a label.
_LONGEST_LINE = 40
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """Apply the style inside a `with` block."""
    settings = {
        **sns.axes_style("ticks"),
        **sns.plotting_context("paper"),
        "font.size": 8,
        "axes.titlesize": 9,
        "axes.labelsize": 8,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "lines.linewidth": 1.4,
        "font.family": "DejaVu Sans",
        "svg.fonttype": "none",
        "svg.hashsalt": "dprepro",
        "pdf.fonttype": 42,
        "savefig.dpi": 200,
    }
    with plt.rc_context(settings):
        yield


def save(figure: Figure, png: Path) -> None:
    """Write the figure as .png, .pdf and .svg without dates."""
    for suffix, metadata in _METADATA.items():
        with atomic_path(png.with_suffix(f".{suffix}")) as temporary:
            figure.savefig(temporary, format=suffix, metadata=metadata)
    plt.close(figure)


def footer(figure: Figure, x: float, y: float, text: str, size: float = 5.0) -> None:
    """Write small print at the bottom: titles of datasets and paths of files, whose dollar signs are no mathematics."""
    figure.text(x, y, text, fontsize=size, color=GREY, va="bottom", parse_math=False)


def colours(methods: Sequence[str]) -> dict[str, Any]:
    """Return a colour-blind safe colour per method, in their order."""
    return {method: PALETTE[position % len(PALETTE)] for position, method in enumerate(methods)}


def folded(text: str) -> str:
    """Return a long text on several lines, so that a figure has room for it; mathematics stays in one piece."""
    if len(text) <= _LONGEST_LINE or "$" in text:
        return text
    return textwrap.fill(text, _LONGEST_LINE)


def label_ends(axes: Axes, ends: Mapping[str, tuple[float, float]], colour: Mapping[str, Any]) -> list[Annotation]:
    """Write each method's name at the right end of its curve, moved apart where names would overlap; return the names.

    `ends` maps a method to the last point of its curve in data coordinates; the y axis is logarithmic.
    """
    low, high = np.log10(axes.get_ylim())
    gap = (high - low) * 0.085
    order = sorted(ends, key=lambda method: ends[method][1])
    heights = [float(np.log10(ends[method][1])) for method in order]
    for position in range(1, len(heights)):
        heights[position] = max(heights[position], heights[position - 1] + gap)
    return [
        axes.annotate(
            folded(method),
            xy=(1.0, (height - low) / (high - low)),
            xycoords="axes fraction",
            xytext=(4.0, 0.0),
            textcoords="offset points",
            color=colour[method],
            va="center",
            fontsize=7.5,
            annotation_clip=False,
        )
        for method, height in zip(order, heights, strict=True)
    ]
