"""DP-SVRG (WYX17, Algorithm 1; privacy Theorem 4.1, utility Theorem 4.2)."""

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
from dprepro.algorithms.base import Algorithm, Condition, Letter, Setting, UtilityBound, refuse_vacuous
from dprepro.privacy.events import Event, UnprotectedEvent

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.problems.erm import ProblemSpec
    from dprepro.run import Execution

Array = Any

BB_STEP = "Barzilai-Borwein step size"
# The practical noise falls by this power of an epoch's contraction, lest it outrun it, and no faster than to a quarter.
FALL_TO_CONTRACTION, FASTEST_FALL = 0.8, 0.25
# Without noise the theorem's number of epochs is infinite: enough halvings to exhaust double precision.
EPOCHS_WITHOUT_NOISE = 52


@dataclass(frozen=True, kw_only=True)
class DPSVRGPlan(InnerPlan):
    """Numbers of Algorithm 1: T epochs of m inner steps on b records, of size eta (of the first epoch if bb)."""

    m: int
    eta: float
    c: float
    step: str


class DPSVRG(Algorithm):
    """Stochastic variance-reduced gradient descent with Gaussian noise in every inner step."""

    name = "dp_svrg"
    title = "DP-SVRG"
    paper = "WYX17"
    needs = frozenset({"smooth", "convex", "strongly_convex", "lipschitz"})
    plan_type = DPSVRGPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "epochs"),
        "m": Letter(int, "inner steps per epoch"),
        "b": Letter(int, "records per inner step (1 in the paper)"),
        "eta": Letter(float, "step size; with step=bb that of the first epoch"),
        "c": Letter(float, "the open constant of the noise variance, equation (3)", constant="set here"),
        "step": Letter(str, "step size rule", choices=("constant", "bb")),
        **LETTERS,
    }

    def audit_case(self) -> Case:
        """Return a case in which the sampled difference leaks; the output alone would hide it."""
        from dprepro.privacy.cases import drifting_case

        return drifting_case({"T": 1, "m": 20, "b": 10, "eta": 10.0})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> DPSVRGPlan:
        """Fill in what is not given: eta = 1/(40 L), m by inequality (4), T by Theorem 4.2."""
        problem = setting.problem
        n, L, mu = problem.n, problem.L, problem.mu
        eta = given.get("eta", 1.0 / (40.0 * L))
        m = given.get("m") or math.floor(200.0 * L / mu + 1.0) + 1
        T = given.get("T") or _epochs(setting)
        c = given.get("c", 1.0)
        step = given.get("step", "constant")
        epochs = _schedule(problem, T, m, eta)
        inner = Inner.of(setting, given, epochs)
        sigma = setting.noise(c, T * m)
        events: tuple[Event, ...] = inner.events(setting, sigma, epochs)
        if step == "bb" and T > 1:
            events += (UnprotectedEvent(BB_STEP, T - 1),)
        return DPSVRGPlan(
            **self.plan_head(setting),
            theorem="WYX17, Theorem 4.1",
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * (n + 2 * inner.b * m),
            utility=UtilityBound(
                "WYX17, Theorem 4.2",
                "optimality gap",
                "p ln(n) G^2 ln(1/delta) / (n^2 epsilon^2 mu)",
                math.log(n) / (setting.signal() ** 2 * mu),
            ),
            events=events,
            conditions=(
                sampling_condition(setting, "T m", T * m),
                *inner_conditions(setting, inner, sigma, epochs),
                *_step_conditions(problem, m, eta, step),
            ),
            m=m,
            eta=eta,
            c=c,
            step=step,
            **asdict(inner),
        )

    def run(self, plan: DPSVRGPlan, ex: Execution) -> Array:
        """Execute Algorithm 1; comments give its line numbers."""
        x_tilde = ex.start()
        inner = plan.inner
        mechanisms = {label: ex.gaussian(label) for label in inner.labels}
        eta: Any = plan.eta
        x_before = v_before = None
        for s in range(1, plan.T + 1):
            v_tilde = ex.full_gradient(x_tilde)  # 3
            if plan.step == "bb" and s > 1:
                eta = _barzilai_borwein(ex, plan.m, x_tilde - x_before, v_tilde - v_before, eta)
            x_before, v_before = x_tilde, v_tilde
            mechanism, radius = mechanisms[inner.label(s)], inner.radius(s)
            _, total = inner_steps(ex, mechanism, plan.m, x_tilde, x_tilde, v_tilde, eta, radius)  # 4 to 9
            x_tilde = total / plan.m  # 10
            ex.checkpoint(x_tilde)
        return x_tilde  # 12


