"""Draw what the benchmarks wrote: part of `make bench`. Saved to speed.png, .pdf and .svg, its caption to speed.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from common import DTYPES, parser
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from dprepro.arrays import TILE
from dprepro.figures import style
from dprepro.files import write_text

STEP = "time per replicate-step"
SHOWN = (
    "Left: CPU time of one full-batch private step per replicate, on one thread; hooks and ew are two ways of Opacus "
    "to gradients of single records. Middle: steps of the one-sample loop. Right: time of a replicate-step against the "
    "number of replicates, which run in full tiles of 64. Medians, all variants of a panel measured in turns."
)


def dots(axes: Axes, rows: pd.DataFrame, label: str, scale: str) -> None:
    """Draw one line of dots per variant, a colour per floating-point type, with the values beside them."""
    variants = list(dict.fromkeys(rows["variant"]))
    colour = style.colours(DTYPES)
    for number, dtype in enumerate(DTYPES):
        for row in rows[rows["dtype"] == dtype].itertuples():
            height = -variants.index(row.variant) - 0.18 * (2 * number - 1)
            axes.plot(row.value, height, style.MARKERS[number], color=colour[dtype], markersize=4)
            axes.annotate(
                f"{row.value:.3g}",
                (row.value, height),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=6,
            )
    axes.set_yticks([-place for place in range(len(variants))], variants)
    axes.set_xscale(scale)
    low, high = axes.get_xlim()
    axes.set_xlim(low if scale == "log" else 0.0, high * (2.0 if scale == "log" else 1.15))
    axes.set_ylim(0.5 - len(variants), 0.5)
    axes.set_xlabel(label)


def growth(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw the time per replicate-step against the number of replicates."""
    colour = style.colours(DTYPES)
    for (case, dtype), group in rows.groupby(["case", "dtype"]):
        ordered = group.sort_values("K")
        number = DTYPES.index(dtype)
        axes.plot(ordered["K"], ordered["value"], style.MARKERS[number] + "-", color=colour[dtype], markersize=4)
        if number == 1:
            start = ordered.iloc[0]
            place = (start["K"], start["value"])
            axes.annotate(case, place, xytext=(9, 3), textcoords="offset points", fontsize=7)
    axes.axvline(TILE, color=style.GREY, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_xticks(sorted(rows["K"].unique()), [f"{K:.0f}" for K in sorted(rows["K"].unique())])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yscale("log")
    axes.set_xlabel("replicates K")
    axes.set_ylabel("time per replicate-step, us")


def steps(engine: pd.DataFrame, peers: pd.DataFrame) -> pd.DataFrame:
    """Return the times of a full-batch step: those of the engine's own benchmark, and the peers' beside them."""
    own = engine[(engine["case"] == "full gradient") & (engine["measure"] == STEP)]
    others = peers[(peers["case"] == "private step") & (peers["measure"] == STEP) & (peers["variant"] != "engine")]
    shown = pd.concat([own, others]) if len(others) else own
    order = shown.groupby("variant")["value"].min().sort_values().index
    return shown.set_index("variant").loc[order].reset_index()


def along_replicates(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the times of the sizes that differ in the number of replicates alone."""
    times = rows[rows["measure"] == STEP]
    alike = times[times["K"] != TILE].iloc[0]
    return times[(times["n"] == alike["n"]) & (times["d"] == alike["d"])]


def machine_line(file: Path) -> str:
    """Return processor, versions and commit in words."""
    fact = pd.read_csv(file, dtype=str).set_index("fact")["value"]
    return (
        f"{fact['processor']}, {fact['cores']} cores; Python {fact['python']}, NumPy {fact['numpy']}, {fact['blas']} "
        f"with kernels for {fact['blas_kernel']}, {fact['blas_threads']} thread; dprepro {fact['dprepro']}, "
        f"commit {fact['commit'][:12]}{' (modified)' if fact['modified'] == 'True' else ''}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw and write."""
    folder = parser(__doc__).parse_args(arguments).out
    engine, peers, grown = (pd.read_csv(folder / f"{name}.csv") for name in ("engine", "peers", "growth"))
    with style.applied():
        drawn, (left, middle, right) = plt.subplots(1, 3, figsize=(10.2, 2.9), width_ratios=(1.1, 0.8, 1.2))
        dots(left, steps(engine, peers), "ms per replicate-step", "log")
        loop = engine[engine["measure"] == "replicate-steps per second"]
        dots(middle, loop, "million replicate-steps per second", "linear")
        growth(right, along_replicates(grown))
        for number, dtype in enumerate(DTYPES):
            left.plot([], [], style.MARKERS[number], color=style.colours(DTYPES)[dtype], markersize=4, label=dtype)
        left.legend(loc="lower left", fontsize=6.5, frameon=False, handletextpad=0.1)
        size = engine[engine["case"] == "full gradient"].iloc[0]
        left.set_title(f"full-batch step, n = {size['n']:,.0f}, d = {size['d']:.0f}", loc="left")
        middle.set_title("one-sample loop", loc="left")
        right.set_title(f"growth, n = {along_replicates(grown)['n'].iloc[0]:,.0f}", loc="left")
        drawn.tight_layout(rect=(0, 0.05, 1, 1))
        made = machine_line(folder / "machine.csv")
        drawn.text(0.01, 0.01, made, fontsize=5, color=style.GREY, va="bottom")
        style.save(drawn, folder / "speed.png")
    write_text(folder / "speed.md", f"{SHOWN}\n\nMade by `make bench` on {made}.\n")
    print(f"written: {folder / 'speed.png'}")


if __name__ == "__main__":
    main()
