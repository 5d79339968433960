"""Estimates of smoothed gradients from single samples, and how far one sample can move them (KLT25, Sections 3 to 6).

f_alpha(w) is the mean of f over the ball of radius alpha around w. An estimator answers two questions on a batch: the
gradient of f_alpha at z, and its difference between two points at distance h. What decides the noise is the norm of
what one sample adds, for which every estimator states a bound: of a gradient, and of a difference.

Values of f (zero-order), with directions u on the sphere:
  independent  as printed: m independent directions for each sample and point. Only a long mean is short, so that the
               bound holds but for an event of the directions, whose probability is a share of delta. With so few
               directions that what is certain is less, nothing has to be paid for.
  clipped      m directions, the same at both points; what a sample adds is shortened to the bound of what it estimates.
  frame        m = d orthonormal directions (or several such frames), the same at both points and for all samples.
  common       m independent directions, the same at both points and for all samples of a group, of which a batch has
               at least 32 (fewer samples have their own): Zhang, Tran and Cutkosky 2024.
Gradients of f (first-order), at points of the ball:
  independent      as printed, m points around each of the two.
  difference_set   m pairs of points in the parts of the two balls that the other one does not cover: only there the
                   two means differ.

Bounds for an L-Lipschitz f, with c_d = 2 V_{d-1}/V_d and V_d the volume of the unit ball in d dimensions.
* A gradient of f_alpha is at most L long. Two balls of radius alpha at distance h overlap but for a share of at most
  c_d h/(2 alpha), so a difference of gradients is at most c_d L h/alpha long; |<w - mid, e>| attains it as h -> 0.
* A difference along a frame has d orthogonal parts: (f(z+a u) - f(z'+a u) - f(z-a u) + f(z'-a u))/(2 alpha), each
  at most L h/alpha. Together they are at most sqrt(d) L h/alpha long.
* A gradient along a frame has the parts x_j = |f(z+a u_j) - f(z-a u_j)|/(2 alpha). For f(w) = phi(<x, w>) they are at
  most L |<x, u_j>|/|x|, which add up to L. In general let x_1 be the largest, in units of L. The ends of two directions
  are sqrt(2) alpha apart, so x_j <= min(x_1, sqrt(2) - x_1), and the sum of squares x_1^2 + (d-1) x_j^2 is at most
  max(d/2, 1 + (d-1) (sqrt(2)-1)^2), the largest at x_1 = 1/sqrt(2) or 1.
* A mean of d (f(z+a u) - f(z-a u))/(2 alpha) u over any directions is at most d L long, a difference d L h/alpha if
  its directions are the same at both points, and 2 d L if not.
* The mean of m independent vectors at most b from their expectation is within b sqrt(2 ln(2/gamma)/m) of it but for a
  probability gamma (Pinelis 1994, Theorem 3.5); b is (d+1) L for values and 2 L for gradients.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from dprepro.problems.erm import FreshBatch
    from dprepro.run import Execution

Array = Any

# Numbers in the points that are looked at in one call.
LARGEST_CALL = 2**21
# At most so many random numbers are drawn before they are needed.
DRAWN_AHEAD = 2**20


def smoothing_constant(d: int) -> float:
    """Return c_d = 2 V_{d-1}/V_d: f_alpha of an L-Lipschitz f is (c_d L/alpha)-smooth. About sqrt(2 d/pi).

    >>> [round(smoothing_constant(d), 2) for d in (1, 13)]
    [1.0, 2.93]
    """
    return 2.0 * math.exp(math.lgamma(d / 2 + 1) - math.lgamma(d / 2 + 0.5)) / math.sqrt(math.pi)


@dataclass(frozen=True)
class Scene:
    """What the bounds of an estimator depend on.

    L is the Lipschitz constant of one sample's loss, `ridge` whether that is a function of <x, w>, m the number of
    directions and `longest` the largest distance between the two points of a difference. `gamma` is the probability
    with which one mean over directions may be further from its expectation than is accounted for.
    """

    L: float
    d: int
    ridge: bool
    alpha: float
    longest: float
    m: int
    gamma: float

    def deviation(self, b: float) -> float:
        """Return how far a mean of m vectors at most b from their expectation is from it, but with chance gamma."""
        return b * math.sqrt(2.0 * math.log(2.0 / self.gamma) / self.m)


@dataclass(frozen=True)
class Bounds:
    """The largest norm of what a sample adds to a gradient, and to a difference of points as far apart as they get."""

    gradient: float
    difference: float


class Estimator(ABC):
    """Estimates for the batches of a run; the directions depend on the replicate and on nothing that data decide."""

    name: ClassVar[str]
    # What is asked of a sample: `values` of its loss or `gradients`.
    asks_for: ClassVar[str]
    # Whether the bounds hold always, whatever the number of directions is.
    certain: ClassVar[bool] = True
    # Whether what a sample adds is shortened to the bound, of which a difference has its share of the distance.
    clips: ClassVar[bool] = True

    def __init__(self, ex: Execution, scene: Scene, gradient_m: int) -> None:
        self._ex, self._scene = ex, scene
        self._gradient_m = gradient_m
        self._bounds = self.bounds(scene)
        self._directions = Directions(ex, scene.d)

    @classmethod
    @abstractmethod
    def bounds(cls, scene: Scene) -> Bounds:
        """Return what one sample adds at most."""

    @classmethod
    def certain_bounds(cls, scene: Scene) -> Bounds:
        """Return what one sample adds at most for all directions."""
        return cls.bounds(scene)

    @classmethod
    def relies_on_directions(cls, scene: Scene) -> bool:
        """Whether the bounds hold but for an event of the directions, which a share of delta has to pay for."""
        return cls.bounds(scene) != cls.certain_bounds(scene)

    @classmethod
    def gradient_is_attained(cls, scene: Scene) -> bool:
        """Whether what a sample with a linear loss adds to a gradient is as long as the bound in all directions."""
        return scene.d == 1

    @classmethod
    def usual_m(cls, d: int) -> int:
        """Return the number of directions if none is given."""
        return d

    @classmethod
    def whole(cls, scene: Scene) -> bool:
        """Whether the estimator can have this number of directions."""
        return scene.m >= 1

    def gradient(self, z: Array, batch: FreshBatch) -> Array:
        """Return the mean over a batch of the samples' estimates of grad f_alpha at z: (K, d)."""
        return self._mean(self._gradients(z, batch), self._bounds.gradient)

    def difference(self, z: Array, z_before: Array, batch: FreshBatch) -> Array:
        """Return the mean over a batch of the estimates of grad f_alpha(z) - grad f_alpha(z_before): (K, d)."""
        h = distance(self._ex.xp, z, z_before)
        share = self._ex.xp.where(h < self._scene.longest, h, self._scene.longest) / self._scene.longest
        return self._mean(self._differences(z, z_before, batch), self._bounds.difference * share[:, :, None])

    @abstractmethod
    def _gradients(self, z: Array, batch: FreshBatch) -> Array:
        """Return the estimate of each sample of the batch: (K, B, d)."""

    @abstractmethod
    def _differences(self, z: Array, z_before: Array, batch: FreshBatch) -> Array:
        """Return the estimate of each sample of the batch: (K, B, d)."""

    def _mean(self, G: Array, longest: Any) -> Array:
        """Return the mean over the samples of G (K, B, d), each shortened to `longest` if the estimator clips."""
        xp = self._ex.xp
        if not self.clips:
            return xp.mean(G, axis=1)
        length = xp.sqrt(xp.vecdot(G, G))[:, None, :]
        too_long = length > longest
        shares = xp.where(too_long, longest / xp.where(too_long, length, xp.ones_like(length)), 1.0)
        return ((shares / G.shape[1]) @ G)[:, 0, :]


