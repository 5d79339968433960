"""Errors along the axes of a sweep on logarithmic scales, with the bound's slope as a guide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from dprepro import origin
from dprepro.analysis.intervals import counted, mean_interval, worst_members
from dprepro.figures import style
from dprepro.sweeps import EPSILON, NONSMOOTH, ROWS, SECONDS

_KEY = (
    "Hollow: published noise. Full: accounted noise. Crosses: no noise. Dotted: slope of the bound. "
    "Grey dashes: error of the initial point."
)
_SHOWN = (
    "Mean error and 95 % interval over replicates along each axis, and gradient evaluations along n; of a problem that "
    "is there to be timed, CPU seconds alone. "
    "Hollow marks have the published noise, full ones the accounted noise, crosses none. Dotted lines have the slope "
    "of the paper's bound and no height of their own; grey dashes are the error of the initial point, where it is "
    "known. Titles give the claimed epsilon where it is not the axis, names that of lines with another one. Every "
    "point is one dataset: intervals do not speak of others."
)
_FAMILY = (
    " Where a problem is a family of datasets, a point is the member with the largest mean error, and the error of the "
    "initial point is the largest of the members shown."
)
# All in inches.
_PAGE, _NARROWEST = 9.4, 5.0
_MARGIN = 0.15
_PANEL = (1.3, 1.25)
_ABOVE, _BELOW = 0.28, 0.45
# What stands to the left of a panel: names of heights, and of the y axis where it is another one.
_HEIGHTS, _NAME = 0.42, 0.15
_HEAD = 0.4


@dataclass(frozen=True)
class _Line:
    """One line of the panels of a problem: colours tell algorithms apart, markers lines, faces kinds of noise."""

    entry: str
    name: str
    look: Mapping[str, Any]
    rows: pd.DataFrame


@dataclass(frozen=True)
class _Block:
    """The panels of one problem side by side, and the names of their lines, at the right or, if many, below."""

    problem: str
    rows: pd.DataFrame
    lines: Sequence[_Line]
    legend: Legend
    below: bool

    @property
    def lefts(self) -> list[float]:
        """The left ends of the panels in inches from that of the block."""
        return _lefts(self.rows)

    @property
    def names_at(self) -> tuple[float, float]:
        """Where the names of the lines begin, in inches to the right of the block's left end and below its top."""
        if self.below:
            return self.lefts[0], _ABOVE + _PANEL[1] + _BELOW
        return self.lefts[-1] + _PANEL[0] + 0.15, _ABOVE

    @property
    def width(self) -> float:
        """The width in inches, with the names of the lines."""
        return max(self.lefts[-1] + _PANEL[0] + 0.15, self.names_at[0] + _inches(self.legend)[0])

    @property
    def height(self) -> float:
        """The height in inches, with the names of the lines."""
        return max(_ABOVE + _PANEL[1] + _BELOW, self.names_at[1] + _inches(self.legend)[1] + 0.1)


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return the figure and its caption: the panels of a problem side by side, one per axis."""
    frame = worst_members(frame[(frame["axis"] != NONSMOOTH) & (frame["refused"] == "")])
    frame = _with_times(frame, metadata)
    colour = style.colours(list(dict.fromkeys(frame["algorithm"])))
    # Names are measured at the resolution at which they are saved: it changes their width.
    drawn = plt.figure(dpi=plt.rcParams["savefig.dpi"])
    blocks = [_block(drawn, str(problem), rows, colour) for problem, rows in frame.groupby("problem", sort=False)]
    shelves = _shelves(blocks)
    width = max(_NARROWEST, 2 * _MARGIN + max(_width(shelf) for shelf in shelves))
    footer = small_print(f"{origin.data_line(frame, metadata)}\n{origin.made_line(metadata, chr(10))}", width)
    below = 0.12 + 0.085 * (1 + footer.count("\n"))
    heights = [max(block.height for block in shelf) for shelf in shelves]
    height = _HEAD + sum(heights) + below
    drawn.set_size_inches(width, height)
    drawn.text(_MARGIN / width, 1.0 - 0.1 / height, f"{metadata['paper']}: {metadata['title']}", fontsize=8.5, va="top")
    drawn.text(_MARGIN / width, 1.0 - 0.27 / height, small_print(_KEY, width), fontsize=5, color=style.GREY, va="top")
    style.footer(drawn, _MARGIN / width, 0.06 / height, footer)
    top = height - _HEAD
    for shelf, tall in zip(shelves, heights, strict=True):
        left = _MARGIN
        for block in shelf:
            _draw(drawn, block, left, top, metadata)
            left += block.width + 2 * _MARGIN
        top -= tall
    text = _SHOWN + (_FAMILY if (frame["member"] != "").any() else "")
    return drawn, origin.sweep_caption(text, frame, metadata)


def _with_times(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> pd.DataFrame:
    """Show the CPU seconds of a run in place of the error on problems that are there to be timed."""
    timed = frame["problem"].isin([key for key, problem in metadata["settings"].items() if problem.get("timed")])
    value = np.where(timed, frame["seconds"], frame["value"])
    return frame.assign(
        value=value,
        metric=np.where(timed, SECONDS, frame["metric"]),
        value_at_zero=np.where(timed, np.nan, frame["value_at_zero"]),
    )


def small_print(text: str, width: float) -> str:
    """Return a text in lines that fit, in letters of 5 points, into a width in inches."""
    return "\n".join(textwrap.fill(line, int(25 * (width - 2 * _MARGIN))) for line in text.splitlines())


def _inches(legend: Legend) -> tuple[float, float]:
    drawn = legend.get_figure(root=True)
    assert drawn is not None
    box = legend.get_window_extent()
    return box.width / drawn.dpi, box.height / drawn.dpi


def _shelves(blocks: Sequence[_Block]) -> list[list[_Block]]:
    """Return which blocks stand side by side: each on the first shelf that has room for it within a page."""
    shelves: list[list[_Block]] = []
    for block in blocks:
        for shelf in shelves:
            if _width([*shelf, block]) <= _PAGE - 2 * _MARGIN:
                shelf.append(block)
                break
        else:
            shelves.append([block])
    return shelves


def _width(shelf: Sequence[_Block]) -> float:
    return sum(block.width for block in shelf) + 2 * _MARGIN * (len(shelf) - 1)


def _block(drawn: Figure, problem: str, rows: pd.DataFrame, colour: Mapping[str, Any]) -> _Block:
    lines = list(_lines(rows, colour))
    legend = _legend(drawn, lines, columns=1)
    below = _inches(legend)[1] > _PANEL[1] + _BELOW
    if below:
        legend.remove()
        legend = _legend(drawn, lines, columns=len(_lefts(rows)))
    return _Block(problem, rows, lines, legend, below)


def _legend(drawn: Figure, lines: Sequence[_Line], columns: int) -> Legend:
    """Return the names of some lines, which have their size but not yet their place."""
    handles = [Line2D([], [], **line.look) for line in lines]
    legend = Legend(
        drawn, handles, [textwrap.fill(line.name, 26) for line in lines], loc="upper left", ncols=columns, fontsize=6.5,
        frameon=False, handlelength=1.6, handletextpad=0.4, labelspacing=0.35, columnspacing=1.2, borderaxespad=0.0,
        borderpad=0.0,
    )  # fmt: skip
    drawn.add_artist(legend)
    return legend


def _axes_names(rows: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(rows["axis"]))


def _counted(rows: pd.DataFrame) -> bool:
    """Whether the gradient evaluations of a problem are shown: they change with n alone, and a time says more."""
    return bool((rows["axis"] == ROWS).any()) and rows["metric"].iloc[0] != SECONDS


def _lefts(rows: pd.DataFrame) -> list[float]:
    """Return the left ends of a problem's panels in inches: one per axis and, last, the evaluations."""
    step = _HEIGHTS + _PANEL[0]
    lefts = [_NAME + _HEIGHTS + number * step for number in range(len(_axes_names(rows)))]
    return [*lefts, lefts[-1] + step + _NAME] if _counted(rows) else lefts


