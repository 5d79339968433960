"""Private SpiderBoost (ABG23, Algorithm 2; Theorems 4.2 and B.3).

Phases of q steps: a phase starts from the full gradient with noise, and every later step adds a gradient difference
with noise to the estimate before it. The loss must be smooth and need not be convex.

Privacy: a record's gradient changes by at most L1 ||w_t - w_{t-1}||, and by at most 2 L0. Both points follow from
earlier releases, so the noise of a difference is a known multiple of noise for points at distance one: that is what the
plan accounts for, and what the run multiplies by min(||w_t - w_{t-1}||, 2 L0/L1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dprepro.algorithms.base import (
    Algorithm,
    Condition,
    Letter,
    Plan,
    Setting,
    UtilityBound,
    beyond_the_loss,
    refuse_vacuous,
)
from dprepro.errors import UserError
from dprepro.metrics import GRADIENT_NORM
from dprepro.privacy.events import GaussianEvent, QueryPart

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

ANCHOR = "gradient of a phase"
VARIATION = "gradient difference per unit of distance"
ACCURATE = "differences stay accurate over a phase: kappa = tau_2^2 eta^2 q < 1/2, which makes A > 0 in Lemma B.1"
OUTPUTS = ("uniform", "last")
# Without noise the theorem's number of steps is infinite.
STEPS_WITHOUT_NOISE = 1000
# The practical multiples of T and q, chosen on the non-convex valley with n up to 2^16 (4 of T times 3 of q tried).
T_IN_PRACTICE, Q_IN_PRACTICE = 0.25, 0.25


@dataclass(frozen=True, kw_only=True)
class SpiderBoostPlan(Plan):
    """T steps of size eta in phases of q: a phase's gradient looks at b1 records, differences at b2, `full` ones at n.

    `output` is `uniform`, as in the theorem, or `last`, which no theorem covers.

    `sigma` is the noise of a phase's first gradient. L0 and L1 are the Lipschitz constant and the smoothness of a
    record's loss, F0 bounds the initial gap.
    """

    T: int
    q: int
    b1: int
    b2: int
    eta: float
    c: float
    F0: float
    batches: str
    output: str
    L0: float
    L1: float

    @property
    def phases(self) -> int:
        """How many phases there are: N1 = ceil(T/q)."""
        return -(-self.T // self.q)

    @property
    def longest(self) -> float:
        """The distance 2 L0/L1 beyond which the noise of a difference grows no more."""
        return 2.0 * self.L0 / self.L1

    @property
    def sigma2(self) -> float:
        """The noise of a difference between points at distance one; 0 if there are no differences."""
        return next((e.sigma for e in self.events if isinstance(e, GaussianEvent) and e.label == VARIATION), 0.0)

    @property
    def kappa(self) -> float:
        """tau_2^2 eta^2 q of Lemma B.1, tau_2^2 = d sigma2^2 + L1^2/b2: how far differences go astray in a phase."""
        sampling = self.L1**2 / self.b2 if self.batches == "sampled" else 0.0
        return (self.d * self.sigma2**2 + sampling) * self.eta**2 * self.q

    def with_noise(self, factor: float) -> Self:
        """Return the same plan with `factor` times the noise, and kappa judged by it."""
        return super().with_noise(factor).judged()

    def judged(self) -> Self:
        """Return the plan with the condition on its kappa in first place."""
        others = tuple(condition for condition in self.conditions if condition.text != ACCURATE)
        return replace(self, conditions=(Condition(ACCURATE, self.kappa < 0.5, f"kappa = {self.kappa:.3g}"), *others))


class SpiderBoost(Algorithm):
    """Gradient descent whose estimates add up differences, with noise in proportion to the distance moved."""

    name = "spiderboost"
    title = "Private SpiderBoost"
    paper = "ABG23"
    needs = frozenset({"smooth", "smooth_regularizer", "lipschitz"})
    plan_type = SpiderBoostPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "steps"),
        "q": Letter(int, "steps of a phase"),
        "b1": Letter(int, "records of a phase's gradient, all in the theorem"),
        "b2": Letter(int, "records of a difference, if batches=sampled"),
        "eta": Letter(float, "step size"),
        "c": Letter(float, "the open constant of the noise: variance proportional to c^2", constant="set here"),
        "F0": Letter(float, "bound on F(0) - min F, 1 if not given"),
        "batches": Letter(str, "whether differences look at all records or at b2", choices=("full", "sampled")),
        "output": Letter(str, "which iterate is returned, a uniformly random one if not given", choices=OUTPUTS),
    }

    def audit_case(self) -> Case:
        """Return records of which one turns both the gradients and the differences; the attacker sees all steps."""
        from dprepro.privacy.cases import turning_case

        return turning_case({"T": 8, "q": 4, "eta": 1.0, "batches": "full"})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> SpiderBoostPlan:
        """Fill in what is not given by Theorem B.3; in practice with multiples of T and q and half of mu^2 each."""
        problem = setting.problem
        n, L0, L1 = problem.n, problem.G, problem.L
        F0, c = given.get("F0", 1.0), given.get("c", 1.0)
        T, q, b2 = _schedule(setting, given, F0)
        batches = "full" if b2 == n else "sampled"
        first, later = -(-T // q), T - -(-T // q)
        b1 = given.get("b1", n)
        if b1 > n:
            raise UserError(f"b1 of {self.name} is {b1}, but there are {n} records: give at most {n}.")
        sigma, sigma2 = _noise(setting, c, (first, later), T, q, (b1, b2))
        anchor, variation = QueryPart(2.0 * L0 / b1, b1, n), QueryPart(2.0 * L1 / b2, b2, n)
        events = [GaussianEvent(ANCHOR, sigma, (anchor,), first, attained=setting.spread_attained)]
        if later:
            # Where gradients are at their steepest all along a run, they do not turn.
            events.append(GaussianEvent(VARIATION, sigma2, (variation,), later, attained=False))
        eta = given.get("eta", 0.5 / (L1 + problem.regularizer.l2))
        return SpiderBoostPlan(
            **self.plan_head(setting),
            theorem="ABG23, Theorem B.3",
            sigma=sigma,
            rounds=T,
            gradient_evaluations=first * b1 + 2 * b2 * later,
            utility=_utility(setting, F0),
            events=tuple(events),
            conditions=_conditions(setting, eta),
            T=T,
            q=q,
            b1=b1,
            b2=b2,
            eta=eta,
            c=c,
            F0=F0,
            batches=batches,
            output=given.get("output", "uniform"),
            L0=L0,
            L1=L1,
        ).judged()

    def run(self, plan: SpiderBoostPlan, ex: Execution) -> Array:
        """Execute Algorithm 2; comments give its line numbers.

        A constraint is kept by projection and the gradient of a regulariser is added to each step: neither sees data.
        """
        xp = ex.xp
        why = "the noise of a difference shrinks with the distance, the rounding of its gradients does not"
        ex.require_double(f"{self.name} runs", why)
        chosen = ex.uniform_index(plan.T) if plan.output == "uniform" else None
        anchors, variations = _anchors(plan, ex), _variations(plan, ex)
        w = w_before = output = ex.start()
        nabla = ex.zeros()
        for t in range(plan.T):  # 5; the step T of the printed loop leads to no possible output
            if t % plan.q == 0:  # 6
                batch, z = next(anchors)  # 7, 8
                nabla = (ex.full_gradient(w) if batch is None else ex.sample_gradient(w, batch)) + z  # 9
            else:
                batch, z = next(variations)  # 11
                g = _distance(plan, xp, w - w_before) * z  # 12
                nabla = nabla + _difference(ex, w, w_before, batch) + g  # 13, 14
            w_before, w = w, ex.project(w - plan.eta * (nabla + ex.regularizer_gradient(w)))  # 16
            if chosen is not None:
                output = xp.where(chosen == t, w, output)  # 18
                ex.candidate(w, t, plan.T)
            ex.checkpoint(w)
        return w if chosen is None else output


def _anchors(plan: SpiderBoostPlan, ex: Execution) -> Iterator[tuple[Any, Array]]:
    """Yield the batch of each phase's gradient, None for all records, and its noise (K, d)."""
    if plan.b1 < plan.n:
        return ex.sampled(ANCHOR, plan.phases)
    return ((None, z) for z in ex.gaussian(ANCHOR).noise(plan.phases))


