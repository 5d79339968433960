"""Recursive Regularization for convex losses (ABG23, Algorithm 3 and Theorem 5.1).

T rounds minimise the loss plus ever stronger quadratic terms around the points of the rounds before, with a private
solver: noisy gradient descent (Algorithm 7, the optimal rate) or phased SGD (Algorithms 5 and 6, one pass). What is
bounded is the norm of the population's gradient at the last point.

Privacy: in `folds` a record is in one round, where noisy descent releases K_t - 1 gradients and a phase of phased SGD
its mean point; with data = all every round looks at all records, and all releases compose as Gaussian DP. What is added
to the loss, the balls and the points of earlier rounds are post-processing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms._rounds import PHASES, Phase, Round, Schedule
from dprepro.algorithms.base import (
    SHRINKING_STEPS,
    Algorithm,
    Condition,
    Letter,
    Plan,
    Setting,
    UtilityBound,
    refuse_vacuous,
)
from dprepro.errors import UserError, VacuousSetting
from dprepro.geometry import L2Ball
from dprepro.metrics import GRADIENT_NORM
from dprepro.privacy.events import leaves

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

# Steps one after the other: a million take minutes, and what Theorem 5.1 asks for soon takes years.
MOST_STEPS = 10**6
# The strength of the added terms doubles with every round.
MOST_ROUNDS = 100
# With fewer records phased SGD has no phase of two.
FEWEST_RECORDS = 4


@dataclass(frozen=True, kw_only=True)
class RecursivePlan(Plan):
    """T rounds with strengths lambda_t = 2^t lam in balls of radius 2^(t/2) R; `_rounds.Round` has the numbers of each.

    K (points of a round of noisy descent) and eta are None where each round has its own. sigma is the noise of the
    first release. L0 and L1 are the constants of the loss, a user's regularizer included in L1.
    """

    subroutine: str
    data: str
    start: str
    lam: float
    T: int
    K: int | None
    eta: float | None
    R: float
    c: float
    L0: float
    L1: float

    @property
    def schedule(self) -> Schedule:
        """What all rounds follow from."""
        return Schedule(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Schedule)})


class RecursiveRegularization(Algorithm):
    """Private minimisation of the loss with recursively added quadratic terms."""

    name = "recursive_regularization"
    title = "Recursive Regularization"
    paper = "ABG23"
    needs = frozenset({"smooth", "convex", "lipschitz", "smooth_regularizer", "unconstrained"})
    plan_type = RecursivePlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "subroutine": Letter(str, "the solver of a round", choices=("noisy_gd", "phased_sgd")),
        "data": Letter(str, "records of a round: a fold of its own, or all", choices=("folds", "all")),
        "start": Letter(str, "where a round starts: at 0, or at the point before it", choices=("zero", "warm")),
        "lam": Letter(float, "lambda, the strength of the first quadratic term lambda/2 ||w||^2; later ones double"),
        "T": Letter(int, "rounds"),
        "K": Letter(int, "points of a round of noisy gradient descent, one more than its steps"),
        "eta": Letter(float, "step size; that of the first phase is a quarter of it"),
        "R": Letter(float, "length of a minimiser, 1 if not given"),
        "c": Letter(float, "the constant of the noise variance, 64 in Theorem 5.1", constant="stated"),
    }

    def audit_case(self) -> Case:
        """Return a linear loss whose one record is in the first of two folds; the score is where that round ended."""
        from dprepro.privacy.cases import linear_case

        case = linear_case(50, {"T": 2, "K": 3, "eta": 0.5, "lam": 1e-3, "R": 1000.0})
        return dataclasses.replace(
            case, name="linear loss, first round", score=lambda seen, case, plan: seen.points[0][:, 0]
        )

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> RecursivePlan:
        """Fill in what is not given, by Theorem 5.1 or as it works in practice."""
        problem, practical = setting.problem, setting.variant == "practical"
        subroutine, data = given.get("subroutine", "noisy_gd"), given.get("data", "folds")
        R, L1 = given.get("R", 1.0), _smoothness(setting)
        lam = given.get("lam") or _strength(setting, subroutine, R, problem.n)
        letters: dict[str, Any] = {
            "subroutine": subroutine,
            "data": data,
            "lam": lam,
            "T": given.get("T") or _rounds(setting, given, subroutine, R),
            "K": given.get("K"),
            "eta": given.get("eta"),
            "R": R,
            "c": given.get("c", 64.0),
            "L0": problem.G,
            "L1": L1,
        }
        head = self.plan_head(setting)
        schedule = Schedule(**{key: value for key, value in head.items() if key != "algorithm"}, **letters)
        _check(schedule)
        events = schedule.events(setting.mu, setting.spread_attained)
        return RecursivePlan(
            **head,
            **letters,
            start=given.get("start", "warm" if practical else "zero"),
            theorem="ABG23, Theorem 5.1",
            sigma=next(leaves(events)).sigma,  # type: ignore[union-attr]  # all are Gaussian
            rounds=schedule.T,
            gradient_evaluations=schedule.gradient_evaluations(),
            utility=_utility(setting, schedule),
            events=events,
            conditions=_conditions(setting, schedule),
        )

    def run(self, plan: RecursivePlan, ex: Execution) -> Array:
        """Execute Algorithm 3; comments give its line numbers. The loop goes to T, whose point is the output."""
        if plan.subroutine == "phased_sgd":
            ex.require_double(f"{self.name} runs phased_sgd", SHRINKING_STEPS)
        solve = _phased_sgd if plan.subroutine == "phased_sgd" else _noisy_gd
        w_bar, centre = ex.start(), ex.zeros()  # 1
        for r in plan.schedule.rounds():  # 3
            # f^(t-1) adds A_t/2 ||w||^2 - <centre, w> to the loss, centre = sum_{s<t} lambda_s w_s
            centre = centre + plan.lam * 2.0 ** (r.t - 1) * w_bar  # 2, 6
            start = w_bar if plan.start == "warm" else ex.zeros()
            w_bar = solve(plan, ex, r, start, centre)  # 4, 5
            ex.checkpoint(w_bar)
        return w_bar


def _noisy_gd(plan: RecursivePlan, ex: Execution, r: Round, w: Array, centre: Array) -> Array:
    """Execute Algorithm 7 from w; comments give its line numbers."""
    ball, mean, weights = L2Ball(r.R_t), w, _weights(1.0 - r.eta_t * r.strength)
    batch = None if plan.data == "all" else ex.fresh(r.n_t)
    next(weights)
    for xi in ex.gaussian(r.label).noise(r.K_t - 1):  # 2, 3
        nabla = ex.full_gradient(w) if batch is None else ex.batch_gradient(w, batch)
        nabla = nabla + ex.regularizer_gradient(w) + r.added * w - centre
        w = ball.project(ex.xp, w - r.eta_t * (nabla + xi))  # 4
        mean = mean + next(weights) * (w - mean)
    return mean


def _phased_sgd(plan: RecursivePlan, ex: Execution, r: Round, w: Array, centre: Array) -> Array:
    """Execute Algorithm 5 from w. Points that noise took out of the ball are projected, which sees no data."""
    ball = L2Ball(r.R_t)
    for phase in r.phases():
        mean = _output_perturbed(ex, r, phase, w, centre)
        w = ball.project(ex.xp, mean + ex.disjoint_gaussian(PHASES).noise(phase.kind))
    return w


def _output_perturbed(ex: Execution, r: Round, phase: Phase, w: Array, centre: Array) -> Array:
    """Return the weighted mean of Algorithm 6's points, before its noise."""
    ball, mean, weights = L2Ball(r.R_t), w, _weights(1.0 - phase.eta * r.strength)
    next(weights)
    for z in ex.fresh_samples(phase.steps):  # 1
        nabla = ex.sample_gradient(w, z) + ex.regularizer_gradient(w) + r.added * w - centre
        w = ball.project(ex.xp, w - phase.eta * nabla)  # 2
        mean = mean + next(weights) * (w - mean)  # 5
    return mean


