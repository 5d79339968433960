"""MyAlgorithm: gradient descent with Gaussian noise in every step; the output is the last iterate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import Algorithm, Letter, Plan, Setting
from dprepro.privacy.events import GaussianEvent, QueryPart

if TYPE_CHECKING:
    from dprepro.run import Execution

STEP = "gradient step"


# The plan: every number that the run uses, fixed before it sees the data. The fields are the letters below.
@dataclass(frozen=True, kw_only=True)
class MyAlgorithmPlan(Plan):
    """T full-gradient steps of size eta."""

    T: int
    eta: float


class MyAlgorithm(Algorithm):
    """Noisy gradient descent."""

    name = "my_algorithm"  # as the file
    title = "My algorithm"
    # What the theory asks of a problem; another one is refused. See docs/extending.md for all words.
    needs = frozenset({"smooth", "smooth_regularizer", "lipschitz"})
    plan_type = MyAlgorithmPlan
    # What a user may set: positive numbers of a type, or a word of some choices.
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "steps"),
        "eta": Letter(float, "step size"),
    }

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> MyAlgorithmPlan:
        """Fill in what is not given: T = 100 and eta = 1/L."""
        problem = setting.problem  # n, d and the constants G, L, mu; never the data
        n = problem.n
        T = given.get("T", 100)
        eta = given.get("eta", 1.0 / (problem.L + problem.regularizer.l2))
        # How far a release moves if one record is replaced: here one gradient, of norm at most G, in a mean of n.
        # Everything that is accounted rests on it.
        sensitivity = 2.0 * problem.G / n
        # T Gaussian releases together are mu-GDP with mu = sqrt(T) sensitivity / sigma. Without noise mu is infinite.
        sigma = math.sqrt(T) * sensitivity / setting.mu
        return MyAlgorithmPlan(
            **self.plan_head(setting),
            theorem="Gaussian differential privacy of T releases",
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * n,
            # What is released: its noise, the sensitivity of the query over n of n records, and how many times.
            events=(GaussianEvent(STEP, sigma, (QueryPart(sensitivity, n, n),), T),),
            T=T,
            eta=eta,
        )

    # The audit attacks the output on two neighbouring datasets of 50 records with a linear loss and T = 10. If your
    # algorithm cannot run there, or hides there what it leaks elsewhere, say where to attack it:
    #
    # def audit_case(self) -> Case:
    #     from dprepro.privacy.cases import linear_ball_case
    #
    #     return linear_ball_case(50, "l2_ball:1000", {"T": 10, "eta": 1e-6})

    def run(self, plan: MyAlgorithmPlan, ex: Execution) -> Any:
        """Descend; arrays have one row per replicate, and rows must not mix."""
        x = ex.start()
        for z in ex.gaussian(STEP).noise(plan.T):
            x = ex.project(x - plan.eta * (ex.full_gradient(x) + ex.regularizer_gradient(x) + z))
            ex.checkpoint(x)  # ends a round; what is kept here is drawn in figures
        return x


ALGORITHM = MyAlgorithm()
