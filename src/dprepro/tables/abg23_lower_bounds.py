"""The methods' errors over proven lower bounds: none may be below 1, and the table stage fails where one is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dprepro import algorithms, extensions
from dprepro.analysis.intervals import mean_interval, worst_members
from dprepro.analysis.rates import LOWER_TOLERANCE, exponent
from dprepro.errors import RunFailed, UserError
from dprepro.geometry import get_set
from dprepro.losses import get_loss
from dprepro.lower_bounds import LowerBound, bias_bound, mean_bound
from dprepro.origin import span
from dprepro.problems.erm import ProblemSpec
from dprepro.regularizers import get_regularizer
from dprepro.tables import markdown_rows, records

RATIO = "smallest error / lower bound"
# With one false alarm in a million for a method that just meets the bound.
CERTAINTY = 1.0 - 1e-6
_LINE = ["problem", "entry", "variant"]
_THEOREMS = {"population_bias": "Theorem A.2", "population_signed_mean": "Theorem 4.3"}
# What keeps an algorithm from an instance, in the order in which it is named.
_LACKS = {
    "strongly_convex": "for want of strong convexity",
    "polytope": "for want of a polytope",
    "glm": "as the loss is no function of <w, x>",
    "bounded": "for want of a ball, which is not tried on this instance",
}
_ONCE = "as copies of atoms are not handed out once each"
# These ask single samples for their loss, at points of their own.
_POINTWISE = dict.fromkeys(
    ("o2nc_first_order", "o2nc_multi_pass", "o2nc_zero_order", "zhang24"),
    "as atoms do not tell the loss of single samples",
)
_REPEATED = dict.fromkeys(("noisy_sfw", "phased_sgd", "prox_guided_md", "tree_spider"), _ONCE) | _POINTWISE
_SAMPLED = {"dp_svrg_pp": "as samples are not drawn by number"} | _POINTWISE
LEFT_OUT = "would run, but not part of the experiment"
_HOW_TO_READ = (
    "`bound` is the proven number of `dprepro.lower_bounds`, at the larger of the claimed and the accounted epsilon; "
    "`theorem` is the paper's expression with its hidden constant taken as 1, which bounds nothing by itself. Errors "
    "are means over all replicates, also over those that end above F(0), as the bounds speak of expectations. The "
    "table is not written if the error of any method is below the bound with a certainty of 0.999999. An error falls "
    f"as the bound if the 95 % interval of its exponent in n comes within {LOWER_TOLERANCE:g} of the bound's exponent "
    "over the same points."
)


def table(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> pd.DataFrame:
    """Return for every problem, method and variant the smallest ratio of error and bound, and the exponent in n.

    Raises `RunFailed` where a method's error is below a bound that no method can beat.
    """
    measured = points(frame, metadata)
    refuse_impossible(measured)
    rows = []
    for key, line in frame.groupby(_LINE, sort=False):
        here = measured[(measured[_LINE] == list(key)).all(axis=1)]
        rows += list(_rows(line, here))
    return pd.DataFrame(rows)


def points(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row per problem, method, variant and n that ran: error with interval, both bounds and the start's error.

    On a family of problems the error is that of the worst member. A replicate that is not finite makes it infinite.
    """
    rows = []
    used = worst_members(frame[(frame["refused"] == "") & (frame["axis"] == "n")])
    for _, runs in used.groupby([*_LINE, "axis_value"], sort=False):
        first = runs.iloc[0]
        values = runs["value"].to_numpy(dtype=float)
        bound = bound_at(metadata["settings"][first["problem"]], first)
        interval = mean_interval(values)
        rows.append(
            {key: first[key] for key in (*_LINE, "method", "algorithm", "n", "d", "epsilon", "delta", "value_at_zero")}
            | {"epsilon_accounted": first["epsilon_accounted"], "replicates": len(runs)}
            | {"bound": bound.explicit, "theorem": bound.shape}
            | {"error": interval.mean, "low": interval.low, "high": interval.high}
            | {"surely_below": mean_interval(values, CERTAINTY).high}
        )
    return pd.DataFrame(rows)


def bound_at(setting: Mapping[str, Any], point: Mapping[str, Any] | pd.Series) -> LowerBound:
    """Return the lower bound of a problem at one point, or refuse a problem that has none."""
    data, loss, n = setting["dataset"], get_loss(setting["loss"]), int(point["n"])
    if (data["name"], loss.name) == ("population_bias", "tilted_huber"):
        return bias_bound(n, loss.lipschitz(1.0, 0.0, 0.0))
    if (data["name"], loss.full_name) == ("population_signed_mean", "huber_mean:1"):
        # A method that spends more than it claims is held against what it spends.
        epsilon = max(float(point["epsilon"]), float(point["epsilon_accounted"]))
        copies = int(data.get("parameters", {}).get("copies", 1))
        return mean_bound(n, int(point["d"]), epsilon, float(point["delta"]), copies)
    raise UserError(
        f"There is no lower bound for {loss.full_name} on {data['name']}: use tilted_huber on population_bias, or "
        "huber_mean:1 on population_signed_mean."
    )


