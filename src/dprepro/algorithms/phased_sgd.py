"""Phased SGD for generalized linear losses with kinks (BGM21, Algorithm 4 and Theorems 5 and 19; after FKT20).

One pass over the data in phases of n/2, n/4, ... samples. A phase takes a gradient step on every sample and releases
the mean of its iterates with noise; the next one goes on from there with a quarter of the step size.

Privacy: a step u -> prox(u - eta grad f(u, z)) on a convex L-smooth loss is non-expansive for eta <= 2/L, so that the
iterates on neighbours, once they are 2 eta G apart, stay so, and so does their mean. The phases look at disjoint
samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import (
    SHRINKING_STEPS,
    Algorithm,
    Condition,
    Letter,
    Plan,
    Setting,
    UtilityBound,
    smallest_n,
)
from dprepro.errors import UserError, VacuousSetting
from dprepro.losses import Loss, PiecewiseLinear
from dprepro.privacy.events import GaussianEvent, ParallelEvent, QueryPart
from dprepro.smoothing import MoreauEnvelope, bisection_derivative

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

PHASES = "phases"
# How far one step of each of two neighbours may be off by rounding, in shares of a point's length: a subtraction, a
# product and a projection in double precision.
ROUNDING = 16.0 * 2.0**-53


@dataclass(frozen=True, kw_only=True)
class PhasedSGDPlan(Plan):
    """K phases; phase k takes steps of size eta/4^k on n/2^k samples. sigma is the noise of the first phase.

    D is the diameter of the set, theta the dimension that the noise counts with. The loss is smoothed to its
    beta-envelope (None: it is smooth and taken as it is), in closed form or by bisection to the accuracy alpha for
    rows of norm R.
    """

    K: int
    eta: float
    D: float
    theta: int
    beta: float | None
    oracle: str | None
    alpha: float | None
    R: float

    def samples(self, k: int) -> int:
        """Return T_k, the number of samples of phase k = 1, 2, ..."""
        return self.n >> k

    def step_size(self, k: int) -> float:
        """Return eta_k."""
        return float(self.eta / 4**k)


class PhasedSGD(Algorithm):
    """One pass of SGD on a smoothed loss, in phases whose mean iterates get Gaussian noise."""

    name = "phased_sgd"
    title = "Phased SGD"
    paper = "BGM21"
    needs = frozenset({"convex", "lipschitz"})
    plan_type = PhasedSGDPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "K": Letter(int, "phases, at most log2(n)"),
        "eta": Letter(float, "four times the step size of the first phase"),
        "D": Letter(float, "diameter of the set; without a constraint the unit of length"),
        "theta": Letter(int, "bound on the expected rank of the features, without a constraint only"),
        "beta": Letter(float, "smoothness of the envelope of a loss with kinks"),
        "alpha": Letter(float, "accuracy of the gradients found by bisection"),
        "oracle": Letter(str, "how the envelope's gradients are found", choices=("closed", "bisection")),
    }

    def audit_case(self) -> Case:
        """Return a linear loss whose one record is the first sample of a single phase."""
        from dprepro.privacy.cases import linear_case

        return linear_case(50, {"K": 1, "eta": 1.0})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> PhasedSGDPlan:
        """Fill in what is not given, by Algorithm 4 and Theorem 5; in practice eta balances the true constants."""
        problem = setting.problem
        n, G = problem.n, problem.G
        K = _phases(setting, given)
        diameter = problem.constraint.diameter(2.0, problem.d)
        if diameter == 0.0:
            raise UserError(
                "The set of phased_sgd is a single point, so that nothing is to be chosen: give a larger one."
            )
        D = given.get("D", diameter if math.isfinite(diameter) else 1.0)
        theta = _dimension(setting, given, n)
        beta, oracle, alpha = _oracle(setting, given, D)
        eta = given.get("eta") or _step_size(setting, D, theta, n)
        _check_step(setting, given, eta, beta, D)
        utility = _utility(setting, D, theta)
        sigma = 4.0 * G * (eta / 4.0) / _rho(setting) if setting.noisy else 0.0
        return PhasedSGDPlan(
            **self.plan_head(setting),
            theorem=utility.theorem,
            sigma=sigma,
            rounds=K,
            gradient_evaluations=sum(n >> k for k in range(1, K + 1)),
            utility=utility,
            events=(_event(n, K, eta, sigma, G, alpha or 0.0, _reach(setting, D)),),
            conditions=_conditions(setting, eta, D),
            K=K,
            eta=eta,
            D=D,
            theta=theta,
            beta=beta,
            oracle=oracle,
            alpha=alpha,
            R=problem.row_norm,
        )

    def run(self, plan: PhasedSGDPlan, ex: Execution) -> Array:
        """Execute Algorithm 4; comments give its line numbers. Points that noise took out of the set are projected."""
        ex.require_double("phased_sgd runs", SHRINKING_STEPS)
        ex.replace_loss(_smoothed(ex.loss, plan))
        w = ex.start()  # 1
        for k in range(1, plan.K + 1):  # 7
            T_k, eta_k = plan.samples(k), plan.step_size(k)  # 8, 9
            u, total = w, ex.zeros()
            for z in ex.fresh_samples(T_k):  # 10
                u = ex.prox(u - eta_k * ex.sample_gradient(u, z), eta_k)
                total += u
            (xi_k,) = ex.gaussian(_label(k)).noise(1)
            w = ex.project(total / T_k + xi_k)  # 11
            ex.checkpoint(w)
        return w  # 13


@dataclass(frozen=True)
class _Bisected(Loss):
    """The envelope of a convex Lipschitz loss with derivatives found by bisection (BGM21, Algorithm 3)."""

    loss: Loss
    beta: float
    alpha: float
    row_norm: float
    margin: bool = field(init=False)
    name = "bisected"

    def __post_init__(self) -> None:
        object.__setattr__(self, "margin", self.loss.margin)

    def core(self, xp: Any, s: Array, y: Array) -> Array:
        """Return the derivative at s to alpha / row_norm."""
        return bisection_derivative(xp, self.loss, s, y, self.beta, self.alpha, self.row_norm)

    def lipschitz(self, row_norm: float, radius: float, label_bound: float) -> float:
        """Return the bound of the loss, which an envelope keeps, with the error of the derivative."""
        return self.loss.lipschitz(row_norm, radius, label_bound) + self.alpha

    def smoothness(self, row_norm: float) -> float:
        """Return infinity: the derivative is found to an accuracy, and jumps by as much."""
        return math.inf


def _smoothed(loss: Loss, plan: PhasedSGDPlan) -> Loss:
    """Return the plan's envelope of the loss, or the loss itself if it is smooth."""
    if plan.beta is None:
        return loss
    if plan.alpha is None:
        return MoreauEnvelope(loss, plan.beta)  # type: ignore[arg-type]  # others are refused there
    return _Bisected(loss, plan.beta, plan.alpha, plan.R)