def _lines(rows: pd.DataFrame, colour: Mapping[str, Any]) -> Iterator[_Line]:
    """Yield the lines of a problem."""
    common = _epsilon(rows)
    marks, crosses = iter(style.MARKERS * len(rows)), iter("x+1" * len(rows))
    for _, line in rows.groupby(["entry", "variant"], sort=False):
        first = line.iloc[0]
        shade = colour[first["algorithm"]]
        noisy = np.isfinite(line["epsilon"]).all()
        hollow = noisy and first["variant"] == "published"
        look = {
            "color": shade,
            "marker": next(marks if noisy else crosses),
            "markerfacecolor": "white" if hollow else shade,
            "markeredgewidth": 0.8,
            # A full mark on a hollow one leaves its rim in sight, and on a cross the arms.
            "markersize": (4.6 if hollow else 3.2) if noisy else 5.2,
            "zorder": 2.0 if hollow else 3.0,
            "linewidth": 1.0,
        }
        yield _Line(str(first["entry"]), _name(line, common), look, line)


def _epsilon(rows: pd.DataFrame) -> float | None:
    """Return the epsilon that most points have in common away from its axis."""
    away = rows[(rows["axis"] != EPSILON) & np.isfinite(rows["epsilon"])]["epsilon"]
    return float(away.mode().iloc[0]) if len(away) else None


