"""Scalar losses of generalized linear models: value, derivatives and constants.

A loss is phi(t, y) with t = <w, x>. A *margin* loss depends on y t alone; the data are then stored as y x, and
the label argument is ignored. Every derivative is written as `outer * core(inner * t) + constant`, so that a full
gradient costs two matrix products and one elementwise function: scale and constant are applied outside the loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from dprepro.errors import UserError

Array = Any


class Loss:
    """Base of the losses; arrays are of the namespace `xp`, t and y of equal or broadcastable shape."""

    name: ClassVar[str]
    margin: ClassVar[bool] = False
    convex: ClassVar[bool] = True
    smooth: ClassVar[bool] = True
    inner: ClassVar[float] = 1.0
    outer: ClassVar[float] = 1.0
    constant: ClassVar[float] = 0.0

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return phi(t, y)."""
        raise NotImplementedError

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return the elementwise part of the derivative at s = inner * t."""
        raise NotImplementedError

    def derivative(self, xp: Any, t: Array, y: Array) -> Array:
        """Return the derivative of phi in t."""
        return self.outer * self.core(xp, self.inner * t, y) + self.constant

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return the second derivative of phi in t."""
        raise NotImplementedError

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return G: a bound on the gradient norm of one sample for ||x|| <= row_norm, ||w|| <= radius."""
        raise NotImplementedError

    def gradient_spread(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return a bound on ||grad f(w, z) - grad f(v, z)|| for one sample z: at most 2 G."""
        return 2.0 * self.lipschitz(row_norm, radius, label_bound)

    def smoothness(self, row_norm: float) -> float:
        """Return L: a Lipschitz constant of the gradient of one sample for ||x|| <= row_norm."""
        raise NotImplementedError


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-y t)): the usual logistic loss. G = row norm, L = row norm^2 / 4."""

    name = "logistic"
    margin = True
    inner = 0.5
    outer = 0.5
    constant = -0.5

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return log(1 + exp(-t)) without overflow."""
        return _softplus(xp, -t)

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return tanh(s): the derivative is (tanh(t/2) - 1) / 2, an identity that cannot overflow."""
        return _tanh(xp, s)

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return sigmoid(t) sigmoid(-t)."""
        th = xp.tanh(0.5 * t)
        return 0.25 * (1.0 - th * th)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return the row norm: the derivative lies in an interval of length one next to zero."""
        return row_norm

    def gradient_spread(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return the row norm: two derivatives in one interval of length one differ by at most one."""
        return row_norm

    def smoothness(self, row_norm: float) -> float:
        """Return row_norm^2 / 4."""
        return 0.25 * row_norm**2


@dataclass(frozen=True)
class LogisticAsPrinted(Logistic):
    """log(1 + exp(1 + y t)), as WYX17's appendix A prints it: label flipped, margin shifted by one."""

    name = "logistic_as_printed"
    constant = 0.5

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return log(1 + exp(1 + t)) without overflow."""
        return _softplus(xp, 1.0 + t)

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return tanh(s + 1/2): the derivative is (1 + tanh((1 + t)/2)) / 2."""
        return _tanh(xp, s + 0.5)

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return sigmoid(1 + t) sigmoid(-1 - t)."""
        return super().curvature(xp, 1.0 + t, y)


@dataclass(frozen=True)
class SoftLogistic(Loss):
    """log(1 + exp(t)) - (1 + y)/2 t: cross-entropy with P(+1) = (1 + y)/2, for labels anywhere in [-1, 1].

    For y = +1 or -1 it is the logistic loss.
    """

    name = "soft_logistic"
    inner = 0.5
    outer = 0.5

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return log(1 + exp(t)) - (1 + y)/2 t without overflow."""
        return _softplus(xp, t) - 0.5 * (1.0 + y) * t

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return tanh(s) - y: the derivative is (tanh(t/2) - y) / 2."""
        return _tanh(xp, s) - y

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return sigmoid(t) sigmoid(-t)."""
        th = xp.tanh(0.5 * t)
        return 0.25 * (1.0 - th * th)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return (1 + label_bound)/2 row_norm."""
        return 0.5 * (1.0 + label_bound) * row_norm

    def gradient_spread(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return the row norm: the label's part cancels, and tanh/2 has a range of length one."""
        return row_norm

    def smoothness(self, row_norm: float) -> float:
        """Return row_norm^2 / 4."""
        return 0.25 * row_norm**2


