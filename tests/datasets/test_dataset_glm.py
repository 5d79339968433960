"""Claims about the populations of generalized linear models with labels -1 and +1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dprepro import datasets
from dprepro.arrays import get_backend
from dprepro.errors import UserError
from dprepro.problems.erm import EmpiricalRisk
from dprepro.stages.points import load_point

NAME = "population_low_rank_signs"


def problem(loss: str, rows: int = 100, repeated: bool = False, **parameters: Any) -> EmpiricalRisk:
    """The risk of a loss on the population, as a sweep makes it."""
    dataset = {"name": NAME, "rows": rows, "seed": 0, "parameters": parameters, "repeated": repeated}
    point = {"dataset": dataset, "loss": loss, "regularizer": {}, "constraint": None}
    return load_point(point, get_backend("cpu", "float64"))[0]


def slopes(loss: str, t: np.ndarray) -> np.ndarray:
    """The derivatives of log(1 + e^-t) and of 1/(1 + e^t)."""
    share = 1.0 / (1.0 + np.exp(t))
    return -share if loss == "logistic" else -share * (1.0 - share)


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "sigmoid"])
def test_gradients_are_exact_sums_over_rows_and_labels(loss: str, repeated: bool) -> None:
    parameters: dict[str, Any] = {"features": 9, "rank": 3, "atoms": 32, "parts": 8}
    data = datasets.load(NAME, rows=128, **parameters)
    assert data.population is not None
    W = 3.0 * np.random.default_rng(1).standard_normal((4, 9))
    found = problem(loss, 128, repeated, **parameters).gradient(W)
    for w, gradient in zip(W, found, strict=True):
        expected = np.zeros(9)
        for x, y, p in zip(data.X.astype(float), data.y.astype(float), data.population.probabilities, strict=True):
            expected += p * slopes(loss, y * (x @ w)) * y * x
        np.testing.assert_allclose(gradient, expected, atol=1e-14)


def test_every_row_has_both_labels_in_the_shares_of_a_logistic_model() -> None:
    data = datasets.load(NAME, features=9, rank=3, atoms=64, margin=5.0)
    assert data.population is not None
    assert data.population.rank == np.linalg.matrix_rank(data.X) == 3
    assert np.all(data.X[:, 3:] == 0.0)
    assert data.label_values == (-1.0, 1.0)
    np.testing.assert_array_equal(data.X[:32], data.X[32:])
    np.testing.assert_array_equal(data.y, np.repeat([1.0, -1.0], 32))
    above, below = np.split(data.population.probabilities, 2)
    np.testing.assert_allclose(above + below, 1 / 32, rtol=1e-12)
    truth, *_ = np.linalg.lstsq(data.X[:32, :3].astype(float), np.log(above / below), rcond=None)
    np.testing.assert_allclose(data.X[:32, :3] @ truth, np.log(above / below), atol=1e-9)
    assert np.linalg.norm(truth) == pytest.approx(5.0)


@pytest.mark.parametrize("features", [4, 50])
def test_the_truth_times_the_margin_minimises_the_logistic_risk_whatever_the_number_of_features(features: int) -> None:
    data = datasets.load(NAME, features=features, margin=2.0)
    assert data.population is not None
    above, below = np.split(data.population.probabilities, 2)
    w = np.zeros(features)
    w[:4] = np.linalg.lstsq(data.X[:128, :4].astype(float), np.log(above / below), rcond=None)[0]
    risk = problem("logistic", features=features, margin=2.0)
    assert np.linalg.norm(risk.gradient(w[None, :])) < 1e-14
    assert risk.spec.rank == 4
    assert np.linalg.norm(risk.gradient(np.zeros((1, features)))) > 0.1


def test_records_repeat_the_atoms_where_the_shares_are_whole_and_are_refused_elsewhere() -> None:
    whole = problem("sigmoid", 5 * 8 * 16, repeated=True, atoms=32, parts=8)
    assert whole.spec.n == 640
    assert problem("sigmoid", 64, repeated=True, atoms=32, margin=0.0).spec.n == 64
    for rows, parameters in ((640, {}), (650, {"parts": 8})):
        with pytest.raises(UserError, match=rf"n = {rows} records cannot be copies of 32 atoms in these shares: give"):
            problem("sigmoid", rows, repeated=True, atoms=32, **parameters)


def test_the_jl_method_takes_the_rank_from_the_population() -> None:
    from dprepro.algorithms import get_algorithm
    from dprepro.algorithms.base import Setting
    from dprepro.run import execute

    risk = problem("sigmoid", 4096, repeated=True, atoms=32, parts=16)
    plan = get_algorithm("jl_dp_gd").plan(Setting(risk.spec, 1.0, 1e-5, "practical"), T=2)
    result = execute(plan, risk, seed=0, replicates=range(2))
    assert result.w.shape == (2, 64)
    assert np.all(np.isfinite(result.w))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rank": 9, "features": 8}, "rank=9 is more than features=8"),
        ({"atoms": 5}, "atoms=5 does not make pairs with both labels: give an even number"),
        ({"margin": -1.0}, "margin must be a number from 0 to 1000, got -1"),
        ({"parts": 0}, "parts must be at least 1, got 0"),
    ],
)
def test_senseless_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        datasets.load(NAME, **parameters)