def _name(line: pd.DataFrame, common: float | None) -> str:
    """Return the name of a line, with the epsilon where it is not the common one."""
    first = line.iloc[0]
    away = line[(line["axis"] != EPSILON) & np.isfinite(line["epsilon"])]["epsilon"]
    epsilon = f", epsilon = {away.iloc[0]:g}" if len(away) and away.iloc[0] != common else ""
    return line_name(first["method"], first["variant"], first["epsilon"]) + epsilon


def line_name(method: str, variant: str, epsilon: float) -> str:
    """Return what a line is called: the method and the variant, which means nothing without noise."""
    if np.isfinite(epsilon):
        return f"{method} ({variant})"
    return method if "without noise" in method else f"{method}, without noise"


def _draw(drawn: Figure, block: _Block, left: float, top: float, metadata: Mapping[str, Any]) -> None:
    """Draw the panels of a problem and name its lines; `left` and `top` are inches from the figure's lower left."""
    width, height = drawn.get_size_inches()
    bottom = (top - _ABOVE - _PANEL[1]) / height
    places = [((left + at) / width, bottom, _PANEL[0] / width, _PANEL[1] / height) for at in block.lefts]
    panels = [drawn.add_axes(place) for place in places]
    for axes, axis in zip(panels, _axes_names(block.rows), strict=False):
        _error_panel(axes, block, axis, metadata)
    if _counted(block.rows):
        _evaluations_panel(panels[-1], block)
    for axes in panels:
        name_heights(axes)
    panels[0].set_ylabel(block.rows["metric"].iloc[0], fontsize=7, labelpad=3)
    common = _epsilon(block.rows)
    title = block.problem if common is None else f"{block.problem}, epsilon = {common:g}"
    panels[0].set_title(title, fontsize=7.5, loc="left", pad=5)
    right, down = block.names_at
    block.legend.set_bbox_to_anchor(((left + right) / width, (top - down) / height), drawn.transFigure)


def _error_panel(axes: Axes, block: _Block, axis: str, metadata: Mapping[str, Any]) -> None:
    here = block.rows[block.rows["axis"] == axis]
    _initial(axes, here)
    for line in block.lines:
        x, intervals = [], []
        for _, point in line.rows[line.rows["axis"] == axis].groupby("axis_value"):
            if np.isfinite(point["value"]).all():
                x.append(float(point["axis_value"].iloc[0]))
                intervals.append(mean_interval(point["value"].to_numpy()))
        if not x:
            continue
        means = np.array([interval.mean for interval in intervals])
        low = np.array([max(interval.low, 0.3 * interval.mean) for interval in intervals])
        high = np.array([interval.high for interval in intervals])
        axes.errorbar(x, means, yerr=np.clip([means - low, high - means], 0.0, None), elinewidth=0.7, **line.look)
        claims = metadata["methods"][line.entry]
        timed = here["metric"].iloc[0] == SECONDS
        slope = claims.get("evaluations") if timed else claims.get("exponents", {}).get(axis)
        _guide(axes, x, means, slope, line.look["color"])
    _logarithmic(axes, here["axis_value"])
    axes.set_xlabel(axis, fontsize=7, labelpad=2)


