"""DP-GD (WYX17, Algorithm 4; privacy Theorem 6.1, utility Theorems 6.2 and 6.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import Algorithm, Condition, Letter, Plan, Setting, UtilityBound, smallest_n
from dprepro.errors import VacuousSetting
from dprepro.privacy.events import GaussianEvent, QueryPart

if TYPE_CHECKING:
    from dprepro.run import Execution

Array = Any

STEP = "gradient step"
# Without noise the theorems' number of steps is infinite.
STEPS_WITHOUT_NOISE = 1000


@dataclass(frozen=True, kw_only=True)
class DPGDPlan(Plan):
    """Numbers of Algorithm 4: T full-gradient steps of size eta; `output` is `last` or `uniform`."""

    T: int
    eta: float
    c: float
    output: str


class DPGD(Algorithm):
    """Gradient descent with Gaussian noise in every step."""

    name = "dp_gd"
    title = "DP-GD"
    paper = "WYX17"
    needs = frozenset({"smooth", "smooth_regularizer", "lipschitz"})
    plan_type = DPGDPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "steps"),
        "eta": Letter(float, "step size, at most 1/L in the theorems"),
        "c": Letter(float, "the open constant of the noise variance, equation (11)"),
        "output": Letter(str, "which iterate is returned", choices=("last", "uniform")),
    }

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> DPGDPlan:
        """Fill in what is not given: eta = 1/L of F^r, T by Theorem 6.2 if strongly convex, else 6.3."""
        problem = setting.problem
        n, G = problem.n, problem.G
        smoothness = problem.L + problem.regularizer.l2
        eta = given.get("eta", 1.0 / smoothness)
        T = given.get("T") or _steps(setting, smoothness)
        c = given.get("c", 1.0)
        sigma = 0.0
        if setting.noisy:
            sigma = math.sqrt(c * T * math.log(1.0 / setting.delta)) * G / (n * setting.epsilon)
        return DPGDPlan(
            algorithm=self.name,
            variant=setting.variant,
            theorem="WYX17, Theorem 6.1",
            n=n,
            d=problem.d,
            epsilon=setting.epsilon,
            delta=setting.delta,
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * n,
            utility=_utility(setting),
            events=(GaussianEvent(STEP, sigma, (QueryPart(2.0 * G / n, n, n),), T),),
            conditions=(Condition("eta <= 1/L", eta * smoothness <= 1.0 + 1e-12, f"eta L = {eta * smoothness:.3g}"),),
            T=T,
            eta=eta,
            c=c,
            output=given.get("output", "last"),
        )

    def run(self, plan: DPGDPlan, ex: Execution) -> Array:
        """Execute Algorithm 4; a constraint is kept by projection, which sees no data."""
        x = ex.start()
        chosen = ex.uniform_index(plan.T) if plan.output == "uniform" else None
        output = x
        for t, z in enumerate(ex.gaussian(STEP).noise(plan.T)):
            if chosen is not None:
                output = ex.xp.where(chosen == t, x, output)
            x = ex.project(x - plan.eta * (ex.full_gradient(x) + ex.regularizer_gradient(x) + z))
            ex.checkpoint(x)
        return x if chosen is None else output


def _utility(setting: Setting) -> UtilityBound:
    """Return Theorem 6.2's bound under strong convexity, else Theorem 6.3's on the gradient."""
    problem, signal = setting.problem, setting.signal()
    if problem.mu > 0:
        formula = "p ln(n)^2 G^2 ln(1/delta) / (n^2 epsilon^2)"
        return UtilityBound("WYX17, Theorem 6.2", "optimality gap", formula, (math.log(problem.n) / signal) ** 2)
    formula = "sqrt(L) G sqrt(p ln(1/delta)) / (n epsilon)"
    value = math.sqrt(problem.L) / signal
    return UtilityBound("WYX17, Theorem 6.3", "squared gradient norm", formula, value)


def _steps(setting: Setting, smoothness: float) -> int:
    """Return T: (L/mu) ln(n^2 eps^2/(p G^2 ln(1/delta))), or sqrt(2L) n eps/(G sqrt(p ln(1/delta))).

    The first is Theorem 6.2's with its hidden condition number, for strongly convex objectives. The second
    balances the two terms of (87) for an initial gap of one; the printed sqrt(L n eps) does not.
    """
    mu = setting.problem.mu
    if not setting.noisy:
        return STEPS_WITHOUT_NOISE
    if setting.signal() <= 1.0:
        enough = smallest_n(setting, lambda n: setting.signal(n) > 1.0)
        raise VacuousSetting(
            f"dp_gd has no step to run at n = {setting.problem.n}: the bound of WYX17 Theorem 6.2 exceeds 1; "
            f"it makes sense from n = {enough}. Give more data, a larger epsilon, or set T."
        )
    if mu > 0:
        return max(1, math.ceil(smoothness / mu * math.log(setting.signal() ** 2)))
    return max(1, math.ceil(math.sqrt(2.0 * smoothness) * setting.signal()))


ALGORITHM = DPGD()
