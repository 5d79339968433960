"""Speed of the numeric engine against plain NumPy and against the machine's limit: part of `make bench`.

The full-gradient step and the one-sample loop of 64 replicates on one thread, each beside a plain loop for a single
replicate, beside its own matrix products, and beside the throughput of matrix products and generators measured in the
same turns. Written to engine.csv, with the machine in machine.csv.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

import numpy as np
from common import (
    DTYPES,
    FEATURES,
    L2,
    Row,
    cpu,
    descent,
    in_turns,
    one_sample_loop,
    parser,
    records,
    risk,
    write_rows,
)
from threadpoolctl import threadpool_info

from dprepro.arrays import TILE, get_backend, padded
from dprepro.files import write_text
from dprepro.provenance import commit, machine
from dprepro.streams import Streams

# Steps of noisy gradient descent that are timed together.
DESCENT_STEPS = 3
# Side of the square matrices whose product shows what BLAS can do.
SQUARE = 1024
NOISE_STEPS = 512
ETA = 0.1


def plain_step(X: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """Return a step of noisy gradient descent for one replicate as one would write it: two products with a vector."""
    n, d = X.shape
    rng, w = np.random.default_rng(1), np.zeros(d, X.dtype)

    def step() -> None:
        gradient = (-y / (1 + np.exp(y * (X @ w)))) @ X / n + L2 * w
        w[:] -= ETA * (gradient + 0.01 * rng.standard_normal(d, dtype=X.dtype))

    return step


def matrix_products(X: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """Return the two matrix products of a full gradient of 64 replicates, on the engine's own tiles."""
    n, d = X.shape
    A = np.zeros((n, padded(d)), X.dtype)
    A[:, :d] = X * y[:, None]
    columns = np.random.default_rng(1).normal(size=(TILE, padded(d))).astype(X.dtype).T
    chunks = list(get_backend("cpu", X.dtype.name).chunks(n, TILE))
    slopes = A[chunks[0]] @ columns

    def products() -> None:
        for rows in chunks:
            chunk = A[rows]
            _ = chunk @ columns, slopes[: chunk.shape[0]].T @ chunk

    return products


def full_gradient(X: np.ndarray, y: np.ndarray, dtype: str, rounds: int) -> list[Row]:
    """Compare a step of 64 replicates with a plain one of a single replicate, with its products and with the peak."""
    X, y = X.astype(dtype), y.astype(dtype)
    n, d = X.shape
    square = np.random.default_rng(1).normal(size=(SQUARE, SQUARE)).astype(dtype)
    found = in_turns(
        {
            "plain": cpu(plain_step(X, y)),
            "engine": cpu(descent(risk(X, y, dtype), DESCENT_STEPS)),
            "products": cpu(matrix_products(X, y)),
            "square": cpu(lambda: square @ square),
        },
        rounds,
    )
    step = found["engine"] / DESCENT_STEPS
    peak = 2e-9 * SQUARE**3 / found["square"]
    reached = 4e-9 * n * d * TILE / step
    double = dtype == "float64"

    def row(variant: str, measure: str, unit: str, value: float, K: int = TILE, aim: str = "") -> Row:
        return Row("full gradient", variant, measure, unit, value, dtype, n, d, K, aim)

    return [
        row("plain NumPy, one replicate", "time per replicate-step", "ms", 1e3 * found["plain"], 1),
        row("engine", "time per replicate-step", "ms", 1e3 * step / TILE),
        row("the engine's two matrix products", "time per replicate-step", "ms", 1e3 * found["products"] / TILE),
        Row("full gradient", "square matrices", "matrix products", "GF/s", peak, dtype),
        row("engine", "matrix products", "GF/s", reached),
        row("engine / plain NumPy", "speed", "ratio", TILE * found["plain"] / step, aim=f">= {7 if double else 8}"),
        row(
            "engine / its matrix products",
            "time",
            "ratio",
            step / found["products"],
            aim=f"<= {1.5 if double else 1.35}",
        ),
        row("its matrix products / plain NumPy", "speed", "ratio", TILE * found["plain"] / found["products"]),
        row("engine / square matrices", "matrix products", "ratio", reached / peak),
    ]


def plain_loop(X: np.ndarray, y: np.ndarray, steps: int) -> Callable[[], None]:
    """Return the one-sample loop for one replicate as one would write it."""
    n, d = X.shape
    rng = np.random.default_rng(1)

    def loop() -> None:
        w = np.zeros(d, X.dtype)
        for _ in range(steps):
            i = rng.integers(n)
            gradient = -y[i] / (1 + np.exp(y[i] * (X[i] @ w))) * X[i]
            w = (w - ETA * (gradient + rng.standard_normal(d, dtype=X.dtype))) / (1 + ETA * L2)

    return loop