def _label(k: int) -> str:
    return f"phase {k}"


def _event(n: int, K: int, eta: float, sigma: float, G: float, alpha: float, reach: float) -> ParallelEvent:
    """Return the releases of all phases, each on samples of its own.

    Gradients that are wrong by up to alpha add a drift of at most 2 eta_k alpha in each step, and rounding one of a few
    units in the last place of points of length `reach`: late steps are so short that it counts.
    """

    def release(k: int) -> GaussianEvent:
        T_k, shrink = n >> k, 4.0 ** (1 - k)
        sensitivity = 0.5 * eta * shrink * (G + T_k * alpha) + ROUNDING * T_k * reach
        # With its share for rounding the sensitivity is a bound that no neighbours are known to reach.
        return GaussianEvent(_label(k), sigma * shrink, (QueryPart(sensitivity, T_k, T_k),), 1, attained=False)

    return ParallelEvent(PHASES, tuple((release(k),) for k in range(1, K + 1)))


def _reach(setting: Setting, D: float) -> float:
    """Return how long the points may be, at least 1; without a constraint D stands for it."""
    radius = setting.problem.constraint.radius
    return max(1.0, radius if math.isfinite(radius) else D)


def _phases(setting: Setting, given: Mapping[str, Any]) -> int:
    """Return K = floor(log2 n), or the given number if there are samples for it."""
    n = setting.problem.n
    most = n.bit_length() - 1
    if most < 1:
        raise VacuousSetting(f"phased_sgd has no sample for its first phase at n = {n}: it makes sense from n = 2.")
    wanted = int(given.get("K", most))
    if wanted > most:
        raise UserError(f"K of phased_sgd is {wanted}, but {n} samples make {most} phases only: give a smaller K.")
    return wanted


