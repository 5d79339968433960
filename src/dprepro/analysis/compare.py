"""Whether two results tell the same: every number of one held against the same number of the other.

The rule: two estimates with 95 percent intervals differ if their distance is more than the root of the sum of squares
of the sides of the intervals that face each other. For independent runs that happens to one pair in twenty by chance,
so that among m pairs the sides are stretched until it happens to one pair in 20 m: by the ratio of Student's quantiles
with the degrees of freedom of the smaller number of replicates. Numbers without randomness must agree up to rounding.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

IDENTICAL = "identical"
ROUNDING = "equal within rounding"
WITHIN = "within intervals"
UNJUDGED = "different, without intervals"
BEYOND = "beyond intervals"
ONLY_A = "only in a"
ONLY_B = "only in b"
OUTCOMES = (IDENTICAL, ROUNDING, WITHIN, UNJUDGED, BEYOND, ONLY_A, ONLY_B)

# The chance that a pair of independent estimates is called different although it is not.
ALPHA = 0.05
# Numbers below this are as good as zero where rounding is meant.
_SMALLEST = 1e-6

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Value:
    """A number with its interval: as wide as nothing if it is no estimate, NaN if it is one but has none."""

    mean: float
    low: float = math.nan
    high: float = math.nan
    replicates: float = math.nan

    @property
    def random(self) -> bool:
        """Whether there is an interval of some width."""
        return self.high > self.low


def exact(number: float) -> Value:
    """Return a number without randomness."""
    return Value(number, number, number)


@dataclass(frozen=True)
class Judged(Generic[K]):
    """A number in both results, or in one; `alone`: an estimate that would be called different if it were the only."""

    key: K
    a: Value | None
    b: Value | None
    outcome: str
    alone: bool = False


@dataclass(frozen=True)
class Judgement(Generic[K]):
    """All numbers of two results, judged; `estimates` is the number of pairs that chance may set apart."""

    rows: tuple[Judged[K], ...]
    estimates: int

    def counts(self) -> dict[str, int]:
        """Return the number of rows with each outcome."""
        found = Counter(row.outcome for row in self.rows)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    def having(self, outcome: str) -> list[Judged[K]]:
        """Return the rows with an outcome."""
        return [row for row in self.rows if row.outcome == outcome]

    @property
    def alone(self) -> int:
        """The number of estimates that would be called different if each were the only one."""
        return sum(row.alone for row in self.rows)


def compare(a: Mapping[K, Value], b: Mapping[K, Value], tolerance: float, each: bool = False) -> Judgement[K]:
    """Judge all numbers of two results; with `each` no pair is given more room because there are many."""
    both = [key for key in a if key in b]
    estimates = sum(a[key].random or b[key].random for key in both)
    share = 1.0 if each else 1.0 / max(estimates, 1)
    rows = [_judged(key, a[key], b[key], tolerance, share) for key in both]
    rows += [Judged(key, a[key], None, ONLY_A) for key in a if key not in b]
    rows += [Judged(key, None, b[key], ONLY_B) for key in b if key not in a]
    return Judgement(tuple(rows), estimates)


def _judged(key: K, a: Value, b: Value, tolerance: float, share: float) -> Judged[K]:
    outcome = judge(a, b, tolerance, share)
    alone = (a.random or b.random) and judge(a, b, tolerance) == BEYOND
    return Judged(key, a, b, outcome, alone)


def judge(a: Value, b: Value, tolerance: float, share: float = 1.0) -> str:
    """Return the outcome for a pair of numbers; `share` is the part of the 5 percent that it may use."""
    pairs = [(a.mean, b.mean), (a.low, b.low), (a.high, b.high)]
    if all(_same(one, other) for one, other in pairs):
        return IDENTICAL
    if all(_same(one, other) or _close(one, other, tolerance) for one, other in pairs):
        return ROUNDING
    if not (math.isfinite(a.mean) and math.isfinite(b.mean)):
        return WITHIN if _same(a.mean, b.mean) else BEYOND
    if _close(a.mean, b.mean, tolerance):
        return WITHIN
    # The sides that face each other.
    low, high = (a, b) if a.mean < b.mean else (b, a)
    reach = math.hypot(low.high - low.mean, high.mean - high.low)
    if math.isnan(reach):
        return UNJUDGED
    room = reach * stretch(share, _fewer(a.replicates, b.replicates))
    return WITHIN if high.mean - low.mean <= room else BEYOND


def stretch(share: float, replicates: float) -> float:
    """Return by how much 95 percent intervals widen when only a share of the 5 percent may be used."""
    from scipy.special import ndtri, stdtrit

    if share == 1.0:
        return 1.0
    freedom = max(replicates - 1.0, 1.0)
    narrow, usual = (
        float(ndtri(tail) if math.isnan(replicates) else stdtrit(freedom, tail))
        for tail in (ALPHA * share / 2.0, ALPHA / 2.0)
    )
    return narrow / usual


def _fewer(one: float, other: float) -> float:
    """Return the smaller number, or the one that is known."""
    return one if math.isnan(other) or one < other else other


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _close(one: float, other: float, tolerance: float) -> bool:
    if not (math.isfinite(one) and math.isfinite(other)):
        return False
    return abs(one - other) <= tolerance * max(abs(one), abs(other), _SMALLEST)
