"""Proximally guided private mirror descent for weakly convex losses (BGM21, Algorithm 2 and Theorem 16).

R rounds, each on n/R samples of its own. Round r minimises F(w) + beta/2 ||w - w_r||_b^2, which is strongly convex,
with a private solver A_SC; the output is a random one of the centres w_r.

The paper takes A_SC from AFKT21 without spelling it out. Ours is composite mirror descent with the proximal term itself
as mirror map, h(w) = 1/2 ||w - w_r||_b^2: as F + rho kappa h is convex, the objective is strongly convex relative to h
with lambda = rho kappa. T steps use all samples of the round, with Gaussian noise on the gradient, eta_t =
2/(lambda (t+1)), and the output is the mean of the points with weights t. A step is a closed form in the dual variable,
followed by an exact Bregman projection where it leaves the set.

Privacy: a record is in one round, where T gradients are released; these compose exactly as Gaussian DP, and rounds look
at disjoint samples. Everything else is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import (
    CALIBRATED,
    Algorithm,
    Condition,
    Letter,
    Plan,
    Setting,
    UtilityBound,
    refuse_vacuous,
)
from dprepro.errors import UserError
from dprepro.geometry import centred_step
from dprepro.privacy.events import GaussianEvent, ParallelEvent, QueryPart
from dprepro.problems.near_stationarity import ProximalSetting, proximal_setting

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

ROUNDS = "rounds"
# With one round the output is the initial point.
FEWEST_ROUNDS = 2
# Every round has an event of its own.
MOST_ROUNDS = 100_000
# In practice the last point is returned: where the risk is curved it forgets the start at a linear rate, so that rounds
# need only grow as the logarithm of n. The multiple was chosen by hand on one population.
ROUNDS_PER_DOUBLING = 2.0


@dataclass(frozen=True, kw_only=True)
class ProxGuidedPlan(Plan):
    """R rounds of T steps on n_r samples each; constants rho, L0 and the diameter D are in the l_b norm.

    sigma is the noise on every gradient, c the constant of its variance where it is not calibrated.
    """

    R: int
    T: int
    n_r: int
    p: float
    b: float
    rho: float
    beta: float
    kappa: float
    kappa_tilde: float
    L0: float
    D: float
    c: float
    output: str


class ProxGuidedMD(Algorithm):
    """Proximal steps on disjoint batches, each solved by noisy mirror descent."""

    name = "prox_guided_md"
    title = "Proximally guided mirror descent"
    paper = "BGM21"
    needs = frozenset({"lipschitz", "bounded"})
    plan_type = ProxGuidedPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "R": Letter(int, "rounds"),
        "T": Letter(int, "steps in each round"),
        "rho": Letter(float, "weak convexity, at least that of the loss"),
        "p": Letter(float, "the norm of the constants, 1 <= p <= 2; that of the ball by default"),
        "c": Letter(
            float, "the constant of the noise variance, c G^2 T ln(1/delta)/(n_r epsilon)^2", constant="set here"
        ),
        "output": Letter(str, "which point to return", choices=("uniform", "last")),
    }

    def audit_case(self) -> Case:
        """Return a linear loss whose one record is in the first round; the score is where that round ended.

        The strength of the proximal term makes steps that stay inside the ball, and two of them count almost alike.
        """
        from dprepro.privacy.cases import linear_ball_case

        case = linear_ball_case(50, "l2_ball:1000", {"R": 2, "T": 2, "rho": 0.1})
        name = "linear loss on l2_ball:1000, first round"
        return replace(case, name=name, score=lambda seen, case, plan: seen.points[0][:, 0])

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> ProxGuidedPlan:
        """Fill in what is not given: R by Theorem 16, T = n/R, and c = 8 by zero-concentrated DP."""
        problem, practical = setting.problem, setting.variant == "practical"
        constants = proximal_setting(problem, given.get("p"), given.get("rho"))
        R = given.get("R") or (_few_rounds if practical else _rounds)(setting, constants)
        most = min(problem.n, MOST_ROUNDS)
        if not FEWEST_ROUNDS <= R <= most:
            raise UserError(
                f"R of {self.name} is {R}: set it to a number from {FEWEST_ROUNDS} to {most}; with one round the "
                "output is the initial point, and every round needs a sample."
            )
        n_r = problem.n // R
        T = given.get("T") or (min(n_r, math.ceil(math.sqrt(problem.n))) if practical else n_r)
        c = given.get("c", 8.0)
        G = _l2_lipschitz(setting, constants)
        sigma = _sigma(setting, c, T, n_r, G)
        return ProxGuidedPlan(
            **self.plan_head(setting),
            theorem="BGM21, Theorem 16",
            sigma=sigma,
            rounds=R,
            gradient_evaluations=R * T * n_r,
            utility=_utility(setting, constants),
            events=(_event(R, T, n_r, sigma, G, setting.spread_attained and G == problem.G),),
            conditions=_conditions(setting, constants, R, n_r),
            R=R,
            T=T,
            n_r=n_r,
            p=constants.p,
            b=constants.b,
            rho=constants.rho,
            beta=constants.beta,
            kappa=constants.kappa,
            kappa_tilde=constants.kappa_tilde,
            L0=constants.L0,
            D=constants.D,
            c=c,
            output=given.get("output", "last" if practical else "uniform"),
        )

    def run(self, plan: ProxGuidedPlan, ex: Execution) -> Array:
        """Execute Algorithm 2; comments give its line numbers."""
        chosen = ex.uniform_index(plan.R)
        w = output = ex.start()  # 1
        for r in range(plan.R):  # 2
            if plan.output == "uniform":
                output = ex.xp.where(chosen == r, w, output)  # 5
                ex.candidate(w)
            w = _strongly_convex(plan, ex, r, w)  # 3, 4
            ex.checkpoint(w)
        return output if plan.output == "uniform" else w


def _strongly_convex(plan: ProxGuidedPlan, ex: Execution, r: int, w_r: Array) -> Array:
    """Return the weighted mean of T noisy composite mirror descent steps on the next n_r samples: A_SC.

    w_{t+1} = argmin_{w in W} <g_t, w> + beta h(w) + B_h(w, w_t) / eta_t; with theta_t the gradient of h at w_t, it is
    the Bregman projection that belongs to (theta_t - eta_t g_t) / (1 + eta_t beta).
    """
    batch = ex.fresh(plan.n_r)
    w, theta, mean = w_r, ex.zeros(), ex.zeros()
    strength = plan.rho * plan.kappa
    for t, z in enumerate(ex.gaussian(_label(r)).noise(plan.T), start=1):
        g = ex.batch_gradient(w, batch) + z + ex.regularizer_subgradient(w)
        eta = 2.0 / (strength * (t + 1))
        w, theta = centred_step(ex.xp, ex.constraint, w_r, (theta - eta * g) / (1.0 + eta * plan.beta), plan.b)
        mean = mean + (2.0 / (t + 1)) * (w - mean)  # weights 1, 2, ..., T
    return mean


def _label(r: int) -> str:
    return f"round {r + 1}"


def _event(R: int, T: int, n_r: int, sigma: float, G: float, attained: bool) -> ParallelEvent:
    """Return the releases of all rounds; replacing a record moves the mean gradient of its round by 2 G / n_r."""
    part = QueryPart(2.0 * G / n_r, n_r, n_r)
    rounds = (GaussianEvent(_label(r), sigma, (part,), T, attained=attained) for r in range(R))
    return ParallelEvent(ROUNDS, tuple((event,) for event in rounds))


def _l2_lipschitz(setting: Setting, constants: ProximalSetting) -> float:
    """Return a bound on the l2 norm of a sample's gradient: d^(1/b - 1/2) times that of the dual norm, or its own."""
    problem, b = setting.problem, constants.b
    return min(float(problem.d ** (1.0 / b - 0.5)) * constants.L0, problem.G)


