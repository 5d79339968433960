"""The hard instances of lower bounds on the gradient norm (ABG23, Theorems 4.3 and A.2; see `dprepro.lower_bounds`)."""

from __future__ import annotations

from dprepro.datasets.populations import check_size, population_info, population_of
from dprepro.datasets.preparation import real_number, whole_number
from dprepro.datasets.records import Definition, Prepared
from dprepro.datasets.synthetic import DEFAULT_ROWS
from dprepro.errors import UserError

# Records of the privacy bound lie in a ball of this radius: a quarter of where the loss with B = 1 bends.
RADIUS = 0.25


def _bias(rows: int | None, seed: int, *, side: int = 1) -> Prepared:
    """Return the records +1 and -1 in one dimension; `side` 1 leans to +1, side 2 to -1, by p = 1/sqrt(16 n)."""
    import numpy as np

    from dprepro.lower_bounds import bias

    side = whole_number("side", side, 1)
    if side > 2:
        raise UserError(f"side must be 1 or 2, got {side}: choose one of them.")
    n = DEFAULT_ROWS if rows is None else rows
    lean = bias(n) if side == 1 else -bias(n)
    X = np.array([[1.0], [-1.0]], dtype=np.float32)
    probabilities = np.array([0.5 * (1.0 + lean), 0.5 * (1.0 - lean)])
    return Prepared(X, np.zeros(2, dtype=np.float32), "generated", population_of(probabilities, rows))


def _signed_mean(rows: int | None, seed: int, *, features: int = 16, copies: int = 1, offset: float = 1.0) -> Prepared:
    """Return `copies` records +-e_j/4 with a random sign for every coordinate j but the last, all others at one point.

    That point lies on the last axis at offset/4, so that the start w = 0 is far from the mean.
    """
    import numpy as np

    features, copies = whole_number("features", features, 2), whole_number("copies", copies, 1)
    offset = real_number("offset", offset, 0, 1)
    n, signed = DEFAULT_ROWS if rows is None else rows, features - 1
    if copies * signed > n:
        raise UserError(f"copies={copies} of {signed} records are more than rows={n}: ask for more rows.")
    check_size(features, features)
    signs = np.where(np.random.default_rng(seed).random(signed) < 0.5, -1.0, 1.0)
    X = np.diag(RADIUS * np.append(signs, offset)).astype(np.float32)
    probabilities = np.full(features, copies / n)
    probabilities[-1] = (n - copies * signed) / n
    return Prepared(X, np.zeros(features, dtype=np.float32), "generated", population_of(probabilities, rows))


DATASETS = (
    Definition(
        population_info(
            "population_bias",
            "Signs with an unknown bias",
            "The records are +1 and -1 in one dimension, with mean 1/sqrt(16 n) for side=1 and its negative for "
            "side=2, n the number of rows. No draw is random.",
        ),
        _bias,
    ),
    Definition(
        population_info(
            "population_signed_mean",
            "Signed coordinates",
            "copies=1 records at e_j/4 or -e_j/4 for every coordinate j but the last, and all others on the last axis "
            "at offset/4 with offset=1. The seed fixes the signs.",
        ),
        _signed_mean,
    ),
)
