"""Regularised empirical risk of a generalized linear model over a shared data matrix.

F^r(w) = 1/n sum_i phi(<w, x_i>, y_i) + r(w) over a convex set. Parameters carry replicates as an axis: W has
shape (K, d) with one row per replicate, so that K gradients over the one X are two matrix products.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dprepro.arrays import Backend, padded
from dprepro.geometry import ConstraintSet, RealSpace
from dprepro.losses import Loss
from dprepro.regularizers import Regularizer

if TYPE_CHECKING:
    from dprepro.privacy.mechanisms import PoissonBatch

Array = Any
# Poisson batches below this expected size are taken all at once; larger ones are quicker one replicate at a time.
SMALL_BATCH = 16


@dataclass(frozen=True)
class ProblemSpec:
    """What a plan may know of a problem: sizes, structure and public constants, never a data value."""

    n: int
    d: int
    loss: Loss
    regularizer: Regularizer
    constraint: ConstraintSet
    row_norm: float = 1.0
    label_bound: float = 1.0

    @property
    def G(self) -> float:
        """Lipschitz constant of one sample's loss on the constraint set."""
        return self.loss.lipschitz(self.row_norm, self.constraint.radius, self.label_bound)

    @property
    def gradient_spread(self) -> float:
        """Bound on the distance between two gradients of one sample, taken at two points of the set."""
        return self.loss.gradient_spread(self.row_norm, self.constraint.radius, self.label_bound)

    @property
    def L(self) -> float:
        """Smoothness of one sample's loss (the regulariser not included)."""
        return self.loss.smoothness(self.row_norm)

    @property
    def mu(self) -> float:
        """Strong convexity of F^r that holds for every dataset: the regulariser's l2 strength."""
        return self.regularizer.l2 if self.loss.convex else 0.0

    @property
    def properties(self) -> frozenset[str]:
        """What an algorithm may ask for in its `needs`."""
        facts = {
            "smooth": self.loss.smooth,
            "convex": self.loss.convex,
            "strongly_convex": self.mu > 0,
            "smooth_regularizer": self.regularizer.smooth,
            "lipschitz": math.isfinite(self.G),
            "unconstrained": isinstance(self.constraint, RealSpace),
        }
        return frozenset(name for name, holds in facts.items() if holds) | self.constraint.properties


