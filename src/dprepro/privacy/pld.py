"""Privacy-loss distributions: tight composition of Gaussian, sampled Gaussian, Laplace and pure releases.

Two datasets are neighbours when one record is replaced, and a sensitivity is the full distance between a query's
answers on neighbours (for Poisson batches half of it: what one record adds). Every epsilon and every delta is an upper
bound, but for the functions with `lower` in their names. An estimate is never returned.

How an upper bound is kept through the numerics:

* Discretisation. A release is replaced by a pair of discrete distributions whose hockey-stick profile is the
  chord, drawn from grid point to grid point, of the convex profile of the release (Doroshenko, Ghazi, Kamath,
  Kumar, Manurangsi 2022, "connect the dots"). A chord lies above a convex curve, so the discrete pair dominates.
* Truncation. Losses above the grid count as infinite. Losses below the grid are raised to zero.
* Rounding of the masses. delta(epsilon) = E[(1 - e^(epsilon - L))_+] grows when mass moves to larger losses, also
  after convolution. Masses of positive losses are raised, those of negative losses lowered, by more than the
  relative error with which their tail sums are known; the atom at zero takes the rest, so that the total stays one.
* Convolution. The discrete Fourier transform is applied to the exponentially tilted masses, so that its rounding
  error is small against the tail that decides delta and not only against one. A bound of that error
  is added to delta, and so is a Chernoff bound of what lies above the window. What wraps around only adds mass.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dprepro.errors import UserError
from dprepro.privacy.accounting import check_delta, gaussian_epsilon

Array = npt.NDArray[np.floating]

MAX_CELLS = 1 << 21
"""Largest number of grid points of one release or one window; a finer interval is refused."""

_ULP = float(np.finfo(np.float64).eps)
_WRAPPED = 1e-10  # tilted probability that may fall outside the window, on either side
_SKETCH = 4096  # cells of the coarse copy on which tilts are searched for


class GridTooFine(UserError):
    """The interval is too small for the range of the loss."""


@dataclass(frozen=True, eq=False)
class Law:
    """The loss of one release on a grid: `masses[j]` at `(start + j) * interval`, and `infinity` at infinity.

    The distribution is that of log(dP/dQ) under P for a pair (P, Q) that dominates the release in both orders.
    """

    interval: float
    start: int
    masses: Array = field(repr=False)
    infinity: float

    @cached_property
    def indices(self) -> npt.NDArray[np.int64]:
        """The losses as multiples of the interval."""
        return np.arange(self.start, self.start + self.masses.size)

    @cached_property
    def log_masses(self) -> Array:
        """Logarithms of the masses."""
        with np.errstate(divide="ignore"):
            return np.log(self.masses)

    @cached_property
    def sketch(self) -> tuple[Array, Array]:
        """Losses and log-masses of a copy with few atoms; good for choosing a tilt, not for a bound."""
        width = -(-self.masses.size // _SKETCH)
        pad = -self.masses.size % width
        blocks = np.pad(self.masses, (0, pad)).reshape(-1, width)
        mass = blocks.sum(axis=1)
        moment = (blocks * np.pad(self.indices, (0, pad)).reshape(-1, width)).sum(axis=1)
        kept = mass > 0.0
        return self.interval * moment[kept] / mass[kept], np.log(mass[kept])

    def log_moment(self, theta: float) -> float:
        """Return log E[e^(theta L); L finite]."""
        return _log_sum_exp(self.log_masses + (theta * self.interval) * self.indices)

    def log_moment_sketched(self, theta: float) -> float:
        """Return `log_moment` of the sketch."""
        losses, log_masses = self.sketch
        return _log_sum_exp(log_masses + theta * losses)


@dataclass(frozen=True, eq=False)
class PrivacyLoss:
    """An adaptive composition: each law with the number of times it is used.

    The composition of dominated mechanisms is dominated by the product of the dominating pairs (Zhu, Dong and
    Wang 2022, Theorem 10), whose loss is the sum of independent losses. Nothing is convolved before an epsilon or
    a delta is asked for.
    """

    interval: float
    factors: tuple[tuple[Law, int], ...]

    def compose(self, other: PrivacyLoss) -> PrivacyLoss:
        """Return the loss of both compositions together."""
        if self.interval != other.interval:
            raise UserError(
                f"Privacy losses on grids of {self.interval} and {other.interval} cannot be composed: "
                "build both with the same interval."
            )
        return PrivacyLoss(self.interval, self.factors + other.factors)

    def self_compose(self, count: int) -> PrivacyLoss:
        """Return the loss of `count` such compositions."""
        _check_count("count", count, smallest=0)
        return PrivacyLoss(self.interval, tuple((law, uses * count) for law, uses in self.factors if count))

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on the smallest epsilon at `delta`; infinity when infinite losses exceed delta."""
        check_delta(delta)
        if not self.factors:
            return 0.0
        finite = delta - self._infinity()
        if finite <= 0.0:
            return math.inf
        # The tilt of the moments accountant puts the middle of the tilted law near the answer, seldom far above.
        theta = _argmin(lambda t: (self._log_moment_sketched(t) - math.log(finite)) / t, self._largest_tilt())
        best = max(0.0, self._largest())
        for _ in range(8):
            window = self._window(theta, math.inf)
            best = min(best, window.epsilon(delta))
            if best > window.first * self.interval or best == 0.0:
                break
            theta /= 4.0
        return best

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on the smallest delta at `epsilon` >= 0."""
        if not epsilon >= 0.0:
            raise UserError(f"epsilon is {epsilon!r}: give a number >= 0.")
        if not self.factors:
            return 0.0
        if epsilon >= self._largest():
            return self._infinity()
        theta = _argmin(lambda t: self._log_moment_sketched(t) - t * epsilon, self._largest_tilt())
        return self._window(theta, epsilon).delta(epsilon)

    def _infinity(self) -> float:
        """The probability that some loss is infinite."""
        if any(law.infinity >= 1.0 for law, _ in self.factors):
            return 1.0
        return -math.expm1(sum(count * math.log1p(-law.infinity) for law, count in self.factors)) * (1.0 + 1e-12)

    def _largest(self) -> float:
        """The largest finite loss."""
        return self.interval * sum(count * (law.start + law.masses.size - 1) for law, count in self.factors)

    def _log_moment_sketched(self, theta: float) -> float:
        return sum(count * law.log_moment_sketched(theta) for law, count in self.factors)

    def _largest_tilt(self) -> float:
        """A stronger tilt would drown the next lower grid point in rounding error."""
        return 8.0 / self.interval

    def _window(self, theta: float, lowest: float) -> _Window:
        """Convolve under the tilt `theta`, on a window that holds nearly all tilted mass and reaches `lowest`."""
        interval = self.interval
        log_moments = [law.log_moment(theta) for law, _ in self.factors]
        log_total = sum(count * value for (_, count), value in zip(self.factors, log_moments, strict=True))
        sketched = self._log_moment_sketched(theta)
        log_wrapped = math.log(_WRAPPED)

        # Chernoff: tilted mass above (K(theta + t) - K(theta) - log w) / t is at most w, for every t > 0.
        t = _argmin(lambda t: (self._log_moment_sketched(theta + t) - sketched - log_wrapped) / t, self._largest_tilt())
        above = sum(count * law.log_moment(theta + t) for law, count in self.factors) - log_total
        top = (above - log_wrapped) / t
        t = _argmin(lambda t: (self._log_moment_sketched(theta - t) - sketched - log_wrapped) / t, self._largest_tilt())
        bottom = -(self._log_moment_sketched(theta - t) - sketched - log_wrapped) / t
        log_above = log_total + log_wrapped - theta * top + 1e-6
        # No sum lies outside the sums of the ends.
        if self._largest() <= top:
            top, log_above = self._largest(), -math.inf
        bottom = max(bottom, interval * sum(count * law.start for law, count in self.factors))

        first = math.floor(min(bottom, lowest) / interval) - 1
        cells = math.ceil(top / interval) + 2 - first
        _check_cells(cells, interval)
        return self._convolve(theta, log_moments, first, cells, log_above)

    def _convolve(self, theta: float, log_moments: list[float], first: int, cells: int, log_above: float) -> _Window:
        """Return the masses of the sum at `first`, `first + 1`, ... with everything an upper bound has to add."""
        from scipy.fft import irfft, next_fast_len, rfft

        size = next_fast_len(max(cells, 16), real=True)
        exponent = np.zeros(size // 2 + 1, dtype=np.complex128)
        # Higham 2002, Section 24.1: a transform errs by at most about log2(size) ulps of its norm; 4 for safety.
        transform_error = 4.0 * _ULP * math.log2(size)
        error = relative = 0.0
        for (law, count), log_moment in zip(self.factors, log_moments, strict=True):
            tilted = np.exp(law.log_masses + ((theta * self.interval) * law.indices - log_moment))
            circle = np.bincount(law.indices % size, weights=tilted, minlength=size)
            spectrum = rfft(circle)
            exponent += count * np.log(np.where(spectrum == 0.0, 1e-300, spectrum))
            reach = self.interval * max(abs(law.start), abs(law.start + law.masses.size))
            relative += 8.0 * _ULP * count * (800.0 + abs(log_moment) + theta * reach)
            error += count * 2.0 * transform_error * float(np.linalg.norm(circle))
        circle = irfft(np.exp(exponent), n=size)
        # |(z + e)^k - z^k| <= k |e| e^(k |e|) for |z| <= 1
        error *= math.exp(min(error * math.sqrt(size), 700.0))
        powers = 16.0 * _ULP * sum(count for _, count in self.factors)
        error += (powers + transform_error) * float(np.linalg.norm(circle))
        tilted = np.roll(np.maximum(circle, 0.0), -(first % size))

        log_total = sum(count * value for (_, count), value in zip(self.factors, log_moments, strict=True))
        log_weights = log_total - (theta * self.interval) * np.arange(first, first + size)
        # Below this point an epsilon is not read off: the bound would exceed one.
        kept = min(size - 1, int(np.searchsorted(-log_weights, -300.0)))
        weights = np.exp(log_weights[kept:])
        # sum over the losses above of weight * |error| <= (l2 norm of their weights) * (l2 norm of the error)
        step = theta * self.interval
        spread = math.exp(-step) * math.sqrt(min(float(size), 1.0 / -math.expm1(-2.0 * step)))
        added = self._infinity() + math.exp(min(log_above, 0.0)) + error * spread * weights
        return _Window(self.interval, first + kept, tilted[kept:] * weights * (1.0 + relative), added)


@dataclass(frozen=True, eq=False)
class _Window:
    """Masses of a composed loss at `(first + j) * interval`; `added[j]` covers all that they miss above j.

    Masses below the window may be missing: only epsilons at or above its first point can be read off.
    """

    interval: float
    first: int
    masses: Array = field(repr=False)
    added: Array = field(repr=False)

    @cached_property
    def tails(self) -> Array:
        """Sums of the masses strictly above each grid point."""
        return np.append(np.cumsum(self.masses[:0:-1])[::-1], 0.0) * (1.0 + 2.0 * _ULP * self.masses.size)

    @cached_property
    def deltas(self) -> Array:
        """Sum over the losses above each grid point of mass * (1 - e^(point - loss)).

        From the recursion D_j = e^-h D_(j+1) + (1 - e^-h) tail_j, which only adds positive numbers.
        """
        from scipy.signal import lfilter

        decay = math.exp(-self.interval)
        return lfilter([-math.expm1(-self.interval)], [1.0, -decay], self.tails[::-1])[::-1] * (
            1.0 + 4.0 * _ULP * self.masses.size
        )

    def delta(self, epsilon: float) -> float:
        """Return the bound at an epsilon not below the window."""
        j = math.floor(epsilon / self.interval) - self.first
        if j < 0:
            return 1.0
        if j >= self.masses.size - 1:
            return min(1.0, float(self.added[-1]))
        # Between two grid points delta is tail - e^(epsilon - next) * (tail - D_next), exactly.
        gap = epsilon - (self.first + j + 1) * self.interval
        value = self.tails[j] - math.exp(min(gap, 0.0)) * max(self.tails[j] - self.deltas[j + 1], 0.0)
        return min(1.0, float(min(value, self.deltas[j]) + self.added[j]))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon, not below zero nor below the window, with a bound of at most `delta`."""
        fits = self.deltas + self.added <= delta
        # Bounds decrease along the window; rounding must not make an isolated point look like the first one.
        j = int(fits.size - np.argmin(fits[::-1])) if not fits.all() else 0
        if j == fits.size:
            return math.inf
        upper = (self.first + j) * self.interval
        if j == 0:
            return max(0.0, upper)
        excess = self.tails[j - 1] + self.added[j - 1] - delta + 4.0 * _ULP * (self.tails[j - 1] + delta)
        rest = self.tails[j - 1] - self.deltas[j]
        between = upper + math.log(excess / rest) if excess > 0.0 and rest > 0.0 else upper
        # A few ulps of the loss, because the subtraction is not exact.
        return max(0.0, min(upper, max(between, upper - self.interval) + 8.0 * _ULP * abs(upper)))


