"""Risks of losses that are no functions of <w, x>: the mean of f(w; x_m, y_m) over atoms, weighted."""

from __future__ import annotations

from dprepro.errors import UserError
from dprepro.privacy.mechanisms import PoissonBatch
from dprepro.problems.erm import Array, EmpiricalRisk, FreshBatch
from dprepro.problems.population import PopulationRisk
from dprepro.problems.repeated import RepeatedRisk
from dprepro.vector_losses import VectorLoss


class VectorRisk(EmpiricalRisk):
    """The risk over stored rows. Gradients are those of `VectorLoss.mean_gradient` with the weights of the rows."""

    def gradient(self, W: Array) -> Array:
        """Return the gradient of the smooth part F at each row of W: (K, d) -> (K, d)."""
        return self._loss.mean_gradient(self.backend.xp, W, *self._atoms(slice(0, self._rows)), self._all())

    def objective(self, W: Array) -> Array:
        """Return F^r at each row of W as an array (K,)."""
        xp = self.backend.xp
        values = self._loss.mean_value(xp, W, *self._atoms(slice(0, self._rows)), self._all())
        return values + self.spec.regularizer.value(xp, W)

    def batch_gradient(self, W: Array, batch: FreshBatch) -> Array:
        """Return the mean of grad f(w_k, z) over the samples of replicate k's batch: (K, d) -> (K, d)."""
        return self._loss.mean_gradient(self.backend.xp, W, *self._atoms(batch.rows), batch.weights(self.backend))

    def batch_difference(self, W: Array, V: Array, batch: FreshBatch) -> Array:
        """Return the mean of grad f(w_k, z) - grad f(v_k, z) over the samples of replicate k's batch."""
        return self.batch_gradient(W, batch) - self.batch_gradient(V, batch)

    def sample_gradients(self, W: Array, index: Array | PoissonBatch | FreshBatch) -> Array:
        """Return each replicate's mean gradient over its batch: record numbers (K,) or (K, b), or counts of atoms."""
        return self.batch_gradient(W, self._named(index))

    def sample_differences(
        self, W: Array, V: Array, index: Array | PoissonBatch | FreshBatch, clip: float | None = None
    ) -> Array:
        """Return the mean of grad f(w_k, z) - grad f(v_k, z) over replicate k's batch, as in `sample_gradients`."""
        if clip is not None:
            raise UserError(f"The loss {self.spec.loss.name!r} has no differences that are clipped one by one.")
        return self.batch_difference(W, V, self._named(index))

    def hessian(self, w: Array) -> Array:
        """Refuse: these losses have no second derivatives here."""
        raise UserError(f"The loss {self.spec.loss.name!r} has no second derivatives here: choose another loss.")

    def hessians(self, W: Array) -> Array:
        """Refuse, as `hessian`."""
        return self.hessian(W)

    @property
    def _loss(self) -> VectorLoss:
        loss = self.spec.loss
        if not isinstance(loss, VectorLoss):
            raise UserError(f"The loss {loss.name!r} is a function of <w, x>: it cannot replace one of w itself.")
        return loss

    def _atoms(self, rows: slice) -> tuple[Array, Array]:
        return self._A[rows, :][:, : self.spec.d], self._y[rows]

    def _all(self) -> Array:
        """Return the weights of all rows as one column (M, 1)."""
        if self._weights is not None:
            return self._weights[:, None]
        return self.backend.zeros((self._rows, 1)) + 1.0 / self._rows

    def _named(self, index: Array | PoissonBatch | FreshBatch) -> FreshBatch:
        """Return the batch of the named records as shares of all rows (M, K)."""
        if isinstance(index, FreshBatch):
            return index
        if isinstance(index, PoissonBatch):
            raise UserError(
                f"The loss {self.spec.loss.name!r} has no Poisson batches of stored rows: set sampling=fixed."
            )
        xp = self.backend.xp
        drawn = index[:, None] if index.ndim == 1 else index
        # How often each row is named; the row of zeros behind the data never is.
        hits = drawn[:, :, None] == xp.arange(self._rows, device=drawn.device)[None, None, :]
        counts = xp.sum(xp.astype(hits, self.backend.zeros((1,)).dtype), axis=1)
        return FreshBatch(drawn.shape[1], slice(0, self._rows), xp.matrix_transpose(counts) / drawn.shape[1])


class VectorPopulation(VectorRisk, PopulationRisk):
    """The risk over a distribution with finitely many atoms."""


class VectorRepeated(VectorRisk, RepeatedRisk):
    """The risk over records that are copies of a few atoms."""
