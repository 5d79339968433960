"""Measured exponents: slopes on logarithmic axes with bootstrap intervals, and what they say of a bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dprepro.analysis.intervals import LEVEL, Interval, bootstrap_interval, resampled_logs

RESAMPLES = 2000
# How far a measured exponent may lie from a bound's and still agree with it: numbers of steps are rounded, and over
# one or two decades lower-order terms still show.
TOLERANCE = 0.15
# Small exponents leave less room: a third and a fifth must be told apart.
SHARE = 0.3
# Gradient complexities hide logarithms, which over one or two decades have an exponent of up to 0.2.
COUNT_TOLERANCE = 0.2
# How far an exponent may lie from that of a proven lower bound and still be called the same.
LOWER_TOLERANCE = 0.05
# Logarithms change an exponent by less than this over such a range; more is another bound.
LOGARITHMS = 0.4
# An interval wider than twice this cannot tell one bound from another.
WIDEST = 0.3


def exponent(
    x: Sequence[float], samples: Sequence[np.ndarray | Sequence[np.ndarray]], level: float = LEVEL
) -> Interval:
    """Return the least-squares slope of log(mean of samples) against log(x), with a bootstrap interval.

    `samples[i]` holds the replicates at x[i]; they are resampled independently at every x. The interval speaks of the
    replicates' noise on these very datasets, not of other datasets. A point with a value that is not finite is left
    out as a whole. NaN with fewer than two usable points.

    For a family of problems `samples[i]` holds the replicates of each member: the mean is then that of the worst one,
    chosen anew in every resample.
    """
    usable = [(at, _finite(values)) for at, values in zip(x, samples, strict=True)]
    usable = [(at, members) for at, members in usable if members and max(map(np.mean, members)) > 0.0]
    if len(usable) < 2:
        return Interval(float("nan"), float("nan"), float("nan"))
    logs = np.log([at for at, _ in usable])
    centred = (logs - logs.mean()) / np.sum((logs - logs.mean()) ** 2)
    slope = float(centred @ np.log([max(map(np.mean, members)) for _, members in usable]))
    rng = np.random.default_rng(0)
    resampled = [[resampled_logs(values, rng, RESAMPLES) for values in members] for _, members in usable]
    slopes = centred @ np.stack([np.max(members, axis=0) for members in resampled])
    return bootstrap_interval(slope, slopes, sum(members[0].size - 1 for _, members in usable), level)


def exact_exponent(x: Sequence[float], counts: Sequence[float]) -> float:
    """Return the least-squares slope of log(counts) against log(x) for numbers without randomness."""
    finite = [(at, count) for at, count in zip(x, counts, strict=True) if np.isfinite(count) and count > 0]
    if len(finite) < 2:
        return float("nan")
    logs = np.log(np.array(finite))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def rate_verdict(measured: Interval, theory: float, with_logarithms: float = float("nan")) -> str:
    """Say how a measured exponent stands to that of an upper bound; smaller is better for every axis.

    `theory` is the bound's exponent in the limit, `with_logarithms` that of the bound as printed over the measured
    points; an exponent between the two agrees. If they differ by more than logarithms do, only the first counts.
    """
    if np.isnan(theory) or np.isnan(measured.mean):
        return "no exponent to compare" if np.isnan(theory) else "not measurable"
    low, high = prediction(theory, with_logarithms)
    if measured.high < low - tolerance(theory):
        return "faster than the bound"
    if measured.low > high + tolerance(theory):
        return "not reached"
    return "agrees" if measured.high - measured.low <= 2.0 * WIDEST else "too wide to tell"


def tolerance(theory: float) -> float:
    """Return how far a measured exponent may lie from a bound's and still agree with it."""
    return min(TOLERANCE, SHARE * abs(theory)) if theory else TOLERANCE


def prediction(theory: float, with_logarithms: float) -> tuple[float, float]:
    """Return the exponents between which a bound's lies: in the limit, and as printed over the measured points."""
    if not abs(with_logarithms - theory) <= LOGARITHMS:
        return theory, theory
    return min(theory, with_logarithms), max(theory, with_logarithms)


def count_verdict(counted: float, stated: float, with_logarithms: float = float("nan")) -> str:
    """Say how the exponent of a count stands to the stated one, in the limit and with its logarithms."""
    if np.isnan(stated) or np.isnan(counted):
        return "no exponent to compare"
    if counted < np.fmin(stated, with_logarithms) - COUNT_TOLERANCE:
        return "fewer than stated"
    return "more than stated" if counted > np.fmax(stated, with_logarithms) + COUNT_TOLERANCE else "agrees"


def _finite(samples: np.ndarray | Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the values of each member; none if there are too few or one is not finite, for the mean is infinite then.

    A plain array is one member.
    """
    members = [samples] if isinstance(samples, np.ndarray) and samples.ndim == 1 else list(samples)
    usable = all(values.size >= 2 and np.isfinite(values).all() for values in members)
    return members if usable else []