def gaussian(sigma: float, sensitivity: float, interval: float) -> PrivacyLoss:
    """Return the loss of one release with N(0, sigma^2 I) noise that looks at every record."""
    return sampled_gaussian(sigma, sensitivity, 1, 1, interval)


def sampled_gaussian(
    sigma: float,
    sensitivity: float,
    batch: int,
    population: int,
    interval: float,
    *,
    slack: float = 1e-20,
    epsilon: float = math.inf,
) -> PrivacyLoss:
    """Return a loss that dominates a Gaussian release of a batch drawn without replacement, size fixed.

    `sensitivity` is the distance when any one record of the batch is replaced by any other record. The largest losses
    count as infinite; they are chosen so that this adds at most `slack` to the delta of one release at epsilons up to
    `epsilon` (at any epsilon, unless given). Both choose the cost and never decide soundness.

    Theorem. Let q = batch/population and let d(a) be the hockey-stick divergence of order a between N(0, sigma^2) and
    N(sensitivity, sigma^2). The release is dominated, in both orders, by a pair of distributions with the profile
    H(a) = q d(1 + (a - 1)/q) for a >= 1 and H(a) = 1 - a + a H(1/a) for a < 1, and so an adaptive composition of such
    releases by the product of such pairs.

    Proof. (1) H bounds every step. Given what was released before, the outputs on the two neighbours are
    (1-q) m0 + q m1 and (1-q) m0 + q m1', where m0 belongs to the batches without the differing record. By
    advanced joint convexity (Balle, Barthe and Gaboardi 2018, Theorem 2) their divergence of order a >= 1 is
    q D_c(m1 || (1-b) m0 + b m1') with c = 1 + (a-1)/q and b = a/c. Batches can be coupled so that they differ in one
    record, m1 with m1' trivially and m1 with m0 by swapping the record for a uniform one outside the batch, so joint
    convexity bounds D_c by d(c). Orders below 1 follow from D_a(P||Q) = 1 - a + a D_(1/a)(Q||P), because the bound
    holds for both orders of the neighbours. (2) H is the profile of a pair. It decreases from H(0) = 1 to 0, is at
    least (1 - a)_+, and is convex: for a > 1 as d of an affine map, for a < 1 as an affine function plus the
    perspective of a convex one, and at a = 1 because with p = Phi(-sensitivity/(2 sigma)) the slopes are
    -1 + q(1-2p) + p on the left and -p on the right, and q(1-2p) <= 1-2p. Such a function is the profile of the pair
    whose likelihood ratio a has the law H''(da) under Q and a H''(da) under P. (3) Domination survives adaptive
    composition (Zhu, Dong and Wang 2022, Theorem 10).

    The pair in the open: with mu = sensitivity/sigma, a positive loss is log(1 - q + q e^(mu x - mu^2/2)) where
    x > mu/2 has the density of (1-q) N(0,1) + q N(mu,1) under P and of N(0,1) under Q; negative losses mirror this,
    P(-l) = e^-l P(l); the loss is zero with the remaining probability (1-q)(1-2p).
    """
    from scipy.special import erfcx, ndtr

    mu, q = _noise_ratio(sigma, sensitivity), _sampling_rate(batch, population)
    _check_interval(interval)
    if mu == 0.0:
        return _symmetric(interval, np.zeros(0), 0.0, 0.0)
    if math.isinf(mu):
        return _symmetric(interval, np.zeros(0), q, 0.0)

    last = _last_point(mu, q, slack, epsilon)
    largest = _sampled_loss(max(0.0, mu * (last - mu / 2.0)), q)
    cells = _check_cells(largest / interval, interval)

    log_a = _unsampled_loss(interval * np.arange(cells + 1, dtype=np.float64), q)
    x, z = log_a / mu + mu / 2.0, log_a / mu - mu / 2.0
    mass_q = -np.diff(ndtr(-x))
    mass_mu = np.where(z[:-1] > 0.0, -np.diff(ndtr(-z)), np.diff(ndtr(z)))
    mass_p = (1.0 - q) * mass_q + q * mass_mu
    # a Q{beyond x} without overflow, since a phi(x) = phi(z)
    scaled = 0.5 * np.exp(-0.5 * z * z) * erfcx(x / math.sqrt(2.0))
    scaled_mass_q = scaled[:-1] - np.exp(-np.diff(log_a)) * scaled[1:]
    # The cell between l and l + h keeps its probability under P and under Q if this much of it goes to l + h.
    raised = np.clip(q * (mass_mu - scaled_mass_q) / -math.expm1(-interval), 0.0, mass_p)
    masses = raised + np.append((mass_p - raised)[1:], 0.0)
    infinity = float((1.0 - q) * ndtr(-x[-1]) + q * ndtr(-z[-1]))
    # Tail sums carry the errors of x, z and the normal tails, magnified where a difference is divided by 1 - e^-h.
    rounding = 32.0 * _ULP * (4.0 + float(x[-1]) ** 2 + float(log_a[-1])) / -math.expm1(-interval)
    return _symmetric(interval, masses, infinity, rounding)


