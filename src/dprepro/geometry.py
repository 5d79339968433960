"""Constraint sets, row by row on arrays of shape (K, d): projection, linear minimiser, mirror map and its steps.

For a centrally symmetric set C the Minkowski norm is ||v||_C = min{r >= 0 : v in r C}. A set's mirror map w is
1-strongly convex in that norm: B_w(y, x) = w(y) - w(x) - <grad w(x), y - x> >= 1/2 ||y - x||_C^2. All steps are exact
minimisers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from dprepro.errors import UserError

Array = Any

# Numbers in one temporary of the steps on the l1 ball: half a megabyte stays in cache, and allocating it is cheap.
_PIECE = 65536
# Every step halves the error or the bracket; Newton's method usually needs six.
_ROOT_STEPS = 120


@dataclass(frozen=True)
class RealSpace:
    """The whole of R^d: projection is the identity. It has no Minkowski norm."""

    name: ClassVar[str] = "real_space"
    properties: ClassVar[frozenset[str]] = frozenset()
    radius: float = math.inf

    def project(self, xp: Any, V: Array) -> Array:
        """Return V itself."""
        return V

    def excess(self, xp: Any, V: Array) -> Array:
        """Return by how much each row lies outside the set (never)."""
        return xp.zeros_like(V[:, 0])

    @property
    def l2_diameter(self) -> float:
        """Infinite."""
        return math.inf

    def gaussian_width(self, d: int) -> float:
        """Return infinity."""
        return math.inf

    def bregman_radius(self, d: int) -> float:
        """Return infinity."""
        return math.inf


@dataclass(frozen=True)
class L2Ball:
    """{w : ||w||_2 <= radius}."""

    radius: float = 1.0
    name: ClassVar[str] = "l2_ball"
    properties: ClassVar[frozenset[str]] = frozenset({"bounded", "centrally_symmetric"})

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

    @property
    def l2_diameter(self) -> float:
        """The largest l2 distance of two points."""
        return 2.0 * self.radius

    def gaussian_width(self, d: int) -> float:
        """Return E max_{v in C} <g, v> = radius E ||g|| for g ~ N(0, I_d), exactly."""
        return self.radius * math.sqrt(2.0) * math.exp(math.lgamma(0.5 * (d + 1)) - math.lgamma(0.5 * d))

    def minkowski(self, xp: Any, V: Array) -> Array:
        """Return ||v|| / radius of each row."""
        return xp.linalg.vector_norm(V, axis=-1) / self.radius

    def linear_minimizer(self, xp: Any, G: Array) -> Array:
        """Return argmin_{v in C} <g, v> for each row g; 0 for g = 0."""
        norms = xp.linalg.vector_norm(G, axis=-1, keepdims=True)
        return G * (-self.radius / xp.where(norms > 0.0, norms, xp.ones_like(norms)))

    def bregman(self, xp: Any, Y: Array, X: Array) -> Array:
        """Return B_w(y, x) = ||y - x||^2 / (2 radius^2) of each pair of rows."""
        return 0.5 * self.minkowski(xp, Y - X) ** 2

    def bregman_radius(self, d: int) -> float:
        """Return max_{x in C} B_w(x, 0)."""
        return 0.5

    def mirror_step(self, xp: Any, Z: Array, G: Array) -> Array:
        """Return argmin_{y in C} B_w(y, z) + <g, y> for each pair of rows: a projected gradient step."""
        return self.project(xp, Z - self.radius**2 * G)

    def gradient_step(self, xp: Any, X: Array, G: Array, a: float) -> Array:
        """Return argmin_{y in C} a/2 ||y - x||_C^2 + <g, y - x> for each pair of rows: a projected gradient step."""
        return self.project(xp, X - (self.radius**2 / a) * G)


@dataclass(frozen=True)
class L1Ball:
    """{w : ||w||_1 <= radius}; as a subset of R^d its l2 radius is the same number."""

    radius: float = 1.0
    name: ClassVar[str] = "l1_ball"
    properties: ClassVar[frozenset[str]] = frozenset({"bounded", "centrally_symmetric", "polytope"})

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

    @property
    def l2_diameter(self) -> float:
        """The largest l2 distance of two points: of a vertex from its opposite."""
        return 2.0 * self.radius

    def gaussian_width(self, d: int) -> float:
        """Return E max_{v in C} <g, v> = radius E max_j |g_j| for g ~ N(0, I_d), to ten digits."""
        return self.radius * _largest_of_normals(d)

    def minkowski(self, xp: Any, V: Array) -> Array:
        """Return ||v||_1 / radius of each row."""
        return xp.sum(xp.abs(V), axis=-1) / self.radius

    def linear_minimizer(self, xp: Any, G: Array) -> Array:
        """Return argmin_{v in C} <g, v> for each row g: the first of the best vertices; 0 for g = 0."""
        return -self.radius * _one_hot(xp, xp.argmax(xp.abs(G), axis=-1), G) * xp.sign(G)

    def vertex_values(self, xp: Any, G: Array) -> Array:
        """Return <g, v> of each row g for the vertices v = radius e_1, ..., radius e_d, -radius e_1, ...: (K, 2d)."""
        return self.radius * xp.concat([G, -G], axis=-1)

    def vertex(self, xp: Any, index: Array, like: Array) -> Array:
        """Return the vertices with these numbers (K,) as rows of an array like `like` (K, d)."""
        d = like.shape[-1]
        sign = 1.0 - 2.0 * xp.astype(index >= d, like.dtype)
        return (self.radius * sign)[:, None] * _one_hot(xp, index % d, like)

    def bregman(self, xp: Any, Y: Array, X: Array) -> Array:
        """Return B_w(y, x) of each pair of rows for w(x) = c/2 ||x||_q^2 (see `_MirrorMap`)."""
        w = _MirrorMap.of(Y.shape[-1], self.radius)
        return w.value(xp, Y) - w.value(xp, X) - xp.vecdot(w.gradient(xp, X), Y - X)

    def bregman_radius(self, d: int) -> float:
        """Return max_{x in C} B_w(x, 0), which is taken on at the vertices."""
        return 0.5 * _MirrorMap.of(d, self.radius).c * self.radius**2

    def mirror_step(self, xp: Any, Z: Array, G: Array) -> Array:
        """Return argmin_{y in C} B_w(y, z) + <g, y> for each pair of rows, to machine precision."""
        w = _MirrorMap.of(Z.shape[-1], self.radius)
        return _in_pieces(xp, lambda z, g: w.minimizer(xp, w.gradient(xp, z) - g), Z, G)

    def gradient_step(self, xp: Any, X: Array, G: Array, a: float) -> Array:
        """Return argmin_{y in C} a/2 ||y - x||_C^2 + <g, y - x> for each pair of rows, in closed form.

        As a function of tau = ||y - x||_1, the best <g, y - x> is piecewise linear. Mass grows on the coordinate of
        the largest |g_j| = M, which gains M for each unit of tau. From the boundary on, each unit of growth is paid by
        shrinking another coordinate, in falling order of s_i = sign(x_i) g_i; that gains (M + s_i)/2 for each unit.
        The gains fall and the marginal cost a tau / radius^2 rises, so growing and shrinking end where they meet: at
        a level s. Coordinates above it shrink to 0, those on it share what is left, those below it stay.
        """
        return _in_pieces(xp, lambda x, g: self._grow_and_shrink(xp, x, g, self.radius**2 / a), X, G)

    def _grow_and_shrink(self, xp: Any, x: Array, g: Array, kappa: float) -> Array:
        size, steepness = xp.abs(x), xp.abs(g)
        largest = xp.max(steepness, axis=-1, keepdims=True)
        room = xp.maximum(self.radius - xp.sum(size, axis=-1, keepdims=True), 0.0)
        gains = xp.sign(x) * g
        level = _payment_level(xp, gains, size, largest, room, kappa)
        above, on = xp.astype(gains > level, x.dtype), xp.astype(gains == level, x.dtype)
        paid_above, paid_on = xp.vecdot(above, size)[:, None], xp.vecdot(on, size)[:, None]
        left = 0.25 * kappa * (largest + level) - 0.5 * room - paid_above
        share = xp.clip(left / xp.where(paid_on > 0.0, paid_on, 1.0), 0.0, 1.0)
        grown = xp.minimum(kappa * largest, room) + paid_above + share * paid_on
        mass = grown * _one_hot(xp, xp.argmax(steepness, axis=-1), g)
        y = x * (1.0 - above - share * on) - mass * xp.sign(g)
        # Rounding may leave the ball by a few units in the last place, which would add up over the steps.
        return y * (self.radius / xp.maximum(xp.sum(xp.abs(y), axis=-1, keepdims=True), self.radius))


@dataclass(frozen=True)
class _MirrorMap:
    """w(x) = c/2 ||x||_q^2 for the l1 ball, with q = 1 + 1/m and m the whole number next to ln d.

    1/2 ||.||_q^2 is (q - 1)-strongly convex in ||.||_q, and ||x||_q >= d^(-1/p) ||x||_1 with 1/p + 1/q = 1, so that
    c = d^(2/p) / ((q - 1) radius^2) makes w 1-strongly convex in the Minkowski norm. For a whole m, and so p = m + 1,
    the inverse of grad w takes products only. For d <= 4, m = 1 and w is Euclidean.
    """

    m: int
    c: float
    radius: float

    @classmethod
    def of(cls, d: int, radius: float) -> _MirrorMap:
        """Return the map for dimension d."""
        m = max(1, round(math.log(d)))
        return cls(m, m * d ** (2.0 / (m + 1)) / radius**2, radius)

    @property
    def q(self) -> float:
        """The exponent of the norm, in (1, 2]."""
        return 1.0 + 1.0 / self.m

    @property
    def p(self) -> int:
        """The conjugate exponent."""
        return self.m + 1

    def value(self, xp: Any, X: Array) -> Array:
        """Return w of each row."""
        size = xp.abs(X)
        return 0.5 * self.c * xp.vecdot(size, size ** (1.0 / self.m)) ** (2.0 / self.q)

    def gradient(self, xp: Any, X: Array) -> Array:
        """Return grad w(x) = c ||x||_q^(2-q) sign(x) |x|^(q-1) of each row."""
        size = xp.abs(X)
        root = size ** (1.0 / self.m)
        norm = xp.vecdot(size, root)[:, None] ** (1.0 / self.q)
        return xp.sign(X) * root * (self.c * norm ** (2.0 - self.q))

    def minimizer(self, xp: Any, Theta: Array) -> Array:
        """Return argmin_{||z||_1 <= radius} w(z) - <theta, z> for each row theta.

        z is the image of theta under the inverse of grad w, after soft-thresholding theta by the level at which the
        image has l1 norm `radius` (by 0 if it is shorter). With max |theta_i| scaled to 1 and the level to 1 - rho,
        the thresholded vector is rho t for t_i = max(0, 1 - gap_i / rho): no power of t is in danger of underflow.
        """
        size = xp.abs(Theta)
        largest = xp.max(size, axis=-1, keepdims=True)
        scale = xp.where(largest > 0.0, largest, 1.0)
        gap = (largest - size) / scale
        reach = scale / (self.c * self.radius)
        rho = self._threshold(xp, gap, reach)
        t = xp.maximum(1.0 - gap / rho, 0.0)
        power = _power(t, self.m)
        total = xp.sum(power, axis=-1, keepdims=True)
        norm = xp.exp(self._log_norm(xp, rho * reach, total, xp.vecdot(power, t)[:, None]))
        return xp.sign(Theta) * power * (self.radius * xp.minimum(norm, 1.0) / total)

    def _threshold(self, xp: Any, gap: Array, reach: Array) -> Array:
        """Return the rho in (0, 1] of each row at which the image has l1 norm `radius`; 1 if it is shorter there.

        Newton's method on logarithms, with bisection where it does not halve the error. A row that has arrived stays
        where it is while others go on, so its bits do not depend on its company.
        """
        # The norm over rho lies between reach and d^(2/p) reach, by Hoelder's inequality.
        high = xp.minimum(1.0 / reach, 1.0)
        low = high * gap.shape[-1] ** (-2.0 / self.p)
        rho, before = high, xp.full_like(high, math.inf)
        found = high < 0.0
        tolerance = 16.0 * float(xp.finfo(gap.dtype).eps)
        for _ in range(_ROOT_STEPS):
            error, slope = self._log_norm_and_slope(xp, gap, rho, reach)
            unreached = (rho >= high) & (error < 0.0)
            found = found | unreached | (xp.abs(error) <= tolerance) | (high - low <= tolerance * low)
            if bool(xp.all(found)):
                break
            low, high = xp.where(error < 0.0, rho, low), xp.where(error < 0.0, high, rho)
            newton = rho * xp.exp(-error / slope)
            trusted = (newton > low) & (newton < high) & (xp.abs(error) <= 0.5 * before)
            before = xp.abs(error)
            rho = xp.where(found, rho, xp.where(trusted, newton, 0.5 * (low + high)))
        return rho

    def _log_norm_and_slope(self, xp: Any, gap: Array, rho: Array, reach: Array) -> tuple[Array, Array]:
        """Return log(||z||_1 / radius) and its derivative in log(rho); t' = 1 - t where t > 0."""
        p, t = self.p, xp.maximum(1.0 - gap / rho, 0.0)
        lower = _power(t, p - 2) if p > 2 else xp.astype(t > 0.0, t.dtype)
        power = lower * t
        sums = (
            xp.sum(lower, axis=-1, keepdims=True),
            xp.sum(power, axis=-1, keepdims=True),
            xp.vecdot(power, t)[:, None],
        )
        slope = 1.0 + (p - 1) * (sums[0] / sums[1] - 1.0) - (p - 2) * (sums[1] / sums[2] - 1.0)
        return self._log_norm(xp, rho * reach, sums[1], sums[2]), slope

    def _log_norm(self, xp: Any, scale: Array, sum_of_powers: Array, sum_of_next_powers: Array) -> Array:
        """Return log(||z||_1 / radius), where z is the image of a multiple of t, from the sums of t^(p-1) and t^p."""
        return xp.log(scale) + xp.log(sum_of_powers) - ((self.p - 2) / self.p) * xp.log(sum_of_next_powers)


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


