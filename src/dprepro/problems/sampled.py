"""Populations whose samples are drawn as they are asked for, each with a row and a label of its own.

An algorithm sees the loss of single samples at points of its choice. Objective and gradient are those of the
population, exact to the accuracy that each class states.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dprepro.errors import UserError
from dprepro.problems.erm import Array, FreshBatch
from dprepro.problems.population import PopulationRisk
from dprepro.streams import Streams

# Samples are drawn for each replicate and kept while they are used: at most so many numbers.
LARGEST_BATCH = 2**26


@dataclass(frozen=True)
class RowBatch(FreshBatch):
    """`size` samples of each replicate: rows X (K, size, features) with labels y (K, size)."""

    X: Array = None
    y: Array = None

    def side_by_side(self, xp: Any, count: int, size: int) -> RowBatch:
        """Return the first `count` groups of `size` samples each as the batches of K count replicates."""
        K, _, features = self.X.shape
        X, y = self.X[:, : count * size, :], self.y[:, : count * size]
        return RowBatch(
            size, self.rows, None, xp.reshape(X, (K * count, size, features)), xp.reshape(y, (K * count, size))
        )


def asked_by_groups(xp: Any, query: Callable[..., Array], batch: FreshBatch, points: Array) -> Array:
    """Return query(batch, points) of shape (K, B, ...) where groups of samples share points: (K, G, P, d).

    Groups have B/G samples each, rounded up, in their order; the last one has the rest. `query` takes points of single
    samples (G = B), or those of all samples (G = 1). Groups of samples that are drawn for each replicate stand side by
    side as if they were of more replicates; those of stored rows follow one another.
    """
    K, G, P, d = points.shape
    if G in (1, batch.size):
        return query(batch, points)
    size = -(-batch.size // G)
    whole = batch.size // size if isinstance(batch, RowBatch) else 0
    parts = []
    if isinstance(batch, RowBatch):
        of_all = xp.reshape(points[:, :whole, :, :], (K * whole, 1, P, d))
        found = query(batch.side_by_side(xp, whole, size), of_all)
        parts.append(xp.reshape(found, (K, whole * size, *found.shape[2:])))
    for group in range(whole, G):
        part = _part(batch, group * size, min((group + 1) * size, batch.size))
        parts.append(query(part, points[:, group : group + 1, :, :]))
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)


def _part(batch: FreshBatch, first: int, end: int) -> FreshBatch:
    """Return the samples from `first` to before `end` of a batch."""
    if isinstance(batch, RowBatch):
        return replace(batch, size=end - first, X=batch.X[:, first:end, :], y=batch.y[:, first:end])
    start = batch.rows.start
    return replace(batch, size=end - first, rows=slice(start + first, start + end))


class SampledPopulation(PopulationRisk):
    """Base of these risks, with the sample queries of losses of <w, x>. `name` is that of the dataset."""

    name: str

    @property
    def features(self) -> int:
        """The length of a sample's row."""
        return self.spec.d

    def fresh_batch(self, streams: Streams, number: int, first: int, size: int) -> RowBatch:
        """Return `size` new samples of each replicate, the batch with this number behind `first` samples."""
        K = streams.slots
        if K * size * self.features > LARGEST_BATCH:
            raise UserError(
                f"{size} samples of {self.features} features for {K} replicates do not fit at one time: choose an "
                "algorithm that takes small batches, fewer samples, or a population of atoms."
            )
        X, y = self._draw(streams, number, first, size)
        return RowBatch(size, slice(0, 0), None, self.backend.asarray(X), self.backend.asarray(y))

    def fresh_indices(self, streams: Streams, first: int, steps: int) -> Array:
        """Refuse: samples that are drawn as they are asked for have no numbers."""
        raise UserError(f"{self.name} has no numbered samples: choose an algorithm that takes batches.")

    def batch_gradient(self, W: Array, batch: FreshBatch) -> Array:
        """Return the mean of grad f(w_k, z) over the samples of replicate k's batch: (K, d) -> (K, d)."""
        X, y = self._rows_of(batch)
        at = (X @ W[:, :, None])[:, :, 0]
        slopes = self.spec.loss.derivative(self.backend.xp, at, y) / batch.size
        return (slopes[:, None, :] @ X)[:, 0, :]

    def batch_difference(self, W: Array, V: Array, batch: FreshBatch) -> Array:
        """Return the mean of grad f(w_k, z) - grad f(v_k, z) over the samples of replicate k's batch."""
        return self.batch_gradient(W, batch) - self.batch_gradient(V, batch)

    def sample_gradients(self, W: Array, index: FreshBatch) -> Array:  # type: ignore[override]  # no numbers here
        """Return the mean gradient over each replicate's batch, which is one of `fresh_batch`."""
        return self.batch_gradient(W, index)

    def sample_differences(self, W: Array, V: Array, index: FreshBatch, clip: float | None = None) -> Array:  # type: ignore[override]
        """Return the mean of grad f(w_k, z) - grad f(v_k, z), each sample's shortened to the norm `clip`."""
        if clip is None:
            return self.batch_difference(W, V, index)
        xp = self.backend.xp
        pairs = self.sample_subgradients(index, xp.stack([W, V], axis=1)[:, None, :, :])
        turns = pairs[:, :, 0, :] - pairs[:, :, 1, :]
        norms = xp.sqrt(xp.vecdot(turns, turns))
        return xp.mean(turns * (clip / xp.maximum(norms, clip))[:, :, None], axis=1)

    def hessian(self, w: Array) -> Array:
        """Refuse: second derivatives of the population are not known."""
        raise UserError(f"{self.name} has no second derivatives: choose a population of atoms, or say its minimum.")

    def hessians(self, W: Array) -> Array:
        """Refuse, as `hessian`."""
        return self.hessian(W)

    def records(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Refuse: there are no records to list."""
        raise UserError(f"{self.name} has no records that could be listed: choose a population of atoms.")

    def _rows_of(self, batch: FreshBatch) -> tuple[Array, Array]:
        if not isinstance(batch, RowBatch):
            raise UserError(f"A batch of another population was given to {self.name}: use its own.")
        return batch.X, batch.y

    def _draw(self, streams: Streams, number: int, first: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rows (K, size, features) and labels (K, size) on the host."""
        raise NotImplementedError


@functools.cache
def sphere_quadrature(m: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights, with the sum 1, for one coordinate of a uniform point of the unit sphere of R^m.

    Its density is proportional to (1 - u^2)^((m-3)/2), for which Gauss-Gegenbauer quadrature is made. A coordinate of a
    uniform point of the unit ball of R^d has the law for m = d + 2.
    """
    if m == 1:
        return np.array([-1.0, 1.0]), np.full(2, 0.5)
    if m == 2:
        angles = (2.0 * np.arange(count) + 1.0) * np.pi / (2 * count)
        return np.cos(angles), np.full(count, 1.0 / count)
    from scipy.special import roots_gegenbauer

    nodes, weights = roots_gegenbauer(count, (m - 2) / 2.0)
    return nodes, weights / weights.sum()