def poisson_gaussian(
    sigma: float,
    sensitivity: float,
    batch: int,
    population: int,
    interval: float,
    *,
    slack: float = 1e-20,
    epsilon: float = math.inf,
) -> PrivacyLoss:
    """Return a loss that dominates a Gaussian release of a Poisson batch; nothing smaller dominates all such releases.

    Each record is in the batch independently with probability q = batch/population, and `sensitivity` bounds the norm
    of what one record adds to the query. `slack` and `epsilon` are those of `sampled_gaussian`.

    Theorem. In units of sigma and with r = sensitivity/sigma, the release is dominated in both orders by
    P = (1-q) N(0,1) + q N(r,1) against Q = (1-q) N(0,1) + q N(-r,1).

    Proof. The draws of the other records have the same law on both neighbours, so by joint convexity they may be
    given, and what they add may be subtracted. What is left is (1-q) N_0 + q N_u against (1-q) N_0 + q N_v with
    |u|, |v| <= r and N_m = N(m, I). Let a >= 1. The divergence of order a is the integral of the positive part of
    q N_u - [(a-1)(1-q) N_0 + a q N_v], which is q E(1 - l)_+ under N_u with l = ((a-1)(1-q)/q) N_0/N_u + a N_v/N_u.
    At the point u + g, g standard normal, N_m/N_u = exp(X - Var(X)/2) with X = <m - u, g>, so l is a positive
    combination of two such log-normals whose Gaussian exponents have variances |u|^2 and |u - v|^2 and covariance
    <u, u - v>. All three are largest, namely r^2, 4r^2 and 2r^2, when u and v are opposite and of length r. Kahane's
    inequality (Kahane 1985): the expectation of a convex function of such a combination, here (1 - l)_+, does not fall
    when covariances grow. Orders below 1 follow from D_a(P||Q) = 1 - a + a D_(1/a)(Q||P), the bound being the same for
    both orders by reflection. Domination survives adaptive composition (Zhu, Dong and Wang 2022, Theorem 10). The pair
    is met by a record that adds r and one that adds -r along one direction while the others add zero.

    The loss log((1 - q + q e^(r x - r^2/2)) / (1 - q + q e^(-r x - r^2/2))) grows with x and is odd; P at -x is Q at x.
    """
    from scipy.special import erfcx, ndtr

    r, q = _noise_ratio(sigma, sensitivity), _sampling_rate(batch, population)
    _check_interval(interval)
    if r == 0.0:
        return _symmetric(interval, np.zeros(0), 0.0, 0.0)
    if math.isinf(r):
        return _symmetric(interval, np.zeros(0), q, 0.0)

    last = max(0.0, _last_point(r, q, slack, epsilon))
    largest = _sampled_loss(r * (last - r / 2.0), q) - _sampled_loss(-r * (last + r / 2.0), q)
    cells = _check_cells(largest / interval, interval)

    losses = interval * np.arange(cells + 1, dtype=np.float64)
    x = _poisson_point(losses, r, q)
    z = x - r
    mass_r = np.where(z[:-1] > 0.0, -np.diff(ndtr(-z)), np.diff(ndtr(z)))
    mass_p = (1.0 - q) * -np.diff(ndtr(-x)) + q * mass_r
    # e^l N_0{beyond x} and e^l N_(-r){beyond x} without overflow: e^l is the ratio of the densities at x.
    ratio = np.exp(-r * x - 0.5 * r * r)
    weight = 0.5 * ((1.0 - q) * np.exp(-0.5 * x * x) + q * np.exp(-0.5 * z * z)) / (1.0 - q + q * ratio)
    scaled_0 = weight * erfcx(x / math.sqrt(2.0))
    scaled_r = weight * ratio * erfcx((x + r) / math.sqrt(2.0))
    decay = math.exp(-interval)
    # The cell between l and l + h keeps its probability under P and under Q if (P - e^l Q) / (1 - e^-h) goes to l + h.
    difference = q * (mass_r - (scaled_r[:-1] - decay * scaled_r[1:]))
    difference += (1.0 - q) * np.expm1(-losses[:-1]) * (scaled_0[:-1] - decay * scaled_0[1:])
    raised = np.clip(difference / -math.expm1(-interval), 0.0, mass_p)
    masses = raised + np.append((mass_p - raised)[1:], 0.0)
    infinity = float((1.0 - q) * ndtr(-x[-1]) + q * ndtr(-z[-1]))
    # As in `sampled_gaussian`; a small r cancels in the differences as well.
    spread = 4.0 + float(x[-1]) ** 2 + float(losses[-1]) + r * r - math.log(q)
    rounding = 32.0 * _ULP * spread * (1.0 + 1.0 / r) / -math.expm1(-interval)
    return _symmetric(interval, masses, infinity, rounding)


