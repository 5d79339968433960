"""The risk of a generalized linear model on randomly embedded rows: phi(<w, s Phi x>, y), s <= 1 a clip.

Phi (k, d) has independent N(0, 1/k) entries and sees no data (ABG23, Algorithm 4, with the matrix of Appendix E). As
<w, Phi x> = <Phi^T w, x>, embedded rows are never stored: a gradient at w in R^k is Phi times that of the risk at
Phi^T w, with the slope of a clipped row taken at the clipped place.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dprepro.arrays import padded
from dprepro.errors import UserError
from dprepro.losses import Loss
from dprepro.privacy.mechanisms import PoissonBatch
from dprepro.problems.erm import Array, EmpiricalRisk, FreshBatch
from dprepro.problems.sampled import SampledPopulation
from dprepro.streams import Streams

# The matrices of all replicates of a tile, in bytes: beyond, they are no longer kept in memory side by side.
LARGEST_MATRICES = 2**31


class EmbeddedRisk:
    """The gradients of `problem` on embedded rows, at points in R^k: all methods take and return arrays (K, k).

    Replicate r has its own matrix, from stream r of `streams`. Embedded rows longer than `row_norm` are shortened to
    it; None leaves them as they are. Batches are those of the problem. Columns in which all data are zero play no part
    in a gradient and are left out of it; `lift` has them.
    """

    def __init__(self, problem: EmpiricalRisk, streams: Streams, k: int, row_norm: float | None = None) -> None:
        self.backend, self.loss, self.k = problem.backend, problem.spec.loss, k
        if not self.loss.glm:
            raise UserError(f"The loss {self.loss.name!r} is no function of <w, x>: its rows cannot be embedded.")
        if isinstance(problem, SampledPopulation):
            raise UserError("A continuous population has no rows to embed: choose a population of atoms.")
        matrices = _matrices(streams, k, problem.spec.d)
        weights, rows, y = problem.records()
        columns = np.flatnonzero(np.any(rows != 0.0, axis=0))
        self._Phi = self.backend.asarray(matrices)
        self._B = self.backend.asarray(_widened(matrices[:, :, columns]))
        # A row of zeros behind the data is the sentinel of Poisson batches.
        self._A = self.backend.asarray(np.pad(_widened(rows[:, columns]), ((0, 1), (0, 0))))
        self._y = self.backend.asarray(np.append(y, 0.0))
        self._weights = self.backend.asarray(weights)[:, None]
        self._norms, self._scales = self._lengths(row_norm)

    def with_loss(self, loss: Loss) -> EmbeddedRisk:
        """Return the same rows with another loss."""
        twin = copy.copy(self)
        twin.loss = loss
        return twin

    def lift(self, W: Array) -> Array:
        """Return Phi^T w for each replicate: (K, k) -> (K, d)."""
        return (W[:, None, :] @ self._Phi)[:, 0, :]

    def gradient(self, W: Array) -> Array:
        """Return the mean gradient over all records."""
        return self._over(slice(0, self._weights.shape[0]), self._weights, self._slope, W)

    def batch_gradient(self, W: Array, batch: FreshBatch) -> Array:
        """Return the mean gradient over the samples of each replicate's batch."""
        return self._over(batch.rows, batch.weights(self.backend), self._slope, W)

    def batch_difference(self, W: Array, V: Array, batch: FreshBatch) -> Array:
        """Return the mean of grad f(w, z) - grad f(v, z) over the samples of each replicate's batch."""
        return self._over(batch.rows, batch.weights(self.backend), self._turn, W, V)

    def sample_gradients(self, W: Array, index: Array | PoissonBatch | FreshBatch) -> Array:
        """Return each replicate's mean gradient over its batch, named as in `EmpiricalRisk.sample_gradients`."""
        if isinstance(index, FreshBatch):
            return self.batch_gradient(W, index)
        return self._over_records(index, lambda y, norms, at_w: self._slope(y, at_w), W)

    def sample_differences(
        self, W: Array, V: Array, index: Array | PoissonBatch | FreshBatch, clip: float | None = None
    ) -> Array:
        """Return the mean of grad f(w, z) - grad f(v, z) over each replicate's batch, named as there.

        The difference of every record is shortened to the norm `clip` where it is longer.
        """
        if isinstance(index, FreshBatch):
            if clip is not None:
                raise UserError("Differences of repeated records are not clipped one by one: choose stored rows.")
            return self.batch_difference(W, V, index)

        def slopes(y: Array, norms: Array, at_w: Array, at_v: Array) -> Array:
            turn, xp = self._turn(y, at_w, at_v), self.backend.xp
            return turn if clip is None else turn * (clip / xp.maximum(xp.abs(turn) * norms, clip))

        return self._over_records(index, slopes, W, V)

    def _slope(self, y: Array, at_w: Array) -> Array:
        return self.loss.derivative(self.backend.xp, at_w, y)

    def _turn(self, y: Array, at_w: Array, at_v: Array) -> Array:
        return self.loss.turn(self.backend.xp, at_w, at_v, y)

    def _over(self, rows: slice, shares: Array, slopes: Callable[..., Array], *points: Array) -> Array:
        """Return the mean of slope * s Phi x over rows with shares, the slope a function of y and <s Phi x, point>."""
        xp, K = self.backend.xp, points[0].shape[0]
        columns = [xp.matrix_transpose(self._down(point)) for point in points]
        total = self.backend.zeros((K, self._A.shape[1]))
        for chunk in self.backend.chunks(rows.stop - rows.start, K):
            here = slice(rows.start + chunk.start, rows.start + chunk.stop)
            A, scales = self._A[here, :], self._scales[here, :]
            weights = slopes(self._y[here, None], *(scales * (A @ column) for column in columns))
            total = total + xp.matrix_transpose(weights * scales * shares[chunk, :]) @ A
        return self._up(total)

    def _over_records(self, index: Any, slopes: Callable[..., Array], *points: Array) -> Array:
        """Return the mean of slope * s Phi x over each replicate's records, one replicate after the other.

        The slope is a function of y, the length of the row and <s Phi x, point>.
        """
        xp, K = self.backend.xp, points[0].shape[0]
        lowered = [self._down(point) for point in points]
        sums = []
        for k, records in enumerate(self._batches(index, K)):
            A, y = xp.take(self._A, records, axis=0), xp.take(self._y, records)
            scales, norms = (xp.take(table[:, k], records) for table in (self._scales, self._norms))
            weights = slopes(y, norms, *(scales * (A @ point[k, :]) for point in lowered))
            sums.append((weights * scales) @ A)
        size = index.size if isinstance(index, PoissonBatch) else 1 if index.ndim == 1 else index.shape[1]
        return self._up(xp.stack(sums) / size)

    def _batches(self, index: Any, K: int) -> list[Array]:
        """Return the record numbers of each replicate's batch."""
        if isinstance(index, PoissonBatch):
            return [index.rows[segment] for segment in self.backend.segments(index.starts, index.rows.shape[0])]
        return [index[k : k + 1] if index.ndim == 1 else index[k, :] for k in range(K)]

    def _down(self, W: Array) -> Array:
        """Return Phi^T w in the columns that count: (K, k) -> (K, columns)."""
        return (W[:, None, :] @ self._B)[:, 0, :]

    def _up(self, G: Array) -> Array:
        """Return Phi g for vectors in the columns that count: (K, columns) -> (K, k)."""
        return (self._B @ G[:, :, None])[:, :, 0]

    def _lengths(self, row_norm: float | None) -> tuple[Array, Array]:
        """Return how long the rows are once embedded and shortened, and by what they are: both (records + 1, K)."""
        xp, matrices = self.backend.xp, self.backend.xp.matrix_transpose(self._B)
        pieces = [
            xp.sum((self._A[None, rows, :] @ matrices) ** 2, axis=2)
            for rows in self.backend.chunks(self._A.shape[0], self._B.shape[0] * self.k)
        ]
        lengths = xp.matrix_transpose(xp.sqrt(xp.concat(pieces, axis=1)))
        if row_norm is None:
            return lengths, xp.ones_like(lengths)
        scales = row_norm / xp.maximum(lengths, row_norm)
        return lengths * scales, scales


def _matrices(streams: Streams, k: int, d: int) -> np.ndarray:
    """Draw the matrix of every replicate: (slots, k, d), entries N(0, 1/k); zeros in empty slots."""
    if (size := 8 * streams.slots * k * d) > LARGEST_MATRICES:
        raise UserError(
            f"Matrices of {k} times {d} numbers for {streams.slots} replicates take {size / 2**30:.3g} GB, "
            f"more than {LARGEST_MATRICES / 2**30:.3g}: give a smaller k, or a smaller tile of replicates."
        )
    drawn = streams.normals(0, k, d).astype(np.float64)
    return np.ascontiguousarray(np.moveaxis(drawn, 0, 1)) / math.sqrt(k)


def _widened(rows: np.ndarray) -> np.ndarray:
    """Return the rows with columns of zeros up to a fixed multiple, which keep the bits of products from company."""
    width = padded(max(1, rows.shape[-1]))
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, width - rows.shape[-1])])
