from __future__ import annotations

import dataclasses
import hashlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import assert_one_sentence

from dprepro import datasets
from dprepro.datasets.records import Definition, Population, Prepared
from dprepro.errors import RunFailed, UserError

ZEROS, ONES = np.zeros((3, 2), np.float32), np.ones(3, np.float32)
SIZES = {"covertype": 5000}
REAL = [name for name in datasets.names() if datasets.info(name).rows is not None]
POPULATIONS = [name for name in datasets.names() if name.startswith("population_")]
GENERATED = [name for name in datasets.names() if datasets.info(name).rows is None and name not in POPULATIONS]


def test_the_known_datasets_are_listed_in_order() -> None:
    assert datasets.names() == [
        "adult",
        "breast_cancer",
        "covertype",
        "diabetes",
        "digits",
        "population_bias",
        "population_circle",
        "population_direction",
        "population_glm_valley",
        "population_linear",
        "population_low_rank",
        "population_low_rank_signs",
        "population_mean",
        "population_network",
        "population_signed_mean",
        "population_sparse",
        "population_sphere",
        "population_spiked",
        "population_valley",
        "synthetic_logistic",
        "synthetic_low_rank",
        "synthetic_regression",
        "synthetic_scales",
        "synthetic_sparse",
    ]


def test_listing_datasets_imports_no_numerical_library() -> None:
    program = (
        "import sys; from dprepro import datasets; [datasets.info(name) for name in datasets.names()]; "
        "sys.exit(bool({'numpy', 'pandas', 'sklearn', 'pooch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("name", [*REAL, *GENERATED])
def test_every_dataset_keeps_its_promises(name: str) -> None:
    data = datasets.load(name, rows=SIZES.get(name))
    assert data.name == data.info.name == name
    assert data.X.dtype == data.y.dtype == np.float32
    assert data.X.flags.c_contiguous
    assert data.y.shape == (len(data.X),)
    assert data.row_norm == 1.0
    assert np.linalg.norm(data.X.astype(np.float64), axis=1).max() <= 1.0
    if data.info.task == "classification":
        assert data.label_values == (-1.0, 1.0)
        assert set(data.y.tolist()) == {-1.0, 1.0}
    else:
        assert data.info.task == "regression"
        assert data.label_values == ()
        assert np.abs(data.y).max() <= 1
        assert np.std(data.y) > 0.05
    assert data.checksum == hashlib.sha256(data.X.tobytes() + data.y.tobytes()).hexdigest()
    assert data.info.features in (None, data.X.shape[1])
    for text in dataclasses.astuple(data.info)[:-1]:
        assert text is None or text


@pytest.mark.parametrize(
    ("name", "checksum"),
    [
        ("adult", "b83659c575159b9726a740518de26eff28b6b24a56fe55489cbd80b902649389"),
        ("breast_cancer", "915fa38aaa677f0fca2aa60e183a542b8e7b3fe7eb8dae38ab905eac6f1a0807"),
        ("covertype", "93c5dfccba738f5f5c3e0c2a9d1f2b125b1b87fbe47c69d53afbbc750b7e4b73"),
        ("diabetes", "8de31ad32b6744d0faddae21db0f2484f4b7dac8c8db55fa26e863c83710032b"),
        ("digits", "7a609ffef2a369ae08125af315001d026f6265cf6c46c8a39c0d2e86e3c7f20e"),
    ],
)
def test_a_whole_real_dataset_has_the_same_bytes_everywhere(name: str, checksum: str) -> None:
    data = datasets.load(name)
    assert data.X.shape == (data.info.rows, data.info.features)
    assert data.checksum == checksum


@pytest.mark.parametrize("name", REAL)
def test_a_subset_is_drawn_without_replacement_and_fixed_by_its_seed(name: str) -> None:
    small, again, larger = (datasets.load(name, rows=k, seed=3) for k in (100, 100, 300))
    assert small.checksum == again.checksum
    assert np.array_equal(small.X, larger.X[:100])
    assert datasets.load(name, rows=100, seed=4).checksum != small.checksum


@pytest.mark.parametrize("name", ["digits", "diabetes"])
def test_a_subset_of_full_size_is_a_permutation_of_the_whole(name: str) -> None:
    whole = datasets.load(name)
    shuffled = datasets.load(name, rows=whole.info.rows, seed=1)
    order = np.random.default_rng(1).permutation(len(whole.X))
    assert np.array_equal(shuffled.X, whole.X[order])
    assert np.array_equal(shuffled.y, whole.y[order])


@pytest.mark.parametrize("name", GENERATED)
def test_generated_data_is_fixed_by_seed_rows_and_parameters(name: str) -> None:
    data = datasets.load(name, rows=50, seed=5, features=11)
    assert data.X.shape == (50, 11)
    assert data.origin == "generated"
    assert data.checksum == datasets.load(name, rows=50, seed=5, features=11).checksum
    assert data.checksum != datasets.load(name, rows=50, seed=6, features=11).checksum
    assert datasets.load(name).X.shape[0] == 1000


def test_a_misspelt_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UserError, match=r"no dataset 'covertyp': did you mean 'covertype'\? choose one of adult"):
        datasets.load("covertyp")
    with pytest.raises(UserError, match=r"no dataset 'xyz': choose one of adult, breast_cancer"):
        datasets.info("xyz")


@pytest.mark.parametrize("name", REAL)
def test_more_rows_than_there_are_is_refused(name: str) -> None:
    available = datasets.info(name).rows
    assert available is not None
    with pytest.raises(UserError, match=f"rows={available + 1} is more than the {available} rows"):
        datasets.load(name, rows=available + 1)


