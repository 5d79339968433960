"""Claims about Adult, the scikit-learn sets and the generated sets."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.datasets
from sklearn.linear_model import LogisticRegression

from dprepro import datasets
from dprepro.datasets import adult
from dprepro.errors import UserError


@pytest.mark.parametrize(("split", "rows", "rich"), [("train", 32561, 7841), ("test", 16281, 3846)])
def test_adult_splits_have_the_published_counts(split: str, rows: int, rich: int) -> None:
    data = datasets.load("adult", split=split)
    assert data.X.shape == (rows, 108)
    assert np.count_nonzero(data.y == 1) == rich
    assert data.origin == "embedded"


def test_every_adult_row_has_one_value_per_categorical_column() -> None:
    data = datasets.load("adult")
    start = len(adult.RANGES)
    for vocabulary in adult.VOCABULARIES.values():
        assert np.all(np.count_nonzero(data.X[:, start : start + len(vocabulary)], axis=1) == 1)
        start += len(vocabulary)
    assert start == data.X.shape[1]


def test_the_first_adult_row_is_encoded_as_written_in_the_file() -> None:
    row = datasets.load("adult").X[0]
    words = [word for vocabulary in adult.VOCABULARIES.values() for word in vocabulary]
    present = [words[k] for k in np.flatnonzero(row[len(adult.RANGES) :])]
    assert " ".join(present) == (
        "State-gov Bachelors Never-married Adm-clerical Not-in-family White Male United-States"
    )
    numeric = np.array([22 / 73, 77516 / 1.5e6, 12 / 15, 2174 / 99999, 0, 39 / 98])
    np.testing.assert_allclose(row[:6], numeric / np.sqrt(8 + (numeric**2).sum()), rtol=1e-6)


def test_adult_and_its_test_split_can_be_learnt() -> None:
    train, test = datasets.load("adult", rows=5000), datasets.load("adult", split="test")
    model = LogisticRegression(C=100).fit(train.X, train.y)
    assert model.score(test.X, test.y) > 0.83


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UserError, match="split 'dev' of 'adult' does not exist: choose train or test"):
        datasets.load("adult", split="dev")


@pytest.mark.parametrize(("name", "positive"), [("breast_cancer", 212), ("digits", 906)])
def test_scikit_learn_sets_have_the_published_class_counts(name: str, positive: int) -> None:
    data = datasets.load(name)
    assert np.count_nonzero(data.y == 1) == positive
    assert data.origin == "scikit-learn"


def test_diabetes_labels_span_the_fixed_range() -> None:
    y = datasets.load("diabetes").y
    assert (y.min(), y.max()) == (-1, 1)


def test_a_changed_scikit_learn_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bunch = sklearn.datasets.load_digits()
    bunch["data"][5, 5] += 1
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda: bunch)
    expected = datasets.info("digits").sha256["data"]
    with pytest.raises(UserError, match=f"data of 'digits' in scikit-learn .* should be {expected} but is "):
        datasets.load("digits")


def test_generated_rows_have_length_one_up_to_rounding() -> None:
    norms = np.linalg.norm(datasets.load("synthetic_logistic", features=3).X.astype(np.float64), axis=1)
    assert norms.min() >= 1 - 2.0**-22


def test_logistic_labels_with_a_huge_margin_follow_a_plane() -> None:
    data = datasets.load("synthetic_logistic", rows=2000, margin=1000)
    model = LogisticRegression(C=1e4, max_iter=1000).fit(data.X, data.y)
    assert model.score(data.X, data.y) > 0.99


def test_logistic_noise_flips_that_share_of_the_labels() -> None:
    clean = datasets.load("synthetic_logistic", rows=10_000)
    noisy = datasets.load("synthetic_logistic", rows=10_000, noise=0.25)
    assert np.array_equal(clean.X, noisy.X)
    # Six standard deviations of a binomial share: a false alarm has a probability below 1e-8.
    assert abs(np.mean(clean.y != noisy.y) - 0.25) < 6 * np.sqrt(0.25 * 0.75 / 10_000)


def test_regression_without_noise_is_linear_with_a_truth_of_length_one() -> None:
    data = datasets.load("synthetic_regression", noise=0.0)
    truth, *_ = np.linalg.lstsq(data.X, data.y, rcond=None)
    assert np.linalg.norm(truth) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(data.X @ truth, data.y, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("synthetic_logistic", {"noise": 0.6}, "noise must be a number from 0 to 0.5, got 0.6"),
        ("synthetic_logistic", {"margin": float("nan")}, "margin must be a number from 0 to 1000, got nan"),
        ("synthetic_logistic", {"features": 0}, "features must be at least 1, got 0"),
        ("synthetic_logistic", {"features": 2.5}, "features must be a whole number, got 2.5"),
        ("synthetic_regression", {"noise": "much"}, "noise must be a number from 0 to 100, got 'much'"),
        ("synthetic_regression", {"rows": 10**12}, "rows=1000000000000 times features=20 is more than"),
    ],
)
def test_senseless_generator_parameters_are_refused(name: str, parameters: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        datasets.load(name, **parameters)


@pytest.mark.parametrize(("name", "truth_length"), [("synthetic_scales", 3.0), ("synthetic_sparse", None)])
def test_the_truth_behind_soft_labels_minimises_the_cross_entropy(name: str, truth_length: float | None) -> None:
    """The gradient vanishes at the truth, up to the single precision of rows and labels."""
    from dprepro.arrays import get_backend
    from dprepro.geometry import get_set
    from dprepro.losses import get_loss
    from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
    from dprepro.problems.optimum import find_optimum
    from dprepro.regularizers import Regularizer

    data = datasets.load(name, rows=300, features=12, **({"ratio": 0.8} if name == "synthetic_scales" else {}))
    spec = ProblemSpec(*data.X.shape, get_loss("soft_logistic"), Regularizer(), get_set(None))
    problem = EmpiricalRisk(spec, data.X, data.y, get_backend("cpu"))
    w = find_optimum(problem).w
    margins = data.X.astype(np.float64) @ w
    np.testing.assert_allclose(np.tanh(0.5 * margins), data.y, atol=2e-5)
    if truth_length is not None:
        assert np.linalg.norm(w) == pytest.approx(truth_length, rel=1e-3)
    else:
        assert np.sum(np.abs(w)) == pytest.approx(40.0, rel=1e-2)


def test_rows_of_low_rank_stay_in_their_coordinates_and_axes_take_turns() -> None:
    data = datasets.load("synthetic_low_rank", rows=60, features=9, rank=4)
    assert np.all(data.X[:, 4:] == 0.0)
    assert np.linalg.matrix_rank(data.X) == 4
    axes = datasets.load("synthetic_low_rank", rows=60, features=9, rank=3, axes=True)
    assert np.all(axes.X[:, :3].argmax(axis=1) == np.arange(60) % 3)
    assert np.count_nonzero(axes.X) == 60
    with pytest.raises(UserError, match="rank=10 is more than features=9"):
        datasets.load("synthetic_low_rank", features=9)


def test_rare_coordinates_are_rarer_by_the_ratio() -> None:
    data = datasets.load("synthetic_sparse", rows=2000, features=64, scales=3, ratio=0.25, dense=0.0)
    counts = np.bincount(data.X.argmax(axis=1), minlength=3)
    np.testing.assert_allclose(counts / 2000, np.array([1, 0.25, 0.0625]) / 1.3125, atol=1e-3)
    with pytest.raises(UserError, match="scales=9 is more than features=8"):
        datasets.load("synthetic_sparse", features=8, scales=9)
