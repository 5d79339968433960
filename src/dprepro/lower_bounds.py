"""Lower bounds on the gradient norm that no algorithm beats, with explicit constants (ABG23, Theorems 4.3 and A.2).

The paper proves both up to a hidden constant. Here each comes twice: as an explicit number that is proven below, and
as the theorem's own expression with the constant 1, which shows how the bound scales but bounds nothing by itself.

**Sampling (Theorem A.2), `bias_bound`.** The records are +1 or -1 with mean v p, p = 1/sqrt(16 n), and v is a sign that
nobody knows. F_v'(w) = L0 v p/2 + L1/2 Delta'(w), so that at every w

    |F_+'(w)| + |F_-'(w)| >= |F_+'(w) - F_-'(w)| = L0 p.

Whatever an algorithm makes of n samples, the mean over v of E|F_v'(w)| is therefore at least half of L0 p times the
mass that the two laws of the samples have in common: L0 p/2 (1 - TV). The number of +1 is all that a sample tells, so
that TV is the distance of two binomial laws, an exact sum. This needs no case distinction, and no privacy.

**Privacy (Theorem 4.3), `mean_bound`.** The loss is the radial Huber function of w - x with its bend at B = L0/L1,
which is L0-Lipschitz and L1-smooth. For signs v in {-1, 1}^m, m = d - 1, the data are k records v_j (B/4) e_j for each
of the first m coordinates j, and n - k m records at one point u on the last axis, of length at most B/4. Their mean is
c + r v on the first coordinates, with c = (1 - k m/n) u and r = (k/n)(B/4).

1. At every w, ||grad F(w)|| >= L1 min(||w - mean||, B/2): within B/2 of the mean, which lies in the ball of radius B/4,
   no record is farther than B, so that F is quadratic there; further out the slope along the ray from the mean does not
   fall, as F is convex.
2. Let w' be w with its first m coordinates clipped to -r .. r and the last one set to that of c. This is the projection
   onto a convex set with the mean in it, and no two points of this set are farther from each other than
   2 r sqrt(m) <= B/2, as k m <= n. So ||w' - mean|| <= min(||w - mean||, B/2), and
   ||grad F(w)|| >= L1 ||w' - mean|| >= L1 ||w' - mean||_1 / sqrt(m).
3. For w'_j in -r .. r, |w'_j - r v_j| = r - v_j w'_j. Averaged over v_j, with the other signs fixed, its expectation is
   at least r (1 - TV), TV the distance between the laws of the output on the two datasets.
4. These datasets differ in k records. An (epsilon, delta)-DP algorithm is (k epsilon, delta_k)-DP for them, with
   delta_k = delta (e^(k epsilon) - 1)/(e^epsilon - 1): every event A has P(A) <= e^(k epsilon) Q(A) + delta_k. Adding
   this for A and, the other way round, for its complement gives 1 - TV >= 2 (1 - delta_k)/(1 + e^(k epsilon)).

Together, the mean over all signs v, and so the largest, of E||grad F(w)|| is at least

    sqrt(m) (k/n) (L0/2) (1 - delta_k)/(1 + e^(k epsilon)).

It lacks the factor sqrt(ln(1/delta)) of the theorem, which comes from fingerprinting codes. An algorithm that treats
both signs of a coordinate alike, such as one that starts at 0 and steps along gradients with isotropic noise, has the
same error for all v, so that one v shows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dprepro.errors import UserError, positive
from dprepro.privacy.accounting import check_delta, check_epsilon


@dataclass(frozen=True)
class LowerBound:
    """A proven number, and the theorem's expression with its hidden constant taken as 1."""

    explicit: float
    shape: float


def bias_bound(n: int, L0: float = 1.0) -> LowerBound:
    """Return the bound for n samples of the two-point family of Theorem A.2: about 0.1 L0/sqrt(n), and L0/sqrt(n)."""
    _check_records(n)
    positive("L0", L0)
    return LowerBound(0.5 * L0 * bias(n) * (1.0 - _total_variation(n)), L0 / math.sqrt(n))


def bias(n: int) -> float:
    """Return p = 1/sqrt(16 n), the mean of the records of Theorem A.2 up to its sign."""
    return 1.0 / math.sqrt(16.0 * n)


def _total_variation(n: int) -> float:
    """Return the distance between the laws of n samples with the means p and -p.

    The likelihood ratio grows with the number of +1, so that it is the difference of the probabilities that these are
    more, or less, than half.
    """
    from scipy.special import bdtr, bdtrc

    up = 0.5 * (1.0 + bias(n))
    more, less = bdtrc(n // 2, n, up), bdtr((n - 1) // 2, n, up)
    return float(more - less)


def mean_bound(n: int, d: int, epsilon: float, delta: float, copies: int, L0: float = 1.0) -> LowerBound:
    """Return the bound for the signed means of Theorem 4.3 in d >= 2 dimensions, k = `copies` records for each sign.

    Without privacy (epsilon = inf) both are zero.
    """
    _check_records(n)
    check_epsilon(epsilon)
    check_delta(delta)
    positive("L0", L0)
    if d < 2 or copies < 1 or copies * (d - 1) > n:
        raise UserError(
            f"{copies} records for each of {d} - 1 signs do not fit into n = {n}: give d >= 2, more records."
        )
    if math.isinf(epsilon):
        return LowerBound(0.0, 0.0)
    explicit = 0.5 * L0 * math.sqrt(d - 1) / n * _hidden(copies, epsilon, delta)
    shape = L0 * min(1.0, math.sqrt(d * math.log(1.0 / delta)) / (n * epsilon))
    return LowerBound(explicit, shape)


def _hidden(k: int, epsilon: float, delta: float) -> float:
    """Return k (1 - delta_k)/(1 + e^(k epsilon)), at least 0: what k records hide together."""
    if k * epsilon > 700.0:
        return 0.0
    group_delta = delta * math.expm1(k * epsilon) / math.expm1(epsilon)
    return k * max(0.0, 1.0 - group_delta) / (1.0 + math.exp(k * epsilon))


def _check_records(n: int) -> None:
    if n < 1:
        raise UserError(f"n is {n}: give a whole number >= 1.")
