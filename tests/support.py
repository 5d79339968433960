"""Small problems for tests, and what to do where a program is missing."""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from dprepro.arrays import get_backend
from dprepro.geometry import get_set
from dprepro.losses import get_loss
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.problems.sampled import sphere_quadrature
from dprepro.problems.spiked import SpikedPopulation
from dprepro.regularizers import get_regularizer
from dprepro.run import Execution


class Outcome(NamedTuple):
    """What a command ended with."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


def assert_one_sentence(text: str) -> None:
    """Assert that a text for the user is one sentence on one line."""
    assert "\n" not in text
    assert text[0].isupper()
    assert text[-1] in ".?"
    assert not re.search(r"[.?!]\s", text), f"more than one sentence: {text}"


def require(what: str, found: bool, reason: str) -> None:
    """Skip a test that needs what is not found here, or fail it if DPREPRO_REQUIRE, a list with commas, names it."""
    if found:
        return
    if what in os.environ.get("DPREPRO_REQUIRE", "").split(","):
        pytest.fail(f"DPREPRO_REQUIRE asks for {what}: {reason}")
    pytest.skip(reason)


def rows(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm below one and labels that depend on the first coordinates."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-9)
    y = np.where(X @ np.linspace(3.0, -1.0, d) + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    return X, y


def make_problem(
    n=120, d=7, *, loss="logistic", regularizer=0.1, constraint=None, backend=None, dtype="float64", data=None
) -> EmpiricalRisk:
    X, y = rows(n, d) if data is None else data
    spec = ProblemSpec(
        n=X.shape[0],
        d=X.shape[1],
        loss=get_loss(loss),
        regularizer=get_regularizer(regularizer),
        constraint=get_set(constraint),
    )
    return EmpiricalRisk(spec, X, y, backend or get_backend("cpu", dtype))


def smoothed_gradient(risk: SpikedPopulation, W: np.ndarray, alpha: float, nodes: int = 96) -> np.ndarray:
    """Return the gradient of F_alpha(w) = E F(w + alpha b), b uniform on the unit ball: (K, d) -> (K, d).

    As rows have the norm 1, <x, w + alpha b> = A + C v + alpha c with c a coordinate of a point of the ball. The wider
    of the two terms is averaged in closed form, over the narrower one goes a quadrature. It is exact to 1e-2 for d = 2,
    1e-3 for d = 3, 1e-4 from d = 4 and 1e-8 from d = 10 on.
    """
    first, across, d = W[:, 0], W[:, 1:], W.shape[1]
    rho = np.linalg.norm(across, axis=1)
    A, C = risk._tau * first, risk._kappa * rho
    along, turned = np.empty_like(A), np.empty_like(A)
    narrow = alpha >= C
    v, weights = sphere_quadrature(d - 1, nodes)
    slopes = risk._means(d + 2, A[narrow, None] + C[narrow, None] * v, np.full((1, 1), float(alpha)))[1]
    along[narrow], turned[narrow] = slopes @ weights, slopes @ (weights * v)
    c, weights = sphere_quadrature(d + 2, nodes)
    _, slopes, turns = risk._means(d - 1, A[~narrow, None] + alpha * c, C[~narrow, None])
    along[~narrow], turned[~narrow] = slopes @ weights, turns @ weights
    return np.asarray(risk._turned(risk._tau * along, risk._kappa * turned, across, rho))


def randomised_response_delta(epsilons: Sequence[float], epsilon: float) -> float:
    """Return the delta of randomised responses with these epsilons at `epsilon`, by listing all their outcomes.

    Randomised response is the worst of all pure releases (Murtagh and Vadhan 2016).
    """
    p, q = np.ones(1), np.ones(1)
    for each in epsilons:
        truth, lie = 1.0 / (1.0 + np.exp(-each)), 1.0 / (1.0 + np.exp(each))
        p, q = np.concatenate([p * truth, p * lie]), np.concatenate([q * lie, q * truth])
    return math.fsum(np.maximum(0.0, p - np.exp(epsilon) * q))


class Transcript(Execution):
    """Keeps the noise, with the records drawn beside it, so that a second, plain implementation can replay it."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.draws = []
        self._watched = set()

    def gaussian(self, label):
        mechanism = super().gaussian(label)
        if label not in self._watched:
            mechanism.noise, mechanism.sampled = self._kept(mechanism.noise), self._kept(mechanism.sampled)
            self._watched.add(label)
        return mechanism

    def _kept(self, source):
        def generate(releases):
            for item in source(releases):
                self.draws.append(copy.deepcopy(item))
                yield item

        return generate
