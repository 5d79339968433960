"""What a table of exponents says in words: sentences that follow from its numbers by rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from dprepro.analysis.intervals import differ, mean_interval, worst_members
from dprepro.analysis.rates import prediction
from dprepro.sweeps import EVALUATIONS, NONSMOOTH, SECONDS
from dprepro.tables import records

# Exponents that are no further apart are called the same.
SAME = 0.05


def conclusions(rows: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    """Return sentences that follow from the table by rule."""
    sentences = []
    frame = worst_members(frame)
    for problem, here in rows.groupby("problem", sort=False):
        sentences += [f"- {text}" for text in _repaired(here)]
        sentences += [f"- {text}" for text in _practical(here)]
        sentences += [f"- {text}" for text in _overspent(here)]
        sentences += [f"- {text}" for text in _best(frame[frame["problem"] == problem])]
    return sentences


def _slopes(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the exponents of the error in n that there is a bound for."""
    costs = rows["quantity"].str.startswith((EVALUATIONS, SECONDS))
    slopes = rows[rows["quantity"].str.endswith("exponent in n") & ~costs]
    return slopes.dropna(subset=["theory", "measured"])


def _repaired(rows: pd.DataFrame) -> Iterator[str]:
    """Say which algorithms reach their bound as published and miss it with calibrated noise, and what repairs it."""
    private = rows[np.isfinite(rows["epsilon_claimed"])]
    for algorithm, group in _slopes(private).groupby("algorithm", sort=False):
        missed = group["verdict"].str.startswith("not reached")
        calibrated = group["variant"] != "published"
        reached = group[calibrated & ~missed]
        for lost in records(group[calibrated & missed]) if (~calibrated & ~missed).any() else []:
            yield (
                f"{lost['problem']}: {algorithm} has the bound's n^{lost['theory']:g} with the published noise; with "
                f"the noise that its privacy needs, {_fall(lost)} [{lost['ci_low']:.2f}, {lost['ci_high']:.2f}]"
                + "".join(f"; calibrated alike, {_fall(row)}" for row in records(reached))
                + "."
            )


def _fall(row: Mapping[str, Any]) -> str:
    failed = f" ({row['failed']} of {row['points'] * row['replicates']} runs worse than w = 0)" if row["failed"] else ""
    return f"{row['method']} ({row['variant']}) falls as n^{row['measured']:.2f}{failed}"


def _practical(rows: pd.DataFrame) -> Iterator[str]:
    """Say of every practical line whether its interval holds the predicted exponent in n, and if not why."""
    slopes = _slopes(rows)
    for row in records(slopes[(slopes["variant"] == "practical") & np.isfinite(slopes["epsilon_claimed"])]):
        low, high = prediction(row["theory"], row["theory_with_logarithms"])
        predicted = f"n^{low:.2f}" if low == high else f"n^{low:.2f} to n^{high:.2f}"
        found = f"n^{row['measured']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
        name = f"{row['problem']}: {row['method']} (practical)"
        if row["ci_low"] <= high and row["ci_high"] >= low:
            yield f"{name} shows the predicted exponent: {found}, predicted {predicted}."
        elif row["measured"] < low:
            yield f"{name} is faster than predicted on this instance: {found}, predicted {predicted}."
        else:
            yield f"{name} does not reach the predicted exponent: {found}, predicted {predicted}; {_why(row, slopes)}."


def _why(row: Mapping[str, Any], slopes: pd.DataFrame) -> str:
    """Tell noise from schedule by the same algorithm's line without noise, if there is one."""
    silent = slopes[(slopes["algorithm"] == row["algorithm"]) & ~np.isfinite(slopes["epsilon_claimed"])]
    if silent.empty:
        return "no line without noise tells whether noise or schedule is the cause"
    exponent = float(silent["measured"].iloc[0])
    same = abs(exponent - row["measured"]) <= SAME
    cause = "the schedule is the cause, not the noise" if same else "the noise is part of the cause"
    return f"without noise it is n^{exponent:.2f}: {cause}"


def _overspent(rows: pd.DataFrame) -> Iterator[str]:
    """Say what published noise spends where it is more than claimed, at the worst point of all axes."""
    published = rows[(rows["variant"] == "published") & np.isfinite(rows["epsilon_claimed"])]
    published = published.assign(ratio=published["epsilon_accounted"] / published["epsilon_claimed"])
    for row in records(published.sort_values("ratio", ascending=False, kind="stable").drop_duplicates(["method"])):
        claimed, accounted = row["epsilon_claimed"], row["epsilon_accounted"]
        if not accounted <= claimed:
            proven = str(row["privacy"]).startswith("not private")
            spent = f"{accounted:.4g}" if np.isfinite(accounted) else "no finite epsilon"
            set_here = f" and {row['set_here']} set here," if row["set_here"] else ","
            yield (
                f"{row['problem']}: the published noise of {row['method']}, constants that the paper leaves open taken "
                f"as 1{set_here} claims epsilon = {claimed:g} at delta = {row['delta']:.3g} and "
                f"{'spends' if proven else 'is accounted at most'} {spent}."
            )


def _best(frame: pd.DataFrame) -> Iterator[str]:
    """Say which calibrated method has the smallest error at one point of each axis, and how the others stand to it.

    The point is the last one of those that most methods share.
    """
    calibrated = frame[(frame["variant"] != "published") & (frame["refused"] == "") & (frame["axis"] != NONSMOOTH)]
    for axis, rows in calibrated[np.isfinite(calibrated["epsilon"])].groupby("axis", sort=False):
        shared = rows.groupby("axis_value").apply(lambda point: point.groupby(["method", "variant"]).ngroups)
        at = shared[shared == shared.max()].index.max()
        last = rows[rows["axis_value"] == at]
        yield from _ranking(last[last["epsilon"] == last["epsilon"].mode().iloc[0]], f"at {axis} = {at:g}")


def _ranking(last: pd.DataFrame, where: str) -> Iterator[str]:
    """Say who has the smallest mean error among methods without failures, who is level with it, and who is behind."""
    groups = dict(iter(last.groupby(["method", "variant"], sort=False)))
    failed = [_named(key) for key, group in groups.items() if (group["failure"] != "").any()]
    values = {key: group["value"].to_numpy() for key, group in groups.items() if (group["failure"] == "").all()}
    if len(values) < 2:
        return
    order = sorted(values, key=lambda key: float(np.mean(values[key])))
    best, first = mean_interval(values[order[0]]), last.iloc[0]
    level = [key for key in order[1:] if not differ(values[key], values[order[0]])]
    behind = [f"{_named(key)} {np.mean(values[key]):.3g}" for key in order[1:] if key not in level]
    yield (
        f"{first['problem']}, {where}, epsilon = {first['epsilon']:g} accounted for all: {_named(order[0])} "
        f"has the smallest {first['metric']}, {best.mean:.3g} [{best.low:.3g}, {best.high:.3g}]"
        + (f"; not to be told from it: {', '.join(map(_named, level))}" if level else "")
        + (f"; behind it: {', '.join(behind)}" if behind else "")
        + (f"; left out for failed runs: {', '.join(failed)}" if failed else "")
        + "."
    )


def _named(key: Any) -> str:
    return f"{key[0]} ({key[1]})"