@pytest.mark.parametrize("rows", [0, -5])
def test_fewer_than_one_row_is_refused(rows: int) -> None:
    with pytest.raises(UserError, match=f"rows must be at least 1, got {rows}"):
        datasets.load("digits", rows=rows)


@pytest.mark.parametrize("rows", [1.5, "10", True])
def test_rows_that_are_no_whole_number_are_refused(rows: object) -> None:
    with pytest.raises(UserError, match="rows must be a whole number"):
        datasets.load("digits", rows=rows)  # type: ignore[arg-type]


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UserError, match="seed must be at least 0, got -1"):
        datasets.load("digits", rows=10, seed=-1)


def test_unknown_parameters_are_refused_by_name() -> None:
    with pytest.raises(UserError, match="'digits' has no parameter 'colour', 'size': it takes none besides"):
        datasets.load("digits", size=3, colour="red")
    with pytest.raises(UserError, match="'adult' has no parameter 'seeds': it takes split besides"):
        datasets.load("adult", seeds=3)


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (
            np.array([[0.1, 0.2], [0.6, 0.9]], np.float32),
            ONES[:2],
            "the largest norm of a row is 1.08166538, in row 1, promised is at most 1",
        ),
        (np.zeros((3, 2), np.float64), ONES, "X is of the type float64, promised is float32"),
        (ZEROS, np.ones(3), "y is of the type float64, promised is float32"),
        (ZEROS, np.array([0, 1, 2], np.float32), "the labels are 0, 1, 2, promised are -1 and 1"),
        (
            np.zeros((9, 2), np.float32),
            np.arange(9, dtype=np.float32),
            "the labels are 0, 1, 2, 3, 4, 4 more, promised are -1 and 1",
        ),
        (ZEROS, ONES[:2], "y has the shape (2,), promised is (3,), one label for each row of X (3, 2)"),
        (ONES, ONES, "X has the shape (3,), promised are two axes, (rows, features)"),
        (
            ZEROS.T.copy().T,
            ONES,
            "X does not lie in memory row by row, as promised: numpy.ascontiguousarray makes it so",
        ),
        (
            ZEROS,
            np.ones((3, 2), np.float32)[:, -1],
            "y does not lie in memory row by row, as promised: numpy.ascontiguousarray makes it so",
        ),
        (ZEROS[:0], ONES[:0], "X has the shape (0, 2), promised are one row and one feature at least"),
        (ZEROS[:, :0], ONES, "X has the shape (3, 0), promised are one row and one feature at least"),
        (
            np.full((3, 2), np.nan, np.float32),
            ONES,
            "the largest norm of a row is nan, in row 0, promised is at most 1",
        ),
        ([[0.0]], ONES, "X is an object of the class list, promised is a NumPy array of shape (rows, features)"),
    ],
    ids=[
        "rows too long",
        "double precision",
        "labels in double precision",
        "other labels",
        "many other labels",
        "lengths differ",
        "one axis",
        "columns first",
        "a column of a table",
        "no rows",
        "no features",
        "not a number",
        "a list",
    ],
)
def test_a_dataset_file_that_breaks_a_promise_is_stopped_and_told_which_with_the_numbers(
    X: np.ndarray, y: np.ndarray, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_told(said, Prepared(X, y, "generated"), monkeypatch)


def assert_told(
    said: str,
    prepared: object,
    monkeypatch: pytest.MonkeyPatch,
    task: str = "classification",
    features: int | None = None,
) -> None:
    info = dataclasses.replace(datasets.info("digits"), task=task, features=features)
    broken = Definition(info, lambda rows, seed: prepared)
    monkeypatch.setattr(datasets, "_definitions", lambda: {"digits": broken})
    with pytest.raises(RunFailed, match=re.escape(f"The prepared dataset 'digits' breaks a promise: {said}.")) as told:
        datasets.load("digits")
    assert_one_sentence(str(told.value))


def test_a_prepare_that_returns_no_arrays_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_told("its prepare returned nothing, promised is an object of the class Prepared", None, monkeypatch)


def test_other_features_than_the_info_says_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "X has 2 features, promised are 3 by the info of the dataset"
    assert_told(said, Prepared(ZEROS, ONES, "generated"), monkeypatch, features=3)


def test_an_origin_that_is_no_text_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = Prepared(ZEROS, ONES, Path("data.csv"))  # type: ignore[arg-type]
    assert_told(
        f"its origin is an object of the class {type(Path()).__name__}, promised is a text", prepared, monkeypatch
    )


def test_labels_of_a_regression_that_are_too_large_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.array([-0.5, 1.25, 0.0], np.float32)
    said = "the labels go from -0.5 to 1.25, promised are -1 to 1"
    assert_told(said, Prepared(ZEROS, y, "generated"), monkeypatch, task="regression")


@pytest.mark.parametrize(
    ("population", "said"),
    [
        (5, "its population is an object of the class int, promised is one of the class Population, or None"),
        (
            Population([1 / 3] * 3, 10),  # type: ignore[arg-type]
            "its probabilities are an object of the class list, promised is a NumPy array",
        ),
        (
            Population(np.full(3, 0.25), 10),
            "its probabilities have the least 0.25 and the sum 0.75, promised are >= 0 and 1",
        ),
        (
            Population(np.full(2, 0.5), 10),
            "its probabilities are float64 of shape (2,), promised is float64 of shape (3,)",
        ),
        (
            Population(np.full(3, 1 / 3), 10, row_norm=2.0, row_sup=0.5),
            "the largest entry of X has the size 1, promised is at most 0.5",
        ),
    ],
    ids=["no population", "a list", "sum", "number", "largest entry"],
)
def test_a_population_that_breaks_a_promise_is_told_which(
    population: Population, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.array([[0, 1], [0, 0], [0, 0]], np.float32)
    assert_told(said, Prepared(X, ONES, "generated", population), monkeypatch)
