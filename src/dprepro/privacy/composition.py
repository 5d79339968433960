"""Composition in closed form, under replace-one adjacency. Every number is an upper bound.

What the papers use (advanced composition) stands beside what is optimal, so that the two can be compared.
"""

from __future__ import annotations

import math
import numbers

import numpy as np

from dprepro.errors import UserError
from dprepro.privacy.accounting import check_delta

# The most releases whose losses are listed one by one.
MOST_EXACT = 10_000_000


def advanced(epsilon0: float, delta0: float, k: int, delta_slack: float) -> tuple[float, float]:
    """Return epsilon and delta of k adaptive (epsilon0, delta0)-DP releases by advanced composition.

    epsilon = sqrt(2 k ln(1/delta_slack)) epsilon0 + k epsilon0 (e^epsilon0 - 1), delta = k delta0 + delta_slack
    (Dwork, Rothblum and Vadhan 2010, Theorem III.3).
    """
    _check_number("epsilon0", epsilon0)
    _check_number("delta0", delta0)
    _check_count("k", k)
    check_delta(delta_slack)
    drift = k * epsilon0 * math.expm1(epsilon0) if epsilon0 < 700.0 else math.inf
    return math.sqrt(2.0 * k * math.log(1.0 / delta_slack)) * epsilon0 + drift, k * delta0 + delta_slack


def optimal_pure(epsilon0: float, k: int, delta: float) -> float:
    """Return the smallest epsilon at `delta` that holds for every adaptive composition of k pure epsilon0-DP releases.

    Kairouz, Oh and Viswanath 2015, Theorem 3.3. Randomised response is the worst case; its loss is (k - 2i) epsilon0
    with i ~ Binomial(k, 1/(1 + e^epsilon0)). The sets that decide delta are those of the m largest losses, so
    epsilon = max over m of log((P_m - delta) / Q_m) with their probabilities P_m and Q_m on the two datasets. Computed
    with logarithms; the rounding of the binomial probabilities is added. Beyond `MOST_EXACT` releases, of which an
    array would not fit into memory, a bound by zero-concentrated DP takes its place.
    """
    from scipy.special import gammaln

    _check_number("epsilon0", epsilon0)
    _check_count("k", k)
    check_delta(delta)
    if epsilon0 == 0.0 or k == 0:
        return 0.0
    if math.isinf(epsilon0):
        return math.inf
    if k > MOST_EXACT:
        # A pure epsilon0-DP release is (epsilon0^2/2)-zCDP.
        return min(k * epsilon0, zcdp_epsilon(k * epsilon0**2 / 2.0, delta))
    i = np.arange(k + 1, dtype=np.float64)
    # log(1 + e^-epsilon0) is minus the log-probability of the truthful answer
    log_p = gammaln(k + 1.0) - gammaln(i + 1.0) - gammaln(k - i + 1.0) - i * epsilon0 - k * np.log1p(np.exp(-epsilon0))
    log_q = log_p - (k - 2.0 * i) * epsilon0
    room = 1e-15 * (8.0 * float(gammaln(k + 1.0)) + 8.0 * k * (1.0 + epsilon0) + 100.0)
    excess = np.minimum(1.0, np.exp(np.logaddexp.accumulate(log_p) + room)) - delta
    kept = excess > 0.0
    values = np.log(excess[kept]) - np.logaddexp.accumulate(log_q)[kept] + room
    return min(k * epsilon0, float(values.max(initial=0.0)))


