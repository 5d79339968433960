"""Tests of my_dataset: what accounting relies on, and that a seed fixes every draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dprepro import datasets, extensions

NAME = "my_dataset"


@pytest.fixture(autouse=True)
def this_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the extension folder that this file is in, for one test."""
    monkeypatch.setenv(extensions.VARIABLE, str(Path(__file__).parents[1]))


def test_rows_are_bounded_and_labels_are_signs() -> None:
    data = datasets.load(NAME, rows=500)
    assert data.X.shape == (500, datasets.info(NAME).features)
    assert np.linalg.norm(data.X.astype(np.float64), axis=1).max() <= 1.0
    assert set(np.unique(data.y)) == {-1.0, 1.0}


def test_a_seed_fixes_the_data_and_another_one_changes_them() -> None:
    once, again, other = (datasets.load(NAME, rows=50, seed=seed).checksum for seed in (1, 1, 2))
    assert once == again != other
