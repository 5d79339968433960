"""DP-SVRG++ (WYX17, Algorithm 2; privacy Theorem 4.3, utility Theorem 4.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms._svrg import (
    DISTANCE,
    LETTERS,
    Epochs,
    Inner,
    InnerPlan,
    inner_conditions,
    inner_steps,
    sampling_condition,
)
from dprepro.algorithms.base import Algorithm, Letter, Setting, UtilityBound, refuse_vacuous
from dprepro.errors import UserError

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.problems.erm import ProblemSpec
    from dprepro.run import Execution

Array = Any

# 2^40 inner steps would take months.
MOST_EPOCHS = 40


@dataclass(frozen=True, kw_only=True)
class DPSVRGPPPlan(InnerPlan):
    """Numbers of Algorithm 2: T epochs, epoch s with 2^s m inner steps of size eta on b records."""

    m: int
    eta: float
    c: float


class DPSVRGPP(Algorithm):
    """SVRG++ with epochs of doubling length for objectives that are not strongly convex."""

    name = "dp_svrg_pp"
    title = "DP-SVRG++"
    paper = "WYX17"
    needs = frozenset({"smooth", "convex", "lipschitz"})
    plan_type = DPSVRGPPPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "epochs"),
        "m": Letter(int, "half the inner steps of the first epoch"),
        "b": Letter(int, "records per inner step (1 in the paper)"),
        "eta": Letter(float, "step size"),
        "c": Letter(float, "the open constant of the noise variance, equation (6)", constant="set here"),
        **LETTERS,
    }

    def audit_case(self) -> Case:
        """Return a case in which the sampled difference leaks; the output alone would hide it."""
        from dprepro.privacy.cases import drifting_case

        return drifting_case({"T": 1, "m": 10, "b": 10, "eta": 10.0})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> DPSVRGPPPlan:
        """Fill in what is not given: eta = 1/(13 L), m = 10, T by Theorem 4.4."""
        problem = setting.problem
        n = problem.n
        eta = given.get("eta", 1.0 / (13.0 * problem.L))
        m = given.get("m", 10)
        T = given.get("T") or _epochs(setting)
        if T > MOST_EPOCHS:
            raise UserError(f"T of dp_svrg_pp is {T}: its epochs double, so give at most {MOST_EPOCHS}.")
        c = given.get("c", 1.0)
        sigma = 0.0
        if setting.noisy:
            sigma = math.sqrt(c * 2.0**T * m * math.log(2.0 / setting.delta)) * problem.G / (n * setting.epsilon)
        epochs = _schedule(problem, T, m, eta)
        inner = Inner.of(setting, given, epochs)
        return DPSVRGPPPlan(
            **self.plan_head(setting),
            theorem="WYX17, Theorem 4.3",
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * n + 2 * inner.b * epochs.steps(1, T),
            utility=UtilityBound(
                "WYX17, Theorem 4.4",
                "optimality gap",
                "G sqrt(p ln(1/delta)) / (n epsilon)",
                1.0 / setting.signal(),
            ),
            events=inner.events(setting, sigma, epochs),
            conditions=(
                sampling_condition(setting, "2^T m", 2**T * m),
                *inner_conditions(setting, inner, sigma, epochs),
            ),
            m=m,
            eta=eta,
            c=c,
            **asdict(inner),
        )

    def run(self, plan: DPSVRGPPPlan, ex: Execution) -> Array:
        """Execute Algorithm 2."""
        x_tilde = x = ex.start()
        inner = plan.inner
        mechanisms = {label: ex.gaussian(label) for label in inner.labels}
        for s in range(1, plan.T + 1):
            v_tilde = ex.full_gradient(x_tilde)
            m_s = 2**s * plan.m
            mechanism, radius = mechanisms[inner.label(s)], inner.radius(s)
            x, total = inner_steps(ex, mechanism, m_s, x, x_tilde, v_tilde, plan.eta, radius)
            x_tilde = total / m_s  # the next epoch starts from the last x, not from the average
            ex.checkpoint(x_tilde)
        return x_tilde


def _schedule(problem: ProblemSpec, T: int, m: int, eta: float) -> Epochs:
    """Return the epochs with the gap that the theorem leaves after each, D^2 / (eta 2^s m), D the distance to optimum.

    A gap of g allows for a gradient of sqrt(2 (L + l2) g), which falls by sqrt(2) per epoch.
    """
    smoothness = problem.L + problem.regularizer.l2
    last = math.sqrt(2.0 * smoothness / (eta * 2**T * m)) * DISTANCE / problem.row_norm
    return Epochs(
        T=T,
        eta=eta,
        steps=lambda first, last: (2 ** (last + 1) - 2**first) * m,
        leftover=lambda s: min(problem.G, last * 2.0 ** ((T - s) / 2.0)),
        fall=math.sqrt(0.5),
    )


def _epochs(setting: Setting) -> int:
    """Return T = ceil(log2(n eps / (G sqrt(p ln(1/delta))))) of Theorem 4.4.

    Without noise the formula is infinite; T = log2 n then makes the last epoch about m passes long.
    """
    if not setting.noisy:
        return max(1, math.ceil(math.log2(setting.problem.n)))
    refuse_vacuous(
        setting,
        lambda n: setting.signal(n) > 1.0,
        "dp_svrg_pp has no epoch",
        "the bound of WYX17 Theorem 4.4 exceeds 1",
    )
    return math.ceil(math.log2(setting.signal()))


ALGORITHM = DPSVRGPP()
