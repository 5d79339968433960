"""Regularised empirical risk of a generalized linear model over a shared data matrix.

F^r(w) = 1/n sum_i phi(<w, x_i>, y_i) + r(w) over a convex set. Parameters carry replicates as an axis: W has
shape (K, d) with one row per replicate, so that K gradients over the one X are two matrix products.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dprepro.arrays import Backend, padded
from dprepro.errors import RunFailed, UserError, is_number
from dprepro.geometry import ConstraintSet, L1Ball, L2Ball, LpBall, RealSpace, Simplex
from dprepro.kernels import GRADIENT, SHARED_BYTES, gradient_bytes, noise_bytes
from dprepro.losses import Logistic, Loss
from dprepro.regularizers import Regularizer

if TYPE_CHECKING:
    from dprepro.kernels import Draws, Kernels
    from dprepro.privacy.mechanisms import PoissonBatch
    from dprepro.streams import Streams

Array = Any
# Poisson batches below this expected size are taken all at once; larger ones are quicker one replicate at a time.
SMALL_BATCH = 16
# Sets that changing the sign of a coordinate does not change: they go with an l1 term (see `EmpiricalRisk.prox`).
_SIGN_SYMMETRIC = (RealSpace, L2Ball, L1Ball, LpBall)


# Labels beyond this size are treated as infinitely far: no prediction comes close to them.
FAR_LABEL = 1e6


@dataclass(frozen=True)
class ProblemSpec:
    """What a plan may know of a problem: sizes, structure and public constants, never a data value.

    `row_norm` bounds the l2 norm of every row, `row_sup` its largest entry; None stands for what `row_norm` implies.
    `rank` bounds the rank of the rows where it is known without looking at them.
    """

    n: int
    d: int
    loss: Loss
    regularizer: Regularizer
    constraint: ConstraintSet
    row_norm: float = 1.0
    label_bound: float = 1.0
    row_sup: float | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        for method, constant, above, range_ in (
            ("lipschitz", "G", operator.gt, "> 0"),
            ("smoothness", "L", operator.ge, ">= 0"),
        ):
            try:
                value = getattr(self, constant)
            except NotImplementedError:
                continue  # it need not state what no one asks for
            if not (is_number(value) and above(value, 0.0)):
                raise UserError(
                    f"The loss {self.loss.name!r} has {value!r} for a constant: its {method} must return a number "
                    f"{range_}, infinity where there is none."
                )
        if self.regularizer.l1 and not isinstance(self.constraint, _SIGN_SYMMETRIC):
            advice = (
                "it is constant there: drop it" if isinstance(self.constraint, Simplex) else "drop it, or use a ball"
            )
            raise UserError(f"An l1 term has no proximal step on the {self.constraint.name} here: {advice}.")

    @property
    def G(self) -> float:
        """Lipschitz constant of one sample's loss on the constraint set."""
        return self.loss.lipschitz(self.row_norm, self.constraint.radius, self.label_bound)

    @property
    def gradient_spread(self) -> float:
        """Bound on the distance between two gradients of one sample, taken at two points of the set."""
        return self.loss.gradient_spread(self.row_norm, self.constraint.radius, self.label_bound)

    @property
    def L(self) -> float:
        """Smoothness of one sample's loss (the regulariser not included)."""
        return self.loss.smoothness(self.row_norm)

    def row_norm_in(self, q: float) -> float:
        """Return a bound on the l_q norm of every row, 1 <= q <= inf."""
        largest = self.row_norm if self.row_sup is None else min(self.row_sup, self.row_norm)
        if q < 2.0:
            return min(self.row_norm * self.d ** (1.0 / q - 0.5), largest * self.d ** (1.0 / q))
        # sum_j |x_j|^q <= max_j |x_j|^(q-2) sum_j x_j^2
        return float(largest * (self.row_norm / largest) ** (2.0 / q))

    def lipschitz_in(self, p: float) -> float:
        """Return the Lipschitz constant of one sample's loss in the l_p norm of w: bounds the gradient in the dual."""
        norm = self.row_norm_in(_dual(p))
        reach = self.row_norm * self.constraint.radius
        if "centrally_symmetric" in self.constraint.properties:
            halves = [(r, 0.5 * self.constraint.diameter(r, self.d)) for r in (p, 1.0)]
            reach = min(reach, *(self.row_norm_in(_dual(r)) * half for r, half in halves))
        return self.loss.lipschitz(norm, reach / norm, self.label_bound)

    def smoothness_in(self, p: float) -> float:
        """Return the smoothness of one sample's loss in the l_p norm: that of its gradient in the dual norm."""
        return self.loss.smoothness(self.row_norm_in(_dual(p)))

    @property
    def mu(self) -> float:
        """Strong convexity of F^r that holds for every dataset: the regulariser's l2 strength."""
        return self.regularizer.l2 if self.loss.convex else 0.0

    @property
    def off_centre(self) -> bool:
        """Whether the initial point is no centre of the set, as in a simplex or a polytope."""
        properties = self.constraint.properties
        return "bounded" in properties and "centrally_symmetric" not in properties

    @property
    def properties(self) -> frozenset[str]:
        """What an algorithm may ask for in its `needs`."""
        facts = {
            "smooth": self.loss.smooth,
            "convex": self.loss.convex,
            "strongly_convex": self.mu > 0,
            "smooth_regularizer": self.regularizer.smooth,
            "lipschitz": math.isfinite(self.G),
            "unconstrained": isinstance(self.constraint, RealSpace),
            "glm": self.loss.glm,
        }
        return frozenset(name for name, holds in facts.items() if holds) | self.constraint.properties