def laplace(scale: float, sensitivity: float, interval: float) -> PrivacyLoss:
    """Return the loss of one scalar release with Laplace noise of density e^(-|x|/scale) / (2 scale).

    With e = sensitivity/scale the loss is e with probability 1/2 and has the density e^(-(e - l)/2) / 4 on (-e, e).
    """
    ratio = _ratio("scale", scale, sensitivity)
    _check_interval(interval)
    if ratio == 0.0:
        return _symmetric(interval, np.zeros(0), 0.0, 0.0)
    if math.isinf(ratio):
        return _symmetric(interval, np.zeros(0), 1.0, 0.0)
    cells = _check_cells(ratio / interval, interval)
    lower = interval * np.arange(cells)
    width = np.minimum(ratio - lower, interval).clip(0.0)
    density = 0.5 * np.exp(-0.5 * (ratio - lower))
    mass = density * np.expm1(0.5 * width)
    raised = density * (2.0 * np.sinh(0.25 * width)) ** 2 / -math.expm1(-interval)
    raised[-1] += 0.5 * _raised_share(ratio, cells, interval)
    mass[-1] += 0.5
    raised = np.minimum(raised, mass)
    masses = raised + np.append((mass - raised)[1:], 0.0)
    return _symmetric(interval, masses, 0.0, 32.0 * _ULP * (4.0 + cells + ratio))


