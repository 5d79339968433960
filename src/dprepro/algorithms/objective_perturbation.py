"""Objective perturbation: the exact minimiser of an objective with a random linear term, released once.

Kifer, Smith and Thakurta: Private convex empirical risk minimization and high-dimensional regression (COLT 2012),
Algorithm 1, the rows [21] of WYX17's Tables 1 and 2 (`noise = gaussian`); Chaudhuri, Monteleoni and Sarwate:
Differentially private empirical risk minimization (JMLR 2011), Algorithm 2, the row [9][8] (`noise = gamma`, pure
epsilon). In sums over the records, what is minimised is

    J(w) = sum_i f(w, z_i) + n r(w) + Delta/2 ||w||^2 + <b, w>.

Privacy needs the minimiser itself, and both papers leave open how to find it. Here a smooth objective without
constraint is minimised by Newton's method, any other one by accelerated proximal gradient steps; the run fails unless
the gradient of J ends up far below the noise. (A point where J has the gradient e is the minimiser for b - e.) Single
precision does not resolve gradients that small at large n, so that runs of either precision are solved in double.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import Algorithm, Condition, Letter, Plan, Setting, UtilityBound
from dprepro.errors import NotConverged, UserError
from dprepro.privacy.events import ObjectivePerturbationEvent

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

RELEASE = "perturbed minimiser"
# The gradient of J that may remain, over the scale of the noise.
TOLERANCE = 1e-6
NEWTON_STEPS = 20
# Without noise Delta = 0; where the regulariser is not strongly convex either, this share of L makes J so.
LEAST_CONVEXITY = 1e-8
# The practical variant's strong convexity of J, in units of L/epsilon.
PRACTICAL_CONVEXITY = 5.0


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbationPlan(Plan):
    """J's quadratic term Delta, the kind of noise, and T gradients for finding the minimiser by `method`.

    sigma is the scale of b: its standard deviation, or the one in the density exp(-||b||/scale). G, L and mu are the
    constants of one record's loss and of the regulariser.
    """

    T: int
    Delta: float
    noise: str
    method: str
    G: float
    L: float
    mu: float


class ObjectivePerturbation(Algorithm):
    """The minimiser of the objective with a random linear term."""

    name = "objective_perturbation"
    title = "Objective perturbation"
    paper = "KST12"
    # The proof compares determinants of Hessians that differ in one record: of rank one for a loss of <w, x> only.
    needs = frozenset({"smooth", "convex", "lipschitz", "glm"})
    solves_exactly = True
    plan_type = ObjectivePerturbationPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "gradient evaluations over n for finding the minimiser"),
        "Delta": Letter(float, "coefficient of the quadratic term, in sums over the records"),
        "noise": Letter(str, "distribution of the linear term", choices=("gaussian", "gamma")),
    }

    def audit_case(self) -> Case:
        """Return the linear case, on which the curvature leaks nothing, with a Delta that leaves it little to leak."""
        from dprepro.privacy.cases import linear_case

        return linear_case(50, {"Delta": 20.0})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> ObjectivePerturbationPlan:
        """Fill in what is not given: Delta and the noise as in the two papers, T for the tolerance."""
        problem = setting.problem
        n, G, L, mu = problem.n, problem.G, problem.L, problem.mu
        noise = given.get("noise", "gaussian")
        plain = {"smooth_regularizer", "unconstrained"} <= problem.properties
        if noise == "gamma" and not plain:
            raise UserError(
                f"{self.name} with noise=gamma needs a smooth regularizer and no constraint, as CMS11's theorem does: "
                "drop the l1 part and the constraint, or use noise=gaussian."
            )
        Delta, scale = (_gamma if noise == "gamma" else _gaussian)(setting, given.get("Delta"))
        T = given.get("T") or (NEWTON_STEPS if plain else _accelerated_steps(n, L, mu, Delta))
        event = ObjectivePerturbationEvent(RELEASE, noise, scale, 2.0 * G, L, n * mu + Delta, 1)
        return ObjectivePerturbationPlan(
            **self.plan_head(setting),
            theorem="CMS11, Theorem 9" if noise == "gamma" else "KST12, Theorem 2",
            sigma=scale,
            rounds=1,
            gradient_evaluations=T * n,
            utility=_utility(setting, noise),
            events=(event,),
            conditions=(
                Condition(
                    "the exact minimiser is released",
                    True,
                    f"up to a gradient of {TOLERANCE:g} times the noise, or the run fails",
                    privacy=True,
                ),
            ),
            T=T,
            Delta=Delta,
            noise=noise,
            method="newton" if plain else "accelerated",
            G=G,
            L=L,
            mu=mu,
        )

    def run(self, plan: ObjectivePerturbationPlan, ex: Execution) -> Array:
        """Draw the linear term and minimise J / n in double precision."""
        b = ex.double(ex.objective_perturbation(RELEASE).draw()) / plan.n
        minimise = _newton if plan.method == "newton" else _accelerated
        with ex.in_double():
            w, slope = minimise(plan, ex, b)
        if not ex.largest(slope) <= _tolerance(plan):
            raise NotConverged(
                f"{plan.algorithm} did not reach the minimiser: after {plan.T} gradients the slope is "
                f"{ex.largest(slope):.2g}, above {_tolerance(plan):.2g}. Set a larger T, or regularize more."
            )
        # Rounding looks at no data.
        w = ex.rounded(w)
        ex.checkpoint(w)
        return w


def _gaussian(setting: Setting, Delta: float | None) -> tuple[float, float]:
    """Return KST12's Delta = 2L/epsilon and the standard deviation of b.

    The theorem asks for Delta beside the regulariser. The accountant counts the regulariser's strong convexity as
    well, so the practical variant adds only what is missing to a strong convexity that leaves most of epsilon to b.
    """
    problem, epsilon = setting.problem, setting.epsilon
    if not setting.noisy:
        return _without_noise(setting, Delta), 0.0
    if Delta is None and setting.variant == "practical":
        Delta = max(0.0, PRACTICAL_CONVEXITY * problem.L / epsilon - problem.n * problem.mu)
    elif Delta is None:
        Delta = 2.0 * problem.L / epsilon
    return Delta, problem.G * math.sqrt(8.0 * math.log(2.0 / setting.delta) + 4.0 * epsilon) / epsilon


def _gamma(setting: Setting, Delta: float | None) -> tuple[float, float]:
    """Return CMS11's Delta and the scale 2G/epsilon' of b; their Lambda and Delta are n times smaller.

    The Jacobian of the map from b to the minimiser takes 2 ln(1 + L/(n mu)) of epsilon; where nothing would be left,
    Delta raises the strong convexity until half is.
    """
    problem, epsilon = setting.problem, setting.epsilon
    if not setting.noisy:
        return _without_noise(setting, Delta), 0.0

    def left(convexity: float) -> float:
        return epsilon - 2.0 * math.log1p(problem.L / convexity) if convexity > 0 else -math.inf

    own = problem.n * problem.mu
    if Delta is None:
        Delta = 0.0 if left(own) > 0 else problem.L / math.expm1(epsilon / 4.0) - own
    if not left(own + Delta) > 0:
        raise UserError(f"Delta of objective_perturbation is {Delta:g}: too small for noise=gamma; drop it.")
    return Delta, 2.0 * problem.G / left(own + Delta)


def _without_noise(setting: Setting, Delta: float | None) -> float:
    if Delta is not None:
        return Delta
    return 0.0 if setting.problem.mu > 0 else LEAST_CONVEXITY * setting.problem.n * setting.problem.L


def _utility(setting: Setting, noise: str) -> UtilityBound | None:
    """Return the papers' own bounds, with ||w*|| taken as 1.

    For pure epsilon CMS11's has p^2 where WYX17's Table 1, which compares (epsilon, delta)-methods, quotes p.
    """
    problem, signal = setting.problem, setting.signal()
    n_epsilon = problem.n * setting.epsilon
    if noise == "gamma":
        if not problem.mu > 0:
            return None
        formula = "p^2 ln(p)^2 G^2 / (n^2 epsilon^2 mu)"
        value = (problem.d * math.log(max(problem.d, math.e)) * problem.G / n_epsilon) ** 2 / problem.mu
        return UtilityBound("CMS11", "optimality gap", formula, value)
    if problem.mu > 0:
        formula = "p G^2 ln(1/delta) / (n^2 epsilon^2 mu) + L ||w*||^2 / (n epsilon)"
        value = 1.0 / (signal**2 * problem.mu) + problem.L / n_epsilon
        return UtilityBound("KST12; WYX17, Table 1", "optimality gap", formula, value)
    formula = "||w*|| G sqrt(p ln(1/delta)) / (n epsilon)"
    return UtilityBound("KST12; WYX17, Table 2", "optimality gap", formula, 1.0 / signal)


def _tolerance(plan: ObjectivePerturbationPlan) -> float:
    """Return the gradient of J / n at which a point counts as the minimiser."""
    return TOLERANCE * (plan.sigma or plan.G) / plan.n


def _newton(plan: ObjectivePerturbationPlan, ex: Execution, b: Array) -> tuple[Array, Array]:
    """Return the minimiser (K, d) and the norm of its gradient (K, 1), by Newton's method with step halving.

    Newton's direction lowers the norm of the gradient; a step that does not lower it in proportion is taken back
    and halved. Each trial costs one gradient. A replicate that has arrived stays.
    """
    xp = ex.xp
    convexity = plan.mu + plan.Delta / plan.n
    # Directions in which J is flatter than rounding shows are treated as if they had this curvature.
    least = 4.0 * float(xp.finfo(b.dtype).eps) * (plan.L + convexity)
    ridge = (convexity + least) * xp.eye(plan.d, dtype=b.dtype, device=b.device)

    def gradient(w: Array) -> tuple[Array, Array]:
        nabla = ex.full_gradient(w) + ex.regularizer_gradient(w) + (plan.Delta / plan.n) * w + b
        return nabla, xp.linalg.vector_norm(nabla, axis=-1, keepdims=True)

    w = ex.start()
    nabla, slope = gradient(w)
    t, direction = xp.ones_like(slope), xp.zeros_like(w)
    for _ in range(plan.T - 1):
        t = xp.where(slope <= _tolerance(plan), 0.0 * t, t)
        if ex.largest(t) > 0.0:
            direction = xp.linalg.solve(ex.hessians(w) + ridge, nabla[:, :, None])[:, :, 0]
        trial = w - t * direction
        nabla_trial, slope_trial = gradient(trial)
        better = slope_trial <= (1.0 - 0.25 * t) * slope
        w, nabla = xp.where(better, trial, w), xp.where(better, nabla_trial, nabla)
        slope = xp.where(better, slope_trial, slope)
        t = xp.where(better, xp.ceil(t), 0.5 * t)  # back to a whole step, or still none
    return w, slope


def _accelerated(plan: ObjectivePerturbationPlan, ex: Execution, b: Array) -> tuple[Array, Array]:
    """Return the minimiser (K, d) and a bound on its smallest subgradient (K, 1), by Nesterov's method.

    Constant momentum for a strongly convex sum of a smooth and a proximal part (Chambolle and Pock 2016, theorem B.1).
    """
    xp = ex.xp
    eta, root = _acceleration(plan.n, plan.L, plan.mu, plan.Delta)
    w = z = ex.start()
    slope = xp.zeros_like(w)
    for _ in range(plan.T):
        new = ex.prox(z - eta * (ex.full_gradient(z) + (plan.Delta / plan.n) * z + b), eta)
        # J has a subgradient at `new` that differs from (z - new)/eta by at most as much again.
        slope = (2.0 / eta) * (z - new)
        z = new + ((1.0 - root) / (1.0 + root)) * (new - w)
        w = new
    return w, xp.linalg.vector_norm(slope, axis=-1, keepdims=True)


def _acceleration(n: int, L: float, mu: float, Delta: float) -> tuple[float, float]:
    """Return the step eta = 1/(L + Delta/n) and sqrt(q): a step leaves the share 1 - sqrt(q) of the error."""
    eta = 1.0 / (L + Delta / n)
    return eta, math.sqrt(eta * (mu + Delta / n) / (1.0 + eta * mu))


def _accelerated_steps(n: int, L: float, mu: float, Delta: float) -> int:
    """Return the steps that bring the distance to the minimiser down to TOLERANCE/n of that at the start.

    The squared distance is at most 2 kappa (1 - sqrt(q))^T times that at the start.
    """
    _, root = _acceleration(n, L, mu, Delta)
    kappa = (L + mu + Delta / n) / (mu + Delta / n)
    return math.ceil((math.log(2.0 * kappa) + 2.0 * math.log(n / TOLERANCE)) / root)


ALGORITHM = ObjectivePerturbation()