@contextlib.contextmanager
def library_normals() -> Iterator[None]:
    """Let the engine take its noise from NumPy's default generator, a whole block at a time."""
    generator = np.random.default_rng(1)

    def normals(streams: Streams, first_step: int, steps: int, d: int, scale: float = 1.0) -> np.ndarray:
        drawn = generator.standard_normal((steps, streams.slots, d), dtype=np.float32)
        drawn *= np.float32(scale)
        return drawn

    with mock.patch.object(Streams, "normals", normals):
        yield


def one_sample(X: np.ndarray, y: np.ndarray, dtype: str, steps: int, rounds: int) -> list[Row]:
    """Compare the one-sample loop of 64 replicates with a plain one, and block noise with the library's normals."""
    X, y = X.astype(dtype), y.astype(dtype)
    job = one_sample_loop(risk(X, y, dtype), steps)

    def with_library_normals() -> None:
        with library_normals():
            job()

    found = in_turns(
        {"plain": cpu(plain_loop(X, y, steps)), "engine": cpu(job), "library": cpu(with_library_normals)}, rounds
    )
    n, d = X.shape

    def row(variant: str, measure: str, unit: str, value: float, K: int = TILE, aim: str = "") -> Row:
        return Row("one-sample loop", variant, measure, unit, value, dtype, n, d, K, aim if dtype == "float32" else "")

    rates = {name: 1e-6 * steps * (1 if name == "plain" else TILE) / seconds for name, seconds in found.items()}
    speed, unit = "replicate-steps per second", "million"
    return [
        row("plain NumPy, one replicate", speed, unit, rates["plain"], 1),
        row("engine", speed, unit, rates["engine"], aim=">= 1.2"),
        row("engine with the library's normals", speed, unit, rates["library"]),
        row("engine / plain NumPy", "speed", "ratio", rates["engine"] / rates["plain"]),
        row("block noise / library's normals", "speed", "ratio", rates["engine"] / rates["library"], aim=">= 1.3"),
    ]


def generators(rounds: int) -> list[Row]:
    """Compare the block noise with the library's normals and with the raw words that it is made of."""
    count = NOISE_STEPS * TILE * FEATURES
    streams, library, words = Streams(0, range(TILE), "noise"), np.random.default_rng(1), np.random.Philox(1)
    found = in_turns(
        {
            "block noise": cpu(lambda: streams.normals(0, NOISE_STEPS, FEATURES)),
            "library's normals": cpu(lambda: library.standard_normal(count, dtype=np.float32)),
            "raw Philox words": cpu(lambda: words.random_raw(count // 2)),
        },
        rounds,
    )
    rows = [
        Row("noise", name, "normals per second", "million", 1e-6 * count / seconds, "float32")
        for name, seconds in found.items()
    ]
    noise = found["block noise"]
    return [
        *rows,
        Row("noise", "block noise / library's normals", "speed", "ratio", found["library's normals"] / noise),
        Row("noise", "block noise / raw words, two each", "speed", "ratio", found["raw Philox words"] / noise),
    ]


def blas_kernel() -> str:
    """Return for which processor BLAS chose its kernels, and whether it was told to."""
    found = {pool.get("architecture", "unknown") for pool in threadpool_info() if pool["user_api"] == "blas"}
    told = os.environ.get("OPENBLAS_CORETYPE")
    return ", ".join(sorted(found)) + (f" (OPENBLAS_CORETYPE={told})" if told else "")


def machine_facts() -> dict[str, object]:
    """Return what the numbers depend on."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return {**commit(), **machine(), "blas_kernel": blas_kernel(), "blas_threads": 1, "load_at_start": f"{load:.1f}"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    chosen = parser(__doc__).parse_args(arguments)
    facts = "".join(f'{name},"{value}"\n' for name, value in machine_facts().items())
    write_text(chosen.out / "machine.csv", "fact,value\n" + facts)
    X, y = records(chosen.rows)
    rows = generators(chosen.rounds)
    for dtype in DTYPES:
        rows += full_gradient(X, y, dtype, chosen.rounds)
        rows += one_sample(X, y, dtype, chosen.steps, chosen.rounds)
    write_rows(chosen.out / "engine.csv", rows)


if __name__ == "__main__":
    main()