def bounded_range(epsilon0: float, k: int, delta: float) -> float:
    """Return an epsilon at `delta` of k adaptive releases of bounded range epsilon0.

    The exponential mechanism and report-noisy-max with Gumbel noise have bounded range: their loss, over all
    outcomes, lies in an interval of length epsilon0. Each is then (epsilon0^2/8)-zCDP (Cesar and Rogers 2021),
    which adds up. It is also epsilon0-DP, and the smaller of the two bounds is returned.
    """
    _check_number("epsilon0", epsilon0)
    _check_count("k", k)
    check_delta(delta)
    return min(zcdp_epsilon(k * epsilon0**2 / 8.0, delta), optimal_pure(epsilon0, k, delta))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an epsilon at `delta` of a rho-zCDP mechanism.

    The infimum over a > 1 of a rho + log(1 - 1/a) - log(a delta) / (a - 1) (Canonne, Kamath and Steinke 2020).
    Every a gives a bound, so the search need not be exact.
    """
    from scipy.optimize import minimize_scalar

    _check_number("rho", rho)
    check_delta(delta)
    if rho == 0.0 or math.isinf(rho):
        return rho

    def bound(log_order: float) -> float:
        """The bound at the order a = 1 + e^log_order."""
        above_one = math.exp(log_order)
        order = 1.0 + above_one
        return order * rho - math.log1p(1.0 / above_one) - (math.log(delta) + math.log1p(above_one)) / above_one

    middle = 0.5 * math.log(math.log(1.0 / delta) / rho)
    found = minimize_scalar(bound, bounds=(middle - 6.0, middle + 6.0), method="bounded", options={"xatol": 1e-9})
    return max(0.0, float(found.fun) * (1.0 + 1e-12))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return a delta at `epsilon` of a rho-zCDP mechanism.

    The infimum over a > 1 of e^((a - 1) (a rho - epsilon)) (1 - 1/a)^a / (a - 1) (Canonne, Kamath and Steinke 2020),
    the inverse of `zcdp_epsilon`.
    """
    from scipy.optimize import minimize_scalar

    _check_number("rho", rho)
    _check_number("epsilon", epsilon)
    if rho == 0.0 or math.isinf(rho):
        return 1.0 if rho else 0.0

    def log_bound(log_order: float) -> float:
        """The logarithm of the bound at the order a = 1 + e^log_order."""
        above_one = math.exp(log_order)
        order = 1.0 + above_one
        return above_one * (order * rho - epsilon) - order * math.log1p(1.0 / above_one) - log_order

    middle = math.log(max(epsilon / (2.0 * rho), 1e-3))
    found = minimize_scalar(log_bound, bounds=(middle - 8.0, middle + 8.0), method="bounded", options={"xatol": 1e-9})
    return min(1.0, math.exp(min(0.0, float(found.fun))) * (1.0 + 1e-9))


def tree_nodes(leaves: int) -> int:
    """Return the largest number of complete nodes over `leaves` that hold one leaf: floor(log2 leaves) + 1."""
    _check_count("leaves", leaves)
    if leaves == 0:
        raise UserError("leaves is 0: give a whole number >= 1.")
    return int(leaves).bit_length()


def tree_mu(sensitivity: float, sigma: float, leaves: int, first: float | None = None) -> float:
    """Return the GDP parameter of binary-tree aggregation with N(0, sigma^2 I) noise on every node.

    A record sits in one leaf and moves every node above it by at most `sensitivity`, so all node sums together
    are one Gaussian release at l2 distance sqrt(nodes) * sensitivity; adaptive choice of the leaves changes nothing.
    The prefixes tell the nodes that they are made of, and these tell the prefixes: nothing is given away. `first` is
    the sensitivity of the first leaf, the one in most nodes; every other leaf is in fewer, the second in one fewer.
    """
    _check_number("sensitivity", sensitivity)
    _check_number("sigma", sigma)
    nodes = tree_nodes(leaves)
    distance = math.sqrt(nodes) * sensitivity
    if first is not None:
        _check_number("first", first)
        distance = max(math.sqrt(nodes) * first, math.sqrt(nodes - 1) * sensitivity)
    if distance == 0.0:
        return 0.0
    return math.inf if sigma == 0.0 else distance / sigma


def _check_number(name: str, value: float) -> None:
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not value >= 0.0:
        raise UserError(f"{name} is {value!r}: give a number >= 0.")


def _check_count(name: str, value: int) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 0:
        raise UserError(f"{name} is {value!r}: give a whole number >= 0.")