def _dimension(setting: Setting, given: Mapping[str, Any], n: float) -> int:
    """Return what the noise's share of the error grows with: d, or a bound on the rank without a constraint."""
    problem = setting.problem
    if "unconstrained" in problem.properties:
        return int(given.get("theta", min(n, problem.d)))
    if "theta" in given:
        raise UserError(
            f"phased_sgd was given theta, but on {problem.constraint.name} a projection mixes the directions of noise "
            "and data: drop theta, or the constraint."
        )
    return problem.d


def _oracle(setting: Setting, given: Mapping[str, Any], D: float) -> tuple[float | None, str | None, float | None]:
    """Return beta, the oracle and its alpha: sqrt(n) L0/(R D), closed form where there is one, L0 R/(n ln n).

    Theorem 5 has beta without D; the proof's form keeps the step stable for sets of any size.
    """
    problem = setting.problem
    if problem.loss.smooth:
        if unused := sorted({"beta", "oracle", "alpha"} & set(given)):
            raise UserError(
                f"phased_sgd was given {unused[0]}, but takes the smooth loss {problem.loss.full_name!r} as it is: "
                f"drop {unused[0]}."
            )
        return None, None, None
    L0 = problem.G / problem.row_norm
    beta = given.get("beta", math.sqrt(problem.n) * L0 / (problem.row_norm * D))
    oracle = given.get("oracle", "closed" if isinstance(problem.loss, PiecewiseLinear) else "bisection")
    if oracle == "closed":
        if "alpha" in given:
            raise UserError("phased_sgd was given alpha, but its oracle is exact: drop alpha, or set oracle=bisection.")
        MoreauEnvelope(problem.loss, beta)  # type: ignore[arg-type]  # refuses a loss without closed form
        return beta, oracle, None
    return beta, oracle, given.get("alpha", problem.G / (problem.n * math.log(max(problem.n, 3))))


def _step_size(setting: Setting, D: float, theta: int, n: float) -> float:
    """Return Algorithm 4's eta = D/(3 G) min(rho/sqrt(theta), 1/sqrt(n)), or the practical one."""
    G = setting.problem.G
    if setting.variant == "practical":
        return _practical_step_size(setting, D, theta, n)
    if not setting.noisy:
        return D / (3.0 * G * math.sqrt(n))
    return D / (3.0 * G) * min(_rho(setting) / math.sqrt(theta), 1.0 / math.sqrt(n))


def _rho(setting: Setting) -> float:
    """Return Algorithm 4's rho = epsilon/(2 sqrt(ln(1/delta)))."""
    return setting.epsilon / (2.0 * math.sqrt(math.log(1.0 / setting.delta)))


def _practical_step_size(setting: Setting, D: float, theta: int, n: float) -> float:
    """Return the eta that minimises the proof's bound with its true constants and the calibrated noise.

    Phase k costs distance^2/(2 eta_k T_k) + eta_k G^2/2; the first one starts at most D/2 away, the others by the noise
    before them, theta (2 eta_(k-1) G/mu)^2 for mu-GDP. Over all phases this is D^2/(n eta) + eta G^2 (1/6 + 16
    theta/(mu^2 n)). A start that is not the centre of the set is at most D away instead.
    """
    return _twice_from_start(setting, D) / (setting.problem.G * math.sqrt(n / 6.0 + 16.0 * theta / setting.mu**2))