def refuse_impossible(measured: pd.DataFrame) -> None:
    """Raise `RunFailed` if an error is surely below its bound: then a run, its privacy or the bound is wrong."""
    for row in records(measured):
        if row["surely_below"] < row["bound"]:
            raise RunFailed(
                f"{row['method']} ({row['variant']}) has an error of {row['error']:.4g} at n = {row['n']} on "
                f"{row['problem']}, surely below {row['surely_below']:.4g}, but no algorithm with its privacy is below "
                f"{row['bound']:.4g}: a run, its accounting or the bound is wrong."
            )


def _rows(line: pd.DataFrame, here: pd.DataFrame) -> Iterator[dict[str, Any]]:
    common = _common(line, here)
    held = here[here["bound"] > 0.0]
    if held.empty:
        refused = line["refused"][line["refused"] != ""]
        why = f"refused: {refused.iloc[0]}" if len(refused) else "no bound without privacy"
        yield common | {"quantity": RATIO, "theory": 1.0, "verdict": why}
        return
    best = held.iloc[int(np.argmin(held["error"] / held["bound"]))]
    ratio, low, high = (float(best[key] / best["bound"]) for key in ("error", "low", "high"))
    verdict = "above the bound" if low > 1.0 else "indistinguishable from the bound"
    yield common | {
        "quantity": RATIO,
        "theory": 1.0,
        "measured": ratio,
        "ci_low": low,
        "ci_high": high,
        "verdict": verdict,
        "at_n": best["n"],
        "error_over_theorem": float(best["error"] / best["theorem"]),
        "start_over_bound": float(best["value_at_zero"] / best["bound"]),
    }
    if len(held) > 1:
        yield common | _exponent(line, held)


def _exponent(line: pd.DataFrame, held: pd.DataFrame) -> dict[str, Any]:
    """Return the exponent of the error in n beside that of the bound over the same points."""
    runs = line[(line["refused"] == "") & (line["axis"] == "n")]
    groups = [point for _, point in runs.groupby("axis_value")]
    values = [[member["value"].to_numpy() for _, member in point.groupby("member")] for point in groups]
    measured = exponent([float(point["axis_value"].iloc[0]) for point in groups], values)
    logs = np.log(held[["n", "bound"]].to_numpy(dtype=float))
    theory = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    if measured.low > theory + LOWER_TOLERANCE:
        verdict = "falls more slowly than the bound"
    else:
        verdict = (
            "falls faster than the bound here" if measured.high < theory - LOWER_TOLERANCE else "falls as the bound"
        )
    return {
        "quantity": f"{line['metric'].iloc[0]}: exponent in n",
        "theory": theory,
        "measured": measured.mean,
        "ci_low": measured.low,
        "ci_high": measured.high,
        "verdict": verdict,
    }


def _common(line: pd.DataFrame, here: pd.DataFrame) -> dict[str, Any]:
    """Return what the quantities of one line share, with empty places for what differs."""
    first = line.iloc[0]
    return {
        "problem": first["problem"],
        "method": first["method"],
        "variant": first["variant"],
        "quantity": "",
        "theory": np.nan,
        "measured": np.nan,
        "ci_low": np.nan,
        "ci_high": np.nan,
        "verdict": "",
        "at_n": np.nan,
        "error_over_theorem": np.nan,
        "start_over_bound": np.nan,
        "epsilon_claimed": first["epsilon"],
        "epsilon_accounted": float(here["epsilon_accounted"].max()) if len(here) else np.nan,
        "delta": first["delta"],
        "n": span(line["n"]),
        "d": span(line["d"]),
        "points": len(here),
        "replicates": int(line["replicate"].nunique()),
        "failed": int((line["failure"] != "").sum()),
        "algorithm": first["algorithm"],
        "set_here": first["set_here"],
    }


