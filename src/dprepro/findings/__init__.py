"""Findings: claims of a paper held against what can be computed or run, each with a verdict that follows by a rule.

One module per paper, named like it, with `QUESTIONS`: pairs of a function that computes numbers and one that judges
them. Nothing but the numbers decides: where a claim holds, its verdict says so. What figures show beside the numbers
is among them under the key `DRAWN`, so that a figure and a verdict come from one computation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONTRADICTED = "contradicted"
REPAIRED = "fails as printed"
HOLDS = "holds here"
EMPTY = "empty"
UNDECIDED = "not decided"
# Marks an error that a lost symbol, root or subscript in our copy could explain.
OURS = "the slip may be our copy's"
# The key, among the numbers, of what only figures show: a name to columns of equal length.
DRAWN = "drawn"

Numbers = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """A claim with its place in the paper, what was computed, the rule of the verdict, the verdict and the numbers."""

    claim: str
    place: str
    computed: str
    rule: str
    verdict: str
    numbers: Numbers

    def __post_init__(self) -> None:
        if not self.verdict.startswith((CONTRADICTED, REPAIRED, HOLDS, EMPTY, UNDECIDED)):
            raise ValueError(f"no verdict {self.verdict!r}")


@dataclass(frozen=True)
class Question:
    """How a finding is made: `compute` returns the numbers and takes the time, `judge` decides by them alone."""

    name: str
    compute: Callable[[], Numbers]
    judge: Callable[[Numbers], Finding]


def markdown(title: str, found: Mapping[str, Finding], origin: str) -> str:
    """Return the findings in Markdown: a table of verdicts, then each with its numbers."""
    rows = [f"| {name} | {_cell(f.claim)} | {f.place} | {f.verdict} |" for name, f in found.items()]
    head = [f"# {title}", "", _HOW_TO_READ, "", "| finding | claim | place | verdict |", "| --- | --- | --- | --- |"]
    parts = ["\n".join([*head, *rows])]
    for name, finding in found.items():
        lines = [f"## {name}", "", f"Claim ({finding.place}): {finding.claim}.", "", f"Computed: {finding.computed}."]
        parts.append("\n".join([*lines, "", f"Rule: {finding.rule}.", "", f"Verdict: **{finding.verdict}**."]))
    return "\n\n".join([*parts, f"Made by {origin}."]) + "\n"


def records(found: Mapping[str, Finding]) -> list[dict[str, str]]:
    """Return a row per finding, the numbers as JSON."""
    from dprepro.files import jsonable

    return [
        {
            "finding": name,
            "claim": f.claim,
            "place": f.place,
            "verdict": f.verdict,
            "computed": f.computed,
            "rule": f.rule,
            "numbers": json.dumps(jsonable(told(f.numbers))),
        }
        for name, f in found.items()
    ]


def repaired(change: str, *, ours: bool = False) -> str:
    """Return the verdict of a claim that fails as it is printed and holds here with one change.

    `ours` marks a slip that the conversion of our copy of the paper may have made: a lost symbol, root or subscript.
    """
    return f"{REPAIRED}, repaired by {change}" + (f" ({OURS})" if ours else "")


def told(numbers: Numbers) -> Numbers:
    """Return the numbers that a reader is told, without what only figures show."""
    return {key: value for key, value in numbers.items() if key != DRAWN}


def several(values: Sequence[float], digits: int = 3) -> str:
    """Return numbers in a row: `1, 2.5 and 3`."""
    texts = [f"{value:.{digits}g}" for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_HOW_TO_READ = (
    "Every verdict follows from the numbers by the stated rule. `contradicted`: the numbers rule the claim out at the "
    "settings that were looked at. `fails as printed`: they rule out what is printed, and agree with it after the one "
    "change that is named. `holds here`: they agree with it there. `empty`: it is true there, and says nothing that is "
    "not known without it. `not decided`: the numbers do not reach far enough. What follows these words is decided by "
    "the numbers too. Neighbours differ in one replaced record. A claim that is contradicted may well hold with other "
    "constants. The papers were read from machine-converted text, in which symbols may be lost: where such a loss "
    "would make the slip, the verdict says that it may be our copy's."
)
