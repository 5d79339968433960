"""From a plan to results: all replicates of one job as one array program."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Plan
from dprepro.arrays import TILE, single_blas_thread
from dprepro.errors import SHORT_OF_MEMORY, RunFailed, UserError
from dprepro.kernels import LAUNCH_STEPS, STEPS, Draws
from dprepro.losses import Loss
from dprepro.metrics import GOLDSTEIN, GRADIENT_NORM, NEAR_STATIONARITY
from dprepro.privacy.mechanisms import (
    BLOCK_STEPS,
    DisjointGaussianMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    Ledger,
    ObjectivePerturbationMechanism,
    PoissonBatch,
    SelectionMechanism,
    TreeMechanism,
)
from dprepro.problems.erm import EmpiricalRisk, FreshBatch
from dprepro.problems.population import PopulationRisk
from dprepro.problems.repeated import RepeatedRisk
from dprepro.problems.sampled import asked_by_groups
from dprepro.streams import Streams

if TYPE_CHECKING:
    from dprepro.problems.embedding import EmbeddedRisk

Array = Any

# Rounds of which the iterate is kept: evenly spread on a logarithmic axis.
CHECKPOINTS = 24
# What `Execution.candidate` observes.
CANDIDATE_OBJECTIVE = "candidate objective"
STATIONARITY_GAP = "stationarity gap"
# Where an output is chosen among many iterates, so many of them are observed.
CANDIDATES_OBSERVED = 200
_GOLDEN = 0.6180339887498949
# Near stationarity takes a minimisation for each candidate: it is observed of so many, evenly spread.
CANDIDATES_MINIMIZED = 32
# A Goldstein certificate takes hundreds of gradients for each candidate.
CANDIDATES_CERTIFIED = 64


@dataclass(frozen=True)
class RunResult:
    """What a run leaves behind. C checkpoints (the start included), K replicates, d features.

    `seconds` is the time per replicate up to each checkpoint: that of the tiles over the number of replicates in
    them. It is CPU time of the process on the CPU (one thread, so what an idle machine would show on the wall) and
    wall time on a GPU. Evaluation of the objective is not in it.
    """

    replicates: np.ndarray  # (K,)
    w: np.ndarray  # (K, d)
    rounds: np.ndarray  # (C,)
    gradient_evaluations: np.ndarray  # (C,)
    objective: np.ndarray  # (K, C)
    final_objective: np.ndarray  # (K,)
    observed: dict[str, np.ndarray]  # what the algorithm observed on its way: means over the run, each (K,)
    seconds: np.ndarray  # (C,)
    samples_used: int  # of the n samples, how many a replicate looked at
    function_evaluations: np.ndarray  # (C,), values of one sample's loss that a replicate asked for
    cut: int = 1  # how many times smaller than usual temporaries were, for want of memory
    chunk_rows: int | None = None  # the rows of a chunk where they were halved for that
    kernels: dict[str, str] = field(default_factory=dict)  # what kernels did, and why array operations did the rest

    @property
    def circumstances(self) -> dict[str, Any]:
        """What goes into the provenance of a run that was short of memory or had kernels; nothing of others."""
        found: dict[str, Any] = {"temporaries_cut": self.cut} if self.cut > 1 else {}
        found |= {} if self.chunk_rows is None else {"chunk_rows": self.chunk_rows}
        return found | ({"kernels": self.kernels} if self.kernels else {})

    def counts(self) -> dict[str, np.ndarray]:
        """Return the evaluations up to each checkpoint by name; those of values only if some were asked for."""
        counted = {"gradient_evaluations": self.gradient_evaluations}
        if self.function_evaluations[-1]:
            counted["function_evaluations"] = self.function_evaluations
        return counted


class Execution:
    """What `run` of an algorithm works with: the oracle, the mechanisms and the record of the trajectory.

    One execution carries one tile of replicates. Every gradient goes through it and is counted.

    Fresh samples are handed out once: no two batches share one, and together they are at most the n that there are.
    Of a population an algorithm sees nothing but its samples: a full gradient there is that of all n of them, drawn
    for each replicate. `judge` is the problem in double precision, for what is observed of candidates.
    """

    def __init__(
        self,
        plan: Plan,
        problem: EmpiricalRisk,
        seed: int,
        slots: Sequence[int | None],
        judge: EmpiricalRisk | None = None,
        metric: str | None = None,
        radius: float | None = None,
    ) -> None:
        self.xp = problem.backend.xp
        self.gradient_evaluations = self.function_evaluations = 0
        # Round, gradient evaluations, seconds, point, function evaluations.
        self.trajectory: list[tuple[int, int, float, np.ndarray, int]] = []
        self._problem = problem
        # What gradients are taken of: the problem itself, or its rows after an embedding.
        self._oracle: EmpiricalRisk | EmbeddedRisk = problem
        self._embedding: EmbeddedRisk | None = None
        self._row_norm: float | None = None
        self._backend = problem.backend
        self._shape = (len(slots), problem.spec.d)
        self._seed, self._slots = seed, slots
        self._events = plan.events
        self._drawn_by = plan.drawn_by
        self._ledger = self._new_ledger(problem.spec.d)
        self._keep = checkpoint_rounds(plan.rounds)
        self._round = 0
        self._observed: dict[str, tuple[Array, int]] = {}
        self._asked_full = self._asked_sampled = False
        self._judge = problem.with_dtype("float64") if judge is None else judge
        self._metric = metric
        self._radius = radius
        # Candidates that are judged together, when the run is over.
        self._later: list[np.ndarray] | None = [] if metric in (NEAR_STATIONARITY, GOLDSTEIN) else None
        self._batches = Streams(seed, slots, "fresh batches")
        self._singles = Streams(seed, slots, "fresh samples")
        self._taken = self._batch_number = 0
        self._whole: FreshBatch | None = None
        # The fresh samples whose turn it is, and whether they were looked at.
        self._at_hand: FreshBatch | Array | None = None
        self._looked_at = False
        self._clock = time.perf_counter if self._backend.name == "cupy" else time.process_time
        self._started = self._clock()
        self._record(self.start())

    def embed(self, k: int, row_norm: float | None) -> None:
        """Work in R^k from here on: every row x becomes Phi x, shortened to `row_norm` where it is longer.

        Each replicate has its own random matrix Phi (k, d), which sees no data. Points, gradients and noise then have k
        coordinates, and what is recorded and judged of a point w is Phi^T w. Only at the start of a run, without a
        constraint and a regulariser, which an embedding does not keep.
        """
        begun = self.gradient_evaluations or self._taken or self._round or self._ledger.begun
        if self._embedding is not None or begun:
            raise RunFailed("Rows are embedded once, at the start of a run.")
        self._shape, self._row_norm = (len(self._slots), k), row_norm
        self._oracle = self._embedding = self._embedded(self._problem)
        self._ledger = self._new_ledger(k)

    def _embedded(self, problem: EmpiricalRisk) -> EmbeddedRisk:
        """Return the gradients of a problem on its rows after the embedding of this run."""
        from dprepro.problems.embedding import EmbeddedRisk

        return EmbeddedRisk(problem, Streams(self._seed, self._slots, "embedding"), self._shape[1], self._row_norm)

    def lift(self, W: Array) -> Array:
        """Return the points (K, d) of the problem that W stands for: Phi^T w after an embedding, else W itself."""
        return W if self._embedding is None else self._embedding.lift(W)

    def _new_ledger(self, d: int) -> Ledger:
        return Ledger(self._events, d, self._seed, self._slots, self._backend, lambda: self._taken)

    def start(self) -> Array:
        """Return the initial point for every replicate: w = 0, or the barycentre of a polytope off centre."""
        return self._problem.spec.constraint.start(self.xp, self.zeros())

    def zeros(self) -> Array:
        """Return zeros of shape (K, d)."""
        return self._backend.zeros(self._shape)

    @contextlib.contextmanager
    def in_double(self) -> Iterator[None]:
        """Take starts, gradients, Hessians, proximal steps and projections in float64 within, whatever the run has.

        For what a privacy proof needs computed further than single precision goes: exact minimisers, and steps whose
        only noise comes after them. `double` and `rounded` take arrays in and out; noise is drawn as in any run.
        """
        single = self._problem, self._oracle, self._backend
        if self._backend.dtype_name != "float64":
            # The judge is the problem in float64, but for a loss that was replaced and for embedded rows.
            self._problem = self._judge if self.loss == self._judge.spec.loss else self._judge.with_loss(self.loss)
            self._backend = self._problem.backend
            self._oracle = self._problem if self._embedding is None else self._embedded(self._problem)
        try:
            yield
        finally:
            self._problem, self._oracle, self._backend = single

    def double(self, values: Array) -> Array:
        """Return values in float64."""
        return self.xp.astype(values, self.xp.float64, copy=False)

    def rounded(self, values: Array) -> Array:
        """Return values in the floating-point type of the run."""
        return self.xp.astype(values, self._backend.dtype, copy=False)

    def gaussian(self, label: str) -> GaussianMechanism:
        """Return a Gaussian mechanism of the plan."""
        return self._ledger.gaussian(label)

    def sampled(self, label: str, releases: int) -> Iterator[tuple[Any, Array]]:
        """Yield (batch, noise (K, d)) for each of the next releases of an event on random batches.

        The batch is for `sample_gradient` and `gradient_difference`: each replicate has its own.
        """
        mechanism = self.gaussian(label)
        if not isinstance(self._problem, RepeatedRisk):
            return mechanism.sampled(releases)
        self._problem.check_that_batches_can_be_drawn()
        return self._counted(mechanism, releases, self._problem)

    def _counted(
        self, mechanism: GaussianMechanism, releases: int, problem: RepeatedRisk
    ) -> Iterator[tuple[Any, Array]]:
        for counts, z in mechanism.counted(releases, problem.copies):
            batch = problem.batch(*counts)
            at_hand = mechanism.hand_out(batch)
            yield batch, z
            mechanism.take_back(at_hand)

    def disjoint_gaussian(self, label: str) -> DisjointGaussianMechanism:
        """Return a Gaussian mechanism on disjoint batches of the plan."""
        return self._ledger.disjoint_gaussian(label)

    def laplace(self, label: str) -> LaplaceMechanism:
        """Return a Laplace mechanism of the plan."""
        return self._ledger.laplace(label)

    def selection(self, label: str) -> SelectionMechanism:
        """Return a selection mechanism of the plan."""
        return self._ledger.selection(label)

    def tree(self, label: str) -> TreeMechanism:
        """Return a tree mechanism of the plan."""
        return self._ledger.tree(label)

    def objective_perturbation(self, label: str) -> ObjectivePerturbationMechanism:
        """Return an objective perturbation of the plan."""
        return self._ledger.objective_perturbation(label)

    def condition(self, label: str) -> None:
        """State that the run relies on a planned condition."""
        self._ledger.condition(label)

    def unprotected(self, label: str) -> None:
        """State that a data-dependent quantity is used without noise."""
        self._ledger.unprotected(label)

    def by_library(
        self, label: str, fit: Callable[[np.ndarray, np.ndarray, int], Iterator[np.ndarray]], evaluations: int
    ) -> Array:
        """Let a library that the plan names run by itself and return its last points (K, d).

        `fit` gets all rows (n, d), labels (n,) and a seed, and yields the point (d,) after each release of the event of
        that label: so many releases are declared, not drawn, with the gradient evaluations of each. The replicates
        go forward step by step, one after the other in each, and every step is a round.
        """
        if not self._drawn_by:
            raise RunFailed(f"The plan names no library that draws the noise of {label!r}: it has to be drawn here.")
        if isinstance(self._problem, PopulationRisk | RepeatedRisk) or self._embedding is not None:
            raise UserError(f"{self._drawn_by} takes the rows of a dataset: populations and embedded rows have none.")
        X, y = self._problem.on_host()
        seeds = Streams(self._seed, self._slots, f"library:{label}").seeds()
        points = np.zeros(self._shape, dtype=X.dtype)
        for step in zip(*(fit(X, y, seed) for seed in seeds.values()), strict=True):
            points[list(seeds)] = step
            covered = self._ledger.declare(label, 1)
            self._asked_full |= "full gradients" in covered
            self._asked_sampled |= "sampled gradients" in covered
            self.gradient_evaluations += evaluations
            self.checkpoint(self._backend.asarray(points))
        return self._backend.asarray(points)

    def uniform_index(self, count: int) -> Array:
        """Return an index uniform on {0, ..., count-1} per replicate as (K, 1)."""
        drawn = Streams(self._seed, self._slots, "output").integers(0, 1, count)
        return self._backend.index(drawn.T)

    def full_gradient(self, W: Array) -> Array:
        """Return grad F at each row of W: n gradient evaluations."""
        self.gradient_evaluations += self._problem.spec.n
        if isinstance(self._problem, PopulationRisk):
            whole = self._whole_sample()
            self._asked_full = True
            return self._oracle.batch_gradient(W, whole)
        self._look_at_all()
        return self._oracle.gradient(W)

    def full_difference(self, W: Array, V: Array) -> Array:
        """Return the mean over all records of grad f(w, z) - grad f(v, z): 2n gradient evaluations."""
        return self.full_gradient(W) - self.full_gradient(V)

    @property
    def samples_used(self) -> int:
        """How many of the n samples were looked at; all where any record could have been."""
        return self._problem.spec.n if self._asked_full or self._asked_sampled else self._taken

    def fresh(self, size: int) -> FreshBatch:
        """Return a batch of `size` samples that were not handed out before, for each replicate its own.

        On a dataset it is the next rows in the stored order, on a population an i.i.d. sample that depends on the
        seed, the replicate and the number of the batch.
        """
        first = self._take(size)
        self._batch_number += 1
        self._at_hand = self._problem.fresh_batch(self._batches, self._batch_number, first, size)
        return self._at_hand

    def fresh_samples(self, count: int) -> Iterator[Array]:
        """Yield `count` fresh samples, one for each replicate at a time: indices (K,) for `sample_gradient`."""
        return self._one_by_one(self._take(count), count)

    def batch_gradient(self, W: Array, batch: FreshBatch) -> Array:
        """Return the mean gradient over each replicate's batch: as many gradient evaluations as it has samples."""
        self.gradient_evaluations += batch.size
        self._look_at_fresh(batch)
        return self._oracle.batch_gradient(W, batch)

    def batch_difference(self, W: Array, V: Array, batch: FreshBatch) -> Array:
        """Return the mean of grad f(w, z) - grad f(v, z) over each replicate's batch: two evaluations a sample."""
        self.gradient_evaluations += 2 * batch.size
        self._look_at_fresh(batch)
        return self._oracle.batch_difference(W, V, batch)

    def whole(self) -> FreshBatch:
        """Return all n samples of each replicate as one batch, which may be looked at for as long as nothing is fresh.

        It looks at every record. Samples of a population are drawn at the first call and kept; where they would not
        fit, the population refuses.
        """
        self._whole_sample()
        self._asked_full = True
        return self._whole  # type: ignore[return-value]  # it was just made

    def batch_values(self, points: Array, batch: FreshBatch) -> Array:
        """Return f(point; z) for each sample z of each replicate's batch, B of them: (K, B, P).

        Points are (K, G, P, d) for G groups of B/G samples each, rounded up, in their order, the last one with the
        rest: G = 1 where all samples of a replicate share them, G = B where each has its own. Each of the B P values
        per replicate is a function evaluation.
        """
        self.function_evaluations += batch.size * points.shape[2]
        self._look_at_fresh(batch)
        return asked_by_groups(self.xp, self._sampled().sample_values, batch, points)

    def batch_subgradients(self, points: Array, batch: FreshBatch) -> Array:
        """Return grad f(point; z), a subgradient on a kink, for the samples and points of `batch_values`: (K, B, P, d).

        Each of the B P subgradients per replicate is a gradient evaluation.
        """
        self.gradient_evaluations += batch.size * points.shape[2]
        self._look_at_fresh(batch)
        return asked_by_groups(self.xp, self._sampled().sample_subgradients, batch, points)

    def streams(self, purpose: str) -> Streams:
        """Return random streams of the replicates that see no data, for directions that an estimator looks in."""
        return Streams(self._seed, self._slots, f"directions: {purpose}")

    def replace_loss(self, loss: Loss) -> None:
        """Take gradients of another loss from here on, such as an envelope; results are judged by the problem's own."""
        self._problem = self._problem.with_loss(loss)
        self._oracle = self._oracle.with_loss(loss)

    def candidate(self, W: Array, number: int = 0, count: int = 1) -> None:
        """Mark a possible output of a uniformly random choice; for judging a run, never for steering it.

        The means over all candidates of the objective and, where it is defined, of the stationarity gap are observed:
        they are the expectations over the choice. Their evaluation is neither counted nor timed. Where the metric of
        the run is the gradient norm or Goldstein stationarity, that alone is observed, the latter of at most
        CANDIDATES_CERTIFIED candidates; near stationarity is observed if it is the metric, of at most
        CANDIDATES_MINIMIZED. Of `count` candidates with the numbers 0, 1, ... at most CANDIDATES_OBSERVED are looked
        at, each with the weight of those that it stands for.
        """
        weight = observed_candidates(count).get(number)
        if weight is None:
            return
        paused = self._clock()
        W, judge = self.lift(W), self._judge
        if judge.backend.dtype_name != self._backend.dtype_name:
            W = judge.backend.asarray(self._backend.to_host(W))
        self._judged(judge, W, weight)
        self._started += self._clock() - paused

    def _judged(self, judge: EmpiricalRisk, W: Array, weight: int) -> None:
        """Observe what the metric of the run asks of a candidate."""
        if self._metric == GRADIENT_NORM:
            self._add(GRADIENT_NORM, judge.gradient_norm(W), weight)
            return
        if self._metric == GOLDSTEIN and self._later is not None:
            self._later.append(judge.backend.to_host(W))
            return
        self._add(CANDIDATE_OBJECTIVE, judge.objective(W), weight)
        if {"bounded", "smooth", "smooth_regularizer"} <= judge.spec.properties:
            self._add(STATIONARITY_GAP, judge.stationarity_gap(W), weight)
        if self._later is not None:
            self._later.append(judge.backend.to_host(W))

    def sample_gradient(self, W: Array, index: Array | PoissonBatch | FreshBatch) -> Array:
        """Return each replicate's gradient at its own sample, averaged over its batch if it has one.

        One gradient evaluation for each record of a batch; a Poisson batch counts with its expected size.
        """
        self.gradient_evaluations += _batch_size(index)
        self._look_at(index)
        return self._oracle.sample_gradients(W, index)

    def gradient_difference(
        self, W: Array, V: Array, index: Array | PoissonBatch | FreshBatch, clip: float | None = None
    ) -> Array:
        """Return grad f(w, z_i) - grad f(v, z_i) for each replicate, averaged over its batch if it has one.

        A record's difference is shortened to the norm `clip` where it is longer. Two gradient evaluations for each
        record of a batch; a Poisson batch counts with its expected size.
        """
        self.gradient_evaluations += 2 * _batch_size(index)
        self._look_at(index)
        return self._oracle.sample_differences(W, V, index, clip)

    def steps_in_kernel(self, label: str, obstacle: str = "") -> bool:
        """Whether a kernel takes the steps on one record each that an event is for; else they are array operations.

        It does if the backend has kernels, the algorithm sees no obstacle, the problem is the logistic loss of stored
        records with at most an l2 term, on the whole space and not embedded, and every step looks at one random record.
        """
        if (kernels := self._backend.kernels) is None:
            return False
        if not obstacle and self._embedding is not None:
            obstacle = "embedded rows"
        obstacle = obstacle or self.gaussian(label).obstacle_to_steps or self._problem.obstacle_to_steps()
        return kernels.allowed(STEPS, obstacle)

    def descend(
        self, mechanism: GaussianMechanism, x: Array, mean: Array, etas: Sequence[float], skipped: int
    ) -> tuple[Array, Array]:
        """Return the iterate and the mean of the iterates after noisy proximal steps of the sizes `etas`, by a kernel.

        The mean is that of the iterates behind the first `skipped` releases; before, it is the iterate itself. One
        gradient evaluation for each step.
        """
        return self._problem.descend(x, mean, self._hand_over(mechanism, len(etas), 1), etas, skipped)

    def descend_around(
        self,
        mechanism: GaussianMechanism,
        steps: int,
        x: Array,
        snapshot: Array,
        full: Array,
        eta: Any,
        clip: float | None,
    ) -> tuple[Array, Array]:
        """Return the iterate and the sum of all iterates after noisy variance-reduced proximal steps, by a kernel.

        A step adds grad f(x, z_i) - grad f(snapshot, z_i), shortened to `clip`, to `full`: two gradient evaluations.
        """
        draws = self._hand_over(mechanism, steps, 2)
        return self._problem.descend_around(x, snapshot, full, draws, eta, clip)

    def _hand_over(self, mechanism: GaussianMechanism, steps: int, evaluations: int) -> Draws:
        draws = mechanism.handed_over(steps)
        self.gradient_evaluations += evaluations * steps
        self._look_at(draws)
        return draws

    def hessians(self, W: Array) -> Array:
        """Return the Hessian of F at each row of W (K, d, d); second-order oracles have no count."""
        if isinstance(self._problem, PopulationRisk):
            raise UserError("Second derivatives over the samples of a population are not available: choose a dataset.")
        if self._embedding is not None:
            raise UserError("Second derivatives on embedded rows are not available: wrap another algorithm.")
        self._look_at_all()
        return self._problem.hessians(W)

    def regularizer_gradient(self, W: Array) -> Array:
        """Return the gradient of the regulariser's smooth part."""
        return self._problem.spec.regularizer.smooth_gradient(W)

    def regularizer_subgradient(self, W: Array) -> Array:
        """Return a subgradient of the regulariser."""
        return self._problem.spec.regularizer.subgradient(self.xp, W)

    def prox(self, V: Array, eta: Any) -> Array:
        """Return the prox of eta r and the constraint set."""
        return self._problem.prox(V, eta)

    def project(self, V: Array) -> Array:
        """Return the projection onto the constraint set."""
        return self._problem.project(V)

    def largest(self, values: Array) -> float:
        """Return the largest of some values on the host: to judge whether a computation has come to its end."""
        return float(np.max(self._backend.to_host(values)))

    def require_double(self, who: str, why: str) -> None:
        """Refuse single precision for algorithms whose privacy rounding would break."""
        if self.zeros().dtype != self.xp.float64:
            raise UserError(f"{who} in double precision only: {why}; use dtype float64.")

    @property
    def loss(self) -> Loss:
        """The loss whose gradients are taken; it sees no data."""
        return self._problem.spec.loss

    @property
    def constraint(self) -> Any:
        """The constraint set, for steps other than a projection; it sees no data."""
        return self._problem.spec.constraint

    def checkpoint(self, W: Array, rounds: int = 1) -> None:
        """Mark the end of one or more rounds; the iterate is kept if the last is one of the recorded ones."""
        self._round += rounds
        if self._round in self._keep:
            self._record(W)

    def stretches(self, rounds: int) -> Iterator[int]:
        """Yield the lengths of the stretches that the next `rounds` are cut into, at the latest at a recorded one.

        The caller marks the end of each by a checkpoint of as many rounds.
        """
        last = self._round + rounds
        while self._round < last:
            recorded = min((kept for kept in self._keep if kept > self._round), default=last)
            yield min(recorded, last, self._round + LAUNCH_STEPS) - self._round

    def observe(self, name: str, values: Array) -> None:
        """Add one value per replicate (K,) to a running mean; for judging a run, never for steering it.

        What an algorithm observes after an embedding is said of the embedded problem.
        """
        self._add(name if self._embedding is None else f"{name}, embedded", values)

    def _add(self, name: str, values: Array, weight: int = 1) -> None:
        total, count = self._observed.get(name, (0.0, 0))
        self._observed[name] = (total + weight * values, count + weight)

    def observed(self) -> dict[str, np.ndarray]:
        """Return the mean of what was observed under each name, on the host in double precision."""
        means = {name: total / count for name, (total, count) in self._observed.items()}
        found = {name: self._backend.to_host(mean).astype(np.float64) for name, mean in means.items()}
        return found | ({str(self._metric): self._judged_later()} if self._later else {})

    def _judged_later(self) -> np.ndarray:
        """Return the mean of what takes long to find over evenly spread candidates (K,)."""
        candidates = self._later or []
        most = CANDIDATES_CERTIFIED if self._metric == GOLDSTEIN else CANDIDATES_MINIMIZED
        count = min(len(candidates), most)
        chosen = [candidates[(2 * i + 1) * len(candidates) // (2 * count)] for i in range(count)]
        values = judged_points(self._judge, np.concatenate(chosen), str(self._metric), self._radius)
        return np.mean(values.reshape(count, -1), axis=0)

    def check(self, plan: Plan) -> None:
        """Raise unless the run did what its plan says: the events, the gradients, the values and the rounds."""
        self._check_looked_at()
        fresh = self._taken > 0 and self._whole is None
        self._ledger.check(self._asked_full, self._asked_sampled, fresh)
        if self.gradient_evaluations != plan.gradient_evaluations or self._round != plan.rounds:
            raise RunFailed(
                f"{plan.algorithm} made {self.gradient_evaluations} gradient evaluations in {self._round} rounds, "
                f"but its plan says {plan.gradient_evaluations} in {plan.rounds}."
            )
        if self.function_evaluations != plan.function_evaluations:
            raise RunFailed(
                f"{plan.algorithm} made {self.function_evaluations} function evaluations, but its plan says "
                f"{plan.function_evaluations}."
            )

    def checked_output(self, plan: Plan, output: Array) -> Array:
        """Return what a run returned, or raise if it is not a point of the problem for each replicate."""
        shape = (len(self._slots), self._problem.spec.d)
        if getattr(output, "shape", None) != shape:
            given = f"an array of shape {output.shape}" if hasattr(output, "shape") else repr(output)
            raise RunFailed(f"{plan.algorithm} returned {given}: it must return its output, an array of shape {shape}.")
        return output

    def _take(self, count: int) -> int:
        """Check that `count` more samples are there and return the number of those handed out before."""
        first, n = self.samples_used, self._problem.spec.n
        if count < 1:
            raise RunFailed(f"{count} fresh samples were asked for: give a number >= 1.")
        if first + count > n:
            raise RunFailed(f"{count} fresh samples were asked for, but {first} of {n} are used already.")
        self._check_looked_at()
        self._taken, self._looked_at = first + count, False
        return first

    def _check_looked_at(self) -> None:
        """Raise if noise was drawn for samples that count once and no one looked at them: it is that of others then."""
        if self._ledger.counts_once_in(self._taken) and not self._looked_at:
            raise RunFailed(
                "Fresh samples were released on and not looked at before their turn was over: look at each."
            )

    def _whole_sample(self) -> FreshBatch:
        """Return all n samples; none may have been handed out before."""
        if self._whole is None and isinstance(self._problem, PopulationRisk):
            self._whole = self.fresh(self._problem.spec.n)
        elif self._whole is None:
            self._look_at_all()
            self._whole = self._at_hand = self._problem.fresh_batch(self._batches, 0, 0, self._problem.spec.n)
        return self._whole

    def _sampled(self) -> EmpiricalRisk:
        """Return the problem whose losses are looked at sample by sample, which an embedding has no means for."""
        if self._embedding is not None:
            raise UserError("Losses on embedded rows are not available sample by sample: wrap another algorithm.")
        return self._problem

    def _one_by_one(self, first: int, count: int) -> Iterator[Array]:
        steps = self._backend.steps(BLOCK_STEPS)
        for start in range(first, first + count, steps):
            block = self._problem.fresh_indices(self._singles, start, min(steps, first + count - start))
            for step in range(block.shape[0]):
                self._at_hand = block[step, :]
                yield self._at_hand

    def _look_at(self, index: Array | PoissonBatch | FreshBatch | Draws) -> None:
        """Note that records were looked at by number, unless they are the fresh samples at hand."""
        if index is self._at_hand:
            self._looked_at = True
            return
        if isinstance(self._problem, PopulationRisk):
            raise UserError(
                "A population has atoms, not records to draw from by number: choose an algorithm that takes full "
                "gradients or fresh samples, or a dataset."
            )
        self._check_nothing_is_fresh()
        at_hand = next((found for found in self._ledger.at_hand.values() if found.batch is index), None)
        if at_hand is None:
            raise RunFailed(
                "Records were looked at that no mechanism drew, or drew for an earlier release: privacy counts on "
                "random ones; take them from `sampled`, each for its own release."
            )
        at_hand.looked_at = self._asked_sampled = True

    def _look_at_fresh(self, batch: FreshBatch) -> None:
        """Raise if the batch is not the one at hand: privacy counts on each being looked at in its turn only."""
        if batch is not self._at_hand:
            raise RunFailed("A batch was looked at after other samples had been handed out: its turn is over.")
        self._looked_at = True

    def _look_at_all(self) -> None:
        """Note that every record was looked at."""
        self._check_nothing_is_fresh()
        self._asked_full = True

    def _check_nothing_is_fresh(self) -> None:
        """Raise if samples were handed out as fresh: privacy counts on no one looking at them again."""
        if self._taken:
            raise RunFailed(f"{self._taken} samples were handed out as fresh: they may not be looked at again.")

    def _record(self, W: Array) -> None:
        elapsed = self._clock() - self._started
        host = self._backend.to_host(self.lift(W))
        self.trajectory.append((self._round, self.gradient_evaluations, elapsed, host, self.function_evaluations))


def judged_points(judge: EmpiricalRisk, W: np.ndarray, metric: str, radius: float | None) -> np.ndarray:
    """Return near stationarity or, within a radius, Goldstein stationarity of points W (K, d) as an array (K,)."""
    if metric == NEAR_STATIONARITY:
        from dprepro.problems.near_stationarity import near_stationarity

        return near_stationarity(judge, W)
    if radius is None:
        raise UserError("Goldstein stationarity has no meaning without a radius: give one to the problem.")
    regularizer = judge.spec.regularizer
    if regularizer.l1 or regularizer.l2 or judge.spec.constraint.radius < math.inf:
        raise UserError("Goldstein stationarity is that of the loss alone: drop the regularizer and the constraint.")
    from dprepro.problems.goldstein import certificate

    return certificate(judge, W, radius).bound


def _batch_size(index: Array | PoissonBatch | FreshBatch) -> int:
    """Return how many records a replicate looks at; the expected number for a Poisson batch."""
    if isinstance(index, PoissonBatch | FreshBatch):
        return index.size
    return 1 if index.ndim == 1 else int(index.shape[1])


@functools.lru_cache(maxsize=8)
def observed_candidates(count: int) -> dict[int, int]:
    """Return which of `count` candidates are observed, and how many each stands for.

    The candidates are cut into parts, and one of each stands for it. Half of the parts have equal lengths, half grow
    with the number: what is observed changes fastest at the beginning, where one must not stand for hundreds. The place
    in a part goes by the golden ratio, so that it follows no period that an algorithm may have.
    """
    if count <= CANDIDATES_OBSERVED:
        return dict.fromkeys(range(count), 1)
    half = CANDIDATES_OBSERVED // 2
    ends = np.concatenate([np.linspace(0, count, half + 1), np.geomspace(1, count, half)])
    ends = np.unique(np.rint(ends).astype(np.int64))
    parts = enumerate(itertools.pairwise(ends.tolist()), start=1)
    return {low + int(number * _GOLDEN % 1.0 * (high - low)): high - low for number, (low, high) in parts}


def checkpoint_rounds(rounds: int) -> frozenset[int]:
    """Return the rounds to keep: all if few, else at most CHECKPOINTS on a logarithmic scale, ends included."""
    if rounds <= CHECKPOINTS:
        return frozenset(range(1, rounds + 1))
    spread = np.geomspace(1, rounds, CHECKPOINTS)
    return frozenset(int(r) for r in np.unique(np.rint(spread)))


def execute(
    plan: Plan,
    problem: EmpiricalRisk,
    *,
    seed: int,
    replicates: Sequence[int],
    tile: int = TILE,
    metric: str | None = None,
    radius: float | None = None,
) -> RunResult:
    """Run the plan for the given replicates and evaluate F^r at the checkpoints in double precision.

    `metric` is what the run is judged by, where it takes long to observe (`Execution.candidate`), and `radius` that of
    the Goldstein subdifferential, if that is it.
    Replicate r always sits in slot r mod `tile` of a full tile, so that its result does not depend on its company. A
    narrower tile costs less where few replicates are wanted; the last bits of a result depend on its width.
    """
    wanted = sorted(set(replicates))
    if not wanted:
        raise RunFailed("No replicate was asked for.")
    if (plan.n, plan.d) != (problem.spec.n, problem.spec.d):
        raise RunFailed(
            f"The plan of {plan.algorithm} is for {plan.n} records of {plan.d} coordinates, but the problem has "
            f"{problem.spec.n} of {problem.spec.d}: make the plan for this problem."
        )
    if (kernels := problem.backend.kernels) is not None:
        kernels.paths.clear()
    pieces, seconds = [], []
    # A run may diverge: that is seen in its result and reported there, not by warnings from inside.
    with single_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        judge = problem.with_dtype("float64")
        for first, group in itertools.groupby(wanted, lambda r: r // tile * tile):
            mine = set(group)
            slots = [r if r in mine else None for r in range(first, first + tile)]
            output, ex, problem, judge = _run_tile(plan, problem, judge, seed, slots, metric, radius)
            ex.check(plan)
            used = [slot for slot, replicate in enumerate(slots) if replicate is not None]
            observed = {name: values[used] for name, values in ex.observed().items()}
            pieces.append((*_evaluate(judge, ex, problem.backend.to_host(output), used), observed))
            seconds.append([point[2] for point in ex.trajectory])
    # Counts are the same in every tile.
    trajectory, samples_used = ex.trajectory, ex.samples_used
    return RunResult(
        replicates=np.array(wanted),
        w=np.concatenate([piece[0] for piece in pieces]),
        rounds=np.array([point[0] for point in trajectory]),
        gradient_evaluations=np.array([point[1] for point in trajectory]),
        objective=np.concatenate([piece[1] for piece in pieces]),
        final_objective=np.concatenate([piece[2] for piece in pieces]),
        observed={name: np.concatenate([piece[3][name] for piece in pieces]) for name in pieces[0][3]},
        seconds=np.sum(seconds, axis=0) / len(wanted),
        samples_used=samples_used,
        function_evaluations=np.array([point[4] for point in trajectory]),
        cut=problem.backend.cut,
        chunk_rows=problem.chunk_rows(tile) if problem.backend.halves and problem.backend.cut > 1 else None,
        kernels={} if kernels is None else dict(kernels.paths),
    )


def _run_tile(
    plan: Plan,
    problem: EmpiricalRisk,
    judge: EmpiricalRisk,
    seed: int,
    slots: Sequence[int | None],
    metric: str | None,
    radius: float | None,
) -> tuple[Array, Execution, EmpiricalRisk, EmpiricalRisk]:
    """Run one tile and return its output, its execution, and the problem and its judge as they could be run.

    Out of memory, it begins anew with smaller temporaries: noise is found by position, so nothing is lost. What is
    still too much then is too much for this memory.
    """
    while True:
        try:
            return *_attempt(plan, problem, seed, slots, judge, metric, radius), problem, judge
        except MemoryError as error:
            asked = str(error) or "no more could be had"
        # Outside of the handler, which keeps the arrays of the failed attempt.
        smaller = problem.sparing(len(slots))
        if smaller is None:
            chunks = f" and chunks of {problem.chunk_rows(len(slots))} rows" if problem.backend.halves else ""
            raise RunFailed(
                f"{plan.algorithm} ran out of memory with temporaries {problem.backend.cut} times smaller than "
                f"usual{chunks} ({asked}): {SHORT_OF_MEMORY}."
            )
        problem, judge = smaller, judge.sparing(len(slots)) or judge


def _attempt(plan: Plan, problem: EmpiricalRisk, *rest: Any) -> tuple[Array, Execution]:
    ex = Execution(plan, problem, *rest)
    return ex.checked_output(plan, get_algorithm(plan.algorithm).anew().run(plan, ex)), ex


def _evaluate(
    judge: EmpiricalRisk, ex: Execution, output: np.ndarray, used: list[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the outputs (K, d), F^r along the trajectory (K, C) and F^r of the outputs (K,)."""

    def objective(W: np.ndarray) -> np.ndarray:
        return judge.backend.to_host(judge.objective(judge.backend.asarray(W)))[used]

    along = np.stack([objective(point[3]) for point in ex.trajectory], axis=1)
    # The output usually is the last iterate; a uniformly drawn one is evaluated by itself.
    last = ex.trajectory[-1][3]
    final = along[:, -1] if np.array_equal(output, last, equal_nan=True) else objective(output)
    return output[used].astype(np.float64), along, final
