"""Noisy mirror descent (Talwar, Thakurta, Zhang 2014, arXiv 1411.5417; reference [28] in WYX17's Table 3)."""

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

STEP = "mirror step"
# Without noise the theorem's number of steps is infinite.
STEPS_WITHOUT_NOISE = 1000
# The theorem's number grows like n^2, and its step takes every gradient for as steep as G allows. Chosen by hand on
# one synthetic problem: at most so many steps, and so many times the step size.
STEPS_IN_PRACTICE = 300
STEP_FACTOR_IN_PRACTICE = 10.0


@dataclass(frozen=True, kw_only=True)
class NoisyMirrorDescentPlan(Plan):
    """T mirror steps of size eta; the output is the mean of the points after each."""

    T: int
    eta: float
    c: float


class NoisyMirrorDescent(Algorithm):
    """Mirror descent with Gaussian noise in every gradient."""

    name = "noisy_mirror_descent"
    title = "Noisy mirror descent"
    paper = "TTZ14"
    needs = frozenset({"convex", "lipschitz", "bounded", "centrally_symmetric"})
    plan_type = NoisyMirrorDescentPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "steps"),
        "eta": Letter(float, "step size in units of the mirror map"),
        "c": Letter(
            float, "the constant of the noise variance, c G^2 T ln(1/delta)/(n epsilon)^2", constant="set here"
        ),
    }

    def audit_case(self) -> Case:
        """Return a linear loss with steps that stay inside the ball, where the output sums all noisy gradients."""
        from dprepro.privacy.cases import linear_ball_case

        return linear_ball_case(50, "l2_ball:1000", {"T": 10, "eta": 1e-6})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> NoisyMirrorDescentPlan:
        """Fill in what is not given: T by Table 3's gradient complexity over n, eta by the regret bound."""
        problem = setting.problem
        n, G = problem.n, problem.G
        T = given.get("T") or _steps(setting)
        c = given.get("c", 1.0)
        sigma = setting.noise(c, T)
        return NoisyMirrorDescentPlan(
            **self.plan_head(setting),
            theorem="TTZ14 as in WYX17, Table 3",
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * n,
            utility=UtilityBound(
                "TTZ14 as in WYX17, Table 3",
                "optimality gap",
                "sqrt(G_C^2 + ||C||_2^2) G ln(n) / (n epsilon)",
                _spread(setting) * G * math.log(n) / (n * setting.epsilon),
            ),
            events=(GaussianEvent(STEP, sigma, (setting.full_part,), T, attained=setting.spread_attained),),
            conditions=(),
            T=T,
            eta=given.get("eta", _step_size(setting, T, sigma)),
            c=c,
        )

    def run(self, plan: NoisyMirrorDescentPlan, ex: Execution) -> Array:
        """Take T mirror steps and return the mean of the points after each."""
        z, total, mean = ex.start(), ex.zeros(), ex.zeros()
        for t, b in enumerate(ex.gaussian(STEP).noise(plan.T), start=1):
            nabla = ex.full_gradient(z) + ex.regularizer_subgradient(z)
            z = ex.constraint.mirror_step(ex.xp, z, plan.eta * (nabla + b))
            total = total + z
            mean = total / t
            ex.checkpoint(mean)
        return mean


def _spread(setting: Setting) -> float:
    """Return sqrt(G_C^2 + ||C||_2^2), a bound on the root mean square of max_{v in C} <g, v> for a normal g.

    The radius stands for ||C||_2: the variance of the maximum is at most its square, by Poincare's inequality.
    """
    constraint = setting.problem.constraint
    return math.hypot(constraint.gaussian_width(setting.problem.d), constraint.radius)


def _step_size(setting: Setting, T: int, sigma: float) -> float:
    """Return the eta that minimises the regret bound B_w / (eta T) + eta/2 E max_{v in C} <nabla + b, v>^2.

    In practice it is STEP_FACTOR_IN_PRACTICE times as large.
    """
    problem = setting.problem
    radius = problem.constraint.radius
    l1_slope = problem.regularizer.l1 * math.sqrt(problem.d)
    steepest = radius * (problem.G + problem.regularizer.l2 * radius + l1_slope)
    second_moment = steepest**2 + (sigma * _spread(setting)) ** 2
    eta = math.sqrt(2.0 * problem.constraint.bregman_radius(problem.d) / (T * second_moment))
    return STEP_FACTOR_IN_PRACTICE * eta if setting.variant == "practical" else eta


def _steps(setting: Setting) -> int:
    """Return T = n^2 eps^2 ||C||_2^2 / ((G_C^2 + ||C||_2^2) ln(n)^2), in practice at most STEPS_IN_PRACTICE.

    Table 3 takes ||C||_2 for 1; without it in the numerator T would change with the unit of length.
    """
    if not setting.noisy:
        return STEPS_WITHOUT_NOISE
    problem = setting.problem

    def steps(n: float) -> float:
        return (n * setting.epsilon * problem.constraint.radius / (_spread(setting) * math.log(max(n, math.e)))) ** 2

    refuse_vacuous(
        setting, lambda n: steps(n) >= 1.0, "noisy_mirror_descent has no step", "its T (WYX17, Table 3) is below 1"
    )
    T = math.ceil(steps(problem.n))
    return min(T, STEPS_IN_PRACTICE) if setting.variant == "practical" else T


ALGORITHM = NoisyMirrorDescent()
