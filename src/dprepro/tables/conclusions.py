"""What a table of exponents says in words: sentences that follow from its numbers by rule."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from dprepro.analysis.intervals import Interval, differ, mean_error, mean_interval, worst_members
from dprepro.analysis.rates import prediction, rate_verdict, tolerance
from dprepro.metrics import NO_LEAF
from dprepro.sweeps import CALLS, EVALUATIONS, NONSMOOTH, ROWS, SAMPLES, SECONDS, VALUES
from dprepro.tables import records

# Exponents that are no further apart are called the same.
SAME = 0.05
MISSED = "not reached"
TOO_FEW = "too few values to tell"
# Of a line whose verdict begins with its failures.
FAILED = "failed"
HOW_TUNED = (
    "Tuned means that the parameters were chosen from several candidates in this run, which the accounted epsilon "
    "does not cover; choices that were made by hand are listed in docs/fidelity.md."
)
_MET = ("agrees", "faster than the bound")
# What the rule of the table says of an exponent and its prediction.
_AGAINST_PREDICTION = {
    "faster than the bound": "is faster than predicted on this instance",
    MISSED: "misses the prediction",
    "too wide to tell": "has too wide an interval to tell",
    TOO_FEW: "has too few values of n to tell",
    FAILED: "is no success, as half of its runs or more failed or returned nothing, or half of its points are no "
    "better than the start",
}


def conclusions(rows: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    """Return sentences that follow from the table by rule."""
    sentences = []
    frame = worst_members(frame)
    for problem, here in rows.groupby("problem", sort=False):
        if here["quantity"].str.startswith(SAMPLES).any():
            sentences += [f"- {problem}: {text}" for text in _series(here)]
            continue
        sentences += [f"- {text}" for text in _repaired(here)]
        sentences += [f"- {text}" for text in _practical(here)]
        sentences += [f"- {text}" for text in _overspent(here)]
        sentences += [f"- {text}" for text in _overtakes(here, frame[frame["problem"] == problem])]
        sentences += [f"- {text}" for text in _best(frame[frame["problem"] == problem])]
    return sentences + [f"- {text}" for text in _crossings(rows, frame)]


def _series(rows: pd.DataFrame) -> Iterator[str]:
    """Say how the samples that methods need along a series compare: their growth, and their numbers at its end."""
    for row in records(rows[rows["quantity"].str.startswith(f"{SAMPLES}: exponent in ")].dropna(subset="measured")):
        axis = row["quantity"].rpartition(" ")[2]
        yield (
            f"{row['method']} ({row['variant']}) needs samples as ({axis})^{_interval(row)}, private term of the bound "
            f"{row['theory']:g}: {row['verdict']}."
        )
    for row in records(rows[rows["quantity"].str.startswith(f"{SAMPLES}: exponent along ")].dropna(subset="measured")):
        axis, _, first = row["quantity"].partition(" along ")[2].partition(" less that of ")
        yield (
            f"the exponent in {axis} of {row['method']} ({row['variant']}) less that of {first} is {_interval(row)}, "
            f"{row['verdict']}, {row['theory']:g}."
        )
    for _, line in rows.groupby(["method", "variant"], sort=False):
        yield from _compared(line)


def _compared(line: pd.DataFrame) -> Iterator[str]:
    """Say how many samples and oracle calls a method needs beside another, at the last value of their series."""
    ratios = {row["quantity"]: row for row in records(line[line["quantity"].str.contains(" over ")])}
    for samples in [row for quantity, row in ratios.items() if quantity.startswith(f"{SAMPLES} ")][-1:]:
        name = samples["quantity"].removeprefix(f"{SAMPLES} ")
        place, _, first = name.partition(" over ")
        calls = ratios[f"{CALLS} {name}"]
        spent = f"{samples['epsilon_accounted']:.3g} of the claimed epsilon {samples['epsilon_claimed']:g}"
        yield (
            f"{place} {samples['method']} ({samples['variant']}) needs {_rounded(samples)} times the samples of "
            f"{first} ({samples['verdict']}) and {_rounded(calls)} times its oracle calls"
            + (f", and is accounted {spent}." if samples["variant"] == "published" else ".")
        )


def rounded(value: float) -> str:
    """Return a number to three digits, thousands marked."""
    return f"{float(f'{value:.3g}'):,.10g}"


def _rounded(row: Mapping[str, Any]) -> str:
    return f"{rounded(row['measured'])} [{rounded(row['ci_low'])}, {rounded(row['ci_high'])}]"


def _interval(row: Mapping[str, Any]) -> str:
    return f"{row['measured']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"


def _slopes(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the exponents of the error in n that there is a bound for, with what the table's rule says of them."""
    costs = rows["quantity"].str.startswith((EVALUATIONS, VALUES, SECONDS))
    slopes = rows[rows["quantity"].str.endswith("exponent in n") & ~costs].dropna(subset=["theory", "measured"])
    return slopes.assign(judged=[_judged(row) for row in records(slopes)])


