"""Regularised empirical risk of a generalized linear model over a shared data matrix.

F^r(w) = 1/n sum_i phi(<w, x_i>, y_i) + r(w) over a convex set. Parameters carry replicates as an axis: W has
shape (K, d) with one row per replicate, so that K gradients over the one X are two matrix products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dprepro.arrays import Backend, padded
from dprepro.geometry import ConstraintSet, RealSpace
from dprepro.losses import Loss
from dprepro.regularizers import Regularizer

Array = Any


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
    """The problem on a device. All methods take and return arrays of the backend."""

    def __init__(self, spec: ProblemSpec, X: np.ndarray, y: np.ndarray, backend: Backend) -> None:
        self.spec = spec
        self.backend = backend
        self._host = (X, y)
        rows = X * y[:, None] if spec.loss.margin else X
        # Zero columns up to a fixed multiple keep the bits of a matrix product independent of its company.
        wide = np.zeros((spec.n, padded(spec.d)), dtype=backend.dtype_name)
        wide[:, : spec.d] = rows
        self._A = backend.asarray(wide)
        self._y = backend.asarray(y)
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

    def sample_gradients(self, W: Array, index: Array) -> Array:
        """Return grad f(w_k, z_{i_k}) for each replicate k: W (K, d), index (K,) -> (K, d)."""
        xp, loss = self.backend.xp, self.spec.loss
        rows, y = self._samples(index)
        slopes = loss.derivative(xp, xp.vecdot(rows, W), y)
        return slopes[:, None] * rows

    def sample_differences(self, W: Array, V: Array, index: Array) -> Array:
        """Return grad f(w_k, z_{i_k}) - grad f(v_k, z_{i_k}): the two gradients share one data row.

        An index of shape (K, b) gives the mean of the differences over each replicate's batch.
        """
        xp, loss = self.backend.xp, self.spec.loss
        if index.ndim == 2:
            return self._batch_differences(W, V, index)
        rows, y = self._samples(index)
        at_w = loss.core(xp, loss.inner * xp.vecdot(rows, W), y)
        at_v = loss.core(xp, loss.inner * xp.vecdot(rows, V), y)
        return (loss.outer * (at_w - at_v))[:, None] * rows

    def _batch_differences(self, W: Array, V: Array, index: Array) -> Array:
        xp, loss = self.backend.xp, self.spec.loss
        K, b = index.shape
        rows, y = self._samples(xp.reshape(index, (K * b,)))
        rows = xp.reshape(rows, (K, b, self.spec.d))
        y = None if y is None else xp.reshape(y, (K, b))
        at_w = loss.core(xp, (rows @ (loss.inner * W)[:, :, None])[:, :, 0], y)
        at_v = loss.core(xp, (rows @ (loss.inner * V)[:, :, None])[:, :, 0], y)
        return (loss.outer / b) * ((at_w - at_v)[:, None, :] @ rows)[:, 0, :]

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