def _dual(p: float) -> float:
    if not p >= 1.0:
        raise UserError(f"There is no l_p norm with p = {p}: give a number from 1 to infinity.")
    return math.inf if p == 1.0 else 1.0 if math.isinf(p) else p / (p - 1.0)


@dataclass(frozen=True)
class FreshBatch:
    """`size` samples that no earlier batch of the run has.

    Their gradients are means over `rows` of the data matrix, plain ones or, for samples of a population, weighted by
    `shares` (rows, K): how large a part of each replicate's batch an atom makes up.
    """

    size: int
    rows: slice
    shares: Array | None = None

    def weights(self, backend: Backend) -> Array:
        """Return what each row counts in the batch: (rows, K), or (rows, 1) where all replicates count the same."""
        if self.shares is not None:
            return self.shares
        return backend.zeros((self.rows.stop - self.rows.start, 1)) + 1.0 / self.size


class EmpiricalRisk:
    """The problem on a device. All methods take and return arrays of the backend.

    Behind the n records stands a row of zeros with label 0, the sentinel of Poisson batches: whatever its slope, its
    gradient is zero. Sums over the data end before it. With `weights`, which sum to one, means over the rows are
    weighted; without, every row counts 1/n.
    """

    def __init__(
        self, spec: ProblemSpec, X: np.ndarray, y: np.ndarray, backend: Backend, weights: np.ndarray | None = None
    ) -> None:
        self.spec = spec
        self.backend = backend
        self._host = (X, y)
        self._rows = X.shape[0]
        self._weights = None if weights is None else backend.asarray(weights)
        # What a sum over the rows is divided by to become a mean.
        self._divisor = self._rows if weights is None else 1.0
        rows = X * y[:, None] if spec.loss.margin else X
        # Zero columns up to a fixed multiple keep the bits of a matrix product independent of its company.
        wide = np.zeros((self._rows + 1, padded(spec.d)), dtype=backend.dtype_name)
        wide[:-1, : spec.d] = rows
        self._A = backend.asarray(wide)
        self._y = backend.asarray(np.append(y, 0.0))
        mean = np.mean(rows, axis=0, dtype=np.float64) if weights is None else weights @ rows
        self._mean_row = backend.asarray(mean)

    def on_host(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows (n, d) and labels (n,) on the host, in the floating-point type of the problem."""
        X, y = self._host
        return np.asarray(X, dtype=self.backend.dtype_name), np.asarray(y, dtype=self.backend.dtype_name)

    def with_dtype(self, dtype_name: str) -> EmpiricalRisk:
        """Return the same problem in another floating-point type."""
        if dtype_name == self.backend.dtype_name:
            return self
        return self._on(self.backend.with_dtype(dtype_name))

    def sparing(self, replicates: int) -> EmpiricalRisk | None:
        """Return the problem on the same arrays with smaller temporaries, or None if they are the smallest already."""
        backend = self.backend.smaller(self._rows, replicates)
        if backend is None:
            return None
        twin = copy.copy(self)
        twin.backend = backend
        return twin

    def chunk_rows(self, replicates: int) -> int:
        """Return how many rows of the data are taken at one time."""
        return min(self._rows, self.backend.chunk_rows(replicates))

    def with_loss(self, loss: Loss) -> EmpiricalRisk:
        """Return the problem with another loss, such as a smoothed one, on the same arrays."""
        if loss.margin != self.spec.loss.margin:
            raise UserError(f"{loss.name!r} cannot replace {self.spec.loss.name!r}: only one of them is a margin loss.")
        twin = copy.copy(self)
        twin.spec = replace(self.spec, loss=loss)
        return twin

    def gradient(self, W: Array) -> Array:
        """Return the gradient of the smooth part F at each row of W: (K, d) -> (K, d).

        Rows of the data are taken in chunks whose (rows, K) temporary stays in cache.
        """
        xp, loss = self.backend.xp, self.spec.loss
        if (kernels := self.backend.kernels) and kernels.allowed(GRADIENT, self._obstacle_to_gradients()):
            return kernels.logistic_gradient(self._A, W, self._mean_row)
        columns = xp.matrix_transpose(self._widen(loss.inner * W))
        total = self.backend.zeros((W.shape[0], self._A.shape[1]))
        for rows in self.backend.chunks(self._rows, W.shape[0]):
            A = self._A[rows, :]
            slopes = self._weighed(loss.core(xp, A @ columns, self._y[rows, None]), rows)
            total = total + xp.matrix_transpose(slopes) @ A
        return (loss.outer / self._divisor) * total[:, : self.spec.d] + loss.constant * self._mean_row

    def obstacle_to_steps(self) -> str:
        """Say what keeps a kernel from taking steps on one record each; empty if nothing does."""
        if type(self) is not EmpiricalRisk:
            return "records are not stored one by one"
        if self.spec.regularizer.l1 or not isinstance(self.spec.constraint, RealSpace):
            return "an l1 term or a constraint"
        return self._obstacle_to_kernels(noise_bytes(self.spec.d))

    def descend(self, x: Array, mean: Array, draws: Draws, etas: Sequence[float], skipped: int) -> tuple[Array, Array]:
        """Return the iterate and the mean after noisy steps on a record each, by a kernel: see `Kernels.noisy_sgd`."""
        return self._kernels.noisy_sgd(self._A, x, mean, draws, etas, skipped, self.spec.regularizer.l2)

    def descend_around(
        self, x: Array, snapshot: Array, full: Array, draws: Draws, eta: Any, clip: float | None
    ) -> tuple[Array, Array]:
        """Return the iterate and the sum of all after variance-reduced steps, by a kernel: see `Kernels.noisy_svrg`."""
        return self._kernels.noisy_svrg(self._A, x, snapshot, full, draws, eta, clip, self.spec.regularizer.l2)

    @property
    def _kernels(self) -> Kernels:
        if self.backend.kernels is None:
            raise RunFailed(f"The backend {self.backend.name} has no kernels: use array operations.")
        return self.backend.kernels

    def _obstacle_to_gradients(self) -> str:
        if self._weights is not None:
            return "weighted records"
        return self._obstacle_to_kernels(gradient_bytes(self.spec.d, np.dtype(self.backend.dtype_name).itemsize))

    def _obstacle_to_kernels(self, shared_bytes: int) -> str:
        if type(self.spec.loss) is not Logistic:
            return f"the loss {self.spec.loss.name}"
        return f"{self.spec.d} features, too many for a block's memory" if shared_bytes > SHARED_BYTES else ""

    def fresh_batch(self, streams: Streams, number: int, first: int, size: int) -> FreshBatch:
        """Return `size` samples behind the first `first`: the next rows in the stored order, for all replicates."""
        return FreshBatch(size, slice(first, first + size))

    def fresh_indices(self, streams: Streams, first: int, steps: int) -> Array:
        """Return the rows of `steps` single samples behind the first `first`: (steps, K)."""
        rows = np.arange(first, first + steps)[:, None]
        return self.backend.index(np.broadcast_to(rows, (steps, streams.slots)))

    def batch_gradient(self, W: Array, batch: FreshBatch) -> Array:
        """Return the mean of grad f(w_k, z) over the samples of replicate k's batch: (K, d) -> (K, d)."""
        return self._over_fresh(batch, lambda y, at_w: self.spec.loss.derivative(self.backend.xp, at_w, y), W)

    def batch_difference(self, W: Array, V: Array, batch: FreshBatch) -> Array:
        """Return the mean of grad f(w_k, z) - grad f(v_k, z) over the samples of replicate k's batch."""
        xp, loss = self.backend.xp, self.spec.loss

        def turns(y: Array, at_w: Array, at_v: Array) -> Array:
            return loss.turn(xp, at_w, at_v, y)

        return self._over_fresh(batch, turns, W, V)

    def sample_values(self, batch: FreshBatch, points: Array) -> Array:
        """Return f(point; z) for every sample z of each replicate's batch, B of them: (K, B, P).

        Points are (K, B, P, d), or (K, 1, P, d) where all samples of a replicate share them.
        """
        X, y = self._rows_of(batch)
        return self._in_cache(self.spec.loss.value, self._products(X, points), y)

    def sample_subgradients(self, batch: FreshBatch, points: Array) -> Array:
        """Return grad f(point; z), a subgradient on a kink, for samples and points as above: (K, B, P, d)."""
        X, y = self._rows_of(batch)
        slopes = self._in_cache(self.spec.loss.derivative, self._products(X, points), y)
        return slopes[:, :, :, None] * X[:, :, None, :]

    def _rows_of(self, batch: FreshBatch) -> tuple[Array, Array]:
        """Return the rows (K, B, d) and labels (K, B) of a batch, K being 1 where all replicates share them."""
        if batch.shares is not None or not self.spec.loss.glm:
            raise UserError(
                "The losses of single samples are not known here, only means over weighted atoms: choose a dataset "
                "with a loss of <w, x>, or a population whose samples are drawn, such as population_spiked."
            )
        return self._A[batch.rows, :][None, :, : self.spec.d], self._y[batch.rows][None, :]

    def _products(self, X: Array, points: Array) -> Array:
        """Return <x, point> for rows (K, B, d) and points (K, B, P, d) or (K, 1, P, d): (K, B, P)."""
        xp = self.backend.xp
        if points.shape[1] == 1:
            return X @ xp.matrix_transpose(points[:, 0, :, :])
        return xp.vecdot(points, X[:, :, None, :])

    def _in_cache(self, function: Callable[..., Array], at: Array, y: Array) -> Array:
        """Return function(at, y) for products (K, B, P) and labels (K or 1, B), in pieces that stay in cache.

        Elementwise work on a large array is several times slower than on its pieces. The products are overwritten.
        """
        xp, (K, B, P) = self.backend.xp, at.shape
        step = max(1, self.backend.budget // (np.dtype(self.backend.dtype_name).itemsize * B * P))
        for start in range(0, K, step):
            group = slice(start, min(start + step, K))
            labels = y if y.shape[0] == 1 else y[group, :]
            for rows in self.backend.chunks(B, P) if step == 1 else (slice(0, B),):
                at[group, rows, :] = function(xp, at[group, rows, :], labels[:, rows, None])
        return at

    def _over_fresh(self, batch: FreshBatch, slopes: Callable[..., Array], *points: Array) -> Array:
        """Return the mean over the batch of slope * x, the slope a function of the labels and <x, point>."""
        xp, K = self.backend.xp, points[0].shape[0]
        columns = [xp.matrix_transpose(self._widen(point)) for point in points]
        total = self.backend.zeros((K, self._A.shape[1]))
        for chunk in self.backend.chunks(batch.rows.stop - batch.rows.start, K):
            rows = slice(batch.rows.start + chunk.start, batch.rows.start + chunk.stop)
            A = self._A[rows, :]
            weights = slopes(self._y[rows, None], *(A @ column for column in columns))
            weights = weights / batch.size if batch.shares is None else weights * batch.shares[chunk, :]
            total = total + xp.matrix_transpose(weights) @ A
        return total[:, : self.spec.d]

    def stationarity_gap(self, W: Array) -> Array:
        """Return max_{v in C} <grad F^r(w), w - v> of each row of W as an array (K,): 0 at stationary points of C."""
        spec, xp = self.spec, self.backend.xp
        if not ("bounded" in spec.constraint.properties and spec.regularizer.smooth):
            raise UserError("The stationarity gap needs a bounded set and a smooth regularizer: choose such a problem.")
        constraint: Any = spec.constraint
        gradient = self.gradient(W) + spec.regularizer.smooth_gradient(W)
        gap = xp.vecdot(gradient, W - constraint.linear_minimizer(xp, gradient))
        return xp.maximum(gap, xp.zeros_like(gap))  # w is in C, so that less than 0 is rounding

    def gradient_norm(self, W: Array) -> Array:
        """Return ||grad F^r(w)|| of each row of W as an array (K,), for a smooth loss and regulariser."""
        gradient = self.gradient(W) + self.spec.regularizer.smooth_gradient(W)
        return self.backend.xp.sqrt(self.backend.xp.vecdot(gradient, gradient))

    def sample_gradients(self, W: Array, index: Array | PoissonBatch) -> Array:
        """Return grad f(w_k, z_{i_k}) for each replicate k: (K, d) -> (K, d).

        An index of shape (K,) names one record of each replicate; one of shape (K, b) gives the mean over each
        replicate's batch, and a Poisson batch the sum over its records divided by its expected size.
        """

        def slopes(records: Array, y: Array, at_w: Array) -> Array:
            return self.spec.loss.derivative(self.backend.xp, at_w, y)

        return self._combine(index, slopes, W)

    def sample_differences(self, W: Array, V: Array, index: Array | PoissonBatch, clip: float | None = None) -> Array:
        """Return grad f(w_k, z_{i_k}) - grad f(v_k, z_{i_k}): the two gradients share one data row.

        The index is that of `sample_gradients`. The difference of every record is shortened to the norm `clip` where
        it is longer, before anything is averaged.
        """
        xp, loss = self.backend.xp, self.spec.loss

        def slopes(records: Array, y: Array, at_w: Array, at_v: Array) -> Array:
            turn = loss.turn(xp, at_w, at_v, y)
            return turn if clip is None else self._clipped(turn, records, clip)

        return self._combine(index, slopes, W, V)

    def _combine(self, index: Any, slopes: Callable[..., Array], *points: Array) -> Array:
        """Return the mean over each replicate's records x of slope * x, the slope a function of <x, point>."""
        kind = getattr(index, "ndim", None)
        if kind == 1:
            xp = self.backend.xp
            rows, y = self._samples(index)
            return slopes(index, y, *[xp.vecdot(rows, point) for point in points])[:, None] * rows
        if kind == 2:
            groups = [self._over_batches(index[g, :], slopes, *[p[g, :] for p in points]) for g in self._groups(index)]
            return groups[0] if len(groups) == 1 else self.backend.xp.concat(groups)
        return (self._over_small_segments if index.size < SMALL_BATCH else self._over_segments)(index, slopes, *points)

    def _over_batches(self, index: Array, slopes: Callable[..., Array], *points: Array) -> Array:
        xp = self.backend.xp
        K, b = index.shape
        rows, y = self._samples(xp.reshape(index, (K * b,)))
        rows = xp.reshape(rows, (K, b, self.spec.d))
        y = None if y is None else xp.reshape(y, (K, b))
        weights = slopes(index, y, *((rows @ point[:, :, None])[:, :, 0] for point in points))
        return (1.0 / b) * (weights[:, None, :] @ rows)[:, 0, :]

    def _groups(self, index: Array) -> Iterator[slice]:
        """Yield the replicates of an index (K, b) in groups whose data rows fit the budget (at least one)."""
        K, b = index.shape
        step = max(1, self.backend.budget // (np.dtype(self.backend.dtype_name).itemsize * b * self.spec.d))
        for start in range(0, K, step):
            yield slice(start, min(start + step, K))

    def _over_small_segments(self, batch: PoissonBatch, slopes: Callable[..., Array], *points: Array) -> Array:
        xp = self.backend.xp
        rows, y = self._samples(batch.rows)
        # Every segment begins with the sentinel, so counting sentinels numbers the replicates.
        owner = xp.cumulative_sum(xp.astype(batch.rows == self.spec.n, xp.int64)) - 1
        weights = slopes(batch.rows, y, *(xp.vecdot(rows, xp.take(point, owner, axis=0)) for point in points))
        return self.backend.segment_sums(weights[:, None] * rows, batch.starts) / batch.size

    def _over_segments(self, batch: PoissonBatch, slopes: Callable[..., Array], *points: Array) -> Array:
        sums = []
        for k, segment in enumerate(self.backend.segments(batch.starts, batch.rows.shape[0])):
            records = batch.rows[segment]
            rows, y = self._samples(records)
            sums.append(slopes(records, y, *(rows @ point[k, :] for point in points)) @ rows)
        return self.backend.xp.stack(sums) / batch.size

    def _clipped(self, slopes: Array, records: Array, clip: float) -> Array:
        """Return the slopes reduced so that no |slope| ||x|| exceeds `clip`; the others keep their bits."""
        xp = self.backend.xp
        norms = xp.reshape(xp.take(self._row_norms, xp.reshape(records, (-1,))), slopes.shape)
        return slopes * (clip / xp.maximum(xp.abs(slopes) * norms, clip))

    @functools.cached_property
    def _row_norms(self) -> Array:
        """The norms of all data rows (n + 1,)."""
        xp = self.backend.xp
        return xp.sqrt(xp.vecdot(self._A, self._A))

    def objective(self, W: Array) -> Array:
        """Return F^r at each row of W as an array (K,)."""
        xp, loss = self.backend.xp, self.spec.loss
        columns = xp.matrix_transpose(self._widen(W))
        total = self.backend.zeros((W.shape[0],))
        for rows in self.backend.chunks(self._rows, W.shape[0]):
            values = loss.value(xp, self._A[rows, :] @ columns, self._y[rows, None])
            total = total + xp.sum(self._weighed(values, rows), axis=0)
        return total / self._divisor + self.spec.regularizer.value(xp, W)

    def hessian(self, w: Array) -> Array:
        """Return the Hessian of the smooth part at one point w (d,) as (d, d)."""
        xp, loss, d = self.backend.xp, self.spec.loss, self.spec.d
        total = self.backend.zeros((d, d))
        for rows in self.backend.chunks(self._rows, d):
            A = self._A[rows, :][:, :d]
            weights = self._weighed(loss.curvature(xp, A @ w, self._y[rows])[:, None], rows)
            total = total + xp.matrix_transpose(A) @ (weights * A)
        return total / self._divisor

    def hessians(self, W: Array) -> Array:
        """Return the Hessian of the smooth part at each row of W: (K, d) -> (K, d, d).

        Each is a sum over the records of a curvature times the products of features, which all replicates share: one
        matrix product with the d (d + 1)/2 products of each record.
        """
        xp, loss, K, d = self.backend.xp, self.spec.loss, W.shape[0], self.spec.d
        pairs = np.stack(np.triu_indices(d))
        pairs = np.pad(pairs, ((0, 0), (0, padded(pairs.shape[1]) - pairs.shape[1])))
        place = np.zeros((d, d), dtype=np.int64)
        place[np.triu_indices(d)] = np.arange(d * (d + 1) // 2)
        left, right = self.backend.index(pairs[0]), self.backend.index(pairs[1])
        columns = xp.matrix_transpose(self._widen(W))
        total = self.backend.zeros((K, pairs.shape[1]))
        for rows in self.backend.chunks(self._rows, pairs.shape[1]):
            A = self._A[rows, :]
            curvature = self._weighed(loss.curvature(xp, A @ columns, self._y[rows, None]), rows)
            products = xp.take(A, left, axis=1) * xp.take(A, right, axis=1)
            total = total + xp.matrix_transpose(curvature) @ products
        whole = self.backend.index(np.maximum(place, place.T).reshape(-1))
        return xp.reshape(xp.take(total, whole, axis=1), (K, d, d)) / self._divisor

    def prox(self, V: Array, eta: Any) -> Array:
        """Return the prox of eta r plus the indicator of the constraint set.

        Projecting after the prox of r is exact here: completing the square takes care of the l2 term, and an l1 term
        comes only with sets that changing the sign of a coordinate does not change. A projection onto such a set keeps
        zeros and turns no sign, so that what is a subgradient of ||.||_1 at a point is one at its projection too
        (Yu, NeurIPS 2013). Elsewhere, on the simplex for example, the rule is wrong.
        """
        xp = self.backend.xp
        return self.spec.constraint.project(xp, self.spec.regularizer.prox(xp, V, eta))

    def project(self, V: Array) -> Array:
        """Return the projection of each row onto the constraint set."""
        return self.spec.constraint.project(self.backend.xp, V)

    def records(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return weights (M,), rows (M, d), times their labels for a margin loss, and labels (M,), on the host."""
        uniform = self._weights is None
        weights = np.full(self._rows, 1.0 / self._rows) if uniform else self.backend.to_host(self._weights)
        rows, y = self.backend.to_host(self._A), self.backend.to_host(self._y)
        return weights, rows[:-1, : self.spec.d], y[:-1]

    def _on(self, backend: Backend) -> EmpiricalRisk:
        return type(self)(self.spec, *self._host, backend)

    def _samples(self, index: Array) -> tuple[Array, Array]:
        xp = self.backend.xp
        rows = xp.take(self._A, index, axis=0)[:, : self.spec.d]
        return rows, (None if self.spec.loss.margin else xp.take(self._y, index, axis=0))

    def _weighed(self, values: Array, rows: slice) -> Array:
        """Return values (rows, K) times the weights of their rows, if these have any."""
        return values if self._weights is None else values * self._weights[rows, None]

    def _widen(self, W: Array) -> Array:
        extra = self._A.shape[1] - W.shape[1]
        if not extra:
            return W
        return self.backend.xp.concat([W, self.backend.zeros((W.shape[0], extra))], axis=1)
