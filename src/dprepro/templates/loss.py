"""MyLoss: log cosh(t - y), a parabola near its label and an absolute value far from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dprepro.losses import Loss

Array = Any


@dataclass(frozen=True)
class MyLoss(Loss):
    """log cosh(t - y) for t = <w, x>: convex and smooth. G = row norm, L = row norm^2."""

    name = "my_loss"  # as the file
    residual = True  # a function of t - y; one of y t, for labels -1 and 1, has margin = True instead
    convex = True  # privacy rests on it where an algorithm needs it: say False unless you know
    smooth = True

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return log cosh(t - y) without overflow."""
        r = xp.abs(t - y)
        return r + xp.log1p(xp.exp(-2.0 * r)) - math.log(2.0)

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return the derivative in t."""
        return xp.tanh(s - y)

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return the second derivative in t, which finds the optimum that figures compare with."""
        return 1.0 - xp.tanh(t - y) ** 2

    # The two constants: sensitivities, and hence noise, are computed from the first, steps from the second.

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return a bound on the gradient norm of one sample: |tanh| <= 1, times the row."""
        return row_norm

    def smoothness(self, row_norm: float) -> float:
        """Return a Lipschitz constant of that gradient: the curvature is at most 1."""
        return row_norm**2


LOSS = MyLoss
