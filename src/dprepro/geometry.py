"""Constraint sets, row by row on arrays of shape (K, d): projection, linear minimiser, mirror map and its steps.

For a centrally symmetric set C the Minkowski norm is ||v||_C = min{r >= 0 : v in r C}. A set's mirror map w is
1-strongly convex in that norm: B_w(y, x) = w(y) - w(x) - <grad w(x), y - x> >= 1/2 ||y - x||_C^2. All steps are exact
minimisers.

A set in R^d does not know d; where a size depends on it, `d` is an argument, and `math.inf` asks for what holds in
every dimension.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from dprepro.bregman import ball_step, dual_direction, largest_entry, lp_norm, map_gradient
from dprepro.errors import NotConverged, UserError

Array = Any

# Numbers in one temporary of the steps on the l1 ball: half a megabyte stays in cache, and allocating it is cheap.
_PIECE = 65536
# Every step halves the error or the bracket; Newton's method usually needs six.
_ROOT_STEPS = 120
# Newton's steps for the scalar equations of the l_p ball, which start within ln 2 of their end.
_SCALAR_STEPS = 9
# Exponents whose powers and roots have been tested to keep twelve digits.
_LEAST_EXPONENT, _LARGEST_EXPONENT = 1.01, 100.0
# Each step of Wolfe's algorithm adds or drops a vertex; in practice it needs a few times d of them.
_WOLFE_STEPS = 20_000
# How far from the nearest point a projection onto a polytope may be, over the size of the polytope.
_HULL_ACCURACY = 1e-6
_WIDTH_DRAWS = 16_384


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

    def start(self, xp: Any, like: Array) -> Array:
        """Return the origin in every row of an array like `like` (K, d)."""
        return xp.zeros_like(like)

    @property
    def l2_diameter(self) -> float:
        """Infinite."""
        return math.inf

    def diameter(self, p: float, d: float = math.inf) -> float:
        """Return infinity."""
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

    def start(self, xp: Any, like: Array) -> Array:
        """Return the centre in every row of an array like `like` (K, d)."""
        return xp.zeros_like(like)

    @property
    def l2_diameter(self) -> float:
        """The largest l2 distance of two points."""
        return 2.0 * self.radius

    def diameter(self, p: float, d: float = math.inf) -> float:
        """Return the largest l_p distance of two points, p >= 1."""
        return 2.0 * self.radius * _largest_ratio(p, 2.0, d)

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

    def start(self, xp: Any, like: Array) -> Array:
        """Return the centre in every row of an array like `like` (K, d)."""
        return xp.zeros_like(like)

    @property
    def l2_diameter(self) -> float:
        """The largest l2 distance of two points: of a vertex from its opposite."""
        return 2.0 * self.radius

    def diameter(self, p: float, d: float = math.inf) -> float:
        """Return the largest l_p distance of two points, p >= 1: of a vertex from its opposite."""
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


@dataclass(frozen=True)
class LpBall:
    """{w : ||w||_p <= size} for 1 < p < inf (BGM21's l_p setting takes p <= 2; its dual norm is l_q, 1/p + 1/q = 1).

    `radius`, the largest l2 norm of a point, is `size` for p <= 2. For p > 2 it grows with d, so that no number holds
    in every dimension: it is infinite, and the set does not count as bounded.
    """

    p: float
    size: float = 1.0
    name: ClassVar[str] = "lp_ball"

    def __post_init__(self) -> None:
        if not (_LEAST_EXPONENT <= self.p <= _LARGEST_EXPONENT):
            raise UserError(
                f"The exponent of the {self.name} is {self.p}: give a number from {_LEAST_EXPONENT:g} to "
                f"{_LARGEST_EXPONENT:g}, or use l1_ball for p = 1."
            )
        _check_radius(self.name, self.size)

    @property
    def q(self) -> float:
        """The conjugate exponent."""
        return self.p / (self.p - 1.0)

    @property
    def properties(self) -> frozenset[str]:
        """What an algorithm may ask for."""
        return frozenset({"centrally_symmetric"} | ({"bounded"} if self.p <= 2.0 else set()))

    @property
    def radius(self) -> float:
        """The largest l2 norm of a point in any dimension."""
        return 0.5 * self.l2_diameter

    def project(self, xp: Any, V: Array) -> Array:
        """Return the nearest point of each row, to about 1e-14 of its size."""
        return _in_pieces(xp, lambda v, _: self._nearest(xp, v), V, V)

    def _nearest(self, xp: Any, V: Array) -> Array:
        """Solve y_i + lam y_i^(p-1) = |v_i| for the lam > 0 of each row at which ||y||_p = size.

        Everything is in logarithms, relative to the largest |v_i|, so that no power is in danger.
        """
        norms = lp_norm(xp, V, self.p)[:, None]
        outside = norms > self.size
        if not bool(xp.any(outside)):
            return V
        scale = xp.where(outside, largest_entry(xp, V), 1.0)
        share = xp.abs(V) / scale
        present = outside & (share > 0.0)
        log_v = xp.log(xp.where(present, share, 1.0))
        # Rows inside, and coordinates that are 0, go along with an equation of which the root is not used.
        target = xp.where(outside, xp.log(self.size / scale), 0.0)
        surplus = xp.log(xp.where(outside, (norms - self.size) / scale, 1.0))
        log_lam = _shrinking(xp, log_v, present, target, surplus, self.p)
        log_y, _ = _shrunk(xp, log_v, log_lam, self.p)
        y = xp.sign(V) * scale * xp.where(present, xp.exp(log_y), 0.0)
        # What the logarithms have lost is common to all coordinates.
        norms = xp.where(outside, lp_norm(xp, y, self.p)[:, None], self.size)
        return xp.where(outside, y * (self.size / norms), V)

    def excess(self, xp: Any, V: Array) -> Array:
        """Return max(0, ||v||_p - size) for each row."""
        outside = lp_norm(xp, V, self.p) - self.size
        return xp.maximum(outside, xp.zeros_like(outside))

    def start(self, xp: Any, like: Array) -> Array:
        """Return the centre in every row of an array like `like` (K, d)."""
        return xp.zeros_like(like)

    @property
    def l2_diameter(self) -> float:
        """The largest l2 distance of two points in any dimension."""
        return self.diameter(2.0)

    def diameter(self, p: float, d: float = math.inf) -> float:
        """Return the largest l_p distance of two points, p >= 1."""
        return 2.0 * self.size * _largest_ratio(p, self.p, d)

    def gaussian_width(self, d: int) -> float:
        """Return E max_{v in C} <g, v> = size E ||g||_q for g ~ N(0, I_d), to ten digits."""
        return self.size * _mean_norm_of_normals(d, self.q)

    def minkowski(self, xp: Any, V: Array) -> Array:
        """Return ||v||_p / size of each row."""
        return lp_norm(xp, V, self.p) / self.size

    def linear_minimizer(self, xp: Any, G: Array) -> Array:
        """Return argmin_{v in C} <g, v> for each row g; 0 for g = 0."""
        return -self.size * dual_direction(xp, G, self.p)

    @property
    def map_exponent(self) -> float:
        """The exponent s = min(p, 2) of the mirror map w(x) = ||x||_s^2 / (2 (s - 1) size^2).

        1/2 ||.||_s^2 is (s - 1)-strongly convex in ||.||_s, and ||x||_s >= ||x||_p.
        """
        return min(self.p, 2.0)

    def _map_factor(self) -> float:
        return 1.0 / ((self.map_exponent - 1.0) * self.size**2)

    def _map_gradient(self, xp: Any, X: Array) -> Array:
        """Return grad w(x) = c ||x||_s^(2-s) sign(x) |x|^(s-1) of each row."""
        return self._map_factor() * map_gradient(xp, X, self.map_exponent)

    def bregman(self, xp: Any, Y: Array, X: Array) -> Array:
        """Return B_w(y, x) of each pair of rows (see `map_exponent`)."""
        half = 0.5 * self._map_factor()
        values = half * lp_norm(xp, Y, self.map_exponent) ** 2 - half * lp_norm(xp, X, self.map_exponent) ** 2
        return values - xp.vecdot(self._map_gradient(xp, X), Y - X)

    def bregman_radius(self, d: int) -> float:
        """Return max_{x in C} B_w(x, 0)."""
        return 0.5 * self._map_factor() * (self.size * _largest_ratio(self.map_exponent, self.p, d)) ** 2

    def mirror_step(self, xp: Any, Z: Array, G: Array) -> Array:
        """Return argmin_{y in C} B_w(y, z) + <g, y> for each pair of rows.

        With theta = grad w(z) - g this is argmin w(y) - <theta, y>. For p <= 2 both terms depend on ||y||_p and on the
        direction only: the best direction is that of the linear minimiser, the best norm min(size, ||theta||_q / c).
        For p > 2 the map is Euclidean, and the step a projected gradient step.
        """
        if self.p > 2.0:
            return self.project(xp, Z - self.size**2 * G)
        theta = self._map_gradient(xp, Z) - G
        norms = xp.minimum(lp_norm(xp, theta, self.q) / self._map_factor(), self.size)
        return norms[:, None] * dual_direction(xp, theta, self.p)

    def gradient_step(self, xp: Any, X: Array, G: Array, a: float) -> Array:
        """Return argmin_{y in C} a/2 ||y - x||_C^2 + <g, y - x> for each pair of rows, for p <= 2.

        A closed form where the ball does not bind (or p = 2); Newton's method in two unknowns where it does.
        """
        if self.p > 2.0:
            raise UserError(f"The lp_ball has gradient steps for p <= 2 only, not for p = {self.p}: use l2_ball.")
        x, theta = X / self.size, (-self.size / a) * G
        if self.p == 2.0:
            return self.project(xp, self.size * (x + theta))
        return self.size * ball_step(xp, x, theta, self.p, self.p)[0]


@dataclass(frozen=True)
class Simplex:
    """{w : w >= 0, w_1 + ... + w_d = radius}, with the vertices radius e_j."""

    radius: float = 1.0
    name: ClassVar[str] = "simplex"
    properties: ClassVar[frozenset[str]] = frozenset({"bounded", "polytope"})

    def __post_init__(self) -> None:
        _check_radius(self.name, self.radius)

    def project(self, xp: Any, V: Array) -> Array:
        """Return max(0, v - level) for each row, with the exact level found from its sorted values."""
        # Only differences matter, and a value more than `radius` below the largest ends at 0 in any case.
        below = xp.maximum(V - xp.max(V, axis=-1, keepdims=True), xp.full_like(V, -self.radius))
        falling = -xp.sort(-below, axis=-1)
        ranks = xp.cumulative_sum(xp.ones_like(V), axis=-1)
        # As for the l1 ball, the level of the right rank is the largest one.
        level = xp.max((xp.cumulative_sum(falling, axis=-1) - self.radius) / ranks, axis=-1, keepdims=True)
        return xp.maximum(below - level, xp.zeros_like(below))

    def excess(self, xp: Any, V: Array) -> Array:
        """Return the distance of each row from the set."""
        return xp.linalg.vector_norm(V - self.project(xp, V), axis=-1)

    def bregman_radius(self, d: int) -> float:
        """Return infinity: there is no mirror map of this set here."""
        return math.inf

    def start(self, xp: Any, like: Array) -> Array:
        """Return the barycentre in every row of an array like `like` (K, d)."""
        return xp.full_like(like, self.radius / like.shape[-1])

    @property
    def l2_diameter(self) -> float:
        """The largest l2 distance of two points."""
        return self.diameter(2.0)

    def diameter(self, p: float, d: float = math.inf) -> float:
        """Return the largest l_p distance of two points, p >= 1: of two vertices."""
        return self.radius * 2.0 ** (1.0 / p) if d > 1 else 0.0

    def gaussian_width(self, d: int) -> float:
        """Return E max_{v in C} <g, v> = radius E max_j g_j for g ~ N(0, I_d), to ten digits."""
        return self.radius * _largest_signed_normal(d)

    def linear_minimizer(self, xp: Any, G: Array) -> Array:
        """Return argmin_{v in C} <g, v> for each row g: the first of the best vertices."""
        return self.vertex(xp, xp.argmin(G, axis=-1), G)

    def vertex_values(self, xp: Any, G: Array) -> Array:
        """Return <g, v> of each row g for the vertices v = radius e_1, ..., radius e_d: (K, d)."""
        return self.radius * G

    def vertex(self, xp: Any, index: Array, like: Array) -> Array:
        """Return the vertices with these numbers (K,) as rows of an array like `like` (K, d)."""
        return self.radius * _one_hot(xp, index, like)


@dataclass(frozen=True)
class Polytope:
    """The convex hull of the rows of `vertices` (J, d), which may hold points that are no vertices or come twice."""

    vertices: Any
    name: ClassVar[str] = "polytope"
    # Whether projections come from a solver with a stopping rule, which may raise `NotConverged`.
    solves_exactly: ClassVar[bool] = True
    properties: ClassVar[frozenset[str]] = frozenset({"bounded", "polytope"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "vertices", _checked_vertices(self.vertices))

    @functools.cached_property
    def _points(self) -> Any:
        """The vertices as a host array (J, d)."""
        import numpy as np

        return np.asarray(self.vertices, dtype=np.float64)

    def _points_like(self, xp: Any, like: Array) -> Array:
        """Return the vertices in the type and on the device of `like` (K, d)."""
        if like.shape[-1] != self._points.shape[1]:
            raise UserError(
                f"The vertices of the polytope have {self._points.shape[1]} coordinates, but the parameters have "
                f"{like.shape[-1]}: give vertices in as many dimensions as the data have columns."
            )
        return xp.astype(xp.asarray(self._points, device=like.device), like.dtype, copy=False)

    @functools.cached_property
    def radius(self) -> float:
        """The largest l2 norm of a point, which is one of a vertex."""
        return float((self._points**2).sum(axis=1).max() ** 0.5)

    def project(self, xp: Any, V: Array) -> Array:
        """Return the nearest point of each row by Wolfe's algorithm (Mathematical Programming 11, 1976).

        The error is at most sqrt(16 eps diameter distance), with eps of double precision, in which it is computed for
        any V: that of single precision would be 1e-3, by which a projection could expand a distance. Where the face of
        the nearest point is not nearly degenerate, the error is that of a linear system on its vertices.
        """
        exact = xp.astype(V, xp.float64, copy=False)
        return xp.astype(_nearest_in_hull(xp, self._points_like(xp, exact), exact), V.dtype, copy=False)

    def excess(self, xp: Any, V: Array) -> Array:
        """Return the distance of each row from the set."""
        return xp.linalg.vector_norm(V - self.project(xp, V), axis=-1)

    def bregman_radius(self, d: int) -> float:
        """Return infinity: there is no mirror map of this set here."""
        return math.inf

    def start(self, xp: Any, like: Array) -> Array:
        """Return the mean of the vertices in every row of an array like `like` (K, d)."""
        return xp.zeros_like(like) + xp.mean(self._points_like(xp, like), axis=0)

    @property
    def l2_diameter(self) -> float:
        """The largest l2 distance of two points."""
        return self.diameter(2.0)

    def diameter(self, p: float, d: float = math.inf) -> float:
        """Return the largest l_p distance of two points, p >= 1, which is one of two vertices; d is known."""
        return _largest_distance(self, p)

    def gaussian_width(self, d: int) -> float:
        """Return E max_{v in C} <g, v> for g ~ N(0, I_d), as a mean over fixed draws: to about one percent."""
        return _simulated_width(self)

    def linear_minimizer(self, xp: Any, G: Array) -> Array:
        """Return argmin_{v in C} <g, v> for each row g: the first of the best vertices."""
        return self.vertex(xp, xp.argmin(self.vertex_values(xp, G), axis=-1), G)

    def vertex_values(self, xp: Any, G: Array) -> Array:
        """Return <g, v> of each row g for the vertices v in their order: (K, J)."""
        # Not a matrix product: its bits would depend on the number of rows.
        return xp.vecdot(G[:, None, :], self._points_like(xp, G)[None, :, :])

    def vertex(self, xp: Any, index: Array, like: Array) -> Array:
        """Return the vertices with these numbers (K,) as rows of an array like `like` (K, d)."""
        return xp.take(self._points_like(xp, like), index, axis=0)


ConstraintSet = RealSpace | L2Ball | L1Ball | LpBall | Simplex | Polytope
SETS: dict[str, type[RealSpace] | type[L2Ball] | type[L1Ball] | type[LpBall] | type[Simplex]] = {
    s.name: s for s in (RealSpace, L2Ball, L1Ball, LpBall, Simplex)
}


def get_set(wish: str | ConstraintSet | None) -> ConstraintSet:
    """Return a set from `None` (the whole space), `l2_ball:RADIUS`, ..., `lp_ball:P:RADIUS`, or the given one."""
    if wish is None:
        return RealSpace()
    if isinstance(wish, ConstraintSet):
        return wish
    if not isinstance(wish, str):
        raise UserError(f"The constraint {wish!r} is not a set: write for example l2_ball:1.0.")
    name, _, argument = wish.partition(":")
    if name == Polytope.name:
        raise UserError(
            "A polytope has no short name: give constraint=Polytope(vertices) in Python, from dprepro.geometry."
        )
    if name not in SETS:
        raise UserError(f"Unknown constraint {wish!r}: use one of {', '.join(SETS)}, for example l2_ball:1.0.")
    if name == RealSpace.name:
        if argument:
            raise UserError(f"The constraint {name!r} takes no radius, but {wish!r} was given.")
        return RealSpace()
    if name == LpBall.name:
        return _read_lp_ball(wish, argument)
    try:
        radius = float(argument) if argument else 1.0
    except ValueError:
        raise UserError(
            f"The constraint {wish!r} has no number after the colon: write for example {name}:1.0."
        ) from None
    return SETS[name](radius)


def ball_exponent(constraint: ConstraintSet) -> float | None:
    """Return the p of {||w||_p <= size} with 1 <= p <= 2, or None for any other set."""
    known = {L1Ball.name: 1.0, L2Ball.name: 2.0}
    p = constraint.p if isinstance(constraint, LpBall) else known.get(constraint.name)
    return p if p is not None and p <= 2.0 else None


def centred_step(xp: Any, ball: Any, X: Array, Theta: Array, b: float) -> tuple[Array, Array]:
    """Return y = argmin_{y in ball} h(y) - <theta, y> for h(y) = 1/2 ||y - x||_b^2, and the gradient of h at y.

    Row by row for points x of the ball, 1 < b <= 2. It is the Bregman projection of a mirror step whose map is centred
    at x (BGM21, Algorithm 2); for b = 2 the Euclidean projection of x + theta. The ball has a `ball_exponent`.
    """
    a = ball_exponent(ball)
    if a is None or not 1.0 < b <= 2.0:
        raise UserError(f"There are centred steps on l_p balls with p <= 2 only, not on {ball.name} in l_{b:g}.")
    if b == 2.0:
        Y = ball.project(xp, X + Theta)
        return Y, Y - X
    size = 0.5 * ball.diameter(a)
    scaled, binds = ball_step(xp, X / size, Theta / size, a, b)
    Y = size * scaled
    if not bool(xp.any(binds)):
        return Y, Theta
    return Y, xp.where(binds[:, None], map_gradient(xp, Y - X, b), Theta)


def _read_lp_ball(wish: str, argument: str) -> LpBall:
    exponent, _, radius = argument.partition(":")
    try:
        return LpBall(float(exponent), float(radius) if radius else 1.0)
    except ValueError:
        raise UserError(
            f"The constraint {wish!r} needs an exponent and a radius: write for example lp_ball:1.5:1.0."
        ) from None


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


def _largest_ratio(p: float, own: float, d: float) -> float:
    """Return max ||v||_p / ||v||_own over R^d."""
    return d ** max(0.0, 1.0 / p - 1.0 / own)


def _shrunk(xp: Any, log_v: Array, log_lam: Array, p: float) -> tuple[Array, Array]:
    """Return log y and log z of y + z = v with z = lam y^(p-1).

    In x = log y (p >= 2) or x = log y^(p-1) (p < 2) the left side is log(e^(a x) + lam e^(b x)) with a, b >= 1: convex
    and increasing, so that Newton's method falls to the root from where the larger term alone reaches v.
    """
    a, b = max(1.0, 1.0 / (p - 1.0)), max(1.0, p - 1.0)
    x = xp.minimum(log_v / a, (log_v - log_lam) / b)
    for _ in range(_SCALAR_STEPS):
        log_y, log_z = a * x, log_lam + b * x
        lesser = xp.exp(-xp.abs(log_y - log_z))
        error = xp.maximum(log_y, log_z) + xp.log1p(lesser) - log_v
        slope = xp.where(log_y > log_z, a + b * lesser, b + a * lesser) / (1.0 + lesser)
        x = x - error / slope
    return a * x, log_lam + b * x


def _shrinking(xp: Any, log_v: Array, present: Array, target: Array, surplus: Array, p: float) -> Array:
    """Return the log lam of each row at which log ||y||_p = target (K, 1), y being `_shrunk` where present.

    Newton's method with bisection where it does not halve the error. A row that has arrived stays where it is while
    others go on, so its bits do not depend on its company. Rows without a coordinate present count as arrived.
    `surplus` is log(||v||_p - size).
    """
    q, d = p / (p - 1.0), log_v.shape[-1]
    # lam size^(p-1) = ||v - y||_q, which is at most ||v||_q and at least d^-(1/p - 1/q)^+ (||v||_p - size).
    high = math.log(d) / q - (p - 1.0) * target
    low = surplus - max(0.0, 1.0 / p - 1.0 / q) * math.log(d) - (p - 1.0) * target
    at, before = xp.minimum(0.5 * (low + high), high), xp.full_like(high, math.inf)
    found = ~xp.any(present, axis=-1, keepdims=True)
    rounding = 4.0 * float(xp.finfo(log_v.dtype).eps)
    tolerance = rounding * (1.0 + xp.abs(target))  # a logarithm is no more exact
    for _ in range(_ROOT_STEPS):
        log_norm, slope = _log_norm_and_slope(xp, log_v, present, at, p)
        error = log_norm - target
        found = found | (xp.abs(error) <= tolerance) | (high - low <= rounding * (1.0 + xp.abs(at)))
        if bool(xp.all(found)):
            break
        low, high = xp.where(error > 0.0, at, low), xp.where(error > 0.0, high, at)
        newton = at - error / slope
        trusted = (newton > low) & (newton < high) & (xp.abs(error) <= 0.5 * before)
        before = xp.abs(error)
        at = xp.where(found, at, xp.where(trusted, newton, 0.5 * (low + high)))
    return at


def _log_norm_and_slope(xp: Any, log_v: Array, present: Array, log_lam: Array, p: float) -> tuple[Array, Array]:
    """Return log ||y||_p of `_shrunk` and its derivative in log lam; that of log y is -z / (y + (p - 1) z)."""
    log_y, log_z = _shrunk(xp, log_v, log_lam, p)
    largest = xp.max(xp.where(present, log_y, -math.inf), axis=-1, keepdims=True)
    largest = xp.where(xp.isfinite(largest), largest, 0.0)
    powers = xp.where(present, xp.exp(p * (xp.minimum(log_y, largest) - largest)), 0.0)
    total = xp.maximum(xp.sum(powers, axis=-1, keepdims=True), 1.0)
    part = 0.5 + 0.5 * xp.tanh(0.5 * (log_z - log_y))  # z / (y + z)
    moves = part / (1.0 + (p - 2.0) * part)
    slope = -xp.vecdot(powers, moves)[:, None] / total
    return largest + xp.log(total) / p, xp.where(slope < 0.0, slope, -1.0)


def _nearest_in_hull(xp: Any, points: Array, V: Array) -> Array:
    """Return the point of the convex hull of `points` (J, d) nearest to each row of V (K, d).

    Wolfe's algorithm: a row holds a few affinely independent vertices with weights. If the nearest point of their
    affine hull has positive weights, the row moves there and takes up the vertex that promises most; otherwise it
    moves as far as weights stay positive and drops the vertex that stops it. All rows take a step together; a row
    that has arrived stays where it is.
    """
    # Near the origin and of size 1, where differences of points are exact enough.
    centre = xp.mean(points, axis=0)
    size = xp.max(xp.linalg.vector_norm(points - centre, axis=-1))
    size = xp.where(size > 0.0, size, 1.0)
    points, V = (points - centre) / size, (V - centre) / size
    corral = _Corral.nearest_vertex(xp, points, V)
    for _ in range(_WOLFE_STEPS):
        corral = corral.step(xp, points, V)
        if bool(xp.all(corral.found)):
            break
    y = corral.position(xp, points)
    if not bool(xp.all(corral.found)):
        # max_j <v - y, v_j - y> is at least the squared distance of y from the nearest point.
        ahead = xp.max(xp.vecdot((V - y)[:, None, :], points[None, :, :]), axis=-1) - xp.vecdot(V - y, y)
        error = float(xp.max(xp.sqrt(xp.maximum(ahead, 0.0 * ahead))))
        if not error <= _HULL_ACCURACY:
            raise NotConverged(
                f"The projection onto a polytope with {points.shape[0]} vertices is known to {error:.2g} of its size "
                f"after {_WOLFE_STEPS} steps, not to {_HULL_ACCURACY:g}: give fewer vertices."
            )
    return centre + size * y


@dataclass(frozen=True)
class _Corral:
    """The vertices that the rows hold, in m = min(J, d + 1) slots each: arrays (K, m), and (K,) for `newest`, `found`.

    `index` are their numbers, `weights` are positive in the slots that are `used`, but 0 for a vertex just taken up,
    which is in the slot `newest` (-1 for none).
    """

    index: Array
    weights: Array
    used: Array
    newest: Array
    found: Array

    @classmethod
    def nearest_vertex(cls, xp: Any, points: Array, V: Array) -> _Corral:
        """Begin with the nearest vertex in the first slot."""
        apart = xp.stack([xp.linalg.vector_norm(V - points[j, :], axis=-1) for j in range(points.shape[0])], axis=-1)
        first = xp.argmin(apart, axis=-1)
        slots = xp.arange(min(points.shape[0], V.shape[-1] + 1), device=V.device)
        used = (slots[None, :] == 0) & (first[:, None] >= 0)
        index = first[:, None] * xp.astype(used, first.dtype)
        return cls(index, xp.astype(used, V.dtype), used, xp.full_like(first, -1), first < 0)

    def step(self, xp: Any, points: Array, V: Array) -> _Corral:
        """Move every row that has not arrived."""
        vertices = self._vertices(xp, points)
        aim = self._aim(xp, vertices, V)
        inside = xp.all((aim > 0.0) | ~self.used, axis=-1)
        arrived = self._take_up(xp, points, V, vertices, aim)
        stopped = self._drop(xp, aim)
        return _chosen(xp, self.found, self, _chosen(xp, inside, arrived, stopped))

    def position(self, xp: Any, points: Array) -> Array:
        """Return the weighted sums of the vertices (K, d)."""
        return xp.sum(self.weights[:, :, None] * self._vertices(xp, points), axis=1)

    def _vertices(self, xp: Any, points: Array) -> Array:
        """Return the vertices of each row: (K, m, d)."""
        flat = xp.take(points, xp.reshape(self.index, (-1,)), axis=0)
        return xp.reshape(flat, (*self.index.shape, points.shape[1]))

    def _aim(self, xp: Any, vertices: Array, V: Array) -> Array:
        """Return the weights of the point of the affine hull nearest to each row, 0 in slots that are not used.

        With y the present point, these are the mu that minimise ||sum_j mu_j (v_j - y) - (v - y)|| with sum 1. The
        present weights change no sum of v_j - y, so the condition on the sum is one more equation of a least squares
        problem, which it meets exactly. Slots that are not used get the equation mu_j = 0.
        """
        used = xp.astype(self.used, V.dtype)
        y = xp.sum(self.weights[:, :, None] * vertices, axis=1)
        spread = xp.matrix_transpose((vertices - y[:, None, :]) * used[:, :, None])
        unused = xp.eye(used.shape[1], dtype=V.dtype, device=V.device) * (1.0 - used)[:, None, :]
        Q, R = xp.linalg.qr(xp.concat([used[:, None, :], spread, unused], axis=1))
        goal = xp.concat([xp.ones_like(V[:, :1]), V - y, xp.zeros_like(used)], axis=1)
        # Vertices of one face may be dependent, up to rounding: the shortest solution will do.
        inverse = xp.linalg.pinv(R, rtol=64.0 * float(xp.finfo(V.dtype).eps))
        aim = (inverse @ (xp.matrix_transpose(Q) @ goal[:, :, None]))[:, :, 0]
        return aim * used

    def _take_up(self, xp: Any, points: Array, V: Array, vertices: Array, aim: Array) -> _Corral:
        """Move to the aim and take up the vertex farthest in the direction of the row, if that leads any nearer."""
        y = xp.sum(aim[:, :, None] * vertices, axis=1)
        ahead = xp.vecdot((V - y)[:, None, :], points[None, :, :])
        best = xp.argmax(ahead, axis=-1)
        gain = xp.max(ahead, axis=-1) - xp.vecdot(V - y, y)
        rounding = 8.0 * (1.0 + points.shape[1] ** 0.5) * float(xp.finfo(V.dtype).eps)
        held = xp.any((self.index == best[:, None]) & self.used, axis=-1)
        found = (gain <= rounding * xp.linalg.vector_norm(V - y, axis=-1)) | held | xp.all(self.used, axis=-1)
        free = xp.argmin(xp.astype(self.used, V.dtype), axis=-1)
        here = (_places(xp, aim) == free[:, None]) & ~found[:, None]
        index = xp.where(here, best[:, None], self.index)
        return _Corral(index, aim, self.used | here, xp.where(found, -1, free), found)

    def _drop(self, xp: Any, aim: Array) -> _Corral:
        """Move towards the aim until a weight is 0, and drop its vertex."""
        falls = self.used & (aim <= 0.0)
        slopes = xp.where(falls, self.weights - aim, 1.0)
        reach = xp.where(falls, self.weights / xp.where(slopes > 0.0, slopes, 1.0), math.inf)
        share = xp.clip(xp.min(reach, axis=-1, keepdims=True), 0.0, 1.0)
        here = _places(xp, aim) == xp.argmin(reach, axis=-1)[:, None]
        weights = xp.where(here, 0.0, xp.maximum(self.weights + share * (aim - self.weights), 0.0))
        # A vertex just taken up leads nearer, so that its weight cannot fall unless by rounding.
        stalled = xp.any(here & (_places(xp, aim) == self.newest[:, None]) & (share <= 0.0), axis=-1)
        return _Corral(self.index, weights, self.used & ~here, xp.full_like(self.newest, -1), stalled)


def _chosen(xp: Any, condition: Array, one: _Corral, other: _Corral) -> _Corral:
    """Return the row of `one` where the condition (K,) holds, else that of `other`."""
    wide = condition[:, None]
    return _Corral(
        xp.where(wide, one.index, other.index),
        xp.where(wide, one.weights, other.weights),
        xp.where(wide, one.used, other.used),
        xp.where(condition, one.newest, other.newest),
        xp.where(condition, one.found, other.found),
    )


def _places(xp: Any, like: Array) -> Array:
    """Return 0, 1, ... along the last axis of an array like `like` (K, m), as one row."""
    return xp.arange(like.shape[-1], device=like.device)[None, :]


def _checked_vertices(vertices: Any) -> tuple[tuple[float, ...], ...]:
    import numpy as np

    try:
        points = np.asarray(vertices, dtype=np.float64)
    except (TypeError, ValueError):
        points = np.zeros(0)
    if points.ndim != 2 or 0 in points.shape or not np.all(np.isfinite(points)) or np.max(np.abs(points)) >= 1e100:
        raise UserError("The vertices of a polytope are not a table of finite numbers: give an array of shape (J, d).")
    return tuple(tuple(row) for row in points.tolist())


@functools.lru_cache(maxsize=64)
def _largest_distance(polytope: Polytope, p: float) -> float:
    """Return the largest l_p distance of two vertices."""
    import numpy as np

    points = polytope._points
    return float(max(np.max(lp_norm(np, points[j:] - points[j], p)) for j in range(len(points))))


@functools.lru_cache(maxsize=64)
def _simulated_width(polytope: Polytope) -> float:
    """Return the mean of max_j <g, v_j - centre> over fixed draws of g and -g; the centre adds 0 to the mean."""
    import numpy as np

    points = polytope._points - np.mean(polytope._points, axis=0)
    rng = np.random.default_rng(0)
    total = 0.0
    for _ in range(0, _WIDTH_DRAWS, 1024):
        values = rng.standard_normal((512, points.shape[1])) @ points.T
        total += float(np.sum(np.max(values, axis=1)) - np.sum(np.min(values, axis=1)))
    return total / _WIDTH_DRAWS


@functools.cache
def _largest_signed_normal(d: int) -> float:
    """Return E max_j g_j over d standard normals: the integral of 1 - Phi(t)^d - Phi(-t)^d over t > 0."""
    import numpy as np
    from scipy.integrate import quad
    from scipy.special import ndtr

    def tail(t: float) -> float:
        return float(-np.expm1(d * np.log1p(-ndtr(-t))) - ndtr(-t) ** d)

    middle = math.sqrt(2.0 * math.log(d)) if d > 1 else 1.0
    return sum(
        quad(tail, *ends, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for ends in ((0.0, middle), (middle, middle + 14.0))
    )


@functools.cache
def _mean_norm_of_normals(d: int, q: float) -> float:
    """Return E ||g||_q for g ~ N(0, I_d), the integral of (1 - psi(s)^d) / Gamma(1 - 1/q) over s > 0.

    psi(s) = E exp(-(|g_1| / s)^q) is the Laplace transform of |g_1|^q, and E S^(1/q) = c int (1 - E e^(-t S))
    t^(-1-1/q) dt for S = ||g||_q^q, with t = s^-q. In x = ln s and ln |g_1| both integrands are smooth and fall
    exponentially on either side.
    """
    import numpy as np
    from scipy.integrate import quad

    step = 0.25 / max(q, 2.0)  # the rule of equal steps errs by e^(-2 pi^2 / (2 q step)) or so
    y = np.arange(-40.0, 2.5, step)
    weights = step * math.sqrt(2.0 / math.pi) * np.exp(y - 0.5 * np.exp(2.0 * y))

    def integrand(x: float) -> float:
        rise = np.exp(np.minimum(q * (y - x), 700.0))
        miss = float(weights @ -np.expm1(-rise))
        log_psi = math.log1p(-miss) if miss < 0.5 else math.log(max(float(weights @ np.exp(-rise)), 1e-300))
        return -math.expm1(d * log_psi) * math.exp(x)

    moment = math.exp(0.5 * q * math.log(2.0) + math.lgamma(0.5 * (q + 1.0))) / math.sqrt(math.pi)
    middle, end = math.log(d * moment) / q, math.log(d * moment * 1e13) / q
    ends = (
        (middle - 34.0, middle - 4.0, middle, middle + 1.0, end) if end > middle + 1.0 else (middle - 34.0, middle, end)
    )
    body = sum(quad(integrand, *pair, epsabs=0.0, epsrel=1e-12, limit=400)[0] for pair in itertools.pairwise(ends))
    # Beyond, 1 - psi^d is d E|g|^q s^-q.
    tail = d * moment * math.exp((1.0 - q) * end) / (q - 1.0)
    return (body + tail) / math.gamma(1.0 - 1.0 / q)


def _check_radius(name: str, radius: float) -> None:
    if not (1e-100 < radius < 1e100):
        raise UserError(f"The radius of the {name} is {radius}: give a positive number.")
