"""The promises of a prepared dataset, held against its arrays: privacy is accounted on the strength of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprepro.datasets.records import DatasetInfo, Population, Prepared

if TYPE_CHECKING:
    import numpy as np

ROW_NORM = 1.0
# Labels that are told one by one.
_MOST_LABELS = 5


def broken_promise(info: DatasetInfo, prepared: object) -> str:
    """Return the first promise that is broken, with what was seen and what is promised; nothing if all are kept."""
    if not isinstance(prepared, Prepared):
        return f"its prepare returned {_kind(prepared)}, promised is an object of the class Prepared"
    population = prepared.population
    if not isinstance(population, Population | None):
        return f"its population is {_kind(population)}, promised is one of the class Population, or None"
    if not isinstance(prepared.origin, str):
        return f"its origin is {_kind(prepared.origin)}, promised is a text"
    row_norm, label_bound = (population.row_norm, population.label_bound) if population else (ROW_NORM, 1.0)
    return (
        _arrays(prepared, info.features)
        or broken_bound(prepared.X, prepared.y, row_norm, label_bound if info.task == "regression" else None)
        or (_distribution(prepared.X, population) if population else "")
    )


def broken_bound(X: np.ndarray, y: np.ndarray, row_norm: float, label_bound: float | None) -> str:
    """Return what breaks the bounds on the rows or the labels; without a bound, labels are signs."""
    return _rows(X, row_norm) or _labels(y, label_bound)


def _kind(value: object) -> str:
    return "nothing" if value is None else f"an object of the class {type(value).__name__}"


def _arrays(prepared: Prepared, features: int | None) -> str:
    """Return what is wrong with the types and shapes of the two arrays."""
    import numpy as np

    for name, array, shape in (("X", prepared.X, "(rows, features)"), ("y", prepared.y, "(rows,)")):
        if not isinstance(array, np.ndarray):
            return f"{name} is {_kind(array)}, promised is a NumPy array of shape {shape}"
    X, y = prepared.X, prepared.y
    if X.ndim != 2:
        return f"X has the shape {X.shape}, promised are two axes, (rows, features)"
    if X.size == 0:
        return f"X has the shape {X.shape}, promised are one row and one feature at least"
    if features not in (None, X.shape[1]):
        return f"X has {X.shape[1]} features, promised are {features} by the info of the dataset"
    if y.shape != X.shape[:1]:
        return f"y has the shape {y.shape}, promised is {X.shape[:1]}, one label for each row of X {X.shape}"
    for name, array in (("X", X), ("y", y)):
        if array.dtype != np.float32:
            return f"{name} is of the type {array.dtype}, promised is float32"
        if not array.flags.c_contiguous:
            return f"{name} does not lie in memory row by row, as promised: numpy.ascontiguousarray makes it so"
    return ""


def _rows(X: np.ndarray, bound: float) -> str:
    """Return what is wrong with the norms of the rows, which are computed in double precision."""
    import numpy as np

    norms = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    if bool(np.all(norms <= bound)):
        return ""
    worst = int(np.argmax(norms))  # what is not a number goes first
    return f"the largest norm of a row is {norms[worst]:.9g}, in row {worst}, promised is at most {bound:g}"


def _labels(y: np.ndarray, bound: float | None) -> str:
    """Return what is wrong with the labels: of size at most `bound`, or signs where there is none."""
    import numpy as np

    if bool(np.all(np.abs(y) == 1 if bound is None else np.abs(y) <= bound)):
        return ""
    if bound is not None:
        return f"the labels go from {np.min(y):.9g} to {np.max(y):.9g}, promised are -{bound:g} to {bound:g}"
    values = np.unique(y)
    shown = [f"{value:.9g}" for value in values[:_MOST_LABELS]]
    more = [f"{len(values) - _MOST_LABELS} more"] if len(values) > _MOST_LABELS else []
    return f"the labels are {', '.join([*shown, *more])}, promised are -1 and 1"


def _distribution(X: np.ndarray, population: Population) -> str:
    """Return what is wrong with the probabilities of the rows, or with their bound in the sup norm."""
    import numpy as np

    p = population.probabilities
    if not isinstance(p, np.ndarray):
        return f"its probabilities are {_kind(p)}, promised is a NumPy array"
    if p.dtype != np.float64 or p.shape != X.shape[:1]:
        return f"its probabilities are {p.dtype} of shape {p.shape}, promised is float64 of shape {X.shape[:1]}"
    if not (bool(np.all(p >= 0.0)) and abs(p.sum() - 1.0) < 1e-12):
        return f"its probabilities have the least {p.min():.9g} and the sum {p.sum():.15g}, promised are >= 0 and 1"
    if not bool(np.all(np.abs(X) <= population.row_sup)):
        return f"the largest entry of X has the size {np.abs(X).max():.9g}, promised is at most {population.row_sup:g}"
    return ""
