"""Scalar losses of generalized linear models: value, derivatives and constants.

A loss is phi(t, y) with t = <w, x>. A *margin* loss depends on y t alone; the data are then stored as y x, and
the label argument is ignored. Every derivative is written as `outer * core(inner * t) + constant`, so that a full
gradient costs two matrix products and one elementwise function: scale and constant are applied outside the loop.
Where a loss has a kink, its derivative is a subgradient there; `smoothing.py` makes smooth losses of such losses.
A file in the folder `losses` of an extension folder adds a loss: it bears its name and defines `LOSS`, a class.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dprepro import extensions
from dprepro.errors import UserError, is_number, positive

Array = Any


class Loss:
    """Base of the losses; arrays are of the namespace `xp`, t and y of equal or broadcastable shape."""

    name: str
    margin: bool = False
    # Whether it is a function of <w, x>. Risks of such losses receive <w, x> only, so a false declaration cannot go
    # unnoticed; the others are in `vector_losses.py`.
    glm: bool = True
    # Whether it is a function of t - y.
    residual: bool = False
    convex: bool = True
    smooth: bool = True
    inner: float = 1.0
    outer: float = 1.0
    constant: float = 0.0

    @property
    def full_name(self) -> str:
        """The name with its parameter, as `get_loss` reads it: `huber:0.5`."""
        return ":".join([self.name, *(spelled(getattr(self, name)) for name in parameters(type(self)))])

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return phi(t, y)."""
        raise NotImplementedError

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return the elementwise part of the derivative at s = inner * t."""
        raise NotImplementedError

    def derivative(self, xp: Any, t: Array, y: Array) -> Array:
        """Return the derivative of phi in t, a subgradient where phi has a kink."""
        return self.outer * self.core(xp, self.inner * t, y) + self.constant

    def turn(self, xp: Any, t: Array, s: Array, y: Array) -> Array:
        """Return the derivative at t minus that at s, without the constant, which cancels."""
        return self.outer * (self.core(xp, self.inner * t, y) - self.core(xp, self.inner * s, y))

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return the second derivative of phi in t, that of one side where there are two."""
        raise NotImplementedError

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return G: a bound on the gradient norm of one sample for ||x|| <= row_norm, ||w|| <= radius."""
        raise NotImplementedError

    def gradient_spread(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return a bound on ||grad f(w, z) - grad f(v, z)|| for one sample z: at most 2 G."""
        return 2.0 * self.lipschitz(row_norm, radius, label_bound)

    def smoothness(self, row_norm: float) -> float:
        """Return L: a Lipschitz constant of the gradient of one sample for ||x|| <= row_norm; inf with kinks."""
        raise NotImplementedError

    def weak_convexity(self, row_norm: float) -> float:
        """Return rho >= 0: one sample's loss plus rho/2 ||w||^2 is convex for ||x|| <= row_norm."""
        return 0.0 if self.convex else self.smoothness(row_norm)

    @property
    def linear_radius(self) -> float:
        """An r such that for every t some label y makes phi(., y) linear with its steepest slope on [t - r, t + r].

        0 where no such r > 0 is known. A sample then attains its Lipschitz constant all over a ball, whatever the
        point, and so do the sample and the one with the opposite row in opposite directions.
        """
        return 0.0


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
    residual = True
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

    def weak_convexity(self, row_norm: float) -> float:
        """Return 4 row_norm^2: the second derivative falls to -4."""
        return 4.0 * row_norm**2


