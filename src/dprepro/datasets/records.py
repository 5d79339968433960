"""What a dataset is: the records handed to the user, and the record a dataset file registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a dataset before it is loaded.

    `task` is "classification" or "regression". `rows` and `features` are the shape of the whole training
    set; both are None where the caller chooses them. `sha256` maps a file name to the sha256 of its
    unpacked content, or, for the sets that scikit-learn carries, "data" and "target" to the sha256 of the
    raw arrays' bytes as little-endian float64 in C order. It is empty for generated data.
    """

    name: str
    title: str
    task: str
    rows: int | None
    features: int | None
    licence: str
    citation: str
    preprocessing: str
    sha256: dict[str, str]


@dataclass(frozen=True, eq=False)
class Population:
    """What makes the rows of a dataset the atoms of a distribution, of which `samples` are drawn.

    `probabilities` is float64 of shape (atoms,) with the sum 1. `row_sup` bounds the size of every entry of X: where
    features are measured in the sup norm, rows may be longer than 1. If `repeated`, the `samples` records are exact
    copies of the atoms in the shares of their probabilities, and nothing is drawn. Where `sphere` is a number, the
    distribution is no finite one: rows are uniform on the unit sphere, and the one row of X is the truth that labels
    come from, with noise of this size. `rank` is that of all rows, where the parameters say so.
    With a `law`, plain values by name, samples are drawn as they are asked for (`problems.make_risk` says which class
    draws by its `name`); `weights` is the number of parameters where it is not that of the features.
    """

    probabilities: np.ndarray
    samples: int
    row_norm: float = 1.0
    row_sup: float = 1.0
    label_bound: float = 1.0
    repeated: bool = False
    sphere: float | None = None
    rank: int | None = None
    law: Mapping[str, Any] | None = None
    weights: int | None = None


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset ready for a private algorithm.

    `X` is float32, C-contiguous, of shape (n, d); every stored row has an l2 norm of at most `row_norm`
    when the norm is computed in float64. `y` is float32 of shape (n,): values in `label_values` for
    classification; real numbers in [-1, 1], and an empty `label_values`, for regression. `origin` names the
    source that served the raw data; `checksum` is the sha256 of the bytes of `X` followed by those of `y`.
    With a `population` the rows are its atoms; its bounds then hold for rows and labels, and the bytes of its
    probabilities come last in the checksum.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    row_norm: float
    label_values: tuple[float, ...]
    origin: str
    checksum: str
    info: DatasetInfo
    population: Population | None = None


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a dataset file's `prepare` returns: the arrays, and the source of the raw data."""

    X: np.ndarray
    y: np.ndarray
    origin: str
    population: Population | None = None


@dataclass(frozen=True)
class Definition:
    """One entry of a dataset file's `DATASETS`.

    `prepare(rows, seed, *, ...)` gets `rows` and `seed` as the user gave them, both already known to be whole
    numbers in range (`rows` may be None); its keyword-only arguments, with defaults, are the dataset's own parameters.
    """

    info: DatasetInfo
    prepare: Callable[..., Prepared]
