"""DP-SGD: stochastic gradient descent with Gaussian noise in every step.

Bassily, Smith and Thakurta: Private empirical risk minimization (FOCS 2014), Algorithm 1, the rows [6] of WYX17's
Tables 1 and 2. The paper adds noise to n times the gradient of one record; here all is in units of the mean gradient.
The last iterate is the output, by the analysis of Shamir and Zhang (2013).

With `sampling = once` it is a single pass over disjoint batches, whose releases a record meets once: each has the whole
budget.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import Algorithm, Condition, Letter, Plan, Setting, UtilityBound
from dprepro.errors import UserError
from dprepro.privacy.events import DisjointGaussianEvent, Event, GaussianEvent, QueryPart

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

STEP = "stochastic gradient step"
# The practical variant: a fortieth of the records per step, and steps for a few passes over the data.
PRACTICAL_BATCHES = 40
PRACTICAL_STEPS = 250
ONCE = "once"


@dataclass(frozen=True, kw_only=True)
class DPSGDPlan(Plan):
    """T steps on b records; `step` says how the step size falls, `sampling` how batches are drawn.

    Step number t has the size eta if `step` is constant, 1/(mu t) if inverse, and D / sqrt(t (G^2 + d sigma^2)) if
    inverse_root. `output` is the last iterate, the mean of all, the mean of the second half (suffix), or one of the
    points before the steps, uniformly.
    """

    T: int
    b: int
    c: float
    sampling: str
    step: str
    eta: float | None
    mu: float
    D: float
    G: float
    output: str

    def step_size(self, t: int) -> float:
        """Return the size of step t = 1, 2, ..."""
        if self.eta is not None:
            return self.eta
        if self.step == "inverse":
            return 1.0 / (self.mu * t)
        return self.D / math.sqrt(t * (self.G**2 + self.d * self.sigma**2))


class DPSGD(Algorithm):
    """Stochastic proximal gradient descent with Gaussian noise in every step."""

    name = "dp_sgd"
    title = "DP-SGD"
    paper = "BST14"
    needs = frozenset({"lipschitz"})
    plan_type = DPSGDPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "steps (n^2 in the paper)"),
        "b": Letter(int, "records per step (1 in the paper), the expected number if sampling=poisson"),
        "eta": Letter(float, "constant step size"),
        "c": Letter(float, "factor of the noise variance, 32 ln(n/delta) in the paper", constant="stated"),
        "D": Letter(float, "distance from the start to a minimiser, for step=inverse_root"),
        "sampling": Letter(str, "how batches are drawn", choices=("fixed", "poisson", ONCE)),
        "step": Letter(str, "step size rule", choices=("inverse", "inverse_root", "constant")),
        "output": Letter(str, "which iterate is returned", choices=("last", "mean", "suffix", "uniform")),
    }

    def audit_case(self) -> Case:
        """Return a case in which every drawn record leaks all it can; the attacker sees all steps."""
        from dprepro.privacy.cases import sampled_case

        return sampled_case({"T": 20, "b": 10, "eta": 1.0})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> DPSGDPlan:
        """Fill in what is not given: the numbers of the paper, or those of the practical variant."""
        problem = setting.problem
        n, G = problem.n, problem.G
        practical = setting.variant == "practical"
        b = given.get("b", max(1, n // PRACTICAL_BATCHES) if practical else 1)
        if b >= n:
            raise UserError(f"b of {self.name} is {b}, but there are {n} records: give a smaller batch, or use dp_gd.")
        sampling = given.get("sampling", "poisson" if practical else "fixed")
        T = given.get("T", n // b if sampling == ONCE else PRACTICAL_STEPS if practical else n * n)
        if sampling == ONCE and T * b > n:
            raise UserError(f"{self.name} cannot take {T} batches of {b} once from {n} records: give a smaller T or b.")
        c = given.get("c", 32.0 * math.log(n / setting.delta))
        # A record of a single pass meets one release, on a batch of b.
        sigma = setting.noise(c, 1) * n / b if sampling == ONCE else setting.noise(c, T)
        step, eta = _step_rule(setting, given)
        D = given.get("D", problem.constraint.radius if math.isfinite(problem.constraint.radius) else 1.0)
        return DPSGDPlan(
            **self.plan_head(setting),
            theorem="BST14, Theorem 2.1",
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * b,
            utility=_utility(setting, D) if problem.loss.convex else None,
            events=(_event(setting, sampling, sigma, b, T),),
            conditions=_conditions(setting, T, b, step, given),
            T=T,
            b=b,
            c=c,
            sampling=sampling,
            step=step,
            eta=eta,
            mu=problem.mu,
            D=D,
            G=G,
            output=given.get("output", "suffix" if practical else "last"),
        )

    def run(self, plan: DPSGDPlan, ex: Execution) -> Array:
        """Execute Algorithm 1 with a proximal step, which sees no data, in place of the projection."""
        x = output = ex.start()
        chosen = ex.uniform_index(plan.T) if plan.output == "uniform" else None
        unused = {"last": plan.T, "mean": 0, "suffix": plan.T // 2}.get(plan.output, plan.T)
        obstacle = "records in their order" if plan.sampling == ONCE else "" if chosen is None else "a uniform output"
        if ex.steps_in_kernel(STEP, obstacle):
            return _in_kernel(plan, ex, unused)
        for t, (gradient, z) in enumerate(_queries(plan, ex), start=1):
            eta = plan.step_size(t)
            before, x = x, ex.prox(x - eta * (gradient(x) + z), eta)
            if chosen is not None:
                ex.candidate(before, t - 1, plan.T)
                output = ex.xp.where(chosen == t - 1, before, output)
            else:
                output = x if t <= unused + 1 else output + (x - output) / (t - unused)
            ex.checkpoint(output)
        return output


def _in_kernel(plan: DPSGDPlan, ex: Execution, unused: int) -> Array:
    """Execute the same steps, those between two recorded rounds at one time."""
    x = output = ex.start()
    mechanism, done = ex.gaussian(STEP), 0
    for steps in ex.stretches(plan.T):
        etas = [plan.step_size(t) for t in range(done + 1, done + steps + 1)]
        x, output = ex.descend(mechanism, x, output, etas, unused)
        ex.checkpoint(output, steps)
        done += steps
    return output


def _queries(plan: DPSGDPlan, ex: Execution) -> Iterator[tuple[Callable[[Array], Array], Array]]:
    """Yield for each step the mean gradient over its batch, as a function of the point, and the noise (K, d)."""
    if plan.sampling == ONCE:
        noise = ex.disjoint_gaussian(STEP)
        for _ in range(plan.T):
            batch = ex.fresh(plan.b)
            yield functools.partial(ex.batch_gradient, batch=batch), noise.noise(0)
        return
    for index, z in ex.sampled(STEP, plan.T):
        yield functools.partial(ex.sample_gradient, index=index), z


def _event(setting: Setting, sampling: str, sigma: float, b: int, T: int) -> Event:
    """Return the releases: a record of a Poisson batch comes or goes; in a batch of fixed size it is replaced."""
    n, G, attained = setting.problem.n, setting.problem.G, setting.spread_attained
    if sampling == ONCE:
        return DisjointGaussianEvent(STEP, (sigma,), (2.0 * G / b,), T, attained)
    part = QueryPart(G / b, b, n, poisson=True) if sampling == "poisson" else QueryPart(2.0 * G / b, b, n)
    return GaussianEvent(STEP, sigma, (part,), T, attained=attained)


def _step_rule(setting: Setting, given: Mapping[str, Any]) -> tuple[str, float | None]:
    """Return the step size rule and its constant step, if it has one: half of 1/L of F^r by default.

    A loss with kinks has no 1/L, so that in practice too its steps are those of the paper.
    """
    problem = setting.problem
    default = "inverse" if problem.mu > 0 else "inverse_root" if problem.loss.convex else "constant"
    if "eta" in given or (setting.variant == "practical" and problem.loss.smooth):
        default = "constant"
    step = given.get("step", default)
    if step != "constant" and "eta" in given:
        raise UserError(f"dp_sgd was given eta with step={step}, which has step sizes of its own: drop one of them.")
    if step == "constant" and "eta" not in given and not problem.loss.smooth:
        raise UserError(f"dp_sgd has no constant step for the loss {problem.loss.full_name!r} with kinks: give eta.")
    if step == "inverse" and not problem.mu > 0:
        raise UserError("dp_sgd has no step 1/(mu t) without strong convexity: add an l2 regularizer, or drop step.")
    return step, given.get("eta", 0.5 / (problem.L + problem.mu)) if step == "constant" else None


def _conditions(setting: Setting, T: int, b: int, step: str, given: Mapping[str, Any]) -> tuple[Condition, ...]:
    n = setting.problem.n
    conditions: tuple[Condition, ...] = (
        Condition(
            "n^2 steps on one record each", n * n == T and b == 1, f"T = {T}, n^2 = {n * n}, b = {b}", privacy=True
        ),
    )
    if step == "inverse_root" and "D" not in given and not math.isfinite(setting.problem.constraint.radius):
        conditions += (Condition("a bounded set, whose size the step needs", False, "D is taken as 1"),)
    return conditions


def _utility(setting: Setting, D: float) -> UtilityBound:
    """Return BST14's bounds, Theorem 2.4, with their logarithms of n/delta."""
    problem, signal = setting.problem, setting.signal()
    log = math.log(problem.n / setting.delta)
    if problem.mu > 0:
        formula = "p ln(n/delta)^2 G^2 ln(1/delta) / (n^2 epsilon^2 mu)"
        return UtilityBound("BST14, Theorem 2.4", "optimality gap", formula, (log / signal) ** 2 / problem.mu)
    formula = "D ln(n/delta)^(3/2) G sqrt(p ln(1/delta)) / (n epsilon)"
    return UtilityBound("BST14, Theorem 2.4", "optimality gap", formula, D * log**1.5 / signal)


ALGORITHM = DPSGD()
