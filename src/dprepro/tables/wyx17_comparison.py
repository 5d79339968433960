"""Which method wins where at equal accounted epsilon: final gaps, their cost, and a conclusion drawn by rule."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dprepro.analysis.intervals import Interval, differ, mean_interval
from dprepro.origin import libraries_line
from dprepro.tables import records

LEVEL = "level with the best"
# Beyond the end of a grid nothing was tried.
END = "the {end} step of its grid was chosen, and a {beyond} one may do better"
# A gap within this factor of the best counts as nearly as good when costs are compared.
NEAR = 2.0


def table(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row per problem, epsilon and method, the best first.

    `gap_at_zero` is what doing nothing costs; there is no bound to compare with. `verdict` says how a method stands to
    the best one of its problem and epsilon. `letters` are those chosen by the rule, `tried` the number of candidates.
    """
    rows: list[dict[str, Any]] = []
    for _, here in frame.groupby(["problem", "epsilon"], sort=False):
        group = [(_row(runs), runs) for _, runs in here.groupby(["entry", "variant"], sort=False)]
        group.sort(key=lambda item: (item[0]["failed"] > 0 or np.isnan(item[0]["measured"]), item[0]["measured"]))
        rows += [row | {"verdict": _verdict(row, runs, *group[0]) + _at_an_end(row, runs)} for row, runs in group]
    return pd.DataFrame(rows)


def _row(runs: pd.DataFrame) -> dict[str, Any]:
    first = runs.iloc[0]
    nothing = Interval(float("nan"), float("nan"), float("nan"))
    interval = nothing if first["refused"] else mean_interval(runs["value"].to_numpy())
    return {
        "problem": first["problem"],
        "method": first["method"],
        "variant": first["variant"],
        "quantity": first["metric"],
        "theory": float("nan"),
        "measured": interval.mean,
        "ci_low": interval.low,
        "ci_high": interval.high,
        "gap_at_zero": first["value_at_zero"],
        "gradient_evaluations": first["gradient_evaluations"],
        "epsilon_claimed": first["epsilon"],
        "epsilon_accounted": first["epsilon_accounted"],
        "covers": first["covers"],
        "delta": first["delta"],
        "n": first["n"],
        "d": first["d"],
        "replicates": len(runs),
        "failed": int((runs["failure"] != "").sum()),
        "letters": _letters(first["letters"]),
        "tried": max(1, len(json.loads(first["tried"]))),
        "refused": first["refused"],
    }


def _letters(text: str) -> str:
    letters = {key: value for key, value in json.loads(text).items() if value is not None}
    return ", ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in letters.items()
    )


def _verdict(row: Mapping[str, Any], runs: pd.DataFrame, best: Mapping[str, Any], best_runs: pd.DataFrame) -> str:
    if row["refused"]:
        return f"refused: {row['refused']}"
    if row["failed"]:
        return f"{row['failed']} of {row['replicates']} replicates failed"
    if row is best:
        return "best"
    if not differ(runs["value"].to_numpy(), best_runs["value"].to_numpy()):
        return LEVEL
    return f"{row['measured'] / best['measured']:.3g} times the best"


def _at_an_end(row: Mapping[str, Any], runs: pd.DataFrame) -> str:
    """Return what a verdict adds where the chosen step is the smallest or the largest of several."""
    first = runs.iloc[0]
    steps = {candidate["letters"].get("eta") for candidate in json.loads(first["tried"])} - {None}
    chosen = json.loads(first["letters"]).get("eta")
    if row["refused"] or len(steps) < 2 or chosen not in (min(steps), max(steps)):
        return ""
    end, beyond = ("smallest", "smaller") if chosen == min(steps) else ("largest", "larger")
    return f" ({END.format(end=end, beyond=beyond)})"


