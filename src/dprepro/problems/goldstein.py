"""Goldstein stationarity: a bound on the shortest element of a Goldstein subdifferential (KLT25, Definition 2.1).

The Goldstein r-subdifferential of F at w is the convex hull of the gradients at all points of the ball B(w, r). Its
element of minimum norm is bounded by that of the hull of finitely many of these gradients: whatever points are looked
at, and however well the weights are found, the norm of a convex combination is an upper bound. Points are drawn in the
ball first, and then, round by round, where the shortest element g so far points to: as long as g is not the shortest,
F does not fall by r ||g|| along the segment from w to w - r g/||g||, so that some gradient on it makes g shorter
(Goldstein 1977).

Where F depends on <axis, w> and on the length of the rest of w only, the search is exact in three dimensions instead
of d: see `certificate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dprepro.errors import RunFailed, UserError, positive

Array = Any

# Gradients at random points of the ball, and then so many rounds with so many gradients each.
SAMPLES = 128
ROUNDS = 12
_ADDED = 32
# In the plane weights are found if no element of the hull is shorter by more than this share of the longest gradient.
_TOLERANCE = 1e-10
# How far a gradient of a function with an axis may leave the plane of the axis and its point, in shares of its length.
_PLANE_TOLERANCE = 1e-6
# Points are moved off the segment by about this share of the radius: where a kink runs along it, what a risk returns
# may be no element of the hull.
_OFF = 1e-4
# More steps than Wolfe's method needs in the plane but for rounding; what is not found then is found the other way.
_WOLFE_STEPS = 40
# Numbers in one array of points.
_BLOCK = 2**21


class Differentiable(Protocol):
    """What a certificate needs of a risk: its gradient, defined at almost every point."""

    def gradient(self, W: Array, /) -> Array:
        """Return the gradient at each row of W: (K, d) -> (K, d)."""


@dataclass(frozen=True)
class Certificate:
    """`bound` (K,), the norms of convex combinations of gradients in the balls.

    `slack` (K,) says how much shorter at most the shortest combination of the gradients of the last round is.
    """

    bound: np.ndarray
    slack: np.ndarray


def certificate(
    risk: Differentiable,
    W: np.ndarray,
    radius: float,
    *,
    axis: np.ndarray | None = None,
    samples: int = SAMPLES,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Certificate:
    """Return an upper bound on the shortest element of the Goldstein subdifferential at each row of W (K, d).

    The draws are the same for every point: the bound of a point does not depend on the others. More rounds never make
    it larger.

    With a unit vector `axis` (d,), by default the attribute of the risk with this name if it has one, F must be a
    function of a = <axis, w> and b = ||w - a axis|| alone; in fewer than 3 dimensions no use is made of it. The
    subdifferential is then the same for every rotation that leaves the plane of axis and w as it is. Its shortest
    element is unique, so that it lies in this plane, and is that of the gradients' projections to the plane: the mean
    of a gradient over the rotations is its projection. Points of the ball that a rotation takes into each other have
    one projection, and three coordinates tell them apart: two in the plane, and the distance from it. On spiked
    populations in 8 and 32 dimensions the default is right to 0.02 of the largest gradient for radii up to 2, and to
    0.003 for 0.2.
    """
    W = _checked(W, radius, samples, rounds)
    axis = getattr(risk, "axis", None) if axis is None else axis
    frames = None if axis is None or W.shape[1] < 3 else _frames(W, np.asarray(axis, dtype=np.float64))
    step = max(1, _BLOCK // (samples * W.shape[1]))
    parts = []
    for start in range(0, len(W), step):
        rows = slice(start, start + step)
        ball = _Ball(risk, W[rows], radius, None if frames is None else frames[rows])
        parts.append(_search(ball, samples, rounds, np.random.default_rng(seed)))
    return Certificate(*(np.concatenate(numbers) for numbers in zip(*parts, strict=True)))


def min_norm_weights(gradients: np.ndarray) -> np.ndarray:
    """Return the weights (m,) of the shortest convex combination of the rows of an array (m, d).

    Nonnegative least squares of the rows with a 1 behind them against (0, ..., 0, 1): for u = s lambda with weights
    lambda and the best s > 0 the square of the residual is q/(1 + q), q the square of the combination's length. The
    length of any combination is an upper bound: if the solver ends with none or a longer one, the shortest gradient
    itself is returned.
    """
    from scipy.optimize import nnls

    lengths = np.sqrt(np.sum(gradients * gradients, axis=1))
    single = np.zeros(len(gradients))
    single[np.argmin(lengths)] = 1.0
    longest = float(np.max(lengths))
    if longest == 0.0:
        return single
    matrix = np.vstack([gradients.T / longest, np.ones(len(gradients))])
    target = np.append(np.zeros(gradients.shape[1]), 1.0)
    try:
        weights, _ = nnls(matrix, target, maxiter=100 * len(gradients))
    except RuntimeError:  # too many steps
        return single
    if not np.sum(weights) > 0.0:
        return single
    weights = np.asarray(weights / np.sum(weights))
    return weights if np.linalg.norm(weights @ gradients) <= np.min(lengths) else single


def slack_of(gradients: np.ndarray, weights: np.ndarray) -> float:
    """Return how much longer at most x, the combination with these weights, is than the shortest one, y.

    ||x|| ||y|| >= <x, y> >= min_i <x, g_i>, so that ||x|| - ||y|| <= ||x|| - min_i <x, g_i>/||x||.
    """
    x = weights @ gradients
    length = float(np.sqrt(x @ x))
    if length == 0.0:
        return 0.0
    return min(length, max(0.0, length - float(np.min(gradients @ x)) / length))


@dataclass(frozen=True)
class _Ball:
    """The balls around the rows of W (K, d). Offsets from them have p coordinates, gradients are seen in q <= p.

    Without `frames` these are the d coordinates; with `frames` (K, 3, d) offsets are combinations of three orthonormal
    rows, and gradients are projected to the first two.
    """

    risk: Differentiable
    W: np.ndarray
    radius: float
    frames: np.ndarray | None

    @property
    def p(self) -> int:
        """The number of coordinates of an offset."""
        return self.W.shape[1] if self.frames is None else 3

    def gradients(self, offsets: np.ndarray) -> np.ndarray:
        """Return the gradients at offsets (K, m, p), in shares of the radius, within the balls: (K, m, q)."""
        K, m, _ = offsets.shape
        moved = self.radius * (offsets if self.frames is None else offsets @ self.frames)
        points = (self.W[:, None, :] + moved).reshape(K * m, -1)
        found = np.concatenate([self._on_host(points[rows]) for rows in _blocks(points)]).reshape(K, m, -1)
        if not np.all(np.isfinite(found)):
            raise RunFailed("A gradient in the ball of a certificate is not finite: the point is not one of this risk.")
        if self.frames is None:
            return found
        self._check_plane(points.reshape(K, m, -1), found)
        return np.asarray(found @ np.swapaxes(self.frames[:, :2], 1, 2))

    def _on_host(self, points: np.ndarray) -> np.ndarray:
        backend = getattr(self.risk, "backend", None)
        if backend is None:
            return np.asarray(self.risk.gradient(points), dtype=np.float64)
        return np.asarray(backend.to_host(self.risk.gradient(backend.asarray(points))), dtype=np.float64)

    def _check_plane(self, points: np.ndarray, found: np.ndarray) -> None:
        """Refuse gradients that are no combinations of the axis and the point."""
        assert self.frames is not None
        axis = self.frames[0, 0]
        rest = points - (points @ axis)[..., None] * axis
        across = found - (found @ axis)[..., None] * axis
        lengths = np.sum(rest * rest, axis=-1)
        along = np.sum(across * rest, axis=-1) / np.where(lengths > 0.0, lengths, 1.0)
        out = np.sqrt(np.sum((across - along[..., None] * rest) ** 2, axis=-1))
        if np.max(out) > _PLANE_TOLERANCE * max(float(np.max(np.abs(found))), 1e-300):
            raise UserError(
                "The risk is no function of <axis, w> and the length of the rest of w alone: leave out the axis of the "
                "certificate."
            )


def _search(ball: _Ball, samples: int, rounds: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds (K,) and slacks (K,)."""
    p = ball.p
    offsets = np.broadcast_to(_uniform_ball(rng, samples, p), (len(ball.W), samples, p))
    gradients = ball.gradients(offsets)
    weights = _weights(gradients)
    for _ in range(rounds):
        # The gradients with a weight span the hull's face with g in it: there are at most q + 1 of them.
        kept = np.argsort(-weights, axis=1, kind="stable")[:, : gradients.shape[2] + 1, None]
        offsets, gradients = (np.take_along_axis(array, kept, axis=1) for array in (offsets, gradients))
        weights = np.take_along_axis(weights, kept[:, :, 0], axis=1)
        added = _aimed(rng, offsets, weights, gradients)
        offsets = np.concatenate([offsets, added], axis=1)
        gradients = np.concatenate([gradients, ball.gradients(added)], axis=1)
        weights = _weights(gradients)
    element = np.einsum("km,kmq->kq", weights, gradients)
    slack = np.array([slack_of(*pair) for pair in zip(gradients, weights, strict=True)])
    return np.sqrt(np.sum(element * element, axis=1)), slack


