"""Noisy subgradient descent on all records, the plain baseline for losses with or without kinks.

As in Bassily, Feldman, Talwar and Thakurta (NeurIPS 2019), with all records in every step instead of a random batch:
the releases then compose exactly as Gaussian DP. The output is the mean of the iterates. Privacy does not need a convex
loss; where the loss is none, there is no bound on the error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import Algorithm, Letter, Plan, Setting, UtilityBound, refuse_vacuous
from dprepro.privacy.events import GaussianEvent

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

STEP = "subgradient step"
# Without noise more steps are always better.
STEPS_WITHOUT_NOISE = 1000
# The balanced step takes every gradient for as steep as G allows. Chosen by hand on four populations: at most so many
# steps, and so many times the step size.
STEPS_IN_PRACTICE = 1000
STEP_FACTOR_IN_PRACTICE = 3.0


@dataclass(frozen=True, kw_only=True)
class NoisyGDPlan(Plan):
    """T steps; their size is eta, if given, else a D / sqrt(T (G^2 + d sigma^2)) for a minimiser within D."""

    T: int
    eta: float | None
    a: float
    c: float
    D: float
    G: float

    @property
    def step_size(self) -> float:
        """The step size, that of the plan's own noise."""
        return self.eta or self.a * self.D / math.sqrt(self.T * (self.G**2 + self.d * self.sigma**2))


class NoisyGD(Algorithm):
    """Projected subgradient descent with Gaussian noise in every step."""

    name = "noisy_gd"
    title = "Noisy subgradient descent"
    paper = "BFTT19"
    needs = frozenset({"lipschitz", "bounded"})
    plan_type = NoisyGDPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "steps"),
        "eta": Letter(float, "step size"),
        "a": Letter(float, "multiple of the step size that balances the regret, if eta is not given"),
        "c": Letter(
            float, "the constant of the noise variance, c G^2 T ln(1/delta)/(n epsilon)^2", constant="set here"
        ),
        "D": Letter(float, "distance from the start to a minimiser"),
    }

    def audit_case(self) -> Case:
        """Return a linear loss with steps that stay inside the ball, where the output sums all noisy gradients."""
        from dprepro.privacy.cases import linear_ball_case

        return linear_ball_case(50, "l2_ball:1000", {"T": 10, "eta": 1e-6})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> NoisyGDPlan:
        """Fill in what is not given: T by the balance of errors, c = 8 by zero-concentrated DP, D the radius."""
        problem = setting.problem
        n, G = problem.n, problem.G
        T = given.get("T") or _steps(setting)
        c = given.get("c", 8.0)
        D = given.get("D", _distance(setting))
        sigma = setting.noise(c, T)
        return NoisyGDPlan(
            **self.plan_head(setting),
            theorem="BFTT19, with all records in every step",
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * n,
            utility=_utility(setting, D) if "convex" in problem.properties else None,
            events=(GaussianEvent(STEP, sigma, (setting.full_part,), T, attained=setting.spread_attained),),
            conditions=(),
            T=T,
            eta=given.get("eta"),
            a=given.get("a", STEP_FACTOR_IN_PRACTICE if setting.variant == "practical" else 1.0),
            c=c,
            D=D,
            G=G,
        )

    def run(self, plan: NoisyGDPlan, ex: Execution) -> Array:
        """Take T steps and return the mean of the points after each."""
        x, mean, eta = ex.start(), ex.zeros(), plan.step_size
        for t, z in enumerate(ex.gaussian(STEP).noise(plan.T), start=1):
            x = ex.prox(x - eta * (ex.full_gradient(x) + z), eta)
            mean = mean + (x - mean) / t
            ex.checkpoint(mean)
        return mean


def _distance(setting: Setting) -> float:
    """Return a bound on the distance of the start from any point: the radius, or the diameter if it is not 0."""
    problem = setting.problem
    return problem.constraint.diameter(2.0, problem.d) if problem.off_centre else problem.constraint.radius


def _utility(setting: Setting, D: float) -> UtilityBound:
    formula = "G D (1 / sqrt(n) + sqrt(d ln(1/delta)) / (n epsilon))"
    value = D * (setting.problem.G / math.sqrt(setting.problem.n) + 1.0 / setting.signal())
    return UtilityBound("BFTT19", "excess population risk", formula, value)


def _steps(setting: Setting) -> int:
    """Return T = min(n, (n eps)^2 / (d ln(1/delta))), in practice at most STEPS_IN_PRACTICE.

    The error is of order G D (1/sqrt(T) + sqrt(d ln(1/delta))/(n eps)) on the sample, and another G D/sqrt(n) for the
    population: more steps than this improve neither.
    """
    if not setting.noisy:
        return STEPS_WITHOUT_NOISE
    problem = setting.problem

    def steps(n: float) -> float:
        return min(n, (n * setting.epsilon) ** 2 / (problem.d * math.log(1.0 / setting.delta)))

    refuse_vacuous(setting, lambda n: steps(n) >= 1.0, "noisy_gd has no step", "noise outweighs every gradient")
    T = math.ceil(steps(problem.n))
    return min(T, STEPS_IN_PRACTICE) if setting.variant == "practical" else T


ALGORITHM = NoisyGD()
