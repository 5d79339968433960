"""Milliseconds of a Goldstein certificate for one point: `python benchmarks/goldstein.py`.

The risk is piecewise linear with ten kinks, so that the time is that of the search and not of the gradients. Measured
on one core of a shared virtual machine with the default of 512 gradients for each of 100 points: 0.3, 1.3, 2.6 and
3.2 ms in 2, 8, 32 and 64 dimensions, with an axis 0.4, 0.8 and 1.3 ms in 8, 32 and 64.
"""

from __future__ import annotations

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

import time
from dataclasses import dataclass

import numpy as np

from dprepro.problems.goldstein import certificate

POINTS = 100
DIMENSIONS = (2, 8, 32, 64)


@dataclass(frozen=True)
class Kinks:
    """F(w) = sum_j c_j |<a_j, w> - b_j|, A (m, d), b and c (m,)."""

    A: np.ndarray
    b: np.ndarray
    c: np.ndarray

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


def milliseconds(risk: Kinks | Cone, W: np.ndarray) -> float:
    certificate(risk, W[:2], 0.5)
    started = time.process_time()
    certificate(risk, W, 0.5)
    return 1000.0 * (time.process_time() - started) / len(W)


def main() -> None:
    rng = np.random.default_rng(0)
    for d in DIMENSIONS:
        A = rng.standard_normal((10, d))
        kinks = Kinks(A / np.linalg.norm(A, axis=1, keepdims=True), rng.uniform(-1, 1, 10), rng.uniform(-1, 1, 10))
        W = rng.uniform(-1.0, 1.0, (POINTS, d)) / np.sqrt(d)
        cone = f", with an axis {milliseconds(Cone(np.eye(d)[0]), W):.2f} ms" if d > 2 else ""
        print(f"d = {d}: {milliseconds(kinks, W):.2f} ms{cone}")


if __name__ == "__main__":
    main()