def _initial(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw the error of the initial point, which may change with n and d."""
    known = rows[rows["value_at_zero"] > 0.0].groupby("axis_value")["value_at_zero"].max()
    look: dict[str, Any] = {"color": style.GREY, "linewidth": 0.8, "linestyle": "--", "zorder": 1}
    if known.nunique() == 1:
        axes.axhline(float(known.iloc[0]), **look)
    else:
        axes.plot(known.index, known, **look)


def _guide(axes: Axes, x: list[float], means: np.ndarray, exponent: float | None, colour: Any) -> None:
    """Draw the bound's slope as a thin line through the curve's middle."""
    if exponent is None or len(x) < 2:
        return
    span = np.array([x[0], x[-1]])
    middle = np.exp(np.mean(np.log(x)))
    height = np.exp(np.mean(np.log(np.maximum(means, np.finfo(float).tiny))))
    axes.plot(span, height * (span / middle) ** exponent, color=colour, linewidth=0.7, linestyle=":")


def _evaluations_panel(axes: Axes, block: _Block) -> None:
    for line in block.lines:
        points = [point for _, point in line.rows[line.rows["axis"] == ROWS].groupby("axis_value")]
        axes.plot([point["axis_value"].iloc[0] for point in points], counted(points)[1], **line.look)
    _logarithmic(axes, block.rows[block.rows["axis"] == ROWS]["axis_value"])
    axes.set_xlabel(ROWS, fontsize=7, labelpad=2)
    # Where some ask for values of the loss, these are shown for them.
    values = (block.rows["function_evaluations"] > 0.0).any()
    axes.set_ylabel("evaluations" if values else "gradient evaluations", fontsize=7, labelpad=3)


def _logarithmic(axes: Axes, values: pd.Series) -> None:
    """Make both axes logarithmic and name the ends and the middle of the values on the first."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    ordered = sorted(set(values))
    shown = _ticks(ordered)
    axes.set_xticks(shown, [short_number(value) for value in shown])
    axes.set_xticks(ordered, minor=True)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=6.5, pad=2)


def _ticks(ordered: Sequence[float]) -> list[float]:
    """Return the ends and the value nearest to their middle, unless its name would run into theirs."""
    low, high = ordered[0], ordered[-1]
    if low == high:
        return [low]
    share = {value: np.log(value / low) / np.log(high / low) for value in ordered}
    middle = min(ordered, key=lambda value: abs(share[value] - 0.5))
    return [low, middle, high] if 0.35 <= share[middle] <= 0.65 else [low, high]


def name_heights(axes: Axes) -> None:
    """Name at most four heights of a logarithmic axis: powers of ten, or rounder numbers where it has too few."""
    low, high = axes.get_ylim()
    if high < 3.0 * low:
        # A narrow range would make chance look like a trend.
        middle = np.sqrt(low * high)
        low, high = axes.set_ylim(middle / 3.0**0.5, middle * 3.0**0.5)
    shown = _heights(low, high)
    axes.yaxis.set_major_locator(FixedLocator(shown))
    powers = shown[0] < 1e-3
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value) if powers else short_number(value)))
    leads = range(1, 10) if high < 1e3 * low else (1,)
    axes.yaxis.set_minor_locator(FixedLocator(_round(low, high, leads)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _heights(low: float, high: float) -> list[float]:
    choices = (_round(low, high, leads) for leads in ((1,), (1, 3), (1, 2, 5), range(1, 10)))
    shown = next(choice for choice in choices if len(choice) >= 2)
    return shown[:: -(-len(shown) // 4)]


def _round(low: float, high: float, leads: Iterable[int]) -> list[float]:
    """Return the numbers of one digit out of `leads` in a range."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    return [number for decade in decades for lead in leads if low <= (number := float(f"{lead}e{decade}")) <= high]


def _power(value: float) -> str:
    lead, power = f"{value:.0e}".split("e")
    return rf"$10^{{{int(power)}}}$" if lead == "1" else f"{lead}e{int(power)}"


def short_number(value: float) -> str:
    """Return a number in few characters: 0.062, 4096, 10k, 65536, 231k, 42M."""
    thousands = 1e4 if value % 1000.0 == 0.0 else 1e5
    for least, unit, name in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (thousands, 1e3, "k")):
        if value >= least:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}" if value < 1000.0 else f"{value:.0f}"
