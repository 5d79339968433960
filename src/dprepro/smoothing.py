"""Smooth losses from losses with kinks: the Moreau envelope of the scalar loss (BGM21, section 3.1).

The beta-envelope of phi is phi_beta(t) = min_u phi(u) + beta/2 (u - t)^2. Its derivative is g = beta (t - prox(t)): the
one number g that is a subgradient of phi at t - g/beta. For a convex phi with slopes of at most L0, the envelope is
convex with slopes of at most L0, beta-smooth, and at most L0^2/(2 beta) below phi. `MoreauEnvelope` has it in closed
form, `bisection_derivative` finds it for any convex Lipschitz loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dprepro.errors import UserError, positive
from dprepro.losses import LOSSES, Kink, Loss, PiecewiseLinear, added, get_loss, spelled

Array = Any


@dataclass(frozen=True)
class MoreauEnvelope(Loss):
    """The beta-envelope of a piecewise linear loss; G is that of the loss, L = beta row norm^2."""

    loss: PiecewiseLinear
    beta: float
    name: str = field(init=False, repr=False, compare=False)
    margin: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.loss, PiecewiseLinear):
            raise UserError(
                f"The envelope of the loss {getattr(self.loss, 'name', self.loss)!r} has no closed form here: use one "
                f"of {', '.join(name for name, loss in LOSSES.items() if issubclass(loss, PiecewiseLinear))}."
            )
        positive(f"The smoothness beta of the envelope of {self.loss.full_name!r}", self.beta)
        object.__setattr__(self, "name", f"moreau:{spelled(self.beta)}:{self.loss.full_name}")
        object.__setattr__(self, "margin", self.loss.margin)

    @property
    def full_name(self) -> str:
        """The name, which holds all parameters."""
        return self.name

    def value(self, xp: Any, t: Array, y: Array) -> Array:
        """Return the sum over the kinks of g v - g^2/(2 beta), with v the offset and g the smoothed slope."""
        return added(g * (v - (0.5 / self.beta) * g) for _, v, g in self._slopes(xp, t, y))

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return beta (t - prox(t)), from clipped offsets instead of a small difference of large numbers."""
        return added(g for _, _, g in self._slopes(xp, s, y))

    def curvature(self, xp: Any, t: Array, y: Array) -> Array:
        """Return beta where the proximal point is on a kink and 0 elsewhere."""
        on_kink = [(g > kink.left) & (g < kink.right) for kink, _, g in self._slopes(xp, t, y)]
        return added(self.beta * xp.astype(on, t.dtype) for on in on_kink)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return G of the loss: smoothing makes no slope steeper."""
        return self.loss.lipschitz(row_norm, radius, label_bound)

    def gradient_spread(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return that of the loss."""
        return self.loss.gradient_spread(row_norm, radius, label_bound)

    def smoothness(self, row_norm: float) -> float:
        """Return beta row_norm^2."""
        return self.beta * row_norm**2

    def _slopes(self, xp: Any, t: Array, y: Array) -> Iterator[tuple[Kink, Array, Array]]:
        """Yield every kink with the offsets v from it and its smoothed slopes, beta v cut to [left, right]."""
        for kink, v in self.loss.offsets(t, y):
            yield kink, v, xp.clip(self.beta * v, kink.left, kink.right)


def get_envelope(wish: str) -> MoreauEnvelope:
    """Return the envelope that a name of the form `moreau:BETA:LOSS` asks for."""
    _, _, rest = wish.partition(":")
    beta, _, loss = rest.partition(":")
    try:
        smoothness = float(beta)
    except ValueError:
        raise UserError(f"The loss {wish!r} has no number for beta: write for example moreau:10:hinge.") from None
    if not loss:
        raise UserError(f"The loss {wish!r} does not say what is smoothed: write for example moreau:{beta}:hinge.")
    return MoreauEnvelope(get_loss(loss), smoothness)  # type: ignore[arg-type]  # other losses are refused there


def bisection_derivative(
    xp: Any, loss: Loss, t: Array, y: Array, beta: float, alpha: float, row_norm: float = 1.0
) -> Array:
    """Return the derivative of the beta-envelope of a convex Lipschitz loss at t, to alpha / row_norm.

    Times x with a (dual) norm of at most row_norm it is a gradient with an error of at most alpha: BGM21, Algorithm 3
    and Lemma 4, on the whole line. t and y have any shapes that broadcast. Rounding adds beta |t| times the machine
    precision.
    """
    for what, number in (("smoothness beta", beta), ("accuracy alpha", alpha), ("row norm", row_norm)):
        positive(f"The {what} of the bisection", number)
    half = 2.0 * _steepest_slope(loss)
    # As printed, the algorithm compares two values of the proximal objective and drops the better half; with the
    # halves swapped it can still drop the minimiser, and values are too flat at a minimum to find it. The sign of a
    # subgradient decides. The unknown is the slope g = beta (t - u) itself, in [-half, half]: the prox u, next to t,
    # would lose digits.
    g = xp.zeros_like(t if loss.margin else t - y)
    for _ in range(halvings(loss, alpha, row_norm)):
        half = 0.5 * half
        g = xp.where(loss.derivative(xp, t - g / beta, y) > g, g + half, g - half)
    return g


def halvings(loss: Loss, alpha: float, row_norm: float = 1.0) -> int:
    """Return how many halvings take slopes in [-2 L0, 2 L0] to an interval of length alpha / row_norm."""
    return max(0, math.ceil(math.log2(4.0 * _steepest_slope(loss) * row_norm / alpha)))


def _steepest_slope(loss: Loss) -> float:
    """Return L0, the scalar loss's Lipschitz constant for labels in [-1, 1], or raise `UserError`."""
    steepest = loss.lipschitz(1.0, math.inf, 1.0)
    if not (loss.convex and math.isfinite(steepest)):
        raise UserError(
            f"The loss {loss.full_name!r} is not convex and Lipschitz, which bisection needs: use for example hinge."
        )
    return steepest
