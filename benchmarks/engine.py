"""Speed of the numeric engine, as ratios in one run: `make bench`.

Variants are interleaved round by round and their medians of process CPU time compared, so that a busy machine
disturbs all alike. Written to results/benchmarks/engine.csv.
"""

from __future__ import annotations

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.arrays import TILE, get_backend
from dprepro.files import write_text
from dprepro.geometry import RealSpace
from dprepro.losses import Logistic
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.regularizers import Regularizer
from dprepro.run import Execution
from dprepro.streams import Streams

N, D = 200_000, 54
ROUNDS = 7
OUT = Path("results/benchmarks/engine.csv")


def medians(variants: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Return the median CPU seconds of each variant, measured in turns after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for round_number in range(ROUNDS + 1):
        for name, action in variants.items():
            started = time.process_time()
            action()
            if round_number:
                times[name].append(time.process_time() - started)
    return {name: float(np.median(values)) for name, values in times.items()}


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-6)
    return X, np.where(rng.random(N) < 0.5, 1.0, -1.0)


def full_gradient(problem: EmpiricalRisk, X: np.ndarray, y: np.ndarray, dtype: str) -> list[tuple[str, str, float]]:
    """Compare the batched gradient per replicate with a plain single-replicate step and with its raw GEMMs."""
    X, y = X.astype(dtype), y.astype(dtype)
    W = problem.backend.asarray(np.random.default_rng(1).normal(size=(TILE, D)))
    w = W[0]
    A, wide = problem._A, np.zeros((problem._A.shape[1], TILE), dtype=dtype)
    slices = list(problem.backend.chunks(N, TILE))
    slopes = A[slices[0]] @ wide

    def plain() -> None:
        _ = (-y / (1 + np.exp(y * (X @ w)))) @ X / N

    def matrix_products() -> None:
        for rows in slices:
            chunk = A[rows]
            _ = chunk @ wide, slopes[: chunk.shape[0]].T @ chunk

    found = medians({"plain": plain, "batched": lambda: problem.gradient(W), "gemm": matrix_products})
    per_replicate = found["batched"] / TILE
    return [
        (f"full gradient {dtype}", "plain step (ms)", 1e3 * found["plain"]),
        (f"full gradient {dtype}", "batched per replicate (ms)", 1e3 * per_replicate),
        (f"full gradient {dtype}", "plain / batched", found["plain"] / per_replicate),
        (f"full gradient {dtype}", "batched / its two matrix products", found["batched"] / found["gemm"]),
    ]


def inner_loop(problem: EmpiricalRisk, X: np.ndarray, y: np.ndarray, dtype: str) -> list[tuple[str, str, float]]:
    """Compare DP-SVRG's inner steps at K = 64 with a plain loop for one replicate."""
    X, y = X.astype(dtype), y.astype(dtype)
    steps = 3000
    algorithm = get_algorithm("dp_svrg")
    plan = algorithm.plan(Setting(problem.spec, 1.0, 1e-3), T=1, m=steps, eta=0.1)
    rng = np.random.default_rng(1)

    def batched() -> None:
        ex = Execution(plan, problem, 0, list(range(TILE)))
        ex.full_gradient = lambda W: W  # type: ignore[method-assign]  # the loop alone
        algorithm.run(plan, ex)

    def plain() -> None:
        x = x_tilde = v = np.zeros(D, dtype)
        for _ in range(steps):
            i = rng.integers(N)
            row, label = X[i], y[i]
            at_x = -label / (1 + np.exp(label * (row @ x)))
            at_tilde = -label / (1 + np.exp(label * (row @ x_tilde)))
            noise = plan.sigma * rng.standard_normal(D).astype(dtype)
            x = (x - plan.eta * ((at_x - at_tilde) * row + v + noise)) / (1 + plan.eta * 0.01)

    found = medians({"plain": plain, "batched": batched})
    rates = {"plain": steps / found["plain"], "batched": TILE * steps / found["batched"]}
    return [
        (f"inner loop {dtype}", "plain replicate-steps per second", rates["plain"]),
        (f"inner loop {dtype}", "batched replicate-steps per second", rates["batched"]),
        (f"inner loop {dtype}", "batched / plain", rates["batched"] / rates["plain"]),
    ]


def noise() -> list[tuple[str, str, float]]:
    """Compare the block noise with the library's normal generator."""
    streams, library = Streams(0, list(range(TILE)), "noise"), np.random.Generator(np.random.Philox(0))
    found = medians(
        {
            "block": lambda: streams.normals(0, 512, D),
            "library": lambda: library.standard_normal((512, TILE, D), dtype=np.float32),
        }
    )
    each = 1e9 / (512 * TILE * D)
    return [
        ("noise", "block (ns per normal)", each * found["block"]),
        ("noise", "library (ns per normal)", each * found["library"]),
        ("noise", "library / block", found["library"] / found["block"]),
    ]


def main() -> None:
    X, y = data()
    spec = ProblemSpec(N, D, Logistic(), Regularizer(l2=0.01), RealSpace())
    rows = noise()
    for dtype in ("float32", "float64"):
        problem = EmpiricalRisk(spec, X, y, get_backend("cpu", dtype))
        rows += full_gradient(problem, X, y, dtype)
        rows += inner_loop(problem, X, y, dtype)
    lines = ["case,measure,value", *(f"{case},{measure},{value:.6g}" for case, measure, value in rows)]
    write_text(OUT, "\n".join(lines) + "\n")
    for case, measure, value in rows:
        print(f"{case:<24} {measure:<38} {value:>12.4g}")


if __name__ == "__main__":
    main()
