"""Which array library runs, on which device, and how much memory a temporary may take.

This module and `kernels.py` are the only ones that know that CuPy exists. Everything numeric elsewhere is written
against the array API standard and receives a `Backend`. A backend may have kernels for what array operations do badly;
where it has none, as NumPy, or they do not cover a case, array operations do the work.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dprepro.errors import UserError

if TYPE_CHECKING:
    from dprepro.kernels import Kernels

# A (rows, replicates) temporary of this size stays in the second-level cache of one core.
CPU_BUDGET_BYTES = 128 * 1024
GPU_BUDGET_SHARE = 0.1
# Rows are taken in chunks of at least so many.
LEAST_ROWS = 64
# Noise is drawn in blocks as short as this part of the usual, and no shorter.
LARGEST_CUT = 16

# Replicates always run in full tiles of this many slots, and matrix products see features padded to a
# multiple of FEATURE_MULTIPLE: with these shapes fixed, BLAS gives replicate r the same bits in any company.
TILE = 64
FEATURE_MULTIPLE = 16

DEVICES = ("auto", "cpu", "gpu")
DTYPES = ("float32", "float64")

Array = Any  # an array of the backend's library; the standard has no importable type for it


@dataclass(frozen=True)
class Backend:
    """An array library bound to a device and a floating-point type.

    `why` says how the choice came about and is recorded with every result; `budget` is the size in bytes that
    one temporary of a row-chunked computation may take. `cut` says how many times smaller than usual temporaries are,
    for want of memory, and `halves` whether chunks of rows are halved then. `kernels` are those of `kernels.cuh`, if
    the device has them.
    """

    name: str
    xp: Any
    device: Any
    dtype_name: str
    budget: int
    why: str
    cut: int = 1
    halves: bool = False
    kernels: Kernels | None = None

    @property
    def dtype(self) -> Any:
        """The floating-point type in the library's own terms."""
        return getattr(self.xp, self.dtype_name)

    @property
    def device_name(self) -> str:
        """`cpu`, `gpu`, or the library's name of a test device."""
        if self.name == "cupy":
            return "gpu"
        return "cpu" if self.name == "numpy" else str(self.device)

    def facts(self) -> dict[str, str]:
        """Return what is recorded with every result."""
        return {"backend": self.name, "device": self.device_name, "why": self.why, "dtype": self.dtype_name}

    def with_dtype(self, dtype_name: str) -> Backend:
        """Return the same backend with another floating-point type."""
        return replace(self, dtype_name=_checked_dtype(dtype_name))

    def smaller(self, rows: int, columns: int) -> Backend | None:
        """Return the same backend with smaller temporaries, for data of (rows, columns); None if they are the smallest.

        Blocks of random numbers have a quarter of their length, down to 1/LARGEST_CUT, which changes no number. On a
        CPU that is all: its chunks of rows take next to nothing. On a GPU memory that is free but kept is given back
        first, blocks have half of their length, and chunks half of their rows, down to LEAST_ROWS: there the order of
        sums changes, and with it last bits.
        """
        self._give_back()
        if not self.halves:
            return None if self.cut >= LARGEST_CUT else replace(self, cut=4 * self.cut)
        chunk = min(rows, self.chunk_rows(columns))
        if chunk <= LEAST_ROWS and self.cut >= LARGEST_CUT:
            return None
        return replace(self, budget=max(LEAST_ROWS, chunk // 2) * self._row_bytes(columns), cut=2 * self.cut)

    def steps(self, usual: int) -> int:
        """Return for how many steps random numbers are drawn at one time."""
        return max(1, usual // self.cut)

    def asarray(self, values: Any) -> Array:
        """Move host values to the device as floating-point numbers."""
        return self.xp.asarray(np.ascontiguousarray(values, dtype=self.dtype_name), device=self.device)

    def index(self, values: Any) -> Array:
        """Move host integers to the device as an index array; on the host nobody can change what was drawn."""
        fixed = np.ascontiguousarray(values, dtype=np.int64).view()
        fixed.setflags(write=False)
        return self.xp.asarray(fixed, device=self.device)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """Return zeros of the backend's type on the device."""
        return self.xp.zeros(shape, dtype=self.dtype, device=self.device)

    def to_host(self, array: Array) -> np.ndarray:
        """Copy a device array to a NumPy array."""
        if self.name == "cupy":
            return np.asarray(array.get())
        if self.name == "numpy":
            return np.array(array)
        return np.array(self.xp.asarray(array, device=_strict_cpu(self.xp)))

    def segment_sums(self, values: Array, starts: Array) -> Array:
        """Return the sums of the segments values[starts[k] : starts[k + 1]], none empty: (M, d) -> (K, d).

        A sum depends on the numbers of its own segment only, to the last bit; a difference of running totals would
        not do.
        """
        if self.name == "numpy":
            return np.add.reduceat(values, starts, axis=0)
        return self.xp.stack([self.xp.sum(values[rows, :], axis=0) for rows in self.segments(starts, values.shape[0])])

    def segments(self, starts: Array, end: int) -> Iterator[slice]:
        """Yield the segments that begin at `starts` (K,) as slices; the last one ends at `end`."""
        bounds = [*self.to_host(starts).tolist(), end]
        for start, stop in itertools.pairwise(bounds):
            yield slice(start, stop)

    def chunks(self, rows: int, columns: int) -> Iterator[slice]:
        """Cut `rows` into slices so that a (slice, columns) temporary fits the budget (at least LEAST_ROWS rows)."""
        step = self.chunk_rows(columns)
        for start in range(0, rows, step):
            yield slice(start, min(start + step, rows))

    def chunk_rows(self, columns: int) -> int:
        """Return how many rows a chunk has whose (rows, columns) temporary fits the budget."""
        return max(LEAST_ROWS, self.budget // self._row_bytes(columns))

    def _row_bytes(self, columns: int) -> int:
        return np.dtype(self.dtype_name).itemsize * max(columns, 1)

    def _give_back(self) -> None:
        """Give memory that is free but kept for later arrays back to the device."""
        if self.name == "cupy":
            import cupy

            cupy.get_default_memory_pool().free_all_blocks()


def get_backend(device: str | None = None, dtype: str = "float64", configured: str | None = None) -> Backend:
    """Choose a backend: by the argument, else by DPREPRO_DEVICE, else by the configuration.

    `auto` is no preference and passes the choice on; at the end of the line it takes a GPU that works, else the
    CPU, and records the reason in `why`. `gpu` where there is none is an error.
    """
    wish, origin = wished_device(device, configured)
    dtype = _checked_dtype(dtype)
    if wish == "cpu":
        return _numpy_backend(dtype, f"cpu asked for by {origin}")
    problem = gpu_problem()
    if not problem:
        return _cupy_backend(dtype, f"{wish} asked for by {origin}; a GPU answered a test kernel")
    if wish == "gpu":
        raise UserError(
            f"A GPU was asked for by {origin}, but {problem}: "
            "install dprepro[gpu] on a machine with an NVIDIA GPU, or use device cpu or auto."
        )
    return _numpy_backend(dtype, f"auto ({origin}): {problem}")


def strict_backend(dtype: str = "float64") -> Backend:
    """Return array-api-strict on `device1`: refuses what is not in the standard and any host array (tests)."""
    import array_api_strict as xp

    return Backend(
        "array_api_strict",
        xp,
        xp.Device("device1"),
        _checked_dtype(dtype),
        CPU_BUDGET_BYTES,
        "conformance test",
    )


@functools.cache
def gpu_problem() -> str:
    """Say why no GPU can be used, or return the empty string after a kernel has run there and back."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        if not cupy.cuda.is_available():
            return "CuPy finds no CUDA device"
        if int((cupy.arange(4, dtype=cupy.int64) ** 2).sum().get()) != 14:
            return "the GPU gave a wrong answer to a test kernel"
        _cupy_kernels().check()
    except Exception as error:  # any driver or compiler fault means the same: no usable GPU, and here is why
        return f"CuPy cannot run a kernel ({type(error).__name__}: {str(error).splitlines()[0]})"
    return ""


def blas_threads() -> int | None:
    """Return how many threads BLAS uses in this process (None where it cannot be told)."""
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        return 1
    from threadpoolctl import threadpool_info

    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=None)


@contextlib.contextmanager
def single_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread: results are then bit-identical in any company, and jobs do not fight for cores."""
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


def padded(features: int) -> int:
    """Round a number of features up to the multiple that matrix products are run with."""
    return -(-features // FEATURE_MULTIPLE) * FEATURE_MULTIPLE


def wished_device(device: str | None, configured: str | None) -> tuple[str, str]:
    """Return the device asked for by the argument, else by DPREPRO_DEVICE, else by the configuration, and by which."""
    candidates = (
        (device, "the argument"),
        (os.environ.get("DPREPRO_DEVICE") or None, "DPREPRO_DEVICE"),
        (configured, "the configuration"),
    )
    for value, origin in candidates:
        if value is not None and value not in DEVICES:
            raise UserError(f"Unknown device {value!r} given by {origin}: use one of {', '.join(DEVICES)}.")
    stated = [(value, origin) for value, origin in candidates if value is not None and value != "auto"]
    return stated[0] if stated else ("auto", "default")


def _checked_dtype(dtype: str) -> str:
    if dtype not in DTYPES:
        raise UserError(f"Unknown floating-point type {dtype!r}: use one of {', '.join(DTYPES)}.")
    return dtype


def _numpy_backend(dtype: str, why: str) -> Backend:
    return Backend("numpy", np, None, dtype, CPU_BUDGET_BYTES, why)


def _cupy_backend(dtype: str, why: str) -> Backend:
    # CuPy's own namespace lacks vecdot and linalg.vector_norm; the compatibility layer has them.
    import array_api_compat.cupy as xp
    import cupy

    free_bytes, _ = cupy.cuda.runtime.memGetInfo()
    why += " and draws the random words of the host"
    budget = int(GPU_BUDGET_SHARE * free_bytes)
    return Backend("cupy", xp, cupy.cuda.Device(), dtype, budget, why, halves=True, kernels=_cupy_kernels())


def _cupy_kernels() -> Kernels:
    import array_api_compat.cupy as xp
    import cupy

    from dprepro.kernels import CudaLauncher, Kernels

    return Kernels(CudaLauncher(), xp, cupy.cuda.Device())


def _strict_cpu(xp: Any) -> Any:
    return xp.Device("CPU_DEVICE")
