"""From which sample size on a theorem's setting makes sense: there is something to run, the bound says something."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dprepro.algorithms.base import Algorithm, Plan, Setting
from dprepro.errors import UserError
from dprepro.sweeps import bounds_metric

# No one has more samples; the search gives up beyond.
MOST_SAMPLES = 2**44


def thresholds(
    algorithm: Algorithm,
    letters: Mapping[str, Any],
    setting_at: Callable[[int], Setting],
    metric: str,
    trivial: float,
) -> dict[str, float]:
    """Return the n from which the algorithm runs and that from which its bound is below the error at the start.

    `setting_at(n)` is the setting with n samples, `trivial` the error of the initial point by the metric. The bound has
    constants of 1 wherever the paper leaves them open. Infinite where no n up to MOST_SAMPLES will do, NaN where
    `trivial` is, or where the algorithm has no bound on the metric.
    """

    def plan(n: int) -> Plan | None:
        try:
            return algorithm.plan(setting_at(n), **letters)
        except UserError:
            return None

    def useful(n: int) -> bool:
        planned = plan(n)
        return planned is not None and planned.utility is not None and planned.utility.value < trivial

    runs = _smallest(lambda n: plan(n) is not None, 1)
    first = plan(int(runs)) if math.isfinite(runs) else None
    bounded = first is not None and first.utility is not None and bounds_metric(first.utility.quantity, metric)
    if math.isnan(trivial) or not bounded:
        return {"runs_from_n": runs, "useful_from_n": math.nan}
    return {"runs_from_n": runs, "useful_from_n": _smallest(useful, int(runs))}


def _smallest(works: Callable[[int], bool], first: int) -> float:
    """Return the smallest n >= first for which `works` holds; it must go on holding from there."""
    high = first
    while not works(high):
        high *= 2
        if high > MOST_SAMPLES:
            return math.inf
    low = max(first - 1, high // 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return float(high)
