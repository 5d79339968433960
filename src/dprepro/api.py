"""The front door: solve one problem on your own data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Plan, Setting
from dprepro.arrays import get_backend
from dprepro.errors import UserError, positive
from dprepro.geometry import ConstraintSet, get_set
from dprepro.losses import Loss, get_loss
from dprepro.privacy.certificate import certify
from dprepro.problems import make_risk
from dprepro.problems.erm import ProblemSpec
from dprepro.regularizers import Regularizer, get_regularizer
from dprepro.run import RunResult, execute

if TYPE_CHECKING:
    import pandas as pd

MOST_REPLICATES = 1_000_000
# A row may exceed its declared norm by rounding only.
_NORM_SLACK = 1e-6
_BINARY_CODES: tuple[tuple[float, float], ...] = ((-1.0, 1.0), (0.0, 1.0), (1.0, 2.0))


@dataclass(frozen=True)
class Solution:
    """What `solve` returns. `w` has one row per replicate; `seconds` is time per replicate (see `RunResult`).

    `function_evaluations` counts values of one sample's loss, which only algorithms without gradients ask for.

    `failures` counts replicates whose output is not finite or is worse than w = 0; `notes` says what was done
    to the input (labels recoded, for instance).
    """

    w: np.ndarray
    objective: np.ndarray
    gradient_evaluations: int
    function_evaluations: int
    seconds: float
    plan: Plan
    certificate: dict[str, Any]
    provenance: dict[str, Any]
    failures: int
    notes: tuple[str, ...]
    result: RunResult

    @property
    def trajectory(self) -> pd.DataFrame:
        """A tidy table: one row per replicate and checkpoint; with function evaluations if there were any."""
        import pandas as pd

        replicates, checkpoints = self.result.objective.shape
        return pd.DataFrame(
            {
                "replicate": np.repeat(self.result.replicates, checkpoints),
                "round": np.tile(self.result.rounds, replicates),
                **{name: np.tile(count, replicates) for name, count in self.result.counts().items()},
                "objective": self.result.objective.ravel(),
                "seconds": np.tile(self.result.seconds, replicates),
            }
        )


def solve(
    algorithm: str,
    X: Any,
    y: Any,
    *,
    loss: str | Loss = "logistic",
    regularizer: float | Mapping[str, float] | Regularizer | None = 0.0,
    constraint: str | ConstraintSet | None = None,
    epsilon: float,
    delta: float,
    variant: str = "certified",
    replicates: int = 1,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "float64",
    row_norm: float = 1.0,
    label_bound: float = 1.0,
    **overrides: Any,
) -> Solution:
    """Minimise 1/n sum_i loss(<w, x_i>, y_i) + regularizer privately and return every replicate's result.

    X has shape (n, d) with rows of l2 norm at most `row_norm`, a bound you declare without looking at the data;
    y holds labels -1/+1 (0/1 and 1/2 are recoded and reported) or, for regression losses, numbers of absolute
    value at most `label_bound`. `overrides` are the paper's letters (T, m, eta, c, ...). `epsilon=inf` means no
    noise. Replicates are independent repetitions for experiments: releasing more than one costs more privacy
    than the certificate says.
    """
    chosen = get_algorithm(algorithm)
    if isinstance(replicates, bool) or not isinstance(replicates, (int, np.integer)) or replicates < 1:
        raise UserError(f"replicates is {replicates!r}: give a whole number >= 1.")
    if replicates > MOST_REPLICATES:
        raise UserError(f"replicates is {replicates}: give at most {MOST_REPLICATES} at one time.")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise UserError(f"seed is {seed!r}: give a whole number >= 0.")
    row_norm, label_bound = positive("row_norm", row_norm), positive("label_bound", label_bound)
    loss_object = get_loss(loss)
    features = _features(X, row_norm)
    labels, notes = _labels(y, features.shape[0], loss_object, label_bound)
    spec = ProblemSpec(
        n=features.shape[0],
        d=features.shape[1],
        loss=loss_object,
        regularizer=get_regularizer(regularizer),
        constraint=get_set(constraint),
        row_norm=row_norm,
        label_bound=label_bound,
    )
    plan = chosen.plan(Setting(spec, epsilon, delta, variant), **overrides)
    backend = get_backend(device, dtype)
    result = execute(plan, make_risk(spec, features, labels, backend), seed=int(seed), replicates=range(replicates))
    start = result.objective[:, 0]
    failed = ~(np.isfinite(result.final_objective) & (result.final_objective <= start))
    return Solution(
        w=result.w,
        objective=result.final_objective,
        gradient_evaluations=int(result.gradient_evaluations[-1]),
        function_evaluations=int(result.function_evaluations[-1]),
        seconds=float(result.seconds[-1]),
        plan=plan,
        certificate=certify(plan),
        provenance=_provenance(features, labels, int(seed), backend, plan, loss_object) | result.circumstances,
        failures=int(np.sum(failed)),
        notes=notes,
        result=result,
    )


def _reals(values: Any, name: str, wanted: str) -> np.ndarray:
    """Return values as float64; text, objects and complex numbers are refused, not cast."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":
            raise TypeError
        return np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} does not hold numbers only: give {wanted}.") from None


