"""Population risk over a distribution with finitely many atoms, of which an algorithm sees n independent samples.

F(w) = sum_m p_m phi(<w, x_m>, y_m): risk, gradient and stationarity gap are exact sums. A batch of i.i.d. samples is a
multinomial vector of counts, with the same law as the samples themselves, so that its cost does not depend on its
size: a sample of 10^9 costs no more than one of 10^3.
"""

from __future__ import annotations

import numpy as np

from dprepro.arrays import Backend
from dprepro.errors import UserError
from dprepro.problems.erm import Array, EmpiricalRisk, FreshBatch, ProblemSpec
from dprepro.streams import Streams

# How far the probabilities may be from summing to one: rounding of a few thousand numbers.
_SUM_TOLERANCE = 1e-12


class PopulationRisk(EmpiricalRisk):
    """The risk on M atoms: X (M, d), labels y (M,) and probabilities (M,). `spec.n` is the size of the sample.

    Objective, gradient, Hessians and gap are those of the population. What an algorithm may see of it are the batches
    of samples that `fresh_batch` and `fresh_indices` draw, independently for each replicate.
    """

    def __init__(
        self, spec: ProblemSpec, X: np.ndarray, y: np.ndarray, probabilities: np.ndarray, backend: Backend
    ) -> None:
        probabilities = checked_probabilities(probabilities, X.shape[0])
        super().__init__(spec, X, y, backend, probabilities)
        self._probabilities = probabilities

    @property
    def atoms(self) -> int:
        """The number of atoms M."""
        return self._rows

    def fresh_batch(self, streams: Streams, number: int, first: int, size: int) -> FreshBatch:
        """Return `size` new samples of each replicate, as the shares of the atoms in them."""
        counts = streams.multinomial(number, size, self._probabilities)
        return FreshBatch(size, slice(0, self.atoms), self.backend.asarray(counts.T / size))

    def fresh_indices(self, streams: Streams, first: int, steps: int) -> Array:
        """Return the atoms of `steps` single samples of each replicate behind the first `first`: (steps, K)."""
        levels = np.cumsum(self._probabilities)[:-1]
        return self.backend.index(np.searchsorted(levels, streams.uniforms(first, steps), side="right"))

    def _on(self, backend: Backend) -> PopulationRisk:
        return type(self)(self.spec, *self._host, self._probabilities, backend)


def checked_probabilities(probabilities: np.ndarray, atoms: int) -> np.ndarray:
    """Return the probabilities in double precision, or refuse numbers that are none."""
    given = np.asarray(probabilities, dtype=np.float64)
    if given.shape != (atoms,) or not np.all(given >= 0.0) or not abs(given.sum() - 1.0) <= _SUM_TOLERANCE:
        raise UserError(
            f"The probabilities of {atoms} atoms are not as many numbers >= 0 with the sum 1: correct them."
        )
    return given
