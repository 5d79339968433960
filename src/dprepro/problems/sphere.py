"""Population risk of a linear model with rows uniform on the unit sphere: integrals in one variable.

For a loss phi of the residual, F(w) = E phi(rho u + s) with rho = ||w - truth||, u one coordinate of a uniform point of
the sphere and s = +noise or -noise. Hence grad F(w) = (w - truth)/rho E[phi'(rho u + s) u]. The coordinate has a
density proportional to (1 - u^2)^((d-3)/2), for which Gauss-Gegenbauer quadrature is made.
"""

from __future__ import annotations

import numpy as np

from dprepro.arrays import Backend
from dprepro.errors import UserError
from dprepro.problems.erm import Array, ProblemSpec
from dprepro.problems.sampled import SampledPopulation, sphere_quadrature
from dprepro.streams import Streams

# Nodes of the quadrature. Within 20 of the truth smooth losses are exact to 1e-9 and those with kinks in a derivative
# to about 1e-4 of a gradient; further away, where only a run that diverged is, the error of `welsch` grows.
NODES = 200


class SphereRisk(SampledPopulation):
    """The risk for a truth (1, d) and a size of the label noise. Batches are samples of a continuous distribution."""

    name = "population_sphere"

    def __init__(self, spec: ProblemSpec, X: np.ndarray, y: np.ndarray, noise: float, backend: Backend) -> None:
        if not spec.loss.residual:
            raise UserError(f"The loss {spec.loss.name!r} is no function of a residual: choose huber or welsch.")
        if spec.d < 2:
            raise UserError(f"The sphere in {spec.d} dimension has no density: give at least 2 features.")
        super().__init__(spec, X, y, np.ones(1), backend)
        self._noise = noise
        self._truth = backend.asarray(X)
        nodes, weights = sphere_quadrature(spec.d, NODES)
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

    def _draw(self, streams: Streams, number: int, first: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        X, signs = streams.spherical(number, size, self.spec.d)
        truth = self._host[0].astype(np.float64).T
        return X, (X @ truth)[:, :, 0] + self._noise * signs

    def _residuals(self, W: Array) -> tuple[Array, Array]:
        """Return rho u at the nodes (K, Q) and the noise of the label in an array of that shape."""
        at = self._distance(W)[:, None] * self._nodes[None, :]
        return at, self.backend.zeros(at.shape) + self._noise

    def _distance(self, W: Array) -> Array:
        apart = W - self._truth
        return self.backend.xp.sqrt(self.backend.xp.vecdot(apart, apart))

    def _on(self, backend: Backend) -> SphereRisk:
        return type(self)(self.spec, *self._host, self._noise, backend)
