"""Losses of the whole vector w that are no functions of <w, x>: means of values and gradients over weighted atoms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dprepro.errors import positive
from dprepro.losses import Loss

Array = Any


class VectorLoss(Loss):
    """Base of the vector losses. Atoms are X (M, d) with labels y (M,), points W (K, d).

    `shares` (M, K) or (M, 1) are the weights of the atoms for each point; every column sums to one, but for Poisson
    batches, whose size is one in expectation.
    """

    glm = False

    def mean_value(self, xp: Any, W: Array, X: Array, y: Array, shares: Array) -> Array:
        """Return sum_m shares[m, k] f(w_k; x_m, y_m) as an array (K,)."""
        raise NotImplementedError

    def mean_gradient(self, xp: Any, W: Array, X: Array, y: Array, shares: Array) -> Array:
        """Return sum_m shares[m, k] grad f(w_k; x_m, y_m): (K, d)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Valley(VectorLoss):
    """A valley that falls ever more slowly, not convex, between walls that depend on the data.

    With w = (u, v), a row x = (0, z) and a label c in [0, 1] (clipped to it),
    f(w; x, c) = slope psi(u) + c H(||v||) - PULL <z, v>, where H is the Huber function of width WIDTH and, for u >= 0,
    psi(u) = 4 (1+u)^(-1/4) - 4 + WAVE (1+u)^(-5/4) sin(u)^2, and psi(u) = -u below. No point is stationary: along the
    valley the gradient is of order u^(-5/4), so that t steps of gradient descent bring it to t^(-5/9), close to the
    t^(-1/2) of the worst case, and the number of steps matters. If the rows have the mean zero, the infimum is -4
    slope. |psi'| <= 1, and |psi''| is largest at 0 with 5/4 + 2 WAVE.
    """

    slope: float = 0.2
    name = "valley"
    convex = False

    WAVE = 0.5
    WIDTH = 0.6
    PULL = 0.3

    def __post_init__(self) -> None:
        positive(f"The slope of the loss {self.name!r}", self.slope)

    def mean_value(self, xp: Any, W: Array, X: Array, y: Array, shares: Array) -> Array:
        """Return the mean of the loss (K,): data enter by the means of c and z alone."""
        u, v = W[:, 0], W[:, 1:]
        c, z = self._means(xp, X, y, shares)
        inside = xp.minimum(length := _norm(xp, v), self.WIDTH)
        along = xp.sum(shares, axis=0) * self.slope * self._psi(xp, u)
        return along + c * inside * (length - 0.5 * inside) - self.PULL * xp.vecdot(z, v)

    def mean_gradient(self, xp: Any, W: Array, X: Array, y: Array, shares: Array) -> Array:
        """Return the mean gradient (K, d)."""
        u, v = W[:, 0], W[:, 1:]
        c, z = self._means(xp, X, y, shares)
        pull = (c * _shrink(xp, _norm(xp, v), self.WIDTH))[:, None] * v - self.PULL * z
        along = xp.sum(shares, axis=0) * self.slope * self._psi_slope(xp, u)
        return xp.concat([along[:, None], pull], axis=1)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return the length of the largest slopes along and across the valley."""
        return math.hypot(self.slope, self.WIDTH * min(label_bound, 1.0) + self.PULL * row_norm)

    def smoothness(self, row_norm: float) -> float:
        """Return the larger curvature of the two parts, which share no coordinate."""
        return max(1.0, self.slope * (1.25 + 2.0 * self.WAVE))

    def _means(self, xp: Any, X: Array, y: Array, shares: Array) -> tuple[Array, Array]:
        weights = xp.matrix_transpose(shares)
        return weights @ xp.clip(y, 0.0, 1.0), weights @ X[:, 1:]

    def _psi(self, xp: Any, u: Array) -> Array:
        sine, above = xp.sin(u), 1.0 + xp.maximum(u, 0.0 * u)
        falling = 4.0 * above**-0.25 - 4.0 + self.WAVE * above**-1.25 * sine * sine
        return xp.where(u >= 0.0, falling, -u)

    def _psi_slope(self, xp: Any, u: Array) -> Array:
        sine, above = xp.sin(u), 1.0 + xp.maximum(u, 0.0 * u)
        wave = self.WAVE * (1.25 * sine * sine / above - xp.sin(2.0 * u))
        return xp.where(u >= 0.0, -(above**-1.25) * (1.0 + wave), -xp.ones_like(u))


@dataclass(frozen=True)
class HuberMean(VectorLoss):
    """r^2/2 for r = ||w - x|| <= B, B r - B^2/2 beyond: the loss of ABG23's Theorem 4.3 with L1 = 1 and L0 = B.

    Labels play no part. Where all rows are within B of w, its gradient is w minus their mean.
    """

    B: float = 1.0
    name = "huber_mean"

    def __post_init__(self) -> None:
        positive(f"The width of the loss {self.name!r}", self.B)

    def mean_value(self, xp: Any, W: Array, X: Array, y: Array, shares: Array) -> Array:
        """Return the mean of the loss (K,)."""
        r = self._distances(xp, W, X)
        inside = xp.minimum(r, self.B)
        return xp.sum(shares * inside * (r - 0.5 * inside), axis=0)

    def mean_gradient(self, xp: Any, W: Array, X: Array, y: Array, shares: Array) -> Array:
        """Return the mean gradient (K, d)."""
        weights = shares * _shrink(xp, self._distances(xp, W, X), self.B)
        return xp.sum(weights, axis=0)[:, None] * W - xp.matrix_transpose(weights) @ X

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return B."""
        return self.B

    def smoothness(self, row_norm: float) -> float:
        """Return 1."""
        return 1.0

    def _distances(self, xp: Any, W: Array, X: Array) -> Array:
        """Return ||w_k - x_m|| as an array (M, K), short ones to half the digits: no gradient depends on those."""
        squares = xp.vecdot(X, X)[:, None] + xp.vecdot(W, W)[None, :] - 2.0 * (X @ xp.matrix_transpose(W))
        return xp.sqrt(xp.maximum(squares, 0.0 * squares))


def _norm(xp: Any, v: Array) -> Array:
    return xp.sqrt(xp.vecdot(v, v))


def _shrink(xp: Any, length: Array, width: float) -> Array:
    """Return min(1, width / length): what the slope of a Huber function is to that of a parabola."""
    return width / xp.maximum(length, width + 0.0 * length)


VECTOR_LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (Valley, HuberMean)}
