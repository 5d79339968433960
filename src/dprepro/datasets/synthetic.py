"""Generated data with a known truth: logistic and linear models on rows of length at most 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprepro.datasets.preparation import bounded, real_number, row_sums, signs, whole_number
from dprepro.datasets.records import DatasetInfo, Definition, Prepared
from dprepro.errors import UserError

if TYPE_CHECKING:
    import numpy as np

DEFAULT_ROWS = 1000
# 8 GiB in double precision: more would only end in a crash for lack of memory.
MAXIMUM_ENTRIES = 2**30


def _rows_and_truth(rng: np.random.Generator, rows: int | None, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw X, float64 of shape (rows, features), and a truth of shape (features,): uniform on the sphere."""
    import numpy as np

    rows = DEFAULT_ROWS if rows is None else rows
    features = whole_number("features", features, 1)
    if rows * features > MAXIMUM_ENTRIES:
        raise UserError(f"rows={rows} times features={features} is more than {MAXIMUM_ENTRIES} numbers: ask for fewer.")
    points = rng.standard_normal((rows + 1, features))
    points /= np.sqrt(row_sums(points * points))[:, None]
    return points[1:], points[0]


def _logistic(rows: int | None, seed: int, *, features: int = 20, margin: float = 10.0, noise: float = 0.0) -> Prepared:
    """Draw labels with P(y = +1 | x) = 1 / (1 + exp(-margin <x, truth>)); flip a share `noise` of them."""
    import numpy as np

    margin = real_number("margin", margin, 0, 1000)
    noise = real_number("noise", noise, 0, 0.5)
    rng = np.random.default_rng(seed)
    X, truth = _rows_and_truth(rng, rows, features)
    probability = 0.5 + 0.5 * np.tanh(0.5 * margin * row_sums(X * truth))
    positive = rng.random(len(X)) < probability
    flipped = rng.random(len(X)) < noise
    return Prepared(bounded(X), signs(positive ^ flipped), "generated")


def _regression(rows: int | None, seed: int, *, features: int = 20, noise: float = 0.1) -> Prepared:
    """Draw y = <x, truth> + noise N(0, 1), clipped to [-1, 1]."""
    import numpy as np

    noise = real_number("noise", noise, 0, 100)
    rng = np.random.default_rng(seed)
    X, truth = _rows_and_truth(rng, rows, features)
    y = np.clip(row_sums(X * truth) + noise * rng.standard_normal(len(X)), -1, 1)
    return Prepared(bounded(X), y.astype(np.float32), "generated")


