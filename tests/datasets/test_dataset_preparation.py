from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dprepro.datasets.preparation import bounded, scaled

MATRICES = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=20),
    elements=st.floats(-1e100, 1e100, allow_subnormal=True),
)


@given(MATRICES)
def test_bounded_rows_stay_in_the_unit_ball_after_rounding(X: np.ndarray) -> None:
    assert np.all(np.linalg.norm(bounded(X).astype(np.float64), axis=1) <= 1.0)


def test_rows_of_length_one_stay_in_the_unit_ball_after_rounding() -> None:
    X = np.random.default_rng(0).standard_normal((50_000, 30))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    assert np.linalg.norm(X.astype(np.float32).astype(np.float64), axis=1).max() > 1.0
    norms = np.linalg.norm(bounded(X).astype(np.float64), axis=1)
    assert norms.max() <= 1.0
    assert norms.min() >= 1 - 2.0**-22


def test_rows_inside_the_ball_are_only_rounded() -> None:
    X = np.array([[0.3, -0.4], [0.0, 0.0], [0.999, 0.0]])
    assert np.array_equal(bounded(X), X.astype(np.float32))


def test_each_row_is_prepared_on_its_own() -> None:
    X = np.random.default_rng(1).standard_normal((5000, 11))
    assert np.array_equal(bounded(X)[4321], bounded(X[4321:4322])[0])


def test_scaling_clips_to_the_fixed_range() -> None:
    columns = np.array([[0, -10], [5, 0], [11, 10]])
    assert scaled(columns, [(0, 10), (-10, 0)]).tolist() == [[0, 0], [0.5, 1], [1, 1]]
