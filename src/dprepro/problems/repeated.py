"""Empirical risk over records that are copies of a few atoms.

n records, copies[m] of them equal to atom m, have the risk of the atoms with the weights copies[m]/n: full gradients
cost as much as there are atoms, whatever n. A random batch is the vector of counts of the atoms in it, which has the
law of records drawn by number. If all weights stay the same as n grows, so does the risk: what changes with n is what
privacy costs, and nothing else.
"""

from __future__ import annotations

import numpy as np

from dprepro.arrays import Backend
from dprepro.errors import UserError
from dprepro.problems.erm import Array, EmpiricalRisk, FreshBatch, ProblemSpec
from dprepro.streams import Streams

# What NumPy's multivariate hypergeometric numbers are made for.
MOST_RECORDS = 10**9


class RepeatedRisk(EmpiricalRisk):
    """The risk of n = sum(copies) records: X (M, d), labels y (M,) and copies (M,), whole numbers."""

    def __init__(self, spec: ProblemSpec, X: np.ndarray, y: np.ndarray, copies: np.ndarray, backend: Backend) -> None:
        if int(copies.sum()) != spec.n:
            raise UserError(f"The copies of the atoms are {int(copies.sum())} records, not n = {spec.n}: correct them.")
        super().__init__(spec, X, y, backend, copies / spec.n)
        self.copies = copies

    def check_that_batches_can_be_drawn(self) -> None:
        """Refuse more records than NumPy's multivariate hypergeometric numbers are made for."""
        if self.spec.n >= MOST_RECORDS:
            raise UserError(
                f"Random batches cannot be drawn from n = {self.spec.n} repeated records: give less than "
                f"{MOST_RECORDS:.0e}, or an algorithm that looks at all of them."
            )

    def batch(self, counts: np.ndarray, size: int) -> FreshBatch:
        """Return the batch with counts (K, M) of the atoms in it, of this size, as the shares of the atoms."""
        return FreshBatch(size, slice(0, self._rows), self.backend.asarray(counts.T / size))

    def sample_gradients(self, W: Array, index: FreshBatch) -> Array:  # type: ignore[override]  # no numbers here
        """Return the mean of grad f(w_k, z) over replicate k's batch."""
        return self.batch_gradient(W, index)

    def sample_differences(self, W: Array, V: Array, index: FreshBatch, clip: float | None = None) -> Array:  # type: ignore[override]
        """Return the mean of grad f(w_k, z) - grad f(v_k, z) over replicate k's batch."""
        if clip is not None:
            raise UserError("Differences of repeated records are not clipped one by one: choose stored rows.")
        return self.batch_difference(W, V, index)

    def fresh_batch(self, streams: Streams, number: int, first: int, size: int) -> FreshBatch:
        """Refuse: copies come in no order in which to go through them once."""
        raise UserError("Repeated records are not handed out once each: choose a population or stored rows.")

    def fresh_indices(self, streams: Streams, first: int, steps: int) -> Array:
        """Refuse, as `fresh_batch`."""
        return self.fresh_batch(streams, 0, first, steps)

    def _on(self, backend: Backend) -> RepeatedRisk:
        return type(self)(self.spec, *self._host, self.copies, backend)


def copies_of(probabilities: np.ndarray, n: int) -> np.ndarray:
    """Return how many of n records are copies of each atom, or refuse an n that makes no whole numbers of them."""
    copies = np.rint(probabilities * n).astype(np.int64)
    if copies.sum() != n or np.max(np.abs(copies - probabilities * n)) > 1e-6:
        raise UserError(
            f"n = {n} records cannot be copies of {probabilities.size} atoms in these shares: "
            f"give a multiple of {probabilities.size}, or of what makes all shares whole."
        )
    return copies
