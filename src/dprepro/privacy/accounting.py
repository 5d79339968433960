"""Accounting under replace-one adjacency. Every number here is an upper bound on the true epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dprepro.errors import UserError, is_number
from dprepro.privacy.events import Event, GaussianEvent, UnprotectedEvent

SMALLEST_DELTA = 1e-300
SMALLEST_EPSILON = 1e-300


@dataclass(frozen=True)
class Accounted:
    """An accounted epsilon with the name of the argument that gives it.

    `tight` says whether the bound is exact for the worst pair of neighbours.
    """

    epsilon: float
    accountant: str
    tight: bool


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the exact delta at `epsilon` of a mu-GDP mechanism (Balle and Wang 2018, Dong et al. 2022).

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).
    """
    from scipy.special import log_ndtr

    if mu == 0.0:
        return 0.0
    log_first = float(log_ndtr(mu / 2 - epsilon / mu))
    log_second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(log_first) * -math.expm1(min(0.0, log_second - log_first))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the exact epsilon of a mu-GDP mechanism at `delta`, to 1e-12 relative and never too small.

    mu is the sensitivity over the noise's standard deviation; k releases of mu_i compose to
    sqrt(sum of mu_i^2).
    """
    if not (mu >= 0.0):
        raise UserError(f"mu is {mu}: give a number >= 0 (sensitivity over standard deviation).")
    check_delta(delta)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    # mu-GDP is (mu^2/2)-zCDP, and its conversion bounds epsilon from above.
    low, high = 0.0, 0.5 * mu * mu + mu * math.sqrt(2.0 * math.log(1.0 / delta))
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (low, middle) if gaussian_delta(mu, middle) <= delta else (middle, high)
    return high


def account(events: Sequence[Event], delta: float) -> Accounted:
    """Return an upper bound on the epsilon spent by the adaptive composition of `events` at `delta`.

    Full-batch Gaussian releases compose exactly as Gaussian DP. A release that looks at a random batch is
    charged as if it looked at every record: sound, because the replaced record is then always among those looked
    at, but far from tight for small batches.
    """
    if any(isinstance(event, UnprotectedEvent) and event.count for event in events):
        return Accounted(math.inf, "none: a data-dependent quantity was used without noise", False)
    gaussians = [event for event in events if isinstance(event, GaussianEvent) and event.count]
    if any(event.sigma == 0.0 for event in gaussians):
        return Accounted(math.inf, "none: no noise was added", False)
    squared_mu = sum(
        event.count * (sum(part.sensitivity for part in event.parts) / event.sigma) ** 2 for event in gaussians
    )
    epsilon = gaussian_epsilon(math.sqrt(squared_mu), delta)
    if all(part.full for event in gaussians for part in event.parts):
        return Accounted(epsilon, "Gaussian DP, exact", True)
    return Accounted(epsilon, "Gaussian DP without credit for sampling (upper bound, not tight)", False)


def check_epsilon(epsilon: float) -> float:
    """Return a valid epsilon (positive, infinity allowed) or raise `UserError`."""
    if not is_number(epsilon) or not epsilon >= SMALLEST_EPSILON:
        raise UserError(f"epsilon is {epsilon!r}: give a number > 0 (inf for no noise).")
    return float(epsilon)


def check_delta(delta: float) -> float:
    """Return a valid delta or raise `UserError`."""
    # 1/delta must exist as a number: smaller ones are no use to anybody.
    if not is_number(delta) or not SMALLEST_DELTA <= delta < 1.0:
        raise UserError(f"delta is {delta!r}: give a number strictly between 0 and 1, for example 1e-5.")
    return float(delta)