class EmpiricalRisk:
    """The problem on a device. All methods take and return arrays of the backend.

    Behind the n records stands a row of zeros with label 0, the sentinel of Poisson batches: whatever its slope, its
    gradient is zero. Sums over the data end before it.
    """

    def __init__(self, spec: ProblemSpec, X: np.ndarray, y: np.ndarray, backend: Backend) -> None:
        self.spec = spec
        self.backend = backend
        self._host = (X, y)
        rows = X * y[:, None] if spec.loss.margin else X
        # Zero columns up to a fixed multiple keep the bits of a matrix product independent of its company.
        wide = np.zeros((spec.n + 1, padded(spec.d)), dtype=backend.dtype_name)
        wide[:-1, : spec.d] = rows
        self._A = backend.asarray(wide)
        self._y = backend.asarray(np.append(y, 0.0))
        self._mean_row = backend.asarray(np.mean(rows, axis=0, dtype=np.float64))

    def with_dtype(self, dtype_name: str) -> EmpiricalRisk:
        """Return the same problem in another floating-point type."""
        if dtype_name == self.backend.dtype_name:
            return self
        return EmpiricalRisk(self.spec, *self._host, self.backend.with_dtype(dtype_name))

    def gradient(self, W: Array) -> Array:
        """Return the gradient of the smooth part F at each row of W: (K, d) -> (K, d).

        Rows of the data are taken in chunks whose (rows, K) temporary stays in cache.
        """
        xp, loss = self.backend.xp, self.spec.loss
        columns = xp.matrix_transpose(self._widen(loss.inner * W))
        total = self.backend.zeros((W.shape[0], self._A.shape[1]))
        for rows in self.backend.chunks(self.spec.n, W.shape[0]):
            A = self._A[rows, :]
            slopes = loss.core(xp, A @ columns, self._y[rows, None])
            total = total + xp.matrix_transpose(slopes) @ A
        return (loss.outer / self.spec.n) * total[:, : self.spec.d] + loss.constant * self._mean_row

    def sample_gradients(self, W: Array, index: Array | PoissonBatch) -> Array:
        """Return grad f(w_k, z_{i_k}) for each replicate k: (K, d) -> (K, d).

        An index of shape (K,) names one record of each replicate; one of shape (K, b) gives the mean over each
        replicate's batch, and a Poisson batch the sum over its records divided by its expected size.
        """

        def slopes(records: Array, y: Array, at_w: Array) -> Array:
            return self.spec.loss.derivative(self.backend.xp, at_w, y)

        return self._combine(index, slopes, W)

    def sample_differences(self, W: Array, V: Array, index: Array | PoissonBatch, clip: float | None = None) -> Array:
        """Return grad f(w_k, z_{i_k}) - grad f(v_k, z_{i_k}): the two gradients share one data row.

        The index is that of `sample_gradients`. The difference of every record is shortened to the norm `clip` where
        it is longer, before anything is averaged.
        """
        xp, loss = self.backend.xp, self.spec.loss

        def slopes(records: Array, y: Array, at_w: Array, at_v: Array) -> Array:
            turn = loss.outer * (loss.core(xp, loss.inner * at_w, y) - loss.core(xp, loss.inner * at_v, y))
            return turn if clip is None else self._clipped(turn, records, clip)

        return self._combine(index, slopes, W, V)

    def _combine(self, index: Any, slopes: Callable[..., Array], *points: Array) -> Array:
        """Return the mean over each replicate's records x of slope * x, the slope a function of <x, point>."""
        kind = getattr(index, "ndim", None)
        if kind == 1:
            xp = self.backend.xp
            rows, y = self._samples(index)
            return slopes(index, y, *[xp.vecdot(rows, point) for point in points])[:, None] * rows
        if kind == 2:
            groups = [self._over_batches(index[g, :], slopes, *[p[g, :] for p in points]) for g in self._groups(index)]
            return groups[0] if len(groups) == 1 else self.backend.xp.concat(groups)
        return (self._over_small_segments if index.size < SMALL_BATCH else self._over_segments)(index, slopes, *points)

    def _over_batches(self, index: Array, slopes: Callable[..., Array], *points: Array) -> Array:
        xp = self.backend.xp
        K, b = index.shape
        rows, y = self._samples(xp.reshape(index, (K * b,)))
        rows = xp.reshape(rows, (K, b, self.spec.d))
        y = None if y is None else xp.reshape(y, (K, b))
        weights = slopes(index, y, *((rows @ point[:, :, None])[:, :, 0] for point in points))
        return (1.0 / b) * (weights[:, None, :] @ rows)[:, 0, :]

    def _groups(self, index: Array) -> Iterator[slice]:
        """Yield the replicates of an index (K, b) in groups whose data rows fit the budget (at least one)."""
        K, b = index.shape
        step = max(1, self.backend.budget // (np.dtype(self.backend.dtype_name).itemsize * b * self.spec.d))
        for start in range(0, K, step):
            yield slice(start, min(start + step, K))

    def _over_small_segments(self, batch: PoissonBatch, slopes: Callable[..., Array], *points: Array) -> Array:
        xp = self.backend.xp
        rows, y = self._samples(batch.rows)
        # Every segment begins with the sentinel, so counting sentinels numbers the replicates.
        owner = xp.cumulative_sum(xp.astype(batch.rows == self.spec.n, xp.int64)) - 1
        weights = slopes(batch.rows, y, *(xp.vecdot(rows, xp.take(point, owner, axis=0)) for point in points))
        return self.backend.segment_sums(weights[:, None] * rows, batch.starts) / batch.size

    def _over_segments(self, batch: PoissonBatch, slopes: Callable[..., Array], *points: Array) -> Array:
        sums = []
        for k, segment in enumerate(self.backend.segments(batch.starts, batch.rows.shape[0])):
            records = batch.rows[segment]
            rows, y = self._samples(records)
            sums.append(slopes(records, y, *(rows @ point[k, :] for point in points)) @ rows)
        return self.backend.xp.stack(sums) / batch.size

    def _clipped(self, slopes: Array, records: Array, clip: float) -> Array:
        """Return the slopes reduced so that no |slope| ||x|| exceeds `clip`; the others keep their bits."""
        xp = self.backend.xp
        norms = xp.reshape(xp.take(self._row_norms, xp.reshape(records, (-1,))), slopes.shape)
        return slopes * (clip / xp.maximum(xp.abs(slopes) * norms, clip))

    @functools.cached_property
    def _row_norms(self) -> Array:
        """The norms of all data rows (n + 1,)."""
        xp = self.backend.xp
        return xp.sqrt(xp.vecdot(self._A, self._A))

    def objective(self, W: Array) -> Array:
        """Return F^r at each row of W as an array (K,)."""
        xp, loss = self.backend.xp, self.spec.loss
        columns = xp.matrix_transpose(self._widen(W))
        total = self.backend.zeros((W.shape[0],))
        for rows in self.backend.chunks(self.spec.n, W.shape[0]):
            total = total + xp.sum(loss.value(xp, self._A[rows, :] @ columns, self._y[rows, None]), axis=0)
        return total / self.spec.n + self.spec.regularizer.value(xp, W)

    def hessian(self, w: Array) -> Array:
        """Return the Hessian of the smooth part at one point w (d,) as (d, d)."""
        xp, loss, d = self.backend.xp, self.spec.loss, self.spec.d
        total = self.backend.zeros((d, d))
        for rows in self.backend.chunks(self.spec.n, d):
            A = self._A[rows, :][:, :d]
            weights = loss.curvature(xp, A @ w, self._y[rows])
            total = total + xp.matrix_transpose(A) @ (weights[:, None] * A)
        return total / self.spec.n

    def hessians(self, W: Array) -> Array:
        """Return the Hessian of the smooth part at each row of W: (K, d) -> (K, d, d).

        Each is a sum over the records of a curvature times the products of features, which all replicates share: one
        matrix product with the d (d + 1)/2 products of each record.
        """
        xp, loss, K, d = self.backend.xp, self.spec.loss, W.shape[0], self.spec.d
        pairs = np.stack(np.triu_indices(d))
        pairs = np.pad(pairs, ((0, 0), (0, padded(pairs.shape[1]) - pairs.shape[1])))
        place = np.zeros((d, d), dtype=np.int64)
        place[np.triu_indices(d)] = np.arange(d * (d + 1) // 2)
        left, right = self.backend.index(pairs[0]), self.backend.index(pairs[1])
        columns = xp.matrix_transpose(self._widen(W))
        total = self.backend.zeros((K, pairs.shape[1]))
        for rows in self.backend.chunks(self.spec.n, pairs.shape[1]):
            A = self._A[rows, :]
            curvature = loss.curvature(xp, A @ columns, self._y[rows, None])
            products = xp.take(A, left, axis=1) * xp.take(A, right, axis=1)
            total = total + xp.matrix_transpose(curvature) @ products
        whole = self.backend.index(np.maximum(place, place.T).reshape(-1))
        return xp.reshape(xp.take(total, whole, axis=1), (K, d, d)) / self.spec.n

    def prox(self, V: Array, eta: Any) -> Array:
        """Return the prox of eta r plus the indicator of the constraint set.

        Projecting after the prox of r is exact here: completing the square takes care of the l2 term, and for
        the l1 term the rule holds for both balls.
        """
        xp = self.backend.xp
        return self.spec.constraint.project(xp, self.spec.regularizer.prox(xp, V, eta))

    def project(self, V: Array) -> Array:
        """Return the projection of each row onto the constraint set."""
        return self.spec.constraint.project(self.backend.xp, V)

    def _samples(self, index: Array) -> tuple[Array, Array]:
        xp = self.backend.xp
        rows = xp.take(self._A, index, axis=0)[:, : self.spec.d]
        return rows, (None if self.spec.loss.margin else xp.take(self._y, index, axis=0))

    def _widen(self, W: Array) -> Array:
        extra = self._A.shape[1] - W.shape[1]
        if not extra:
            return W
        return self.backend.xp.concat([W, self.backend.zeros((W.shape[0], extra))], axis=1)
