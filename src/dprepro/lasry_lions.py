"""Lasry-Lions smoothing on a grid in one and two dimensions (KLT25, Appendix C).

    M_lambda(h)(x) = min_y h(y) + |y - x|^2/(2 lambda),        h_LL = -M_lambda(-M_{2 lambda}(h)),

written out h_LL(x) = max_z min_y h(y) + |y - z|^2/(4 lambda) - |z - x|^2/(2 lambda): in equation (19) of the paper the
letters are mixed up. For an L-Lipschitz h,

1. h_LL is L-Lipschitz: both envelopes are infima or suprema of shifted copies of what they are made of.
2. h - L^2 lambda <= h_LL <= h. From below: h_LL >= M_{2 lambda}(h), and h(y) + t^2/(4 lambda) >= h(x) - L t +
   t^2/(4 lambda) at |y - x| = t, which is smallest at t = 2 L lambda. From above: M_{2 lambda} = M_lambda M_lambda, and
   -M_lambda(-M_lambda(g)) <= g. The lower end is attained by -L|x| at 0. The paper has L lambda.
3. h_LL has the minimum and the minimisers of h.
4. h_LL is 1/lambda-smooth: h_LL + |x|^2/(2 lambda) is a supremum of affine functions and h_LL - |x|^2/(2 lambda) is
   concave. L|x| attains it for every L. The paper has L/lambda up to a constant.

Everything here is for showing these facts, not for optimising: values are taken on a regular grid, and the minima over
its points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dprepro.errors import UserError, positive
from dprepro.problems.goldstein import certificate

# Slopes of h_LL are differences over so many steps of the grid: over one, the rounding of minimisers to it would show.
STRIDE = 8


@dataclass(frozen=True)
class Instance:
    """A Lipschitz function on R^d, d = 1 or 2, with its gradient almost everywhere: both map (K, d) arrays.

    `value` returns (K,), `gradient` (K, d). L is its Lipschitz constant.
    """

    name: str
    d: int
    L: float
    value: Callable[[np.ndarray], np.ndarray]
    gradient: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Smoothed:
    """A grid with its step and points (N, d), and on it, in its shape, h and h_LL (`values`)."""

    step: float
    points: np.ndarray
    h: np.ndarray
    values: np.ndarray

    @property
    def slopes(self) -> np.ndarray:
        """The gradient of h_LL at the points that are STRIDE steps from the edge: (..., d)."""
        d = self.values.ndim
        return np.stack([_difference(self.values, axis, STRIDE, self.step) for axis in range(d)], axis=-1)

    @property
    def inner(self) -> np.ndarray:
        """The points at which `slopes` are: (..., d)."""
        cut = (slice(STRIDE, -STRIDE),) * self.values.ndim
        return self.points.reshape(*self.values.shape, -1)[cut]


@dataclass(frozen=True)
class Facts:
    """What Fact C.2 and Lemma C.3 speak of, measured on the grid.

    `steepest` slope of h_LL, largest `below` = h - h_LL and `above` = h_LL - h, `smoothness` of h_LL, the difference of
    the minima `minimum` and the largest distance `minimisers` between minimisers of h_LL and of h; `excess`: by how
    much at most the bound on the Goldstein 3 lambda L-subdifferential of h exceeds |grad h_LL|.
    """

    steepest: float
    below: float
    above: float
    smoothness: float
    minimum: float
    minimisers: float
    excess: float


def moreau(values: np.ndarray, step: float, lam: float, reach: float) -> np.ndarray:
    """Return M_lambda of values on a grid in d dimensions, at the points that are `reach` or more from its edge.

    `reach` is how far a minimiser may be in every coordinate. The square of a distance is a sum over coordinates, so
    that one axis is minimised over after the other.
    """
    width = _width(reach, step)
    weights = (step * np.arange(-width, width + 1)) ** 2 / (2.0 * lam)
    for axis in range(values.ndim):
        if values.shape[axis] <= 2 * width:
            raise UserError(
                f"A grid of {values.shape[axis]} points is too small for minimisers {reach:g} away: give more points."
            )
        windows = np.lib.stride_tricks.sliding_window_view(values, 2 * width + 1, axis=axis)
        values = np.min(windows + weights, axis=-1)
    return values


def smooth(instance: Instance, lam: float, half: float, step: float) -> Smoothed:
    """Return h_LL of an instance on the grid of a step over [-half, half]^d.

    Minimisers of the first envelope are within 2 lambda L, those of the second within lambda L: at both the slope of
    the square is one of h. The grid for h is that much larger.
    """
    for what, number in (("lambda", lam), ("half width", half), ("step", step)):
        positive(f"The {what} of a Lasry-Lions smoothing", number)
    if instance.d not in (1, 2):
        raise UserError(f"Lasry-Lions smoothing is shown in one and two dimensions, not in {instance.d}.")
    first, second = (times * lam * instance.L + step for times in (2.0, 1.0))
    points, shape = _grid(instance.d, half, step)
    wide, wide_shape = _grid(instance.d, half, step, _width(first, step) + _width(second, step))
    envelope = moreau(instance.value(wide).reshape(wide_shape), step, 2.0 * lam, first)
    values = -moreau(-envelope, step, lam, second)
    return Smoothed(step, points, instance.value(points).reshape(shape), values)


def measure(instance: Instance, lam: float, half: float, step: float, *, points: int = 200, seed: int = 0) -> Facts:
    """Return the facts of Appendix C for an instance on the grid over [-half, half]^d.

    Lemma C.3 is looked at in so many `points` of the grid, drawn at random: there the certified bound on the Goldstein
    3 lambda L-subdifferential of h is compared with |grad h_LL|.
    """
    smoothed = smooth(instance, lam, half, step)
    slopes, gap = smoothed.slopes, smoothed.h - smoothed.values
    norms = np.sqrt(np.sum(slopes * slopes, axis=-1))
    chosen = np.random.default_rng(seed).choice(norms.size, size=min(points, norms.size), replace=False)
    at = smoothed.inner.reshape(-1, instance.d)[chosen]
    bound = certificate(instance, at, 3.0 * lam * instance.L).bound
    return Facts(
        steepest=float(np.max(norms)),
        below=float(np.max(gap)),
        above=float(np.max(-gap)),
        smoothness=_smoothness(slopes, step),
        minimum=float(abs(np.min(smoothed.h) - np.min(smoothed.values))),
        minimisers=_apart(smoothed),
        excess=float(np.max(bound - norms.reshape(-1)[chosen])),
    )


def zigzag(L: float, seed: int = 0, scale: float = 0.25, pieces: int = 40) -> Instance:
    """Return a function of one variable with slopes +L and -L on random pieces, whose ends are multiples of scale/4.

    Beyond the pieces it rises, so that its minimum is among them.
    """
    rng = np.random.default_rng(seed)
    lengths = scale * rng.integers(1, 9, size=pieces) / 4.0
    ends = np.concatenate([[0.0], np.cumsum(lengths)])
    ends -= 0.25 * scale * np.round(2.0 * ends[-1] / scale)
    slopes = np.concatenate([[-L], L * (-1.0) ** np.arange(pieces), [L]])
    heights = np.concatenate([[0.0], np.cumsum(slopes[1:-1] * np.diff(ends))])

    def value(W: np.ndarray) -> np.ndarray:
        t = W[:, 0]
        inside = np.interp(t, ends, heights)
        return inside + L * np.maximum(ends[0] - t, 0.0) + L * np.maximum(t - ends[-1], 0.0)

    def gradient(W: np.ndarray) -> np.ndarray:
        return slopes[np.searchsorted(ends, W[:, 0], side="right"), None]

    return Instance(f"zigzag of slope {L:g}", 1, L, value, gradient)


def peak(L: float, d: int) -> Instance:
    """Return -L|x| near 0, a valley at |x| = 1 and L|x| beyond: h = L | |x| - 1 |."""

    def value(W: np.ndarray) -> np.ndarray:
        return L * np.abs(np.sqrt(np.sum(W * W, axis=1)) - 1.0)

    def gradient(W: np.ndarray) -> np.ndarray:
        length = np.sqrt(np.sum(W * W, axis=1, keepdims=True))
        return L * np.sign(length - 1.0) * W / np.where(length > 0.0, length, 1.0)

    return Instance(f"L | |x| - 1 | in {d} dimension{'s' if d > 1 else ''}, L = {L:g}", d, L, value, gradient)


def saddle(L: float) -> Instance:
    """Return h = L max(|x_1| - |x_2|, |x_2| - 1)/sqrt(2) in two dimensions: a kink in each axis, concave and convex."""
    share = L / math.sqrt(2.0)

    def value(W: np.ndarray) -> np.ndarray:
        size = np.abs(W)
        return share * np.maximum(size[:, 0] - size[:, 1], size[:, 1] - 1.0)

    def gradient(W: np.ndarray) -> np.ndarray:
        size, sign = np.abs(W), np.sign(W)
        first = (size[:, 0] - size[:, 1] > size[:, 1] - 1.0)[:, None]
        return share * np.where(first, sign * np.array([1.0, -1.0]), sign * np.array([0.0, 1.0]))

    return Instance(f"L max(|x_1| - |x_2|, |x_2| - 1)/sqrt(2), L = {L:g}", 2, L, value, gradient)


def _smoothness(slopes: np.ndarray, step: float) -> float:
    """Return the largest |slope(x) - slope(x')|/|x - x'| over points STRIDE steps apart along an axis."""
    steepest = 0.0
    for axis in range(slopes.ndim - 1):
        ahead, behind = _shifted(slopes, axis, STRIDE)
        change = np.sqrt(np.sum((ahead - behind) ** 2, axis=-1))
        steepest = max(steepest, float(np.max(change)) / (STRIDE * step))
    return steepest


def _apart(smoothed: Smoothed) -> float:
    """Return the Hausdorff distance of the minimisers of h and of h_LL on the grid, to rounding."""
    sets = []
    for values in (smoothed.h, smoothed.values):
        sets.append(smoothed.points[(values <= np.min(values) + 1e-9).reshape(-1)])
    distances = np.sqrt(np.sum((sets[0][:, None, :] - sets[1][None, :, :]) ** 2, axis=-1))
    return float(max(np.max(np.min(distances, axis=0)), np.max(np.min(distances, axis=1))))


def _difference(values: np.ndarray, axis: int, stride: int, step: float) -> np.ndarray:
    """Return (values(x + stride) - values(x - stride))/(2 stride step) along an axis, cut by `stride` on all axes."""
    cut = [slice(stride, -stride)] * values.ndim
    cut[axis] = slice(None)
    ahead, behind = _shifted(values[tuple(cut)], axis, 2 * stride)
    return (ahead - behind) / (2.0 * stride * step)


def _shifted(values: np.ndarray, axis: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    ahead, behind = [slice(None)] * values.ndim, [slice(None)] * values.ndim
    ahead[axis], behind[axis] = slice(stride, None), slice(None, -stride)
    return values[tuple(ahead)], values[tuple(behind)]


def _grid(d: int, half: float, step: float, margin: int = 0) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the points (N, d) of the grid over [-half, half]^d and `margin` steps around it, and its shape."""
    count = round(half / step) + margin
    ticks = step * np.arange(-count, count + 1)
    axes = np.meshgrid(*[ticks] * d, indexing="ij")
    return np.stack(axes, axis=-1).reshape(-1, d), axes[0].shape


def _width(reach: float, step: float) -> int:
    return math.ceil(reach / step - 1e-9)
