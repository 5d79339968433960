"""From a plan to results: all replicates of one job as one array program."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Plan
from dprepro.arrays import TILE, single_blas_thread
from dprepro.errors import RunFailed
from dprepro.privacy.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    Ledger,
    ObjectivePerturbationMechanism,
    PoissonBatch,
    SelectionMechanism,
    TreeMechanism,
)
from dprepro.problems.erm import EmpiricalRisk
from dprepro.streams import Streams

Array = Any

# Rounds of which the iterate is kept: evenly spread on a logarithmic axis.
CHECKPOINTS = 24


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


class Execution:
    """What `run` of an algorithm works with: the oracle, the mechanisms and the record of the trajectory.

    One execution carries one tile of replicates. Every gradient goes through it and is counted.
    """

    def __init__(self, plan: Plan, problem: EmpiricalRisk, seed: int, slots: Sequence[int | None]) -> None:
        self.xp = problem.backend.xp
        self.gradient_evaluations = 0
        self.trajectory: list[tuple[int, int, float, np.ndarray]] = []
        self._problem = problem
        self._backend = problem.backend
        self._shape = (len(slots), problem.spec.d)
        self._seed, self._slots = seed, slots
        self._ledger = Ledger(plan.events, problem.spec.d, seed, slots, problem.backend)
        self._keep = checkpoint_rounds(plan.rounds)
        self._round = 0
        self._observed: dict[str, tuple[Array, int]] = {}
        self._asked_full = self._asked_sampled = False
        self._clock = time.perf_counter if self._backend.name == "cupy" else time.process_time
        self._started = self._clock()
        self._record(self.zeros())

    def start(self) -> Array:
        """Return the initial point, w = 0 for every replicate."""
        return self.zeros()

    def zeros(self) -> Array:
        """Return zeros of shape (K, d)."""
        return self._backend.zeros(self._shape)

    def gaussian(self, label: str) -> GaussianMechanism:
        """Return a Gaussian mechanism of the plan."""
        return self._ledger.gaussian(label)

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

    def uniform_index(self, count: int) -> Array:
        """Return an index uniform on {0, ..., count-1} per replicate as (K, 1)."""
        drawn = Streams(self._seed, self._slots, "output").integers(0, 1, count)
        return self._backend.index(drawn.T)

    def full_gradient(self, W: Array) -> Array:
        """Return grad F at each row of W: n gradient evaluations."""
        self.gradient_evaluations += self._problem.spec.n
        self._asked_full = True
        return self._problem.gradient(W)

    def sample_gradient(self, W: Array, index: Array | PoissonBatch) -> Array:
        """Return each replicate's gradient at its own sample, averaged over its batch if it has one.

        One gradient evaluation for each record of a batch; a Poisson batch counts with its expected size.
        """
        self.gradient_evaluations += _batch_size(index)
        self._asked_sampled = True
        return self._problem.sample_gradients(W, index)

    def gradient_difference(self, W: Array, V: Array, index: Array | PoissonBatch, clip: float | None = None) -> Array:
        """Return grad f(w, z_i) - grad f(v, z_i) for each replicate, averaged over its batch if it has one.

        A record's difference is shortened to the norm `clip` where it is longer. Two gradient evaluations for each
        record of a batch; a Poisson batch counts with its expected size.
        """
        self.gradient_evaluations += 2 * _batch_size(index)
        self._asked_sampled = True
        return self._problem.sample_differences(W, V, index, clip)

    def hessians(self, W: Array) -> Array:
        """Return the Hessian of F at each row of W (K, d, d); second-order oracles have no count."""
        self._asked_full = True
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

    @property
    def constraint(self) -> Any:
        """The constraint set, for steps other than a projection; it sees no data."""
        return self._problem.spec.constraint

    def checkpoint(self, W: Array) -> None:
        """Mark the end of a round; the iterate is kept if the round is one of the recorded ones."""
        self._round += 1
        if self._round in self._keep:
            self._record(W)

    def observe(self, name: str, values: Array) -> None:
        """Add one value per replicate (K,) to a running mean; for judging a run, never for steering it."""
        total, count = self._observed.get(name, (0.0, 0))
        self._observed[name] = (total + values, count + 1)

    def observed(self) -> dict[str, np.ndarray]:
        """Return the mean of what was observed under each name, on the host in double precision."""
        means = {name: total / count for name, (total, count) in self._observed.items()}
        return {name: self._backend.to_host(mean).astype(np.float64) for name, mean in means.items()}

    def check(self, plan: Plan) -> None:
        """Raise unless the run did what its plan says: the events, the gradients and the rounds."""
        self._ledger.check(self._asked_full, self._asked_sampled)
        if self.gradient_evaluations != plan.gradient_evaluations or self._round != plan.rounds:
            raise RunFailed(
                f"{plan.algorithm} made {self.gradient_evaluations} gradient evaluations in {self._round} rounds, "
                f"but its plan says {plan.gradient_evaluations} in {plan.rounds}."
            )

    def _record(self, W: Array) -> None:
        host = self._backend.to_host(W)
        elapsed = self._clock() - self._started
        self.trajectory.append((self._round, self.gradient_evaluations, elapsed, host))


def _batch_size(index: Array | PoissonBatch) -> int:
    """Return how many records a replicate looks at; the expected number for a Poisson batch."""
    if isinstance(index, PoissonBatch):
        return index.size
    return 1 if index.ndim == 1 else int(index.shape[1])


def checkpoint_rounds(rounds: int) -> frozenset[int]:
    """Return the rounds to keep: all if few, else at most CHECKPOINTS on a logarithmic scale, ends included."""
    if rounds <= CHECKPOINTS:
        return frozenset(range(1, rounds + 1))
    spread = np.geomspace(1, rounds, CHECKPOINTS)
    return frozenset(int(r) for r in np.unique(np.rint(spread)))


def execute(plan: Plan, problem: EmpiricalRisk, *, seed: int, replicates: Sequence[int], tile: int = TILE) -> RunResult:
    """Run the plan for the given replicates and evaluate F^r at the checkpoints in double precision.

    Replicate r always sits in slot r mod `tile` of a full tile, so that its result does not depend on its company. A
    narrower tile costs less where few replicates are wanted; the last bits of a result depend on its width.
    """
    wanted = sorted(set(replicates))
    if not wanted:
        raise RunFailed("No replicate was asked for.")
    algorithm = get_algorithm(plan.algorithm)
    pieces = []
    # A run may diverge: that is seen in its result and reported there, not by warnings from inside.
    with single_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        judge = problem.with_dtype("float64")
        for first in sorted({r // tile * tile for r in wanted}):
            slots = [r if r in set(wanted) else None for r in range(first, first + tile)]
            ex = Execution(plan, problem, seed, slots)
            output = algorithm.run(plan, ex)
            ex.check(plan)
            used = [slot for slot, replicate in enumerate(slots) if replicate is not None]
            observed = {name: values[used] for name, values in ex.observed().items()}
            pieces.append((ex.trajectory, _evaluate(judge, ex, problem.backend.to_host(output), used), observed))
    trajectory = pieces[0][0]
    return RunResult(
        replicates=np.array(wanted),
        w=np.concatenate([piece[1][0] for piece in pieces]),
        rounds=np.array([point[0] for point in trajectory]),
        gradient_evaluations=np.array([point[1] for point in trajectory]),
        objective=np.concatenate([piece[1][1] for piece in pieces]),
        final_objective=np.concatenate([piece[1][2] for piece in pieces]),
        observed={name: np.concatenate([piece[2][name] for piece in pieces]) for name in pieces[0][2]},
        seconds=np.sum([[point[2] for point in piece[0]] for piece in pieces], axis=0) / len(wanted),
    )


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