def _judged(row: Mapping[str, Any]) -> str:
    """Return the verdict of the table on an exponent, without what it adds on failures and privacy.

    Where failures come first in the table, they do here.
    """
    measured = Interval(row["measured"], row["ci_low"], row["ci_high"])
    verdict = rate_verdict(measured, row["theory"], row["theory_with_logarithms"])
    return next((word for word in (verdict, TOO_FEW) if str(row["verdict"]).startswith(word)), FAILED)


def _repaired(rows: pd.DataFrame) -> Iterator[str]:
    """Say which algorithms reach their bound as published but not with calibrated noise, and what does with such noise.

    Noise that is larger as published is not what privacy costs, and of runs that failed no exponent is told.
    """
    private = rows[np.isfinite(rows["epsilon_claimed"])]
    for algorithm, group in _slopes(private).groupby("algorithm", sort=False):
        missed, met = group["judged"] == MISSED, group["judged"].isin(_MET)
        calibrated = group["variant"] != "published"
        reached = group[calibrated & met]
        published = records(group[~calibrated & met & (group["epsilon_accounted"] > group["epsilon_claimed"])])
        for lost in records(group[calibrated & missed]) if published else []:
            constant = published[0]["constant_set_here"]
            yield (
                f"{lost['problem']}: {algorithm} has the bound's n^{lost['theory']:g} with the published noise"
                + (f" ({constant}, set here)" if constant else "")
                + f"; with the smallest noise that is certified, {_fall(lost)} [{lost['ci_low']:.2f}, "
                f"{lost['ci_high']:.2f}]"
                + "".join(f"; calibrated alike, {_fall(row)}" for row in records(reached))
                + "."
            )


def _fall(row: Mapping[str, Any]) -> str:
    failed = f" ({row['failed']} of {row['points'] * row['replicates']} runs worse than w = 0)" if row["failed"] else ""
    return f"{row['method']} ({row['variant']}) falls as n^{row['measured']:.2f}{failed}"


def _practical(rows: pd.DataFrame) -> Iterator[str]:
    """Say of every practical line how its exponent in n stands to the predicted one, and of a missed one why.

    The verdict of the table decides; nothing is judged anew here.
    """
    slopes = _slopes(rows)
    for row in records(slopes[(slopes["variant"] == "practical") & np.isfinite(slopes["epsilon_claimed"])]):
        low, high = prediction(row["theory"], row["theory_with_logarithms"])
        predicted = f"n^{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"n^{low:.2f} to n^{high:.2f}"
        said = _AGAINST_PREDICTION.get(row["judged"]) or _agreement(row, low, high)
        why = f"; {_why(row, slopes)}" if row["judged"] == MISSED else ""
        why += f"; {row['failed']} of its runs failed" if row["failed"] else ""
        why += "".join(f"; {part}" for part in str(row["verdict"]).split("; ") if NO_LEAF in part)
        found = f"n^{row['measured']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
        yield f"{row['problem']}: {row['method']} (practical) {said}: {found}, predicted {predicted}{why}."


def _agreement(row: Mapping[str, Any], low: float, high: float) -> str:
    """Tell an interval that holds a predicted exponent from one that only the tolerance of the table lets agree."""
    if row["ci_low"] <= high and row["ci_high"] >= low:
        return "agrees with the prediction"
    return f"agrees with the prediction only to within the table's tolerance of {tolerance(row['theory']):.2g}"


def _why(row: Mapping[str, Any], slopes: pd.DataFrame) -> str:
    """Tell noise from schedule by the same algorithm's line without noise, if there is one."""
    silent = slopes[(slopes["algorithm"] == row["algorithm"]) & ~np.isfinite(slopes["epsilon_claimed"])]
    if silent.empty:
        return "no line without noise tells whether noise or schedule is the cause"
    exponent = float(silent["measured"].iloc[0])
    same = abs(exponent - row["measured"]) <= SAME
    cause = "the noise is not the cause here" if same else "the noise is part of the cause"
    return f"without noise it is n^{exponent:.2f}: {cause}"


