"""Regularisers l1 ||w||_1 + l2/2 ||w||_2^2: none, ridge, lasso and elastic net in one record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dprepro.errors import UserError

Array = Any


@dataclass(frozen=True)
class Regularizer:
    """The regulariser r(w) = l1 ||w||_1 + l2/2 ||w||_2^2; it sees no data, so it costs no privacy."""

    l1: float = 0.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        for name, strength in (("l1", self.l1), ("l2", self.l2)):
            if not (0.0 <= strength < math.inf):
                raise UserError(f"The {name} strength of the regularizer is {strength}: give a number >= 0.")

    @property
    def smooth(self) -> bool:
        """Whether r has a gradient everywhere."""
        return self.l1 == 0.0

    @property
    def name(self) -> str:
        """`none`, `l2`, `l1` or `elastic net`."""
        return {
            (False, False): "none",
            (False, True): "l2",
            (True, False): "l1",
            (True, True): "elastic net",
        }[(self.l1 > 0, self.l2 > 0)]

    def value(self, xp: Any, W: Array) -> Array:
        """Return r of each row of W (K, d) as an array (K,)."""
        return self.l1 * xp.sum(xp.abs(W), axis=-1) + 0.5 * self.l2 * xp.sum(W * W, axis=-1)

    def smooth_gradient(self, W: Array) -> Array:
        """Return the gradient of the smooth part, l2 * w."""
        return self.l2 * W

    def subgradient(self, xp: Any, W: Array) -> Array:
        """Return a subgradient of r: l2 w + l1 sign(w), with sign(0) = 0."""
        return self.l2 * W + self.l1 * xp.sign(W) if self.l1 else self.l2 * W

    def prox(self, xp: Any, V: Array, eta: Any) -> Array:
        """Return argmin_x 1/2 ||x - v||^2 + eta r(x) for each row v of V; eta is a number or (K, 1)."""
        if self.l1:
            V = xp.sign(V) * xp.maximum(xp.abs(V) - eta * self.l1, xp.zeros_like(V))
        return V / (1.0 + eta * self.l2) if self.l2 else V


def get_regularizer(wish: float | Mapping[str, float] | Regularizer | None) -> Regularizer:
    """Return a regulariser from a number (the l2 strength), a mapping with `l1` and `l2`, or None."""
    if isinstance(wish, Regularizer):
        return wish
    if wish is None:
        return Regularizer()
    if isinstance(wish, Mapping):
        unknown = sorted(set(wish) - {"l1", "l2"})
        if unknown:
            raise UserError(f"Unknown regularizer key {unknown[0]!r}: use l1 and l2.")
        return Regularizer(**{key: _number(value) for key, value in wish.items()})
    return Regularizer(l2=_number(wish))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UserError(f"The regularizer strength {value!r} is not a number: give for example 0.01.") from None
