"""diffprivlib's logistic regression: objective perturbation with gamma noise, for pure epsilon.

The library follows Chaudhuri, Monteleoni and Sarwate (JMLR 2011), Algorithm 2; `objective_perturbation` with
`noise = gamma` is the same method here. With alpha = 1/C = n l2, data norm R and its own epsilon the library minimises

    1/n sum_i log(1 + exp(-y_i <w, x_i>)) + l2/2 ||w||^2 + <b, w>/n,

where b has a density proportional to exp(-||b||/scale) and scale = 2R/(epsilon - 2 ln(1 + R/(4 alpha))). Its neighbours
differ in one replaced record, as here. The library's epsilon is free: as published it is the one that is asked for;
otherwise it is the one at which the accountant here, which charges the curvature once and makes use of delta, finds
what is asked for.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dprepro.algorithms.base import Condition, Letter, Plan, Setting
from dprepro.errors import NotConverged, UserError
from dprepro.peers.base import Peer
from dprepro.privacy.events import ObjectivePerturbationEvent

# The largest component of the gradient at which the library stops; far below the noise b/n for any n of use.
TOLERANCE = 1e-9
ITERATIONS = 30


@dataclass(frozen=True, kw_only=True)
class DiffprivlibPlan(Plan):
    """T iterations of L-BFGS at most; sigma is the scale of b, C and data_norm are the library's own parameters."""

    T: int
    C: float
    data_norm: float

    @property
    def library_epsilon(self) -> float:
        """The epsilon that the library is given: the one at which its noise has the scale sigma."""
        return 2.0 * self.data_norm / self.sigma + _charged(self.data_norm, self.C) if self.sigma else math.inf


class Diffprivlib(Peer):
    """The minimiser of the logistic objective with a random linear term, found and released by diffprivlib."""

    name = "diffprivlib"
    title = "diffprivlib"
    label = "perturbed minimiser"
    needs = Peer.needs | {"strongly_convex"}
    solves_exactly = True
    plan_type = DiffprivlibPlan
    letters: ClassVar[Mapping[str, Letter]] = {"T": Letter(int, "iterations of L-BFGS that are allowed")}

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> DiffprivlibPlan:
        """Compute the library's own noise scale at the epsilon of the setting."""
        problem = setting.problem
        n, T, C = problem.n, given.get("T", ITERATIONS), 1.0 / (problem.n * problem.mu)
        left = setting.epsilon - _charged(problem.row_norm, C)
        if left <= 0.0:
            raise UserError(
                f"diffprivlib would add to the regularizer by itself at epsilon = {setting.epsilon:g}, n = {n} and "
                f"l2 = {problem.mu:g}, and solve another problem: give more data, a larger epsilon or regularizer."
            )
        scale = 2.0 * problem.row_norm / left
        event = ObjectivePerturbationEvent(self.label, "gamma", scale, 2.0 * problem.G, problem.L, n * problem.mu, 1)
        return DiffprivlibPlan(
            **self.plan_head(setting),
            theorem="CMS11, Theorem 9",
            sigma=scale,
            rounds=1,
            gradient_evaluations=T * n,
            utility=None,
            events=(event,),
            conditions=(
                Condition(
                    "the exact minimiser is released",
                    True,
                    f"up to a gradient of {TOLERANCE:g} or rounding, or the run fails, as the library reports it",
                    privacy=True,
                ),
            ),
            T=T,
            C=C,
            data_norm=problem.row_norm,
        )

    def evaluations(self, plan: DiffprivlibPlan) -> int:
        """Return those that are allowed: the library does not tell how many it made."""
        return plan.gradient_evaluations

    def fit(self, plan: DiffprivlibPlan, X: np.ndarray, y: np.ndarray, seed: int) -> Iterator[np.ndarray]:
        """Yield the library's coefficients."""
        from diffprivlib import BudgetAccountant
        from diffprivlib.models import LogisticRegression
        from sklearn.exceptions import ConvergenceWarning

        if np.unique(y).size < 2:
            raise UserError("diffprivlib needs records of both classes: give data with labels -1 and +1.")
        model = LogisticRegression(
            epsilon=plan.library_epsilon,
            data_norm=plan.data_norm,
            C=plan.C,
            fit_intercept=False,
            tol=TOLERANCE,
            max_iter=plan.T,
            # An integer seed has 32 bits only.
            random_state=np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed))),
            # One of its own: the library's default one would add up all fits of the process.
            accountant=BudgetAccountant(),
        )
        with warnings.catch_warnings():
            # Of the arguments that it gives to scikit-learn and SciPy.
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                model.fit(X, y)
            except ConvergenceWarning:
                raise NotConverged(
                    f"diffprivlib did not reach the minimiser in {plan.T} iterations: set a larger T."
                ) from None
        yield model.coef_[0]


def _charged(data_norm: float, C: float) -> float:
    """Return what the library takes of its epsilon for the curvature of the loss."""
    return 2.0 * math.log1p(0.25 * data_norm * C)


ALGORITHM = Diffprivlib()