def _weights(factor: float) -> Iterator[float]:
    """Yield gamma_k / (gamma_1 + ... + gamma_k), gamma_k = factor^-k: the share of point k in the mean S_t up to it."""
    total = 0.0
    while True:
        total = 1.0 + factor * total
        yield 1.0 / total


def _smoothness(setting: Setting) -> float:
    return setting.problem.L + setting.problem.regularizer.l2


def _strength(setting: Setting, subroutine: str, R: float, n: float) -> float:
    """Return lambda = L0^2/(L1 R^2) max(1/n, d/(n epsilon)^2); for phased SGD at least L1 ln(n)/n.

    The theorem prints ||w*|| and min; its proof needs sqrt(lambda L1) R within the rate, which is this. In practice
    d/(n epsilon)^2 is the squared relative length of the noise of one release with the whole budget.
    """
    problem, L1 = setting.problem, _smoothness(setting)
    noise = setting.relative_noise(n) ** 2 if setting.variant == "practical" else problem.d / (n * setting.epsilon) ** 2
    lam = problem.G**2 / (L1 * R**2) * max(1.0 / n, noise)
    return max(lam, L1 * math.log(max(n, 3.0)) / n) if subroutine == "phased_sgd" else lam


def _rounds(setting: Setting, given: Mapping[str, Any], subroutine: str, R: float) -> int:
    """Return T = floor(log2(L1/lambda)), if that is a round at all."""
    L1 = _smoothness(setting)

    def lam(n: float) -> float:
        return float(given.get("lam") or _strength(setting, subroutine, R, n))

    if "lam" in given and lam(1.0) > 0.5 * L1:
        raise UserError(f"lam of recursive_regularization is {lam(1.0):g}: give at most L1/2 = {0.5 * L1:.4g}, or T.")
    refuse_vacuous(
        setting,
        lambda n: lam(n) <= 0.5 * L1,
        "recursive_regularization has no round",
        f"Theorem 5.1 of ABG23 has lambda = {lam(setting.problem.n):.3g}, more than half of L1 = {L1:.3g}",
    )
    return math.floor(math.log2(L1 / lam(setting.problem.n)))


