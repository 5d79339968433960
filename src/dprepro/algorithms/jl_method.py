"""The JL method for generalized linear models (ABG23, Algorithm 4, Theorem 6.1 and Corollary 6.2).

Rows are embedded by a random matrix Phi (k, d) that sees no data, a private algorithm runs in R^k, and its output w is
taken back as Phi^T w: noise then depends on k, not on d. Any registered algorithm for smooth Lipschitz losses without a
constraint can be wrapped; its plan is made for the embedded rows.

Privacy needs a bound on the embedded rows. As published it holds in an event of Phi, paid for with delta/2; with clip
= rows longer rows are shortened, so that it holds for every Phi and all of delta is left to the noise.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dprepro.algorithms import AUDITED_BASE, get_algorithm
from dprepro.algorithms.base import LARGEST_WORK, Algorithm, Condition, Letter, Plan, Setting, UtilityBound
from dprepro.errors import UserError, VacuousSetting
from dprepro.metrics import GRADIENT_NORM, SQUARED_GRADIENT
from dprepro.privacy.events import (
    ConditionEvent,
    DisjointGaussianEvent,
    Event,
    GaussianEvent,
    ObjectivePerturbationEvent,
    TreeEvent,
    leaves,
    replace_leaves,
)
from dprepro.problems.erm import ProblemSpec

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

SHORT_ROWS = "no embedded row is longer than sqrt(2) times the bound on the rows"
DEFAULT_BASE = "spiderboost"
# Chosen by hand on data of rank 8: between 2 and 8 times the rank the error hardly changes.
RANKS_IN_PRACTICE = 4
# Embedded rows are clipped to so many times the bound on the rows; a longer one is rare at any useful k.
CLIP = math.sqrt(2.0)
# Needs that an embedding does not keep: a set in R^d is no set in R^k, and there is no regulariser.
_NOT_KEPT = {
    "bounded": "a constraint set",
    "centrally_symmetric": "a constraint set",
    "polytope": "a constraint set",
    "strongly_convex": "a regularizer",
}


@dataclass(frozen=True, kw_only=True)
class JLPlan(Plan):
    """The embedding, and `inner`: the plan of the algorithm `base` in R^k, whose events are those of the whole.

    `rank` is a public bound on the rank of the data, None if none is known. `row_norm` is the length to which embedded
    rows are clipped, None with clip = event.
    """

    base: str
    k: int
    rank: int | None
    clip: str
    row_norm: float | None
    inner: Plan

    def with_noise(self, factor: float) -> Self:
        """Return the same plan with `factor` times the noise, in the inner plan too."""
        inner = self.inner.with_noise(factor)
        # Conditions of the wrapped algorithm may depend on its noise.
        own = self.conditions[: len(self.conditions) - len(self.inner.conditions)]
        return dataclasses.replace(super().with_noise(factor), inner=inner, conditions=(*own, *inner.conditions))

    def letters(self) -> dict[str, Any]:
        """Return the letters of the wrapped algorithm and of the embedding."""
        return {**self.inner.letters(), **{key: value for key, value in super().letters().items() if key != "inner"}}

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values, the inner plan among them."""
        return super().to_json() | {"inner": self.inner.to_json()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Plan:
        """Return the plan that `to_json` wrote."""
        inner = get_algorithm(record["base"]).plan_type.from_json(record["inner"])
        return super().from_json({**record, "inner": inner})


@dataclass(frozen=True)
class PrintedSpec(ProblemSpec):
    """Embedded rows with the constants that Algorithm 4 prints: `row_norm` is twice the bound on the rows.

    The Lipschitz constant is then 2 L0 ||X||, and the smoothness 2 L1 ||X||^2 is that of rows sqrt(2) ||X|| long.
    """

    @property
    def L(self) -> float:
        """Smoothness of one sample's loss on rows of the length that the privacy argument allows."""
        return self.loss.smoothness(self.row_norm / math.sqrt(2.0))


class JLMethod(Algorithm):
    """A private algorithm on randomly embedded rows."""

    name = "jl_method"
    title = "JL method"
    paper = "ABG23"
    # Embedded rows are all that a loss of <w, x> takes; one of the vector w itself has no rows to embed.
    needs = frozenset({"smooth", "lipschitz", "unconstrained", "glm"})
    takes_regularizer = False
    plan_type = JLPlan
    # Besides these, every letter of the wrapped algorithm.
    letters: ClassVar[Mapping[str, Letter]] = {
        "base": Letter(str, "the algorithm that is wrapped"),
        "k": Letter(int, "dimension of the embedding"),
        "rank": Letter(int, "a bound on the rank of the data that is known without looking at them"),
        "clip": Letter(str, "how embedded rows are bounded", choices=("event", "rows")),
    }

    def check_letters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Check the own letters; the others are those of the wrapped algorithm, which checks them itself."""
        base = _base(given)
        own = {key: value for key, value in given.items() if key in JLMethod.letters and key != "base"}
        passed = {key: value for key, value in given.items() if key not in JLMethod.letters}
        if unknown := sorted(set(passed) - set(base.letters)):
            both = f"{', '.join(sorted(self.letters))}, and of {base.name} {', '.join(sorted(base.letters))}"
            raise UserError(f"{self.name} has no parameter {unknown[0]!r}: it takes {both}.")
        return {"base": base.name, **super().check_letters(own), **base.check_letters(passed)}

    def rules(self, given: Mapping[str, Any]) -> Mapping[str, Letter]:
        """Return the letters of the embedding and of the wrapped algorithm."""
        return {**_base(given).letters, **self.letters}

    def check_needs(self, problem: ProblemSpec) -> None:
        """Refuse what an embedding does not keep: a constraint, a regularizer, a loss of the vector w itself."""
        super().check_needs(problem)
        if problem.regularizer.l1 or problem.regularizer.l2:
            raise UserError(f"{self.name} takes no regularizer, which an embedding does not keep: drop it.")

    def audit_case(self) -> Case:
        """Return the linear loss for wrapped gradient descent; the output has the record's coordinate."""
        from dprepro.privacy.cases import linear_case

        return linear_case(50, {"base": AUDITED_BASE, "T": 10, "k": 32, "clip": "rows"})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> JLPlan:
        """Choose k and the bound on the embedded rows, then plan the wrapped algorithm in R^k."""
        base, letters = _base(given), {key: value for key, value in given.items() if key not in JLMethod.letters}
        clip = given.get("clip", "event" if setting.variant == "published" else "rows")
        rank = given.get("rank", setting.problem.rank)

        def plan_in(k: int, variant: str) -> Plan:
            inner = _embedded(setting, k, clip, variant)
            base.check_needs(inner.problem)
            return _not_attained(base.compute_plan(inner, letters))

        k = given.get("k") or _dimension(setting, base, rank, lambda j: plan_in(j, "published"))
        inner = plan_in(k, setting.variant)
        _check_inner(inner)
        events, condition = _short_rows(setting, k) if clip == "event" else ((), ())
        return JLPlan(
            **self.plan_head(setting),
            theorem=f"ABG23, Theorem 6.1, with {inner.theorem}",
            sigma=inner.sigma,
            rounds=inner.rounds,
            gradient_evaluations=inner.gradient_evaluations,
            utility=_utility(inner),
            events=(*inner.events, *events),
            conditions=(
                Condition("k < d", k < setting.problem.d, f"k = {k}, d = {setting.problem.d}"),
                *condition,
                *inner.conditions,
            ),
            base=base.name,
            k=k,
            rank=rank,
            clip=clip,
            row_norm=CLIP * setting.problem.row_norm if clip == "rows" else None,
            inner=inner,
        )

    def run(self, plan: JLPlan, ex: Execution) -> Array:
        """Execute Algorithm 4."""
        ex.embed(plan.k, plan.row_norm)
        if plan.clip == "event":
            ex.condition(SHORT_ROWS)
        w_tilde = get_algorithm(plan.base).anew().run(plan.inner, ex)  # 1
        return ex.lift(w_tilde)


def _base(given: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm to wrap, or refuse one that needs what an embedding does not keep."""
    name = str(given.get("base", DEFAULT_BASE))
    if name == JLMethod.name:
        raise UserError(f"{name} cannot wrap itself: choose another algorithm.")
    base = get_algorithm(name)
    for need in sorted(base.needs & set(_NOT_KEPT)):
        raise UserError(f"jl_method cannot wrap {name}, which needs {_NOT_KEPT[need]}: choose another algorithm.")
    if base.looks_at_samples:
        raise UserError(f"jl_method cannot wrap {name}, which looks at single samples: choose another algorithm.")
    return base


def _embedded(setting: Setting, k: int, clip: str, variant: str) -> Setting:
    """Return the setting of the wrapped algorithm: embedded rows with their bound, and the delta that is left to it."""
    problem = setting.problem
    fields = {field.name: getattr(problem, field.name) for field in dataclasses.fields(ProblemSpec)}
    fields |= {"d": k, "row_sup": None}
    if clip == "rows":
        spec = ProblemSpec(**fields | {"row_norm": CLIP * problem.row_norm})
        return Setting(spec, setting.epsilon, setting.delta, variant)
    return Setting(
        PrintedSpec(**fields | {"row_norm": 2.0 * problem.row_norm}), setting.epsilon, setting.delta / 2.0, variant
    )


def _dimension(setting: Setting, base: Algorithm, rank: int | None, plan_in: Callable[[int], Plan]) -> int:
    """Return k of Theorem 6.1, ceil(min(argmin_j g(j) + L0 ||X|| ln(n) / sqrt(j), rank ln(2n/delta))).

    g(j) is the bound of the wrapped algorithm in R^j. In practice k is a multiple of the rank.
    """
    problem = setting.problem
    if setting.variant == "practical":
        if rank is None:
            raise UserError("jl_method has no dimension in practice without the rank of the data: set rank, or k.")
        return RANKS_IN_PRACTICE * rank
    by_rank = math.inf if rank is None else rank * math.log(2.0 * problem.n / setting.delta)
    try:
        balanced = _balanced(setting, plan_in)
    except VacuousSetting:
        if rank is None:
            raise
        balanced = math.inf
    if not math.isfinite(k := min(balanced, by_rank)):
        raise UserError(
            f"jl_method has no dimension for {base.name}, whose theorem bounds no gradient here: set rank, or k."
        )
    return math.ceil(k)


def _balanced(setting: Setting, plan_in: Callable[[int], Plan]) -> float:
    """Return the j with the smallest g(j) + L0 ||X|| ln(n) / sqrt(j); infinity if there is no bound g on the gradient.

    A sum of powers of j is convex in ln(j), so that the smallest one is found by comparing two places at a time.
    """
    problem = setting.problem
    if not _bounds_gradient(plan_in(1).utility):
        return math.inf

    def error(j: int) -> float:
        return _gradient_bound(plan_in, j) + problem.G * math.log(problem.n) / math.sqrt(j)

    high = 2
    while error(2 * high) < error(high):
        high *= 2
    low, high = high // 2, 2 * high
    while high - low > 2:
        left, right = low + (high - low) // 3, high - (high - low) // 3
        low, high = (low, right) if error(left) <= error(right) else (left, high)
    return min(range(low, high + 1), key=error)


def _gradient_bound(plan_in: Callable[[int], Plan], j: int) -> float:
    """Return the bound on the gradient norm of the wrapped algorithm in R^j; infinity where it promises nothing."""
    try:
        bound = plan_in(j).utility
    except VacuousSetting:
        return math.inf
    if bound is None or not _bounds_gradient(bound):
        return math.inf
    return bound.value if bound.quantity == GRADIENT_NORM else math.sqrt(bound.value)


def _bounds_gradient(bound: UtilityBound | None) -> bool:
    return bound is not None and bound.quantity in (GRADIENT_NORM, SQUARED_GRADIENT)


def _short_rows(setting: Setting, k: int) -> tuple[tuple[Event, ...], tuple[Condition, ...]]:
    """Return the event that every embedded row is short, and whether delta/2 pays for it at this k.

    ||Phi x||^2 / ||x||^2 is chi-square over k with k degrees of freedom, and those of two neighbours fail with at most
    n + 1 times the probability of one. Where that is more than delta/2, more is spent: the certificate then shows what
    is left.
    """
    from scipy.special import gammaincc

    # The rows of a dataset and the one by which a neighbour differs.
    failure = (setting.problem.n + 1) * float(gammaincc(0.5 * k, k))
    half = 0.5 * setting.delta
    spent = min(max(half, failure), math.nextafter(1.0, 0.0))
    condition = Condition(
        "P(an embedded row is longer than sqrt(2) times the bound on the rows) <= delta/2",
        failure <= half,
        f"(n + 1) P(chi-square of {k} > {2 * k}) = {failure:.3g}, delta/2 = {half:.3g}",
        privacy=True,
    )
    return (ConditionEvent(SHORT_ROWS, spent),), (condition,)


def _not_attained(inner: Plan) -> Plan:
    """Return the plan with sensitivities that no rows are known to attain: most matrices make rows shorter."""

    def event_of(event: Event) -> Event:
        if isinstance(event, GaussianEvent | TreeEvent | DisjointGaussianEvent):
            return dataclasses.replace(event, attained=False)
        return event

    return dataclasses.replace(inner, events=replace_leaves(inner.events, event_of))


def _utility(inner: Plan) -> UtilityBound | None:
    bound = inner.utility
    return None if bound is None else dataclasses.replace(bound, theorem=f"ABG23, Theorem 6.1, with {bound.theorem}")


def _check_inner(inner: Plan) -> None:
    """Refuse an inner plan that cannot be run on embedded rows."""
    if any(isinstance(event, ObjectivePerturbationEvent) for event in leaves(inner.events)):
        raise UserError(
            f"jl_method cannot wrap {inner.algorithm}, which needs second derivatives: choose another algorithm."
        )
    if inner.gradient_evaluations > LARGEST_WORK:
        raise UserError(
            f"{inner.algorithm} in jl_method would make {inner.gradient_evaluations:.1e} gradient evaluations at this "
            "setting, which no machine finishes: set its number of steps."
        )


@functools.cache
def wrapping(base: str) -> JLMethod:
    """Return the JL method around one algorithm, under the name `jl_<base>`."""
    title = get_algorithm(base).title
    fixed = type("JLWrapping", (_Wrapping,), {"name": f"jl_{base}", "title": f"JL method with {title}", "fixed": base})
    return fixed()


class _Wrapping(JLMethod):
    """The JL method around the algorithm `fixed`: as `jl_method` with its letter `base` set."""

    fixed: ClassVar[str]
    letters: ClassVar[Mapping[str, Letter]] = {key: JLMethod.letters[key] for key in JLMethod.letters if key != "base"}

    def check_letters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Check the letters of both; the wrapped algorithm is no letter here."""
        if given.get("base", self.fixed) != self.fixed:
            raise UserError(f"{self.name} was given base, but wraps {self.fixed}: drop it, or use jl_method.")
        return super().check_letters({**given, "base": self.fixed})

    def audit_case(self) -> Case:
        """Return the case of `jl_method` where it is about the wrapped algorithm."""
        if self.fixed != JLMethod.audit_case(self).letters["base"]:
            raise UserError(f"{self.name} has no audit of its own: audit jl_method, and {self.fixed} by itself.")
        case = super().audit_case()
        return dataclasses.replace(case, letters={k: v for k, v in case.letters.items() if k != "base"})


ALGORITHM = JLMethod()
