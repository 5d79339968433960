"""The kernels of kernels.cuh on arrays: what they are called with, and a launcher through CuPy.

`Kernels` works with any library whose arrays a launcher can hand to compiled code: a GPU has one that goes through
CuPy, the tests have one for the same source compiled for the CPU. Besides `arrays.py` this is the only module that
knows CuPy. It decides nothing: who could use a kernel states what stands in its way, if anything, and that is noted.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dprepro.errors import UserError
from dprepro.streams import Streams

Array = Any
# Called with the name of a kernel, the type of REAL (float or double), the number of blocks, the threads in each, the
# bytes of shared memory and the arguments: arrays, NumPy scalars of the very types of the kernel, or None for no array.
Launch = Callable[..., None]

SOURCE = Path(__file__).with_name("kernels.cuh")
LANES = 32
# Replicates that share the rows loaded by one block of the full gradient.
GROUP = 8
# Threads in a block of the kernels without shared memory, and the most blocks of them in a launch.
THREADS, MOST_BLOCKS = 128, 4096
# What every device grants a block without being asked.
SHARED_BYTES = 48 * 1024
# Rows of a full gradient are cut into at most so many chunks, whose sums are added up in order. The number of rows
# alone decides, so that bits do not depend on the memory at hand.
MOST_CHUNKS = 512
# Steps of one launch; a launch that takes seconds would block a screen.
LAUNCH_STEPS = 4096
# What the paths of a run are noted under.
NOISE, GRADIENT, STEPS, SELECTION = "noise", "full gradient", "steps on one record", "noisy maximum"
TREE = "tree noise"


@dataclass(frozen=True)
class Draws:
    """What a kernel draws by itself: the noise and the records of some releases of one event, counted already.

    Where `index` (count, K) is given, the records are these.
    """

    noise: Streams
    samples: Streams
    first: int
    count: int
    sigma: float
    index: Array | None = None


class Kernels:
    """The kernels for arrays of the namespace `xp` on one device.

    `paths` says of each kind of work that came up whether a kernel did it, or why array operations did.
    """

    def __init__(self, launch: Launch, xp: Any, device: Any) -> None:
        self.paths: dict[str, str] = {}
        self._run, self._xp, self._device = launch, xp, device
        self._moved: weakref.WeakKeyDictionary[Streams, Array] = weakref.WeakKeyDictionary()

    def allowed(self, work: str, obstacle: str) -> bool:
        """Note who does some work, a kernel unless there is an obstacle, and return whether it is a kernel.

        Both are noted where both happen: a run in one floating-point type is judged in another.
        """
        how = f"array operations: {obstacle}" if obstacle else "kernel"
        noted = self.paths.setdefault(work, how)
        if how not in noted.split("; "):
            self.paths[work] = f"{noted}; {how}"
        return not obstacle

    def words(self, streams: Streams, first: int, count: int) -> Array:
        """Return words `first` to `first + count` of every stream: (slots, count), uint64."""
        out = self._empty((streams.slots, count), self._xp.uint64)
        sizes = np.int64(first), np.int64(count), np.int32(streams.slots)
        self._strided("words", "float", out.size, out, self._keys(streams), *sizes)
        return out

    def normals(self, streams: Streams, first: int, steps: int, d: int, scale: float, dtype: Any) -> Array:
        """Return what `Streams.normals` returns, made on the device and in the given type."""
        self.allowed(NOISE, "")
        out = self._empty((steps, streams.slots, d), dtype)
        sizes = np.int64(first), np.int64(steps), np.int32(d), np.int32(streams.slots)
        self._strided("normals", _real(out), out.size // 8 + 1, out, self._keys(streams), *sizes, np.float32(scale))
        return out

    def tree_prefix(self, totals: Array, steps: Sequence[int], streams: Streams, scale: float) -> Array:
        """Return the sum over nodes of their totals (nodes, K, d), each with the noise of its step: (K, d)."""
        self.allowed(TREE, "")
        totals = self._fresh(totals)
        nodes, slots, d = totals.shape
        out = self._empty((slots, d), totals.dtype)
        where = self._xp.asarray(np.array(steps, dtype=np.int64), device=self._device)
        sizes = np.int32(nodes), np.int32(d), np.int32(slots)
        given = (out, totals, where, self._keys(streams), *sizes, np.float32(scale))
        self._strided("tree_prefix", _real(out), out.size, *given)
        return out

    def noisy_max(self, scores: Array, streams: Streams, first: int, scale: float, noise: str) -> Array:
        """Return the place of the largest noisy score (K, J) of each replicate: (K,), int64."""
        self.allowed(SELECTION, "")
        scores = self._fresh(scores)
        K, candidates = scores.shape
        places = self._empty((K,), self._xp.int64)
        kind = np.float64(scale), np.int32(noise == "gumbel")
        given = (places, scores, self._keys(streams), np.int64(first), np.int32(candidates), *kind)
        self._warps("noisy_max", _real(scores), K, 0, *given)
        return places

    def logistic_gradient(self, rows: Array, W: Array, mean_row: Array) -> Array:
        """Return the mean over the rows a = y x, all but the last, of the logistic loss's gradients: (K, d).

        That is sum_i tanh(<a_i, w>/2) a_i / (2 n) - mean_row / 2.
        """
        W = self._fresh(W)
        (K, d), n, real = W.shape, rows.shape[0] - 1, _numpy_type(W)
        chunk = chunk_rows(n)
        chunks, groups = -(-n // chunk), -(-K // GROUP)
        sums = self._empty((chunks, K, d), W.dtype)
        sizes = np.int64(n), np.int64(chunk), np.int32(d), np.int32(rows.shape[1]), np.int32(K)
        shared = gradient_bytes(d, real.itemsize)
        self._warps("slope_sums", _real(W), chunks * groups, shared, sums, rows, W, *sizes)
        last = np.int64(chunks), np.int32(d), np.int32(K), real.type(0.5 / n), real.type(-0.5)
        self._strided("gather_chunks", _real(W), K * d, W, sums, mean_row, *last)
        return W

    def noisy_sgd(
        self, rows: Array, x: Array, mean: Array, draws: Draws, etas: Sequence[float], skipped: int, l2: float
    ) -> tuple[Array, Array]:
        """Return the iterate and the mean (K, d) after noisy steps of the sizes `etas`, on one row each.

        The mean is that of the iterates behind the first `skipped` of all releases; before, it is the iterate itself.
        """
        x, mean = self._fresh(x), self._fresh(mean)
        (K, d), real = x.shape, _numpy_type(x)
        last = np.int64(skipped), np.int32(d), np.int32(rows.shape[1]), real.type(l2), np.float32(draws.sigma)
        for part in _launches(draws.count):
            sizes = self._xp.asarray(np.asarray(etas[part], dtype=real), device=self._device)
            given = (x, mean, rows, sizes, *self._drawn(draws, part, rows), *last)
            self._warps("noisy_sgd", _real(x), K, noise_bytes(d), *given)
        return x, mean

    def noisy_svrg(
        self, rows: Array, x: Array, snapshot: Array, full: Array, draws: Draws, eta: Any, clip: float | None, l2: float
    ) -> tuple[Array, Array]:
        """Return the iterate and the sum of all iterates (K, d) after noisy variance-reduced steps, on one row each.

        `eta` is a number or (K, 1), and `clip` shortens the difference of the two gradients.
        """
        x, snapshot, full = self._fresh(x), self._fresh(snapshot), self._fresh(full)
        (K, d), real = x.shape, _numpy_type(x)
        total, sizes = self._xp.zeros_like(x), self._empty((K, 1), x.dtype)
        sizes[...] = eta
        factors = real.type(l2), real.type(0.0 if clip is None else clip), np.float32(draws.sigma)
        last = np.int32(d), np.int32(rows.shape[1]), *factors
        for part in _launches(draws.count):
            given = (x, total, snapshot, full, rows, sizes, *self._drawn(draws, part, rows), *last)
            self._warps("noisy_svrg", _real(x), K, noise_bytes(d), *given)
        return x, total

    def check(self) -> None:
        """Raise unless the device draws the words of the host, bit by bit."""
        streams = Streams(0, [0, None, 5], "check")
        host = self._xp.asarray(streams.words(3, 50), device=self._device)
        if not bool(self._xp.all(self.words(streams, 3, 50) == host)):
            raise UserError("The GPU draws other random words than the host: use device cpu.")

    def _drawn(self, draws: Draws, part: slice, rows: Array) -> tuple[Any, ...]:
        """Return the arguments of one launch that say what it draws: index, streams, first release, steps, records."""
        index = None if draws.index is None else draws.index[part, :]
        sizes = np.int64(draws.first + part.start), np.int64(part.stop - part.start), np.int64(rows.shape[0] - 1)
        return (index, self._keys(draws.noise), self._keys(draws.samples), *sizes)

    def _keys(self, streams: Streams) -> Array:
        """Return the keys of the streams on the device; they are moved once."""
        if streams not in self._moved:
            self._moved[streams] = self._xp.asarray(streams.keys, device=self._device)
        return self._moved[streams]

    def _strided(self, name: str, real: str, work: int, *arguments: Any) -> None:
        """Launch a kernel that goes through its work in strides of the grid."""
        self._run(name, real, max(1, min(MOST_BLOCKS, -(-work // THREADS))), THREADS, 0, *arguments)

    def _warps(self, name: str, real: str, blocks: int, shared_bytes: int, *arguments: Any) -> None:
        """Launch a kernel whose blocks are one warp each."""
        self._run(name, real, blocks, LANES, shared_bytes, *arguments)

    def _empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return self._xp.empty(shape, dtype=dtype, device=self._device)

    def _fresh(self, values: Array) -> Array:
        """Return a copy that a kernel may read row by row, and write to."""
        out = self._empty(values.shape, values.dtype)
        out[...] = values
        return out


class CudaLauncher:
    """Compiles kernels.cuh at the first call for each type, and launches its kernels through CuPy."""

    def __call__(self, name: str, real: str, blocks: int, threads: int, shared_bytes: int, *arguments: Any) -> None:
        """Launch a kernel on the current device and stream."""
        given = tuple(np.uint64(0) if value is None else value for value in arguments)
        _module(real).get_function(name)((blocks,), (threads,), given, shared_mem=shared_bytes)


@functools.cache
def _module(real: str) -> Any:
    import cupy

    return cupy.RawModule(code=SOURCE.read_text(encoding="utf-8"), options=compiler_options(real))


def compiler_options(real: str, lanes: int = LANES) -> tuple[str, ...]:
    """Return what every compiler of kernels.cuh is told."""
    return ("-std=c++17", f"-DREAL={real}", f"-DLANES={lanes}", f"-DGROUP={GROUP}")


def gradient_bytes(d: int, item: int) -> int:
    """Return the shared memory of a block of the full gradient: a tile of rows, slopes, points and sums."""
    return item * (LANES * (d | 1) + LANES * GROUP + 2 * GROUP * d)


def noise_bytes(d: int) -> int:
    """Return the shared memory of a block of steps: the noise of two steps, in single precision."""
    return 2 * d * 4


def chunk_rows(n: int) -> int:
    """Return how many of n rows one block of the full gradient takes, a multiple of a warp's."""
    return -(-max(1, n) // (MOST_CHUNKS * LANES)) * LANES


def _launches(steps: int) -> Iterator[slice]:
    """Yield the steps of each launch."""
    for start in range(0, steps, LAUNCH_STEPS):
        yield slice(start, min(start + LAUNCH_STEPS, steps))


def _real(array: Array) -> str:
    return {4: "float", 8: "double"}[_numpy_type(array).itemsize]


def _numpy_type(array: Array) -> np.dtype:
    return np.dtype(str(array.dtype).rpartition(".")[2])