def contraction(eta: float, m: int, L: float, mu: float) -> float:
    """Return the left-hand side of inequality (4), infinite where its denominators are not positive."""
    slack = 1.0 - 8.0 * eta * L
    progress = eta * slack * mu * m
    if progress <= 0.0:
        return math.inf
    return 1.0 / progress + 8.0 * L * eta * (m + 1) / (m * slack)


def _schedule(problem: ProblemSpec, T: int, m: int, eta: float) -> Epochs:
    """Return the epochs with their contraction in the flattest direction: (1 - e^-a)/a in distance, a = eta m mu.

    The first gradient is at least mu times the distance to the optimum; that much is counted on.
    """
    a = eta * m * problem.mu
    rate = -math.expm1(-a) / a if a > 0.0 else 1.0  # a product of tiny letters may vanish
    first = min(problem.G, problem.mu * DISTANCE / problem.row_norm)
    return Epochs(
        T=T,
        eta=eta,
        steps=lambda first, last: (last - first + 1) * m,
        leftover=lambda s: first * rate ** (s - 1),
        fall=max(rate**FALL_TO_CONTRACTION, FASTEST_FALL),
    )


def _epochs(setting: Setting) -> int:
    """Return T = ceil(log2(n^2 eps^2 mu / (p G^2 ln(1/delta)))) of Theorem 4.2 with contraction 1/2."""
    if not setting.noisy:
        return EPOCHS_WITHOUT_NOISE

    def gain(n: float) -> float:
        return setting.signal(n) ** 2 * setting.problem.mu

    refuse_vacuous(setting, lambda n: gain(n) > 1.0, "dp_svrg has no epoch", "the bound of WYX17 Theorem 4.2 exceeds 1")
    return math.ceil(math.log2(gain(setting.problem.n)))


def _step_conditions(problem: ProblemSpec, m: int, eta: float, step: str) -> tuple[Condition, ...]:
    value = contraction(eta, m, problem.L, problem.mu)
    conditions: tuple[Condition, ...] = (
        Condition("inequality (4): contraction below 1/2", value < 0.5, f"left-hand side {value:.6g}"),
    )
    if step == "bb":
        conditions += (
            Condition(
                "the step size depends on released values only",
                False,
                "the Barzilai-Borwein step uses full gradients without noise; Theorem 4.1 does not cover it",
                privacy=True,
            ),
        )
    return conditions


def _barzilai_borwein(ex: Execution, m: int, dx: Array, dv: Array, previous: Any) -> Array:
    """Return SVRG-BB's step ||dx||^2 / (m <dx, dg>) per replicate as (K, 1); dg includes the l2 term.

    An epoch that did not move gives no curvature; the previous step is then kept.
    """
    xp = ex.xp
    ex.unprotected(BB_STEP)
    dg = dv + ex.regularizer_gradient(dx)
    curvature = m * xp.sum(dx * dg, axis=-1, keepdims=True)
    moved = curvature > 0.0
    safe = xp.where(moved, curvature, xp.ones_like(curvature))
    step = xp.sum(dx * dx, axis=-1, keepdims=True) / safe
    return xp.where(moved, step, xp.zeros_like(step) + previous)


ALGORITHM = DPSVRG()
