"""Measured exponents beside those of the bounds, method by method, and what they say in words."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dprepro.analysis.intervals import Interval, counted, mean_error, worst_members
from dprepro.analysis.needed import Growth, Needed, difference, growth, needed
from dprepro.analysis.rates import (
    LOGARITHMS,
    TOLERANCE,
    WIDEST,
    count_verdict,
    exact_exponent,
    exponent,
    rate_verdict,
    tolerance,
)
from dprepro.errors import UserError
from dprepro.metrics import NO_LEAF
from dprepro.origin import span, without_a_leaf
from dprepro.sweeps import CALLS, EVALUATIONS, NONSMOOTH, ROWS, SAMPLES, SECONDS
from dprepro.tables import markdown_rows, records
from dprepro.tables.conclusions import HOW_TUNED, TOO_FEW, conclusions, rounded

PER_ROUND = ", divided by the rounds"
NONSMOOTH_QUANTITY = "takes a non-smooth regularizer"
_LINE = ["problem", "entry", "variant"]
# With fewer values an exponent is that of one ratio and agrees with many bounds.
FEWEST = 3
# How well the start's error must fit the accuracy that a series names.
BETA_ROUNDING = 0.01
_OUTSIDE = {
    "": "measured",
    "fewer": "needs fewer than were run",
    "more": "needs more than were run",
    "unknown": "not measurable",
}
# Bounds on these leave out a factor of the number of rounds; those of one pass over samples have none.
_HIDE_ROUNDS = ("optimality gap", "squared gradient norm")


def table(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row per problem, method, variant and quantity.

    `theory` is the exponent of the paper's bound in the limit, `theory_with_logarithms` that of the bound as printed
    over the measured points. Quantities are the exponents of the error in each axis, as measured and divided by the
    number of rounds (which takes out the logarithm that a bound hides in it), in the logarithm of an axis where the
    bound has one, that of the gradient evaluations in n, on timed problems that of the CPU time in n, and whether the
    method takes a non-smooth regulariser (1 or 0). On a family of problems an error is that of the
    worst member, in the mean over replicates; failures are those of the worst members too.

    Problems of a series are told together, by the name of the series: the samples that a method needs on each of them
    to reach its target, their exponent along the series, and both against the first method.
    """
    series = frame["problem"].map(lambda key: "series" in metadata["settings"][key])
    rows = [*_rows(frame[~series], metadata), *_series_rows(frame[series], metadata)]
    return pd.DataFrame(rows)


