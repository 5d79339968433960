"""Norms of l_p spaces and the Bregman projections of their balls, row by row on arrays of shape (K, d).

The mirror map is h(y) = 1/2 ||y - x||_b^2 with 1 < b <= 2, centred at a point x of the ball {||y||_a <= 1}, which is
centred at 0. Its Bregman projections are exact minimisers of h(y) - <theta, y> over the ball (BGM21, Algorithm 2). With
f_s(v) = sign(v) |v|^(s-1), u = y - x and n = ||u||_b, the minimiser is the y with

    n^(2-b) f_b(u) + lam f_a(y) = theta  and  ||y||_a = 1  for a lam > 0

wherever the ball binds. Given A = n^(2-b) and lam this is an equation for each coordinate by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Array = Any

# Steps of a root search, far more than it needs.
_ROOT_STEPS = 120
# Newton's method for A and lam usually needs five to eight steps; where it does not end, nested roots do.
_NEWTON_STEPS = 15
_LONGEST_STEP = 2.0
# A miss of so many times the rounding is small; where so many steps do not halve it, rounding keeps it there.
_NEAR, _PATIENCE = 1e5, 4.0
# Steps of Newton's method for a coordinate; those that have not ended by then are bisected.
_COORDINATE_STEPS = 60
# Below this a step from the centre is rounding; beyond the other, on the way to a solution, it is cut.
_NO_STEP, _LARGEST_STEP = 1e-18, 1e12


def largest_entry(xp: Any, V: Array) -> Array:
    """Return max_i |v_i| of each row: (K, 1)."""
    return xp.max(xp.abs(V), axis=-1, keepdims=True)


def lp_norm(xp: Any, V: Array, p: float) -> Array:
    """Return ||v||_p of each row, where no power overflows: (K,)."""
    if p == 2.0:
        return xp.linalg.vector_norm(V, axis=-1)
    if p == 1.0:
        return xp.sum(xp.abs(V), axis=-1)
    largest = largest_entry(xp, V)
    share = xp.abs(V) / xp.where(largest > 0.0, largest, 1.0)
    return largest[:, 0] * xp.sum(share**p, axis=-1) ** (1.0 / p)


def dual_direction(xp: Any, G: Array, p: float) -> Array:
    """Return the maximiser of <g, v> over ||v||_p <= 1 for each row g, p > 1; 0 for g = 0."""
    largest = largest_entry(xp, G)
    share = xp.abs(G) / xp.where(largest > 0.0, largest, 1.0)
    power = share ** (1.0 / (p - 1.0))
    # ||power||_p, without the root of a sum of q-th powers: for large q they would be as good as 0 or 1.
    norms = lp_norm(xp, power, p)[:, None]
    return xp.sign(G) * power / xp.where(norms > 0.0, norms, 1.0)


def map_gradient(xp: Any, U: Array, b: float) -> Array:
    """Return the gradient of 1/2 ||u||_b^2 at each row: ||u||_b^(2-b) sign(u) |u|^(b-1)."""
    if b == 2.0:
        return U
    largest = largest_entry(xp, U)
    share = U / xp.where(largest > 0.0, largest, 1.0)
    powers = xp.sign(share) * xp.abs(share) ** (b - 1.0)
    return largest * lp_norm(xp, share, b)[:, None] ** (2.0 - b) * powers


def map_inverse(xp: Any, Theta: Array, b: float) -> Array:
    """Return the u of each row at which `map_gradient` is theta."""
    if b == 2.0:
        return Theta
    return lp_norm(xp, Theta, b / (b - 1.0))[:, None] * dual_direction(xp, Theta, b)


def ball_step(xp: Any, X: Array, Theta: Array, a: float, b: float) -> tuple[Array, Array]:
    """Return argmin_{||y||_a <= 1} 1/2 ||y - x||_b^2 - <theta, y> for each pair of rows, 1 <= a <= 2 and 1 < b < 2.

    With it comes on which rows the ball binds (K,); elsewhere the step is a closed form. Rows on which it does are
    solved side by side, to rounding in y. A row's bits do not depend on its company.
    """
    Y = X + map_inverse(xp, Theta, b)
    binds = lp_norm(xp, Y, a) > 1.0
    if not bool(xp.any(binds)):
        return Y, binds
    # Where theta points straight out of the ball, x is the minimiser: <theta, x> is then the dual norm.
    largest = lp_norm(xp, Theta, a / (a - 1.0)) if a > 1.0 else largest_entry(xp, Theta)[:, 0]
    stays = binds & (largest - xp.vecdot(Theta, X) <= 4.0 * float(xp.finfo(X.dtype).eps) * largest)
    Y, moves = xp.where(stays[:, None], X, Y), binds & ~stays
    if bool(xp.any(moves)):
        (rows,) = xp.nonzero(moves)
        found = _bound_step(xp, xp.take(X, rows, axis=0), xp.take(Theta, rows, axis=0), a, b)
        Y = _put_back(xp, moves, found, Y)
    return Y, binds


def _put_back(xp: Any, chosen: Array, values: Array, others: Array) -> Array:
    """Return `others` (K, d) with the chosen rows (K,) replaced by `values`, which are in their order."""
    place = xp.cumulative_sum(xp.astype(chosen, xp.int64)) - 1
    return xp.where(chosen[:, None], xp.take(values, xp.maximum(place, xp.zeros_like(place)), axis=0), others)


def _bound_step(xp: Any, x: Array, theta: Array, a: float, b: float) -> Array:
    """Return the step of rows on which the ball binds.

    Newton's method in both unknowns is the faster way for a > 1. For a = 1 coordinates that come to 0 mislead it.
    """
    equation = _Equation(xp, x, theta, a, b)
    if a == 1.0:
        return _pushed_back(xp, _by_nested_roots(equation), a)
    y, arrived = _by_newton(equation)
    if not bool(xp.all(arrived)):
        (rows,) = xp.nonzero(~arrived)
        rest = _Equation(xp, xp.take(x, rows, axis=0), xp.take(theta, rows, axis=0), a, b)
        y = _put_back(xp, ~arrived, _by_nested_roots(rest), y)
    return _pushed_back(xp, y, a)


def _pushed_back(xp: Any, y: Array, a: float) -> Array:
    """Return y without what rounding has left outside, which is common to all coordinates."""
    return y / xp.maximum(lp_norm(xp, y, a)[:, None], 1.0)


@dataclass(frozen=True)
class _Equation:
    """The optimality condition of some rows; A and lam have shape (K, 1)."""

    xp: Any
    x: Array
    theta: Array
    a: float
    b: float

    @property
    def reach(self) -> float:
        """A bound on ||u||_b at the minimiser, with some room."""
        return 2.1 * max(1.0, self.x.shape[-1] ** (1.0 / self.b - 1.0 / self.a))

    def solve(self, A: Array, lam: Array) -> tuple[Array, Array]:
        """Return u and y = x + u with A f_b(u) + lam f_a(y) = theta, or the next u of the largest size."""
        return self._thresholded(A, lam) if self.a == 1.0 else self._pulled(A, lam)

    def _thresholded(self, A: Array, lam: Array) -> tuple[Array, Array]:
        """For a = 1, f_a(y) is any number in [-1, 1] at y = 0: a shift that stops there."""
        xp = self.xp
        up, down = (self.x + self._inverse((self.theta - shift) / A) for shift in (lam, -lam))
        y = xp.maximum(up, xp.zeros_like(up)) + xp.minimum(down, xp.zeros_like(down))
        # The difference of y and x would lose the digits of a small u.
        u = xp.where(up > 0.0, self._inverse((self.theta - lam) / A), self._inverse((self.theta + lam) / A))
        return xp.where(y == 0.0, -self.x, u), y

    def _inverse(self, V: Array) -> Array:
        """Return the u with f_b(u) = v, cut at the largest size."""
        size = self.xp.minimum(self.xp.abs(V), self.xp.full_like(V, _LARGEST_STEP ** (self.b - 1.0)))
        return self.xp.sign(V) * size ** (1.0 / (self.b - 1.0))

    def _pulled(self, A: Array, lam: Array) -> tuple[Array, Array]:
        """Solve a scalar equation for each coordinate.

        Let x >= 0. The unknown is s = |y|^(a-1) or |u|^(b-1), of y and u the one that may come near 0, where its f is
        steep; the other one is then x + s^m, or x - s^m where y lies between 0 and x.
        """
        xp, a, b = self.xp, self.a, self.b
        flip = minus_where(xp, self.x < 0.0, self.x)
        x, theta = xp.abs(self.x), self.theta * flip
        beyond, before = theta >= lam * x ** (a - 1.0), theta <= -A * x ** (b - 1.0)  # y >= x, y <= 0
        middle = lam * (0.5 * x) ** (a - 1.0) - A * (0.5 * x) ** (b - 1.0)
        by_y = before | (~beyond & (theta <= middle))
        goal = xp.where(beyond | (by_y & ~before), theta, -theta)
        sign = minus_where(xp, ~(beyond | before), x)
        own, other = xp.where(by_y, lam, A), xp.where(by_y, A, lam)
        own_y = xp.astype(by_y, x.dtype)
        m = own_y / (a - 1.0) + (1.0 - own_y) / (b - 1.0)
        e = own_y * (b - 1.0) + (1.0 - own_y) * (a - 1.0)
        # Between 0 and x the half next to the unknown; else where either term alone reaches the goal.
        rest, floor = xp.maximum(goal, 0.0), 1.0 / _LARGEST_STEP**2
        other_alone = xp.minimum(rest / xp.maximum(other, floor), _LARGEST_STEP**e) ** (1.0 / (m * e))
        high = xp.minimum(rest / xp.maximum(own, floor), other_alone)
        high = xp.minimum(xp.where(sign > 0.0, high, (0.5 * x) ** (1.0 / m)), _LARGEST_STEP ** (1.0 / m))
        s = _coordinate_root(xp, own, sign * other, x, sign, m, e, goal, high)
        power = s**m
        y = xp.where(by_y, minus_where(xp, before, x) * power, x + sign * power)
        u = xp.where(by_y, y - x, sign * power)
        return flip * u, flip * y

    def multiplier(self, A: Array, ell: Array) -> tuple[Array, Array, Array]:
        """Return lam, and its derivatives in ln A and in ell, for the unknown ell in place of lam.

        It is ln lam for a > 1. For a = 1 and lam = max |theta + A f_b(x)| all of y is 0, and a little less is enough:
        the unknown is the logarithm of what is missing.
        """
        xp = self.xp
        if self.a > 1.0:
            lam = xp.exp(ell)
            return lam, xp.zeros_like(lam), lam
        fixed = A * xp.sign(self.x) * xp.abs(self.x) ** (self.b - 1.0)
        pull = self.theta + fixed
        top = xp.argmax(xp.abs(pull), axis=-1)[:, None]
        pull, fixed = (xp.take_along_axis(values, top, axis=-1) for values in (pull, fixed))
        missing = xp.minimum(xp.exp(ell), xp.abs(pull))
        # At lam = 0 only A can change anything.
        free = xp.astype(missing < xp.abs(pull), A.dtype)
        return xp.abs(pull) - missing, free * xp.sign(pull) * fixed, -free * missing

    def moves(self, u: Array, y: Array, A: Array, lam: Array) -> tuple[Array, Array, Array]:
        """Return f_b(u), f_a(y) and -1/(the slope of the equation in y); 0 where a coordinate cannot move."""
        xp, a, b = self.xp, self.a, self.b
        size_u, size_y = xp.abs(u), xp.abs(y)
        room_u = size_u ** (2.0 - b)
        if a == 1.0:
            gain = xp.where(size_y > 0.0, room_u / (A * (b - 1.0)), 0.0)
        else:
            room_y = size_y ** (2.0 - a)
            slope = A * (b - 1.0) * room_y + lam * (a - 1.0) * room_u
            gain = room_u * room_y / xp.where(slope > 0.0, slope, 1.0)
        return xp.sign(u) * size_u ** (b - 1.0), xp.sign(y) * size_y ** (a - 1.0), -gain


def _by_newton(equation: _Equation) -> tuple[Array, Array]:
    """Return y (K, d) and which rows have arrived (K,): ln ||u||_b^(2-b) = ln A and ln ||y||_a = 0.

    The unknowns are ln A and what stands for lam; their steps are cut to 2. A large lam cancels theta, so that rounding
    may keep the misses from vanishing: a row has arrived, too, where small ones do not get smaller any more.
    """
    xp, a, b = equation.xp, equation.a, equation.b
    alpha, ell = _first_guess(equation)
    tolerance = 8.0 * float(xp.finfo(alpha.dtype).eps)
    best, least = equation.x, xp.full_like(alpha, math.inf)
    late = xp.zeros_like(alpha)
    for _ in range(_NEWTON_STEPS):
        A = xp.exp(alpha)
        lam, *by = equation.multiplier(A, ell)
        u, y = equation.solve(A, lam)
        n, size = lp_norm(xp, u, b)[:, None], lp_norm(xp, y, a)[:, None]
        positive = (n > 0.0) & (size > 0.0)
        miss_n = (2.0 - b) * xp.log(xp.where(positive, n, 1.0)) - alpha
        miss_y = xp.log(xp.where(positive, size, 1.0))
        miss = xp.maximum(xp.abs(miss_n) / (1.0 + xp.abs(alpha)), xp.abs(miss_y))
        nearer = positive & (miss < least) & (late < _PATIENCE)
        late = xp.where(nearer & (miss < 0.5 * least), 0.0, late + 1.0)
        best, least = xp.where(nearer, y, best), xp.where(nearer, miss, least)
        arrived = (least <= tolerance) | ((least <= _NEAR * tolerance) & (late >= _PATIENCE))
        if bool(xp.all(arrived)):
            break
        steps = _newton_step(_slopes(equation, u, y, A, lam, by), (miss_n, miss_y), xp)
        usable = ~arrived & positive & xp.isfinite(steps[0]) & xp.isfinite(steps[1])
        alpha, ell = (
            value + xp.where(usable, xp.clip(step, -_LONGEST_STEP, _LONGEST_STEP), 0.0)
            for value, step in zip((alpha, ell), steps, strict=True)
        )
        late = xp.where(arrived, late, xp.where(least <= _NEAR * tolerance, late, 0.0))
    return best, arrived[:, 0]


def _first_guess(equation: _Equation) -> tuple[Array, Array]:
    """Return ln A and what stands for lam (K, 1) at the free minimiser, scaled back to the sphere."""
    xp, x, theta, a, b = equation.xp, equation.x, equation.theta, equation.a, equation.b
    y = x + map_inverse(xp, theta, b)
    y = y / lp_norm(xp, y, a)[:, None]
    n = xp.clip(lp_norm(xp, y - x, b)[:, None], 1e-6, 3.0 * equation.reach)
    alpha = (2.0 - b) * xp.log(n)
    rest = theta - map_gradient(xp, y - x, b)
    if a > 1.0:
        lam = lp_norm(xp, rest, a / (a - 1.0))[:, None]
        return alpha, xp.log(xp.maximum(lam, 1e-6 * lp_norm(xp, theta, b / (b - 1.0))[:, None]))
    most, _, _ = equation.multiplier(xp.exp(alpha), xp.full_like(alpha, -math.inf))
    return alpha, xp.log(xp.maximum(most - largest_entry(xp, rest), 1e-3 * most))


def _slopes(
    equation: _Equation, u: Array, y: Array, A: Array, lam: Array, by: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """Return the derivatives of ln ||u||_b^(2-b) - ln A and of ln ||y||_a in ln A and in ell, each (K, 1).

    `by` are the derivatives of lam in the two.
    """
    xp, b = equation.xp, equation.b
    f_u, f_y, move = equation.moves(u, y, A, lam)
    size_u, size_y = (xp.vecdot(xp.abs(v), xp.abs(f))[:, None] for v, f in ((u, f_u), (y, f_y)))
    moved = (move * (A * f_u + by[0] * f_y), move * by[1] * f_y)
    top, low = (
        [xp.vecdot(f, part)[:, None] / xp.where(size > 0.0, size, 1.0) for part in moved]
        for f, size in ((f_u, size_u), (f_y, size_y))
    )
    return [(2.0 - b) * top[0] - 1.0, (2.0 - b) * top[1]], low


def _newton_step(slopes: tuple[list[Array], list[Array]], miss: Sequence[Array], xp: Any) -> tuple[Array, Array]:
    """Return the changes of ln A and ell that would remove the misses, were they linear; 0 where there are none."""
    top, low = slopes
    determinant = top[0] * low[1] - top[1] * low[0]
    solved = determinant != 0.0
    scale = xp.where(solved, determinant, 1.0)
    step_alpha = (top[1] * miss[1] - low[1] * miss[0]) / scale
    step_ell = (low[0] * miss[0] - top[0] * miss[1]) / scale
    return xp.where(solved, step_alpha, 0.0), xp.where(solved, step_ell, 0.0)


def _by_nested_roots(equation: _Equation) -> Array:
    """Return y (K, d) by a root in ln A, with the right lam for every A.

    The minimum over y of A/b ||u||_b^b + lam/a (||y||_a^a - 1) - <theta, y> is concave in (A, lam), and so is its
    largest value over lam, whose derivative is ||u||_b^b / b. Therefore ln ||u||_b^(2-b) - ln A falls in ln A, with a
    slope of -1 or steeper, and the root is no further than the miss. Newton's method within a bracket on either level.
    """
    xp, b = equation.xp, equation.b
    alpha, ell = _first_guess(equation)
    # The largest ||u||_b on the ball, and what is rounding beside it.
    low, high = (2.0 - b) * math.log(_NO_STEP), (2.0 - b) * math.log(equation.reach)
    low, high = xp.full_like(alpha, low), xp.full_like(alpha, high)
    alpha, y = xp.clip(alpha, low, high), equation.x
    arrived, least = alpha != alpha, xp.full_like(alpha, math.inf)
    for _ in range(_ROOT_STEPS):
        ell, u, now, (top, bottom) = _right_multiplier(equation, alpha, ell)
        y = xp.where(arrived, y, now)
        n = xp.maximum(lp_norm(xp, u, b)[:, None], _NO_STEP)
        miss = (2.0 - b) * xp.log(n) - alpha
        tolerance = 4.0 * float(xp.finfo(alpha.dtype).eps) * (1.0 + xp.abs(alpha))
        low, high = xp.where(miss > 0.0, alpha, low), xp.where(miss > 0.0, high, alpha)
        low, high = xp.maximum(low, alpha - xp.abs(miss)), xp.minimum(high, alpha + xp.abs(miss))
        # A miss that is small and does not get any smaller is rounding.
        arrived = arrived | (xp.abs(miss) <= tolerance) | (high - low <= tolerance)
        arrived = arrived | ((xp.abs(miss) <= _NEAR * tolerance) & (xp.abs(miss) >= 0.5 * least))
        least = xp.minimum(least, xp.abs(miss))
        if bool(xp.all(arrived)):
            break
        answers = bottom[1] != 0.0
        slope = top[0] - xp.where(answers, top[1] * bottom[0] / xp.where(answers, bottom[1], 1.0), 0.0)
        newton = alpha - miss / slope
        inside = (newton >= low) & (newton <= high)
        alpha = xp.where(arrived, alpha, xp.where(inside, newton, 0.5 * (low + high)))
    return y


def _right_multiplier(equation: _Equation, alpha: Array, ell: Array) -> tuple[Array, Array, Array, Any]:
    """Return the ell at which ||y||_a = 1 for given ln A, with u, y and the slopes of the misses there.

    Where the ball does not bind for this A, ell is at the end that stands for lam = 0.
    """
    xp, a = equation.xp, equation.a
    A, turn = xp.exp(alpha), 1.0 if a > 1.0 else -1.0
    none = _no_multiplier(equation, A)
    # ||y||_a falls in turn * ell.
    low, high = turn * none, xp.full_like(ell, math.inf)
    ell = turn * xp.maximum(turn * ell, low)
    tolerance = 4.0 * float(xp.finfo(ell.dtype).eps)
    arrived = alpha != alpha
    for _ in range(_ROOT_STEPS):
        lam, *by = equation.multiplier(A, ell)
        u, y = equation.solve(A, lam)
        size = lp_norm(xp, y, a)[:, None]
        miss = xp.log(xp.maximum(size, _NO_STEP))
        slopes = _slopes(equation, u, y, A, lam, by)
        at = turn * ell
        low, high = xp.where(miss > 0.0, at, low), xp.where(miss > 0.0, high, at)
        unbound = (miss <= 0.0) & (at <= turn * none)
        slope = turn * slopes[1][1]
        change = miss / xp.where(slope < 0.0, slope, -1.0)
        # No change of lam that is below its own rounding brings y any nearer.
        settled = xp.abs(change * by[1]) <= tolerance * xp.maximum(lam, xp.abs(by[1]))
        arrived = arrived | (xp.abs(miss) <= tolerance) | (high - low <= tolerance * (1.0 + xp.abs(at)))
        arrived = arrived | unbound | ((slope < 0.0) & settled)
        if bool(xp.all(arrived)):
            break
        newton = at - change
        newton = xp.clip(newton, at - _LONGEST_STEP, at + _LONGEST_STEP)
        middle = xp.where(xp.isfinite(high), 0.5 * (low + xp.where(xp.isfinite(high), high, 0.0)), at + _LONGEST_STEP)
        inside = (slope < 0.0) & (newton > low) & (newton < high)
        ell = xp.where(arrived, ell, turn * xp.where(inside, newton, middle))
    return ell, u, y, slopes


def _no_multiplier(equation: _Equation, A: Array) -> Array:
    """Return the ell that stands for lam = 0, or for one that is as good as 0."""
    xp = equation.xp
    if equation.a > 1.0:
        return xp.log(_NO_STEP * xp.maximum(largest_entry(xp, equation.theta), _NO_STEP))
    most, _, _ = equation.multiplier(A, xp.full_like(A, -math.inf))
    return xp.log(xp.maximum(most, _NO_STEP))


def _coordinate_root(
    xp: Any, own: Array, other: Array, x: Array, sign: Array, m: Array, e: Array, goal: Array, high: Array
) -> Array:
    """Return the s in [0, high] with own s + other max(x + sign s^m, 0)^e = goal, element by element.

    The left side rises. Newton's method within a shrinking bracket, from its upper end; a step that leaves the bracket
    or comes too late is a bisection. An element that has arrived stays where it is.
    """
    low, s = xp.zeros_like(high), high
    rounding = 2.0 * float(xp.finfo(s.dtype).eps)
    open_ = high > 0.0
    before = xp.full_like(s, math.inf)
    for _ in range(_COORDINATE_STEPS):
        power = s**m
        inner = xp.maximum(x + sign * power, 0.0)
        present = inner > 0.0
        inner = xp.where(present, inner, 1.0)
        term = xp.where(present, other * inner**e, 0.0)
        miss = own * s + term - goal
        slope = own + sign * m * e * (term / inner) * (power / xp.where(s > 0.0, s, 1.0))
        low, high = xp.where(open_ & (miss < 0.0), s, low), xp.where(open_ & (miss >= 0.0), s, high)
        change = miss / xp.where(slope > 0.0, slope, 1.0)
        newton = s - change
        trusted = (slope > 0.0) & (newton > low) & (newton < high) & (xp.abs(change) <= 0.5 * before)
        following = xp.where(trusted, newton, 0.5 * (low + high))
        exact = xp.abs(miss) <= rounding * (own * s + xp.abs(term))
        arrived = exact | (xp.abs(following - s) <= rounding * s) | (high - low <= rounding * high)
        s = xp.where(open_ & ~exact, following, s)
        before = xp.where(trusted, xp.abs(change), xp.full_like(s, math.inf))
        open_ = open_ & ~arrived
        if not bool(xp.any(open_)):
            break
    return s


def minus_where(xp: Any, condition: Array, like: Array) -> Array:
    """Return -1 where the condition holds and 1 elsewhere, in the type of `like`."""
    return 1.0 - 2.0 * xp.astype(condition, like.dtype)
