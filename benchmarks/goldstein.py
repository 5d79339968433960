"""Time of a Goldstein certificate for one point, with 512 gradients: part of `make bench`. Written to goldstein.csv.

The risk is piecewise linear with ten kinks, so that the time is that of the search and not of the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from common import Row, cpu, in_turns, parser, write_rows

from dprepro.problems.goldstein import certificate

POINTS = 100
DIMENSIONS = (2, 8, 32, 64)
RADIUS = 0.5


@dataclass(frozen=True)
class Kinks:
    """F(w) = sum_j c_j |<a_j, w> - b_j|, A (m, d), b and c (m,)."""

    A: np.ndarray
    b: np.ndarray
    c: np.ndarray

    @classmethod
    def random(cls, d: int, rng: np.random.Generator) -> Kinks:
        """Return ten kinks in random directions."""
        A = rng.standard_normal((10, d))
        return cls(A / np.linalg.norm(A, axis=1, keepdims=True), rng.uniform(-1, 1, 10), rng.uniform(-1, 1, 10))

    def gradient(self, W: np.ndarray) -> np.ndarray:
        """Return the gradient at each row of W: (K, d) -> (K, d)."""
        return (self.c * np.sign(W @ self.A.T - self.b)) @ self.A


@dataclass(frozen=True)
class Cone:
    """F(w) = 0.2 w_1 + 0.5 ||(w_2, ..., w_d)||, which has an axis."""

    axis: np.ndarray

    def gradient(self, W: np.ndarray) -> np.ndarray:
        """Return the gradient at each row of W: (K, d) -> (K, d)."""
        rest = W * (1.0 - self.axis)
        return 0.5 * rest / np.linalg.norm(rest, axis=1, keepdims=True) + 0.2 * self.axis


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    chosen = parser(__doc__).parse_args(arguments)
    rng = np.random.default_rng(0)
    points = min(POINTS, chosen.rows)
    risks: dict[tuple[str, int], Kinks | Cone] = {("kinks", d): Kinks.random(d, rng) for d in DIMENSIONS}
    risks |= {("with an axis", d): Cone(np.eye(d)[0]) for d in DIMENSIONS if d > 2}
    W = {d: rng.uniform(-1.0, 1.0, (points, d)) / np.sqrt(d) for d in DIMENSIONS}
    found = in_turns(
        {str(key): cpu(lambda key=key: certificate(risks[key], W[key[1]], RADIUS)) for key in risks}, chosen.rounds
    )
    rows = [
        Row("certificate", name, "time per point", "ms", 1e3 * found[str((name, d))] / points, "float64", d=d, K=points)
        for name, d in risks
    ]
    write_rows(chosen.out / "goldstein.csv", rows)


if __name__ == "__main__":
    main()