def summary(rows: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    """Return the problems and what the ratios say, in Markdown."""
    titles = [f"- `{key}`: {title}" for key, title in metadata["problems"].items()]
    said = [f"- {sentence}" for sentence in sentences(rows)]
    absent = [f"- {sentence}" for sentence in missing(rows, metadata)]
    parts = ["Problems:", "", *titles, "", _HOW_TO_READ, "", "## What the numbers say", "", *said, ""]
    parts += ["## Which methods are missing", "", *absent, ""]
    return "\n".join([*parts, "## Smallest ratios", "", markdown_rows(_short(rows)), "", "## All quantities"])


def sentences(rows: pd.DataFrame) -> Iterator[str]:
    """Yield for every problem which method comes closest to the bound, and how far from it the start is."""
    ratios = rows[(rows["quantity"] == RATIO) & np.isfinite(rows["measured"])]
    for problem, group in ratios.groupby("problem", sort=False):
        best = group.loc[group["measured"].idxmin()]
        touching = int((group["verdict"] != "above the bound").sum())
        level = f"{touching} of {len(group)} lines cannot be told from the proven bound, the others are above it"
        itself = abs(best["measured"] - best["start_over_bound"]) < 1e-9 * best["measured"]
        yield (
            f"{problem}: {level if touching else 'every line is above the proven bound'}. "
            f"Closest is {best['method']} ({best['variant']}) with "
            f"{best['measured']:.3g} [{best['ci_low']:.3g}, {best['ci_high']:.3g}] times the bound at n = "
            f"{best['at_n']:.0f}, which is {best['error_over_theorem']:.3g} times the theorem's expression with "
            f"constant 1; {'it stays' if itself else 'staying'} at w = 0{', which' if itself else ''} is "
            f"{best['start_over_bound']:.3g} times the bound there."
        )


def instance_name(setting: Mapping[str, Any], d: int) -> str:
    """Return what an instance is called: its theorem and its dimension."""
    return f"{_THEOREMS[setting['dataset']['name']]}, d = {d}"


def missing(rows: pd.DataFrame, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield for every instance which registered algorithms are not held against its bound, and why.

    `rows` has a problem and an algorithm in every row. With and without a ball, an instance is the same.
    """
    instances: dict[str, list[Mapping[str, Any]]] = {}
    present: dict[str, set[str]] = {}
    for problem, setting in metadata["settings"].items():
        name = instance_name(setting, int(setting["base"].get("d", 1)))
        instances.setdefault(name, []).append(setting)
        present.setdefault(name, set()).update(rows["algorithm"][rows["problem"] == problem])
    for name, settings in instances.items():
        absent: dict[str, list[str]] = {}
        for algorithm in algorithms.names():
            wrapped = algorithm == "jl_method" and any(one.startswith("jl_") for one in present[name])
            if algorithm not in present[name] and not wrapped:
                absent.setdefault(obstacle(algorithm, settings), []).append(algorithm)
        listed = "; ".join(f"{', '.join(names)} ({why})" for why, names in absent.items())
        yield f"{name}: missing are {listed}." if listed else f"{name}: no registered algorithm is missing."


def obstacle(name: str, settings: Sequence[Mapping[str, Any]]) -> str:
    """Return why an algorithm does not run on an instance, given with and without a ball, or that it is left out."""
    try:
        algorithm = algorithms.get_algorithm(name)
    except extensions.Unavailable:
        return "as its file is not available"
    specs = [_spec(setting) for setting in settings]
    lacking = min((algorithm.needs - spec.properties for spec in specs), key=len)
    if lacking:
        return next((text for need, text in _LACKS.items() if need in lacking), f"for want of {sorted(lacking)}")
    if name == "jl_method" and not specs[0].loss.glm:
        return "as the loss is no function of <w, x>"
    if name == "objective_perturbation" and not any("bounded" in spec.properties for spec in specs):
        return "for want of second derivatives, without which it needs a ball"
    return (_REPEATED if settings[0]["dataset"].get("repeated") else _SAMPLED).get(name, LEFT_OUT)


def _spec(setting: Mapping[str, Any]) -> ProblemSpec:
    base = setting["base"]
    parts = get_loss(setting["loss"]), get_regularizer(setting["regularizer"]), get_set(setting["constraint"])
    return ProblemSpec(int(base["n"]), int(base.get("d", 1)), *parts)


def _short(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a line per method of the ratios alone."""
    ratios = rows[rows["quantity"] == RATIO]
    cells = [
        {
            "problem": row["problem"],
            "method": row["method"],
            "variant": row["variant"],
            "error / bound": f"{row['measured']:.3g} [{row['ci_low']:.3g}, {row['ci_high']:.3g}]",
            "at n": row["at_n"],
            "error / theorem": row["error_over_theorem"],
            "start / bound": row["start_over_bound"],
            "verdict": row["verdict"],
        }
        for row in records(ratios)
    ]
    return pd.DataFrame(cells)