def pure(epsilon0: float, interval: float) -> PrivacyLoss:
    """Return a loss that dominates every pure epsilon0-DP release.

    Randomised response that tells the truth with probability e^epsilon0 / (1 + e^epsilon0) dominates them all
    (Kairouz, Oh and Viswanath 2015). An interval that divides epsilon0 makes the grid exact.
    """
    _check_number("epsilon0", epsilon0)
    _check_interval(interval)
    if epsilon0 == 0.0:
        return _symmetric(interval, np.zeros(0), 0.0, 0.0)
    cells = _check_cells(epsilon0 / interval, interval)
    mass = 1.0 / (1.0 + math.exp(-epsilon0))
    masses = np.zeros(cells)
    masses[-1] = mass * _raised_share(epsilon0, cells, interval)
    if cells > 1:
        masses[-2] = mass - masses[-1]
    return _symmetric(interval, masses, 0.0, 32.0 * _ULP)


def refined_epsilon(
    build: Callable[[float, float], PrivacyLoss],
    delta: float,
    bound: float,
    tolerance: float = 0.003,
    enough: float | None = None,
) -> float:
    """Return an upper bound on the epsilon of a composition at `delta`, refining the grid until it settles.

    `build(interval, epsilon)` makes the composition on a grid; `epsilon` is a bound already known, for constructors
    that can use it. `bound` is a finite bound known beforehand. The interval is divided by four until the answer
    changes by less than `tolerance`, relatively, or the grid grows too large; the error falls at least in proportion
    to the interval, so what is left is about a third of the last change. The smallest answer is returned: each of
    them is a bound. With `enough` the refinement ends as soon as it is known on which side of it the answer lies: it is
    reached, or so far off that another change like the last would not do.
    """
    check_delta(delta)
    best, previous, interval = bound, math.inf, bound / 64.0
    while interval > 0.0 and (enough is None or best > enough):
        try:
            value = build(interval, best).epsilon(delta)
        except GridTooFine:
            break
        best = min(best, value)
        if previous - value <= tolerance * value:
            break
        if enough is not None and 2.0 * value - previous > enough:
            break
        previous = value
        interval = min(interval / 4.0, best / 64.0)
    return best