def summary(rows: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    """Return problems, the rule by which letters were chosen, and the conclusion, in Markdown."""
    titles = [f"- `{key}`: {title}" for key, title in metadata["problems"].items()]
    rule = (
        "Letters were chosen per problem and epsilon: every candidate ran on the tuning seed, and the one with the "
        "fewest failed replicates and, among equals, the smallest mean gap was run again on other seeds, which are "
        "reported. "
        "The choice looks at the data and is not charged: what is shown is the best of these candidates on other "
        "seeds, which is neither the best that a method can do nor what one could release."
    )
    notes = [rule, *filter(None, [libraries_line(frame)])]
    above = ["Problems:", "", *titles, "", "\n\n".join(notes)]
    return "\n".join([*above, "", "## Conclusion", "", *conclusion(rows), "", "## Numbers"])


def conclusion(rows: pd.DataFrame) -> list[str]:
    """Return the conclusion in plain sentences that follow from the table by rule."""
    sentences, winners = [], []
    for _, group in rows.groupby(["problem", "epsilon_claimed"], sort=False):
        usable = _usable(group)
        if usable:
            winners.append(usable[0]["method"])
            sentences.append(f"- {_sentence(usable)}")
    lost = [f"- {text}" for text in _losers(rows)]
    alone = list(dict.fromkeys(rows[rows["covers"] == "output"]["method"]))
    covers = [f"- Certified for the output alone, all others for every iterate: {', '.join(alone)}."] if alone else []
    ends = [f"- {text}" for text in _at_ends(rows)]
    return [f"- {_overall(winners)}", *sentences, *lost, *ends, *covers]


def _usable(group: pd.DataFrame) -> list[dict[str, Any]]:
    return [row for row in records(group) if not row["failed"] and not row["refused"] and np.isfinite(row["measured"])]


def _overall(winners: Sequence[str]) -> str:
    counts = {name: winners.count(name) for name in dict.fromkeys(winners)}
    order = sorted(counts, key=lambda name: -counts[name])
    parts = ", ".join(f"{name} in {counts[name]}" for name in order)
    return f"Of {len(winners)} settings, the smallest gap was reached by: {parts}."


def _sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    best = rows[0]
    level = [row["method"] for row in rows[1:] if row["verdict"].startswith(LEVEL)]
    near = [row for row in rows if row["measured"] <= NEAR * best["measured"]]
    cheap = min(near, key=lambda row: row["gradient_evaluations"])
    text = (
        f"{best['problem']}, epsilon = {best['epsilon_claimed']:g}: {best['method']} has the smallest gap, "
        f"{best['measured']:.3g} [{best['ci_low']:.3g}, {best['ci_high']:.3g}] "
        f"({best['measured'] / best['gap_at_zero']:.2g} of the gap at w = 0)"
    )
    text += f", indistinguishable from {' and '.join(level)}" if level else ""
    if cheap is best:
        return f"{text}; no method within a factor {NEAR:g} of it needs fewer gradients."
    return (
        f"{text}; within a factor {NEAR:g} of it, {cheap['method']} is the cheapest with "
        f"{best['gradient_evaluations'] / cheap['gradient_evaluations']:.3g} times fewer gradients."
    )


def _places(rows: pd.DataFrame) -> str:
    return ", ".join(
        f"{problem} at epsilon = {epsilon:g}"
        for problem, epsilon in zip(rows["problem"], rows["epsilon_claimed"], strict=True)
    )


def _at_ends(rows: pd.DataFrame) -> Iterator[str]:
    """Say of which methods the smallest or the largest step of the grid was chosen, and where."""
    for end, beyond in (("smallest", "smaller"), ("largest", "larger")):
        words = END.format(end=end, beyond=beyond)
        for method, group in rows[rows["verdict"].str.contains(words, regex=False)].groupby("method", sort=False):
            yield f"For {method} {words}: {_places(group)}."


def _losers(rows: pd.DataFrame) -> Iterator[str]:
    """Say which methods failed, and where."""
    failed = rows[rows["failed"] > 0]
    for method, group in failed.groupby("method", sort=False):
        places = _places(group)
        ends = "above w = 0" if np.isfinite(group["measured"]).all() else "above w = 0 or not finite"
        yield f"{method} ends {ends} in some replicates: {places}."