def _weights(gradients: np.ndarray) -> np.ndarray:
    """Return the weights of the shortest combination for each point: (K, m, q) -> (K, m)."""
    weights, found = np.zeros(gradients.shape[:2]), np.zeros(len(gradients), dtype=bool)
    if gradients.shape[2] == 2:
        weights, found = _plane_weights(gradients)
    for k in np.flatnonzero(~found):
        weights[k] = min_norm_weights(gradients[k])
    return weights


def _plane_weights(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights in two dimensions for all points side by side, (K, m, 2) -> (K, m), and where they are found.

    Wolfe's method (1976): x is the point of the segment [a, b] next to 0. The gradient c that is furthest in the
    direction of -x makes a triangle of it. If 0 is in it, it is found; else the next segment has an end in c.
    """
    K = len(gradients)
    rows, size = np.arange(K), np.sqrt(np.max(np.sum(gradients * gradients, axis=2), axis=1))
    ends = np.repeat(np.argmin(np.sum(gradients * gradients, axis=2), axis=1)[:, None], 3, axis=1)
    shares = np.broadcast_to([1.0, 0.0, 0.0], (K, 3)).copy()
    found = size == 0.0
    for _ in range(_WOLFE_STEPS):
        x = np.einsum("kj,kjq->kq", shares, gradients[rows[:, None], ends])
        scores = np.einsum("kmq,kq->km", gradients, x)
        length = np.sqrt(np.sum(x * x, axis=1))
        found |= length * length - np.min(scores, axis=1) <= _TOLERANCE * size * length
        found |= length <= 1e-12 * size
        if np.all(found):
            break
        ends[:, 2] = np.where(found, ends[:, 2], np.argmin(scores, axis=1))
        better, order, around = _nearest_of_triangle(gradients[rows[:, None], ends])
        shares = np.where(found[:, None], shares, better)
        ends = np.where(found[:, None], ends, np.take_along_axis(ends, order, axis=1))
        found |= around
    weights = np.zeros(gradients.shape[:2])
    np.add.at(weights, (rows[:, None], ends), shares)
    return weights, found


def _nearest_of_triangle(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the point of the triangle next to 0 by its shares, (K, 3, 2) -> (K, 3), and the order of the corners.

    The point is 0 itself, which the last array (K,) says, or on one of the edges with an end in the third corner; that
    edge then comes first in the order.
    """
    turned = [_cross(corners[:, i], corners[:, j]) for i, j in ((1, 2), (2, 0), (0, 1))]
    inside = np.stack(turned, axis=1)
    total = np.sum(inside, axis=1, keepdims=True)
    inside = inside / np.where(total == 0.0, 1.0, total)
    # The second condition is for corners on one line, whose products are rounding alone.
    off = np.max(np.abs(np.einsum("kj,kjq->kq", inside, corners)), axis=1)
    around = np.all(inside >= 0.0, axis=1) & (total[:, 0] != 0.0)
    around &= off <= 1e-12 * np.max(np.abs(corners), axis=(1, 2))
    first, second = (_share_of_edge(corners[:, i], corners[:, 2]) for i in (0, 1))
    reached = [_between(corners[:, i], corners[:, 2], t) for i, t in ((0, first), (1, second))]
    one = np.sum(reached[0] ** 2, axis=1) <= np.sum(reached[1] ** 2, axis=1)
    share = np.where(one, first, second)
    edge = np.stack([1.0 - share, share, np.zeros_like(share)], axis=1)
    order = np.where(one[:, None], [0, 2, 1], [1, 2, 0])
    shares = np.where(around[:, None], inside, edge)
    return shares, np.where(around[:, None], [0, 1, 2], order), around


def _share_of_edge(a: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the share of c in the point of [a, c] next to 0."""
    along = c - a
    square = np.sum(along * along, axis=1)
    return np.clip(-np.sum(a * along, axis=1) / np.where(square > 0.0, square, 1.0), 0.0, 1.0)


def _between(a: np.ndarray, c: np.ndarray, share: np.ndarray) -> np.ndarray:
    return a + share[:, None] * (c - a)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]


def _aimed(rng: np.random.Generator, offsets: np.ndarray, weights: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Return offsets (K, _ADDED, p) where gradients are likely to make the shortest element shorter.

    A quarter each: on the segment along -g, on the sphere tilted to -g, around the points of g, and anywhere.
    """
    K, _, p = offsets.shape
    count = _ADDED // 4
    g = np.einsum("km,kmq->kq", weights, gradients)
    length = np.sqrt(np.sum(g * g, axis=1, keepdims=True))
    down = np.zeros((K, 1, p))
    down[:, 0, : g.shape[1]] = -g / np.where(length > 0.0, length, 1.0)
    share = (np.arange(count)[:, None] + rng.random((count, 1))) / count
    segment = share * down + _OFF * _uniform_ball(rng, count, p)
    tilt = rng.random((count, 1))
    sphere = tilt * down + np.sqrt(1.0 - tilt * tilt) * _directions(rng, count, p)
    width = 10.0 ** -(3.0 * rng.random((count, 1)))
    around = offsets[:, np.arange(count) % offsets.shape[1]] + width * _uniform_ball(rng, count, p)
    anywhere = _uniform_ball(rng, count, p)
    return _within(np.concatenate(np.broadcast_arrays(segment, sphere, around, anywhere), axis=1))


def _within(offsets: np.ndarray) -> np.ndarray:
    """Return offsets no longer than 1, by projection; rounding leaves none outside the ball."""
    lengths = np.sqrt(np.sum(offsets * offsets, axis=-1, keepdims=True))
    return offsets * ((1.0 - 1e-12) / np.maximum(lengths, 1.0))


def _uniform_ball(rng: np.random.Generator, count: int, p: int) -> np.ndarray:
    """Return uniform points of the unit ball (count, p); the first of `count` does not depend on how many there are."""
    drawn = rng.standard_normal((count, p + 2))
    # The first p coordinates of a uniform point of the sphere in p + 2 dimensions are uniform in the ball.
    return drawn[:, :p] / np.sqrt(np.sum(drawn * drawn, axis=1, keepdims=True))


def _directions(rng: np.random.Generator, count: int, p: int) -> np.ndarray:
    drawn = rng.standard_normal((count, p))
    return drawn / np.sqrt(np.sum(drawn * drawn, axis=1, keepdims=True))


def _frames(W: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Return for each row of W the axis, the direction of the rest of w, and one at right angles to both: (K, 3, d)."""
    d = W.shape[1]
    if axis.shape != (d,) or not abs(float(axis @ axis) - 1.0) <= 1e-9:
        raise UserError(f"The axis of a certificate is no unit vector of {d} numbers: give one.")
    rest = W - (W @ axis)[:, None] * axis
    frames = np.empty((len(W), 3, d))
    for k, w in enumerate(rest):
        # Where w is on the axis, any plane through it will do.
        first = w if np.linalg.norm(w) > 1e-12 * (1.0 + np.linalg.norm(W[k])) else _coordinate(d, np.abs(axis))
        second = _orthogonal(first, [axis])
        third = _orthogonal(_coordinate(d, np.maximum(np.abs(axis), np.abs(second))), [axis, second])
        frames[k] = axis, second, third
    return frames


def _coordinate(d: int, taken: np.ndarray) -> np.ndarray:
    """Return the unit vector of the coordinate that is least taken."""
    vector = np.zeros(d)
    vector[np.argmin(taken)] = 1.0
    return vector


def _orthogonal(vector: np.ndarray, others: list[np.ndarray]) -> np.ndarray:
    """Return the direction of what is left of a vector without its components along unit vectors."""
    for _ in range(2):  # the second time for rounding
        for other in others:
            vector = vector - (vector @ other) * other
        vector = vector / np.linalg.norm(vector)
    return vector


def _blocks(points: np.ndarray) -> Iterator[slice]:
    step = max(1, _BLOCK // points.shape[1])
    for start in range(0, len(points), step):
        yield slice(start, start + step)


def _checked(W: np.ndarray, radius: float, samples: int, rounds: int) -> np.ndarray:
    positive("The radius of a Goldstein subdifferential", radius)
    if samples < 1 or rounds < 0:
        raise UserError(f"A certificate with {samples} samples and {rounds} rounds: give at least 1 sample, 0 rounds.")
    W = np.asarray(W, dtype=np.float64)
    if W.ndim != 2 or not W.size:
        raise UserError(f"Points of the shape {W.shape} were given to a certificate: give an array (points, features).")
    return W
