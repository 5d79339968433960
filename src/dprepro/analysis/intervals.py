"""Means over replicates with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dprepro.sweeps import EVALUATIONS, VALUES

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with the ends of its confidence interval."""

    mean: float
    low: float
    high: float


def mean_error(values: np.ndarray | pd.Series) -> float:
    """Return the mean of errors; it is infinite if one of them is not finite, and never that of the others."""
    values = np.asarray(values, dtype=float)
    return float(np.mean(values)) if np.isfinite(values).all() else float("inf")


def mean_interval(values: np.ndarray, level: float = LEVEL) -> Interval:
    """Return the mean of independent errors with Student's t interval (NaN ends for fewer than two values).

    If one of them is not finite, the mean and the upper end are infinite.
    """
    from scipy.special import stdtrit

    values = np.asarray(values, dtype=float)
    mean = mean_error(values)
    if np.isinf(mean) or values.size < 2:
        return Interval(mean, float("nan"), mean if np.isinf(mean) else float("nan"))
    with np.errstate(over="ignore"):  # a run may diverge to numbers whose squares are none
        half = float(stdtrit(values.size - 1, 0.5 + level / 2) * np.std(values, ddof=1) / np.sqrt(values.size))
    return Interval(mean, mean - half, mean + half)


def resampled_logs(values: np.ndarray, rng: np.random.Generator, resamples: int) -> np.ndarray:
    """Return the logarithms of the means of that many bootstrap resamples of K values.

    A bootstrap spreads the mean of K values by sqrt((K-1)/K) too little; the logarithms are spread by so much more.
    """
    index = rng.integers(values.size, size=(resamples, values.size))
    smallest = np.finfo(float).tiny
    logs = np.log(np.maximum(np.mean(values[index], axis=1), smallest))
    centre = np.log(max(float(np.mean(values)), smallest))
    return centre + np.sqrt(values.size / max(values.size - 1, 1)) * (logs - centre)


def bootstrap_interval(mean: float, draws: np.ndarray, freedom: int, level: float = LEVEL) -> Interval:
    """Return the percentile interval of resampled numbers, as much wider as Student's t is than the normal.

    `freedom` is the number of replicates that all points have together, less one for each point; the ends are NaN if
    it is 0. Without that, 95 % intervals of four replicates at two points leave out the truth in 18 % of cases.
    """
    from scipy.special import ndtri, stdtrit

    if freedom < 1:
        return Interval(mean, float("nan"), float("nan"))
    low, high = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2])
    stretch = float(stdtrit(freedom, 0.5 + level / 2) / ndtri(0.5 + level / 2))
    return Interval(mean, mean - stretch * (mean - float(low)), mean + stretch * (float(high) - mean))


def differ(one: np.ndarray, other: np.ndarray, level: float = LEVEL) -> bool:
    """Whether Welch's interval of the difference of two means, infinite as in `mean_error`, leaves out zero."""
    from scipy.special import stdtrit

    infinite = [np.isinf(mean_error(values)) for values in (one, other)]
    if any(infinite):
        return not all(infinite)
    shares = [float(np.var(values, ddof=1)) / values.size for values in (one, other)]
    total = sum(shares)
    if total == 0.0:
        return bool(np.mean(one) != np.mean(other))
    freedom = total**2 / sum(share**2 / (values.size - 1) for share, values in zip(shares, (one, other), strict=True))
    return bool(abs(np.mean(one) - np.mean(other)) > stdtrit(freedom, 0.5 + level / 2) * np.sqrt(total))


def worst_members(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep of every point of a sweep the member of the problem's family with the largest mean value.

    A member with a run that is not finite is the worst; one that was refused is none.
    """
    if "member" not in frame or (frame["member"] == "").all():
        return frame
    points = ["problem", "entry", "variant", "axis", "axis_value"]
    errors = frame["value"].where(np.isfinite(frame["value"]), np.inf).where(frame["refused"] == "", -np.inf)
    means = frame.assign(error=errors).groupby([*points, "member"], sort=False)["error"].mean().reset_index()
    worst = means.loc[means.groupby(points, sort=False)["error"].idxmax(), [*points, "member"]]
    return frame.merge(worst, on=[*points, "member"], how="inner")


def counted(points: Sequence[pd.DataFrame]) -> tuple[str, list[float]]:
    """Return what the runs at some points are counted by, and how much of it each takes."""
    values = any(point["function_evaluations"].iloc[0] > 0.0 for point in points)
    column = "function_evaluations" if values else "gradient_evaluations"
    return VALUES if values else EVALUATIONS, [float(point[column].iloc[0]) for point in points]


def curves(frame: pd.DataFrame, by: list[str], value: str) -> pd.DataFrame:
    """Return mean, low and high of `value` over replicates for each group.

    A group in which a value is not finite has no mean and is left out as a whole; callers state what failed.
    """
    rows = []
    for keys, group in frame.groupby(by, sort=True)[value]:
        interval = mean_interval(group.to_numpy())
        if np.isfinite(interval.mean):
            rows.append((*keys, interval.mean, interval.low, interval.high))
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high"])