def _check(schedule: Schedule) -> None:
    """Refuse letters that do not go together, rounds without records, and more steps than anyone waits for."""
    name, phased = RecursiveRegularization.name, schedule.subroutine == "phased_sgd"
    if phased and schedule.data == "all":
        raise UserError(f"{name} runs phased_sgd on records that no round saw before: set data=folds.")
    if phased and schedule.K:
        raise UserError(f"{name} was given K, but phased_sgd takes a step for every record: drop K.")
    if schedule.K == 1:
        raise UserError(f"K of {name} is 1, which is the start alone: give at least 2.")
    if schedule.T > MOST_ROUNDS:
        raise UserError(f"{name} has T = {schedule.T} rounds: set T to at most {MOST_ROUNDS}.")
    if schedule.lam >= schedule.L1:
        raise UserError(f"lam of {name} is {schedule.lam:g}: give less than L1 = {schedule.L1:.4g}.")
    fewest = FEWEST_RECORDS if phased else 1
    if schedule.n_t < fewest:
        raise UserError(
            f"{name} has {schedule.T} rounds for {schedule.n} records, but each needs {fewest}: give a smaller T."
        )
    _check_steps(schedule)


def _check_steps(schedule: Schedule) -> None:
    """Refuse steps that are too long for the weights and, in phases, for privacy, or too many."""
    name, largest = RecursiveRegularization.name, schedule.longest_step(schedule.T)
    if schedule.eta and schedule.eta > largest * (1.0 + 1e-12):
        raise UserError(f"eta of {name} is {schedule.eta:g}: give at most {largest:.4g}, where its steps are stable.")
    steps = sum(r.K_t for r in schedule.rounds())
    if schedule.subroutine == "noisy_gd" and steps > MOST_STEPS:
        raise VacuousSetting(
            f"{name} would take {steps:.1e} steps one after the other, {schedule.gradient_evaluations():.1e} gradient "
            f"evaluations, at n = {schedule.n}, and more data make it more: set K, or use variant=practical."
        )


def _conditions(setting: Setting, schedule: Schedule) -> tuple[Condition, ...]:
    conditions: tuple[Condition, ...] = ()
    if not schedule.eta:
        cut = sum(schedule.printed_step(t) > schedule.longest_step(t) for t in range(1, schedule.T + 1))
        detail = f"steps are cut to that in {cut} of {schedule.T} rounds"
        conditions += (Condition("steps as printed are at most 1/(L1 + A_t)", not cut, detail),)
    if schedule.data == "all":
        detail = "the bound on the population is proved for folds"
        conditions += (Condition("every round has records of its own", False, detail),)
    if setting.problem.regularizer.name != "none":
        conditions += (Condition("no regularizer", False, "the theorem bounds the risk of the loss alone"),)
    return conditions


def _utility(setting: Setting, schedule: Schedule) -> UtilityBound:
    """Return the bound of Theorem 5.1 with its hidden constant taken as 1, and without its logarithms.

    In practice it is the same rate for one round, with its n_t records and its share of the budget; the proof adds up
    one for each round.
    """
    L0, n, T = schedule.L0, schedule.n, schedule.T
    if setting.variant == "practical":
        share = math.sqrt(T) if schedule.data == "all" else float(T)
        value = L0 / math.sqrt(schedule.n_t) + L0 * share * setting.relative_noise()
        formula = f"L0 / sqrt(n_t) + 2 L0 sqrt(d) {'sqrt(T)' if schedule.data == 'all' else 'T'} / (n mu)"
    else:
        value = L0 / math.sqrt(n) + L0 * math.sqrt(schedule.d) / (n * schedule.epsilon)
        formula = "L0 / sqrt(n) + L0 sqrt(d) / (n epsilon)"
    if schedule.subroutine == "phased_sgd":
        value, formula = value + schedule.L1 * schedule.R / math.sqrt(n), f"{formula} + L1 R / sqrt(n)"
    return UtilityBound("ABG23, Theorem 5.1", GRADIENT_NORM, formula, value)


ALGORITHM = RecursiveRegularization()