def _overspent(rows: pd.DataFrame) -> Iterator[str]:
    """Say what published noise spends where it is more than claimed, at the worst point of all axes."""
    published = rows[(rows["variant"] == "published") & np.isfinite(rows["epsilon_claimed"])]
    published = published.assign(ratio=published["epsilon_accounted"] / published["epsilon_claimed"])
    for row in records(published.sort_values("ratio", ascending=False, kind="stable").drop_duplicates(["method"])):
        claimed, accounted = row["epsilon_claimed"], row["epsilon_accounted"]
        if accounted > claimed:
            # The verdict of a claim that is refuted by less than what is accounted quotes the lower bound.
            certain = str(row["privacy"]).partition("(epsilon at least ")[2].removesuffix(")")
            if certain:
                spent = f"spends at least {certain}"
            elif str(row["privacy"]).startswith("not private"):
                spent = f"spends {accounted:.4g}"
            elif np.isfinite(accounted):
                spent = f"is accounted {accounted:.4g}, an upper bound: what it spends is not known"
            else:
                spent = "no finite epsilon is accounted: what it spends is not known"
            own = row["constant_set_here"]
            # A label may state the constant already.
            constant = f" with {own}, set here," if own and f"{own} (set here)" not in row["method"] else ""
            read = f"; {row['printed_noise']}" if row["printed_noise"] else ""
            yield (
                f"{row['problem']}: the published noise of {row['method']}{constant} claims epsilon = {claimed:g} "
                f"at delta = {row['delta']:.3g} and {spent}{read}."
            )


def _overtakes(rows: pd.DataFrame, frame: pd.DataFrame) -> Iterator[str]:
    """Say from which n on the paper's own calibrated methods have a smaller error than those they are set against."""
    ours = rows["source"].str.startswith("this paper")
    own, others = ({(row["method"], row["variant"]) for row in records(rows[kind])} for kind in (ours, ~ours))
    runs = frame[(frame["variant"] != "published") & (frame["axis"] == ROWS) & (frame["refused"] == "")]
    runs = runs[np.isfinite(runs["epsilon"])]
    lines = dict(iter(runs.groupby(["method", "variant"], sort=False)))
    for mine in lines:
        for theirs in lines:
            if mine in own and theirs in others and mine not in others:
                yield from _overtaking(lines[mine], lines[theirs], rows["problem"].iloc[0])


def _overtaking(mine: pd.DataFrame, theirs: pd.DataFrame, problem: str) -> Iterator[str]:
    """Compare two lines where they share n and epsilon: from which n on the error is smaller, or at which n it is."""
    keys = ["n", "epsilon"]
    one, other = (dict(iter(line.groupby(keys)["value"])) for line in (mine, theirs))
    # A run that ended worse than it began has beaten nothing, however small its gradient is.
    failed = set(mine[mine["failure"] != ""].set_index(keys).index)
    shared = sorted(set(one) & set(other))
    if len(shared) < 2:
        return
    smaller = [
        at not in failed
        and mean_error(one[at]) < mean_error(other[at])
        and differ(one[at].to_numpy(), other[at].to_numpy())
        for at in shared
    ]
    wins = next((number for number in range(len(shared)) if all(smaller[number:])), None)
    largest = f"at n = {shared[-1][0]:,.0f}, the largest measured"
    names = [_named((line["method"].iloc[0], line["variant"].iloc[0])) for line in (mine, theirs)]
    lost = set(theirs[theirs["failure"] != ""].set_index(keys).index)
    broken = [name for name, runs in zip(names, (failed, lost), strict=True) if shared[-1] in runs]
    # Of runs that failed no ratio is quoted.
    last = f"at n = {shared[-1][0]:,.0f} " + (
        f"runs of {' and of '.join(broken)} failed"
        if broken
        else _times(mean_error(one[shared[-1]]), mean_error(other[shared[-1]]))
    )
    if failures := sum(at in failed for at in shared):
        last += f"; failed runs at {failures} of {len(shared)} n"
    last += f"; {_tuning(mine, theirs)}"
    apart = differ(one[shared[-1]].to_numpy(), other[shared[-1]].to_numpy())
    earlier = ", ".join(f"{at[0]:,.0f}" for at, ahead in zip(shared, smaller, strict=True) if ahead)
    if wins is None and not apart and shared[-1] not in failed:
        but = f" (ahead at n = {earlier})" if earlier else ""
        yield f"{problem}: {names[0]} cannot be told from {names[1]} {largest}{but}; {last}."
    elif wins is None:
        but = f" (ahead at n = {earlier})" if earlier else f" ({len(shared)} n measured, ahead at none)"
        yield f"{problem}: {names[0]} is not ahead of {names[1]} {largest}{but}; {last}."
    else:
        later = largest if wins == len(shared) - 1 else f"from n = {shared[wins][0]:,.0f} on"
        where = "at every n" if wins == 0 else later
        yield f"{problem}: {names[0]} is ahead of {names[1]} {where} ({len(shared)} n measured); {last}."


