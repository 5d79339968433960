"""How many samples a method needs to bring its error down to a target, and how that number grows along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dprepro.analysis.intervals import Interval, bootstrap_interval, resampled_logs
from dprepro.analysis.rates import RESAMPLES

_NOTHING = Interval(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class Needed:
    """The n at which the mean error meets the target, with a bootstrap interval, and its resamples (RESAMPLES,).

    `freedom` is the number of replicates at all n together, less one for each n. Where the target is met nowhere
    between the n that were run, the interval is NaN and `outside` says on which side of them it would be: `fewer`,
    `more`, or `unknown` with one n or with runs that did not end.
    """

    samples: Interval
    draws: np.ndarray
    freedom: int
    outside: str = ""

    def over(self, other: Needed) -> Interval:
        """Return this number over another one; the two are resampled independently."""
        ratios = self.draws / other.draws
        return _interval(self.samples.mean / other.samples.mean, ratios, self.freedom + other.freedom)


def needed(n: Sequence[float], values: Sequence[np.ndarray], target: float, seed: int = 0) -> Needed:
    """Return the n at which the mean of the replicates' values (K,) at each n falls to the target for good.

    Between two n the logarithm of the mean is taken to be linear in that of n. Replicates are resampled independently
    at every n; a resample that meets the target outside the n is continued along the nearest line. Numbers that are
    compared need different seeds.
    """
    order = np.argsort(n)
    logs = np.log(np.asarray(n, dtype=float)[order])
    ordered = [np.asarray(values[index], dtype=float) for index in order]
    means = np.array([[np.mean(replicates)] for replicates in ordered])
    if len(logs) < 2 or not np.isfinite(means).all():
        return _unknown("unknown")
    below = means[:, 0] <= target
    if not below[-1] or below.all():
        return _unknown("fewer" if below[-1] else "more")
    rng = np.random.default_rng(seed)
    resampled = np.stack([resampled_logs(replicates, rng, RESAMPLES) for replicates in ordered])
    (found,) = np.exp(_crossings(logs, np.log(means / target)))
    draws = np.exp(_crossings(logs, resampled - np.log(target)))
    freedom = sum(replicates.size - 1 for replicates in ordered)
    return Needed(_interval(float(found), draws, freedom), draws, freedom)


def _unknown(outside: str) -> Needed:
    return Needed(_NOTHING, np.full(RESAMPLES, np.nan), 0, outside)


@dataclass(frozen=True)
class Growth:
    """An exponent of the samples needed with its interval, its resamples (RESAMPLES,) and their degrees of freedom."""

    exponent: Interval
    draws: np.ndarray
    freedom: int


def growth(x: Sequence[float], found: Sequence[Needed]) -> Growth:
    """Return the slope of log(samples) against log(x); NaN if one of the numbers is not known."""
    logs = np.log(np.asarray(x, dtype=float))
    if len(logs) < 2 or any(each.outside for each in found):
        return Growth(_NOTHING, np.full(RESAMPLES, np.nan), 0)
    centred = (logs - logs.mean()) / np.sum((logs - logs.mean()) ** 2)
    slopes = centred @ np.log(np.stack([each.draws for each in found]))
    slope = float(centred @ np.log([each.samples.mean for each in found]))
    freedom = sum(each.freedom for each in found)
    return Growth(_interval(slope, slopes, freedom), slopes, freedom)


def difference(one: Growth, other: Growth) -> Interval:
    """Return how much larger one slope is than another."""
    return _interval(one.exponent.mean - other.exponent.mean, one.draws - other.draws, one.freedom + other.freedom)


def _interval(mean: float, draws: np.ndarray, freedom: int) -> Interval:
    return bootstrap_interval(mean, draws, freedom) if np.isfinite(draws).all() else _NOTHING


def _crossings(logs: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return where each column of heights (P, R) over logs (P,) falls to 0 for the last time: (R,).

    A column that is above or below all along is continued along its last or first line, if that falls.
    """
    after = np.argmax(heights[::-1] > 0.0, axis=0)
    # The segment that begins at the last height above 0; the outermost ones where there is none, or no end.
    last = np.where((heights > 0.0).any(axis=0), len(logs) - 1 - after, 0)
    first = np.clip(last, 0, len(logs) - 2)
    columns = np.arange(heights.shape[1])
    left, right = heights[first, columns], heights[first + 1, columns]
    fall = np.maximum(left - right, 1e-3)
    return logs[first] + (logs[first + 1] - logs[first]) * left / fall