def known_batches_epsilon(
    sigma: float, sensitivity: float, batch: int, population: int, count: int, delta: float
) -> float:
    """Return an upper bound on the epsilon of `count` sampled Gaussian releases whose batches may be published.

    Batches do not depend on the data, so neighbours can share them. Given batches of which J contain the differing
    record, the releases are (sqrt(J) sensitivity/sigma)-GDP, the others being equal in law. By joint convexity
    delta(epsilon) <= E[delta of J releases], J ~ Binomial(count, batch/population). There is no grid in it, and it
    is exact for full batches.
    """
    from scipy.special import log_ndtr
    from scipy.stats import binom

    mu, q = _noise_ratio(sigma, sensitivity), _sampling_rate(batch, population)
    _check_count("count", count, smallest=0)
    check_delta(delta)
    if count == 0 or mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return math.inf if probability_sampled(batch, population, count) > delta else 0.0
    if q == 1.0:
        return gaussian_epsilon(mu * math.sqrt(count), delta)

    # Fewer releases cost less: the lower tail of J may be counted with its largest member.
    few, many = int(binom.ppf(1e-9, count, q)), int(binom.isf(1e-5 * delta, count, q))
    times = np.arange(few, many + 1)
    weights = binom.pmf(times, count, q) * (1.0 + 1e-9)
    weights[0] = min(1.0, float(binom.cdf(few, count, q)) * (1.0 + 1e-9))
    beyond = float(binom.sf(many, count, q)) * (1.0 + 1e-9)
    weights, mus = weights[times > 0], mu * np.sqrt(times[times > 0])

    def bound(epsilon: float) -> float:
        first = log_ndtr(mus / 2.0 - epsilon / mus)
        second = epsilon + log_ndtr(-mus / 2.0 - epsilon / mus) - 32.0 * _ULP * (1.0 + epsilon + mus**2)
        return beyond + float(weights @ (np.exp(first) * -np.expm1(np.minimum(0.0, second - first))))

    if bound(0.0) <= delta:
        return 0.0
    low, high = 0.0, gaussian_epsilon(mu * math.sqrt(count), delta)
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if bound(middle) <= delta else (middle, high)
    return high


def sampled_gaussian_epsilon_lower(
    sigma: float, sensitivity: float, batch: int, population: int, count: int, delta: float
) -> float:
    """Return a lower bound on the epsilon at `delta` of `count` sampled Gaussian releases of the worst query.

    The instance: the differing record contributes s = sensitivity/sigma along one direction when it is sampled, its
    replacement and all other records contribute zero (any two contributions are at most s apart). In units of
    sigma, the releases along the direction are independent draws of P = (1-q) N(0,1) + q N(s,1) on one dataset and
    of Q = N(0,1) on the other. (epsilon, delta)-DP means P(E) <= e^epsilon Q(E) + delta for every event, so each event
    with P(E) > delta proves epsilon >= log((P(E) - delta) / Q(E)). Two families of events are searched, and both have
    closed probabilities:

    * at least j releases exceed a threshold c: binomial tails with success probabilities (1-q) Phi(-c) + q Phi(s-c)
      and Phi(-c), the latter bounded by binom(count, j) Phi(-c)^j where it underflows;
    * the sum of the releases exceeds c: a binomial mixture of normal tails against a normal tail.

    The first shows what too little noise gives away: with probability above delta the record is sampled j times, and
    each of these releases stands out. A value above a claimed epsilon refutes the claim for the releases of a general
    query with this sensitivity, not for a particular loss.
    """
    from scipy.special import log_ndtr

    s, q = _noise_ratio(sigma, sensitivity), _sampling_rate(batch, population)
    return _proven_epsilon(s, q, count, delta, lambda c: log_ndtr(-c))