def _variations(plan: SpiderBoostPlan, ex: Execution) -> Iterator[tuple[Any, Array]]:
    """Yield the batch of each difference, None for all records, and its noise (K, d) for points at distance one."""
    count = plan.T - plan.phases
    if not count:
        return iter(())
    if plan.batches == "sampled":
        return ex.sampled(VARIATION, count)
    return ((None, z) for z in ex.gaussian(VARIATION).noise(count))


def _difference(ex: Execution, w: Array, w_before: Array, batch: Any) -> Array:
    return ex.full_difference(w, w_before) if batch is None else ex.gradient_difference(w, w_before, batch)


def _distance(plan: SpiderBoostPlan, xp: Any, moved: Array) -> Array:
    """Return min(||w_t - w_{t-1}||, 2 L0/L1) of each replicate as (K, 1)."""
    length = xp.sqrt(xp.sum(moved * moved, axis=1, keepdims=True))
    return xp.where(length < plan.longest, length, plan.longest)


def _relative(setting: Setting, n: float) -> float:
    """Return sqrt(d ln(1/delta))/(n epsilon), in practice 2 sqrt(d)/(n mu): the noise on one gradient, over L0."""
    if setting.variant == "practical":
        return setting.relative_noise(n)
    return math.sqrt(setting.problem.d * math.log(1.0 / setting.delta)) / (n * setting.epsilon)


def _steps(setting: Setting, F0: float, n: float) -> float:
    """Return T = (F0 L1)^(1/3) / (L0^(2/3) a^(4/3)), in the theorem at least 1/a, where a is the relative noise."""
    problem, a = setting.problem, _relative(setting, n)
    balanced = (F0 * problem.L / problem.G**2) ** (1.0 / 3.0) * a ** (-4.0 / 3.0)
    return T_IN_PRACTICE * balanced if setting.variant == "practical" else max(balanced, 1.0 / a)