def _features(X: Any, row_norm: float) -> np.ndarray:
    features = _reals(X, "X", "a two-dimensional array of numbers")
    if features.ndim != 2 or 0 in features.shape:
        raise UserError(f"X has shape {features.shape}: give a non-empty two-dimensional array (rows, features).")
    if not np.all(np.isfinite(features)):
        row, column = np.argwhere(~np.isfinite(features))[0]
        raise UserError(f"X has a NaN or infinite value at row {row}, column {column}: clean the data first.")
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(features, axis=1)
    worst = int(np.argmax(norms))
    if norms[worst] > row_norm * (1.0 + _NORM_SLACK):
        raise UserError(
            f"Row {worst} of X has a norm above the declared row_norm = {row_norm:g}: "
            "scale the rows down, or declare a larger row_norm that holds for every possible record."
        )
    return features


def _labels(y: Any, n: int, loss: Loss, label_bound: float) -> tuple[np.ndarray, tuple[str, ...]]:
    labels = _reals(y, "y", "one number per row of X")
    if labels.shape != (n,):
        raise UserError(f"y has shape {labels.shape}, but X has {n} rows: give one label per row.")
    if not np.all(np.isfinite(labels)):
        raise UserError(f"y has a NaN or infinite value at row {np.argmin(np.isfinite(labels))}: clean the data first.")
    if not loss.margin:
        worst = int(np.argmax(np.abs(labels)))
        if abs(labels[worst]) > label_bound:
            raise UserError(
                f"y has a value in row {worst} of a size above the declared label_bound = {label_bound:g}: "
                "scale it down, or declare a larger label_bound."
            )
        return labels, ()
    values = np.unique(labels)
    for low, high in _BINARY_CODES:
        if np.all(np.isin(values, (low, high))):
            if (low, high) == (-1.0, 1.0):
                return labels, ()
            recoded = np.where(labels == high, 1.0, -1.0)
            return recoded, (f"labels {low:g} and {high:g} were read as -1 and +1",)
    # The labels themselves are private, and logs are not.
    raise UserError("y does not hold two classes coded as -1/+1, 0/1 or 1/2: recode it.")


def _provenance(X: np.ndarray, y: np.ndarray, seed: int, backend: Any, plan: Plan, loss: Loss) -> dict[str, Any]:
    import hashlib

    from dprepro.peers import versions
    from dprepro.provenance import commit, machine
    from dprepro.workflow import own_files

    checksum = hashlib.sha256(X.data)
    checksum.update(y.data)
    return {
        **commit(),
        **machine(),
        "seed": seed,
        **backend.facts(),
        "threads": 1,
        "data": {"checksum": checksum.hexdigest(), "origin": "given by the caller"},
        "libraries": versions(plan.algorithm),
        "variant": plan.variant,
        **own_files("run", algorithm=plan.algorithm, loss=loss.name),
    }