def poisson_gaussian_epsilon_lower(
    sigma: float, sensitivity: float, batch: int, population: int, count: int, delta: float
) -> float:
    """Return a lower bound on the epsilon at `delta` of `count` releases as in `poisson_gaussian` of the worst query.

    As `sampled_gaussian_epsilon_lower`, for the instance that meets the dominating pair: the differing record adds
    r = sensitivity/sigma along one direction, its replacement -r, and all others zero.
    """
    from scipy.special import log_ndtr

    r, q = _noise_ratio(sigma, sensitivity), _sampling_rate(batch, population)
    # log of (1-q) P(N > c) + q P(N > c + r)
    return _proven_epsilon(
        r, q, count, delta, lambda c: log_ndtr(-c) + np.log1p(q * np.expm1(log_ndtr(-c - r) - log_ndtr(-c)))
    )


def _proven_epsilon(s: float, q: float, count: int, delta: float, log_other: Callable[[Array], Array]) -> float:
    """Return the largest epsilon that the two families of events prove.

    `log_other` gives the log-probability of a release beyond c on the other dataset, at most that of N(0,1).
    """
    from scipy.special import gammaln, log_ndtr, ndtr
    from scipy.stats import binom

    _check_count("count", count, smallest=0)
    check_delta(delta)
    if count == 0 or s == 0.0:
        return 0.0
    if math.isinf(s):
        return math.inf if _ever(q, count) > delta else 0.0

    def proven(probability: Array, log_other: Array) -> float:
        """Largest log((P - delta) / Q), with room for the rounding of P and Q."""
        excess = probability * (1.0 - 1e-9) - delta
        kept = excess > 0.0
        values = np.log(excess[kept]) - (log_other[kept] + 1e-9 + 32.0 * _ULP * np.abs(log_other[kept]))
        return float(values.max(initial=0.0))

    c = np.concatenate([np.linspace(0.0, s + 6.0, 200), s + np.linspace(-6.0, 6.0, 121)])[:, None]
    most = max(1, int(binom.isf(delta, count, q + (1.0 - q) * 0.5)))
    j = np.unique(np.geomspace(1.0, most, 48).round()).astype(int)
    j = np.union1d(j, np.arange(1, min(most, 24) + 1))[None, :]
    at_least_j = binom.sf(j - 1, count, (1.0 - q) * ndtr(-c) + q * ndtr(s - c))
    log_one = log_other(c)
    with np.errstate(divide="ignore"):
        log_tail = np.log(np.where((tail := binom.sf(j - 1, count, np.exp(log_one))) > 1e-290, tail, np.inf))
    log_union = gammaln(count + 1.0) - gammaln(j + 1.0) - gammaln(count - j + 1.0) + j * log_one
    # gammaln cancels: room for a few ulps of its largest value
    log_union = log_union + 8.0 * _ULP * (1.0 + abs(float(gammaln(count + 1.0))))
    best = proven(at_least_j, np.minimum(log_tail, log_union))

    few, many = int(binom.ppf(1e-12, count, q)), int(binom.isf(1e-3 * delta, count, q))
    times = np.unique(np.linspace(few, many, min(many - few + 1, 4000)).astype(int))
    root = math.sqrt(count)
    c = np.linspace(0.0, many * s + 8.0 * root, 600)[:, None]
    above = ndtr((times[None, :] * s - c) / root) @ binom.pmf(times, count, q)
    return max(best, proven(above, log_ndtr(-c[:, 0] / root)))


def probability_sampled(batch: int, population: int, count: int) -> float:
    """Return the probability that a given record is in at least one of `count` batches."""
    _check_count("count", count, smallest=0)
    return _ever(_sampling_rate(batch, population), count)


def _ever(q: float, count: int) -> float:
    """Return the probability of at least one success in `count` trials."""
    if q == 1.0:
        return 1.0 if count else 0.0
    return -math.expm1(count * math.log1p(-q))


def _last_point(shift: float, q: float, slack: float, epsilon: float) -> float:
    """Return the point beyond which losses may count as infinite for P = (1-q) N(0,1) + q N(shift,1).

    That costs P{beyond}, and at a given epsilon also only e^epsilon Q{beyond}, Q{beyond} being at most that of N(0,1).
    """
    from scipy.special import ndtri, ndtri_exp

    if not 0.0 < slack < 1.0:
        raise UserError(f"slack is {slack!r}: give a number strictly between 0 and 1.")
    last = max(shift - float(ndtri(min(0.5, slack / (2.0 * q)))), -float(ndtri(slack / 2.0)))
    if math.isfinite(epsilon):
        last = min(last, -float(ndtri_exp(math.log(slack) - epsilon)))
    return last