def _sigma(setting: Setting, c: float, T: int, n_r: int, G: float) -> float:
    """Return sqrt(c T ln(1/delta)) G / (n_r epsilon), or what one round needs where the noise is calibrated.

    The paper gives the order only. By zero-concentrated DP c = 8 is enough for a small epsilon.
    """
    if not setting.noisy:
        return 0.0
    if setting.variant in CALIBRATED:
        from dprepro.privacy.calibrate import smallest_scale

        # The plan as a whole is calibrated afterwards; it takes long if it starts far off, as rounds are many.
        one = GaussianEvent("one round", 1.0, (QueryPart(1.0, 1, 1),), T)
        return smallest_scale((one,), setting.epsilon, setting.delta) * 2.0 * G / n_r
    return math.sqrt(c * T * math.log(1.0 / setting.delta)) * G / (n_r * setting.epsilon)


def _rounds(setting: Setting, constants: ProximalSetting) -> int:
    """Return R = floor(min{sqrt(n D rho / (kappa L0)), (D (n epsilon)^2 rho / (kt kappa^2 L0 d ln(1/delta)))^(1/3)}).

    With fewer than two rounds the output does not depend on the data. More than n are cut, as the theorem's condition
    n d >= rho D / L0 does.
    """
    problem = setting.problem
    width = constants.D * constants.rho / constants.L0

    def rounds(n: float) -> float:
        found = min(n, math.sqrt(n * width / constants.kappa))
        if setting.noisy:
            spread = constants.kappa_tilde * constants.kappa**2 * problem.d * math.log(1.0 / setting.delta)
            found = min(found, (width * (n * setting.epsilon) ** 2 / spread) ** (1.0 / 3.0))
        return found * (1.0 + 1e-12)

    refuse_vacuous(
        setting,
        lambda n: rounds(n) >= FEWEST_ROUNDS,
        f"{ProxGuidedMD.name} has no second round",
        f"Theorem 16 of BGM21 has R = {math.floor(rounds(problem.n))}, and with one the output is the initial point",
        "R",
    )
    return math.floor(rounds(problem.n))


