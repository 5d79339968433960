"""Measured exponents beside those of the bounds, method by method, and what they say in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from dprepro.analysis.intervals import Interval, differ, mean_interval
from dprepro.analysis.rates import LOGARITHMS, count_verdict, exact_exponent, exponent, rate_verdict
from dprepro.origin import span
from dprepro.sweeps import NONSMOOTH
from dprepro.tables import markdown_rows, records

EVALUATIONS = "gradient evaluations"
PER_ROUND = ", divided by the rounds"
NONSMOOTH_QUANTITY = "takes a non-smooth regularizer"
_LINE = ["problem", "entry", "variant"]


def table(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row per problem, method, variant and quantity.

    `theory` is the exponent of the paper's bound in the limit, `theory_with_logarithms` that of the bound as printed
    over the measured points. Quantities are the exponents of the error in each axis, as measured and divided by the
    number of rounds (which takes out the logarithm that a bound hides in it), that of the gradient evaluations in n,
    and whether the method takes a non-smooth regulariser (1 or 0).
    """
    return pd.DataFrame(list(_rows(frame, metadata)))


def _rows(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for (_, entry, _), line in frame.groupby(_LINE, sort=False):
        claims = metadata["methods"][entry]
        for axis, rows in line.groupby("axis", sort=False):
            if axis == NONSMOOTH:
                yield _nonsmooth_row(rows, claims)
            else:
                yield from _axis_rows(str(axis), rows, claims)


def _axis_rows(axis: str, rows: pd.DataFrame, claims: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    used = rows[rows["refused"] == ""]
    points = [point for _, point in used.groupby("axis_value")]
    x = [float(point["axis_value"].iloc[0]) for point in points]
    common = _common(rows, used, claims)
    theory = float(claims.get("exponents", {}).get(axis, np.nan))
    name = f"{rows['metric'].iloc[0]}: exponent in {axis}"
    values = [point["value"].to_numpy() for point in points]
    measured = exponent(x, values)
    printed = exact_exponent(x, [float(point["bound_value"].iloc[0]) for point in points])
    verdict = _with_remarks(rate_verdict(measured, theory, printed), rows)
    yield _row(common, name, theory, measured, verdict, printed)
    rounds = [float(point["rounds"].iloc[0]) for point in points]
    if 0.0 < abs(exact_exponent(x, rounds)) < LOGARITHMS:
        # The rounds grow like a logarithm: without them the bound's own exponent is left.
        divided = exponent(x, [value / count for value, count in zip(values, rounds, strict=True)])
        yield _row(common, name + PER_ROUND, theory, divided, _with_remarks(rate_verdict(divided, theory), rows))
    if axis == "n":
        counted = exact_exponent(x, [float(point["gradient_evaluations"].iloc[0]) for point in points])
        stated = float(claims.get("evaluations", np.nan))
        exact = Interval(counted, counted, counted)
        power = float(claims.get("evaluations_log_power", 0.0))
        logarithms = stated + power * exact_exponent(x, np.log(x).tolist())
        verdict = count_verdict(counted, stated, logarithms)
        yield _row(common, f"{EVALUATIONS}: exponent in n", stated, exact, verdict, logarithms if power else np.nan)


def _nonsmooth_row(rows: pd.DataFrame, claims: Mapping[str, Any]) -> dict[str, Any]:
    refused = str(rows["refused"].iloc[0])
    takes = float(not refused)
    stated = float(claims["nonsmooth"]) if "nonsmooth" in claims else float("nan")
    used = rows[rows["refused"] == ""]
    verdict = f"refused: {refused}" if refused else _with_remarks("ran", rows)
    if stated == stated and stated != takes:
        verdict = f"the paper says {'yes' if stated else 'no'}; {verdict}"
    return _row(_common(rows, used, claims), NONSMOOTH_QUANTITY, stated, Interval(takes, takes, takes), verdict)


def _row(
    common: Mapping[str, Any],
    quantity: str,
    theory: float,
    measured: Interval,
    verdict: str,
    printed: float = float("nan"),
) -> dict[str, Any]:
    names = {key: common[key] for key in ("problem", "method", "variant")}
    rest = {key: value for key, value in common.items() if key not in names}
    return {
        **names,
        "quantity": quantity,
        "theory": theory,
        "theory_with_logarithms": printed,
        "measured": measured.mean,
        "ci_low": measured.low,
        "ci_high": measured.high,
        "verdict": verdict,
        **rest,
    }


def _common(rows: pd.DataFrame, used: pd.DataFrame, claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all quantities of one method share; the privacy of the point that overspends most."""
    first = rows.iloc[0]
    spent = used.assign(ratio=used["epsilon_accounted"] / used["epsilon"]).sort_values("ratio", kind="stable")
    worst = spent.iloc[-1] if len(spent) else first
    return {
        "problem": first["problem"],
        "method": first["method"],
        "variant": first["variant"],
        "epsilon_claimed": worst["epsilon"],
        "epsilon_accounted": worst["epsilon_accounted"],
        "privacy": worst["privacy_verdict"],
        "delta": first["delta"],
        "epsilon": span(rows["epsilon"]),
        "n": span(rows["n"]),
        "d": span(rows["d"]),
        "points": int(used["axis_value"].nunique()),
        "replicates": int(rows["replicate"].nunique()),
        "failed": int((used["failure"] != "").sum()),
        "algorithm": first["algorithm"],
        "set_here": first["set_here"],
        "bound": claims.get("bound", ""),
        "complexity": claims.get("complexity", ""),
        "source": claims.get("source", ""),
    }


def _with_remarks(verdict: str, rows: pd.DataFrame) -> str:
    """Add what a reader must know beside an exponent: failures, refused points, privacy that does not hold."""
    remarks = [verdict]
    failed = int((rows["failure"] != "").sum())
    if failed:
        remarks.append(f"{failed} of {len(rows)} runs failed")
    refused = rows[rows["refused"] != ""]
    if len(refused):
        values = ", ".join(f"{value:g}" for value in sorted(refused["axis_value"].unique()))
        remarks.append(f"refused at {values}: {refused['refused'].iloc[0]}")
    if rows["privacy_verdict"].str.startswith("not private").any():
        remarks.append(f"not private as {rows['variant'].iloc[0]}")
    elif rows["privacy_verdict"].str.startswith(("not certified", "conditions")).any():
        remarks.append("not certified")
    return "; ".join(remarks)


def summary(rows: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    """Return the paper's table with measured exponents in place, and what follows from them, in Markdown."""
    titles = [f"- `{key}`: {title}" for key, title in metadata["problems"].items()]
    parts = ["Problems:", "", *titles, "", "## The paper's table, measured", "", markdown_rows(_wide(rows))]
    return "\n".join([*parts, "", "## What the numbers say", "", *conclusions(rows, frame), "", "## All quantities"])


def _wide(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line per problem, method and variant, an exponent per column as `measured [low, high] (bound)`."""
    lines = []
    for _, group in rows.groupby(["problem", "method", "variant"], sort=False):
        first = group.iloc[0]
        cells = {row["quantity"]: row for row in records(group)}
        line = {key: first[key] for key in ("problem", "method", "variant", "bound", "complexity")}
        for quantity in dict.fromkeys(rows["quantity"]):
            if not quantity.endswith(PER_ROUND):
                line[quantity] = _cell(cells.get(quantity))
        line["epsilon claimed"] = first["epsilon_claimed"]
        line["epsilon accounted"] = first["epsilon_accounted"]
        line["failed"] = f"{first['failed']} of {first['points'] * first['replicates']}"
        line["verdict"] = first["verdict"]
        lines.append(line)
    return pd.DataFrame(lines)


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None or np.isnan(row["measured"]):
        return ""
    theory = row["theory"]
    if row["quantity"] == NONSMOOTH_QUANTITY:
        word = "yes" if row["measured"] else "no"
        if row["failed"] and row["failed"] == row["replicates"]:
            word = "runs, all worse than w = 0"
        return word if np.isnan(theory) else f"{word} (paper: {'yes' if theory else 'no'})"
    bound = "" if np.isnan(theory) else f" (bound {theory:.3g})"
    interval = "" if row["ci_low"] == row["ci_high"] else f" [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
    return f"{row['measured']:.2f}{interval}{bound}"


def conclusions(rows: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    """Return sentences that follow from the table by rule."""
    sentences = []
    for problem, here in rows.groupby("problem", sort=False):
        sentences += [f"- {text}" for text in _repaired(here)]
        sentences += [f"- {text}" for text in _overspent(here)]
        sentences += [f"- {text}" for text in _best(frame[frame["problem"] == problem])]
    return sentences


def _repaired(rows: pd.DataFrame) -> Iterator[str]:
    """Say which algorithms reach their bound as published and miss it with calibrated noise, and what repairs it."""
    slopes = rows[rows["quantity"].str.endswith("exponent in n") & ~rows["quantity"].str.startswith(EVALUATIONS)]
    slopes = slopes.dropna(subset=["theory", "measured"])
    for algorithm, group in slopes.groupby("algorithm", sort=False):
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


def _overspent(rows: pd.DataFrame) -> Iterator[str]:
    published = rows[rows["variant"] == "published"].drop_duplicates(["method"])
    for row in records(published):
        claimed, accounted = row["epsilon_claimed"], row["epsilon_accounted"]
        if not accounted <= claimed:
            proven = str(row["privacy"]).startswith("not private")
            spent = f"{accounted:.3g}" if np.isfinite(accounted) else "no finite epsilon"
            set_here = f" and {row['set_here']} set here," if row["set_here"] else ","
            yield (
                f"{row['problem']}: the published noise of {row['method']}, open constants taken as 1{set_here} claims "
                f"epsilon = {claimed:g} and {'spends' if proven else 'is accounted at most'} {spent}."
            )


def _best(frame: pd.DataFrame) -> Iterator[str]:
    """Say which calibrated method has the smallest error at the last point of each axis, and which are level."""
    calibrated = frame[(frame["variant"] != "published") & (frame["refused"] == "") & (frame["axis"] != NONSMOOTH)]
    for axis, rows in calibrated.groupby("axis", sort=False):
        last = rows[rows["axis_value"] == rows["axis_value"].max()]
        last = last[last["epsilon"] == last["epsilon"].mode().iloc[0]]
        yield from _ranking(last, f"at {axis} = {last['axis_value'].iloc[0]:g}")


def _ranking(last: pd.DataFrame, where: str) -> Iterator[str]:
    """Say who has the smallest mean error among methods without failures, and who cannot be told from it."""
    intervals = {
        key: mean_interval(group["value"].to_numpy())
        for key, group in last.groupby(["method", "variant"], sort=False)
        if (group["failure"] == "").all()
    }
    if len(intervals) < 2:
        return
    order = sorted(intervals, key=lambda key: intervals[key].mean)
    best = intervals[order[0]]
    values = {key: group["value"].to_numpy() for key, group in last.groupby(["method", "variant"], sort=False)}
    level = [f"{key[0]} ({key[1]})" for key in order[1:] if not differ(values[key], values[order[0]])]
    first = last.iloc[0]
    yield (
        f"{first['problem']}, {where}, epsilon = {first['epsilon']:g} accounted for all: {order[0][0]} ({order[0][1]}) "
        f"has the smallest {first['metric']}, {best.mean:.3g} [{best.low:.3g}, {best.high:.3g}]"
        + (f"; not to be told from it: {', '.join(level)}." if level else ".")
    )