def _tuning(mine: pd.DataFrame, theirs: pd.DataFrame) -> str:
    """Say which of two lines have letters that were chosen from several: what is not tuned says little of a method."""
    tried = [max(len(json.loads(text)) for text in line["tried"]) for line in (mine, theirs)]
    if not any(tried):
        return "neither is tuned in this run"
    if not all(tried):
        return f"only {(mine if tried[0] else theirs)['method'].iloc[0]} is tuned in this run"
    return f"tuned over {tried[0]} and {tried[1]} candidates"


def _times(error: float, other: float) -> str:
    """Say how many times another error an error is."""
    if not np.isfinite([error, other]).all():
        return "not all errors are finite"
    with np.errstate(divide="ignore", invalid="ignore"):  # an error may be zero
        more, less = np.divide(error, other), np.divide(other, error)
    return f"its error is 1/{less:.3g} of that" if other > error else f"its error is {more:.3g} times that"


def _crossings(rows: pd.DataFrame, frame: pd.DataFrame) -> Iterator[str]:
    """Say where two regimes of one method meet: lines along one axis, side by side, whose claimed exponents differ."""
    claimed = rows[rows["quantity"].str.startswith(frame["metric"].iloc[0])].dropna(subset=["theory", "measured"])
    for (method, variant, quantity), lines in claimed.groupby(["method", "variant", "quantity"], sort=False):
        axis = str(quantity).partition(": exponent in ")[2]
        runs = frame[(frame["method"] == method) & (frame["variant"] == variant) & (frame["axis"] == axis)]
        if runs.empty or lines["theory"].nunique() < 2:
            continue
        sides = sorted((_regime(runs, row) for row in records(lines)), key=lambda side: side["from"])
        for low, high in itertools.pairwise(sides):
            if low["theory"] != high["theory"] and low["to"] < high["from"]:
                at = np.exp((high["height"] - low["height"]) / (low["slope"] - high["slope"]))
                yield (
                    f"{low['problem']} and {high['problem']}: the error of {_named((method, variant))} goes as {axis}^"
                    f"{low['slope']:.2f} up to {axis} = {low['to']:g} and as {axis}^{high['slope']:.2f} from "
                    f"{high['from']:g} on; the fitted lines meet at {axis} = {at:.3g}."
                )


def _regime(runs: pd.DataFrame, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fitted line of one problem on logarithmic axes, and where it was measured."""
    used = runs[(runs["problem"] == row["problem"]) & (runs["refused"] == "")]
    means = used.groupby("axis_value")["value"].apply(mean_error)
    means = means[np.isfinite(means)]
    slope, height = np.polyfit(np.log(means.index), np.log(means), 1)
    ends = {"from": means.index.min(), "to": means.index.max()}
    return {"problem": row["problem"], "theory": row["theory"], "slope": slope, "height": height, **ends}


def _best(frame: pd.DataFrame) -> Iterator[str]:
    """Say which calibrated method has the smallest error at one point of each axis, and how the others stand to it.

    The point is the last one of those that most methods share.
    """
    calibrated = frame[(frame["variant"] != "published") & (frame["refused"] == "") & (frame["axis"] != NONSMOOTH)]
    for axis, rows in calibrated[np.isfinite(calibrated["epsilon"])].groupby("axis", sort=False):
        shared = rows.groupby("axis_value").apply(lambda point: point.groupby(["method", "variant"]).ngroups)
        at = shared[shared == shared.max()].index.max()
        last = rows[rows["axis_value"] == at]
        for same in ("epsilon", "n"):
            last = last[last[same] == last[same].mode().iloc[0]]
        size = "" if axis == ROWS else f", n = {last['n'].iloc[0]:,.0f}"
        yield from _ranking(last, f"at {axis} = {at:g}{size}")


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
    tuned = [_named(key) for key in order if any(json.loads(text) for text in groups[key]["tried"])]
    chosen = "all" if len(tuned) == len(order) else f"only {', '.join(tuned)}" if tuned else "none"
    yield (
        f"{first['problem']}, {where}, epsilon = {first['epsilon']:g} accounted for all: {_named(order[0])} "
        f"has the smallest {first['metric']}, {best.mean:.3g} [{best.low:.3g}, {best.high:.3g}]"
        + (f"; indistinguishable from it: {', '.join(map(_named, level))}" if level else "")
        + (f"; behind it: {', '.join(behind)}" if behind else "")
        + (f"; left out for failed runs: {', '.join(failed)}" if failed else "")
        + f"; tuned in this run: {chosen}."
    )


def _named(key: Any) -> str:
    return f"{key[0]} ({key[1]})"