@dataclass(frozen=True)
class Sigmoid(Loss):
    """1 / (1 + exp(y t)): bounded and not convex. G = row norm / 4, L = row norm^2 / (6 sqrt(3))."""

    name = "sigmoid"
    margin = True
    convex = False
    inner = 0.5
    outer = 0.25
    constant = -0.25

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return sigmoid(-t)."""
        return 0.5 - 0.5 * xp.tanh(0.5 * t)

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return tanh(s)^2: the derivative is (tanh(t/2)^2 - 1) / 4."""
        th = _tanh(xp, s)
        return th * th

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return tanh(t/2) (1 - tanh(t/2)^2) / 4."""
        th = xp.tanh(0.5 * t)
        return 0.25 * th * (1.0 - th * th)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return row_norm / 4."""
        return 0.25 * row_norm

    def gradient_spread(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return row_norm / 4: the derivative lies between -1/4 and 0."""
        return 0.25 * row_norm

    def smoothness(self, row_norm: float) -> float:
        """Return row_norm^2 / (6 sqrt(3)), the largest |second derivative|."""
        return row_norm**2 / (6.0 * math.sqrt(3.0))


@dataclass(frozen=True)
class SineSquared(Loss):
    """u^2 + 3 sin(u)^2 with u = t - y: not convex, yet every stationary point is a minimum.

    In one variable it satisfies the Polyak-Lojasiewicz condition with mu = 1/32 (Karimi, Nutini and Schmidt 2016).
    """

    name = "sine_squared"
    convex = False

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return u^2 + 3 sin(u)^2."""
        u, sine = t - y, xp.sin(t - y)
        return u * u + 3.0 * sine * sine

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return 2 u + 3 sin(2 u)."""
        u = s - y
        return 2.0 * u + 3.0 * xp.sin(2.0 * u)

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return 2 + 6 cos(2 u)."""
        return 2.0 + 6.0 * xp.cos(2.0 * (t - y))

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return row_norm (2 (row_norm radius + label_bound) + 3), infinite on the whole space."""
        return row_norm * (2.0 * (row_norm * radius + label_bound) + 3.0)

    def smoothness(self, row_norm: float) -> float:
        """Return 8 row_norm^2."""
        return 8.0 * row_norm**2


@dataclass(frozen=True)
class Squared(Loss):
    """(t - y)^2 / 2. Lipschitz only on a bounded set."""

    name = "squared"

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return (t - y)^2 / 2."""
        r = t - y
        return 0.5 * r * r

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return the residual."""
        return s - y

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return ones."""
        return xp.ones_like(t)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return row_norm (row_norm radius + label_bound), infinite on the whole space."""
        return row_norm * (row_norm * radius + label_bound)

    def smoothness(self, row_norm: float) -> float:
        """Return row_norm^2."""
        return row_norm**2


@dataclass(frozen=True)
class Huber(Loss):
    """r^2 / 2 for |r| <= width, width |r| - width^2 / 2 beyond, with r = t - y."""

    width: float = 1.0
    name = "huber"

    def __post_init__(self) -> None:
        if not (0.0 < self.width < math.inf):
            raise UserError(f"The width of the Huber loss is {self.width}: give a positive number.")

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return the Huber function of the residual."""
        r = xp.abs(t - y)
        inside = xp.minimum(r, xp.full_like(r, self.width))
        return inside * (r - 0.5 * inside)

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return the residual clipped to [-width, width]."""
        return xp.clip(s - y, -self.width, self.width)

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return 1 inside the width and 0 outside."""
        return xp.astype(xp.abs(t - y) <= self.width, t.dtype)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return width * row_norm."""
        return self.width * row_norm

    def smoothness(self, row_norm: float) -> float:
        """Return row_norm^2."""
        return row_norm**2


LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (Logistic, LogisticAsPrinted, SoftLogistic, Sigmoid, SineSquared, Squared, Huber)
}


def get_loss(wish: str | Loss) -> Loss:
    """Return a loss by name (`huber:0.5` sets its width), or the given one."""
    if isinstance(wish, Loss):
        return wish
    name, _, argument = str(wish).partition(":")
    if name not in LOSSES:
        raise UserError(f"Unknown loss {wish!r}: use one of {', '.join(LOSSES)}.")
    if not argument:
        return LOSSES[name]()
    if name != "huber":
        raise UserError(f"The loss {name!r} takes no parameter, but {wish!r} was given.")
    try:
        return Huber(float(argument))
    except ValueError:
        raise UserError(f"The loss {wish!r} has no number after the colon: write for example huber:0.5.") from None


def _tanh(xp: Any, s: Array) -> Array:
    """Return tanh(s) with an absolute error of about one unit in the last place of 1.

    In double precision NumPy has a fast tanh only on processors with AVX-512; the exponential is two to three
    times faster elsewhere and level there. Beyond s = 40 the result is exactly 1, so the clip changes nothing.
    """
    if s.dtype == xp.float32:
        return xp.tanh(s)
    result = xp.exp(xp.minimum(2.0 * s, 80.0))
    result += 1.0
    result = -2.0 / result
    result += 1.0
    return result


def _softplus(xp: Any, t: Array) -> Array:
    """Return log(1 + exp(t)) with an absolute error of rounding size for any finite t.

    The plain logarithm loses the relative accuracy of values below 1e-16, which no mean needs, and is more than
    twice as fast as log1p.
    """
    return xp.maximum(t, xp.zeros_like(t)) + xp.log(1.0 + xp.exp(-xp.abs(t)))