def _payment_level(xp: Any, gains: Array, size: Array, largest: Array, room: Array, kappa: float) -> Array:
    """Return the largest gain s whose coordinates do not all shrink to 0, or a number below all gains: (K, 1)."""
    order = xp.argsort(-gains, axis=-1)
    falling = xp.take_along_axis(gains, order, axis=-1)
    # tau when this coordinate and all before it have shrunk to 0
    tau = room + 2.0 * xp.cumulative_sum(xp.take_along_axis(size, order, axis=-1), axis=-1)
    stays = 0.5 * kappa * (largest + falling) < tau
    return xp.max(xp.where(stays, falling, -2.0 * largest - 1.0), axis=-1, keepdims=True)


def _in_pieces(xp: Any, step: Callable[[Array, Array], Array], X: Array, G: Array) -> Array:
    """Return step(X, G), a function of pairs of rows, taken over a few rows at a time."""
    rows = max(1, _PIECE // X.shape[-1])
    if X.shape[0] <= rows:
        return step(X, G)
    pieces = [step(X[i : i + rows, :], G[i : i + rows, :]) for i in range(0, X.shape[0], rows)]
    return xp.concat(pieces, axis=0)


def _power(t: Array, m: int) -> Array:
    """Return t^m for a whole m >= 1 by repeated squaring, which is much faster than a general power."""
    if m == 1:
        return t
    half = _power(t, m // 2)
    return half * half if m % 2 == 0 else half * half * t


def _one_hot(xp: Any, index: Array, like: Array) -> Array:
    """Return rows with a single 1 at index (K,), in an array like `like` (K, d)."""
    places = xp.arange(like.shape[-1], device=like.device)
    return xp.astype(places[None, :] == index[:, None], like.dtype)


@functools.cache
def _largest_of_normals(d: int) -> float:
    """Return E max_j |g_j| over d standard normals: the integral of 1 - erf(t / sqrt(2))^d over t > 0."""
    import numpy as np
    from scipy.integrate import quad
    from scipy.special import erfc

    def tail(t: float) -> float:
        return float(-np.expm1(d * np.log1p(-min(erfc(t / math.sqrt(2.0)), 1.0 - 1e-16))))

    # The integrand falls from 1 to 0 around sqrt(2 ln d) and is below 1e-40 ten units further on.
    middle = math.sqrt(2.0 * math.log(d)) if d > 1 else 1.0
    return sum(
        quad(tail, *ends, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for ends in ((0.0, middle), (middle, middle + 14.0))
    )


def _check_radius(name: str, radius: float) -> None:
    if not (1e-100 < radius < 1e100):
        raise UserError(f"The radius of the {name} is {radius}: give a positive number.")
