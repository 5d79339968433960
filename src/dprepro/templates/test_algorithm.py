"""Tests of my_algorithm. They fail if it does not converge, miscounts, or leaks more than its plan declares."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dprepro
from dprepro import extensions
from dprepro.algorithms import get_algorithm
from dprepro.arrays import get_backend
from dprepro.geometry import get_set
from dprepro.losses import get_loss
from dprepro.privacy.audit import audit
from dprepro.problems import make_risk
from dprepro.problems.erm import ProblemSpec
from dprepro.problems.optimum import find_optimum
from dprepro.regularizers import get_regularizer

NAME = "my_algorithm"
L2 = 0.1
# Labels so far away that the Huber loss is linear wherever one step leads.
FAR = 1e6


@pytest.fixture(autouse=True)
def this_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the extension folder that this file is in, for one test."""
    monkeypatch.setenv(extensions.VARIABLE, str(Path(__file__).parents[1]))


def rows(n: int = 200, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of norm at most 1 and labels -1 or 1 that depend on them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return X, np.where(X[:, 0] + 0.3 * rng.standard_normal(n) > 0.0, 1.0, -1.0)


def test_without_noise_it_converges_to_the_optimum() -> None:
    X, y = rows()
    spec = ProblemSpec(X.shape[0], X.shape[1], get_loss("logistic"), get_regularizer(L2), get_set(None))
    optimum = find_optimum(make_risk(spec, X, y, get_backend("cpu", "float64"))).objective
    solution = dprepro.solve(NAME, X, y, regularizer=L2, epsilon=math.inf, delta=1e-5, T=2000)
    first, last = solution.result.objective[0, 0] - optimum, solution.objective[0] - optimum
    assert -1e-9 <= last < 1e-3 * first


def test_it_makes_as_many_gradient_evaluations_as_its_steps_take() -> None:
    X, y = rows()
    assert dprepro.solve(NAME, X, y, epsilon=1.0, delta=1e-5, T=7).gradient_evaluations == 7 * len(y)


def one_step(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return the point after one step on a linear loss, always with the same noise, and the plan."""
    choice: dict[str, Any] = {"loss": "huber", "label_bound": FAR, "epsilon": 1.0, "delta": 1e-5}
    solution = dprepro.solve(NAME, X, y, T=1, seed=3, **choice)
    return solution.w[0], solution.plan


def test_one_record_moves_a_release_by_at_most_the_declared_sensitivity() -> None:
    (X, y), (other_X, other_y) = rows(n=20), rows(n=20, seed=1)
    # The last record is replaced in the worst way: its row has norm 1, and its gradient turns round.
    X[-1] /= np.linalg.norm(X[-1])
    other_X[-1], other_y[-1] = X[-1], -y[-1]
    point, plan = one_step(X, FAR * y)
    moves = []
    for i in range(20):
        neighbour_X, neighbour_y = X.copy(), y.copy()
        neighbour_X[i], neighbour_y[i] = other_X[i], other_y[i]
        moved, _ = one_step(neighbour_X, FAR * neighbour_y)
        moves.append(np.linalg.norm(moved - point) / plan.eta)
    declared = sum(part.sensitivity for part in plan.events[0].parts)
    assert max(moves) <= declared * (1.0 + 1e-9)
    assert max(moves) >= 0.999 * declared, "no neighbour comes near what is declared"


def test_the_audit_proves_no_more_than_is_accounted() -> None:
    row = audit(get_algorithm(NAME), variant="certified", epsilon=2.0, delta=1e-3, replicates=4000)
    assert 0.3 < row["epsilon_audited"] <= row["epsilon_accounted"] <= 2.0
