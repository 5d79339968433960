"""Losses that are neither smooth nor convex, all with the Lipschitz constant of one sample equal to the row norm.

Those of t = <w, x> are piecewise linear; `hinges` says of which pieces they are made, so that averages over a
distribution have closed forms (`problems/spiked.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from dprepro.errors import UserError, is_number, positive
from dprepro.losses import Loss

Array = Any


class Hinge(NamedTuple):
    """The term weight max(0, t - at - label y) of a loss phi(t, y)."""

    weight: float
    at: float
    label: float


class Hinges(NamedTuple):
    """A loss constant + slope t + label_slope y + sum of hinges, for labels y >= 0 at least.

    With a `period` it has a wave of this period in t - y beside it, whose mean is in the constant.
    """

    constant: float
    slope: float
    label_slope: float
    terms: tuple[Hinge, ...]
    period: float | None = None


class NonsmoothLoss(Loss):
    """Base of the losses here: no curvature between the kinks, a jump of the derivative on them."""

    convex = False
    smooth = False

    @property
    def hinges(self) -> Hinges:
        """The pieces that a loss of t = <w, x> is made of."""
        raise NotImplementedError

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return 0, the curvature between the kinks."""
        return 0.0 * (t - y)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return the row norm."""
        return row_norm

    def smoothness(self, row_norm: float) -> float:
        """Return infinity: the derivative jumps at the kinks."""
        return math.inf


@dataclass(frozen=True)
class CappedAbsolute(NonsmoothLoss):
    """min(|t - y|, cap): absolute regression that outliers further than the cap do not move. G = row norm."""

    cap: float = 8.0
    name = "capped_absolute"
    residual = True

    def __post_init__(self) -> None:
        positive(f"The cap of the loss {self.name!r}", self.cap)

    @property
    def hinges(self) -> Hinges:
        """Slopes 0, -1, 1, 0 from left to right."""
        return Hinges(self.cap, 0.0, 0.0, _capped(1.0, self.cap))

    @property
    def linear_radius(self) -> float:
        """Half of the cap: the slope is 1 between the label and the cap."""
        return 0.5 * self.cap

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return min(|t - y|, cap)."""
        return xp.minimum(xp.abs(t - y), self.cap)

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return the sign of the residual below the cap, 0 beyond and on the kink."""
        return _capped_slope(xp, s - y, self.cap)


@dataclass(frozen=True)
class Ramp(NonsmoothLoss):
    """share min(|u|, CAP) + (1 - share) tri(u) with u = t - y and tri(u) the distance to the nearest integer.

    A slow descent to y hidden under a triangle wave of period 1: within CAP of y, and for share < 1, no sample's loss
    is smooth on an interval longer than 1/2 or convex on one longer than 1, and single slopes have the size 1 or
    |1 - 2 share|. Over labels that are uniform on an interval whose length is a whole number the wave averages out, and
    what is left has the slope `share`. G = row norm.
    """

    share: float = 0.3
    name = "ramp"
    residual = True

    CAP = 100.0

    def __post_init__(self) -> None:
        if not (is_number(self.share) and 0.0 < self.share <= 1.0):
            raise UserError(f"The share of the loss {self.name!r} is {self.share!r}: give a number in (0, 1].")

    @property
    def hinges(self) -> Hinges:
        """The capped part; the wave has the mean 1/4."""
        constant = self.share * self.CAP + 0.25 * (1.0 - self.share)
        return Hinges(constant, 0.0, 0.0, _capped(self.share, self.CAP), 1.0)

    @property
    def linear_radius(self) -> float:
        """A quarter of the wave's period, over half of which it rises; half of CAP without a wave."""
        return 0.25 if self.share < 1.0 else 0.5 * self.CAP

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return the capped absolute value and the wave in their shares."""
        u = t - y
        wave = xp.abs(u - xp.round(u))
        return self.share * xp.minimum(xp.abs(u), self.CAP) + (1.0 - self.share) * wave

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return the slopes in their shares; each is 0 on the kinks where its function is least."""
        u = s - y
        return self.share * _capped_slope(xp, u, self.CAP) + (1.0 - self.share) * xp.sign(u - xp.round(u))


@dataclass(frozen=True)
class Phase(NonsmoothLoss):
    """| |t + shift| - y |: robust phase retrieval in its amplitude form, G = row norm.

    The form |t^2 - y^2| is Lipschitz on bounded sets only. `shift` stands for a public guess: where the first feature
    is the same in every row, moving the origin by a guess along it moves every t by the same number. Without a shift
    w = 0 is stationary by symmetry.
    """

    shift: float = 0.0
    name = "phase"

    def __post_init__(self) -> None:
        if not (is_number(self.shift) and math.isfinite(self.shift)):
            raise UserError(f"The shift of the loss {self.name!r} is {self.shift!r}: give a finite number.")

    @property
    def hinges(self) -> Hinges:
        """Slopes -1, 1, -1, 1 with kinks at -shift - y, -shift and -shift + y."""
        at = -self.shift
        terms = (Hinge(2.0, at, -1.0), Hinge(-2.0, at, 0.0), Hinge(2.0, at, 1.0))
        return Hinges(at, -1.0, -1.0, terms)

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return | |t + shift| - y |."""
        return xp.abs(xp.abs(t + self.shift) - y)

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return the product of both signs; 0 on the kinks."""
        t = s + self.shift
        return xp.sign(xp.abs(t) - y) * xp.sign(t)


@dataclass(frozen=True)
class ReluNetwork(NonsmoothLoss):
    """|sum_k v_k max(0, <w_k, x>) - y|: absolute regression by a network with one layer of `hidden` units.

    w = (w_1, ..., w_hidden) are the weights; v_k = +-1/sqrt(hidden) are fixed, and their signs take turns. As
    sum_k v_k^2 = 1, G = row norm.
    """

    hidden: float = 4.0
    name = "relu_network"
    glm = False

    def __post_init__(self) -> None:
        if not (is_number(self.hidden) and self.hidden >= 1 and self.hidden == int(self.hidden)):
            raise UserError(f"The units of the loss {self.name!r} are {self.hidden!r}: give a whole number >= 1.")

    @property
    def outer_weights(self) -> list[float]:
        """The v_k."""
        return [(-1.0) ** k / math.sqrt(self.hidden) for k in range(int(self.hidden))]


def _capped(weight: float, cap: float) -> tuple[Hinge, ...]:
    """Return the hinges of weight (min(|u|, cap) - cap), u = t - y."""
    return Hinge(-weight, -cap, 1.0), Hinge(2.0 * weight, 0.0, 1.0), Hinge(-weight, cap, 1.0)


def _capped_slope(xp: Any, u: Array, cap: float) -> Array:
    return xp.where(xp.abs(u) < cap, xp.sign(u), 0.0 * u)


NONSMOOTH_LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (CappedAbsolute, Ramp, Phase, ReluNetwork)}
