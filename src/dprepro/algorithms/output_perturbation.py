"""Output perturbation: gradient descent without noise, then one noisy release of its last iterate.

Zhang, Zheng, Mou and Wang: Efficient private ERM for smooth objectives (IJCAI 2017), the rows [34] of WYX17's Tables 1
and 2.

Stability, which is all that privacy rests on: a step x - eta grad F^r(x) contracts by 1 - eta mu for
eta <= 2/(mu + beta), where beta is the smoothness of F^r, and replacing one record moves it by at most 2 G eta / n.
After T steps the iterates on neighbours are at most (2 G eta/n) (1 + q + ... + q^(T-1)) apart, q = 1 - eta mu: that is
2G/(n mu) (1 - q^T), or 2 G eta T / n if mu = 0. A projection expands no distance, so a constraint changes nothing. No
noise hides what rounding adds to that distance on the way: the steps are taken in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import Algorithm, Condition, Letter, Plan, Setting, UtilityBound, refuse_vacuous
from dprepro.errors import UserError
from dprepro.privacy.events import GaussianEvent, QueryPart

if TYPE_CHECKING:
    from dprepro.run import Execution

Array = Any

RELEASE = "last iterate"
# Without noise the balance of errors asks for infinitely many steps: this many, or until 1e-8 of the distance is left.
STEPS_WITHOUT_NOISE = 1000
DISTANCE_WITHOUT_NOISE = 1e-8


@dataclass(frozen=True, kw_only=True)
class OutputPerturbationPlan(Plan):
    """T gradient steps of size eta, balanced for a minimiser at distance D.

    `stability` is the distance between outputs on neighbours that is proved above, `stability_published` the one that
    the published noise is made for.
    """

    T: int
    eta: float
    D: float
    stability: float
    stability_published: float


class OutputPerturbation(Algorithm):
    """Gradient descent whose last iterate gets Gaussian noise."""

    name = "output_perturbation"
    title = "Output perturbation"
    paper = "ZZMW17"
    needs = frozenset({"smooth", "convex", "smooth_regularizer", "lipschitz"})
    plan_type = OutputPerturbationPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "gradient steps"),
        "eta": Letter(float, "step size, at most 2/(mu + beta)"),
        "D": Letter(float, "distance from the start to a minimiser, for which T is balanced"),
    }

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> OutputPerturbationPlan:
        """Fill in what is not given: eta = 1/beta of F^r, D = 1 or the set's radius, T by the balance of errors."""
        problem = setting.problem
        n, G, mu = problem.n, problem.G, problem.mu
        beta = problem.L + mu
        eta = given.get("eta", 1.0 / beta)
        if eta * (mu + beta) > 2.0 * (1.0 + 1e-12):
            raise UserError(
                f"eta of {self.name} is {eta:g}: a gradient step is stable, which privacy rests on, only up to "
                f"2/(mu + beta) = {2.0 / (mu + beta):.4g}; give a smaller eta."
            )
        D = given.get("D", min(1.0, problem.constraint.radius))
        T = given.get("T") or _steps(setting, eta, D)
        published = 5.0 * G * (mu + beta) / (n * mu * beta) if mu > 0 else 3.0 * G * eta * T / n
        sigma = 0.0
        if setting.noisy:
            sigma = math.sqrt(2.0 * math.log(1.25 / setting.delta)) * published / setting.epsilon
        stability = _stability(G, eta, mu, T, n)
        # Linear losses attain it where no projection brings the points together.
        attained = setting.spread_attained and "unconstrained" in problem.properties
        return OutputPerturbationPlan(
            **self.plan_head(setting),
            theorem="ZZMW17, output perturbation of gradient descent",
            sigma=sigma,
            rounds=1,
            gradient_evaluations=T * n,
            utility=_utility(setting, D),
            events=(GaussianEvent(RELEASE, sigma, (QueryPart(stability, n, n),), 1, attained=attained),),
            conditions=_conditions(setting),
            T=T,
            eta=eta,
            D=D,
            stability=stability,
            stability_published=published,
        )

    def run(self, plan: OutputPerturbationPlan, ex: Execution) -> Array:
        """Descend in double precision, then add noise once; only what is released is a checkpoint."""
        with ex.in_double():
            x = ex.start()
            for _ in range(plan.T):
                x = ex.project(x - plan.eta * (ex.full_gradient(x) + ex.regularizer_gradient(x)))
            (z,) = ex.gaussian(RELEASE).noise(1)
            x = ex.project(x + ex.double(z))
        # The noise is in x: rounding it looks at no data.
        x = ex.rounded(x)
        ex.checkpoint(x)
        return x


def _conditions(setting: Setting) -> tuple[Condition, ...]:
    """Return the condition of the published noise; a calibrated one has none."""
    if setting.variant != "published":
        return ()
    text = "epsilon <= 1, for the classical Gaussian mechanism"
    return (Condition(text, setting.epsilon <= 1.0, f"epsilon = {setting.epsilon:g}", privacy=True),)


def _stability(G: float, eta: float, mu: float, T: int, n: int) -> float:
    """Return (2 G eta/n) (1 + q + ... + q^(T-1)) with q = 1 - eta mu, accurate for small eta mu too."""
    rate = eta * mu
    steps = -math.expm1(T * math.log1p(-rate)) / rate if rate > 0 else float(T)
    return 2.0 * G * eta * steps / n


def _steps(setting: Setting, eta: float, D: float) -> int:
    """Return the T that brings the optimisation error down to the noise, up to constants.

    With mu > 0 the distance D (1 - eta mu)^T is to reach G sqrt(p ln(1/delta))/(n eps mu). With mu = 0 the error
    D^2/(2 eta T) of gradient descent is to equal that of the noise, L p (G eta T)^2 ln(1/delta)/(2 n^2 eps^2).
    """
    problem = setting.problem
    if not setting.noisy:
        return (
            max(1, math.ceil(-math.log(DISTANCE_WITHOUT_NOISE) / (eta * problem.mu)))
            if problem.mu
            else (STEPS_WITHOUT_NOISE)
        )

    def gain(n: float) -> float:
        return D * setting.signal(n) * (problem.mu or problem.L)

    if setting.variant != "practical":
        refuse_vacuous(
            setting,
            lambda n: gain(n) > 1.0,
            "output_perturbation has no step",
            f"the noise exceeds the distance to a minimiser, taken as {D:g}",
        )
    if problem.mu:
        return max(1, math.ceil(math.log(max(gain(problem.n), 1.0)) / (eta * problem.mu)))
    return max(1, math.ceil(gain(problem.n) ** (2.0 / 3.0) / (eta * problem.L)))


def _utility(setting: Setting, D: float) -> UtilityBound:
    """Return the bounds of ZZMW17 as WYX17's tables quote them, with the constants of the problem."""
    problem, signal = setting.problem, setting.signal()
    if problem.mu > 0:
        formula = "beta p G^2 ln(1/delta) / (n^2 epsilon^2 mu^2)"
        value = (problem.L + problem.mu) / (signal * problem.mu) ** 2
        return UtilityBound("ZZMW17; WYX17, Table 1", "optimality gap", formula, value)
    formula = "L^(1/3) (D^2 G sqrt(p ln(1/delta)) / (n epsilon))^(2/3)"
    value = problem.L ** (1.0 / 3.0) * (D**2 / signal) ** (2.0 / 3.0)
    return UtilityBound("ZZMW17; WYX17, Table 2", "optimality gap", formula, value)


ALGORITHM = OutputPerturbation()