def _twice_from_start(setting: Setting, D: float) -> float:
    """Return twice a bound on the distance of the start from any point: D in a set around it, else 2 D."""
    return 2.0 * D if setting.problem.off_centre else D


def _check_step(setting: Setting, given: Mapping[str, Any], eta: float, beta: float | None, D: float) -> None:
    """Refuse steps beyond stability, which privacy rests on, and a bound that promises nothing."""
    problem = setting.problem
    L = problem.L if beta is None else beta * problem.row_norm**2
    if eta / 4.0 * L > 2.0 * (1.0 + 1e-12):
        sentence = (
            f"phased_sgd would begin with steps of {eta / 4.0:.4g}, but a gradient step is stable, which privacy rests "
            f"on, only up to 2/L = {2.0 / L:.4g}"
        )
        if beta is not None or "eta" in given:
            raise UserError(f"{sentence}: give a smaller eta or beta.")
        enough = smallest_n(
            setting, lambda n: _step_size(setting, D, _dimension(setting, given, n), n) / 4.0 * L <= 2.0
        )
        raise VacuousSetting(f"{sentence}; it makes sense from n = {enough}. Give more data, or set eta or D.")

    def promises(n: float) -> bool:
        return _bound(setting, _dimension(setting, given, n), n) < 1.0

    if "eta" in given or promises(problem.n):
        return
    enough = smallest_n(setting, promises)
    raise VacuousSetting(
        f"phased_sgd learns nothing at n = {problem.n}: the bound of BGM21 Theorem 5 exceeds G D; it makes sense from "
        f"n = {enough}. Give more data, a larger epsilon, or set eta."
    )


def _bound(setting: Setting, theta: int, n: float) -> float:
    """Return Theorem 5's bound over G D."""
    noise = math.sqrt(theta * math.log(1.0 / setting.delta)) / (n * setting.epsilon)
    return 1.0 / math.sqrt(n) + noise


def _conditions(setting: Setting, eta: float, D: float) -> tuple[Condition, ...]:
    problem = setting.problem
    log = math.log(1.0 / setting.delta)
    first = problem.n // 2 * eta / 4.0 * problem.G
    conditions: tuple[Condition, ...] = (
        Condition("the steps of the first phase reach across half of D", first >= D / 2.0, f"{first:.3g}, D = {D:g}"),
    )
    if setting.noisy and setting.variant == "published":
        holds = setting.epsilon <= math.sqrt(log)
        detail = f"{setting.epsilon:g}, {math.sqrt(log):.3g}"
        conditions += (Condition("epsilon <= sqrt(ln(1/delta))", holds, detail, privacy=True),)
    if problem.regularizer.name != "none":
        conditions += (Condition("no regularizer", False, "the theorem bounds the risk of the loss alone"),)
    return conditions


def _utility(setting: Setting, D: float, theta: int) -> UtilityBound:
    """Return the bound of Theorem 5, or that of Theorem 19 for a minimiser at a distance of D = 1.

    In practice it is that of the proof at its best eta, without the distance of the envelope from the loss.
    """
    problem, n = setting.problem, setting.problem.n
    theorem = "BGM21, Theorem 19" if "unconstrained" in problem.properties else "BGM21, Theorem 5"
    if setting.variant == "practical":
        value = 2.0 * math.sqrt((1.0 / 6.0 + 16.0 * theta / (setting.mu**2 * n)) / n)
        value *= _twice_from_start(setting, D) / D
        formula = "2 G D sqrt((1/6 + 16 theta / (mu^2 n)) / n), twice that where the start is not the centre"
    else:
        value, formula = _bound(setting, theta, n), "G D (1 / sqrt(n) + sqrt(theta ln(1/delta)) / (n epsilon))"
    return UtilityBound(theorem, "excess population risk", formula, problem.G * D * value)


ALGORITHM = PhasedSGD()