def _phase(setting: Setting, T: float, n: float) -> float:
    """Return q = 1/(T a^2): the proof's, without the L1^2 in the statement, which has another unit."""
    return (Q_IN_PRACTICE if setting.variant == "practical" else 1.0) / (T * _relative(setting, n) ** 2)


def _batch(setting: Setting, F0: float, T: float, n: float) -> float:
    """Return b2: the theorem's, in practice max(n/sqrt(T), 1/(T a^2))."""
    a = _relative(setting, n)
    if setting.variant == "practical":
        return max(n / math.sqrt(T), 1.0 / (T * a**2))
    ratio = setting.problem.G / math.sqrt(F0 * setting.problem.L)
    return max((ratio / a) ** (2.0 / 3.0), n * ratio ** (1.0 / 3.0) * a ** (2.0 / 3.0))


def _schedule(setting: Setting, given: Mapping[str, Any], F0: float) -> tuple[int, int, int]:
    """Return T, q and b2 as given, else by the theorem; b2 = n stands for full batches."""
    n, name = setting.problem.n, SpiderBoost.name
    full = given.get("batches") == "full"
    if full and given.get("b2", n) != n:
        raise UserError(f"{name} was given b2 = {given['b2']} with batches=full, which look at all records: drop one.")
    if given.get("b2", n) > n:
        raise UserError(f"b2 of {name} is {given['b2']}, but there are {n} records: give at most {n}.")
    if not setting.noisy:
        root = math.ceil(math.sqrt(n))  # differences of sqrt(n) records stay accurate for about as many steps
        T = given.get("T", STEPS_WITHOUT_NOISE)
        return T, min(given.get("q", root), T), n if full else given.get("b2", root)
    _refuse_vacuous(setting, given, F0, full)
    T = given.get("T") or math.floor(_steps(setting, F0, n))
    q = given.get("q") or math.floor(_phase(setting, T, n))
    return T, min(q, T), n if full else given.get("b2") or math.floor(_batch(setting, F0, T, n))


def _refuse_vacuous(setting: Setting, given: Mapping[str, Any], F0: float, full: bool) -> None:
    def works(n: float) -> bool:
        T = given.get("T") or math.floor(_steps(setting, F0, n))
        if T < 1:
            return False
        q = given.get("q") or math.floor(_phase(setting, T, n))
        return q >= 1 and (full or 1.0 <= (given.get("b2") or _batch(setting, F0, T, n)) <= n)

    refuse_vacuous(
        setting,
        works,
        f"{SpiderBoost.name} has no phase",
        "with the noise of this epsilon T, q and n/b2 of ABG23 Theorem B.3 are not all at least 1",
        "T, q and b2",
    )


def _noise(
    setting: Setting, c: float, counts: tuple[int, int], T: int, q: int, batches: tuple[int, int]
) -> tuple[float, float]:
    """Return sigma_1 and sigma_2 of lines 2 and 3, in practice those that give half of mu^2 to each.

    In practice the noise of sampled differences is that which composition would ask for without the finite sample:
    what it really takes is found by calibration.
    """
    if not setting.noisy:
        return 0.0, 0.0
    problem = setting.problem
    n, L0, L1 = problem.n, problem.G, problem.L
    if setting.variant == "practical":
        unit = 2.0 * math.sqrt(2.0) / (n * setting.mu)
        return unit * L0 * math.sqrt(counts[0]), unit * L1 * math.sqrt(counts[1])
    unit = c * math.sqrt(math.log(1.0 / setting.delta)) / setting.epsilon
    b1, b2 = batches
    return unit * L0 * max(1.0 / b1, math.sqrt(T / q) / n), unit * L1 * max(1.0 / b2, math.sqrt(T) / n)


def _conditions(setting: Setting, eta: float) -> tuple[Condition, ...]:
    """Return what the theorem asks for, but for what depends on the noise."""
    problem = setting.problem
    conditions: tuple[Condition, ...] = (
        Condition("eta <= 1/(2 L1)", eta * problem.L <= 0.5 + 1e-12, f"eta L1 = {eta * problem.L:.3g}"),
    )
    if setting.noisy and setting.variant == "published":
        detail = f"epsilon = {setting.epsilon:g}"
        conditions += (Condition("epsilon <= 1", setting.epsilon <= 1.0, detail, privacy=True),)
    return conditions + beyond_the_loss(problem)


def _utility(setting: Setting, F0: float) -> UtilityBound:
    """Return Theorem B.3's bound on the expected gradient norm of the output."""
    problem = setting.problem
    a = 0.0
    if setting.noisy:
        a = math.sqrt(problem.d * math.log(1.0 / setting.delta)) / (problem.n * setting.epsilon)
    formula = "(sqrt(F0 L1 L0) a)^(2/3) + L0 a with a = sqrt(d ln(1/delta)) / (n epsilon)"
    value = (math.sqrt(F0 * problem.L * problem.G) * a) ** (2.0 / 3.0) + problem.G * a
    return UtilityBound("ABG23, Theorem B.3", GRADIENT_NORM, formula, value)


ALGORITHM = SpiderBoost()
