"""Means over replicates with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with the ends of its confidence interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: np.ndarray, level: float = LEVEL) -> Interval:
    """Return the mean of independent values with Student's t interval (NaN ends for fewer than two values)."""
    from scipy.special import stdtrit

    values = np.asarray(values, dtype=float)
    mean = float(np.mean(values))
    if values.size < 2:
        return Interval(mean, float("nan"), float("nan"))
    half = float(stdtrit(values.size - 1, 0.5 + level / 2) * np.std(values, ddof=1) / np.sqrt(values.size))
    return Interval(mean, mean - half, mean + half)


def differ(one: np.ndarray, other: np.ndarray, level: float = LEVEL) -> bool:
    """Whether Welch's interval of the difference of two means leaves out zero."""
    from scipy.special import stdtrit

    shares = [float(np.var(values, ddof=1)) / values.size for values in (one, other)]
    total = sum(shares)
    if total == 0.0:
        return bool(np.mean(one) != np.mean(other))
    freedom = total**2 / sum(share**2 / (values.size - 1) for share, values in zip(shares, (one, other), strict=True))
    return bool(abs(np.mean(one) - np.mean(other)) > stdtrit(freedom, 0.5 + level / 2) * np.sqrt(total))


def worst_members(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep of every point of a sweep the member of the problem's family with the largest mean value."""
    if "member" not in frame or (frame["member"] == "").all():
        return frame
    points = ["problem", "entry", "variant", "axis", "axis_value"]
    means = frame.groupby([*points, "member"], sort=False)["value"].mean().fillna(-np.inf).reset_index()
    worst = means.loc[means.groupby(points, sort=False)["value"].idxmax(), [*points, "member"]]
    return frame.merge(worst, on=[*points, "member"], how="inner")


def curves(frame: pd.DataFrame, by: list[str], value: str) -> pd.DataFrame:
    """Return mean, low and high of `value` over replicates for each group; infinite and NaN values are left out.

    Callers state how many replicates failed: leaving out is never silent.
    """
    finite = frame[np.isfinite(frame[value])]

    def summary(group: pd.Series) -> pd.Series:
        interval = mean_interval(group.to_numpy())
        return pd.Series({"mean": interval.mean, "low": interval.low, "high": interval.high})

    grouped = finite.groupby(by, sort=True)[value].apply(summary)
    return grouped.unstack().reset_index()
