"""Steps every dataset file shares: choosing rows, scaling columns and bounding row norms.

Scaling and bounding look at one row at a time and use constants only, so changing one person's row changes
one prepared row: neighbouring raw datasets stay neighbouring. Sums run in a fixed order and every other
operation is correctly rounded, so the prepared bytes do not depend on the processor.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dprepro.errors import UserError

if TYPE_CHECKING:
    import numpy as np

# Rounding to float32 grows a norm by a factor of at most 1 + 2**-24, and the float64 arithmetic by a factor
# that is tiny beside it. 1 + 2**-23 is the smallest 1 + 2**-k that covers both.
ROUNDING_MARGIN = 1 + 2.0**-23
ROWS_RULE = "each row is divided by max(1, norm (1 + 2^-23)) before it is rounded to single precision"

# Rows handled together, so that a block stays in the processor's cache.
_BLOCK = 2048


def whole_number(name: str, value: object, minimum: int) -> int:
    """Return `value` as an int of at least `minimum`, or refuse it in the name of the argument `name`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise UserError(f"{name} must be a whole number, got {value!r}: give an integer >= {minimum}.") from None
    if number < minimum:
        raise UserError(f"{name} must be at least {minimum}, got {number}: give a larger number.")
    return number


def real_number(name: str, value: object, low: float, high: float) -> float:
    """Return `value` as a float in [low, high], or refuse it in the name of the argument `name`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and low <= value <= high):  # type: ignore[operator]
        raise UserError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}: choose one in that range.")
    return float(value)  # type: ignore[arg-type]


def chosen_rows(available: int, rows: int | None, seed: int) -> np.ndarray:
    """Return the row numbers to keep: all in their order, or `rows` of them drawn without replacement.

    The draw is the beginning of one seeded permutation, so with the same seed a smaller subset is the
    beginning of a larger one.
    """
    import numpy as np

    if rows is None:
        return np.arange(available)
    if rows > available:
        raise UserError(f"rows={rows} is more than the {available} rows there are: ask for {available} or fewer.")
    return np.random.default_rng(seed).permutation(available)[:rows]


def scaled(columns: np.ndarray, ranges: Sequence[tuple[float, float]]) -> np.ndarray:
    """Map each column of `columns`, shape (n, k), from its range to [0, 1]; values outside are clipped."""
    import numpy as np

    low, high = np.array(ranges, dtype=np.float64).T
    return np.clip((columns - low) / (high - low), 0.0, 1.0)


def row_sums(terms: np.ndarray) -> np.ndarray:
    """Sum each row of `terms`, shape (n, d), from left to right."""
    import numpy as np

    total = np.zeros(len(terms))
    for column in terms.T:
        total += column
    return total


def bounded(X: np.ndarray) -> np.ndarray:
    """Divide each row of `X`, float64 of shape (n, d), by max(1, norm * ROUNDING_MARGIN); return float32.

    The rows as stored have a norm of at most 1, rounding included.
    """
    import numpy as np

    result = np.empty(X.shape, dtype=np.float32)
    for start in range(0, len(X), _BLOCK):
        block = X[start : start + _BLOCK]
        norms = np.sqrt(row_sums(block * block))
        result[start : start + _BLOCK] = block / np.maximum(1.0, norms * ROUNDING_MARGIN)[:, None]
    return result


def signs(positive: np.ndarray) -> np.ndarray:
    """Turn a boolean array into float32 labels: True to +1, False to -1."""
    import numpy as np

    return np.where(positive, np.float32(1), np.float32(-1))