def _rows(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for (problem, entry, _), line in frame.groupby(_LINE, sort=False):
        claims = metadata["methods"][entry]
        for axis, rows in line.groupby("axis", sort=False):
            if axis == NONSMOOTH:
                yield _nonsmooth_row(rows, claims)
            elif metadata["settings"][problem].get("timed"):
                yield from _time_rows(rows, claims)
            else:
                yield from _axis_rows(str(axis), rows, claims)


def _time_rows(rows: pd.DataFrame, claims: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the exponents in n of the gradient evaluations and of the CPU time, which no two runs have in common."""
    used = rows[rows["refused"] == ""]
    points = [point.iloc[0] for _, point in used.groupby("axis_value")]
    common = _common(rows, used, claims)
    for quantity, column in ((EVALUATIONS, "gradient_evaluations"), (SECONDS, "seconds")):
        yield _count_row(common, quantity, claims, [(point["axis_value"], point[column]) for point in points], used)


def _count_row(
    common: Mapping[str, Any],
    quantity: str,
    claims: Mapping[str, Any],
    counts: Sequence[tuple[float, float]],
    used: pd.DataFrame,
) -> dict[str, Any]:
    """Return the row of an exponent in n without interval; `counts` are pairs of n and a cost of the runs `used`."""
    x = [at for at, _ in counts]
    counted = exact_exponent(x, [count for _, count in counts])
    stated = float(claims.get("evaluations", np.nan))
    power = float(claims.get("evaluations_log_power", 0.0))
    logarithms = stated + power * exact_exponent(x, np.log(x).tolist())
    exact, verdict = Interval(counted, counted, counted), count_verdict(counted, stated, logarithms)
    if failed := int((used["failure"] != "").sum()):
        # What runs cost that do not end as they should says little. Where nothing is stated there is no success to
        # take back: the failures count with the error.
        remark = f"{failed} of {len(used)} runs failed"
        first = 2 * failed >= len(used) and not np.isnan(stated)
        verdict = f"{remark}; {verdict}" if first else f"{verdict}; {remark}"
    return _row(common, f"{quantity}: exponent in n", stated, exact, verdict, logarithms if power else np.nan)


def _axis_rows(axis: str, rows: pd.DataFrame, claims: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    points = [point for _, point in rows[rows["refused"] == ""].groupby("axis_value")]
    values = [_by_member(point) for point in points]
    rows = worst_members(rows)
    used = rows[rows["refused"] == ""]
    x = [float(point["axis_value"].iloc[0]) for point in points]
    common = _common(rows, used, claims)
    own_bound = claims.get("own_bounds", {}).get(axis)
    theory = float(np.nan if own_bound else claims.get("exponents", {}).get(axis, np.nan))
    name = f"{rows['metric'].iloc[0]}: exponent in {axis}"
    measured = exponent(x, values)
    printed = exact_exponent(x, [float(point["bound_value"].iloc[0]) for point in points])
    if own_bound:
        verdict = _own_verdict(measured, printed, own_bound, values)
    else:
        verdict = _verdict(measured, theory, printed, values)
    yield _row(common, name, theory, measured, _with_remarks(verdict, rows), printed)
    rounds = [float(point["rounds"].iloc[0]) for point in points]
    if rows["metric"].iloc[0] in _HIDE_ROUNDS and 1e-9 < abs(exact_exponent(x, rounds)) < LOGARITHMS:
        # The rounds grow like a logarithm: without them the bound's own exponent is left.
        shares = [[value / count for value in members] for members, count in zip(values, rounds, strict=True)]
        divided = exponent(x, shares)
        verdict = _with_remarks(_verdict(divided, theory, np.nan, shares), rows)
        yield _row(common, name + PER_ROUND, theory, divided, verdict)
    if axis in claims.get("log_exponents", {}):
        power = float(claims["log_exponents"][axis])
        measured = exponent(np.log(x).tolist(), values)
        remarks = _with_remarks(_verdict(measured, power, np.nan, values), rows)
        yield _row(common, f"{rows['metric'].iloc[0]}: exponent in log({axis})", power, measured, remarks)
    if axis == "n":
        quantity, counts = counted(points)
        yield _count_row(common, quantity, claims, list(zip(x, counts, strict=True)), used)


def _verdict(measured: Interval, theory: float, printed: float, values: Sequence[Sequence[np.ndarray]]) -> str:
    """Say how an exponent stands to the stated one, if it is one of enough values of its axis."""
    usable = sum(all(np.isfinite(member).all() for member in members) for members in values)
    judged = not np.isnan(theory) and not np.isnan(measured.mean)
    return TOO_FEW if judged and usable < FEWEST else rate_verdict(measured, theory, printed)


def _own_verdict(measured: Interval, printed: float, bound: str, values: Sequence[Sequence[np.ndarray]]) -> str:
    """Say how an exponent stands to that of a baseline's own bound over the measured points; no other is judged."""
    verdict = _verdict(measured, printed, np.nan, values)
    words = {"agrees": "within", "faster than the bound": "within", "not reached": "not within"}
    if verdict not in words:
        return verdict
    close = f", up to {tolerance(printed):.2g}" if verdict == "agrees" and measured.low > printed else ""
    return f"{words[verdict]} {bound}, whose exponent is {printed:.2f} here{close}"


def _series_rows(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    settings = metadata["settings"]
    names = frame["problem"].map(lambda key: settings[key]["series"]["name"])
    for name in dict.fromkeys(setting["series"]["name"] for setting in settings.values() if "series" in setting):
        here = frame[names == name]
        lines = [
            _line(name, rows, metadata) for _, rows in here.groupby(["method", "algorithm", "variant"], sort=False)
        ]
        for line in lines:
            yield from _line_rows(line, _reference(line, lines))


@dataclass(frozen=True)
class _Line:
    """What one method needs along a series: by the value of its axis the samples, and the calls for each of them."""

    common: Mapping[str, Any]
    axis: str
    theory: float
    needed: Mapping[float, Needed]
    calls: Mapping[float, float]

    @property
    def name(self) -> str:
        """The method with its variant."""
        return f"{self.common['method']} ({self.common['variant']})"

    @property
    def growth(self) -> Growth:
        """The exponent of the samples along the axis."""
        return growth(list(self.needed), list(self.needed.values()))


def _reference(line: _Line, lines: Sequence[_Line]) -> _Line:
    """Return what a line is held against: the first of its series, for printed noise the same method without it."""
    same = [other for other in lines if other.common["method"] == line.common["method"] and other is not line]
    return same[0] if same and line.common["variant"] == "published" else lines[0]


def _line(name: str, rows: pd.DataFrame, metadata: Mapping[str, Any]) -> _Line:
    found: dict[float, Needed] = {}
    calls: dict[float, float] = {}
    for (problem, entry), here in rows.groupby(["problem", "entry"], sort=False):
        setting = metadata["settings"][problem]
        used = here[(here["refused"] == "") & (here["axis"] == ROWS)]
        points = [point for _, point in used.groupby("axis_value")]
        n = [float(point["n"].iloc[0]) for point in points]
        at, target = float(setting["series"]["value"]), _target(setting, here)
        values = [point["value"].to_numpy() for point in points]
        # Every number is resampled for itself.
        found[at] = needed(n, values, target, seed=zlib.crc32(f"{name}/{entry}/{problem}".encode()))
        calls[at] = float(
            np.mean([count / size for count, size in zip(counted(points)[1], n, strict=True)] or [np.nan])
        )
    claims, axis = metadata["methods"][rows["entry"].iloc[0]], setting["series"]["axis"]
    used = rows[rows["refused"] == ""]
    common = _common(rows.assign(problem=name), used, claims) | {
        "points": used.groupby(["problem", "axis_value"]).ngroups,
        **{key: "; ".join(dict.fromkeys(filter(None, rows[key]))) for key in ("set_here", "constant_set_here")},
        # Errors at single n are no exponents along the series.
        "last_error_over_start": float("nan"),
        "below_start_from": float("nan"),
    }
    theory = float(claims.get("samples", {}).get(axis, np.nan))
    return _Line(common, axis, theory, dict(sorted(found.items())), calls)


def _target(setting: Mapping[str, Any], rows: pd.DataFrame) -> float:
    """Return the error to be reached; where accuracy is the axis, it must be the one that the series names."""
    target = setting["reach"] * float(rows["value_at_zero"].iloc[0])
    axis, value = setting["series"]["axis"], float(setting["series"]["value"])
    if axis == "1/beta" and not abs(target * value - 1.0) < BETA_ROUNDING:
        raise UserError(
            f"{rows['problem'].iloc[0]} is in a series at 1/beta = {value:g}, but {setting['reach']:g} of its start's "
            f"error is {target:.4g}: give 1/beta = {1.0 / target:.4g}."
        )
    return target


def _line_rows(line: _Line, first: _Line) -> Iterator[dict[str, Any]]:
    """Yield what a method needs, the exponent of that, and both against the line that it is held against."""
    nothing = float("nan")
    measured = line.growth
    if len(line.needed) > 1:
        verdict = _growth_verdict(measured.exponent, line.theory)
        if len(line.needed) < FEWEST and not np.isnan(line.theory):
            verdict = TOO_FEW
        verdict = f"{verdict} ({_places(line)})"
        yield _row(line.common, f"{SAMPLES}: exponent in {line.axis}", line.theory, measured.exponent, verdict)
    if line is not first and len(line.needed) > 1 and len(first.needed) > 1:
        apart = difference(measured, first.growth)
        theory = line.theory - first.theory
        name = f"{SAMPLES}: exponent along {line.axis} less that of {first.name}"
        few = min(len(line.needed), len(first.needed)) < FEWEST and not np.isnan(theory)
        verdict = TOO_FEW if few else _apart_verdict(apart, theory)
        yield _row(line.common, name, theory, apart, verdict)
    for at, found in line.needed.items():
        place = f"at {line.axis} = {at:g}"
        yield _row(line.common, f"{SAMPLES} {place}", nothing, found.samples, _OUTSIDE[found.outside])
        if line is not first and at in first.needed and not (found.outside or first.needed[at].outside):
            ratio, share = found.over(first.needed[at]), line.calls[at] / first.calls[at]
            name = f"{place} over {first.name}"
            yield _row(line.common, f"{SAMPLES} {name}", nothing, ratio, ratio_verdict(ratio))
            calls = Interval(ratio.mean * share, ratio.low * share, ratio.high * share)
            yield _row(line.common, f"{CALLS} {name}", nothing, calls, ratio_verdict(calls))


def _places(line: _Line) -> str:
    """Say of how many values an exponent is, and between which numbers it is if one of them is left out."""
    count = f"{len(line.needed)} values of {line.axis}"
    if len(line.needed) < 3 or any(each.outside for each in line.needed.values()):
        return count
    rest = [
        growth([at for at in line.needed if at != left], [line.needed[at] for at in line.needed if at != left])
        for left in line.needed
    ]
    exponents = [each.exponent.mean for each in rest]
    return f"{count}, {min(exponents):.2f} to {max(exponents):.2f} with one left out"


def _growth_verdict(measured: Interval, theory: float) -> str:
    """Say how the exponent of the samples stands to that of the bound's term with epsilon."""
    verdict = rate_verdict(measured, theory)
    words = {"faster than the bound": "grows less than the private term", "not reached": "grows more than it"}
    return words.get(verdict, verdict)


def _apart_verdict(apart: Interval, theory: float) -> str:
    """Say how the difference of two exponents stands to that of their bounds' terms with epsilon."""
    if np.isnan(theory) or np.isnan(apart.mean):
        return "no difference to compare" if np.isnan(theory) else "not measurable"
    if apart.low > theory + TOLERANCE:
        return "larger than that of the private terms"
    if apart.high < theory - TOLERANCE:
        return "smaller than that of the private terms"
    return "as that of the private terms" if apart.high - apart.low <= 2.0 * WIDEST else "too wide to tell"


def ratio_verdict(ratio: Interval) -> str:
    """Say what the interval of a ratio leaves: at least so many times, at most such a part, or neither.

    >>> [ratio_verdict(Interval(1.0, low, high)) for low, high in ((2.36, 3.0), (0.05, 0.06), (0.9, 1.2))]
    ['at least 2.3 times', 'at most 1/16.6', 'indistinguishable']
    """
    if ratio.low > 1.0:
        return f"at least {math.floor(10.0 * ratio.low) / 10.0:g} times"
    return f"at most 1/{math.floor(10.0 / ratio.high) / 10.0:g}" if ratio.high < 1.0 else "indistinguishable"


def _by_member(point: pd.DataFrame) -> list[np.ndarray]:
    """Return the replicates' values of each member of a family; of the only one where there is none."""
    return [rows["value"].to_numpy() for _, rows in point.groupby("member", sort=False)]


def _nonsmooth_row(rows: pd.DataFrame, claims: Mapping[str, Any]) -> dict[str, Any]:
    refused = str(rows["refused"].iloc[0])
    takes = float(not refused)
    stated = float(claims["nonsmooth"]) if "nonsmooth" in claims else float("nan")
    used = rows[rows["refused"] == ""]
    said = f"refused: {refused}" if refused else "ran"
    if stated == takes:
        said = f"agrees: {said}"
    elif not np.isnan(stated):
        said = f"the paper says {'yes' if stated else 'no'}; {f'not run here: {refused}' if refused else said}"
    verdict = said if refused else _with_remarks(said, rows)
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
        "delta": worst["delta"],
        "epsilon": span(rows["epsilon"]),
        "n": span(rows["n"]),
        "d": span(rows["d"]),
        "points": int(used["axis_value"].nunique()),
        "replicates": int(rows["replicate"].nunique()),
        "failed": int((used["failure"] != "").sum()),
        **_against_start(used),
        "runs_from_n": first["runs_from_n"],
        "useful_from_n": first["useful_from_n"],
        "samples_over_n": float((used["samples"] / used["n"]).max()),
        "evaluations_over_n": float(((used["gradient_evaluations"] + used["function_evaluations"]) / used["n"]).max()),
        "algorithm": first["algorithm"],
        "set_here": first["set_here"],
        "constant_set_here": worst["constant_set_here"],
        "printed_noise": claims.get("printed_noise", ""),
        "bound": claims.get("bound", ""),
        "complexity": claims.get("complexity", ""),
        "source": claims.get("source", ""),
    }


def _against_start(used: pd.DataFrame) -> dict[str, float]:
    """Return the mean error at the last point over that of the initial point, and from which value on it is below."""
    points = [point for _, point in used.groupby("axis_value")]
    shares = {float(point["axis_value"].iloc[0]): _share_of_start(point) for point in points}
    below = [value for value, share in shares.items() if share < 1.0]
    return {
        "last_error_over_start": list(shares.values())[-1] if shares else float("nan"),
        "below_start_from": min(below) if below else float("nan"),
    }


def _share_of_start(point: pd.DataFrame) -> float:
    start = float(point["value_at_zero"].iloc[0])
    return mean_error(point["value"]) / start if start > 0.0 else float("nan")


def _with_remarks(verdict: str, rows: pd.DataFrame) -> str:
    """Add what a reader must know beside an exponent: failures, refused points, privacy that does not hold.

    Where at least half of the runs failed or returned nothing, or half of the points are no better than the initial
    point, that comes first: whatever the numbers say is no success.
    """
    first: list[str] = []
    remarks = [verdict]

    def add(count: int, total: int, words: str) -> None:
        (first if 2 * count >= total else remarks).append(f"{count} of {total} {words}")

    if failed := int((rows["failure"] != "").sum()):
        add(failed, len(rows), f"runs failed{_not_finite(rows)}")
    stopping = rows[rows["returned"].notna()]
    if nothing := without_a_leaf(stopping):
        at = " and ".join(f"{value:,.10g}" for value in sorted(set(stopping[stopping["returned"] < 1.0]["axis_value"])))
        add(nothing, len(stopping), f"runs {NO_LEAF} (all at {at})")
    shares = [_share_of_start(point) for _, point in rows[rows["refused"] == ""].groupby("axis_value")]
    if above := sum(share >= 1.0 for share in shares):
        add(above, len(shares), "points no better than the initial point")
    refused = rows[rows["refused"] != ""]
    if len(refused):
        values = ", ".join(f"{value:g}" for value in sorted(refused["axis_value"].unique()))
        remarks.append(f"refused at {values}: {refused['refused'].iloc[0]}")
    broken = rows["privacy_verdict"][rows["privacy_verdict"].str.startswith("not private")]
    if len(broken):
        remarks.append(broken.iloc[0].partition(" (")[0])
    elif rows["privacy_verdict"].str.startswith(("not certified", "conditions")).any():
        remarks.append("not certified")
    return "; ".join([*first, *remarks])


def _not_finite(rows: pd.DataFrame) -> str:
    """Say where runs did not end in numbers: an exponent leaves these points out."""
    lost = rows[(rows["refused"] == "") & ~np.isfinite(rows["value"])]
    at = ", ".join(f"{value:g}" for value in sorted(lost["axis_value"].unique()))
    return f", {len(lost)} of them not finite, so that nothing is measured at {at}" if len(lost) else ""


def summary(rows: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    """Return the paper's table with measured exponents in place, and what follows from them, in Markdown."""
    titles = [f"- `{key}`: {title}" for key, title in metadata["problems"].items()]
    series = rows["quantity"].str.startswith((SAMPLES, CALLS))
    wide = [*([markdown_rows(_wide(rows[~series])), ""] if not series.all() else [])]
    for name, here in rows[series].groupby("problem", sort=False):
        wide += [f"Series `{name}`:", "", markdown_rows(_wide(here)), ""]
    parts = ["Problems:", "", *titles, "", "## The paper's table, measured", "", *wide]
    said = ["## What the numbers say", "", HOW_TUNED, "", *conclusions(rows, frame)]
    return "\n".join([*parts, "", *said, "", "## All quantities"])


def _wide(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line per problem, method and variant, an exponent per column as `measured [low, high] (bound)`."""
    lines = []
    for _, group in rows.groupby(["problem", "method", "variant"], sort=False):
        first = group.iloc[0]
        cells = {row["quantity"]: row for row in records(group)}
        line = {key: first[key] for key in ("problem", "method", "variant", "bound", "complexity")}
        for quantity in dict.fromkeys(rows["quantity"]):
            if not quantity.endswith(PER_ROUND) and " over " not in quantity:
                line[quantity] = cell(cells.get(quantity))
        line["epsilon claimed"] = first["epsilon_claimed"]
        line["epsilon accounted"] = first["epsilon_accounted"]
        line["failed"] = f"{first['failed']} of {first['points'] * first['replicates']}"
        line["verdict"] = first["verdict"]
        lines.append(line)
    return pd.DataFrame(lines)


def cell(row: Mapping[str, Any] | None) -> str:
    """Return a measured quantity as `measured [low, high] (bound)`."""
    if row is None or np.isnan(row["measured"]):
        return ""
    theory = row["theory"]
    if row["quantity"] == NONSMOOTH_QUANTITY:
        word = "yes" if row["measured"] else "no"
        if row["failed"] and row["failed"] == row["replicates"]:
            word = "runs, all worse than w = 0"
        return word if np.isnan(theory) else f"{word} (paper: {'yes' if theory else 'no'})"
    if row["quantity"].startswith((f"{SAMPLES} at", CALLS)):
        return f"{rounded(row['measured'])} [{rounded(row['ci_low'])}, {rounded(row['ci_high'])}]"
    printed = row["theory_with_logarithms"]
    # Where a bound's logarithms or second term show over the measured points, both exponents stand there.
    here = f", here {printed:.3g}" if abs(printed - theory) >= 0.01 else ""
    # Of the samples needed the bound's term with epsilon is told.
    word = "private term" if row["quantity"].startswith(SAMPLES) else "bound"
    bound = "" if np.isnan(theory) else f" ({word} {theory:.3g}{here})"
    interval = "" if row["ci_low"] == row["ci_high"] else f" [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
    return f"{row['measured']:.2f}{interval}{bound}"