@dataclass(frozen=True)
class Squared(Loss):
    """(t - y)^2 / 2. Lipschitz only on a bounded set."""

    name = "squared"
    residual = True

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
    residual = True

    def __post_init__(self) -> None:
        positive(f"The width of the loss {self.name!r}", self.width)

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

    @property
    def linear_radius(self) -> float:
        """Any: the loss is linear beyond the width, and the label may be as far away as one likes."""
        return math.inf

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return width * row_norm."""
        return self.width * row_norm

    def smoothness(self, row_norm: float) -> float:
        """Return row_norm^2."""
        return row_norm**2


@dataclass(frozen=True)
class TiltedHuber(Huber):
    """width u + width^2/2 + the Huber function of u = t - y: flat far to the left, as steep as 2 width to the right.

    For labels 0 and rows +1 and -1 it is, up to a constant, the loss of ABG23's Theorem A.2 with L0 = 2 width, L1 = 1.
    """

    width: float = 0.5
    name = "tilted_huber"

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return the Huber function plus the tilt; it is at least 0."""
        return super().value(xp, t, y) + self.width * (t - y) + 0.5 * self.width**2

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return width plus the residual clipped to [-width, width]."""
        return super().core(xp, s, y) + self.width

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return 2 width row_norm."""
        return 2.0 * self.width * row_norm

    def gradient_spread(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return 2 width row_norm: the derivative lies between 0 and 2 width."""
        return 2.0 * self.width * row_norm


class Kink(NamedTuple):
    """The convex function v -> max(left v, right v) of v = u - at, with left <= 0 <= right."""

    at: float
    left: float
    right: float


class PiecewiseLinear(Loss):
    """A sum of kinks in the residual u = t - y, or in t for a margin loss.

    The kinks come in rising order, and between two of them the sum is flat: right = 0 for all but the last, left = 0
    for all but the first. The proximal operator of the sum then moves a point by the sum of its moves for each kink.
    """

    smooth = False

    @property
    def kinks(self) -> tuple[Kink, ...]:
        """The kinks of which the loss is the sum."""
        raise NotImplementedError

    def offsets(self, t: Array, y: Array) -> list[tuple[Kink, Array]]:
        """Return every kink with the offset v = u - at of each residual u from it."""
        u = t if self.margin else t - y
        return [(kink, u - kink.at if kink.at else u) for kink in self.kinks]

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return the sum of max(left v, right v)."""
        return added([xp.maximum(kink.left * v, kink.right * v) for kink, v in self.offsets(t, y)])

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return the slope; on a kink the mean of its two slopes, which is a subgradient."""
        halves = [(0.5 * (kink.right - kink.left), 0.5 * (kink.right + kink.left), v) for kink, v in self.offsets(s, y)]
        return added([half * xp.sign(v) + mean for half, mean, v in halves])

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return zeros, the second derivative away from the kinks."""
        return xp.zeros_like(t if self.margin else t - y)

    @property
    def linear_radius(self) -> float:
        """Any in the residual: the label may be as far away as one likes; a margin has its kinks in place."""
        return math.inf if self.residual else 0.0

    def prox(self, xp: Any, t: Array, y: Array, step: float) -> Array:
        """Return argmin_u step phi(u, y) + 1/2 (u - t)^2 in closed form."""
        moves = [xp.clip(v, step * kink.left, step * kink.right) for kink, v in self.offsets(t, y)]
        return t - added(moves)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return row_norm times the steepest slope."""
        return row_norm * max(-self.kinks[0].left, self.kinks[-1].right)

    def gradient_spread(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return row_norm times the distance of the last slope from the first."""
        return row_norm * (self.kinks[-1].right - self.kinks[0].left)

    def smoothness(self, row_norm: float) -> float:
        """Return infinity: the derivative jumps at a kink."""
        return math.inf


@dataclass(frozen=True)
class Absolute(PiecewiseLinear):
    """|t - y|. G = row norm."""

    name = "absolute"
    residual = True

    @property
    def kinks(self) -> tuple[Kink, ...]:
        """One at u = 0, between the slopes -1 and 1."""
        return (Kink(0.0, -1.0, 1.0),)


@dataclass(frozen=True)
class Hinge(PiecewiseLinear):
    """max(0, 1 - y t), the loss of support vector machines. G = row norm."""

    name = "hinge"
    margin = True

    @property
    def kinks(self) -> tuple[Kink, ...]:
        """One at the margin 1, between the slopes -1 and 0."""
        return (Kink(1.0, -1.0, 0.0),)


@dataclass(frozen=True)
class Pinball(PiecewiseLinear):
    """q (y - t) for t <= y, (1 - q) (t - y) beyond: its minimiser is the q-quantile of y. G = row norm max(q, 1-q)."""

    q: float = 0.5
    name = "pinball"
    residual = True

    def __post_init__(self) -> None:
        if not 0.0 < self.q < 1.0:
            raise UserError(f"The quantile of the loss 'pinball' is {self.q}: give a number between 0 and 1.")

    @property
    def kinks(self) -> tuple[Kink, ...]:
        """One at u = 0, between the slopes -q and 1 - q."""
        return (Kink(0.0, -self.q, 1.0 - self.q),)


@dataclass(frozen=True)
class Insensitive(PiecewiseLinear):
    """max(0, |t - y| - width), the loss of support vector regression. G = row norm."""

    width: float = 0.1
    name = "insensitive"
    residual = True

    def __post_init__(self) -> None:
        positive(f"The width of the loss {self.name!r}", self.width)

    @property
    def kinks(self) -> tuple[Kink, ...]:
        """Two at u = -width and u = width, between the slopes -1, 0 and 1."""
        return (Kink(-self.width, -1.0, 0.0), Kink(self.width, 0.0, 1.0))


@dataclass(frozen=True)
class Welsch(Loss):
    """c^2/2 (1 - exp(-u^2/c^2)) with u = t - y: bounded, smooth, not convex. G = c row norm / sqrt(2 e)."""

    c: float = 1.0
    name = "welsch"
    residual = True
    convex = False

    def __post_init__(self) -> None:
        positive(f"The width of the loss {self.name!r}", self.c)

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return c^2/2 (1 - exp(-u^2/c^2)), accurate also for small u."""
        return -0.5 * self.c**2 * xp.expm1(-(((t - y) / self.c) ** 2))

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return u exp(-u^2/c^2)."""
        u = s - y
        return u * xp.exp(-((u / self.c) ** 2))

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return (1 - 2 u^2/c^2) exp(-u^2/c^2)."""
        square = ((t - y) / self.c) ** 2
        return (1.0 - 2.0 * square) * xp.exp(-square)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return c row_norm / sqrt(2 e): the slope is largest at u = c / sqrt(2)."""
        return row_norm * self.c / math.sqrt(2.0 * math.e)

    def smoothness(self, row_norm: float) -> float:
        """Return row_norm^2, reached at u = 0."""
        return row_norm**2

    def weak_convexity(self, row_norm: float) -> float:
        """Return 2 exp(-3/2) row_norm^2: the second derivative is smallest at u^2 = 3/2 c^2."""
        return 2.0 * math.exp(-1.5) * row_norm**2


@dataclass(frozen=True)
class MinimaxConcave(Loss):
    """|u| - u^2/(2 g) for |u| <= g, g/2 beyond, with u = t - y: not convex, with a kink at 0. G = row norm.

    Adding u^2/(2 g) makes it convex: it is weakly convex (Zhang 2010).
    """

    g: float = 1.0
    name = "mcp"
    residual = True
    convex = False
    smooth = False

    def __post_init__(self) -> None:
        positive(f"The width of the loss {self.name!r}", self.g)

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return |u| - u^2/(2 g) with |u| cut at g."""
        inside = xp.minimum(xp.abs(t - y), self.g)
        return inside * (1.0 - inside / (2.0 * self.g))

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return sign(u) max(0, 1 - |u|/g); 0 on the kink."""
        u = s - y
        return xp.sign(u) * (1.0 - xp.minimum(xp.abs(u), self.g) / self.g)

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return -1/g inside |u| <= g and 0 outside; the kink at 0 is left out."""
        return (-1.0 / self.g) * xp.astype(xp.abs(t - y) <= self.g, t.dtype)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return the row norm."""
        return row_norm

    def smoothness(self, row_norm: float) -> float:
        """Return infinity: the derivative jumps at the kink."""
        return math.inf

    def weak_convexity(self, row_norm: float) -> float:
        """Return row_norm^2 / g."""
        return row_norm**2 / self.g


@dataclass(frozen=True)
class GLMValley(Loss):
    """A valley that falls ever more slowly, between walls: slope psi(t) for labels y > 0, else the Huber loss of t - y.

    psi(t) = 4 (1+t)^(-1/4) + WAVE (1+t)^(-5/4) sin(t)^2 for t >= 0 and 4 - t below: not convex, and with no stationary
    point. Along it the derivative is of order t^(-5/4), so that s steps of gradient descent bring it to s^(-5/9), close
    to the s^(-1/2) of the worst case. |psi'| <= 1, and |psi''| is largest at 0.
    """

    slope: float = 0.4
    name = "glm_valley"
    convex = False

    WAVE = 0.5
    WIDTH = 0.6
    # -min psi'', at t = 1.3297
    BEND = 0.12296284148976689

    def __post_init__(self) -> None:
        positive(f"The slope of the loss {self.name!r}", self.slope)

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return slope psi(t) or the Huber function of t - y."""
        above, sine = 1.0 + xp.maximum(t, 0.0 * t), xp.sin(t)
        floor = xp.where(t >= 0.0, 4.0 * above**-0.25 + self.WAVE * above**-1.25 * sine * sine, 4.0 - t)
        return xp.where(y > 0.0, self.slope * floor, Huber(self.WIDTH).value(xp, t, y))

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return slope psi'(t) or the residual clipped to the width."""
        above, sine = 1.0 + xp.maximum(s, 0.0 * s), xp.sin(s)
        wave = self.WAVE * (xp.sin(2.0 * s) - 1.25 * sine * sine / above)
        floor = xp.where(s >= 0.0, above**-1.25 * (wave - 1.0), -xp.ones_like(s))
        return xp.where(y > 0.0, self.slope * floor, Huber(self.WIDTH).core(xp, s, y))

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return slope psi''(t), or 1 inside the width and 0 outside."""
        above, sine = 1.0 + xp.maximum(t, 0.0 * t), xp.sin(t)
        wave = 2.8125 * sine * sine / above**2 - 2.5 * xp.sin(2.0 * t) / above + 2.0 * xp.cos(2.0 * t)
        floor = xp.where(t >= 0.0, above**-1.25 * (1.25 / above + self.WAVE * wave), 0.0 * t)
        return xp.where(y > 0.0, self.slope * floor, Huber(self.WIDTH).curvature(xp, t, y))

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return row_norm max(slope, WIDTH)."""
        return row_norm * max(self.slope, self.WIDTH)

    def gradient_spread(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return row_norm max(slope, 2 WIDTH): psi only falls."""
        return row_norm * max(self.slope, 2.0 * self.WIDTH)

    def smoothness(self, row_norm: float) -> float:
        """Return row_norm^2 max(1, slope psi''(0))."""
        return row_norm**2 * max(1.0, self.slope * (1.25 + 2.0 * self.WAVE))

    def weak_convexity(self, row_norm: float) -> float:
        """Return row_norm^2 slope BEND."""
        return row_norm**2 * self.slope * self.BEND


LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (
        Logistic,
        LogisticAsPrinted,
        SoftLogistic,
        Sigmoid,
        SineSquared,
        Squared,
        Huber,
        TiltedHuber,
        Absolute,
        Hinge,
        Pinball,
        Insensitive,
        Welsch,
        MinimaxConcave,
        GLMValley,
    )
}


def get_loss(wish: str | Loss) -> Loss:
    """Return a loss by name, or the given one.

    `huber:0.5` sets the loss's parameter, `moreau:10:huber:0.5` smooths it (see `smoothing.py`).
    """
    if isinstance(wish, Loss):
        return wish
    name, _, argument = str(wish).partition(":")
    if name == "moreau":
        from dprepro.smoothing import get_envelope  # which builds on this module

        return get_envelope(str(wish))
    known, mine = built_in(), own()
    if name in mine:
        known = {name: _loaded(mine[name])}
    if name not in known:
        raise UserError(f"Unknown loss {wish!r}: use one of {', '.join([*known, *mine])}, or moreau:BETA:LOSS.")
    if not argument:
        return known[name]()
    if not parameters(known[name]):
        raise UserError(f"The loss {name!r} takes no parameter, but {wish!r} was given.")
    try:
        value = float(argument)
    except ValueError:
        raise UserError(f"The loss {wish!r} has no number after the colon: write for example {name}:0.5.") from None
    return known[name](**dict.fromkeys(parameters(known[name]), value))


def built_in() -> dict[str, type[Loss]]:
    """Return the losses of the package by name."""
    from dprepro.nonsmooth_losses import NONSMOOTH_LOSSES  # these two build on this module
    from dprepro.vector_losses import VECTOR_LOSSES

    return LOSSES | VECTOR_LOSSES | NONSMOOTH_LOSSES


def names() -> list[str]:
    """Return the names of all losses, own ones included, in alphabetical order."""
    return sorted([*built_in(), *own()])


def own() -> dict[str, Path]:
    """Return the files of the user's own losses by name."""
    return extensions.found(extensions.LOSSES, reserved_names())


def reserved_names() -> set[str]:
    """Return what no own loss may be called."""
    return {*built_in(), "moreau"}


def modules_of(wish: str) -> list[str]:
    """Return the modules of a user's own that a loss is made of; none if it is built in."""
    mine = own()
    return [extensions.module_of(mine[name]) for name in str(wish).split(":") if name in mine]


def _loaded(path: Path) -> type[Loss]:
    """Return the loss of an own file, or refuse a file that does not define a whole one of its name."""
    loss = getattr(extensions.load(path), "LOSS", None)
    if problem := _complaint(loss, path.stem):
        raise UserError(f"The file {extensions.shown(path)} {problem}.")
    checked: type[Loss] = loss  # type: ignore[assignment]  # or there was a complaint
    return checked


def _complaint(loss: object, name: str) -> str:
    """Return what an object lacks to be the loss `name`, as the rest of a sentence; nothing if it is one."""
    if loss is None:
        return "defines no LOSS: end it with LOSS = YourClass"
    if not (isinstance(loss, type) and issubclass(loss, Loss) and is_dataclass(loss)):
        return f"has a LOSS that is no dataclass of the kind Loss, but {loss!r}: write the class itself"
    if getattr(loss, "name", None) != name:
        return f"has a loss without the name of the file: write name = {name!r}"
    if len(fields(loss)) > 1 or any(field.default is MISSING for field in fields(loss)):
        return "has a loss with several parameters or one without a default: give it one at most, with a default"
    for field in fields(loss):
        if not is_number(field.default):
            return f"has a loss whose parameter {field.name} is {field.default!r} by default: give a number, or no type"
    for fact in ("convex", "smooth"):
        if not isinstance(vars(loss).get(fact), bool):
            return f"has a loss that does not say whether it is {fact}: write {fact} = True or {fact} = False"
    # Of a loss that is no function of <w, x> these constants are all that every algorithm asks for.
    for method in ("lipschitz", "smoothness", *(("value", "core", "curvature") if loss.glm else ())):
        if getattr(loss, method) is getattr(Loss, method):
            return f"has a loss without {method}: write it; sensitivities and steps are computed from these"
    return ""


def parameters(loss: type[Loss]) -> list[str]:
    """Return the names of the loss's parameters: none or one."""
    return [field.name for field in fields(loss)]  # type: ignore[arg-type]


def facts(loss: Loss) -> str:
    """Return in one line what a loss is: whether it is convex and smooth, its parameter, and what its class says."""
    kind = f"{'convex' if loss.convex else 'not convex'}, {'smooth' if loss.smooth else 'not smooth'}"
    chosen = [f"parameter: {name} = {spelled(getattr(loss, name))}" for name in parameters(type(loss))]
    text = (type(loss).__doc__ or "").strip()
    # A dataclass without a text has its signature for one.
    said = [] if text.startswith(f"{type(loss).__name__}(") else text.splitlines()[:1]
    return "; ".join([kind, *chosen, *said])


def spelled(number: float) -> str:
    """Return a number as short as it can be read back without loss."""
    return repr(float(number)).removesuffix(".0")


def added(terms: Iterable[Array]) -> Array:
    """Return the sum of a few arrays, without a zero to start from."""
    return functools.reduce(operator.add, terms)


def _tanh(xp: Any, s: Array) -> Array:
    """Return tanh(s) with an absolute error of about one unit in the last place of 1.

    In double precision NumPy has a fast tanh only on processors with AVX-512; the exponential is two to three
    times faster elsewhere and level there.
    """
    if s.dtype == xp.float32:
        return xp.tanh(s)
    import numpy as np  # here, as whoever only asks for the names of losses does without

    # An exponential that overflows ends in exactly 1, as it should; to clip it would take a quarter of the time.
    with np.errstate(over="ignore"):
        result = xp.exp(2.0 * s)
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
