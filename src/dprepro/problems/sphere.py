"""Population risk of a linear model with rows uniform on the unit sphere: integrals in one variable.

For a loss phi of the residual, F(w) = E phi(rho u + s) with rho = ||w - truth||, u one coordinate of a uniform point of
the sphere and s = +noise or -noise. Hence grad F(w) = (w - truth)/rho E[phi'(rho u + s) u]. The coordinate has a
density proportional to (1 - u^2)^((d-3)/2), for which Gauss-Gegenbauer quadrature is made.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from dprepro.arrays import Backend
from dprepro.errors import UserError
from dprepro.problems.erm import Array, FreshBatch, ProblemSpec
from dprepro.problems.population import PopulationRisk
from dprepro.streams import Streams

# Nodes of the quadrature. Within 20 of the truth smooth losses are exact to 1e-9 and those with kinks in a derivative
# to about 1e-4 of a gradient; further away, where only a run that diverged is, the error of `welsch` grows.
NODES = 200
# Samples are drawn for each replicate and kept while they are used: at most so many numbers.
LARGEST_BATCH = 2**26


@dataclass(frozen=True)
class SphereBatch(FreshBatch):
    """`size` samples of each replicate: rows X (K, size, d) with labels y (K, size)."""

    X: Array = None
    y: Array = None


class SphereRisk(PopulationRisk):
    """The risk for a truth (1, d) and a size of the label noise. Batches are samples of a continuous distribution."""

    def __init__(self, spec: ProblemSpec, X: np.ndarray, y: np.ndarray, noise: float, backend: Backend) -> None:
        if not spec.loss.residual:
            raise UserError(f"The loss {spec.loss.name!r} is no function of a residual: choose huber or welsch.")
        super().__init__(spec, X, y, np.ones(1), backend)
        self._noise = noise
        self._truth = backend.asarray(X)
        nodes, weights = _quadrature(spec.d)
        self._nodes, self._node_weights = backend.asarray(nodes), backend.asarray(weights)

    def objective(self, W: Array) -> Array:
        """Return F^r at each row of W as an array (K,)."""
        xp, loss = self.backend.xp, self.spec.loss
        at, y = self._residuals(W)
        values = 0.5 * (loss.value(xp, at, y) + loss.value(xp, at, -y))
        return values @ self._node_weights + self.spec.regularizer.value(xp, W)

    def gradient(self, W: Array) -> Array:
        """Return the gradient of F at each row of W: (K, d) -> (K, d)."""
        xp, loss = self.backend.xp, self.spec.loss
        at, y = self._residuals(W)
        slopes = 0.5 * (loss.derivative(xp, at, y) + loss.derivative(xp, at, -y))
        along = slopes @ (self._node_weights * self._nodes)
        rho = self._distance(W)
        # At the truth itself the gradient is zero.
        return (along / xp.where(rho > 0.0, rho, xp.ones_like(rho)))[:, None] * (W - self._truth)

    def fresh_batch(self, streams: Streams, number: int, first: int, size: int) -> FreshBatch:
        """Return `size` new samples of each replicate."""
        K, d = streams.slots, self.spec.d
        if K * size * d > LARGEST_BATCH:
            raise UserError(
                f"{size} samples of {d} features for {K} replicates do not fit at one time: choose an algorithm that "
                "takes small batches, fewer samples, or a population of atoms."
            )
        rows, signs = streams.spherical(number, size, d)
        X = self.backend.asarray(rows)
        truth = self.backend.xp.matrix_transpose(self._truth)
        y = (X @ truth)[:, :, 0] + self.backend.asarray(self._noise * signs)
        return SphereBatch(size, slice(0, 0), None, X, y)

    def fresh_indices(self, streams: Streams, first: int, steps: int) -> Array:
        """Refuse: a continuous distribution has no atoms to number."""
        raise UserError("population_sphere has no numbered samples: choose an algorithm that takes batches.")

    def batch_gradient(self, W: Array, batch: FreshBatch) -> Array:
        """Return the mean of grad f(w_k, z) over the samples of replicate k's batch: (K, d) -> (K, d)."""
        return self._mean_slope(batch, W)

    def batch_difference(self, W: Array, V: Array, batch: FreshBatch) -> Array:
        """Return the mean of grad f(w_k, z) - grad f(v_k, z) over the samples of replicate k's batch."""
        return self._mean_slope(batch, W) - self._mean_slope(batch, V)

    def _mean_slope(self, batch: FreshBatch, W: Array) -> Array:
        if not isinstance(batch, SphereBatch):
            raise UserError("A batch of another population was given to population_sphere: use its own.")
        at = (batch.X @ W[:, :, None])[:, :, 0]
        slopes = self.spec.loss.derivative(self.backend.xp, at, batch.y) / batch.size
        return (slopes[:, None, :] @ batch.X)[:, 0, :]

    def _residuals(self, W: Array) -> tuple[Array, Array]:
        """Return rho u at the nodes (K, Q) and the noise of the label in an array of that shape."""
        at = self._distance(W)[:, None] * self._nodes[None, :]
        return at, self.backend.zeros(at.shape) + self._noise

    def _distance(self, W: Array) -> Array:
        apart = W - self._truth
        return self.backend.xp.sqrt(self.backend.xp.vecdot(apart, apart))

    def _on(self, backend: Backend) -> SphereRisk:
        return type(self)(self.spec, *self._host, self._noise, backend)


@functools.cache
def _quadrature(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights, with the sum 1, for one coordinate of a uniform point of the sphere in d dimensions."""
    if d < 2:
        raise UserError(f"The sphere in {d} dimension has no density: give at least 2 features.")
    if d == 2:
        angles = (2.0 * np.arange(NODES) + 1.0) * np.pi / (2 * NODES)
        return np.cos(angles), np.full(NODES, 1.0 / NODES)
    from scipy.special import roots_gegenbauer

    nodes, weights = roots_gegenbauer(NODES, (d - 2) / 2.0)
    return nodes, weights / weights.sum()