def _few_rounds(setting: Setting, constants: ProximalSetting) -> int:
    """Return the R of the theorem, in practice at most 2 log2(n)."""
    return min(_rounds(setting, constants), math.floor(ROUNDS_PER_DOUBLING * math.log2(setting.problem.n)))


def _conditions(setting: Setting, constants: ProximalSetting, R: int, n_r: int) -> tuple[Condition, ...]:
    problem = setting.problem
    n, d = problem.n, problem.d
    least = constants.rho * constants.D / constants.L0
    conditions: tuple[Condition, ...] = (
        Condition("n d >= rho D / L0", n * d >= least, f"{n * d:g}, {least:.3g}"),
        Condition("all rounds fit into the data", R * n_r <= n, f"{R * n_r} of {n} samples", privacy=True),
    )
    if problem.regularizer.name != "none":
        conditions += (Condition("no regularizer", False, "the theorem bounds the risk of the loss alone"),)
    return conditions


def _utility(setting: Setting, constants: ProximalSetting) -> UtilityBound:
    """Return Theorem 16's bound on theta, with its hidden constant taken as 1."""
    n, d, k = setting.problem.n, setting.problem.d, constants
    value = k.L0**0.75 * (k.kappa * k.D) ** 0.25 / (n * k.rho) ** 0.25
    if setting.noisy:
        noise = d * math.log(1.0 / setting.delta) / ((n * setting.epsilon) ** 2 * k.rho)
        value += (k.kappa_tilde * k.kappa**2 * noise) ** (1.0 / 6.0) * (k.L0**2 * k.D) ** (1.0 / 3.0)
    formula = (
        "max{1, 2 rho D kappa} / sqrt(rho) (L0^(3/4) (kappa D)^(1/4) / (n rho)^(1/4) + (kappa_tilde kappa^2)^(1/6) "
        "(L0^2 D)^(1/3) (d ln(1/delta) / ((n epsilon)^2 rho))^(1/6))"
    )
    return UtilityBound("BGM21, Theorem 16", "near stationarity", formula, k.factor / math.sqrt(k.rho) * value)


ALGORITHM = ProxGuidedMD()