def _poisson_point(losses: Array, r: float, q: float) -> Array:
    """Return where the loss of `poisson_gaussian` has the given values >= 0.

    With y = e^(r x) this is a quadratic equation; its root is r x = l/2 + arsinh((1-q) e^(r^2/2) sinh(l/2) / q).
    """
    if q == 1.0:
        return losses / (2.0 * r)
    with np.errstate(divide="ignore"):
        log_sinh = losses / 2.0 + np.log(-np.expm1(-losses)) - math.log(2.0)
    log_t = math.log1p(-q) - math.log(q) + 0.5 * r * r + log_sinh
    arsinh = np.where(log_t < 20.0, np.arcsinh(np.exp(np.minimum(log_t, 20.0))), log_t + math.log(2.0))
    return (losses / 2.0 + arsinh) / r


def _symmetric(interval: float, masses: Array, infinity: float, rounding: float) -> PrivacyLoss:
    """Return the loss with `masses` at interval, 2 interval, ..., their mirror P(-l) = e^-l P(l), and the rest at zero.

    `rounding` bounds the relative error of the sums of masses from any point outwards. Sums over positive losses are
    raised by it and sums over negative losses lowered, so that every upper tail is at least the true one.
    """
    used = int(np.flatnonzero(masses)[-1]) + 1 if masses.any() else 0
    positive = masses[:used] * (1.0 + rounding)
    negative = masses[:used] * np.exp(-interval * np.arange(1, used + 1)) * max(0.0, 1.0 - rounding)
    infinity = min(1.0, infinity * (1.0 + rounding))
    zero = max(0.0, 1.0 - infinity - math.fsum(positive) - math.fsum(negative)) + 2.0 * _ULP
    law = Law(interval, -used, np.concatenate([negative[::-1], [zero], positive]), infinity)
    return PrivacyLoss(interval, ((law, 1),))


def _raised_share(loss: float, cells: int, interval: float) -> float:
    """Share of an atom that goes to grid point `cells`, the rest going one lower; raised by the error of `loss`."""
    above = loss - (cells - 1) * interval
    return min(1.0, -math.expm1(-above) / -math.expm1(-interval) + 8.0 * _ULP * cells)


def _sampled_loss(log_a: float, q: float) -> float:
    """Return log(1 - q + q a)."""
    return log_a if q == 1.0 else float(np.logaddexp(math.log1p(-q), math.log(q) + log_a))


def _unsampled_loss(losses: Array, q: float) -> Array:
    """Return log(1 + (e^l - 1)/q), the inverse of `_sampled_loss`, for losses >= 0."""
    small = np.log1p(np.expm1(np.minimum(losses, 1.0)) / q)
    return np.where(losses < 1.0, small, losses + np.log(np.exp(-losses) - np.expm1(-losses) / q))


def _log_sum_exp(values: Array) -> float:
    largest = float(values.max())
    return largest + math.log(float(np.exp(values - largest).sum()))


def _argmin(objective: Callable[[float], float], largest: float) -> float:
    """Return a near minimiser in (0, largest] of a function with one valley; only tightness depends on it."""
    from scipy.optimize import minimize_scalar

    ends = (math.log(largest) - 30.0, math.log(largest))
    found = minimize_scalar(
        lambda t: objective(math.exp(t)), bounds=ends, method="bounded", options={"xatol": 0.02, "maxiter": 60}
    )
    return math.exp(float(found.x))


def _noise_ratio(sigma: float, sensitivity: float) -> float:
    return _ratio("sigma", sigma, sensitivity)


def _ratio(name: str, noise: float, sensitivity: float) -> float:
    """Return sensitivity over noise, infinite without noise."""
    _check_number(name, noise)
    _check_number("sensitivity", sensitivity)
    if sensitivity == 0.0:
        return 0.0
    return math.inf if noise == 0.0 else sensitivity / noise


def _sampling_rate(batch: int, population: int) -> float:
    _check_count("population", population, smallest=1)
    _check_count("batch", batch, smallest=1)
    if batch > population:
        raise UserError(f"batch is {batch} of {population} records: give a batch no larger than the population.")
    return batch / population


def _check_number(name: str, value: float) -> None:
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0.0 <= value < math.inf:
        raise UserError(f"{name} is {value!r}: give a finite number >= 0.")


def _check_count(name: str, value: int, smallest: int) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < smallest:
        raise UserError(f"{name} is {value!r}: give a whole number >= {smallest}.")


def _check_interval(interval: float) -> None:
    if not isinstance(interval, numbers.Real) or not 0.0 < interval < math.inf:
        raise UserError(f"interval is {interval!r}: give a finite number > 0 (a small part of the expected epsilon).")


def _check_cells(cells: float, interval: float) -> int:
    """Return a number of grid points, rounded up, or refuse it."""
    if not cells <= MAX_CELLS:
        raise GridTooFine(
            f"The privacy loss needs {cells:.3g} grid points of width {interval:.3g} (at most {MAX_CELLS} are kept): "
            "give a larger interval."
        )
    return max(1, math.ceil(cells))
