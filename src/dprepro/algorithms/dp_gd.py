"""DP-GD (WYX17, Algorithm 4; privacy Theorem 6.1, utility Theorems 6.2 and 6.3).

Under strong convexity the last iterate alone leaks less than all of them: with `release = last` the plan is accounted
by the last-iterate theorem of Bok, Su and Altschuler (2024), and only the output is covered by the certificate.

On a population it is the noisy gradient method of Zhou et al. (2020), on generalised linear models in full dimension
the method of Song et al. (2021): the previous best of ABG23's Table 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import Algorithm, Condition, Letter, Plan, Setting, UtilityBound, refuse_vacuous
from dprepro.errors import UserError
from dprepro.metrics import SQUARED_GRADIENT
from dprepro.privacy.events import GaussianEvent

if TYPE_CHECKING:
    from dprepro.run import Execution

Array = Any

STEP = "gradient step"
# Without noise the theorems' number of steps is infinite.
STEPS_WITHOUT_NOISE = 1000
# The practical variant: this part of the steps that balance the two terms of the bound, with its true constants.
PRACTICAL_STEPS = 0.5


@dataclass(frozen=True, kw_only=True)
class DPGDPlan(Plan):
    """Numbers of Algorithm 4: T full-gradient steps of size eta; `output` is `last` or `uniform`.

    `mu` is the constant of the Polyak-Lojasiewicz condition that T was computed from, 0 if none is known, and F0 the
    initial gap that T was balanced for; `release` says whether the certificate covers `all` iterates or the `last` one
    only.
    """

    T: int
    eta: float
    c: float
    mu: float
    F0: float
    output: str
    release: str


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
        "c": Letter(float, "the open constant of the noise variance, equation (11)", constant="set here"),
        "mu": Letter(float, "constant of the Polyak-Lojasiewicz condition, if known; else that of the regularizer"),
        "F0": Letter(float, "bound on F(0) - min F, for the number of steps where no mu is known"),
        "output": Letter(str, "which iterate is returned", choices=("last", "uniform")),
        "release": Letter(str, "which iterates the certificate covers", choices=("all", "last")),
    }

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> DPGDPlan:
        """Fill in what is not given: eta = 1/L of F^r, T by Theorem 6.2 if a mu > 0 is known, else by 6.3."""
        problem = setting.problem
        n = problem.n
        smoothness = problem.L + problem.regularizer.l2
        eta = given.get("eta", 1.0 / smoothness)
        mu = given.get("mu", problem.mu)
        F0 = given.get("F0", 1.0)
        T = given.get("T") or _steps(setting, smoothness, mu, F0)
        c = given.get("c", 1.0)
        output, release = given.get("output", "last"), given.get("release", "all")
        if (output, release) == ("uniform", "last"):
            raise UserError("dp_gd cannot return a uniform iterate and certify the last one only: set output=last.")
        sigma = setting.noise(c, T)
        return DPGDPlan(
            **self.plan_head(setting),
            theorem="WYX17, Theorem 6.1" if release == "all" else "Bok, Su and Altschuler 2024, last iterate",
            sigma=sigma,
            # Where the last iterate alone is released, no other is kept.
            rounds=T if release == "all" else 1,
            gradient_evaluations=T * n,
            utility=_utility(setting, mu),
            events=(
                GaussianEvent(
                    STEP,
                    sigma,
                    (setting.full_part,),
                    T,
                    _contraction(setting, eta, smoothness) if release == "last" else 1.0,
                    # Linear losses make each step a contraction by just that much, unless a projection adds to it.
                    attained=setting.spread_attained and (release == "all" or "unconstrained" in problem.properties),
                ),
            ),
            conditions=_conditions(eta * smoothness, release),
            T=T,
            eta=eta,
            c=c,
            mu=mu,
            F0=F0,
            output=output,
            release=release,
        )

    def run(self, plan: DPGDPlan, ex: Execution) -> Array:
        """Execute Algorithm 4; a constraint is kept by projection, which sees no data."""
        x = ex.start()
        chosen = ex.uniform_index(plan.T) if plan.output == "uniform" else None
        output = x
        for t, z in enumerate(ex.gaussian(STEP).noise(plan.T)):
            if chosen is not None:
                output = ex.xp.where(chosen == t, x, output)
                ex.candidate(x, t, plan.T)
            nabla = ex.full_gradient(x) + ex.regularizer_gradient(x)
            # Its mean over the steps is the expectation over a uniform output that Theorem 6.3 bounds.
            ex.observe(SQUARED_GRADIENT, ex.xp.sum(nabla * nabla, axis=-1))
            x = ex.project(x - plan.eta * (nabla + z))
            if plan.release == "all":
                ex.checkpoint(x)
        if plan.release == "last":
            ex.checkpoint(x)
        return x if chosen is None else output


def _conditions(eta_L: float, release: str) -> tuple[Condition, ...]:
    conditions: tuple[Condition, ...] = (Condition("eta <= 1/L", eta_L <= 1.0 + 1e-12, f"eta L = {eta_L:.3g}"),)
    if release == "last":
        detail = "no other iterate is recorded"
        conditions += (Condition("only the last iterate is released", True, detail, privacy=True),)
    return conditions


def _contraction(setting: Setting, eta: float, smoothness: float) -> float:
    """Return the Lipschitz constant 1 - eta mu of x -> x - eta grad F^r(x), for eta <= 2/(mu + L).

    A projection is 1-Lipschitz, so a constraint changes nothing. Beyond that step the constant comes from the steep
    directions, where iterates change sides, and the bound would not be attained.
    """
    l2 = setting.problem.mu
    if not (setting.problem.loss.convex and l2 > 0.0):
        raise UserError("dp_gd with release=last needs strong convexity: add an l2 regularizer, or set release=all.")
    largest = 2.0 / (l2 + smoothness)
    if eta > largest * (1.0 + 1e-12):
        raise UserError(f"dp_gd with release=last needs eta <= {largest:.3g}, got {eta:g}: give a smaller eta.")
    # A step that jumps to the optimum forgets everything before it; the formula wants a positive number.
    return max(1.0 - eta * l2, 1e-12)


def _utility(setting: Setting, mu: float) -> UtilityBound:
    """Return Theorem 6.2's bound where a mu > 0 is known, else Theorem 6.3's on the gradient."""
    problem, signal = setting.problem, setting.signal()
    if mu > 0:
        formula = "p ln(n)^2 G^2 ln(1/delta) / (n^2 epsilon^2)"
        return UtilityBound("WYX17, Theorem 6.2", "optimality gap", formula, (math.log(problem.n) / signal) ** 2)
    formula = "sqrt(L) G sqrt(p ln(1/delta)) / (n epsilon)"
    value = math.sqrt(problem.L) / signal
    return UtilityBound("WYX17, Theorem 6.3", SQUARED_GRADIENT, formula, value)


def _steps(setting: Setting, smoothness: float, mu: float, F0: float) -> int:
    """Return T: (L/mu) ln(n^2 eps^2/(p G^2 ln(1/delta))), or sqrt(2 L F0) n eps/(G sqrt(p ln(1/delta))).

    The first is Theorem 6.2's with its hidden condition number. The second balances the two terms of (87) for an
    initial gap of F0; the printed sqrt(L n eps) does not. In practice it is a part of the T that balances them for the
    calibrated noise, which in one step has the length G a: sqrt(2 L F0)/(G a).
    """
    if not setting.noisy:
        return STEPS_WITHOUT_NOISE
    refuse_vacuous(
        setting, lambda n: setting.signal(n) > 1.0, "dp_gd has no step", "the bound of WYX17 Theorem 6.2 exceeds 1"
    )
    if mu > 0:
        return max(1, math.ceil(smoothness / mu * math.log(setting.signal() ** 2)))
    if setting.variant == "practical":
        # On a generalized linear model noise outside the span of the rows moves no gradient (Song et al. 2021).
        problem = setting.problem
        seen = min(problem.d, problem.rank or problem.d) / problem.d
        balanced = math.sqrt(2.0 * smoothness * F0 / seen) / (problem.G * setting.relative_noise())
        return max(1, math.ceil(PRACTICAL_STEPS * balanced))
    return max(1, math.ceil(math.sqrt(2.0 * smoothness * F0) * setting.signal()))


ALGORITHM = DPGD()
