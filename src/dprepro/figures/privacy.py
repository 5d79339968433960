"""Figures of the privacy tables: what was claimed, what is accounted, what an attacker proves."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from dprepro.figures import style


def certificates(frame: pd.DataFrame) -> Figure:
    """Return claimed against accounted epsilon, a row per method and variant; infinities at the right edge."""
    labels = frame["method"] + " (" + frame["variant"] + ")"
    rows = list(dict.fromkeys(zip(frame["experiment"], labels, strict=True)))
    finite = frame["epsilon_accounted"][np.isfinite(frame["epsilon_accounted"])]
    edge = 10.0 ** np.ceil(np.log10(max(finite.max(), 10.0)) + 1.0)
    figure, axes = plt.subplots(figsize=(7.4, 0.9 + 0.24 * len(rows)))
    epsilons = sorted(frame["epsilon_claimed"].unique())
    shades = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(epsilons)))
    colour = {epsilon: shades[k] for k, epsilon in enumerate(epsilons)}
    for height, (experiment, label) in enumerate(reversed(rows)):
        here = frame[(frame["experiment"] == experiment) & (labels == label)]
        for _, row in here.iterrows():
            end = min(row["epsilon_accounted"], edge)
            shade = colour[row["epsilon_claimed"]]
            axes.plot([row["epsilon_claimed"], end], [height, height], color=shade, linewidth=0.8, alpha=0.5)
            axes.plot(row["epsilon_claimed"], height, "|", color=shade, markersize=9)
            axes.plot(end, height, ">" if np.isinf(row["epsilon_accounted"]) else "o", color=shade, markersize=4)
    axes.set_yticks(range(len(rows)), [f"{experiment}: {label}" for experiment, label in reversed(rows)])
    axes.set_xscale("log")
    axes.set_xlabel("epsilon: bar claimed, dot accounted, arrow no finite bound")
    figure.tight_layout()
    return figure


def audits(frame: pd.DataFrame) -> Figure:
    """Return the proven epsilon of each audit beside the accounted one, a panel per algorithm."""
    algorithms = list(dict.fromkeys(frame["algorithm"]))
    columns = min(4, len(algorithms))
    lines = -(-len(algorithms) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(7.4, 0.6 + 2.2 * lines), sharey=True, squeeze=False)
    for axes in grid.flat[len(algorithms) :]:
        axes.set_axis_off()
    for axes, algorithm in zip(grid.flat, algorithms, strict=False):
        here = frame[frame["algorithm"] == algorithm]
        for k, (variant, part) in enumerate(here.groupby("variant")):
            part = part.sort_values("epsilon_claimed")
            x = part["epsilon_claimed"]
            axes.plot(x, part["epsilon_accounted"], "_", color=style.PALETTE[k], markersize=11)
            # Nothing proven, nothing drawn.
            proven = part["epsilon_audited"].where(part["epsilon_audited"] > 0.0)
            axes.plot(x, proven, "o", color=style.PALETTE[k], label=str(variant))
        claimed = np.array(sorted(frame["epsilon_claimed"].unique()))
        axes.plot(claimed, claimed, color=style.GREY, linewidth=0.8, linestyle="--")
        axes.set_title(algorithm)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(claimed, [f"{epsilon:g}" for epsilon in claimed])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("claimed epsilon")
    grid[0, 0].legend(fontsize=7, frameon=False)
    for axes in grid[:, 0]:
        axes.set_ylabel("epsilon: bar accounted, dot proven", fontsize=7)
    figure.tight_layout()
    return figure
