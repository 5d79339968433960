"""Constraint sets with exact Euclidean projection, row by row on arrays of shape (K, d)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from dprepro.errors import UserError

Array = Any


@dataclass(frozen=True)
class RealSpace:
    """The whole of R^d: projection is the identity."""

    name: ClassVar[str] = "real_space"
    properties: ClassVar[frozenset[str]] = frozenset()
    radius: float = math.inf

    def project(self, xp: Any, V: Array) -> Array:
        """Return V itself."""
        return V

    def excess(self, xp: Any, V: Array) -> Array:
        """Return by how much each row lies outside the set (never)."""
        return xp.zeros_like(V[:, 0])


@dataclass(frozen=True)
class L2Ball:
    """{w : ||w||_2 <= radius}."""

    radius: float = 1.0
    name: ClassVar[str] = "l2_ball"
    properties: ClassVar[frozenset[str]] = frozenset({"bounded"})

    def __post_init__(self) -> None:
        _check_radius(self.name, self.radius)

    def project(self, xp: Any, V: Array) -> Array:
        """Scale the rows that lie outside back to the sphere."""
        norms = xp.linalg.vector_norm(V, axis=-1, keepdims=True)
        return V * (self.radius / xp.maximum(norms, xp.full_like(norms, self.radius)))

    def excess(self, xp: Any, V: Array) -> Array:
        """Return max(0, ||v|| - radius) for each row."""
        outside = xp.linalg.vector_norm(V, axis=-1) - self.radius
        return xp.maximum(outside, xp.zeros_like(outside))


@dataclass(frozen=True)
class L1Ball:
    """{w : ||w||_1 <= radius}; as a subset of R^d its l2 radius is the same number."""

    radius: float = 1.0
    name: ClassVar[str] = "l1_ball"
    properties: ClassVar[frozenset[str]] = frozenset({"bounded", "polytope"})

    def __post_init__(self) -> None:
        _check_radius(self.name, self.radius)

    def project(self, xp: Any, V: Array) -> Array:
        """Soft-threshold each row by the exact level found from its sorted absolute values."""
        size = xp.abs(V)
        falling = -xp.sort(-size, axis=-1)
        ranks = xp.cumulative_sum(xp.ones_like(V), axis=-1)
        levels = (xp.cumulative_sum(falling, axis=-1) - self.radius) / ranks
        # The level of rank k is right for the largest k whose k-th value still exceeds it; levels rise up to
        # that rank and fall after it, so the largest level is the right one, and 0 for rows already inside.
        level = xp.max(levels, axis=-1, keepdims=True)
        level = xp.maximum(level, xp.zeros_like(level))
        return xp.sign(V) * xp.maximum(size - level, xp.zeros_like(size))

    def excess(self, xp: Any, V: Array) -> Array:
        """Return max(0, ||v||_1 - radius) for each row."""
        outside = xp.sum(xp.abs(V), axis=-1) - self.radius
        return xp.maximum(outside, xp.zeros_like(outside))


ConstraintSet = RealSpace | L2Ball | L1Ball
SETS: dict[str, type[RealSpace] | type[L2Ball] | type[L1Ball]] = {s.name: s for s in (RealSpace, L2Ball, L1Ball)}


def get_set(wish: str | ConstraintSet | None) -> ConstraintSet:
    """Return a set from `None` (the whole space), `l2_ball:RADIUS`, `l1_ball:RADIUS`, or the given one."""
    if wish is None:
        return RealSpace()
    if isinstance(wish, ConstraintSet):
        return wish
    if not isinstance(wish, str):
        raise UserError(f"The constraint {wish!r} is not a set: write for example l2_ball:1.0.")
    name, _, argument = wish.partition(":")
    if name not in SETS:
        raise UserError(f"Unknown constraint {wish!r}: use one of {', '.join(SETS)}, for example l2_ball:1.0.")
    if name == RealSpace.name:
        if argument:
            raise UserError(f"The constraint {name!r} takes no radius, but {wish!r} was given.")
        return RealSpace()
    try:
        radius = float(argument) if argument else 1.0
    except ValueError:
        raise UserError(
            f"The constraint {wish!r} has no number after the colon: write for example {name}:1.0."
        ) from None
    return SETS[name](radius)


def _check_radius(name: str, radius: float) -> None:
    if not (0.0 < radius < math.inf):
        raise UserError(f"The radius of the {name} is {radius}: give a positive number.")
