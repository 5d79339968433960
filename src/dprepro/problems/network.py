"""Risk of a network with one hidden layer over a pool of inputs, which is the whole population.

Samples are drawn from the pool with replacement, so that the population's risk and its gradient are exact means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dprepro.arrays import Backend
from dprepro.errors import UserError
from dprepro.nonsmooth_losses import ReluNetwork
from dprepro.problems.erm import Array, FreshBatch, ProblemSpec
from dprepro.problems.sampled import SampledPopulation
from dprepro.streams import Streams

# Points at which the mean over the pool is taken at one time: few, so that all stays in cache.
_POINTS = 16


class NetworkPopulation(SampledPopulation):
    """The risk over a pool X (M, p) with labels y (M,), for the weights w of `relu_network` in R^d, d = p hidden.

    The network has the weights start + w: at w = 0 it is that of the law's `start`, d numbers. With all weights zero
    every unit would be off, and no sample would have a slope.
    """

    name = "population_network"

    def __init__(
        self, spec: ProblemSpec, X: np.ndarray, y: np.ndarray, law: Mapping[str, Any], backend: Backend
    ) -> None:
        loss = spec.loss
        if not isinstance(loss, ReluNetwork):
            raise UserError(f"The loss {loss.name!r} is none of a network: choose relu_network for population_network.")
        if spec.d != X.shape[1] * int(loss.hidden) or len(law["start"]) != spec.d:
            raise UserError(
                f"A network of {loss.hidden:g} units on {X.shape[1]} inputs has not d = {spec.d} weights: give the "
                "population as many units as the loss."
            )
        super().__init__(spec, np.zeros((1, spec.d)), np.zeros(1), np.ones(1), backend)
        self._host, self._law = (X, y), law
        self._X, self._labels = backend.asarray(X), backend.asarray(y)
        self._layers = (int(loss.hidden), X.shape[1])
        self._start = backend.asarray(law["start"])
        self._v = backend.asarray(loss.outer_weights)

    @property
    def features(self) -> int:
        """The number of inputs p."""
        return self._layers[1]

    def objective(self, W: Array) -> Array:
        """Return F^r at each row of W as an array (K,)."""
        xp = self.backend.xp
        pool = [xp.mean(xp.abs(self._forward(self._pool, part)[0]), axis=(1, 2)) for part in _in_parts(W)]
        return xp.concat(pool) + self.spec.regularizer.value(xp, W)

    def gradient(self, W: Array) -> Array:
        """Return the gradient of F, a subgradient on a kink, at each row of W: (K, d) -> (K, d)."""
        parts = [self._mean_gradient(part[:, 0, 0, :], *self._pool) for part in _in_parts(W)]
        return self.backend.xp.concat(parts)

    def sample_values(self, batch: FreshBatch, points: Array) -> Array:
        """Return f(point; z) for every sample of each replicate's batch: (K, B, P)."""
        return self.backend.xp.abs(self._forward(self._rows_of(batch), points)[0])

    def sample_subgradients(self, batch: FreshBatch, points: Array) -> Array:
        """Return a subgradient of f(point; z) for every sample of each replicate's batch: (K, B, P, d)."""
        X, y = self._rows_of(batch)
        units = self._unit_slopes(*self._forward((X, y), points))
        rows = units[:, :, :, :, None] * X[:, :, None, None, :]
        return self.backend.xp.reshape(rows, (*units.shape[:3], self.spec.d))

    def batch_gradient(self, W: Array, batch: FreshBatch) -> Array:
        """Return the mean of grad f(w_k, z) over the samples of replicate k's batch: (K, d) -> (K, d)."""
        return self._mean_gradient(W, *self._rows_of(batch))

    @property
    def _pool(self) -> tuple[Array, Array]:
        return self._X[None, :, :], self._labels[None, :]

    def _mean_gradient(self, W: Array, X: Array, y: Array) -> Array:
        """Return the mean over rows X (K or 1, B, p) with labels y (K or 1, B), rows last for long loops."""
        xp = self.backend.xp
        inner = xp.reshape(W + self._start, (W.shape[0], *self._layers)) @ xp.matrix_transpose(X)
        on = xp.astype(inner > 0.0, inner.dtype)
        signs = xp.sign(self._v @ (inner * on) - y) / X.shape[1]
        units = on * (self._v[:, None] * signs[:, None, :])
        return xp.reshape(units @ X, W.shape)

    def _forward(self, rows: tuple[Array, Array], points: Array) -> tuple[Array, Array]:
        """Return the residuals (K, B, P) and what goes into the units (K, B, P, hidden)."""
        xp, (X, y) = self.backend.xp, rows
        K, shared, P, _ = points.shape
        weights = points + self._start
        if shared == 1:
            columns = xp.reshape(weights, (K, P * self._layers[0], self._layers[1]))
            inner = X @ xp.matrix_transpose(columns)
            inner = xp.reshape(inner, (K, inner.shape[1], P, self._layers[0]))
        else:
            inner = xp.vecdot(xp.reshape(weights, (K, shared, P, *self._layers)), X[:, :, None, None, :])
        return xp.maximum(inner, 0.0 * inner) @ self._v - y[:, :, None], inner

    def _unit_slopes(self, residuals: Array, inner: Array) -> Array:
        """Return the slope of the loss in what goes into each unit: (K, B, P, hidden); a unit at 0 is off."""
        xp = self.backend.xp
        return xp.sign(residuals)[:, :, :, None] * xp.where(inner > 0.0, self._v, 0.0 * inner)

    def _draw(self, streams: Streams, number: int, first: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        X, y = self._host
        rows = streams.integers(first, size, len(X)).T
        return X[rows], y[rows]

    def _on(self, backend: Backend) -> NetworkPopulation:
        return type(self)(self.spec, *self._host, self._law, backend)


def _in_parts(W: Array) -> list[Array]:
    """Return the rows of W as points (K', 1, 1, d), a few at a time."""
    count = W.shape[0]
    return [W[start : min(start + _POINTS, count), None, None, :] for start in range(0, count, _POINTS)]