class _Values(Estimator):
    """Estimates from the values of a sample's loss at both ends of random diameters of the ball."""

    asks_for = "values"
    # Whether samples of a batch share directions, and how many groups that have their own there are at least.
    shared: ClassVar[bool] = False
    groups: ClassVar[int] = 1

    def _gradients(self, z: Array, batch: FreshBatch) -> Array:
        return self._along(batch, (z,))

    def _differences(self, z: Array, z_before: Array, batch: FreshBatch) -> Array:
        """The directions are the same at both points."""
        return self._along(batch, (z, z_before))

    def _along(self, batch: FreshBatch, points: tuple[Array, ...]) -> Array:
        """Return the estimates at the first of the points (K, d), minus those at a second one if any: (K, B, d)."""
        d, m, alpha = self._scene.d, self._scene.m, self._scene.alpha
        total: Any = 0.0
        for U in self._pieces(batch.size):
            V = alpha * U
            ends = self._ex.xp.concat([V, -V], axis=2)
            slopes = self._rise(points[0], ends, batch)
            for other in points[1:]:
                slopes = slopes - self._rise(other, ends, batch)
            total = total + _combined(self._ex.xp, slopes, U)
        return (d / (2.0 * alpha * m)) * total

    def _rise(self, z: Array, ends: Array, batch: FreshBatch) -> Array:
        """Return f(z + v) - f(z - v) of every sample for v in the first half of `ends` (K, G, 2 P, d): (K, B, P)."""
        values = self._ex.batch_values(z[:, None, None, :] + ends, batch)
        count = ends.shape[2] // 2
        return values[:, :, :count] - values[:, :, count:]

    def _pieces(self, size: int) -> Iterator[Array]:
        """Yield the m directions of a batch of `size` samples in pieces (K, G, P, d) that fit into memory."""
        d, m = self._scene.d, self._scene.m
        sets = self._sets(size)
        step = self._directions.fitting(max(sets * d, size))
        for first in range(0, m, step):
            yield self._directions.sphere(sets, min(step, m - first))

    def _sets(self, size: int) -> int:
        """Return G, how many sets of directions a batch has: groups are equally large but for the rest."""
        together = max(1, size // self.groups) if self.shared else 1
        return -(-size // together)


class IndependentValues(_Values):
    """Algorithms 3 and 4 as printed: own directions for every sample and each of the two points."""

    name = "independent"
    certain, clips = False, False

    @classmethod
    def bounds(cls, scene: Scene) -> Bounds:
        """Return the bounds of the smoothed gradients with deviations of chance gamma each, or what is certain."""
        limit, deviation = _limit(scene), scene.deviation((scene.d + 1) * scene.L)
        return _least(Bounds(limit.gradient + deviation, limit.difference + 2.0 * deviation), cls.certain_bounds(scene))

    @classmethod
    def certain_bounds(cls, scene: Scene) -> Bounds:
        """Return d times what the values change by, and twice that for directions that differ between two points."""
        return Bounds(scene.d * scene.L, 2.0 * scene.d * scene.L)

    def _differences(self, z: Array, z_before: Array, batch: FreshBatch) -> Array:
        return self._along(batch, (z,)) - self._along(batch, (z_before,))


class ClippedValues(_Values):
    """Independent directions of every sample, the same at both points; shortened to what they estimate.

    Shortening makes estimates too short where what they estimate is as long as it can be. On linear losses and on both
    sides of a kink the mean is 0.64 to 0.77 of the truth with m = d, 0.85 to 0.9 with 4 d, and at least 0.94 with 16 d.
    """

    name = "clipped"

    @classmethod
    def usual_m(cls, d: int) -> int:
        """Return 16 d, with which the mean is at most 6 % too short."""
        return 16 * d

    @classmethod
    def bounds(cls, scene: Scene) -> Bounds:
        """Return the bounds of the smoothed gradients themselves."""
        return _limit(scene)


class CommonValues(_Values):
    """Independent directions, the same at both points and in a group of samples: Zhang, Tran and Cutkosky 2024.

    On a linear loss one set of directions errs by |grad f| sqrt((d-1)/m). If all samples shared it, no batch would
    average this out; with G sets it is at most 1/sqrt(32) of it, and 1/sqrt(B) if each of B samples had its own. What a
    single sample adds has one law in all three cases. In runs on the ramp (d = 8, 180,000 samples) one set cost 16 % of
    the stationarity that is reached, 32 groups are within 1 % of own directions.
    """

    name = "common"
    shared = True
    # Own directions for all are n m d random numbers, and every group has its price: for d = 32 a run with 64 groups
    # takes twice as long as one with 32, which takes two to three times as long as one with a single set.
    groups = 32

    @classmethod
    def bounds(cls, scene: Scene) -> Bounds:
        """Return d times what the values change by."""
        return Bounds(scene.d * scene.L, scene.d * scene.L * scene.longest / scene.alpha)


class Frame(_Values):
    """Orthonormal directions, each uniform on the sphere, the same at both points and for all samples.

    They reproduce a linear loss exactly. Where the mean of the losses has a kink in the ball, the error of a frame that
    all samples share is averaged out by no batch: on |w_1 - s| its root mean square is at most 0.19 L, 0.21 L and
    0.22 L for d = 4, 10 and 32.
    """

    name = "frame"
    shared = True

    @classmethod
    def bounds(cls, scene: Scene) -> Bounds:
        """Return the bounds that follow from d orthogonal parts; a mean over several frames keeps them."""
        d, L = scene.d, scene.L
        spread = 1.0 if scene.ridge else math.sqrt(max(d / 2.0, 1.0 + (d - 1) * (math.sqrt(2.0) - 1.0) ** 2))
        return Bounds(spread * L, math.sqrt(d) * L * scene.longest / scene.alpha)

    @classmethod
    def gradient_is_attained(cls, scene: Scene) -> bool:
        """A frame reproduces a linear loss exactly."""
        return scene.ridge

    @classmethod
    def whole(cls, scene: Scene) -> bool:
        """Whether the directions make whole frames."""
        return scene.m % scene.d == 0

    def _pieces(self, size: int) -> Iterator[Array]:
        d, frames = self._scene.d, self._scene.m // self._scene.d
        step = self._directions.fitting(max(d, size))
        for _ in range(frames):
            U = self._directions.frame()
            for first in range(0, d, step):
                yield U[:, :, first : min(first + step, d), :]


class _Gradients(Estimator):
    """Estimates from gradients of a sample's loss at random points of the ball."""

    asks_for = "gradients"

    @classmethod
    def usual_m(cls, d: int) -> int:
        """Return one: a gradient at one point is no longer than a mean of them."""
        return 1

    @classmethod
    def gradient_is_attained(cls, scene: Scene) -> bool:
        """A linear loss has one gradient everywhere."""
        return True

    def _gradients(self, z: Array, batch: FreshBatch) -> Array:
        return self._mean_in_ball(z, batch, self._gradient_m)

    def _mean_in_ball(self, z: Array, batch: FreshBatch, m: int) -> Array:
        """Return the mean of each sample's gradients at m points of its own around z: (K, B, d)."""
        total: Any = 0.0
        step = self._directions.fitting(batch.size * self._scene.d)
        for first in range(0, m, step):
            Y = self._directions.ball(batch.size, min(step, m - first))
            points = z[:, None, None, :] + self._scene.alpha * Y
            total = total + self._ex.xp.sum(self._ex.batch_subgradients(points, batch), axis=2)
        return total / m


class IndependentGradients(_Gradients):
    """Algorithm 5 as printed: m points of the ball around z, and m others around the point before it."""

    name = "independent"
    certain, clips = False, False

    @classmethod
    def bounds(cls, scene: Scene) -> Bounds:
        """Return L for a gradient; for a difference the smoothed one's and two deviations of chance gamma, or 2 L."""
        deviation = scene.deviation(2.0 * scene.L)
        return _least(Bounds(scene.L, _limit(scene).difference + 2.0 * deviation), cls.certain_bounds(scene))

    @classmethod
    def certain_bounds(cls, scene: Scene) -> Bounds:
        """Return L, and 2 L for two gradients."""
        return Bounds(scene.L, 2.0 * scene.L)

    def _differences(self, z: Array, z_before: Array, batch: FreshBatch) -> Array:
        m = self._scene.m
        return self._mean_in_ball(z, batch, m) - self._mean_in_ball(z_before, batch, m)


class DifferenceSet(_Gradients):
    """Gradients at m mirror pairs of points, the one in the first ball alone and the other in the second.

    Let e be the direction from z_before to z at distance h, w uniform in the ball of radius alpha orthogonal to e, and
    q = sqrt(alpha^2 - |w|^2). On the line along e through the middle plus w the part of the first ball that is not in
    the second has the length min(h, 2 q) and begins at |q - h/2|. A uniform point of it is weighed with
    c_d min(h, 2 q)/(2 alpha), its length over that of the whole ball: the expectation is the difference of the means.
    """

    name = "difference_set"

    @classmethod
    def bounds(cls, scene: Scene) -> Bounds:
        """Return the bounds of the smoothed gradients: the weights are at most c_d h/(2 alpha), a pair 2 L."""
        return _limit(scene)

    def _differences(self, z: Array, z_before: Array, batch: FreshBatch) -> Array:
        total: Any = 0.0
        step = self._directions.fitting(2 * batch.size * self._scene.d)
        for first in range(0, self._scene.m, step):
            points, weights = self._pairs(z, z_before, batch.size, min(step, self._scene.m - first))
            G = self._ex.batch_subgradients(points, batch)
            count = G.shape[2] // 2
            total = total + self._ex.xp.sum(weights * (G[:, :, :count, :] - G[:, :, count:, :]), axis=2)
        return total / self._scene.m

    def _pairs(self, z: Array, z_before: Array, size: int, count: int) -> tuple[Array, Array]:
        """Return points of each sample and their mirror images (K, B, 2 count, d), and weights (K, B, count, 1)."""
        xp, alpha, d = self._ex.xp, self._scene.alpha, self._scene.d
        h = distance(xp, z, z_before)
        e = ((z - z_before) / xp.where(h > 0.0, h, xp.ones_like(h)))[:, None, None, :]
        h = h[:, :, None, None]
        w = alpha * self._directions.ball_across(e, size, count)
        q = xp.sqrt(_not_negative(xp, alpha**2 - xp.vecdot(w, w)[:, :, :, None]))
        length = xp.where(h < 2.0 * q, h + 0.0 * q, 2.0 * q)
        s = xp.abs(q - 0.5 * h) + self._directions.uniform(size, count) * length
        middle = (0.5 * (z + z_before))[:, None, None, :] + w
        points = xp.concat([middle + s * e, middle - s * e], axis=2)
        return points, (smoothing_constant(d) / (2.0 * alpha)) * length


ZERO_ORDER: dict[str, type[Estimator]] = {kind.name: kind for kind in (IndependentValues, ClippedValues, Frame)}
FIRST_ORDER: dict[str, type[Estimator]] = {kind.name: kind for kind in (IndependentGradients, DifferenceSet)}


class Directions:
    """Random directions of every replicate; each call takes the next numbers of its streams."""

    def __init__(self, ex: Execution, d: int) -> None:
        self._xp, self._d = ex.xp, d
        self._like = ex.zeros()
        normals, uniforms = ex.streams("normal numbers"), ex.streams("uniform numbers")
        most = max(2, DRAWN_AHEAD // (self._like.shape[0] * (d + 2)))
        self._normals = _Stock(lambda first, count: normals.normals(first, count, d + 2), most)
        self._uniforms = _Stock(uniforms.uniforms, most)

    def fitting(self, width: int) -> int:
        """Return how many directions, each with `width` numbers for a replicate, are looked at in one call."""
        return max(1, LARGEST_CALL // (2 * self._like.shape[0] * width))

    def sphere(self, samples: int, count: int) -> Array:
        """Return uniform points of the sphere (K, samples, count, d)."""
        return self._unit(self._draw(samples, count)[:, :, :, : self._d])

    def ball(self, samples: int, count: int) -> Array:
        """Return uniform points of the unit ball (K, samples, count, d): d coordinates of a sphere in d + 2."""
        return self._unit(self._draw(samples, count))[:, :, :, : self._d]

    def ball_across(self, e: Array, samples: int, count: int) -> Array:
        """Return uniform points (K, samples, count, d) of the unit ball in the space orthogonal to e (K, 1, 1, d)."""
        xp, g = self._xp, self._draw(samples, count)
        across = g[:, :, :, : self._d]
        across = across - xp.vecdot(across, e)[:, :, :, None] * e
        return self._unit(xp.concat([across, g[:, :, :, self._d :]], axis=3))[:, :, :, : self._d]

    def frame(self) -> Array:
        """Return d orthonormal vectors, uniformly distributed (K, 1, d, d).

        Columns of the orthogonal factor of a Gaussian matrix. Their signs, which a decomposition leaves open, do not
        matter here: an estimate is the same with -u for u.
        """
        g = self._draw(1, self._d)[:, 0, :, : self._d]
        eye = self._xp.eye(self._d, dtype=g.dtype, device=g.device)
        # An empty slot of a tile has zeros.
        g = self._xp.where(self._xp.any(g != 0.0, axis=(1, 2), keepdims=True), g, eye[None, :, :])
        return self._xp.linalg.matrix_transpose(self._xp.linalg.qr(g)[0])[:, None, :, :]

    def uniform(self, samples: int, count: int) -> Array:
        """Return uniform numbers in (0, 1) of shape (K, samples, count, 1)."""
        drawn = self._uniforms.take(samples * count)
        return self._moved(np.reshape(drawn.T, (-1, samples, count, 1)))

    def _draw(self, samples: int, count: int) -> Array:
        """Return standard normals (K, samples, count, d + 2)."""
        drawn = self._normals.take(samples * count)
        return self._moved(np.reshape(np.swapaxes(drawn, 0, 1), (-1, samples, count, self._d + 2)))

    def _moved(self, host: np.ndarray) -> Array:
        return self._xp.asarray(np.ascontiguousarray(host), dtype=self._like.dtype, device=self._like.device)

    def _unit(self, g: Array) -> Array:
        length = self._xp.sqrt(self._xp.vecdot(g, g))[:, :, :, None]
        return g / self._xp.where(length > 0.0, length, self._xp.ones_like(length))


class _Stock:
    """Steps of random numbers (steps, K, ...) in order, drawn ahead: a draw has a price for every replicate."""

    def __init__(self, draw: Callable[[int, int], np.ndarray], most: int) -> None:
        self._draw, self._most = draw, most
        self._drawn = 0
        self._left = draw(0, 0)

    def take(self, count: int) -> np.ndarray:
        """Return the next `count` steps."""
        missing = count - len(self._left)
        if missing > 0:
            more = max(missing, min(self._drawn, self._most))
            more += more % 2  # two steps of normal numbers share the words of a stream
            self._left = np.concatenate([self._left, self._draw(self._drawn, more)])
            self._drawn += more
        taken, self._left = self._left[:count], self._left[count:]
        return taken


def distance(xp: Any, z: Array, z_before: Array) -> Array:
    """Return the distance between the points of each replicate as (K, 1)."""
    moved = z - z_before
    return xp.sqrt(xp.sum(moved * moved, axis=1, keepdims=True))


def _limit(scene: Scene) -> Bounds:
    """Return how long gradients of f_alpha and their differences are at most: L and c_d L h/alpha."""
    return Bounds(scene.L, smoothing_constant(scene.d) * scene.L * scene.longest / scene.alpha)


def _least(one: Bounds, other: Bounds) -> Bounds:
    return Bounds(min(one.gradient, other.gradient), min(one.difference, other.difference))


def _combined(xp: Any, slopes: Array, U: Array) -> Array:
    """Return sum_p slopes[k, b, p] U[k, g, p, :], g the group of b: (K, B, P) and (K, G, P, d) -> (K, B, d)."""
    (K, B, P), G = slopes.shape, U.shape[1]
    size = -(-B // G)
    whole = B // size
    grouped = xp.reshape(slopes[:, : whole * size, :], (K, whole, size, P)) @ U[:, :whole, :, :]
    parts = [xp.reshape(grouped, (K, whole * size, U.shape[3]))]
    if whole < G:
        parts.append(slopes[:, whole * size :, :] @ U[:, whole, :, :])
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)


def _not_negative(xp: Any, values: Array) -> Array:
    return xp.where(values > 0.0, values, xp.zeros_like(values))