def _scales(
    rows: int | None, seed: int, *, features: int = 24, scales: int = 12, ratio: float = 1 / 3, norm: float = 3.0
) -> Prepared:
    """Draw rows whose columns have geometrically falling scales, with soft labels tanh(<x, truth> / 2).

    The truth, of length `norm`, minimises the cross-entropy with soft labels exactly. The smaller a scale, the later
    descent gets to it: some direction is always half-way, so that no number of steps is enough.
    """
    import numpy as np

    scales = whole_number("scales", scales, 1)
    ratio = real_number("ratio", ratio, 0, 1)
    norm = real_number("norm", norm, 0, 1e6)
    rng = np.random.default_rng(seed)
    points, truth = _rows_and_truth(rng, rows, features)
    X = points * ratio ** (np.arange(features) * min(scales, features) // features)
    X /= np.sqrt(row_sums(X * X))[:, None]
    X = bounded(X)
    y = np.tanh(0.5 * norm * row_sums(X * truth))
    return Prepared(X, y.astype(np.float32), "generated")


def _sparse(
    rows: int | None,
    seed: int,
    *,
    features: int = 512,
    scales: int = 8,
    ratio: float = 0.5,
    dense: float = 0.5,
    length: float = 40.0,
) -> Prepared:
    """Draw rows that carry one of `scales` coordinates, the k-th with frequency ~ ratio^k, under dense noise.

    The truth has equal entries of changing sign in these coordinates and l1 length `length`; with soft labels
    tanh(<x, truth> / 2) it minimises the cross-entropy exactly, on the boundary of the l1 ball. Rare coordinates are
    found late, so that no number of steps is enough. `dense` is the share of a row's squared length that is noise.
    """
    import numpy as np

    scales = whole_number("scales", scales, 1)
    ratio, dense = real_number("ratio", ratio, 0, 1), real_number("dense", dense, 0, 1)
    length = real_number("length", length, 0, 1e6)
    if scales > features:
        raise UserError(f"scales={scales} is more than features={features}: give at most {features}.")
    rng = np.random.default_rng(seed)
    points, _ = _rows_and_truth(rng, rows, features)
    shares = np.cumsum(ratio ** np.arange(scales))
    middles = (np.arange(len(points)) + 0.5) / len(points)
    carried = np.minimum(np.searchsorted(shares / shares[-1], middles), scales - 1)
    X = np.sqrt(dense) * points
    X[np.arange(len(X)), carried] += np.sqrt(1.0 - dense)
    X = bounded(X)
    truth = np.zeros(features)
    truth[:scales] = length / scales * np.where(np.arange(scales) % 2, -1.0, 1.0)
    return Prepared(X, np.tanh(0.5 * row_sums(X * truth)).astype(np.float32), "generated")


def _low_rank(
    rows: int | None, seed: int, *, features: int = 20, rank: int = 10, noise: float = 0.0, axes: bool = False
) -> Prepared:
    """Draw y = <x, truth> + noise N(0, 1), clipped to [-1, 1], with rows in the first `rank` coordinates.

    The truth has length 1/2. With `axes` the rows go through the unit vectors in turn, so that the objective is a sum
    over coordinates; else they are uniform on the sphere.
    """
    import numpy as np

    features = whole_number("features", features, 1)
    rank = whole_number("rank", rank, 1)
    noise = real_number("noise", noise, 0, 100)
    if rank > features:
        raise UserError(f"rank={rank} is more than features={features}: give a rank of at most {features}.")
    rng = np.random.default_rng(seed)
    points, truth = _rows_and_truth(rng, rows, rank)
    if axes:
        points = np.eye(rank)[np.arange(len(points)) % rank]
    X = np.zeros((len(points), features))
    X[:, :rank] = points
    X = bounded(X)
    y = np.clip(0.5 * row_sums(X[:, :rank] * truth) + noise * rng.standard_normal(len(X)), -1, 1)
    return Prepared(X, y.astype(np.float32), "generated")


def _info(name: str, title: str, task: str, labels: str) -> DatasetInfo:
    return DatasetInfo(
        name=name,
        title=title,
        task=task,
        rows=None,
        features=None,
        licence="Generated; no licence needed",
        citation="None; generated by dprepro",
        preprocessing=(
            "Rows and truth are uniform on the unit sphere (rows shortened by 1 + 2^-23, so that rounding to "
            f"single precision keeps them in the unit ball). {labels} The seed, the number of rows and the "
            "parameters fix every draw."
        ),
        sha256={},
    )


DATASETS = (
    Definition(
        _info(
            "synthetic_logistic",
            "Logistic model on the sphere",
            "classification",
            "P(y = +1) = 1 / (1 + exp(-margin <x, truth>)) with margin=10; each label is flipped with "
            "probability noise=0.",
        ),
        _logistic,
    ),
    Definition(
        _info(
            "synthetic_regression",
            "Linear model on the sphere",
            "regression",
            "y = <x, truth> + noise N(0, 1) with noise=0.1, clipped to [-1, 1].",
        ),
        _regression,
    ),
    Definition(
        _info(
            "synthetic_scales",
            "Logistic model over geometric scales",
            "regression",
            "The columns, in scales=12 blocks, are then multiplied by the powers of ratio=1/3 and each row is brought "
            "back to length 1. y = tanh(<x, truth> / 2) is a soft label; the truth has length norm=3.",
        ),
        _scales,
    ),
    Definition(
        _info(
            "synthetic_sparse",
            "Sparse logistic model with rare coordinates",
            "regression",
            "A row is the dense=1/2 part of such a point plus one of the first scales=8 coordinates, the k-th with a "
            "frequency that falls as ratio=1/2 to the k. y = tanh(<x, truth> / 2) is a soft label; the truth has equal "
            "entries of changing sign in these coordinates and l1 length length=40.",
        ),
        _sparse,
    ),
    Definition(
        _info(
            "synthetic_low_rank",
            "Linear model of low rank",
            "regression",
            "Only the first rank=10 coordinates are used, or with axes=true the unit vectors of these in turn. "
            "y = <x, truth> + noise N(0, 1) with noise=0, clipped to [-1, 1]; the truth has length 1/2.",
        ),
        _low_rank,
    ),
)
